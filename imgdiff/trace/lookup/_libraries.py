"""What a library's name leads to: every place that the loader searches, in order, with what it has (ld.so(8))."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from imgdiff.model import ElfFacts, LookupAnswer, LookupCandidate, LookupPlace, LookupSource, Unreadable
from imgdiff.trace.libraries import ld_cache
from imgdiff.trace.libraries.found import Candidate, Step
from imgdiff.trace.libraries.ld_cache import Cache, CachedLibrary, join
from imgdiff.trace.libraries.natives import preloaded
from imgdiff.trace.libraries.needed import PRELOAD, PRELOAD_PATH, Closure, LibraryResolver, Loaded, Start
from imgdiff.trace.lookup._asked import Asked, Desk
from imgdiff.trace.paths import show

_DIRECTORY = "it is a directory"
_ENDS = "the loader ends here with an error"
_SOURCES: tuple[LookupSource, ...] = ("LD_LIBRARY_PATH", "RPATH", "RUNPATH", "musl's path")


def library(desk: Desk, asked: Asked, name: str) -> LookupAnswer:
    """Return what a library's name leads to when the process, or the file that was given, opens it."""
    resolver = desk.tracer.natives.resolver(asked.launch, asked.program)
    return _Library(desk, asked, resolver, name).answer()


class _Library:
    def __init__(self, desk: Desk, asked: Asked, resolver: LibraryResolver, name: str) -> None:
        self.desk, self.asked, self.resolver, self.name = desk, asked, resolver, name
        self.encoded = name.encode("utf-8", "surrogateescape")
        starts = [Start(asked.program)] if asked.program is not None else []
        starts += preloaded(resolver)
        self.closure = resolver.closure(starts) if starts else None
        loader, above = self._loader()
        self.asking = resolver.asking(name, loader, above)
        self.resolution = resolver.search(name, self.asking)
        self.nodeflib = self.asking is not None and self.asking.facts.nodeflib

    def _loader(self) -> tuple[bytes | None, list[bytes]]:
        """Return the file that asks, as it is opened, and those that loaded it, nearest first, where the program's
        start has mapped it; else as the user spells it."""
        if self.desk.loader is None or self.closure is None:
            return self.desk.loader, []
        canonical = self.desk.tree.resolve(self.desk.loader)
        chain = self.closure.chain(canonical) if canonical is not None else ()
        if not chain:
            return self.desk.loader, []
        return chain[-1].opened, [each.opened for each in reversed(chain[:-1])]

    def answer(self) -> LookupAnswer:
        mapped, loaded = self._loaded()
        places = [] if loaded is None else [loaded]
        places += list(self._places())
        places = self._marked(places, searched=not mapped)
        winners: list[LookupCandidate] = []
        for place in places:
            winners += [each for each in place.candidates if each.wins]
        known = {each.file for place in places for each in place.candidates}
        ending = b"/" + self.encoded.rpartition(b"/")[2]
        return LookupAnswer(
            "library",
            self.name,
            (),
            tuple(winners),
            tuple(places),
            tuple(self._notes()),
            self.desk.elsewhere(lambda path: path.endswith(ending), known),
        )

    # What is mapped already -----------------------------------------------------------------------------------------

    def _loaded(self) -> tuple[bool, LookupPlace | None]:
        """What the program's start has mapped by then: the program, what is preloaded, and all that these need."""
        closure = self.closure
        if closure is None or "/" in self.name:
            return False, None
        paths = closure.answers.get(self.name, ())
        certain = [each for each in closure.loaded if each.path in paths and each.certain]
        certain = self._first_preloaded(certain) or certain
        early = any(closure.chain(each.path)[0].how == PRELOAD for each in certain)
        if not certain or (
            not early and {each.path for each in self.resolution.candidates if not each.beyond} == set(paths)
        ):
            return False, None  # the search finds the same: that is told below
        candidates = [
            self.desk.candidate(each.opened, each.path, self._by(closure, each.path), wins=True) for each in certain
        ]
        return True, LookupPlace(
            "loaded already", None, True, said="it answers for its SONAME", candidates=tuple(candidates)
        )

    def _first_preloaded(self, answering: Sequence[Loaded]) -> list[Loaded]:
        """Return the one that surely answers before the others: what a preload leads to and nothing else."""
        for found in self.resolver.preloads():
            if len(found.candidates) == 1 and found.candidates[0].certain:
                first = [each for each in answering if each.path == found.candidates[0].path]
                if first:
                    return first
            elif any(each.path == one.path for each in answering for one in found.candidates):
                return []
        return []

    def _by(self, closure: Closure, path: bytes) -> str:
        chain = closure.chain(path)
        first, last = chain[0], chain[-1]
        by = self._preloader(first.path) if first.how == PRELOAD else f"{show(first.path)} is the program"
        return by if last is first else f"{show(last.parent or b'')} needs it, and {by}"

    def _preloader(self, path: bytes) -> str:
        number: int | None
        for number, line in enumerate((self.desk.facts.text(PRELOAD_PATH) or b"").split(b"\n"), 1):
            for word in line.partition(b"#")[0].replace(b":", b" ").split():
                if any(
                    each.path == path
                    for each in self.resolver.resolve(word.decode("utf-8", "surrogateescape")).candidates
                ):
                    return f"/etc/ld.so.preload, line {number}, preloads it"
        for name, separators in (("LD_AUDIT", ":"), ("LD_PRELOAD", " :")):
            for part in self.asked.launch.env.get(name, "").replace(separators[-1], " ").split():
                if any(each.path == path for each in self.resolver.resolve(part).candidates):
                    by, number, said = self.desk.setters(self.asked.launch, name, part)
                    where = f" ({show(by)}, line {number})" if by is not None else ""
                    return f"{said}{where} preloads it"
        return "it is preloaded"

    # What is searched -----------------------------------------------------------------------------------------------

    def _places(self) -> Iterator[LookupPlace]:
        if "/" in self.name:
            candidates = [self._file(each.opened) for each in self.resolution.candidates]
            yield LookupPlace("path", None, True, said="the name is a path", candidates=_there(candidates))
            return
        if self.resolver.is_musl and self.resolution.candidates and not self.resolution.searched:
            own = [self._file(each.opened) for each in self.resolution.candidates]
            yield LookupPlace(
                "musl's own", None, True, said="musl's loader is its own C library", candidates=_there(own)
            )
            return
        for step in self.resolver.order(self.asking):
            yield self._step(step)
        if self.resolver.is_musl:
            return
        caches = self.resolver.caches
        if caches.stored is not None:
            yield self._cache(caches.stored)
        elif caches.absent:
            yield LookupPlace("ld.so.cache", None, False, ld_cache.CACHE_PATH, None, "the image has none")
        yield from self._rebuilt()
        if not self.nodeflib:
            for directory in self.resolver.trusted_directories():
                yield self._directory("default path", directory, said="built into the loader")

    def _step(self, step: Step) -> LookupPlace:
        source = next(each for each in _SOURCES if step.how.startswith(f"{each} /"))
        if source == "LD_LIBRARY_PATH":
            by, line, who = self._library_path(step.directory)
            return self._directory(source, step.directory, by, line, ", ".join(filter(None, (who, step.doubt))))
        said = "built into the loader" if source == "musl's path" and step.by is None else step.doubt
        return self._directory(source, step.directory, step.by, None, said)

    def _library_path(self, directory: bytes) -> tuple[bytes | None, int | None, str]:
        value = self.asked.launch.env.get("LD_LIBRARY_PATH", "")
        for part in self.resolver.parts(value):
            if directory in self.resolver.expanded(part):
                return self.desk.setters(self.asked.launch, "LD_LIBRARY_PATH", part)
        return None, None, "LD_LIBRARY_PATH"

    def _directory(
        self,
        source: LookupSource,
        directory: bytes,
        by: bytes | None = None,
        line: int | None = None,
        said: str | None = None,
    ) -> LookupPlace:
        canonical = self.desk.tree.resolve(directory)
        if canonical is None or not self.desk.tree.is_dir(canonical):
            return LookupPlace(source, directory, False, by, line, said)
        candidates = [
            self._file(join(place, self.encoded), f"for certain CPUs: {relative.decode('utf-8', 'backslashreplace')}")
            for relative, place in self.resolver.caches.variants(canonical)
            if not self.resolver.is_musl
        ]
        candidates.append(self._file(join(directory, self.encoded)))
        made = (
            None if self.resolver.is_musl or source == "default path" else self.resolver.made(canonical, self.encoded)
        )
        if made is not None:
            candidates.append(self._file(join(directory, self.encoded), "if ldconfig makes this link", made))
        return LookupPlace(source, directory, True, by, line, said, _there(candidates))

    def _cache(self, stored: Cache) -> LookupPlace:
        entries = stored.entries(self.encoded)
        candidates = [self._entry(entry) for entry in entries]
        said = "the stored cache" if entries else "the stored cache has no entry of this name"
        return LookupPlace("ld.so.cache", None, True, ld_cache.CACHE_PATH, None, said, _there(candidates))

    def _rebuilt(self) -> Iterator[LookupPlace]:
        """The cache as ldconfig would make it, by the directories that it is made of."""
        trusted = self.resolver.trusted_directories()
        cache = self.resolver.caches.rebuilt(trusted)
        entries = cache.entries(self.encoded)
        configured = ld_cache.configured(self.desk.tree, self.desk.facts)
        seen: set[bytes | None] = set()
        for directory in dict.fromkeys((*configured, *trusted)):
            canonical = self.desk.tree.resolve(directory)
            if canonical is not None and canonical in seen:
                continue  # ldconfig takes each directory once
            seen.add(canonical)
            by, line = configured.get(directory, (None, None))
            said = "ldconfig takes it from the configuration" if by is not None else "ldconfig takes it in any case"
            here = [each for each in entries if each.path.startswith(directory + b"/")]
            here = [each for each in here if _home(each) == directory]
            present = self.desk.tree.is_dir(directory)
            candidates = _there([self._entry(each) for each in here])
            yield LookupPlace("ldconfig", directory, present, by, line, said, candidates)

    def _entry(self, entry: CachedLibrary) -> LookupCandidate | None:
        note = f"for certain CPUs: {entry.variant.decode('utf-8', 'backslashreplace')}" if entry.variant else None
        if self.nodeflib and entry.path.rpartition(b"/")[0] in self.resolver.trusted_directories():
            note = "passed over: who asks leaves out the default directories (-z nodeflib)"
        return self._file(entry.path, note, entry.target)

    def _file(self, path: bytes, note: str | None = None, target: bytes | None = None) -> LookupCandidate | None:
        file = self.desk.tree.resolve(target if target is not None else path)
        entry = self.desk.tree.get(file) if file is not None else None
        if file is not None and entry is not None and entry.type == "dir":
            return self.desk.candidate(path, None, _both(note, _DIRECTORY))
        if file is None or entry is None or entry.type != "file":
            return None
        facts = self.desk.facts.elf(file)
        if isinstance(facts, ElfFacts):
            if self.resolver.machine is not None and (facts.machine, facts.bits) != self.resolver.machine:
                note = "passed over: it is for another machine"
                if self.resolver.is_musl:
                    note = "it is for another machine, which musl does not ask for"
            if not entry.mode & 0o004:
                note = _both(note, "some users may not read it: for them the search goes on")
        elif isinstance(facts, Unreadable):
            note = _both(note, f"it can't be read: {facts.reason}")
        else:
            note = _both(note, "it is no ELF file")
        return self.desk.candidate(path, file, note)

    # Who wins -------------------------------------------------------------------------------------------------------

    def _marked(self, places: Sequence[LookupPlace], *, searched: bool) -> list[LookupPlace]:
        """Mark what the search takes, where it takes it; what it would find only behind a file or a directory at which
        the loader ends with an error is none of it."""
        if not searched:
            return list(places)
        left = [each for each in self.resolution.candidates if not each.beyond]
        marked = []
        for place in places:
            candidates = []
            for each in place.candidates:
                hit = next((one for one in left if one.path == each.file and self._from(one, place)), None)
                if each.path in self.resolution.directories:
                    candidates.append(msgspec.structs.replace(each, note=f"{each.note}: {_ENDS}"))
                elif hit is not None and hit.stops:
                    left.remove(hit)
                    candidates.append(msgspec.structs.replace(each, wins=True, note=f"{each.note}: {_ENDS}"))
                elif hit is not None:
                    left.remove(hit)
                    candidates.append(msgspec.structs.replace(each, wins=True))
                else:
                    candidates.append(each)
            marked.append(msgspec.structs.replace(place, candidates=tuple(candidates)))
        return marked

    def _from(self, candidate: Candidate, place: LookupPlace) -> bool:
        """Tell whether the search found a candidate in this place."""
        how = candidate.how.partition(" (it is no")[0].partition(" (unreadable")[0]
        how = how.partition(", for certain CPUs")[0].partition(", as a link that ldconfig makes")[0]
        if place.source == "ldconfig":
            return how == "ld.so.cache as ldconfig makes it"
        if place.source == "ld.so.cache":
            return how == "ld.so.cache"
        if place.directory is None:
            return how in ("path", "musl's own")
        return how == f"{place.source} /{place.directory.decode('utf-8', 'surrogateescape')}"

    def _by_ctypes(self) -> Iterator[str]:
        """A Python program opens libraries by ctypes, whose extension module has search paths of its own."""
        graph = self.asked.graph if self.desk.loader is None else None
        found = None if graph is None else graph.resolver.find("_ctypes")
        if found is None or found.path is None or found.kind != "extension" or self._loaded()[0]:
            return
        theirs = [each.path for each in self.resolver.resolve(self.name, found.path).candidates if not each.beyond]
        if theirs != [each.path for each in self.resolution.candidates if not each.beyond]:
            leads = " and ".join(map(show, theirs)) or "nothing"
            yield f"ctypes opens it by {show(found.path)}, which leads to {leads}; --for {show(found.path)} says why."

    def _notes(self) -> Iterator[str]:
        if self.desk.loader is not None and self.asking is not None:
            if self.name not in self.asking.facts.needed:
                yield f"{show(self.asking.path)} does not need it by DT_NEEDED: the answer is that to a dlopen."
            if self.asking.facts.runpath and self.asking.facts.rpath:
                yield f"{show(self.asking.path)} has a RUNPATH, so its RPATH is ignored."
        yield from self._by_ctypes()
        if self.resolution.differs:
            ends = [
                show(each) if each is not None else "nothing"
                for each in (self.resolution.stored, self.resolution.rebuilt)
            ]
            yield (
                f"The stored ld.so.cache leads to {ends[0]}, one made anew by ldconfig to {ends[1]}: container "
                "runtimes run ldconfig at start, so both count."
            )
        bad = [each.opened for each in self.resolution.candidates if each.stops and not each.beyond]
        for path in dict.fromkeys((*bad, *self.resolution.directories)) if not self._loaded()[0] else ():
            yield (
                f"{show(path)} is no library: where the loader comes to it, it ends with an error and looks no "
                "further, so that a process that needs the name does not start."
            )
        for blind in self.resolver.blindspots:
            yield blind.reason


def _home(entry: CachedLibrary) -> bytes:
    """The directory that an entry was found in, that for certain CPUs taken away."""
    directory = entry.path.rpartition(b"/")[0]
    return directory.removesuffix(b"/" + entry.variant) if entry.variant else directory


def _both(note: str | None, more: str) -> str:
    return f"{note}, and {more}" if note else more


def _there(candidates: Sequence[LookupCandidate | None]) -> tuple[LookupCandidate, ...]:
    return tuple(each for each in candidates if each is not None)
