"""Packs: the texts that the indexing pass kept of one layer, by content digest.

A pack is a magic line, each text (as raw DEFLATE where that is shorter), a table sorted by digest, and a trailer with
the place of the table, the CRC-32 of all in front of it, and that of the table alone. Two texts of one digest are
there once. A table row is 48 bytes: the SHA-256, then offset (8), stored size (4) and size (4), big endian.
"""

from __future__ import annotations

import bisect
import hashlib
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, Final

from imgdiff.compression import Deflater, StreamError, crc32, deflate, inflate
from imgdiff.errors import CacheError

_MAGIC: Final = b"imgdiff pack 1\n"
_ROW: Final = struct.Struct(">32sQII")
_TRAILER: Final = struct.Struct(">QQII16s")
_END: Final = b"end of the pack\n"
_MAX_TEXT: Final = (1 << 32) - 1


class PackWriter:
    """Writes one pack into an open file. For one thread."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rows: dict[bytes, tuple[int, int, int]] = {}
        self._crc = 0
        self._at = 0
        self._write(_MAGIC)

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._crc = crc32(data, self._crc)
        self._at += len(data)

    def add(self, digest: bytes, content: bytes | memoryview) -> None:
        """Keep one text under its SHA-256; a second one of the same digest is none."""
        if digest in self._rows or len(content) > _MAX_TEXT:
            return
        packed: bytes | memoryview = deflate(content)
        if len(packed) >= len(content):
            packed = content
        self._rows[digest] = (self._at, len(packed), len(content))
        self._write(packed)

    def start(self) -> TextWriter:
        """Begin a text that comes in pieces; it must be ended before the next one is added."""
        return TextWriter(self._at, self._write, self._rows)

    def finish(self) -> int:
        """Write table and trailer and return the checksum that identifies this pack. The file is flushed."""
        at = self._at
        table = b"".join(_ROW.pack(digest, *row) for digest, row in sorted(self._rows.items()))
        self._write(table)
        self._file.write(_TRAILER.pack(at, len(self._rows), self._crc, crc32(table), _END))
        self._file.flush()
        return self._crc


class TextWriter:
    """Writes one text as it comes, so that a large one needs no memory. What is not ended is not in the table."""

    def __init__(self, at: int, write: Callable[[bytes], None], rows: dict[bytes, tuple[int, int, int]]) -> None:
        self._at = at
        self._write = write
        self._rows = rows
        self._deflater = Deflater()
        self._stored = 0
        self._size = 0

    def feed(self, piece: memoryview) -> None:
        """Take the next piece."""
        self._size += len(piece)
        self._put(self._deflater.feed(piece))

    def _put(self, packed: bytes) -> None:
        self._stored += len(packed)
        self._write(packed)

    def end(self, digest: bytes) -> None:
        """Put the text into the table under its SHA-256."""
        self._put(self._deflater.end())
        if self._stored == self._size:
            self._put(b"\0")  # equal sizes mean that the text is stored as it is; a byte behind DEFLATE's end is none
        if self._size <= _MAX_TEXT:
            self._rows.setdefault(digest, (self._at, self._stored, self._size))


class Pack:
    """One pack, open for reading; for several threads. Raises CacheError if a text is not what its digest says."""

    def __init__(self, path: Path, *, whole: bool = True) -> None:
        """Open a pack. ``whole`` checks every byte of it. Raises ValueError if it is torn or altered, and OSError."""
        self.path = path
        self._file = path.open("rb")
        try:
            self.table, self.checksum = self._check(whole)
        except BaseException:
            self._file.close()
            raise

    def _check(self, whole: bool) -> tuple[bytes, int]:
        size = os.fstat(self._file.fileno()).st_size
        if size < len(_MAGIC) + _TRAILER.size:
            raise ValueError("the pack is torn")
        at, count, crc, table_crc, end = _TRAILER.unpack(
            os.pread(self._file.fileno(), _TRAILER.size, size - _TRAILER.size)
        )
        if end != _END or at + count * _ROW.size + _TRAILER.size != size or at < len(_MAGIC):
            raise ValueError("the pack is torn")
        found = 0
        self._file.seek(0)
        left = at if whole else 0
        head = os.pread(self._file.fileno(), len(_MAGIC), 0)
        while left and (block := self._file.read(min(left, 1 << 20))):
            found = crc32(block, found)
            left -= len(block)
        table = os.pread(self._file.fileno(), count * _ROW.size, at)
        if head != _MAGIC or crc32(table) != table_crc or (whole and crc32(table, found) != crc):
            raise ValueError("the pack is damaged")
        return table, crc

    def read(self, row: bytes) -> bytes:
        """Return the text that a row of the table stands for."""
        digest, offset, stored, size = _ROW.unpack(row)
        try:
            packed = os.pread(self._file.fileno(), stored, offset)
            text = packed if stored == size else inflate(packed, size)
        except (OSError, StreamError):
            text = b""
        if hashlib.sha256(text).digest() != digest:
            self.path.unlink(missing_ok=True)
            raise CacheError(
                f"The cache holds a damaged text of {digest.hex()}, in {self.path}.",
                "That part of the cache was dropped; run the same command again.",
            )
        return text

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Digests:
    """The digests of a sorted table as a sequence, for bisect."""

    def __init__(self, table: bytes, width: int) -> None:
        self._table = table
        self._width = width

    def __len__(self) -> int:
        return len(self._table) // self._width

    def __getitem__(self, index: int) -> bytes:
        return self._table[index * self._width : index * self._width + 32]


class PackTexts:
    """The texts of several packs as one: ``get`` by digest (model.Texts). For several threads.

    All tables are merged into one, sorted, as bytes: 50 bytes a text.
    """

    def __init__(self, packs: Iterable[Pack]) -> None:
        self._packs = list(packs)
        rows: list[bytes] = []
        for number, pack in enumerate(self._packs):
            tail = struct.pack(">H", number)
            rows += [pack.table[at : at + _ROW.size] + tail for at in range(0, len(pack.table), _ROW.size)]
        rows.sort()
        self._table = b"".join(rows)
        self._width = _ROW.size + 2
        self._digests = _Digests(self._table, self._width)

    def __len__(self) -> int:
        return len(self._digests)

    def get(self, digest: bytes) -> bytes | None:
        """Return the content with this SHA-256, or None if it was not kept. Raises CacheError if it is damaged."""
        at = bisect.bisect_left(self._digests, digest)
        if at == len(self._digests) or self._digests[at] != digest:
            return None
        row = self._table[at * self._width : (at + 1) * self._width]
        return self._packs[int.from_bytes(row[-2:], "big")].read(row[:-2])

    def close(self) -> None:
        """Close the packs."""
        for pack in self._packs:
            pack.close()
