"""A dump of ``/proc/PID/maps`` (proc(5)): what one process had mapped at one moment."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imgdiff.model import RecordedProcess, RecordingFormat
from imgdiff.recordings._lines import Files, Lines

FORMAT: RecordingFormat = "maps"
_LINE = re.compile(rb"[0-9a-f]{4,16}-[0-9a-f]{4,16} ([r-][w-])([x-])[sp] [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ \d+(?:\s+(.*))?")
_PID = re.compile(r"(?:^|[/._-])(\d+)(?:[./_-]?maps)?(?:\.txt|\.log)?$|maps[._-](\d+)")
_OCTAL = re.compile(rb"\\(\d{3})")
_GONE = b" (deleted)"


def matches(lines: Sequence[bytes]) -> bool:
    """Tell whether these first lines are of such a dump."""
    return sum(_LINE.fullmatch(line.rstrip()) is not None for line in lines) >= 2


def read(lines: Lines, name: str) -> list[RecordedProcess]:
    """Read the process of one dump. Its pid is the number in the file's name, if there is one."""
    files = Files()
    executable: str | None = None
    strange = 0
    for line in lines:
        found = _LINE.fullmatch(line.rstrip())
        if found is None:
            strange += bool(line.strip())
            continue
        path = (found[3] or b"").strip()
        if not path.startswith(b"/"):
            continue  # the heap, the stack, memory of its own
        path = _OCTAL.sub(lambda each: bytes([int(each[1], 8) & 0xFF]), path.removesuffix(_GONE))
        files.add(path, "mapped" if found[2] == b"x" else "opened")
        executable = executable or path.decode("utf-8", "surrogateescape")
    number = _PID.search(name)
    pid = None if number is None else int(number[1] or number[2])
    gaps = [*lines.gaps(), *files.gaps()]
    if strange:
        gaps.append(f"{strange:,} of its lines are none of a dump of maps")
    return [
        RecordedProcess(pid, None, "unknown", name, executable=executable, files=files.all(), gaps=tuple(gaps)),
    ]
