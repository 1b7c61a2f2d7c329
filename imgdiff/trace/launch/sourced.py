"""What shell code sets and sources on the way from the entry to the program.

A script that sources files by computed names, as oneAPI's ``setvars.sh`` does, sources what lies below its own
directory under a name that it holds; a library path that it computes is that of the directories with libraries in the
component that the script belongs to. Both are guesses, so that what they give counts beside what is found without.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import msgspec

from imgdiff.model import HOLE, Edge, FactSource, Pattern, ShellFacts, Tree
from imgdiff.starting import DEFAULT_PATH
from imgdiff.trace.launch.computed import candidates, sentence
from imgdiff.trace.launch.places import BROAD, at_homes, own_place

_ENV_LISTS = frozenset({"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LD_PRELOAD"})
_LOADERS = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD"})  # lists whose unsure parts the search knows
_SHARED = re.compile(rb"[^/]+\.so(?:\.[\d.]+)?")
_MAX_GUESSES = 400  # scripts that one line could source, directories that one could mean


class Touched(msgspec.Struct, frozen=True):
    """A file that the way to the program runs or reads: ``sure`` if it runs in any case. ``path`` is canonical."""

    path: bytes
    edge: Edge
    sure: bool
    by: bytes | None = None
    line: int | None = None


class SetBy(msgspec.Struct, frozen=True):
    """A part of a path list, or a value, of an ENV name that shell code sets: in the script at ``path`` (None: in the
    command line itself), at a line of it. ``sure`` if it does in any case. A part that is a hole can be anything."""

    name: str
    part: str
    path: bytes | None
    line: int
    sure: bool


class Shell:
    """What a shell has come to know and set on the way. ``script`` is the canonical path of what it runs."""

    def __init__(self, tree: Tree, facts: FactSource, cwd: bytes) -> None:
        self._tree, self._facts, self._cwd = tree, facts, cwd
        self.env: dict[str, str] = {}
        self.touched: list[Touched] = []
        self.texts: list[str] = []
        self.set_by: list[SetBy] = []
        self.open: list[str] = []  # where only a run tells what is sourced

    def run(self, facts: ShellFacts, script: bytes | None, here: bytes) -> None:
        """Apply a script, or the code of a command line (None), that the file ``here`` runs."""
        self.texts += sorted(facts.strings)
        for (pattern, line), sure in zip(facts.sources, facts.sourced, strict=True):
            self._source(pattern, line, here, facts, sure=sure)
        self._source_computed(facts, script, here)
        self._assign(facts, script, sure=True)
        self.set_by = list(dict.fromkeys(self.set_by))

    def read_first(self, path: bytes, by: bytes) -> None:
        """Read a file that the shell sources by itself before its code: it may not."""
        self._read(path, 0, by, sure=False, guess=False)

    # Sources --------------------------------------------------------------------------------------------------------

    def _source(self, pattern: Pattern, line: int, script: bytes, by: ShellFacts, *, sure: bool) -> None:
        pattern = own_place(pattern, script)
        if HOLE in pattern:
            self.texts.append(pattern)
            for path in self._computed(pattern, script, by.strings):
                self._read(path, line, script, sure=False, guess=True)
            return
        at_home = at_homes(pattern, self.env, self._tree)
        for each in at_home:
            self._source_file(each, line, script, sure=sure and len(at_home) == 1)

    def _source_file(self, name: str, line: int, script: bytes, *, sure: bool) -> None:
        found = self._tree.resolve(name.encode("utf-8", "surrogateescape"), self._cwd)
        entry = None if found is None else self._tree.get(found)
        if found is not None and entry is not None and entry.type == "file":
            self._read(found, line, script, sure=sure, guess=False)

    def _read(self, path: bytes, line: int, script: bytes, *, sure: bool, guess: bool) -> None:
        if any(each.path == path for each in self.touched):
            return
        self.touched.append(Touched(path, "source", sure=not guess, by=script, line=line))
        inner = self._facts.shell(path)
        if isinstance(inner, ShellFacts):
            self.texts += sorted(inner.strings)
            for (deeper, number), too in zip(inner.sources, inner.sourced, strict=True):
                self._source(deeper, number, path, inner, sure=sure and too)
            self._source_computed(inner, path, path)
            self._assign(inner, path, sure=sure, guess=guess)

    def _source_computed(self, facts: ShellFacts, script: bytes | None, here: bytes) -> None:
        """Read what a computed name can be; where nothing bounds it, and no guess does, only a run tells."""
        for each in facts.computed:
            if each.kind != "source" or any(one.by == here and one.line == each.line for one in self.touched):
                continue
            files = candidates(each, self._tree, self._cwd, script, self.env)
            if files is None:
                self.open.append(sentence(each, script))
            for path in files or ():
                self._read(path, each.line, here, sure=False, guess=True)

    def _computed(self, pattern: Pattern, script: bytes, strings: Collection[str]) -> Iterator[bytes]:
        """Yield the files that a computed name can be: of the names that the pattern or the script holds, below the
        pattern's own directory, else the script's."""
        last = pattern.rpartition("/")[2]
        names = {text.rpartition("/")[2] for text in strings if text.endswith(".sh") and len(text) > len(".sh")}
        if HOLE not in last and last:
            names = {last}
        start = pattern.partition(HOLE)[0]
        base: bytes | None = script.rpartition(b"/")[0]
        if start.startswith("/") and start.count("/") > 1:
            base = self._tree.resolve(start.rpartition("/")[0].encode("utf-8", "surrogateescape"))
        if not base or base in BROAD:
            return
        encoded = {name.encode("utf-8", "surrogateescape") for name in names if HOLE not in name}
        count = 0
        for entry in self._tree.walk(base) if encoded else ():
            if entry.path.rpartition(b"/")[2] in encoded and entry.path != script:
                found = self._tree.resolve(entry.path)
                target = None if found is None else self._tree.get(found)
                if found is not None and target is not None and target.type == "file" and count < _MAX_GUESSES:
                    count += 1
                    yield found

    # Assignments ----------------------------------------------------------------------------------------------------

    def _assign(self, facts: ShellFacts, script: bytes | None, *, sure: bool, guess: bool = False) -> None:
        """Apply what a script sets. Lists keep what they had: whether it stays is known only at run time."""
        assigns = [(name, own_place(pattern, script)) for name, pattern in facts.assigns]
        for (name, pattern), (line, runs) in zip(assigns, facts.assigned, strict=True):
            if name not in _ENV_LISTS:
                if HOLE not in pattern and not (guess and name in self.env):
                    self.env[name] = pattern
                    self.set_by.append(SetBy(name, pattern, script, line, sure and runs))
                continue
            parts = self._parts(pattern)
            others = [
                self._parts(other)
                for (again, other), (at, _) in zip(assigns, facts.assigned, strict=True)
                if again == name and at == line
            ]
            always = {part for part in parts if sure and runs and all(part in other for other in others)}
            if name == "LD_LIBRARY_PATH" and _computed(pattern):
                found = [] if script is None else self._libraries(script)
                parts += found
                if not found:  # it can be any
                    self.set_by.append(SetBy(name, HOLE, script, line, sure=False))
            self._put(name, parts, always, script, line, guess=guess)

    def _put(
        self, name: str, parts: list[str], always: set[str], script: bytes | None, line: int, *, guess: bool
    ) -> None:
        """Put parts of a list before what it has; guesses behind it, where a search takes them for certain."""
        old = [part for part in self.env.get(name, DEFAULT_PATH if name == "PATH" else "").split(":") if part]
        behind = guess and name not in _LOADERS
        new = [*old, *parts] if behind else [*parts, *old]
        if new:
            self.env[name] = ":".join(dict.fromkeys(new))
        self.set_by += [SetBy(name, part, script, line, part in always) for part in parts if part not in old]

    def _parts(self, pattern: Pattern) -> list[str]:
        parts = [part for part in pattern.split(":") if part and HOLE not in part]
        return [place for part in parts for place in at_homes(part, self.env, self._tree)]

    def _libraries(self, script: bytes) -> list[str]:
        """Return the directories that a computed library path could mean: those that hold libraries in the component
        of the script."""
        directory = script.rpartition(b"/")[0]
        above, _, last = directory.rpartition(b"/")
        base = above if last in (b"env", b"etc", b"bin", b"scripts") else directory
        if not base or base in BROAD or directory in BROAD:
            return []
        found = dict.fromkeys(
            entry.path.rpartition(b"/")[0]
            for entry in self._tree.walk(base)
            if _SHARED.fullmatch(entry.path.rpartition(b"/")[2])
        )
        return ["/" + each.decode("utf-8", "surrogateescape") for each in [*found][:_MAX_GUESSES]]


def _computed(pattern: Pattern) -> bool:
    """Tell whether a path list has parts that are known at run time only. In "/a:$LD_LIBRARY_PATH" that is just what
    it had."""
    return (not pattern.strip(HOLE) and HOLE in pattern) or any(
        HOLE in part and part.strip(HOLE) for part in pattern.split(":")
    )
