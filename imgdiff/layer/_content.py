"""What the indexing pass takes from a file's content besides its hash: kept texts, ``.pyc`` stamps, ELF facts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO, Final

import msgspec

from imgdiff import kinds
from imgdiff.about import VERSION
from imgdiff.compression import CHUNK
from imgdiff.kinds import elf
from imgdiff.model import PycStamp, Unreadable
from imgdiff.store import LayerWriter

_HELD: Final = 32 << 20  # bytes: an ELF file up to this size is held until its scan is over
RULES: Final = f"{VERSION} kept {getattr(kinds, 'KEPT_VERSION', 1)} elf {elf.VERSION}"
"""What decides what the pass keeps and makes: a cached index of other rules is made anew."""

_ELF: Final = b"\x7fELF"
_PYC_HEADER: Final = 16  # bytes (PEP 552)

_encode: Final = msgspec.msgpack.Encoder().encode


class ContentReader:
    """Hashes contents, and hands on what is to be kept of them to a store's writer. For one thread."""

    def __init__(self, writer: LayerWriter) -> None:
        self._writer = writer
        self._second: dict[bytes, bytes] = {}
        self.stamps: dict[bytes, PycStamp] = {}

    def whole(self, path: bytes, view: memoryview) -> bytes:
        """Take a file's content that lies in one piece; returns its SHA-256."""
        digest = hashlib.sha256(view).digest()
        size = len(view)
        head = bytes(view[: kinds.HEAD_SIZE])
        if path.endswith(b".pyc") and size >= _PYC_HEADER and digest not in self.stamps:
            self.stamps[digest] = PycStamp(head[:_PYC_HEADER], hashlib.sha256(view[_PYC_HEADER:]).digest())
        if head[:4] == _ELF:
            scanner = elf.Scanner(head, size)
            scanner.feed(view)
            self._scanned(path, digest, scanner, [view])
        if kinds.kept(path, head, size):
            self._writer.keep(digest, view)
        return digest

    def pieces(self, path: bytes, size: int, pieces: Iterator[memoryview]) -> bytes:
        """Take a file's content in pieces; returns its SHA-256."""
        # Pieces are views of immutable chunks: holding them copies nothing.
        if size <= CHUNK:  # it lies over a border: one copy is cheaper than all that follows, twice
            return self.whole(path, memoryview(b"".join(pieces)))
        start: list[memoryview] = []
        have = 0
        for piece in pieces:
            start.append(piece)
            have += len(piece)
            if have >= kinds.HEAD_SIZE:
                break
        head = b"".join(piece[: kinds.HEAD_SIZE] for piece in start)[: kinds.HEAD_SIZE]
        hasher = hashlib.sha256()
        body = hashlib.sha256() if path.endswith(b".pyc") and size >= _PYC_HEADER else None
        scanner = elf.Scanner(head, size) if head[:4] == _ELF else None
        held: list[memoryview] | None = [] if scanner is not None and size <= _HELD else None
        text = self._writer.start() if kinds.kept(path, head, size) else None
        skip = _PYC_HEADER
        for piece in chain(start, pieces):
            hasher.update(piece)
            if scanner is not None:
                scanner.feed(piece)
                if held is not None:
                    held.append(piece)
            if text is not None:
                text.feed(piece)
            if body is not None:
                body.update(piece[skip:])
                skip = max(0, skip - len(piece))
        digest = hasher.digest()
        if body is not None:
            self.stamps[digest] = PycStamp(head[:_PYC_HEADER], body.digest())
        if scanner is not None:
            self._scanned(path, digest, scanner, held)
        if text is not None:
            text.end(digest)
        return digest

    def _scanned(self, path: bytes, digest: bytes, scanner: elf.Scanner, held: list[memoryview] | None) -> None:
        facts = scanner.finish()
        if isinstance(facts, Unreadable) and facts.reason == elf.SECOND_READ:
            if held is None:
                self._second[digest] = path
                return
            facts = elf.facts(b"".join(held))
        if facts is not None:
            self._writer.fact("elf", elf.VERSION, digest, _encode(facts))

    def second_read(self) -> Iterator[dict[bytes, bytes]]:
        """Yield what has to be read once more, as SHA-256 by path; ``again`` takes the contents. Usually nothing."""
        while self._second:
            batch: dict[bytes, bytes] = {}
            for digest, path in list(self._second.items()):
                if path not in batch:  # a layer may hold one name twice
                    batch[path] = digest
                    del self._second[digest]
            yield batch

    def again(self, digest: bytes, file: BinaryIO) -> None:
        """Take the whole content, seekable, of a file that was to be read once more."""
        facts = elf.facts(file)
        if facts is not None:
            self._writer.fact("elf", elf.VERSION, digest, _encode(facts))
