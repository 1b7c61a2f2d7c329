"""Lines of a log of any size, in whatever encoding, and the files that they speak of: bounded memory, nothing dropped
in silence."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Protocol

from imgdiff.model import RecordedFile, RecordedHow

LONGEST = 1 << 20
"""Bytes of a line that are read at most."""
MOST_FILES = 1_000_000
"""Files of all processes of one log that are kept at most."""
_CHUNK = 1 << 18
_MARKS = (
    (codecs.BOM_UTF8, None),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Stream(Protocol):
    """Bytes to read."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; none at the end."""


class Lines:
    """The lines of a stream, as bytes in UTF-8 without their ends; a log in UTF-16 or UTF-32 that says so by its mark
    is converted.

    ``cut`` is set at the end where the last line has no end, ``overlong`` counts lines that were too long, of which
    nothing is given, ``garbled`` is set where the text is not what its mark says.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._decoder: codecs.IncrementalDecoder | None = None
        self.cut = False
        self.overlong = 0
        self.garbled = False
        self._lines = self._read()
        self._back: list[bytes] = []

    def peek(self, count: int) -> list[bytes]:
        """Return the first lines, which come again when the lines are gone through."""
        while len(self._back) < count and (line := next(self._lines, None)) is not None:
            self._back.append(line)
        return self._back[:count]

    def __iter__(self) -> Iterator[bytes]:
        while self._back:
            yield self._back.pop(0)
        yield from self._lines

    def _first(self, chunk: bytes) -> bytes:
        for mark, encoding in _MARKS:
            if chunk.startswith(mark):
                if encoding is not None:
                    self._decoder = codecs.getincrementaldecoder(encoding)("replace")
                return chunk[len(mark) :]
        return chunk

    def _chunks(self) -> Iterator[bytes]:
        first = True
        while chunk := self._stream.read(_CHUNK):
            if first:
                while len(chunk) < 4 and (more := self._stream.read(_CHUNK)):
                    chunk += more
                chunk, first = self._first(chunk), False
            yield chunk if self._decoder is None else self._decoded(chunk)
        if self._decoder is not None:
            yield self._decoded(b"", final=True)

    def _decoded(self, chunk: bytes, *, final: bool = False) -> bytes:
        assert self._decoder is not None
        text = self._decoder.decode(chunk, final)
        self.garbled = self.garbled or "\ufffd" in text
        return text.encode("utf-8", "surrogatepass")

    def _read(self) -> Iterator[bytes]:
        rest = b""
        skipping = False
        for chunk in self._chunks():
            *whole, last = chunk.split(b"\n")
            for line in whole:
                complete, rest = rest + line, b""
                if skipping or len(complete) > LONGEST:
                    self.overlong += 1
                    skipping = False
                else:
                    yield complete.removesuffix(b"\r")
            rest += last
            if len(rest) > LONGEST:
                rest, skipping = b"", True
        if rest or skipping:
            self.cut = True
            self.overlong += skipping
            if rest:
                yield rest.removesuffix(b"\r")

    def gaps(self) -> tuple[str, ...]:
        """Return sentences on what could not be read, once all lines are gone through."""
        found = []
        if self.cut:
            found.append("its last line is cut, and what it said is not known")
        if self.overlong:
            lines = "1 line is" if self.overlong == 1 else f"{self.overlong:,} lines are"
            found.append(
                f"{lines} longer than {LONGEST:,} bytes and {'was' if self.overlong == 1 else 'were'} not read"
            )
        if self.garbled:
            found.append("some of its text is not in the encoding that it begins with")
        return tuple(found)


class Room:
    """How many files one log may still have."""

    def __init__(self) -> None:
        self.left = MOST_FILES


class Files:
    """The files of one process, each once for each way in which it was used. ``room`` is what several have together."""

    def __init__(self, room: Room | None = None) -> None:
        self._files: dict[tuple[bytes, RecordedHow, str | None, bytes | None], RecordedFile] = {}
        self._room = Room() if room is None else room
        self.full = False

    def add(
        self,
        path: bytes,
        how: RecordedHow,
        digest: bytes | None = None,
        name: str | None = None,
        cwd: bytes | None = None,
    ) -> None:
        """Note a file."""
        key = (path, how, name, cwd)
        known = self._files.get(key)
        if known is None and self._room.left <= 0:
            self.full = True
        elif known is None or (known.digest is None and digest is not None):
            self._files[key] = RecordedFile(path, how, digest, name, cwd)
            self._room.left -= known is None

    def all(self) -> tuple[RecordedFile, ...]:
        """Return the files in the order in which they came."""
        return tuple(self._files.values())

    def gaps(self) -> tuple[str, ...]:
        """Return a sentence where there were too many to keep."""
        return (f"its log has more than {MOST_FILES:,} files, and the rest was not kept",) if self.full else ()


def path_bytes(text: str) -> bytes:
    """Return a path's bytes; text that stands for no bytes keeps what it can be told apart by."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
