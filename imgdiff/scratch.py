"""Files without a name that hold for a moment what is read again: in the directory that TMPDIR names."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from imgdiff.errors import CacheError


def scratch_file() -> BinaryIO:
    """Return a new file, open for writing and reading, that is gone when it is closed.

    Making it and writing to it raise CacheError where the directory is full or can't be used.
    """
    with _said(), tempfile.TemporaryFile(prefix="imgdiff-", buffering=0) as file:
        return cast("BinaryIO", _Scratch(os.dup(file.fileno()), "r+b"))


class _Scratch(io.FileIO):
    """Without a buffer: what is written is written, and nothing is left for ``close`` to fail at."""

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        with _said():
            while view:
                view = view[super().write(view) or 0 :]
        return size


@contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"The directory for temporary files, {tempfile.gettempdir()}, can't be used: {error.strerror or error}.",
            "Free some space there, or name another one in TMPDIR.",
        ) from error
