"""Layers and OCI layouts made by hand, for tests of every room."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import sys
import tarfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Compression = Literal["gzip", "zstd", "none"]
MemberType = Literal["file", "dir", "symlink", "hardlink", "char", "block", "fifo"]

_TYPES: Mapping[MemberType, bytes] = {
    "file": tarfile.REGTYPE,
    "dir": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
    "char": tarfile.CHRTYPE,
    "block": tarfile.BLKTYPE,
    "fifo": tarfile.FIFOTYPE,
}
_MEDIA_TYPES: Mapping[Compression, str] = {
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
    "none": "application/vnd.oci.image.layer.v1.tar",
}


@dataclass(frozen=True)
class Member:
    """One member of a tar. ``mode`` None means 0755 for directories and 0644 for the rest; ``mtime`` in seconds."""

    path: str | bytes
    content: bytes = b""
    type: MemberType = "file"
    target: str | bytes = ""
    mode: int | None = None
    uid: int = 0
    gid: int = 0
    mtime: float = 0
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    device: tuple[int, int] = (0, 0)


def tar_bytes(members: Iterable[Member], tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar of these members in this order; the same members always give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format, encoding="utf-8", errors="surrogateescape") as tar:
        for member in members:
            info = tarfile.TarInfo(_text(member.path))
            info.type = _TYPES[member.type]
            info.mode = member.mode if member.mode is not None else 0o755 if member.type == "dir" else 0o644
            info.uid, info.gid, info.mtime = member.uid, member.gid, member.mtime
            info.linkname = _text(member.target)
            info.devmajor, info.devminor = member.device
            info.pax_headers = {
                f"SCHILY.xattr.{name}": value.decode("utf-8", "surrogateescape")
                for name, value in member.xattrs.items()
            }
            if member.type == "file":
                info.size = len(member.content)
                tar.addfile(info, io.BytesIO(member.content))
            else:
                tar.addfile(info)
    return buffer.getvalue()


def compress(data: bytes, compression: Compression) -> bytes:
    """Return a layer as stored; the same layer always gives the same bytes."""
    if compression == "gzip":
        body = zlib.compress(data, 9, -zlib.MAX_WBITS)
        # The header by hand (RFC 1952, no name, no time, best, Unix): gzip.compress gives another one on Python 3.13.
        return b"\x1f\x8b\x08\0\0\0\0\0\x02\x03" + body + struct.pack("<LL", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return zstd.compress(data) if compression == "zstd" else data


def digest_of(data: bytes) -> str:
    """Return the OCI digest of these bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def put_blob(directory: Path, data: bytes, media_type: str) -> dict[str, Any]:
    """Write a blob into a layout and return its descriptor."""
    digest = digest_of(data)
    blob = directory / "blobs" / "sha256" / digest.removeprefix("sha256:")
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def put_json(directory: Path, value: Any, media_type: str) -> dict[str, Any]:
    """Write a JSON blob into a layout and return its descriptor."""
    return put_blob(directory, json_bytes(value), media_type)


def json_bytes(value: Any) -> bytes:
    """Return JSON as the engines write it: without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def full_config(layers: Sequence[bytes], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return an image config for these uncompressed layers. ``config`` is either a whole one, to which ``rootfs`` is
    added, or just what stands in its ``config`` (``{"Env": [...], "Entrypoint": [...]}``)."""
    whole = "config" in config or "architecture" in config
    base: dict[str, Any] = {"architecture": "amd64", "os": "linux"}
    base.update(config if whole else {"config": dict(config)})
    base.setdefault("rootfs", {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]})
    return base


def put_image(
    directory: Path, layers: Sequence[bytes], config: Mapping[str, Any], compression: Compression = "gzip"
) -> dict[str, Any]:
    """Write an image's blobs into a layout and return the descriptor of its manifest (without names)."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put_json(directory, full_config(layers, config), "application/vnd.oci.image.config.v1+json"),
        "layers": [put_blob(directory, compress(layer, compression), _MEDIA_TYPES[compression]) for layer in layers],
    }
    return put_json(directory, manifest, "application/vnd.oci.image.manifest.v1+json")


def write_index(directory: Path, manifests: Sequence[Mapping[str, Any]]) -> None:
    """Write ``oci-layout`` and ``index.json`` over descriptors."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "oci-layout").write_bytes(json_bytes({"imageLayoutVersion": "1.0.0"}))
    index = {"schemaVersion": 2, "manifests": list(manifests)}
    (directory / "index.json").write_bytes(json_bytes(index))


def write_layout(
    directory: Path,
    layers: list[bytes],
    config: Mapping[str, Any],
    compression: Compression = "gzip",
    tag: str | None = None,
) -> str:
    """Write an OCI layout of one image with these uncompressed layers, and return the digest of its manifest."""
    descriptor = put_image(directory, layers, config, compression)
    if tag is not None:
        descriptor["annotations"] = {"org.opencontainers.image.ref.name": tag}
    write_index(directory, [descriptor])
    return str(descriptor["digest"])


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
