"""What a process maps in the end: the closure over DT_NEEDED of what is started, preloaded and opened.

A library that is loaded already answers for its SONAME before any search (ld.so(8)), so the order of loading matters.
The order of the starts is taken as the order of loading; since it is not known for sure, the file that a search would
have found instead is kept as a candidate that is not certain.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import msgspec

from imgdiff.model import Blindspot, ElfFacts, FactSource, Tree, Unreadable
from imgdiff.trace.libraries import ld_cache
from imgdiff.trace.libraries.caches import Caches
from imgdiff.trace.libraries.found import Candidate, Mapped, Resolution
from imgdiff.trace.libraries.search import LibrarySearch, text

__all__ = ["Caches", "Candidate", "Closure", "LibraryResolver", "Loaded", "Resolution", "Start"]

PRELOAD_PATH = b"etc/ld.so.preload"
PRELOAD = "preload"  # how a start that is preloaded comes to be one
MAX_OBJECTS = 100_000


class Start(msgspec.Struct, frozen=True):
    """An ELF file that is loaded by its path: the program itself, a preloaded library, an extension module.
    ``certain`` is False where it may not be. ``name`` is what it was asked for by, which it answers to from then on."""

    path: bytes
    how: str = "root"
    certain: bool = True
    name: str = ""


class Loaded(msgspec.Struct, frozen=True):
    """One mapped file: by which file (None: a start), through which name, and how it was found. ``certain`` is False
    where it, or one that loads it, is loaded only in another order."""

    path: bytes
    opened: bytes
    parent: bytes | None
    name: str
    how: str
    certain: bool = True


class Closure(msgspec.Struct, frozen=True):
    """All that is mapped, in order of loading. ``resolutions`` are by (loading file, name), ``unresolved`` are those
    that no search finds; they may have candidates elsewhere all the same. ``unreadable`` are mapped files whose own
    needs are not known, with the reason. ``answers`` are the mapped files by the names that they answer to once they
    are loaded."""

    loaded: tuple[Loaded, ...]
    resolutions: dict[tuple[bytes, str], Resolution]
    unresolved: tuple[tuple[bytes, str], ...]
    unreadable: tuple[tuple[bytes, str], ...]
    answers: dict[str, tuple[bytes, ...]]

    def chain(self, path: bytes) -> tuple[Loaded, ...]:
        """Return how a mapped file comes to be loaded, the start first; empty for a file that is not mapped."""
        by_path = {item.path: item for item in self.loaded}
        found: list[Loaded] = []
        here: bytes | None = path
        while here is not None and here in by_path and len(found) <= len(by_path):
            found.append(by_path[here])
            here = by_path[here].parent
        return tuple(reversed(found))


class LibraryResolver(LibrarySearch):
    """Resolves names in one image, for processes of one machine and one loader.

    ``environment`` is the process's (LD_LIBRARY_PATH, LD_PRELOAD and LD_AUDIT count), ``program`` the main
    executable, whose machine, loader and RPATH count; None leaves the machine to the first file that asks.
    ``directory`` is the working directory. Resolvers of one image can share one :class:`Caches`.
    """

    @property
    def blindspots(self) -> tuple[Blindspot, ...]:
        """What could not be read: a stored ld.so.cache."""
        return self._caches.blindspots

    @property
    def library_directories(self) -> tuple[bytes, ...]:
        """Return the canonical directories in which names are looked for whoever asks: LD_LIBRARY_PATH, those of
        ld.so.conf and of the stored cache, the trusted ones; for musl its path."""
        found = [step.directory for step in self._library_path()]
        if self._musl:
            found += self._musl_directories()
        else:
            found += [*ld_cache.configured_directories(self._tree, self._facts), *self.trusted_directories()]
            stored = self._caches.stored
            found += [entry.path.rpartition(b"/")[0] for entry in stored] if stored is not None else []
        resolved = (self._tree.resolve(directory) for directory in found)
        return tuple(dict.fromkeys(directory for directory in resolved if directory is not None))

    def resolve(self, name: str, loader: bytes | None = None, above: Sequence[bytes] = ()) -> Resolution:
        """Return what a name resolves to when the file at ``loader`` (None: the program) opens it, by a search alone.

        ``above`` are the files that loaded ``loader``, nearest first: their RPATHs count. What is loaded already and
        answers to the name is not considered; see :attr:`Closure.answers`. What a file does not need but opens, musl
        looks for as if the program did (dynlink.c, dlopen).
        """
        return self.search(name, self.asking(name, loader, above))

    def asking(self, name: str, loader: bytes | None, above: Sequence[bytes] = ()) -> Mapped | None:
        """Return the file whose search paths count for a name; see :meth:`resolve`."""
        asking = self.mapped(loader) if loader is not None else self._program
        if self.is_musl and asking is not None and name not in asking.facts.needed:
            return self._program or asking
        here = asking
        for path in above:
            following = self.mapped(path)
            if here is not None and following is not None:
                is_program = self._program is not None and following.path == self._program.path
                here.loader = self._program if is_program else following
                here = here.loader
        return asking

    def preloads(self) -> tuple[Resolution, ...]:
        """Return what LD_AUDIT, LD_PRELOAD and ``/etc/ld.so.preload`` load, in the order of loading."""
        words = [] if self._musl else self._environment.get("LD_AUDIT", "").split(":")
        words += self._environment.get("LD_PRELOAD", "").replace(":", " ").split()
        found = [self._preload(word, sure=not self.is_secure and word not in self._unsure) for word in words if word]
        if not self._musl:
            for line in (self._facts.text(PRELOAD_PATH) or b"").split(b"\n"):
                words = text(line.partition(b"#")[0].replace(b":", b" ")).split()
                found += [self._preload(word, sure=True) for word in words]
        return tuple(found)

    def _preload(self, word: str, *, sure: bool) -> Resolution:
        found = self.search(word, self._program)
        if sure:
            return found
        return msgspec.structs.replace(
            found, candidates=tuple(msgspec.structs.replace(each, certain=False) for each in found.candidates)
        )

    def closure(self, starts: Iterable[Start]) -> Closure:
        """Return everything that the starts load, each with all it needs before the next one, as dlopen does.

        The first start is the program; its interpreter (PT_INTERP) comes with it. Starts right behind it that are
        :data:`PRELOAD` are mapped before all that it needs. Never raises; a start that is not
        there is left out.
        """
        return _Process(self, self._tree, self._facts).run(starts)


class _Process:
    """Loads starts one after another, breadth first as the loader does, and keeps what was loaded."""

    def __init__(self, search: LibrarySearch, tree: Tree, facts: FactSource) -> None:
        self._search, self._tree, self._facts = search, tree, facts
        self._objects: dict[bytes, Mapped] = {}
        self._by_name: dict[str, list[Mapped]] = {}
        self._loaded: dict[bytes, Loaded] = {}
        self._resolutions: dict[tuple[bytes, str], Resolution] = {}
        self._done: set[tuple[bytes, bool]] = set()
        self._unreadable: dict[bytes, str] = {}
        self._program: Mapped | None = None
        self._elsewhere: set[tuple[bytes, str]] = set()  # what no search finds

    def run(self, starts: Iterable[Start]) -> Closure:
        waiting = list(starts)
        # What is preloaded is mapped before anything that the program needs, and answers for its SONAME (rtld.c).
        preloads = list(itertools.takewhile(lambda start: start.how == PRELOAD, waiting[1:]))
        for number, start in enumerate(waiting):
            if not 0 < number <= len(preloads):
                self._start(start, preloads if not number else ())
        self._search_elsewhere()
        unresolved = tuple(
            key for key in self._resolutions if key in self._elsewhere or not self._resolutions[key].candidates
        )
        return Closure(
            tuple(self._loaded.values()),
            self._resolutions,
            unresolved,
            tuple(sorted(self._unreadable.items())),
            {name: tuple(item.path for item in items) for name, items in self._by_name.items()},
        )

    def _search_elsewhere(self) -> None:
        """What no search finds can have been loaded by a later start, else it can be any file of the name: ENV that is
        given at run time, or that code sets, leads there. Where a script computes a library path, any name can."""
        asked: set[tuple[bytes, str]] = set()
        while True:
            keys = [key for key in self._resolutions if key not in asked and "/" not in key[1]]
            if not keys:
                return
            asked.update(keys)
            queue: list[Mapped] = []
            for key in keys:
                resolution = self._resolutions[key]
                if not resolution.candidates:
                    resolution = self._late(key[1], resolution)
                if not resolution.candidates:
                    self._elsewhere.add(key)
                if key in self._elsewhere or self._search.anywhere:
                    known = {each.path for each in resolution.candidates}
                    added = [each for each in self._search.elsewhere(key[1]) if each.path not in known]
                    queue += self._load_all(added, self._objects[key[0]], key[1])
                    resolution = msgspec.structs.replace(resolution, candidates=(*resolution.candidates, *added))
                self._resolutions[key] = resolution
            self._follow(queue)

    def _late(self, name: str, resolution: Resolution) -> Resolution:
        """What no search finds can have been loaded by a later start, and then answers for its SONAME."""
        found = [Candidate(item.path, item.opened, "loaded already") for item in self._by_name.get(name, ())]
        return msgspec.structs.replace(resolution, candidates=tuple(found))

    def _map(self, start: Start) -> Mapped | None:
        canonical = self._tree.resolve(start.path)
        entry = self._tree.get(canonical) if canonical is not None else None
        if canonical is None or entry is None or entry.type != "file":
            return None
        return self._load(
            Candidate(canonical, start.path.strip(b"/"), start.how, start.certain), None, start.name, self._program
        )

    def _start(self, start: Start, preloads: Sequence[Start] = ()) -> None:
        item = self._map(start)
        program = item if self._program is None else None
        if program is not None:
            self._program = program
            program.started = True
        queue = [each for each in (item, *map(self._map, preloads)) if each is not None]
        if program is not None and program.facts.interpreter is not None:
            queue += self._take(program, program.facts.interpreter)
        self._follow(queue)

    def _follow(self, queue: list[Mapped]) -> None:
        """Load what these need, and what that needs, breadth first."""
        for here in queue:  # grows
            if (here.path, here.certain) not in self._done:
                self._done.add((here.path, here.certain))
                for name in here.facts.needed:
                    queue += self._take(here, name)

    def _take(self, here: Mapped, name: str) -> list[Mapped]:
        """Resolve a name for one object and load what it is; return what was not loaded before."""
        resolution = self._search.search(name, here)
        known = self._by_name.get(name, []) if "/" not in name else []
        if known:
            resolution = msgspec.structs.replace(resolution, candidates=_answered(known, resolution.candidates))
        self._resolutions[here.path, name] = resolution
        return self._load_all(resolution.candidates, here, name)

    def _load_all(self, candidates: Iterable[Candidate], here: Mapped, name: str) -> list[Mapped]:
        """Load candidates; return what was not loaded before."""
        fresh = []
        for candidate in candidates:
            before = self._objects.get(candidate.path)
            item = self._load(candidate, here, name, here)
            if item is not None and item is not before:
                fresh.append(item)
        return fresh

    def _load(self, candidate: Candidate, parent: Mapped | None, name: str, loader: Mapped | None) -> Mapped | None:
        certain = candidate.certain and (parent is None or parent.certain)
        known = self._objects.get(candidate.path)
        if known is not None and (known.certain or not certain):
            self._answer(known, name)
            return known
        if candidate.path in self._unreadable:
            return None
        if len(self._objects) >= MAX_OBJECTS:
            self._unreadable[candidate.path] = "more files are loaded than a process can hold"
            return None
        above = parent.path if parent is not None else None
        self._loaded[candidate.path] = Loaded(candidate.path, candidate.opened, above, name, candidate.how, certain)
        facts = self._facts.elf(candidate.path)
        if not isinstance(facts, ElfFacts):
            reason = facts.reason if isinstance(facts, Unreadable) else "it is no ELF file"
            self._unreadable[candidate.path] = reason
            return None
        self._search.settle(facts)
        item = Mapped(candidate.path, candidate.opened, facts, loader, certain)
        self._objects[candidate.path] = item
        # musl knows what it has loaded by the name that was searched for, never by the SONAME (load_library).
        soname = facts.soname if not self._search.is_musl else None
        for each in (name, soname or "", *(known.names if known is not None else ())):
            self._answer(item, each)
        return item

    def _answer(self, item: Mapped, name: str) -> None:
        """From now on this object is what the name means."""
        if name and name not in item.names and "/" not in name:
            item.names.add(name)
            others = [other for other in self._by_name.get(name, ()) if other.path != item.path]
            self._by_name[name] = [*others, item]


def _answered(known: list[Mapped], searched: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Return what a name is that mapped files answer to: these, and what a search finds in another order of loading."""
    sure = any(item.certain for item in known)
    found = {candidate.path: candidate for candidate in searched}
    answers = [
        Candidate(item.path, item.opened, "loaded already", item.certain)
        for item in known
        if item.certain or sure or item.path not in found
    ]
    taken = {candidate.path for candidate in answers}
    others = [
        msgspec.structs.replace(candidate, certain=candidate.certain and not sure)
        for candidate in searched
        if candidate.path not in taken
    ]
    return (*answers, *others)
