"""Directories that code adds to the module search path while it runs, and what is imported from them.

The search path that an image gives at start is the graph's. Code can add to it: ``sys.path.insert``, ``addsitedir``,
PYTHONPATH for a child, a finder of its own. Where the directory folds it becomes a place of the closure that reaches
the code: what is imported and lies there counts as loaded, be it found elsewhere too or not. Where it doesn't fold,
only names that are found nowhere else are looked for, in every file that the code could mean. Places only ever grow,
and each gives its own copy of a module, so that the result does not depend on the order.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from imgdiff.interpreters import is_python
from imgdiff.model import HOLE, Attribution, Blindspot, ElfFacts, Hop, Side, Tree
from imgdiff.trace.closure.places import Added, Loose, Place
from imgdiff.trace.closure.reach import Reach
from imgdiff.trace.finder.search_path import site_directory
from imgdiff.trace.graph.blocks import DOTTED, Block, Unit, fill
from imgdiff.trace.graph.calls import Use
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.named import pattern_regex
from imgdiff.trace.paths import show

# Linked into each CPython from 3.8 on (its Modules/Setup.bootstrap and config.c): no file of the name is imported.
LINKED = frozenset(
    {
        "sys", "builtins", "marshal", "gc", "_imp", "_ast", "_warnings", "_string", "_frozen_importlib",
        "_frozen_importlib_external", "atexit", "errno", "faulthandler", "itertools", "posix", "pwd", "time", "_abc",
        "_codecs", "_collections", "_functools", "_io", "_locale", "_operator", "_signal", "_sre", "_stat", "_symtable",
        "_thread", "_tracemalloc", "_weakref",
    }
)  # fmt: skip
# And what can be: where no file of the standard library gives it, it is.
BUILT_IN = LINKED | {
    "math", "cmath", "select", "zlib", "array", "binascii", "fcntl", "grp", "resource", "spwd", "syslog", "termios",
    "unicodedata", "mmap", "pyexpat", "audioop", "readline", "_tokenize", "_typing",
}  # fmt: skip
_CUSTOMIZE = (b"sitecustomize", b"usercustomize")
_FINDERS = frozenset({"meta_path", "path_hooks"})
_ADDS = re.compile(r"sys\s*\.\s*path\b|addsitedir")
# Methods that change which directory comes first, and how a text says that it is sys.path whose they are.
_REORDERS = frozenset({"reverse", "sort", "remove", "pop", "clear"})
_REORDERED = re.compile(
    rb"sys\s*\.\s*path\s*\.\s*(?:reverse|sort|remove|pop|clear)\b|=\s*sys\s*\.\s*path\s*(?:[;#\n]|$)"
)
_MAX_SHOWN = 12  # places and files that one caveat names


class RunTimePath:
    """The places of every closure of one image."""

    def __init__(
        self,
        tree: Tree,
        attribution: Attribution,
        text: Callable[[bytes], bytes | None],
        side: Side,
        startup: Iterable[str],
    ) -> None:
        self._tree, self._attribution, self._text, self._side = tree, attribution, text, side
        self._startup = frozenset(startup)  # in sys.modules before any code runs: nothing hides them
        self._working: dict[bytes, None] = {}
        self._heard: dict[bytes, None] = {}  # directories that ENV or a command line names
        self._places: dict[tuple[int, bytes], Place] = {}
        self._of: dict[Unit, Place] = {}
        self._tops: dict[Block, frozenset[str]] = {}
        self._dotted: dict[Block, tuple[str, ...]] = {}
        self._index: dict[str, list[tuple[bytes, bytes]]] | None = None
        self._meant: dict[tuple[Loose, bytes, bytes], bool] = {}
        self._guessed: dict[str, set[Unit]] = {}
        self._reaches: dict[Reach, None] = {}
        self.blindspots: dict[Blindspot, None] = {}

    def hear(self, cwd: bytes, words: Iterable[str]) -> None:
        """Know a working directory, and the words of ENV and of a command line: code can take directories from
        them."""
        found = self._tree.resolve(cwd)
        if found is not None:
            self._working[found] = None
        for word in words:
            for part in word.split(":"):
                if part.startswith("/") and part.strip("/"):
                    found = self._tree.resolve(part.encode("utf-8", "surrogateescape"))
                    if found and self._tree.is_dir(found):
                        self._heard[found] = None

    def caveats(self) -> list[str]:
        """Return what was taken for loaded on a guess."""
        said = []
        others = self._others({unit for units in self._guessed.values() for unit in units})
        for where, units in sorted(self._guessed.items()):
            shown = [show(path) for path in sorted({unit.place for unit in units - others})]
            if not shown:
                continue
            more = f" and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
            said.append(
                f"{where} adds a directory to the module search path that is known at run time only; what is imported "
                f"and found nowhere else was taken from {', '.join(shown[:_MAX_SHOWN])}{more}"
            )
        return said

    def _others(self, guessed: set[Unit]) -> set[Unit]:
        """Return those that something leads to without a guess."""
        found: set[Unit] = set()
        blocks: dict[Block, None] = {}
        for reach in self._reaches if guessed else ():
            blocks |= reach.done  # the closures have nearly all of them in common
        for block in blocks:
            for targets in (block.imports, block.edges):
                for target in targets:
                    if target[0] in guessed:
                        found.add(target[0])
        for reach in self._reaches if guessed else ():
            for source, (unit, *_) in reach.extra:
                if unit in guessed and (source is None or (source, unit) not in reach.placed):
                    found.add(unit)
        return found

    # One closure ----------------------------------------------------------------------------------------------------

    def inherit(self, reach: Reach, parents: Iterable[Reach]) -> None:
        """A child gets its parent's search path: multiprocessing hands it on, be it by fork or by spawn."""
        for parent in parents:
            if parent.graph is reach.graph:
                self.hand_on(reach, parent)

    def hand_on(self, reach: Reach, parent: Reach) -> None:
        """What one process adds counts in another that it starts."""
        for directory, added in sorted(parent.places.items(), key=lambda item: item[0]):
            self._add(reach, directory, added)
        for loose, unit in parent.loose.items():
            if loose not in reach.loose:
                reach.loose[loose] = unit
                _again(reach)

    def script(self, reach: Reach, unit: Unit, use: Use, path: bytes) -> None:
        """A script that is run has its own directory first on its path."""
        self._add(reach, path.rpartition(b"/")[0], Added(unit, use.line, use.function, front=True))

    def started(self, reach: Reach, unit: Unit, use: Use, directories: Iterable[str]) -> None:
        """A child that is started with other directories on its path: relative ones start at its working directory."""
        for text in directories:
            found = self._tree.resolve(text.encode("utf-8", "surrogateescape"))
            if found is not None and self._tree.is_dir(found):
                self._for_children(reach, found, Added(unit, use.line, use.function, front=True))

    def extend(self, reach: Reach) -> None:
        """Add to a closure what its code imports from directories that its code adds."""
        self._reaches[reach] = None
        placing = reach.placing
        if not placing:
            placing[:] = (0, 0, 0, 0)
        for unit, use in reach.uses[placing[_USES] :]:
            self._use(reach, unit, use)
        for block in itertools.islice(reach.done, placing[_BLOCKS], None):
            self._speaks(reach, block)
        placing[_USES], placing[_BLOCKS] = len(reach.uses), len(reach.done)
        if placing[_DYNAMIC] != len(reach.dynamic):
            placing[_DYNAMIC], placing[_FOLLOWED] = len(reach.dynamic), 0
        while (reach.places or reach.loose) and placing[_FOLLOWED] < len(reach.done):
            start, placing[_FOLLOWED] = placing[_FOLLOWED], len(reach.done)
            self._follow(reach, itertools.islice(reach.done, start, None))

    # Who adds what --------------------------------------------------------------------------------------------------

    def _add(self, reach: Reach, directory: bytes, added: Added) -> None:
        if not added.front and directory in reach.graph.resolver.search.directories:
            return
        known = reach.places.get(directory)
        if known is not None:
            front, guess, folds = known.front or added.front, known.guess and added.guess, known.folds or added.folds
            if (front, guess, folds) == (known.front, known.guess, known.folds):
                return
            added = msgspec.structs.replace(added, front=front, guess=guess, folds=folds)
        reach.places[directory] = added
        _again(reach)

    def _use(self, reach: Reach, unit: Unit, use: Use) -> None:
        own = unit.top in reach.standard and unit not in self._of
        if use.kind == "sys-path" and not own:
            front = use.callee in ("path.insert", "path.assign")
            for text in use.argv:
                self._text_added(reach, unit, use, text, front)
        elif use.kind == "load-path" and use.callee == "run_path" and use.path is not None and not own:
            found = self._folded(use.path, unit)
            for path in found:
                if self._tree.is_dir(path):
                    self._add(reach, path, Added(unit, use.line, use.function, front=True))
                    self._run(reach, unit, use, self._tree.resolve(path + b"/__main__.py"))
        elif use.kind == "program":
            self._program(reach, unit, use)

    def _text_added(self, reach: Reach, unit: Unit, use: Use, text: str, front: bool) -> None:
        filled = fill(text, unit)
        if HOLE in filled:
            self._loose(reach, unit, use.line, use.function, filled if filled.strip(HOLE + "./") else None)
            return
        for path in self._folded(filled, unit):
            entry = self._tree.get(path)
            if entry is not None and entry.type == "file":
                self._archive(path)
            elif use.callee == "addsitedir":
                self._site(reach, unit, use, path)
            else:
                self._add(reach, path, Added(unit, use.line, use.function, front, folds=True))

    def _folded(self, text: str, unit: Unit) -> list[bytes]:
        """Return what stands at a path: absolute, else relative to a working directory."""
        filled = fill(text, unit)
        if HOLE in filled or filled.startswith("~"):
            return []
        path = filled.encode("utf-8", "surrogateescape")
        bases = [b""] if path.startswith(b"/") else list(self._working)
        return [found for base in bases if (found := self._tree.resolve(path, base)) is not None]

    def _site(self, reach: Reach, unit: Unit, use: Use, directory: bytes) -> None:
        """``addsitedir``: the lines of the ``.pth`` files there add directories and run imports too."""
        found = site_directory(self._tree, reach.graph.resolver.search.environment, self._text, directory, self._side)
        for each in found.directories:
            self._add(reach, each, Added(unit, use.line, use.function, front=False, folds=True))
        for path in found.files:
            reach.path_files[path] = Hop(None, path, None, None, "pth")
        for blind in found.blindspots:
            self.blindspots[blind] = None
        for startup in found.startup:
            target = reach.graph.unit(startup.module)
            if target is not None:
                self._lead(reach, unit, target, use.line, use.function)
            for each in found.directories:
                inside = self._place(reach.graph, each).nearest(startup.module)
                if inside is not None:
                    self._reach(reach, unit, inside, use.line, use.function)

    def _archive(self, path: bytes) -> None:
        reason = "code adds this archive to the module search path, and it is not looked into"
        self.blindspots[Blindspot("archive on sys.path", reason, path, self._side)] = None

    def _loose(self, reach: Reach, unit: Unit, line: int | None, function: str | None, pattern: str | None) -> None:
        known = None if pattern is None else _without_dots(pattern)
        key = Loose(unit.place, line, function, known, self._home(reach, unit))
        if key not in reach.loose:
            reach.loose[key] = unit
            _again(reach)
        self._near(reach, Added(unit, line, function, front=True))

    def _texts_of(self, unit: Unit, function: str | None) -> Iterator[str]:
        """The absolute paths in the same function: one of them can be what is added."""
        for scope in unit.facts.scopes if unit.facts is not None else ():
            if (scope.qualname or None) == function:
                for text in sorted((*scope.strings, *scope.patterns)):
                    if fill(text, unit).startswith("/") and text.strip("/"):
                        yield text

    def _speaks(self, reach: Reach, block: Block) -> None:
        """Code that has finders of its own, reorders the path, or sets PYTHONPATH for those whom it starts."""
        unit = block.unit
        if unit.top in reach.standard and unit not in self._of:
            return
        for use in block.calls:
            if _finds(use):
                self._loose(reach, unit, use.line, use.function, None)
        for scope in block.scopes if not _FINDERS.isdisjoint(block.refs) else ():
            if not _FINDERS.isdisjoint(scope.names | scope.strings):
                self._loose(reach, unit, scope.line, scope.qualname or None, None)
        for scope in block.scopes if "PYTHONPATH" in block.refs else ():
            if "PYTHONPATH" in scope.strings:
                own = "__file__" in block.refs
                self._near(reach, Added(unit, scope.line, scope.qualname or None, front=True), own=own)
        for scope in block.scopes if "path" in block.refs and not _REORDERS.isdisjoint(block.refs) else ():
            if {"sys", "path"} <= scope.names and not _REORDERS.isdisjoint(scope.names) and self._reorders(unit):
                added = Added(unit, scope.line, scope.qualname or None, front=True)
                for directory in reach.graph.resolver.search.directories:
                    self._add(reach, directory, added)

    def _reorders(self, unit: Unit) -> bool:
        """Tell whether a source can turn sys.path around or take directories out of it; True where it is not kept."""
        text = self._text(unit.path) if unit.path is not None and unit.path.endswith(b".py") else None
        return text is None or _REORDERED.search(text) is not None

    def _near(self, reach: Reach, added: Added, *, own: bool = False) -> None:
        """Add the directories that are named in the same function, and the module's ``own``: children look there."""
        found = [path for text in self._texts_of(added.unit, added.function) for path in self._folded(text, added.unit)]
        if own and added.unit.path is not None:
            found.append(added.unit.path.rpartition(b"/")[0])
        for path in found:
            if path and self._tree.is_dir(path):
                self._for_children(reach, path, added)

    def _for_children(self, reach: Reach, directory: bytes, added: Added) -> None:
        """Add a directory to the path of those who are started: ``site`` imports two names there by itself."""
        self._add(reach, directory, added)
        for name in _CUSTOMIZE:
            for path in (directory + b"/" + name + b".py", directory + b"/" + name + b"/__init__.py"):
                found = self._tree.resolve(path)
                if found is not None and self._tree.get(found) is not None:
                    self._lead(reach, added.unit, reach.graph.unit_at(found), added.line, added.function)

    def _program(self, reach: Reach, unit: Unit, use: Use) -> None:
        """A Python script that is started by path has its own directory first on its path."""
        script = _script(use.argv)
        if script is None:
            return
        for path in self._folded(script, unit):
            target = path
            if self._tree.is_dir(path):
                target = self._tree.resolve(path + b"/__main__.py") or b""
            entry = self._tree.get(target)
            if entry is not None and entry.type == "file" and not self._is_native(reach, target):
                self.script(reach, unit, use, target)
                self._run(reach, unit, use, target)

    def _is_native(self, reach: Reach, path: bytes) -> bool:
        return reach.graph.facts.elf(path) is not None

    def _run(self, reach: Reach, unit: Unit, use: Use, path: bytes | None) -> None:
        if path is not None:
            main = reach.graph.unit_at(path)
            self._lead(reach, unit, main, use.line, use.function)
            reach.run_main(main)

    # What is imported from there ------------------------------------------------------------------------------------

    def _place(self, graph: Graph, directory: bytes) -> Place:
        key = (id(graph), directory)
        if key not in self._places:
            self._places[key] = Place(graph, directory)
        return self._places[key]

    def _follow(self, reach: Reach, blocks: Iterable[Block]) -> None:
        graph = reach.graph
        by_top: dict[str, list[tuple[Place, Added]]] = {}
        for directory, added in sorted(reach.places.items(), key=lambda item: item[0]):
            place = self._place(graph, directory)
            for top in place.tops - LINKED:
                if added.front or self._is_open(graph, top):
                    by_top.setdefault(top, []).append((place, added))
            if added.folds and added.unit.top in reach.dynamic:
                self._any(reach, place, added)
            self._inside(reach, place)
        tops = frozenset(by_top)  # asking a view of keys would go through all of them each time
        folding = frozenset(top for top, places in by_top.items() if any(added.folds for _, added in places))
        missing: set[str] = set()
        for block in (each for each in blocks if not each.bare):
            imported = self._tops_of(block)
            if reach.loose:
                missing |= imported
            if folding:
                self._word(reach, block.unit, self._words(reach, block, folding), by_top)
            if not imported.isdisjoint(tops):
                for base, names, line, function in self._imports(block):
                    for place, added in by_top.get(base.partition(".")[0], ()):
                        self._import(reach, block.unit, place, added, base, names, line, function)
        if by_top:
            for unit, use in reach.uses:
                if use.kind == "program" and "-m" in use.argv[:-1]:
                    self._child(reach, unit, use, by_top)
        self._guess(reach, missing)

    def _word(
        self, reach: Reach, unit: Unit, words: Iterable[str], by_top: dict[str, list[tuple[Place, Added]]]
    ) -> None:
        """Strings name what lies in the directories that fold, not in others that code could mean, too."""
        for base in words:
            for place, added in by_top[base.partition(".")[0]]:
                if added.folds:
                    self._import(reach, unit, place, added, base, (), None, None)

    def _any(self, reach: Reach, place: Place, added: Added) -> None:
        """Where the code that adds a directory imports by computed name too, that can be any name there."""
        for top in sorted(place.tops):
            unit = place.unit(top)
            if unit is not None and unit.path is not None and self._counts(reach, unit, top, added):
                self._reach(reach, added.unit, unit, added.line, added.function)

    def _is_open(self, graph: Graph, top: str) -> bool:
        """Tell whether a place that is asked last can give this name: no file does."""
        known = graph.unit(top)
        return known is None or known.path is None

    def _tops_of(self, block: Block) -> frozenset[str]:
        known = self._tops.get(block)
        if known is None:
            inside = block.unit in self._of
            tops = {
                (each.module if not each.level else block.unit.package).partition(".")[0]
                for scope in block.scopes
                for each in scope.imports
                if inside or not each.level
            }
            tops.update(name.partition(".")[0] for name in block.asked)
            known = self._tops[block] = frozenset(tops) if tops else _NOTHING
        return known

    def _words(self, reach: Reach, block: Block, folding: frozenset[str]) -> list[str]:
        """Strings that name modules in directories that fold: in full, and single words where the code imports by
        computed name."""
        dotted = self._dotted.get(block)
        if dotted is None:
            matches = [DOTTED.fullmatch(text) for text in block.named if "." in text]
            dotted = self._dotted[block] = tuple(match[2] for match in matches if match is not None and not match[1])
        found = [name for name in dotted if name.partition(".")[0] in folding]
        if block.unit.top in reach.dynamic:
            found += folding.intersection(block.named)
        return sorted(found) if found else found

    def _imports(self, block: Block) -> Iterator[tuple[str, tuple[str, ...], int | None, str | None]]:
        unit = block.unit
        for scope in block.scopes:
            for each in scope.imports:
                if each.level and unit not in self._of:
                    continue
                base = self._absolute(unit, each.module, each.level)
                if base is not None:
                    yield base, each.names, each.line, scope.qualname or None
        for name in block.asked:
            yield name.partition(":")[0], (), None, None

    def _absolute(self, unit: Unit, module: str, level: int) -> str | None:
        return self._of[unit].graph.absolute(unit, module, level) if level else module

    def _import(
        self,
        reach: Reach,
        source: Unit,
        place: Place,
        added: Added,
        base: str,
        names: tuple[str, ...],
        line: int | None,
        function: str | None,
    ) -> None:
        unit = place.nearest(base)
        if unit is None or not self._counts(reach, unit, base, added):
            return
        self._reach(reach, source, unit, line, function)
        if not unit.found.portions or place.unit(base) is not unit:
            return
        for name in names:
            child = place.unit(f"{base}.{name}") if name != "*" else None
            if child is not None:
                self._reach(reach, source, child, line, function)

    def _counts(self, reach: Reach, unit: Unit, base: str, added: Added) -> bool:
        """Tell whether an import can end here: nothing else gives the name, or this place is asked first."""
        top = base.partition(".")[0]
        known = reach.graph.unit(top)
        if top in self._startup or top in LINKED or (known is None and top in BUILT_IN):
            return False
        if known is None or (known.path is None and reach.graph.unit(base) is None):
            return True
        if unit.found.portions and unit.path is None:  # a directory without __init__ hides no module
            return False
        return added.front and known.path != unit.path

    def _reach(self, reach: Reach, source: Unit, unit: Unit, line: int | None, function: str | None) -> None:
        self._lead(reach, source, unit, line, function)
        for directory, added in reach.places.items():
            if added.guess and unit.path is not None and unit.path.startswith(directory + b"/"):
                self._guessed.setdefault(f"{show(added.unit.path or b'')}:{added.line}", set()).add(unit)

    def _lead(self, reach: Reach, source: Unit, unit: Unit, line: int | None, function: str | None) -> None:
        edge = (source, unit, line, function)
        if edge not in reach.placings:  # each, and not the first that comes: a chain shows the smallest
            reach.placings.add(edge)
            reach.placed.add((source, unit))
            reach.extra.append((source, (unit, "dynamic", line, function)))
            reach.add_alone(unit)

    def _inside(self, reach: Reach, place: Place) -> None:
        """Lazy attributes of packages in a place, and what its extension modules name."""
        for unit in list(place.units.values()):
            if unit is None:
                continue
            if unit.name.endswith(")"):
                self._of[unit] = place
            if unit not in reach.level:
                continue
            for modules in unit.lazy.values():
                for module in modules:
                    stripped = module.lstrip(".")
                    for name in (f"{unit.package}.{stripped}", stripped):
                        target = place.unit(name.rstrip("."))
                        if target is not None:
                            self._reach(reach, unit, target, None, None)
            if unit.kind == "extension" and unit.path is not None:
                facts = reach.graph.facts.elf(unit.path)
                for word in sorted(place.tops.intersection(facts.identifiers)) if isinstance(facts, ElfFacts) else ():
                    target = place.unit(word)
                    if target is not None:
                        self._reach(reach, unit, target, None, None)

    def _child(self, reach: Reach, unit: Unit, use: Use, by_top: dict[str, list[tuple[Place, Added]]]) -> None:
        name = fill(use.argv[use.argv.index("-m") + 1], unit)
        for place, _ in by_top.get(name.partition(".")[0], ()):
            main = place.unit(f"{name}.__main__") or place.unit(name)
            if main is not None and main.path is not None:
                self._reach(reach, unit, main, use.line, use.function)
                reach.run_main(main)

    # Directories that are known at run time only --------------------------------------------------------------------

    def _guess(self, reach: Reach, missing: set[str]) -> None:
        """Look for what is imported and found nowhere in every directory that the code could mean."""
        for name in sorted(missing - BUILT_IN - self._startup):
            if reach.graph.unit(name) is not None:
                continue
            for directory, path in self._candidates().get(name, ()):
                if directory in reach.places:
                    continue
                for loose, unit in reach.loose.items():
                    if self._could_mean(loose, directory, path):
                        added = Added(unit, loose.line, loose.function, front=False, guess=True)
                        self._add(reach, directory, added)
                        break

    def _candidates(self) -> dict[str, list[tuple[bytes, bytes]]]:
        """The directories that would give a top-level name, each with a file that shows it."""
        if self._index is None:
            index: dict[bytes, dict[bytes, bytes]] = {}
            for path, entry in self._tree.entries.items():
                if entry.type == "dir" or not path.endswith((b".py", b".so", b".pyc")):
                    continue
                directory, _, name = path.rpartition(b"/")
                above, _, package = directory.rpartition(b"/")
                if package == b"__pycache__":
                    continue
                index.setdefault(package, {}).setdefault(above, path)
                if name != b"__init__.py":
                    index.setdefault(name.partition(b".")[0], {}).setdefault(directory, path)
            self._index = {
                name.decode(): sorted(directories.items()) for name, directories in index.items() if name.isascii()
            }
        return self._index

    def _could_mean(self, loose: Loose, directory: bytes, path: bytes) -> bool:
        key = (loose, directory, path)
        if key not in self._meant:
            self._meant[key] = self._is_meant(loose, directory, path)
        return self._meant[key]

    def _is_meant(self, loose: Loose, directory: bytes, path: bytes) -> bool:
        if loose.pattern is not None:
            return pattern_regex(loose.pattern).fullmatch(b"/" + directory) is not None
        claims = self._attribution.claims
        owners = self._attribution.owners
        theirs = {claim.owner for claim in claims.get(path, ())}
        if all(owners[each].kind == "unowned" for each in theirs):
            return True
        if any(claim.owner in theirs for claim in claims.get(loose.path, ())):
            return True
        near = [each for each in (*self._working, *self._heard, loose.home) if each]
        return any(directory == each or directory.startswith(each + b"/") for each in near)

    def _home(self, reach: Reach, unit: Unit) -> bytes:
        """The directory of the package or program that a module belongs to; nothing where many share it."""
        top = unit
        while top.parent is not None:
            top = top.parent
        home = top.found.portions[0] if top.found.portions else (top.path or b"").rpartition(b"/")[0]
        return b"" if home in reach.graph.resolver.search.sites else home


_NOTHING: frozenset[str] = frozenset()
_USES, _BLOCKS, _FOLLOWED, _DYNAMIC = range(4)  # how far a closure was looked at: see Reach.placing


def _again(reach: Reach) -> None:
    """Something was added: what all code imports is looked for again."""
    if reach.placing:
        reach.placing[_FOLLOWED] = 0


def _finds(use: Use) -> bool:
    """Tell whether a call can look in a directory that its arguments don't show: ``PathFinder.find_spec(name, [X])``,
    or code in a string, of which only the strings are known."""
    if use.callee == "find_spec":
        return use.package == HOLE
    return use.kind in ("exec", "program") and any(_ADDS.search(text) for text in (use.name or "", *use.argv))


def _script(argv: tuple[str, ...]) -> str | None:
    """Return the script of a command line ``python ... SCRIPT``; None if it is none."""
    if len(argv) < 2 or not (argv[0] == HOLE or is_python(argv[0])):
        return None
    for word in argv[1:]:
        if not word.startswith("-"):
            return word if "/" in word or word.endswith(".py") or any(ord(each) < 32 for each in word) else None
        if word in ("-m", "-c"):
            return None
    return None


def _without_dots(pattern: str) -> str | None:
    """Return a path pattern without ``..``; None where one stands behind a part that is not known."""
    parts: list[str] = []
    for part in pattern.split("/"):
        if part == "..":
            if not parts or HOLE in parts[-1]:
                return None
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
