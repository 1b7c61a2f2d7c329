"""What the dynamic loader says with ``LD_DEBUG=files`` (ld.so(8)): each line begins with the process's pid.

A forked process goes on in its parent's file, under a pid of its own. A program that is executed in the place of
another one keeps pid and file; whether it says anything depends on its own environment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from imgdiff.interpreters import is_python
from imgdiff.model import RecordedProcess, RecordingFormat
from imgdiff.recordings._lines import Files, Lines, Room
from imgdiff.recordings._pythons import of_python

FORMAT: RecordingFormat = "ld-debug"
_LINE = re.compile(rb"\s*(\d+):\t(.*)", re.DOTALL)
_INIT = re.compile(rb"calling init: (.+)")
_MAP = re.compile(rb"file=(.+) \[\d+\];\s+generating link map")
_PROGRAM = re.compile(rb"initialize program: (.+)")
_CONTROL = re.compile(rb"transferring control: (.+)")
_TRIED = re.compile(rb"  trying file=(.+)")
_SIGNS = re.compile(rb"\s*\d+:\t(?:calling init: |file=.* \[\d+\];|initialize program: |find library=|\s*trying file=)")
_KERNEL = (b"/proc/", b"/dev/fd/", b"/memfd:")
_VIRTUAL = (b"linux-vdso.so.1", b"linux-gate.so.1", b"linux-vdso64.so.1", b"linux-vdso32.so.1")  # vdso(7)


def matches(lines: Sequence[bytes]) -> bool:
    """Tell whether these first lines hold what the loader says."""
    return any(_SIGNS.match(line) for line in lines)


def read(lines: Lines, name: str) -> list[RecordedProcess]:
    """Read every process of one file. Lines of other programs in between are no trouble in a log of stderr; in a file
    of the loader's own (``NAME.PID``, LD_DEBUG_OUTPUT) they are damage."""
    told: dict[int, _Told] = {}
    room = Room()
    strange = 0
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            strange += bool(line.strip())
            continue
        pid = int(found[1])
        if pid not in told:
            told[pid] = _Told(Files(room))
        told[pid].line(found[2])
    gaps = list(lines.gaps())
    first = next(iter(told), None)
    if strange and first is not None and name.endswith(f".{first}"):
        gaps.append(f"{strange:,} of its lines are none of the loader's")
    for own in told.values():
        own.end()
    return [
        RecordedProcess(
            pid=pid,
            parent=None if own.programs or pid == first else first,
            start="unknown",
            source=name,
            executable=own.executable(),
            coverage=frozenset({"libraries"}),
            files=own.files.all(),
            gaps=(*gaps, *own.files.gaps(), *own.gaps),
            programs=tuple(own.programs),
        )
        for pid, own in told.items()
    ]


class _Told:
    """What the loader says of one pid."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.programs: list[str] = []
        self.gaps: dict[str, None] = {}
        self._control: list[str] = []
        self._named: dict[bytes, None] = {}
        self._placed: set[bytes] = set()

    def line(self, text: bytes) -> None:
        init, made, tried = _INIT.fullmatch(text), _MAP.match(text), _TRIED.fullmatch(text)
        if init is not None or made is not None:
            self._mapped((init or made)[1])  # type: ignore[index]  # one of them is there
        elif tried is not None:
            self.files.add(tried[1], "sought")
        elif (program := _PROGRAM.fullmatch(text)) is not None:
            self.programs.append(program[1].decode("utf-8", "surrogateescape"))
        elif (program := _CONTROL.fullmatch(text)) is not None:
            self._control.append(program[1].decode("utf-8", "surrogateescape"))

    def _mapped(self, path: bytes) -> None:
        if path.startswith(_KERNEL):
            where = path.decode("utf-8", "backslashreplace")
            self.gaps[f"it loaded code from {where}, and which file that was is not told"] = None
        elif path.startswith(b"/"):
            self.files.add(path, "mapped")
            self._placed.add(path.rpartition(b"/")[2])
        elif path not in _VIRTUAL:
            # A SONAME: "calling init" tells the path later, if it comes to that. Or a path that is relative to a
            # directory which nobody tells.
            self._named[path.rpartition(b"/")[2]] = None
            if b"/" in path:
                self._placed.discard(path.rpartition(b"/")[2])

    def end(self) -> None:
        """Draw the conclusions, when all is read."""
        for name in self._named:
            if name not in self._placed:
                self.files.add(name, "named")
        if not self.programs:
            self.programs = self._control  # some loaders say this alone

    def executable(self) -> str | None:
        """Return the first program that is a Python, by its name or by what it maps; else the first one."""
        found = next((each for each in self.programs if is_python(each)), None)
        if found is None and any(of_python(each.path) for each in self.files.all() if each.how == "mapped"):
            return "python"
        return found or next(iter(self.programs), None)
