"""What the dynamic loader says with ``LD_DEBUG=files`` (ld.so(8)): each line begins with the process's pid.

A forked process goes on in its parent's file, under a pid of its own; a program that is executed starts anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from imgdiff.model import RecordedProcess, RecordingFormat
from imgdiff.recordings._lines import Files, Lines, Room

FORMAT: RecordingFormat = "ld-debug"
_LINE = re.compile(rb"\s*(\d+):\t(.*)", re.DOTALL)
_INIT = re.compile(rb"calling init: (.+)")
_MAP = re.compile(rb"file=(/.+) \[\d+\];\s+generating link map")
_PROGRAM = re.compile(rb"(?:initialize program|transferring control): (.+)")
_TRIED = re.compile(rb"  trying file=(.+)")
_SIGNS = re.compile(rb"\s*\d+:\t(?:calling init: |file=.* \[\d+\];|initialize program: |find library=|\s*trying file=)")


def matches(lines: Sequence[bytes]) -> bool:
    """Tell whether these first lines hold what the loader says."""
    return any(_SIGNS.match(line) for line in lines)


def read(lines: Lines, name: str) -> list[RecordedProcess]:
    """Read every process of one file. Lines of other programs in between are no trouble: it may be a log of stderr."""
    files: dict[int, Files] = {}
    programs: dict[int, str] = {}
    begun: dict[int, bool] = {}
    room = Room()
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        pid, text = int(found[1]), found[2]
        if pid not in files:
            files[pid] = Files(room)
        mapped = _INIT.fullmatch(text) or _MAP.match(text)
        if mapped is not None:
            files[pid].add(mapped[1], "mapped")
            continue
        tried = _TRIED.fullmatch(text)
        if tried is not None:
            files[pid].add(tried[1], "sought")
            continue
        program = _PROGRAM.fullmatch(text)
        if program is not None and pid not in programs:
            programs[pid] = program[1].decode("utf-8", "surrogateescape")
            begun[pid] = True
    gaps = lines.gaps()
    first = next(iter(files), None)
    return [
        RecordedProcess(
            pid=pid,
            parent=None if begun.get(pid) or pid == first else first,
            start="unknown",
            source=name,
            executable=programs.get(pid),
            coverage=frozenset({"libraries"}),
            files=own.all(),
            gaps=(*gaps, *own.gaps()),
        )
        for pid, own in files.items()
    ]
