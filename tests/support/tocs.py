"""Layers with a table of contents, built from the specifications: eStargz (stargz-snapshotter, docs/estargz.md) and
zstd:chunked (containers/storage, pkg/chunked/internal/minimal/compression.go)."""

from __future__ import annotations

import base64
import datetime
import gzip
import hashlib
import io
import json
import struct
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.support.images import Member, digest_of, full_config, put_blob, put_json, tar_bytes, write_index

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Format = Literal["eStargz", "zstd:chunked"]
Edit = Callable[[list[dict[str, Any]]], object]
ESTARGZ = "containerd.io/snapshot/stargz/toc.digest"
CHUNKED = "io.github.containers.zstd-chunked."
EMPTY = hashlib.sha256(b"").hexdigest()
_TYPES = {"file": "reg"}
_MAGIC = b"GNUlInUx"


@dataclass(frozen=True)
class Built:
    """A layer: the blob as stored, its uncompressed tar, and what a manifest says of its table of contents."""

    blob: bytes
    plain: bytes
    annotations: Mapping[str, str]
    media_type: str
    entries: list[dict[str, Any]] = field(default_factory=list)


def build(
    members: Sequence[Member],
    kind: Format,
    *,
    chunk: int = 1 << 22,
    together: int = 0,
    edit: Edit | None = None,
) -> Built:
    """Build a layer. Contents of more than ``chunk`` bytes are chunked; in eStargz, contents of up to ``together`` bytes
    share a stream (``innerOffset``). ``edit`` changes the table's entries before it is written."""
    writer = _Estargz(together) if kind == "eStargz" else _Chunked()
    entries: list[dict[str, Any]] = []
    for member in members:
        whole = tar_bytes([member])
        with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
            info = archive.next()
            assert info is not None
            writer.header(whole[: info.offset_data])
        entries += _entries(member, writer, chunk)
    if edit is not None:
        edit(entries)
    return writer.finish(entries)


def _entries(member: Member, writer: _Estargz | _Chunked, chunk: int) -> Iterator[dict[str, Any]]:
    name = member.path if isinstance(member.path, str) else member.path.decode("utf-8", "replace")
    kind = _TYPES.get(member.type, member.type)
    mode = member.mode if member.mode is not None else 0o755 if member.type == "dir" else 0o644
    entry: dict[str, Any] = {"type": kind, "name": name, "mode": mode}
    more = {
        "linkName": member.target if isinstance(member.target, str) else member.target.decode("utf-8", "replace"),
        "uid": member.uid,
        "gid": member.gid,
        "devMajor": member.device[0],
        "devMinor": member.device[1],
        "size": len(member.content),
        "modtime": _time(member.mtime, writer),
        "xattrs": {key: base64.b64encode(value).decode() for key, value in member.xattrs.items()},
    }
    entry.update({key: value for key, value in more.items() if value})
    content = member.content
    if member.type == "file" and (content or isinstance(writer, _Estargz)):
        entry["digest"] = digest_of(content)
    if not content:
        yield entry
        return
    pieces = [content[at : at + chunk] for at in range(0, len(content), chunk)]
    places = [writer.payload(piece, first=number == 0) for number, piece in enumerate(pieces)]
    end = writer.end(-len(content) % 512)
    for number, (piece, place) in enumerate(zip(pieces, places, strict=True)):
        part = entry if number == 0 else {"type": "chunk", "name": name, "chunkOffset": number * chunk}
        part.update(place)
        if len(pieces) > 1 and (number + 1 < len(pieces) or isinstance(writer, _Chunked)):
            part["chunkSize"] = len(piece)
        if len(pieces) > 1 or isinstance(writer, _Estargz):
            part["chunkDigest"] = digest_of(piece)
        if number == 0:
            part.update(end)
        yield part


def _time(mtime: float, writer: _Estargz | _Chunked) -> str:
    if not mtime and isinstance(writer, _Estargz):
        return ""
    moment = datetime.datetime.fromtimestamp(mtime, datetime.UTC)
    if isinstance(writer, _Estargz):
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return moment.isoformat().replace("+00:00", "Z")


class _Estargz:
    """Each content that is not empty begins a gzip member, which goes on up to the next one."""

    def __init__(self, together: int) -> None:
        self._blob = b""
        self._plain = b""
        self._open = b""
        self._together = together

    def _close(self) -> None:
        if self._open:
            self._blob += gzip.compress(self._open, mtime=0)
            self._plain += self._open
            self._open = b""

    def header(self, data: bytes) -> None:
        self._open += data

    def payload(self, piece: bytes, *, first: bool) -> dict[str, int]:
        if first and self._open and self._blob and len(piece) + len(self._open) <= self._together:
            place = {"offset": len(self._blob), "innerOffset": len(self._open)}
            self._open += piece
            return place
        self._close()
        self._open = piece
        return {"offset": len(self._blob)}

    def end(self, padding: int) -> dict[str, int]:
        self._open += bytes(padding)
        return {}

    def finish(self, entries: list[dict[str, Any]]) -> Built:
        self._close()
        table = json.dumps({"version": 1, "entries": entries}, indent="\t").encode()
        offset = len(self._blob)
        self._open = _tar(Member("stargz.index.json", table, mode=0))
        self._close()
        subfield = b"%016xSTARGZ" % offset
        footer = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff" + struct.pack("<H", len(subfield) + 4) + b"SG"
        footer += struct.pack("<H", len(subfield)) + subfield + b"\x01\0\0\xff\xff" + bytes(8)
        assert len(footer) == 51
        media_type = "application/vnd.oci.image.layer.v1.tar+gzip"
        return Built(self._blob + footer, self._plain, {ESTARGZ: digest_of(table)}, media_type, entries)


class _Chunked:
    """Each chunk of a content is a zstd frame of its own; the table stands in a frame that readers skip."""

    def __init__(self) -> None:
        self._blob = b""
        self._plain = b""
        self._open = b""

    def _close(self) -> None:
        if self._open:
            self._blob += zstd.compress(self._open)
            self._plain += self._open
            self._open = b""

    def header(self, data: bytes) -> None:
        self._open += data

    def payload(self, piece: bytes, *, first: bool) -> dict[str, int]:
        self._close()
        offset = len(self._blob)
        self._open = piece
        self._close()
        return {"offset": offset}

    def end(self, padding: int) -> dict[str, int]:
        self._open = bytes(padding)
        return {"endOffset": len(self._blob)}

    def finish(self, entries: list[dict[str, Any]]) -> Built:
        self._open += bytes(1024)
        self._close()
        table = json.dumps({"version": 1, "entries": entries}, separators=(",", ":")).encode()
        packed = zstd.compress(table)
        offset = len(self._blob) + 8
        footer = struct.pack("<7Q", offset, len(packed), len(table), 1, 0, 0, 0) + _MAGIC
        annotations = {
            f"{CHUNKED}manifest-checksum": digest_of(packed),
            f"{CHUNKED}manifest-position": f"{offset}:{len(packed)}:{len(table)}:1",
        }
        blob = self._blob + _skippable(packed) + _skippable(footer)
        return Built(blob, self._plain, annotations, "application/vnd.oci.image.layer.v1.tar+zstd", entries)


def _skippable(data: bytes) -> bytes:
    return b"\x50\x2a\x4d\x18" + struct.pack("<I", len(data)) + data


def _tar(member: Member) -> bytes:
    """Return the member and the end of an archive, without the padding that tarfile adds."""
    whole = tar_bytes([member], tarfile.USTAR_FORMAT)
    return whole[: 512 + len(member.content) + -len(member.content) % 512] + bytes(1024)


def put_built(
    directory: Path, layers: Sequence[Built], config: Mapping[str, Any], *, vouch: bool = True
) -> dict[str, Any]:
    """Write an image's blobs into a layout and return the descriptor of its manifest (without names). ``vouch``: the
    manifest has the layers' annotations."""
    descriptors = []
    for layer in layers:
        descriptor = put_blob(directory, layer.blob, layer.media_type)
        if vouch and layer.annotations:
            descriptor["annotations"] = dict(layer.annotations)
        descriptors.append(descriptor)
    kind = "application/vnd.oci.image.config.v1+json"
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put_json(directory, full_config([layer.plain for layer in layers], config), kind),
        "layers": descriptors,
    }
    return put_json(directory, manifest, "application/vnd.oci.image.manifest.v1+json")


def write_built(
    directory: Path, layers: Sequence[Built], config: Mapping[str, Any], tag: str, *, vouch: bool = True
) -> None:
    """Write an OCI layout of one image with these layers."""
    descriptor = put_built(directory, layers, config, vouch=vouch)
    descriptor["annotations"] = {"org.opencontainers.image.ref.name": tag}
    write_index(directory, [descriptor])
