"""Tables of contents that layers carry: where one is, and whether it is the one that the manifest vouches for.

eStargz: stargz-snapshotter, docs/estargz.md, "Footer" and "Content Verification in eStargz". zstd:chunked:
containers/storage, pkg/chunked/internal (``minimal/compression.go``: annotations and position of the manifest); its
footer is not asked for, as there, since the position stands in the annotation.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from imgdiff.compression import StreamError, beginning, unpack
from imgdiff.errors import BlobError
from imgdiff.layer._archive import REGULAR
from imgdiff.layer._blob import label
from imgdiff.layer._header import BLOCK, Header, TarError, checksum_fits, parse
from imgdiff.model import BlobParts, Layer, Place

Kind = Literal["eStargz", "zstd:chunked"]

_ESTARGZ: Final = "containerd.io/snapshot/stargz/toc.digest"
_CHUNKED: Final = ("io.github.containers.zstd-chunked.", "io.containers.zstd-chunked.")  # the second one until 2022
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_POSITION: Final = re.compile(r"(\d{1,18}):(\d{1,18}):(\d{1,18}):(\d{1,18})")
_FRAME_HEADER: Final = 8  # bytes of a skippable zstd frame before its content (RFC 8878, 3.1.2)
_CRFS: Final = 1  # the one type of table that there is
_FOOTER: Final = re.compile(rb"\x1f\x8b\x08\x04.{6}\x1a\0SG\x16\0([0-9a-f]{16})STARGZ\x01\0\0\xff\xff\0{8}", re.DOTALL)
_FOOTER_SIZE: Final = 51
_NAME: Final = b"stargz.index.json"
_MOST: Final = 150 << 20  # bytes of a table, as containers/storage takes it


class UnfitError(Exception):
    """A table of contents can't be taken for the layer: the layer is read whole. ``str(error)`` is a clause that fits
    behind "its table of contents ..."."""


class Stated(msgspec.Struct, frozen=True):
    """What a manifest says of a layer's table of contents: ``digest`` is of the JSON (eStargz) or of the JSON as stored
    (zstd:chunked), ``position`` is given for zstd:chunked."""

    kind: Kind
    digest: str
    position: str = ""


class Table(msgspec.Struct, frozen=True):
    """A table of contents whose digest is right: its JSON, where the files' contents end in the blob, and the member
    that it is in the tar (eStargz) with its place."""

    kind: Kind
    data: bytes
    end: int
    header: Header | None = None
    place: Place | None = None


def stated(annotations: Mapping[str, str]) -> Stated | None:
    """Return what a layer's annotations say of its table of contents, or None where they vouch for none."""
    for prefix in _CHUNKED:
        digest, position = annotations.get(f"{prefix}manifest-checksum"), annotations.get(f"{prefix}manifest-position")
        if digest is not None and position is not None:
            return Stated("zstd:chunked", digest, position) if _DIGEST.fullmatch(digest) else None
    digest = annotations.get(_ESTARGZ)
    return Stated("eStargz", digest) if digest is not None and _DIGEST.fullmatch(digest) else None


def read_table(layer: Layer, what: Stated, parts: BlobParts) -> Table:
    """Fetch the table of contents of a layer.

    Raises UnfitError where there is none that can be read, BlobError where its digest is not the manifest's, and what
    ``parts`` raises.
    """
    assert layer.descriptor is not None
    return (_chunked if what.kind == "zstd:chunked" else _estargz)(layer, layer.descriptor.size, what, parts)


def _chunked(layer: Layer, size: int, what: Stated, parts: BlobParts) -> Table:
    match = _POSITION.fullmatch(what.position)
    if match is None:
        raise UnfitError("has no place in the annotations that can be read")
    offset, length, plain, kind = map(int, match.groups())
    if kind != _CRFS:
        raise UnfitError(f"is of type {kind}, which is not known")
    if not length or max(length, plain) > _MOST or offset < _FRAME_HEADER or offset + length > size:
        raise UnfitError("lies outside the blob, or is too large")
    stored = _read(parts, offset, length)
    _check(layer, what, stored)
    try:
        return Table("zstd:chunked", unpack(stored, plain), offset - _FRAME_HEADER)
    except StreamError as error:
        raise UnfitError(str(error)) from error


def _estargz(layer: Layer, size: int, what: Stated, parts: BlobParts) -> Table:
    if size <= _FOOTER_SIZE:
        raise UnfitError("is not there: the blob is too short for one")
    footer = _FOOTER.fullmatch(_read(parts, size - _FOOTER_SIZE, _FOOTER_SIZE))
    if footer is None:
        raise UnfitError("is not there: the blob does not end with the footer of eStargz")
    offset = int(footer[1], 16)
    length = size - _FOOTER_SIZE - offset
    if not 0 < length <= _MOST:
        raise UnfitError("lies outside the blob, or is too large")
    try:
        archive = beginning(_read(parts, offset, length), _MOST)
    except StreamError as error:
        raise UnfitError(str(error)) from error
    block = archive[:BLOCK]
    try:
        header = parse(block) if len(block) == BLOCK and checksum_fits(block) else None
    except TarError:
        header = None
    if header is None or header.name != _NAME or header.kind not in REGULAR:
        raise UnfitError(f"is not the tar member {_NAME.decode()}")
    data = archive[BLOCK : BLOCK + header.size]
    if len(data) != header.size:
        raise UnfitError("ends too early, or is too large")
    _check(layer, what, data)
    return Table("eStargz", data, offset, header, Place(offset, length, BLOCK, header.size))


def _read(parts: BlobParts, offset: int, length: int) -> bytes:
    data = bytearray(length)
    view = memoryview(data)
    with parts.open(offset, length) as file:
        while view:
            count = file.readinto(view)  # type: ignore[attr-defined]  # BinaryIO lacks it, and every file has it
            if not count:
                raise UnfitError("ends too early")
            view = view[count:]
    return bytes(data)


def _check(layer: Layer, what: Stated, data: bytes) -> None:
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if found != what.digest:
        raise BlobError(
            f"The table of contents of the {label(layer)} was changed: its digest is {found}, and the manifest states "
            f"{what.digest}.",
            "Without --trust-toc the layer is read whole and held against its own digest.",
        )
