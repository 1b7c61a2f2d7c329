"""What a role reaches: the fixpoint over the graph, gated by names.

First the eager part: module bodies and what they import. Then the rest: a function counts as reached once reached
code refers to its name, and then adds names and edges in turn. Names only ever grow, so the result does not depend
on the order.
"""

from __future__ import annotations

from collections.abc import Iterable

from imgdiff.model import HOLE, Edge, ElfFacts, Hop, Pattern
from imgdiff.trace.closure import packed
from imgdiff.trace.closure.computed import Computed
from imgdiff.trace.closure.places import Added, Loose
from imgdiff.trace.closure.reflection import Reflection
from imgdiff.trace.graph.blocks import DOTTED, Block, Target, Unit, fill
from imgdiff.trace.graph.calls import Use
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.graph.making import make, remake

EAGER, DEFERRED = 2, 1
_Tail = tuple[str, bool, Unit, Use]  # the tail, whether all below it counts, and where it stands
_BY_NAME = frozenset(
    {
        "getattr",
        "hasattr",
        "attrgetter",
        "methodcaller",
        "globals",
        "locals",
        "vars",
        "__dict__",
        "__getattribute__",
        "dir",
    }
)
_LISTING = frozenset({"iter_modules", "packages_distributions", "distributions"})
_MIN_MODULE = 5  # characters of a pattern's literal start before it can name a top-level module
_MIN_LITERAL = 3  # letters that a name pattern must fix before it counts outside of the package that builds it


class Roots:
    """Where a role starts. ``mains`` run as ``__main__``; ``names`` count as referred from the start."""

    def __init__(self) -> None:
        self.eager: dict[Unit, tuple[Edge, str]] = {}
        self.deferred: dict[Unit, tuple[Edge, str]] = {}
        self.mains: set[Unit] = set()
        self.names: set[str] = set()
        self.groups: set[str] = set()


class Reach:
    """The reached part of one graph for one role."""

    def __init__(self, graph: Graph, standard: frozenset[str]) -> None:
        self.graph = graph
        self.standard = standard  # top-level names of the standard library
        self.level: dict[Unit, int] = {}
        self.mains: set[Unit] = set()
        self.names: set[str] = set()
        self.done: dict[Block, None] = {}
        self.words: set[str] = set()
        self.extra: list[tuple[Unit | None, Target]] = []  # edges that no single block has
        self.dynamic: dict[str, None] = {}  # top-level packages whose reached code imports by computed name
        self.unbounded: list[tuple[Unit, Use]] = []
        self.uses: list[tuple[Unit, Use]] = []  # libraries, programs, metadata: for those who know them
        self.packed: dict[Unit, None] = {}  # extension modules whose packed strings could not be read
        self.entry_points: dict[Unit, str] = {}  # what entry points brought in, and which
        self.data_files: dict[bytes, Unit] = {}  # that name modules: see data_names
        self.from_data: set[tuple[bytes, Unit]] = set()  # (data file, module that it names)
        self.read_data: dict[bytes, tuple[str, ...]] = {}  # data files that it can read: the paths of code in them
        self.named_data: dict[tuple[bytes, str], Unit] = {}  # (data file, top-level package): whose strings name it
        self.bare_data: dict[tuple[bytes, str], Unit] = {}  # the same where only its file name is given, no directory
        self.asked_data: dict[bytes, object] = {}  # what of a data file was asked for
        self.unread: dict[str, bytes] = {}  # by top-level package ("": beside a script) a data file that was not kept
        self.said_groups: set[str] = set()  # groups of entry points that strings, data or the command line name
        # What could name a single one of a group: what the command line and ENV hold, and by file the words of data.
        self.heard: set[str] = set()
        self.data_words: dict[bytes, tuple[frozenset[str], frozenset[str]]] = {}
        self.by_env: dict[tuple[Unit, Use], None] = {}  # calls for one that ENV alone names, where others were left out
        self.beside: list[Reach] = []  # of processes that can start this one's, and of the other ones of its role
        self.every_group: set[str] = set()  # all groups, where code goes through all entry points
        self.tails: set[str] = set()  # what code puts behind the name of a package (".tasks")
        self.fed: list[int] = []  # how many modules and blocks the data files were asked for
        # What code adds to the search path (see run_time_path): directories, code that adds one that is not known,
        # .pth files, edges that this gave, and how far it looked.
        self.places: dict[bytes, Added] = {}
        self.loose: dict[Loose, Unit] = {}
        self.path_files: dict[bytes, Hop] = {}
        self.placed: set[tuple[Unit, Unit]] = set()
        self.placings: set[tuple[Unit, Unit, int | None, str | None]] = set()  # the same with line and function
        self.placing: list[int] = []
        self.started: dict[tuple[str, str], Unit] = {}  # what a child runs, by how it is started and its target
        self._waiting: dict[str, list[Block | tuple[Unit, str]]] = {}
        self._fresh: list[Unit] = []
        self._stack: list[Block] = []
        self._pending: list[tuple[Unit, Unit, tuple[str, ...], int | None, str | None]] = []
        self._prefixes: dict[int, set[str]] = {}
        self._suffixes: dict[int, set[str]] = {}
        self._new_affixes = False
        self._unchecked: list[str] = []
        self._local: set[tuple[str, str, str]] = set()  # (top-level package or module, prefix, suffix)
        self._new_local: set[tuple[str, str, str]] = set()
        self._new_words: list[tuple[Block, frozenset[str]]] = []
        self._held: list[tuple[Block, frozenset[str]]] = []
        self._blocks_of: dict[str, list[tuple[Block, frozenset[str]]]] = {}
        self._dynamic_done: set[str] = set()
        self._worded: set[tuple[Unit, Unit]] = set()
        self._tails: dict[_Tail, None] = {}  # submodules that are imported below any package
        self._widened = 0
        self.computed = Computed()
        self.reflection = Reflection.of(graph)

    def fork(self) -> Reach:
        """Return an independent copy to go on from: what several roles share is worked out once."""
        twin = Reach(self.graph, self.standard)
        for name, value in vars(self).items():
            if isinstance(value, dict | set | list):
                vars(twin)[name] = type(value)(value)
        twin._waiting = {name: list(items) for name, items in self._waiting.items()}
        twin._prefixes = {length: set(items) for length, items in self._prefixes.items()}
        twin._suffixes = {length: set(items) for length, items in self._suffixes.items()}
        twin._blocks_of = {top: list(items) for top, items in self._blocks_of.items()}
        twin._widened = self._widened
        twin.computed = self.computed.fork()
        twin.reflection = self.reflection.fork()
        return twin

    def ordered_uses(self) -> list[tuple[Unit, Use]]:
        """Return the calls of reached code in an order that depends on the code alone."""
        return sorted(self.uses, key=_use_key)

    def start(self, units: Iterable[Unit]) -> None:
        """Take modules as eager whose eager imports are among them."""
        for unit in units:
            self.level[unit] = EAGER
            self._fresh.append(unit)

    # The eager part -------------------------------------------------------------------------------------------------

    def eager(self, roots: Iterable[Unit], mains: Iterable[Unit] = ()) -> list[Unit]:
        """Add what runs when these modules are imported; return what is new at this level."""
        for unit in mains:
            if unit not in self.mains and unit in self.level and unit.main is not None:
                self._stack.append(unit.main)
            self.mains.add(unit)
        seen: dict[Unit, None] = {}
        wave = [unit for unit in roots if self.level.get(unit) != EAGER]
        uses: list[tuple[Unit, tuple[str, ...]]] = []
        while wave:
            wave = self._parents(wave, seen)
            self.graph.prepare(wave)
            following: dict[Unit, None] = {}
            for unit in wave:
                for block in (unit.body, unit.main if unit in self.mains else None):
                    if block is not None:
                        make(block, self.graph)
                        following.update((target[0], None) for target in block.imports)
                        uses += [(target, names) for target, names, *_ in block.lazy_uses]
            wave = [unit for unit in following if unit not in seen and self.level.get(unit) != EAGER]
            if not wave:
                wave = self._lazy_eager(uses, seen)
                uses = []
        for unit in seen:
            if self.level.get(unit) != EAGER:
                if unit not in self.level:
                    self._fresh.append(unit)
                self.level[unit] = EAGER
        return list(seen)

    def _parents(self, wave: list[Unit], seen: dict[Unit, None]) -> list[Unit]:
        full: dict[Unit, None] = {}
        for unit in wave:
            current: Unit | None = unit
            while current is not None and current not in seen and self.level.get(current) != EAGER:
                seen[current] = full[current] = None
                current = current.parent
        return list(full)

    def _lazy_eager(self, uses: list[tuple[Unit, tuple[str, ...]]], seen: dict[Unit, None]) -> list[Unit]:
        found: dict[Unit, None] = {}
        for unit, names in uses:
            for target in lazy_targets(self.graph, unit, names):
                if target not in seen and self.level.get(target) != EAGER:
                    found[target] = None
        return list(found)

    def eager_lazy(self, block: Block) -> list[tuple[Unit, int | None, str | None]]:
        """Return what a module body loads through lazy attributes."""
        return [
            (target, line, function)
            for unit, names, line, function in block.lazy_uses
            for target in lazy_targets(self.graph, unit, names)
        ]

    def run_main(self, unit: Unit) -> None:
        """Count a module as run by a child process of its own (``python -m``)."""
        self.add(unit)
        if unit not in self.mains:
            self.mains.add(unit)
            if unit.prepared and unit.main is not None:
                self._stack.append(unit.main)

    # The rest -------------------------------------------------------------------------------------------------------

    def add(self, unit: Unit) -> None:
        """Count a module as reached, with its parents."""
        current: Unit | None = unit
        while current is not None and current not in self.level:
            self.level[current] = DEFERRED
            self._fresh.append(current)
            current = current.parent

    def add_alone(self, unit: Unit) -> None:
        """Count a module as reached without its parents: it is imported under another name."""
        if unit not in self.level:
            self.level[unit] = DEFERRED
            self._fresh.append(unit)

    def refer(self, names: Iterable[str]) -> None:
        """Count these names as referred to."""
        for name in names:
            if name not in self.names:
                self.names.add(name)
                self._release(name)

    def _release(self, name: str) -> None:
        for item in self._waiting.pop(name, ()):
            if isinstance(item, Block):
                self._stack.append(item)
            else:
                self.ask_lazy(*item)

    def run(self) -> None:
        """Go on until nothing changes."""
        while True:
            if self._stack:
                self._reach(self._stack.pop())
            elif self._fresh:
                wave, self._fresh = self._fresh, []
                self.graph.prepare(wave)
                for unit in wave:
                    self._enter(unit)
                    for key in list(self._tails):
                        self._below(unit, key)
            elif self._pending:
                self._lazy_pending()
            elif self._new_affixes or self._unchecked or self._new_local:
                self._match_patterns()
            elif self._new_words or len(self._dynamic_done) < len(self.dynamic):
                self._match_words()
            elif self.computed.waits(self):
                self.computed.match(self)
            elif self.reflection.waits(self):
                self.reflection.match(self)
            elif self._widened < len(self.graph.widened):
                self._remake()
            else:
                return

    def _enter(self, unit: Unit) -> None:
        if unit.kind == "extension":
            self._enter_extension(unit)
            return
        for block in (unit.body, unit.main if unit in self.mains else None, unit.always):
            if block is not None:
                self._stack.append(block)
        for block in unit.gated:
            if block.gate in self.names:
                self._stack.append(block)
            else:
                self._wait(block.gate, block)
        for name in unit.lazy:
            if name in self.names:
                self.ask_lazy(unit, name)
            else:
                self._wait(name, (unit, name))

    def _wait(self, name: str, item: Block | tuple[Unit, str]) -> None:
        waiting = self._waiting.get(name)
        if waiting is None:
            self._waiting[name] = [item]
        else:
            waiting.append(item)
        self._unchecked.append(name)

    def _enter_extension(self, unit: Unit) -> None:
        assert unit.path is not None
        facts = self.graph.facts.elf(unit.path)
        if isinstance(facts, ElfFacts):
            self.enter_native(unit, facts)

    def enter_native(self, unit: Unit, facts: ElfFacts) -> None:
        """C code calls Python functions and imports modules by name: an extension module's, or that of a library
        behind it."""
        self.refer(facts.identifiers)
        standard = unit.top in self.standard
        tops = self.graph.tops() & self.standard if standard else self.graph.tops()
        for word in facts.identifiers:
            if word in tops:
                self.follow(unit, word, "string")
        package = unit.package
        while package:
            for word in facts.identifiers:
                self.follow(unit, f"{package}.{word}", "string")
            package = package.rpartition(".")[0]
        if packed.is_cython(facts):
            # Mostly it imports what lies beside it.
            for name in self.graph.resolver.submodules(unit.package) if unit.package else ():
                self.follow(unit, name, "string")
            for name in packed.imported(self.graph, facts, unit.package, tops):
                self.follow(unit, name, "string")
            if packed.is_unread(facts):
                self.packed[unit] = None
                for name in packed.declared(self.graph, unit.path or b"", unit.top):
                    self.follow(unit, name, "string")
        for text in facts.strings:
            for target in self.graph.by_string(text, unit.package):
                self.extra.append((unit, (target, "string", None, None)))
                self.add(target)

    def run_block(self, block: Block) -> None:
        """Count code as referred to, and nothing else of its name."""
        if block not in self.done:
            self._stack.append(block)

    def follow(
        self, source: Unit | None, name: str, edge: Edge, line: int | None = None, function: str | None = None
    ) -> None:
        """Count the module of this name as reached over an edge that no block has, if there is one."""
        target = self.graph.unit(name)
        narrowing = self.graph.narrowing
        if narrowing and source is not None and narrowing.edge(source.name, name):
            return
        if target is not None:
            self.extra.append((source, (target, edge, line, function)))
            self.add(target)

    def _reach(self, block: Block) -> None:
        if block in self.done:
            return
        self.done[block] = None
        make(block, self.graph)
        new = block.refs - self.names
        if new:
            self.names |= new
            for name in new:
                if name in self._waiting:
                    self._release(name)
        level = self.level
        for target in block.imports:
            if target[0] not in level:
                self.add(target[0])
        for target in block.edges:
            if target[0] not in level:
                self.add(target[0])
        for unit, names, line, function in block.lazy_uses:
            if not unit.prepared or unit.lazy or "*" in names:
                self._pending.append((block.unit, unit, names, line, function))
        for use in block.calls:
            self._use(block, use)
        self.computed.saw(block)
        self.reflection.saw(block)
        if block.named:
            self._new_words.append((block, block.named))
            self.words |= block.named
        for pattern in block.patterns:
            self._pattern(block, pattern)

    def _use(self, block: Block, use: Use) -> None:
        if use.kind == "import":
            if use.name == HOLE or (use.name is not None and use.name.startswith(HOLE)):
                self.dynamic[block.unit.top] = None
                self.unbounded.append((block.unit, use))
                self._tail(block.unit, use)
                self._relative(block.unit, use)
                self._top_level(block.unit, use)
        elif use.kind == "attribute":
            self._attribute(block, use)
        else:
            self.uses.append((block.unit, use))

    def _tail(self, unit: Unit, use: Use) -> None:
        """``import_module(f"{x}.compiler")``: that submodule of every package that is reached, now or later."""
        assert use.name is not None
        tail = use.name.rpartition(HOLE)[2] if use.name.count(HOLE) == 1 else use.name.split(HOLE)[1]
        if not tail.startswith(".") or not tail.strip("."):
            return
        inside = use.name.count(HOLE) > 1  # f"{x}.models.{y}": all that the package holds
        key = (tail.strip("."), inside, unit, use)
        if key not in self._tails:
            self._tails[key] = None
            for package in list(self.level):
                self._below(package, key)

    def _relative(self, unit: Unit, use: Use) -> None:
        """``partial(import_module, ".x")``: the relative names of a module in the packages that it names."""
        texts = [text for block in unit.blocks() for text in block.texts]
        relative = [text.lstrip(".") for text in texts if text.startswith(".") and DOTTED.fullmatch(text.lstrip("."))]
        if relative:
            tops = self.graph.tops()
            named = {text for text in texts if DOTTED.fullmatch(text)}
            for package in sorted(named.union(*(tops & block.words for block in unit.blocks()))):
                for name in relative:
                    self.follow(unit, f"{package}.{name}", "string", use.line, use.function)

    def _top_level(self, unit: Unit, use: Use) -> None:
        """``f"{system}_support"``: modules at the top level with that end; and those that begin as a string of a module
        does that lists what is installed (``name.startswith("flask_")``)."""
        assert use.name is not None
        end = use.name.rpartition(HOLE)[2]
        starts: list[str] = []
        if any(not _LISTING.isdisjoint(block.refs) for block in unit.blocks()):
            words = set().union(*(block.words for block in unit.blocks()))
            starts = [word.rstrip("_") + "_" for word in words if len(word) >= _MIN_LITERAL]
        for name in sorted(self.graph.tops() - self.standard) if starts or len(end) > _MIN_MODULE else ():
            if (end and "." not in end and name.endswith(end)) or any(name.startswith(word) for word in starts):
                self.follow(unit, name, "dynamic", use.line, use.function)

    def _below(self, package: Unit, key: _Tail) -> None:
        tail, inside, source, use = key
        if package.top in self.standard and source.top not in self.standard:
            return
        name = f"{package.name}.{tail}"
        if not package.found.portions or self.graph.unit(name) is None:
            return
        names = [name, *self.graph.resolver.below(name)] if inside else [name]
        for each in names:
            self.follow(source, each, "dynamic", use.line, use.function)

    def ask_lazy(self, unit: Unit, name: str) -> None:
        """Count a lazy attribute of a module as asked for."""
        for target in lazy_targets(self.graph, unit, (name,)):
            self.extra.append((unit, (target, "lazy", None, name)))
            self.add(target)

    def _lazy_pending(self) -> None:
        pending, self._pending = self._pending, []
        for source, unit, names, line, function in pending:
            for target in lazy_targets(self.graph, unit, names):
                self.extra.append((source, (target, "lazy", line, function)))
                self.add(target)

    # Names built at run time ----------------------------------------------------------------------------------------

    def _pattern(self, block: Block, pattern: Pattern) -> None:
        parts = pattern.split(HOLE)
        if not all(part == "" or ("a" + part).isidentifier() for part in parts):
            return
        prefix, suffix = parts[0], parts[-1]
        if len(prefix) > _MIN_MODULE:  # f"_sysconfigdata_{platform}" is imported as it stands
            for name in self.graph.tops():
                if name.startswith(prefix) and name.endswith(suffix):
                    self.word(block, name)
        if _BY_NAME.isdisjoint(block.refs):
            key = (block.unit.name, prefix, suffix)
            if key not in self._local:
                self._local.add(key)
                self._new_local.add(key)
        elif len(prefix.strip("_")) + len(suffix.strip("_")) >= _MIN_LITERAL:
            if prefix:
                if prefix not in self._prefixes.setdefault(len(prefix), set()):
                    self._prefixes[len(prefix)].add(prefix)
                    self._new_affixes = True
            elif suffix not in self._suffixes.setdefault(len(suffix), set()):
                self._suffixes[len(suffix)].add(suffix)
                self._new_affixes = True

    def _attribute(self, block: Block, use: Use) -> None:
        """``getattr(x, "_" + y)``: too little text to hold everywhere, but in the package that says so."""
        parts = fill(use.name or "", block.unit).split(HOLE)
        key = (block.unit.top, parts[0], parts[-1])
        if len(parts) > 1 and key not in self._local:
            self._local.add(key)
            self._new_local.add(key)

    def _match_patterns(self) -> None:
        names = (
            list(self._waiting) if self._new_affixes else [name for name in self._unchecked if name in self._waiting]
        )
        self._unchecked, self._new_affixes = [], False
        prefixes, suffixes = sorted(self._prefixes.items()), sorted(self._suffixes.items())
        hits = [
            name
            for name in dict.fromkeys(names)
            if any(name[:length] in known for length, known in prefixes)
            or any(name[-length:] in known for length, known in suffixes)
        ]
        self.refer(hits)
        new, self._new_local = self._new_local, set()
        everything = self._local if names else new
        if everything:
            self._match_local(names, everything)
        if new:
            self._match_local(list(self._waiting), new)

    def _match_local(self, names: list[str], local: set[tuple[str, str, str]]) -> None:
        by_top: dict[str, list[tuple[str, str]]] = {}
        for top, prefix, suffix in local:
            by_top.setdefault(top, []).append((prefix, suffix))
        for name in names:
            items = self._waiting.get(name)
            if not items:
                continue
            for item in list(items):
                unit = item.unit if isinstance(item, Block) else item[0]
                for prefix, suffix in (*by_top.get(unit.top, ()), *by_top.get(unit.name, ())):
                    if name.startswith(prefix) and name.endswith(suffix) and len(name) > len(prefix) + len(suffix):
                        if isinstance(item, Block):
                            self._stack.append(item)
                        else:
                            self.ask_lazy(*item)
                        break

    def _match_words(self) -> None:
        """Where reached code imports by computed name: every module that a string names in full, and, where the string
        and the import stand in one top-level package, relatively or by its last part."""
        new, self._new_words = self._new_words, []
        if not self.dynamic:
            self._held += new
            return
        if self._held:
            new, self._held = self._held + new, []
        every = self.graph.tops()
        standard = every & self.standard
        by_top: dict[str, list[tuple[Block, frozenset[str]]]] = {}
        for block, words in new:
            # The standard library names no module outside of itself by a single word.
            for word in words & (standard if block.unit.top in self.standard else every):
                self.word(block, word)
            self._blocks_of.setdefault(block.unit.top, []).append((block, words))
            by_top.setdefault(block.unit.top, []).append((block, words))
        for top in self.dynamic:
            if top in self.standard:
                self._dynamic_done.add(top)
                continue
            candidates = by_top.get(top, []) if top in self._dynamic_done else self._blocks_of.get(top, [])
            self._dynamic_done.add(top)
            tails = self.graph.lasts(top)
            for block, words in candidates:
                hits = words & tails.keys()
                if hits:
                    self._by_tail(block, hits, tails)

    def _by_tail(self, block: Block, words: Iterable[str], tails: dict[str, list[str]]) -> None:
        """Names within a top-level package: relative ones, and last parts."""
        for word in words:
            for name in tails[word]:
                self.word(block, name)

    def word(self, block: Block, name: str) -> None:
        """Count a module as named by a string of this code."""
        narrowing = self.graph.narrowing
        if narrowing and narrowing.word(block.unit.name, name):
            return
        target = self.graph.unit(name)
        if target is not None and (block.unit, target) not in self._worded:
            self._worded.add((block.unit, target))
            self.extra.append((block.unit, (target, "string", None, None)))
            self.add(target)

    def _remake(self) -> None:
        prefixes = tuple(f"{name}." for name in self.graph.widened[self._widened :])
        packages = set(self.graph.widened[self._widened :])
        self._widened = len(self.graph.widened)
        for block in list(self.done):
            if any(name.startswith(prefixes) for name in (*block.missing, *block.asked)) or any(
                unit.name in packages for unit, *_ in block.lazy_uses
            ):
                remake(block, self.graph)
                for target in (*block.imports, *block.edges):
                    self.add(target[0])


def _use_key(item: tuple[Unit, Use]) -> tuple[str, int, str, str, str, tuple[str, ...]]:
    unit, use = item
    return unit.name, use.line, use.callee, use.function or "", use.name or "", use.argv


def lazy_targets(graph: Graph, unit: Unit, names: tuple[str, ...]) -> list[Unit]:
    """Return the modules that a package loads when these of its attributes are asked for."""
    found: list[Unit] = []
    for name in names:
        if name == "*":
            exports = unit.facts.exports if unit.facts is not None else ()
            for export in exports:
                child = graph.unit(f"{unit.name}.{export}") if unit.found.portions else None
                if child is not None:
                    found.append(child)
                elif export in unit.lazy:
                    found += lazy_targets(graph, unit, (export,))
            continue
        for module in unit.lazy.get(name, ()):
            stripped = module.lstrip(".")
            dots = len(module) - len(stripped)
            candidates = [f"{unit.package}.{stripped}", module]
            if dots > 1:
                base = graph.absolute(unit, stripped, dots)
                candidates = [base] if base is not None else []
            for candidate in candidates:
                target = graph.unit(candidate.rstrip("."))
                if target is not None:
                    found.append(target)
                    break
    return found
