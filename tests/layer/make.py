"""Layers for tests, made by the standard library."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable
from typing import BinaryIO, cast

from backports import zstd

from imgdiff.layer import index_layers
from imgdiff.model import Descriptor, FileEntry, Layer, LayerIndex
from imgdiff.store import Store

Item = tuple[tarfile.TarInfo, bytes]


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def info(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = link
    member.mode = mode
    return member


def tar(items: Iterable[Item], fmt: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=fmt, errors="surrogateescape") as archive:
        for member, content in items:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def files(**contents: bytes) -> bytes:
    return tar((info(name), content) for name, content in contents.items())


def layer(plain: bytes, blob: bytes | None = None, *, stated: bool = True, media_type: str = "x") -> Layer:
    stored = plain if blob is None else blob
    descriptor = Descriptor(media_type, sha256(stored), len(stored)) if stated else None
    return Layer(descriptor, sha256(plain) if stated else None, lambda: cast("BinaryIO", io.BytesIO(stored)))


def index(plain: bytes, blob: bytes | None = None, *, stated: bool = True) -> LayerIndex:
    with Store.temporary() as store:
        return index_layers([layer(plain, blob, stated=stated)], store)[0]


def entries(plain: bytes) -> dict[bytes, FileEntry]:
    return {entry.path: entry for entry in index(plain).entries}


def header(
    name: bytes,
    kind: bytes = b"0",
    size: int = 0,
    *,
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
    fields: dict[int, bytes] | None = None,
) -> bytes:
    """A header block by hand; ``fields`` are bytes by offset."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[108:116] = block[116:124] = b"0000000\0"
    block[124:136] = b"%011o\0" % size
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[157 : 157 + len(link)] = link
    block[257 : 257 + len(magic)] = magic
    for offset, value in (fields or {}).items():
        block[offset : offset + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def pax(*records: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    data = b""
    for key, value in records:
        length = len(key) + len(value) + 3
        total = length + len(str(length))
        total = length + len(str(total))
        data += b"%d %s=%s\n" % (total, key, value)
    return header(b"PaxHeader", kind, len(data)) + padded(data)


END = bytes(1024)


def gz(plain: bytes) -> bytes:
    return gzip.compress(plain, 1, mtime=0)


def zst(plain: bytes) -> bytes:
    return zstd.compress(plain, 1)
