"""Index files: one LayerIndex, as msgpack in a zstd frame behind a checked header."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Final

import msgspec

from imgdiff.compression import StreamError, pack, unpack
from imgdiff.model import LayerIndex

VERSION: Final = 1  # of the file's format
_MAGIC: Final = b"imgdiff layer index\n"
_HEADER: Final = struct.Struct(">20sHI32s32sQ")  # magic, version, the pack's checksum, key, checksum of the rest, size


class Indexed(msgspec.Struct, frozen=True):
    """What an index file holds: the index, the rules that the indexing pass had (what it keeps, which versions of facts
    it makes), and which facts it put into the store as (kind, version, digest)."""

    index: LayerIndex
    rules: str
    facts: tuple[tuple[str, int, bytes], ...] = ()


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Indexed)


def identity(index: LayerIndex) -> str:
    """Return what an index is kept under: its diffID where every byte was held against it, else another word."""
    believed = index.believed
    return index.diff_id if believed is None else believed_identity(index.diff_id, believed.blob, believed.digest)


def believed_identity(diff_id: str, blob: str, contents: str) -> str:
    """Return what an index is kept under that was made of a table of contents, by the digests of all three."""
    return f"{diff_id} as {contents} of {blob} says"


def encode(indexed: Indexed, checksum: int) -> bytes:
    """Return the bytes of an index file that belongs to the pack with this checksum."""
    body = _encoder.encode(indexed)
    frame = pack(body, 1)
    key = hashlib.sha256(identity(indexed.index).encode()).digest()
    return _HEADER.pack(_MAGIC, VERSION, checksum, key, hashlib.sha256(frame).digest(), len(body)) + frame


def decode(path: Path, name: str) -> tuple[Indexed, int]:
    """Read an index file of an identity and return what it holds with the checksum of its pack.

    Raises ValueError if it is torn, foreign, altered, or another layer's, and OSError.
    """
    data = path.read_bytes()
    if len(data) < _HEADER.size:
        raise ValueError("the index is torn")
    magic, version, checksum, key, digest, size = _HEADER.unpack_from(data)
    frame = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or version != VERSION or key != hashlib.sha256(name.encode()).digest():
        raise ValueError("the index is of another kind")
    if hashlib.sha256(frame).digest() != digest:
        raise ValueError("the index is damaged")
    try:
        indexed = _decoder.decode(unpack(bytes(frame), size))
    except (StreamError, msgspec.DecodeError) as error:
        raise ValueError("the index is damaged") from error
    if identity(indexed.index) != name:
        raise ValueError("the index is another layer's")
    return indexed, int(checksum)
