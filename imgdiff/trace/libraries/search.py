"""Which file a library's name resolves to, as the dynamic loader looks for it (ld.so(8), glibc's dl-load.c; musl's
dynlink.c).

Where more than one file can be what is loaded, all are candidates: libraries for certain CPUs beside the plain one, and
what the stored ``ld.so.cache`` and one made anew by ldconfig give.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

import msgspec

from imgdiff.model import HOLE, ElfFacts, FactSource, Tree
from imgdiff.trace.libraries.caches import Caches
from imgdiff.trace.libraries.found import Candidate, Mapped, Resolution, Step, Walk, unique
from imgdiff.trace.libraries.ld_cache import Cache, join

_X86_64 = (62, 64)
_PLATFORMS: dict[int, tuple[str, ...]] = {
    62: ("x86_64", "haswell", "xeon_phi"),
    3: ("i686", "i586", "i486", "i386"),
    183: ("aarch64",),
    40: ("v7l", "v8l"),
    21: ("power8", "power9", "power10"),
    22: ("z13", "z14", "z15", "z16"),
}
_MULTIARCH: dict[tuple[int, int], bytes] = {
    _X86_64: b"x86_64-linux-gnu",
    (3, 32): b"i386-linux-gnu",
    (183, 64): b"aarch64-linux-gnu",
    (40, 32): b"arm-linux-gnueabihf",
    (21, 64): b"powerpc64le-linux-gnu",
    (22, 64): b"s390x-linux-gnu",
    (243, 64): b"riscv64-linux-gnu",
    (258, 64): b"loongarch64-linux-gnu",
}
_SEPARATORS = re.compile(r"[:;]")  # of LD_LIBRARY_PATH, for glibc
_MUSL_SEPARATORS = re.compile(r"[:\n]+")
_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")  # dl-load.c, is_dst
_MUSL_TOKEN = re.compile(r"\$(?:\{(ORIGIN)\}|(ORIGIN))")  # dynlink.c, fixup_rpath
_SECURE = "if the program gains no rights when it starts: its file can give it some, and then this is left out"
_MUSL_PATH = (b"lib", b"usr/local/lib", b"usr/lib")
_MUSL_OWN = ("c", "pthread", "rt", "m", "dl", "util", "xnet")


class LibrarySearch:
    """Looks for names in one image, for processes of one machine and one loader; see LibraryResolver."""

    def __init__(
        self,
        tree: Tree,
        facts: FactSource,
        environment: Mapping[str, str] | None = None,
        program: bytes | None = None,
        directory: bytes = b"",
        caches: Caches | None = None,
        unsure: Collection[str] = (),
    ) -> None:
        self._unsure = frozenset(unsure)  # parts of LD_LIBRARY_PATH and LD_PRELOAD that may not be there
        self._tree, self._facts = tree, facts
        self._environment = environment or {}
        self._directory = directory.strip(b"/")
        self._program = self.mapped(program) if program is not None else None
        if self._program is not None:
            self._program.started = True
        self._secure = self._program is not None and _gains(tree, self._program.path)
        self._caches = caches or Caches(tree, facts)
        self._machine: tuple[int, int] | None = None
        self._musl = _musl_loader(tree) is not None and not _has_glibc(tree)
        self._trusted: tuple[bytes, ...] = ()
        self._lib: tuple[bytes, ...] = ()
        self._known: dict[tuple[bytes, tuple[tuple[bytes, bool], ...], bool], Resolution] = {}
        if self._program is not None:
            self.settle(self._program.facts)

    def settle(self, facts: ElfFacts) -> None:
        """Take machine and loader from the first file that is mapped."""
        if self._machine is None:
            self._machine = facts.machine, facts.bits
            if facts.interpreter is not None:
                self._musl = "ld-musl" in facts.interpreter

    def mapped(self, path: bytes) -> Mapped | None:
        """Return the ELF file at a path as one that is mapped, None if it is none."""
        canonical = self._tree.resolve(path)
        facts = self._facts.elf(canonical) if canonical is not None else None
        if canonical is None or not isinstance(facts, ElfFacts):
            return None
        return Mapped(canonical, path.strip(b"/"), facts)

    def search(self, name: str, asking: Mapped | None) -> Resolution:
        """Return what a name resolves to if nothing is loaded yet but the chain of ``asking``."""
        if asking is not None:
            self.settle(asking.facts)
        if "/" in name:
            walk = Walk()
            paths = [path for path, _ in self._expand(name, asking)] if not self._musl else [self._absolute(name)]
            for path in paths:
                self._try(path, "path", walk, ends=len(paths) == 1)
            return Resolution(name, unique(walk.found), directories=tuple(walk.directories))
        order = list(self.order(asking))
        nodeflib = asking is not None and asking.facts.nodeflib
        key = name.encode("utf-8", "surrogateescape"), tuple([(step.directory, step.sure) for step in order]), nodeflib
        if key not in self._known:
            find = self._search_musl if self._musl else self._search_glibc
            self._known[key] = find(name, order, nodeflib)
        return self._known[key]

    @property
    def is_musl(self) -> bool:
        """Whether musl's loader searches, not glibc's."""
        return self._musl

    @property
    def machine(self) -> tuple[int, int] | None:
        """The machine (e_machine) and class (32 or 64) that files must have, None before any is mapped."""
        return self._machine

    @property
    def program(self) -> Mapped | None:
        """The main program, if it is an ELF file of the image."""
        return self._program

    @property
    def caches(self) -> Caches:
        """The loader's caches."""
        return self._caches

    @property
    def anywhere(self) -> bool:
        """Whether a script computes a library path, which can be any directory."""
        return HOLE in self._unsure

    def elsewhere(self, name: str) -> tuple[Candidate, ...]:
        """Return the files of this name and of the process's machine wherever they lie: for one that the known search
        does not find, and that something must find if it is needed."""
        walk = Walk()
        for path in self._caches.files(name.encode("utf-8", "surrogateescape")):
            self._try(path, "a directory that no known search has", walk, ends=False)
        return tuple(msgspec.structs.replace(each, certain=False) for each in unique(walk.found))

    def expanded(self, part: str) -> list[bytes]:
        """Return the directories that a part of LD_LIBRARY_PATH stands for."""
        return [directory for directory, _ in self._expand_environment(part)]

    @property
    def is_secure(self) -> bool:
        """Whether the program can gain rights by being started, so that the loader may leave out what ENV says."""
        return self._secure

    def order(self, asking: Mapped | None) -> Iterator[Step]:
        """Yield the directories that are looked into for a name without a slash, in order: for glibc those before the
        caches, for musl all."""
        return self._musl_order(asking) if self._musl else self._before_cache(asking)

    # --- glibc ------------------------------------------------------------------------------------------------------

    def _search_glibc(self, name: str, order: list[Step], nodeflib: bool) -> Resolution:
        encoded = name.encode("utf-8", "surrogateescape")
        searched: list[bytes] = []
        walk = Walk()
        for step in order:
            searched.append(step.directory)
            if self._look(step.directory, encoded, step.how, walk, ends=step.sure) and step.sure:
                return Resolution(name, unique(walk.found), tuple(searched), directories=tuple(walk.directories))
        behind = [] if nodeflib else list(self.trusted_directories())
        answers = []
        for cache, how in self._caches.worlds(self.trusted_directories()):
            answer = Walk(walk)
            if not self._cached(cache, encoded, how, nodeflib, answer):
                for directory in behind:
                    if self._look(directory, encoded, f"default path /{text(directory)}", answer, last=True):
                        break
            answers.append(answer)
        candidates = unique([*walk.found, *(candidate for answer in answers for candidate in answer.found)])
        directories = (*walk.directories, *(each for answer in answers for each in answer.directories))
        resolution = Resolution(name, candidates, (*searched, *behind), directories=tuple(dict.fromkeys(directories)))
        if self._caches.stored is not None:
            stored, rebuilt = ([candidate.path for candidate in answer.found] for answer in answers)
            if stored != rebuilt:
                ends = [paths[-1] if paths else None for paths in (stored, rebuilt)]
                return msgspec.structs.replace(resolution, differs=True, stored=ends[0], rebuilt=ends[1])
        return resolution

    def _before_cache(self, asking: Mapped | None) -> Iterator[Step]:
        """Yield the directories that come before the cache: RPATH of the chain, LD_LIBRARY_PATH, RUNPATH."""
        if asking is None or not asking.facts.runpath:
            yield from self._rpaths(asking)
        yield from self._library_path()
        if asking is not None and asking.facts.runpath:
            yield from self._steps("RUNPATH", asking.facts.runpath, asking)

    def _rpaths(self, asking: Mapped | None) -> Iterator[Step]:
        """Yield the RPATH directories of a file and of those that loaded it, the program's last; one with a RUNPATH
        has none."""
        seen: set[bytes] = set()
        for chain in (asking, self._program):
            here = chain
            while here is not None and here.path not in seen:
                seen.add(here.path)
                if here.facts.rpath and not here.facts.runpath:
                    yield from self._steps("RPATH", here.facts.rpath, here)
                here = here.loader

    def _steps(self, source: str, value: str, here: Mapped) -> Iterator[Step]:
        """Yield the directories of an RPATH or a RUNPATH."""
        for part in value.split(":") if not self._musl else _MUSL_SEPARATORS.split(value):
            if not part and self._musl:
                continue
            for directory, doubt in self._expand(part, here):
                if self._secure and "$" in part:
                    doubt = _SECURE
                yield Step(directory, f"{source} /{text(directory)}", here.path, doubt is None, doubt)

    def _library_path(self) -> Iterator[Step]:
        value = self._environment.get("LD_LIBRARY_PATH", "")
        if not value:
            return
        for part in self.parts(value):
            for directory, doubt in self._expand_environment(part):
                if self._secure:
                    doubt = _SECURE
                sure = part not in self._unsure and doubt is None
                yield Step(directory, f"LD_LIBRARY_PATH /{text(directory)}", None, sure, doubt)

    def parts(self, value: str) -> list[str]:
        """Return the parts of LD_LIBRARY_PATH. An empty one is the working directory for glibc, and none for musl."""
        if self._musl:
            return [part for part in _MUSL_SEPARATORS.split(value) if part]
        return _SEPARATORS.split(value)

    def _look(
        self, directory: bytes, name: bytes, how: str, walk: Walk, *, ends: bool = True, last: bool = False
    ) -> bool:
        """Add what one directory holds of a name, for certain CPUs too; True where a plain one ends the search. What
        ldconfig would make there is found before its cache, never behind (``last``)."""
        canonical = self._tree.resolve(directory)
        if canonical is None:
            return False
        for relative, place in self._caches.variants(canonical):
            self._try(join(place, name), f"{how}, for certain CPUs in {text(relative)}", walk, ends=False)
        if self._try(join(directory, name), how, walk, ends=ends):
            return True
        made = None if self._musl or last else self.made(canonical, name)
        if made is not None:
            self._try(join(directory, name), f"{how}, as a link that ldconfig makes", walk, made, ends=False)
        return False

    def made(self, canonical: bytes, name: bytes) -> bytes | None:
        """Return the file that ldconfig would link a name of this directory to, where there is none of that name."""
        for entry in self._caches.rebuilt(self.trusted_directories()).entries(name):
            if entry.target is not None and not entry.variant:
                home = entry.target.rpartition(b"/")[0]
                if home == canonical and self._tree.lookup(join(canonical, name)) is None:
                    return entry.target
        return None

    def _cached(self, cache: Cache, name: bytes, how: str, nodeflib: bool, walk: Walk) -> bool:
        plain, gone = False, False
        for entry in cache.lookup(name, *(self._machine or _X86_64)):
            if nodeflib and entry.path.rpartition(b"/")[0] in self.trusted_directories():
                continue
            told = f"{how}, for certain CPUs ({text(entry.variant)})" if entry.variant else how
            hit = self._try(entry.path, told, walk, entry.target, ends=not entry.variant)
            plain = plain or (hit and not entry.variant)
            gone = gone or (not hit and bool(entry.variant))  # where that one is for the CPU, the cache gives no other
        return plain and not gone

    def _try(self, path: bytes, how: str, walk: Walk, target: bytes | None = None, *, ends: bool = True) -> bool:
        """Add a file as a candidate; False where the loader goes on: it is not there, or for another machine.

        ``target`` is the file that is opened under this path, where that is not what the tree has. ``ends``: the loader
        comes here in any case, unless a file before this one ended its search.
        """
        canonical = self._tree.resolve(target if target is not None else path)
        entry = self._tree.get(canonical) if canonical is not None else None
        if canonical is not None and entry is not None and entry.type == "dir":
            walk.directories += [] if walk.stopped else [path]
            walk.stopped = walk.stopped or ends
            return False
        if canonical is None or entry is None or entry.type != "file":
            return False
        facts = self._facts.elf(canonical)
        if isinstance(facts, ElfFacts):
            if not self._musl and self._machine is not None and (facts.machine, facts.bits) != self._machine:
                return False  # musl looks at no machine: it maps what it finds (dynlink.c, map_library)
            if not entry.mode & 0o004:  # for whom may not read it, both loaders go on (open_path)
                walk.add(Candidate(canonical, path, f"{how} (unreadable for some users)"))
                return False
            walk.add(Candidate(canonical, path, how))
            return True
        # The loader ends with an error at a file that is no ELF file. Who asks can have an answer to that, so the trace
        # takes what lies behind it, too.
        reason = "it is no ELF file" if facts is None else "unreadable"
        walk.add(Candidate(canonical, path, f"{how} ({reason})", stops=facts is None))
        walk.stopped = walk.stopped or (facts is None and ends and bool(entry.mode & 0o004))
        return False

    def trusted_directories(self) -> tuple[bytes, ...]:
        """Return the loader's own directories, in order: those of Debian, Fedora and the rest that its strings name."""
        if self._trusted:
            return self._trusted
        multiarch = _MULTIARCH.get(self._machine or _X86_64, b"")
        known = [b"lib/" + multiarch, b"usr/lib/" + multiarch] if multiarch else []
        known += [b"lib64", b"usr/lib64", b"lib", b"usr/lib"]
        interpreter = self._interpreter()
        loader = self._tree.resolve(interpreter) if interpreter is not None else None
        facts = self._facts.elf(loader) if loader is not None else None
        named: list[bytes] = []
        if isinstance(facts, ElfFacts):
            texts = {text for text in facts.strings if text.startswith("/") and text.endswith("/")}
            named = [path for path in known if f"/{path.decode()}/" in texts]
            if not named:  # a prefix of its own (Nix, Guix, a toolchain)
                named = [text.strip("/").encode() for text in sorted(texts) if text.endswith(("/lib/", "/lib64/"))]
        self._trusted = tuple(named or known)
        return self._trusted

    def _interpreter(self) -> bytes | None:
        told = self._program.facts.interpreter if self._program is not None else None
        return told.encode("utf-8", "surrogateescape").strip(b"/") if told else None

    # --- names with tokens ------------------------------------------------------------------------------------------

    def _expand_environment(self, part: str) -> Iterator[tuple[bytes, str | None]]:
        if self._musl:
            yield self._absolute(part), None  # which knows tokens in files alone
        else:
            yield from self._expand(part, self._program)

    def _expand(self, value: str, asking: Mapped | None) -> Iterator[tuple[bytes, str | None]]:
        """Yield the paths that a name or directory with ``$ORIGIN``, ``$LIB`` and ``$PLATFORM`` can stand for, each
        with words on what it depends on, if there is more than one."""
        values = [value]
        unknown: list[str] = []
        pattern = _MUSL_TOKEN if self._musl else _TOKEN
        for token in dict.fromkeys(match[1] or match[2] for match in pattern.finditer(value)):
            meanings = self._meanings(token, asking)
            unknown += [f"${token}"] if len(meanings) > 1 else []
            values = [_replaced(pattern, each, token, meaning) for each in values for meaning in meanings]
        doubt = f"if that is what {' and '.join(unknown)} stands for" if unknown else None
        for each in values:
            yield self._absolute(each), doubt

    def _absolute(self, path: str) -> bytes:
        encoded = path.encode("utf-8", "surrogateescape")
        return encoded.strip(b"/") if encoded.startswith(b"/") else join(self._directory, encoded)

    def _meanings(self, word: str, asking: Mapped | None) -> tuple[str, ...]:
        if word == "ORIGIN":
            return ("/" + text(asking.origin) if asking is not None else "/",)
        if word == "LIB":
            return tuple(map(text, self._lib_names()))
        return _PLATFORMS.get((self._machine or _X86_64)[0], ("",))

    def _lib_names(self) -> tuple[bytes, ...]:
        """Return what ``$LIB`` stands for: fixed when glibc was built, told from where the C library lies."""
        if not self._lib:
            multiarch = _MULTIARCH.get(self._machine or _X86_64, b"")
            choices = (b"lib/" + multiarch, b"lib64", b"lib")
            found = [choice for choice in choices if self._tree.resolve(b"usr/" + choice + b"/libc.so.6") is not None]
            found += [choice for choice in choices if self._tree.resolve(choice + b"/libc.so.6") is not None]
            self._lib = tuple(found[:1] or choices)
        return self._lib

    # --- musl -------------------------------------------------------------------------------------------------------

    def _search_musl(self, name: str, order: list[Step], _: bool) -> Resolution:
        walk = Walk()
        if _is_musl_own(name):
            place = self._interpreter() or _musl_loader(self._tree)
            if place is not None:
                self._try(place, "musl's own", walk)
            return Resolution(name, tuple(walk.found))
        searched: list[bytes] = []
        for step in order:
            searched.append(step.directory)
            path = join(step.directory, name.encode("utf-8", "surrogateescape"))
            if self._try(path, step.how, walk, ends=step.sure) and step.sure:
                break
        return Resolution(name, unique(walk.found), tuple(searched), directories=tuple(walk.directories))

    def _musl_order(self, asking: Mapped | None) -> Iterator[Step]:
        yield from self._library_path()
        seen = set[bytes]()
        for chain in (asking, self._program):  # the program has loaded them all
            here = chain
            while here is not None and here.path not in seen:
                seen.add(here.path)
                value = here.facts.runpath or here.facts.rpath  # musl takes both for the same
                if value and "$" not in _MUSL_TOKEN.sub("", value):  # else the list is given up
                    yield from self._steps("RPATH", value, here)
                here = here.loader
        directories, by = self._musl_system()
        for directory in directories:
            yield Step(directory, f"musl's path /{text(directory)}", by)

    def _musl_directories(self) -> tuple[bytes, ...]:
        return self._musl_system()[0]

    def _musl_system(self) -> tuple[tuple[bytes, ...], bytes | None]:
        """Return musl's system path, and who says so: ``/etc/ld-musl-ARCH.path``, else None, for the built-in one."""
        loader = self._interpreter() or _musl_loader(self._tree)
        if loader is None:
            return _MUSL_PATH, None
        name = loader.rpartition(b"/")[2].removesuffix(b".so.1")
        prefix = loader.rpartition(b"/")[0].rpartition(b"/")[0]
        place = join(join(prefix, b"etc"), name + b".path")
        content = self._facts.text(place)
        if content is None:
            return _MUSL_PATH, None
        found = (part.strip(b"/") for part in content.replace(b"\n", b":").split(b":") if part.startswith(b"/"))
        return tuple(found), place


def text(path: bytes) -> str:
    """Return a path as text, with surrogates for what is no UTF-8."""
    return path.decode("utf-8", "surrogateescape")


def _replaced(pattern: re.Pattern[str], value: str, token: str, meaning: str) -> str:
    return pattern.sub(lambda match: meaning if token in (match[1], match[2]) else match[0], value)


def _gains(tree: Tree, program: bytes) -> bool:
    """Tell whether a program can gain rights when it starts (AT_SECURE): by its mode or by file capabilities."""
    entry = tree.get(program)
    return entry is not None and (bool(entry.mode & 0o6000) or b"security.capability" in dict(entry.xattrs))


def _musl_loader(tree: Tree) -> bytes | None:
    for directory in (b"lib", b"usr/lib"):
        for name in tree.children(directory):
            if name.startswith(b"ld-musl-") and name.endswith(b".so.1"):
                return join(directory, name)
    return None


def _has_glibc(tree: Tree) -> bool:
    places = [b"lib", b"lib64", b"usr/lib", b"usr/lib64", *(b"lib/" + name for name in _MULTIARCH.values())]
    return any(tree.resolve(join(place, b"libc.so.6")) is not None for place in places)


def _is_musl_own(name: str) -> bool:
    """Tell whether musl answers for a name by itself: libc, libm, libpthread and so on (dynlink.c, load_library)."""
    if name.startswith(("libc.musl-", "ld-musl-")):
        return True
    return name.startswith("lib") and "." in name and name[3:].partition(".")[0] in _MUSL_OWN
