"""Snapshot files: what an indexing pass and the facts of one image say of it, without its layers.

A first line with the format's version, then parts, then the SHA-256 of all before it. A part is a kind (1 byte), the
sizes of its content and of its zstd frame (8 bytes each, big endian), the frame's SHA-256, and the frame. The parts
are the manifest, the index of each layer from the base up, the kept texts, and the facts, all of them msgpack, and a
last one without content.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

from imgdiff.compression import CHUNK, StreamError, pack, unpack
from imgdiff.errors import ImageError
from imgdiff.model import Descriptor, FactRow, ImageConfig, LayerIndex, Mount

T = TypeVar("T")

FORMAT: Final = 1
_WORD: Final = b"imgdiff snapshot "
_LINE: Final = re.compile(rb"imgdiff snapshot (\d{1,9})\n")
_PART: Final = struct.Struct(">cQQ32s")
_MANIFEST, _INDEX, _TEXTS, _FACTS, _END = b"M", b"I", b"T", b"F", b"E"
_KINDS: Final = (_MANIFEST, _INDEX, _TEXTS, _FACTS)
_LAST: Final = _PART.pack(_END, 0, 0, hashlib.sha256().digest())
_BATCH: Final = 16 << 20  # bytes of texts or facts in one part
_MOST: Final = 2 << 30  # bytes of one part's content: an index of millions of files has less
_LEVEL: Final = 12  # of zstd: 19 takes ten times as long for a tenth less
_HINT: Final = "it was damaged or altered; make it again, or copy it again"


class KeptLayer(msgspec.Struct, frozen=True):
    """What a snapshot's manifest says of a layer."""

    descriptor: Descriptor | None
    diff_id: str | None


class Manifest(msgspec.Struct, frozen=True):
    """The first part: the image as its source described it, and what made the snapshot.

    ``rules`` names the versions of all that was kept and made. ``texts`` tells whether all kept texts are there.
    """

    made_by: str
    rules: str
    reference: str
    manifest_digest: str | None
    config_digest: str | None
    platform: str
    config: ImageConfig | None
    layers: tuple[KeptLayer, ...]
    texts: bool
    contained: bool = False
    mounts: tuple[Mount, ...] = ()
    caveats: tuple[str, ...] = ()


_encode: Final = msgspec.msgpack.Encoder().encode


def is_snapshot(head: bytes) -> bool:
    """Tell by its first bytes (32 are enough) whether a file is a snapshot, of whichever version."""
    return head.startswith(_WORD)


def write(
    file: BinaryIO,
    manifest: Manifest,
    indexes: Iterable[LayerIndex],
    texts: Iterable[tuple[bytes, bytes]],
    facts: Iterable[FactRow],
) -> int:
    """Write a snapshot and return its bytes. Texts are (SHA-256, content), alike ones best side by side."""
    writer = _Writer(file)
    writer.part(_MANIFEST, _encode(manifest))
    for index in indexes:
        writer.part(_INDEX, _encode(index))
    for batch in _batches(texts, lambda row: len(row[1])):
        writer.part(_TEXTS, _encode(batch))
    for rows in _batches(facts, lambda row: len(row.encoded)):
        writer.part(_FACTS, _encode(rows))
    return writer.finish()


def _batches(rows: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    batch: list[T] = []
    total = 0
    for row in rows:
        batch.append(row)
        total += size(row)
        if total >= _BATCH:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hasher = hashlib.sha256()
        self._size = 0
        self._put(b"%s%d\n" % (_WORD, FORMAT))

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._hasher.update(data)
        self._size += len(data)

    def part(self, kind: bytes, content: bytes) -> None:
        frame = pack(content, _LEVEL)
        self._put(_PART.pack(kind, len(content), len(frame), hashlib.sha256(frame).digest()))
        self._put(frame)

    def finish(self) -> int:
        self._put(_LAST)
        self._file.write(self._hasher.digest())
        self._file.flush()
        return self._size + self._hasher.digest_size


class _Part(msgspec.Struct, frozen=True):
    """Where a part's frame stands in the file."""

    at: int
    size: int
    stored: int
    digest: bytes


class Snapshot:
    """A snapshot file that was verified whole: an ``model.ImageSnapshot``. Parts are read when they are asked for.

    ``key`` is the SHA-256 of the file. All methods raise ImageError where the file is not what it was.
    """

    def __init__(self, path: Path, where: str) -> None:
        """Verify the snapshot at ``path``; ``where`` names it in sentences.

        Raises ImageError where it is torn, altered, or of another format's version, and OSError.
        """
        self._path = path
        self._where = where
        self._parts: dict[bytes, list[_Part]] = {}
        with path.open("rb") as file:
            self.key = self._verify(file)
        found = self._parts.get(_MANIFEST, [])
        if len(found) != 1:
            raise self._broken("has no manifest, or several")
        self.manifest: Manifest = self._decode(found[0], Manifest)
        if len(self.manifest.layers) != len(self._parts.get(_INDEX, [])):
            raise self._broken("has not the layers that its manifest names")
        self.rules = self.manifest.rules
        self.made_by = self.manifest.made_by

    def _broken(self, how: str) -> ImageError:
        return ImageError(f"the snapshot {self._where} {how}", _HINT)

    def _verify(self, file: BinaryIO) -> bytes:
        line = _LINE.match(file.read(32))
        if line is None:
            raise self._broken("has a damaged first line")
        if int(line[1]) != FORMAT:
            raise ImageError(
                f"the snapshot {self._where} has the format's version {int(line[1])}, and this imgdiff reads {FORMAT}",
                "make it again with this version",
            )
        end = file.seek(0, 2) - hashlib.sha256().digest_size
        file.seek(0)
        hasher = hashlib.sha256()
        left = end
        while left > 0 and (block := file.read(min(left, CHUNK))):
            hasher.update(block)
            left -= len(block)
        if left or file.read() != hasher.digest():
            raise self._broken("is torn, or was altered: its digest does not fit its bytes")
        self._find_parts(file, line.end(), end)
        return hasher.digest()

    def _find_parts(self, file: BinaryIO, at: int, end: int) -> None:
        while at + _PART.size <= end - len(_LAST):
            file.seek(at)
            kind, size, stored, digest = _PART.unpack(file.read(_PART.size))
            at += _PART.size
            if kind not in _KINDS or size > _MOST or stored > end - at:
                raise self._broken("has a part that is none")
            self._parts.setdefault(kind, []).append(_Part(at, size, stored, digest))
            at += stored
        file.seek(at)
        if at + len(_LAST) != end or file.read(len(_LAST)) != _LAST:
            raise self._broken("has parts that don't fit each other")

    def _decode(self, part: _Part, type_: Any) -> Any:
        try:
            with self._path.open("rb") as file:
                file.seek(part.at)
                frame = file.read(part.stored)
        except OSError as error:
            raise ImageError(f"the snapshot {self._where} can't be read: {error.strerror}") from error
        if hashlib.sha256(frame).digest() != part.digest:
            raise self._broken("changed while it was read")
        try:
            return msgspec.msgpack.decode(unpack(frame, part.size), type=type_)
        except (StreamError, msgspec.MsgspecError, RecursionError) as error:
            raise self._broken("holds a part that is none") from error

    def index(self, layer: int) -> LayerIndex:
        """Return the index of a layer, counted from the base."""
        index: LayerIndex = self._decode(self._parts[_INDEX][layer], LayerIndex)
        if index.diff_id != (self.manifest.layers[layer].diff_id or ""):
            raise self._broken("holds another layer's index")
        return index

    def texts(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the texts that are kept, as (SHA-256, content)."""
        for part in self._parts.get(_TEXTS, []):
            for digest, content in self._decode(part, list[tuple[bytes, bytes]]):
                if hashlib.sha256(content).digest() != digest:
                    raise self._broken("holds a text that its digest does not fit")
                yield digest, content

    def facts(self) -> Iterator[FactRow]:
        """Yield the facts that are kept."""
        for part in self._parts.get(_FACTS, []):
            yield from self._decode(part, list[FactRow])
