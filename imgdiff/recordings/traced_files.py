"""The list of files whose functions torch.compile traced: what vLLM logs of them, or one path a line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imgdiff.model import RecordedProcess, RecordingFormat
from imgdiff.recordings._lines import Files, Lines

FORMAT: RecordingFormat = "traced-files"
_TITLE = re.compile(rb"(?:.*\b)?Traced files \(to be considered for compilation cache\):\s*(.*)")
_WHO = re.compile(rb"\(([^()\s]+) pid=(\d+)\)\s*")
_PATH = re.compile(rb"(?:\([^()]*\)\s*)?(/.*\.py)\s*")
_LIMIT = "a list of traced files has what torch.compile looked into, and nothing else of the process"


def matches(lines: Sequence[bytes]) -> bool:
    """Tell whether these first lines hold such a list."""
    if any(_TITLE.fullmatch(line) for line in lines):
        return True
    said = [line for line in lines if line.strip()]
    return bool(said) and all(_PATH.fullmatch(line) for line in said)


def read(lines: Lines, name: str) -> list[RecordedProcess]:
    """Read the lists of one log, for each process that it names."""
    found: dict[tuple[bytes, int] | None, Files] = {}
    listing: bool | None = None  # None: no title yet, and a plain list has none
    for line in lines:
        title, path = _TITLE.fullmatch(line), _PATH.fullmatch(line)
        if title is not None:
            listing = True
            path = _PATH.fullmatch(title[1])
        elif path is None and line.strip():
            listing = None if listing is None else False
        if path is not None and listing is not False:
            who = _WHO.match(line)
            key = None if who is None else (who[1], int(who[2]))
            found.setdefault(key, Files()).add(path[1], "executed")
    gaps = (_LIMIT, *lines.gaps())
    return [
        RecordedProcess(
            pid=None if key is None else key[1],
            parent=None,
            start="unknown",
            source=name,
            titles=() if key is None else (key[0].decode("utf-8", "replace"),),
            files=files.all(),
            gaps=(*gaps, *files.gaps()),
        )
        for key, files in found.items()
    ]
