"""Native files that a role loads: the interpreter, extension modules and what they need, what is opened or started by
name."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence

from imgdiff.engines import CompilerRule, common
from imgdiff.model import HOLE, Attribution, ElfFacts, FactSource, Hop, Integrity, Level, Resolved, Side, Tree
from imgdiff.starting import DEFAULT_PATH
from imgdiff.trace.closure.loaded import Loaded
from imgdiff.trace.closure.reach import DEFERRED, EAGER, Reach
from imgdiff.trace.graph.blocks import Block, Unit, fill
from imgdiff.trace.graph.calls import Use
from imgdiff.trace.graph.children import command_line, takes_a_list
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.launch.entry import Follower
from imgdiff.trace.launch.started import Launch
from imgdiff.trace.libraries.listed import libraries_listed
from imgdiff.trace.libraries.needed import PRELOAD, Caches, Closure, LibraryResolver, Start
from imgdiff.trace.paths import is_shared_object, resolved, show

_LIBRARY = re.compile(r"(?:[\w./+$@-]*/)?[\w.+-]+\.so(?:\.\d+)*")
_LEVEL: Mapping[int, Level] = {EAGER: "eager", DEFERRED: "deferred"}
_WORD = re.compile(r"[\w.+/@-]+")
_MAX_ROUNDS = 50


class Native:
    """What one role loads apart from modules, and what stayed open."""

    def __init__(self) -> None:
        self.files: dict[bytes, Loaded] = {}
        self.libraries: dict[str, tuple[Level, Resolved]] = {}
        self.wanted: dict[str, int] = {}
        self.unreadable: dict[bytes, str] = {}
        self.unresolved: dict[str, bytes] = {}
        self.integrity: dict[Integrity, None] = {}
        self.directories: dict[bytes, None] = {}
        self.compilers: dict[str, CompilerRule] = {}

    def add(self, path: bytes, loaded: Loaded) -> None:
        """Keep the stronger of two ways to a file."""
        known = self.files.get(path)
        if known is None or known.level < loaded.level:
            self.files[path] = loaded


class Natives:
    """Finds native files for every role of one image."""

    def __init__(self, tree: Tree, attribution: Attribution, facts: FactSource, follower: Follower, side: Side) -> None:
        self.tree, self.attribution, self.facts, self.follower, self.side = tree, attribution, facts, follower, side
        self.caches = Caches(tree, facts)
        self._programs: dict[tuple[bytes, tuple[str, ...], bytes, frozenset[str]], Closure] = {}
        self._names: dict[str, dict[str, bytes]] = {}
        self._elf: dict[bytes, ElfFacts | None] = {}
        self._children: dict[tuple[int, tuple[str, ...]], tuple[Launch, tuple[Launch, ...]]] = {}
        # What single blocks say, for every role that reaches them.
        self._libraries_in: dict[Block, tuple[str, ...]] = {}
        self._stems: dict[str, list[bytes]] | None = None
        self._programs_in: dict[int, dict[Block, tuple[str, ...]]] = {}  # by the table of the programs on a PATH

    def elf(self, path: bytes) -> ElfFacts | None:
        """Return the facts of an ELF file, None for all else."""
        found = self.facts.elf(path)
        return found if isinstance(found, ElfFacts) else None

    def resolver(self, launch: Launch | None, program: bytes | None) -> LibraryResolver:
        """Return who looks for libraries in a process."""
        env = launch.env if launch is not None else {}
        cwd = launch.cwd if launch is not None else b""
        unsure = _unsure(launch) if launch is not None else ()
        return LibraryResolver(self.tree, self.facts, env, program, cwd, self.caches, unsure)

    # Programs on PATH -----------------------------------------------------------------------------------------------

    def program_names(self, env: Mapping[str, str]) -> dict[str, bytes]:
        """Return every program that PATH gives: name -> path, not canonical."""
        path = env.get("PATH", DEFAULT_PATH)
        known = self._names.get(path)
        if known is None:
            known = self._names[path] = {}
            for directory in path.split(":"):
                canonical = self.tree.resolve(directory.encode("utf-8", "surrogateescape"))
                if not directory or canonical is None:
                    continue
                for name in self.tree.children(canonical):
                    text = name.decode("utf-8", "surrogateescape")
                    full = canonical + b"/" + name if canonical else name
                    entry = self.tree.lookup(full)
                    if text not in known and entry is not None and entry.type == "file" and entry.mode & 0o111:
                        known[text] = full
        return known

    def started(self, reach: Reach, launch: Launch) -> dict[bytes, tuple[Unit, Use]]:
        """Return the programs that calls start by a literal name, or by one that stands in the same module."""
        found: dict[bytes, tuple[Unit, Use]] = {}
        names = self.program_names(launch.env)
        for unit, use in reach.ordered_uses():
            if use.kind != "program":
                continue
            words = [_first_word(fill(word, unit)) for word in use.argv[:1]]
            if not words or words[0] in (None, HOLE):
                blocks = [block for block in unit.blocks() if block in reach.done]
                words = [*sorted({word for block in blocks for word in names.keys() & block.words})]
            for word in words:
                path = self.follower.programs.which(word or "", launch.env, launch.cwd)
                if path is not None:
                    found.setdefault(path, (unit, use))
        return found

    def children(self, unit: Unit, use: Use, launch: Launch) -> tuple[Launch, ...]:
        """Return what the command line of a call comes to that starts a program."""
        if use.kind != "program":
            return ()
        argv = command_line(use, tuple(fill(word, unit) for word in use.argv))
        if not argv:
            return ()
        found = self._followed(argv, launch)
        if takes_a_list(use):  # what it runs stands beside it
            texts = {text for block in unit.blocks() for text in block.texts if text.startswith("/")}
            for text in sorted(texts - set(argv)):
                found += self._followed((argv[0], text), launch)
        return found

    def _followed(self, argv: tuple[str, ...], launch: Launch) -> tuple[Launch, ...]:
        key = id(launch), argv
        known = self._children.get(key)
        if known is None:
            known = self._children[key] = launch, tuple(self.follower.follow(argv, launch.env, launch.cwd))
        return known[1]

    # Closure --------------------------------------------------------------------------------------------------------

    def close(self, reaches: Sequence[Reach], starts: Sequence[Launch], launches: Sequence[Launch]) -> Native:
        """Return everything native that the reached modules (each with its launch) and the way from the entry load."""
        native = Native()
        for reach, launch in zip(reaches, starts, strict=True):
            self._process(native, reach, launch)
            self._start_programs(native, reach, launch)
        for launch in launches:
            for touched in launch.touched:
                if self.elf(touched.path) is not None:
                    self._program(native, touched.path, launch, EAGER if touched.sure else DEFERRED)
        return native

    def interpreter(self, graph: Graph, launch: Launch | None) -> Closure | None:
        """Return what the interpreter alone maps."""
        executable = graph.resolver.search.environment.executable
        if executable is None:
            return None
        return self.resolver(launch, executable).closure([Start(executable)])

    def _process(self, native: Native, reach: Reach, launch: Launch | None) -> None:
        executable = reach.graph.resolver.search.environment.executable
        resolver = self.resolver(launch, executable)
        native.directories.update(dict.fromkeys(resolver.library_directories))
        eager, deferred = self._extensions(reach)
        first = [Start(executable, "the interpreter")] if executable is not None else []
        first += preloaded(resolver)
        starts = [*first, *(Start(path, "extension module") for path in sorted(eager))]
        closure = resolver.closure(starts)
        self._take(native, closure, EAGER, reach)
        found = reach.graph.resolver.find("_ctypes")
        ctypes = found.path if found is not None and found.kind == "extension" else None
        opened: dict[str, Unit | bytes] = {}
        env = launch.env if launch is not None else {}
        for name, unit in (*self._names_opened(reach), *libraries_listed(reach, self.tree, env)):
            opened.setdefault(name, unit)
        more = [*starts, *(Start(path, "extension module") for path in sorted(deferred))]
        for _ in range(_MAX_ROUNDS):
            wide = resolver.closure(more)
            paths = {each.path for each in wide.loaded}
            for path in sorted(paths):
                opened.update((name, path) for name in self._strings(path) if name not in opened)
            fresh: list[Start] = []
            for name in sorted(opened):
                for path in self._found(resolver, name, opened[name], native, ctypes):
                    if path not in paths and all(start.path != path for start in more):
                        fresh.append(Start(path, "dlopen"))
                        by = opened[name]
                        edge_hop = Hop(None, path, None, None, "dlopen")
                        native.add(path, Loaded(DEFERRED, edge_hop, by, f"{name} is opened by name"))
            if not fresh:
                break
            more += fresh
        self._take(native, wide, DEFERRED, reach)
        self._check(native, closure, EAGER)
        self._check(native, wide, DEFERRED)

    def _extensions(self, reach: Reach) -> tuple[list[bytes], list[bytes]]:
        eager: list[bytes] = []
        deferred: list[bytes] = []
        for unit, level in reach.level.items():
            if unit.kind == "extension" and unit.path is not None:
                (eager if level == EAGER else deferred).append(unit.path)
        return eager, deferred

    def _take(self, native: Native, closure: Closure, level: int, reach: Reach) -> None:
        units = {unit.path: unit for unit in reach.level if unit.kind == "extension"}
        for each in closure.loaded:
            if each.path in units:
                continue
            here = level if each.certain else DEFERRED
            edge = "needed"
            if each.parent is None:
                edge = (
                    "preload" if each.how == PRELOAD else "interpreter" if each.how == "the interpreter" else "dlopen"
                )
                if edge == "dlopen":
                    continue
            elif each.name.startswith("/") and "ld" in each.name.rpartition("/")[2]:
                edge = "interpreter"
            by: Unit | bytes | None = units.get(each.parent) or each.parent
            native.add(each.path, Loaded(here, Hop(None, each.path, None, None, edge), by, each.how))  # type: ignore[arg-type]  # one of the words above
            if each.opened != each.path:
                native.wanted.setdefault(each.opened.rpartition(b"/")[2].decode("utf-8", "surrogateescape"), here)
        for path, reason in closure.unreadable:
            native.unreadable.setdefault(path, reason)
        for loader, name in closure.unresolved:
            if not closure.resolutions[loader, name].candidates:
                native.unresolved.setdefault(name, loader)

    def _check(self, native: Native, closure: Closure, level: int) -> None:
        """Note every name and what it resolves to, and where the two caches disagree."""
        for (loader, name), resolution in sorted(closure.resolutions.items()):
            native.wanted[name.rpartition("/")[2]] = max(level, native.wanted.get(name.rpartition("/")[2], 0))
            for number, candidate in enumerate(resolution.candidates):
                key = name if not number else f"{name} ({candidate.how})"
                self._name(native, key, candidate.path, level, loader)
            if resolution.differs:
                stored = show(resolution.stored) if resolution.stored is not None else "nothing"
                rebuilt = show(resolution.rebuilt) if resolution.rebuilt is not None else "nothing"
                message = f"the stored ld.so.cache leads {name} to {stored}, one made anew by ldconfig to {rebuilt}"
                native.integrity[Integrity(self.side, "stored-ld-cache", None, b"etc/ld.so.cache", message)] = None

    def _name(self, native: Native, name: str, path: bytes, level: int, loader: bytes) -> None:
        here = resolved(self.tree, self.attribution, path)
        known = native.libraries.get(name)
        if known is None:
            native.libraries[name] = (_LEVEL[level], here)
        elif known[1].path != path:
            native.libraries.setdefault(f"{name} (for {show(loader)})", (_LEVEL[level], here))

    # Opened by name -------------------------------------------------------------------------------------------------

    def _names_opened(self, reach: Reach) -> Iterable[tuple[str, Unit]]:
        for unit, use in reach.ordered_uses():
            if use.kind == "library" and use.name is not None:
                name = fill(use.name, unit)
                if HOLE not in name and name:
                    yield name, unit
                    if use.callee == "find_library":
                        yield f"lib{name}.so", unit
        found: dict[str, Unit] = {}
        known_in = self._libraries_in
        for block in reach.done:
            if not block.files:
                continue
            texts = known_in.get(block)
            if texts is None:
                texts = known_in[block] = tuple(
                    text for text in block.files if ".so" in text and _LIBRARY.fullmatch(text)
                )
            for text in texts:
                known = found.get(text)
                if known is None or block.unit.name < known.name:
                    found[text] = block.unit
        yield from sorted(found.items(), key=lambda item: item[0])
        yield from self._named_by_stem(reach)

    def _named_by_stem(self, reach: Reach) -> Iterable[tuple[str, Unit]]:
        """Libraries of a package that its own code names as their builds do (``x`` of ``libx.so``), so that a loader
        can put the platform's name together."""
        stems = self._library_stems()
        words = stems.keys()
        found: dict[str, Unit] = {}
        for block in reach.done:
            home = None
            for word in block.named & words:
                home = home or _package_directory(block.unit)
                for path in stems[word]:
                    name = "/" + path.decode("utf-8", "surrogateescape")
                    if (
                        home
                        and path.startswith(home + b"/")
                        and (name not in found or block.unit.name < found[name].name)
                    ):
                        found[name] = block.unit
        yield from sorted(found.items(), key=lambda item: item[0])

    def _library_stems(self) -> Mapping[str, list[bytes]]:
        """Return the image's ``lib*.so`` by what stands between."""
        if self._stems is None:
            self._stems = {}
            for path in self.tree.entries:
                name = path.rpartition(b"/")[2] if b".so" in path else b""
                if name.startswith(b"lib") and is_shared_object(path):
                    stem = name[3 : name.index(b".so")].decode("utf-8", "surrogateescape")
                    self._stems.setdefault(stem, []).append(path)
        return self._stems

    def _strings(self, path: bytes) -> Iterable[str]:
        facts = self.elf(path)
        if facts is None:
            return
        needed = frozenset((*facts.needed, facts.soname or ""))
        for text in facts.strings:
            if ".so" in text and text not in needed and _LIBRARY.fullmatch(text):
                yield text

    def _found(
        self, resolver: LibraryResolver, name: str, by: Unit | bytes, native: Native, ctypes: bytes | None
    ) -> list[bytes]:
        """Return what a name leads to that is opened; what Python code opens, ``ctypes`` (its extension) can ask for
        and the program as well."""
        loader = by.path if isinstance(by, Unit) else by
        native.wanted.setdefault(name.rpartition("/")[2], DEFERRED)
        if "/" in name:
            directory = (loader or b"").rpartition(b"/")[0]
            found = self.tree.resolve(name.encode("utf-8", "surrogateescape"), directory)
            entry = None if found is None else self.tree.get(found)
            return [found] if found is not None and entry is not None and entry.type == "file" else []
        asking = loader if loader is not None and self.elf(loader) is not None else None
        askers = (asking,) if asking is not None or ctypes is None else (None, ctypes)
        candidates = (candidate for asker in askers for candidate in resolver.resolve(name, asker).candidates)
        paths = list(dict.fromkeys(candidate.path for candidate in candidates))
        for path in paths:
            self._name(native, name, path, DEFERRED, loader or b"")
        if not paths:
            # ctypes.util.find_library and wrappers that look beside themselves.
            beside = (loader or b"").rpartition(b"/")[0]
            for directory in (beside, beside + b"/lib", *resolver.library_directories):
                prefix = directory + b"/" if directory else b""
                for child in self.tree.children(directory):
                    text = child.decode("utf-8", "surrogateescape")
                    if text == name or (text.startswith(name + ".") and name.endswith(".so")):
                        found = self.tree.resolve(prefix + child)
                        if found is not None:
                            paths.append(found)
        return list(dict.fromkeys(paths))

    # Started by name ------------------------------------------------------------------------------------------------

    def _start_programs(self, native: Native, reach: Reach, launch: Launch) -> None:
        names = self.program_names(launch.env)
        for path, (unit, use) in self.started(reach, launch).items():
            self._touch(native, path, launch, unit, use.line, use.function)
        self._touch_children(native, reach, launch)
        words: dict[str, Unit] = {}
        known_in = self._programs_in.setdefault(id(names), {})
        for block in reach.done:
            if not block.named and not block.files:
                continue
            found_here = known_in.get(block)
            if found_here is None:
                found_here = known_in[block] = _programs_in(block, names)
            for word in found_here:
                known = words.get(word)
                if known is None or block.unit.name < known.name:
                    words[word] = block.unit
        for word, unit in sorted(words.items()):
            found = self.follower.programs.which(word, launch.env, launch.cwd)
            if found is not None:
                self._touch(native, found, launch, unit, None, None)
        for path in sorted(native.files):
            facts = self.elf(path)
            for text in facts.strings if facts is not None else ():
                if text.startswith("/") and "bin/" in text:
                    found = self.follower.programs.which(
                        text.split()[0] if text.split() else "", launch.env, launch.cwd
                    )
                    if found is not None:
                        self._touch(native, found, launch, path, None, None)

    def _touch_children(self, native: Native, reach: Reach, launch: Launch) -> None:
        for unit, use in reach.ordered_uses():
            for inner in self.children(unit, use, launch):
                for touched in inner.touched[1:]:
                    hop = Hop(None, touched.path, use.line, use.function, touched.edge)
                    native.add(touched.path, Loaded(DEFERRED, hop, unit, "a program that is started by name runs it"))

    def _touch(
        self, native: Native, path: bytes, launch: Launch, by: Unit | bytes, line: int | None, function: str | None
    ) -> None:
        canonical = self.tree.resolve(path)
        if canonical is None or canonical in native.files:
            return
        name = path.rpartition(b"/")[2].decode("utf-8", "surrogateescape")
        native.add(
            canonical,
            Loaded(DEFERRED, Hop(None, canonical, line, function, "program"), by, f"{name} is started by name"),
        )
        native.libraries.setdefault(name, ("deferred", resolved(self.tree, self.attribution, canonical)))
        for rule in common().compilers:
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.programs):
                native.compilers.setdefault(name, rule)
        if self.elf(canonical) is not None:
            self._program(native, canonical, launch, DEFERRED)
            return
        for inner in self.follower.follow(["/" + path.decode("utf-8", "surrogateescape")], launch.env, launch.cwd):
            for touched in inner.touched:
                hop = Hop(None, touched.path, touched.line, None, touched.edge)
                native.add(
                    touched.path,
                    Loaded(DEFERRED, hop, canonical if touched.path != canonical else by, "started by name"),
                )
                if self.elf(touched.path) is not None:
                    self._program(native, touched.path, launch, DEFERRED)

    def _closure(self, resolver: LibraryResolver, path: bytes) -> Closure:
        return resolver.closure([Start(path), *preloaded(resolver)])

    def _program(self, native: Native, path: bytes, launch: Launch, level: int) -> None:
        unsure = _unsure(launch)
        values = tuple(launch.env.get(name, "") for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"))
        key = (path, values, launch.cwd, unsure)
        closure = self._programs.get(key)
        if closure is None:
            closure = self._programs[key] = self._closure(self.resolver(launch, path), path)
        for each in closure.loaded:
            here = level if each.certain else DEFERRED
            if each.parent is not None:
                native.add(each.path, Loaded(here, Hop(None, each.path, None, None, "needed"), each.parent, each.how))
            elif each.how == PRELOAD:
                native.add(each.path, Loaded(here, Hop(None, each.path, None, None, "preload"), path, each.how))
        for missing, reason in closure.unreadable:
            native.unreadable.setdefault(missing, reason)


def _package_directory(unit: Unit) -> bytes | None:
    """Return the directory of the top-level regular package that a module is in; None for a module of none."""
    top = unit
    while top.parent is not None:
        top = top.parent
    return top.path.rpartition(b"/")[0] if top.path is not None and top.found.portions else None


def _unsure(launch: Launch) -> frozenset[str]:
    """The directories and libraries that a shell script may or may not put into the loader's ENV."""
    words = {word for part in launch.unsure("LD_PRELOAD") for word in part.split()}
    return launch.unsure("LD_LIBRARY_PATH") | words


def preloaded(resolver: LibraryResolver) -> list[Start]:
    """Return what is preloaded into a process, as starts behind its program."""
    found = resolver.preloads()
    return [Start(each.path, PRELOAD, each.certain, one.name) for one in found for each in one.candidates]


def _programs_in(block: Block, names: Mapping[str, bytes]) -> tuple[str, ...]:
    """The strings of a block that could be programs: those on PATH, and absolute paths."""
    words = names.keys() & block.named if block.named else ()
    return (*words, *(text for text in block.files if text in names or (text.startswith("/") and "bin/" in text)))


def _first_word(text: str) -> str | None:
    """The program of a command line that is one string."""
    for match in _WORD.finditer(text):
        if not re.fullmatch(r"\w+=.*", match[0]):
            return match[0] if match.start() == 0 or text[match.start() - 1] in " \t" else HOLE
    return HOLE


def feed_interpreter(reach: Reach, closure: Closure | None, facts: FactSource) -> None:
    """Count the names that the interpreter's own libraries hold as referred to."""
    for each in closure.loaded if closure is not None else ():
        found = facts.elf(each.path)
        if isinstance(found, ElfFacts) and found.python:
            reach.refer(found.identifiers)


def feed_libraries(reach: Reach, resolver: LibraryResolver, executable: bytes | None, seen: set[bytes]) -> bool:
    """Let C code behind extension modules refer to names and modules; tell whether there was any new."""
    starts = [Start(executable)] if executable is not None else []
    units = sorted((unit for unit in reach.level if unit.kind == "extension" and unit.path), key=lambda each: each.name)
    fresh = False
    paths = {unit.path: unit for unit in units}
    starts += [Start(path) for path in paths if path is not None]
    closure = resolver.closure(starts)
    parents = {each.path: each.parent for each in closure.loaded}
    for each in closure.loaded:
        if each.path in seen or each.path in paths:
            continue
        seen.add(each.path)
        facts = reach.graph.facts.elf(each.path)
        if not isinstance(facts, ElfFacts) or not facts.python:
            continue
        above: bytes | None = each.path
        while above is not None and above not in paths:
            above = parents.get(above)
        unit = paths.get(above)
        if unit is not None:
            reach.enter_native(unit, facts)
            fresh = True
    return fresh
