"""What ``python -X importtime`` says on stderr: the names of modules that import statements loaded, and no files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imgdiff.model import RecordedProcess, RecordingFormat
from imgdiff.recordings._lines import Files, Lines

FORMAT: RecordingFormat = "importtime"
_LINE = re.compile(rb"import time:\s+(?:\d+ \|\s+\d+|cached\s*\|\s+cached) \| +(\S+)\s*")
_LIMIT = (
    "importtime names modules and no files, misses what importlib.import_module and runpy load, and does not tell "
    "processes apart"
)


def matches(lines: Sequence[bytes]) -> bool:
    """Tell whether these first lines hold such a log."""
    return any(_LINE.fullmatch(line) for line in lines)


def read(lines: Lines, name: str) -> list[RecordedProcess]:
    """Read the modules of one log. Other lines are the program's own."""
    files = Files()
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is not None:
            files.add(b"", "executed", name=found[1].decode("utf-8", "surrogateescape"))
    gaps = (_LIMIT, *lines.gaps(), *files.gaps())
    return [RecordedProcess(None, None, "unknown", name, files=files.all(), gaps=gaps)]
