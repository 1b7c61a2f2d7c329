"""What a table of contents lists, as members of a tar, and where in the blob the contents lie.

The fields are those of stargz-snapshotter's docs/estargz.md, "TOC and TOCEntries" (with ``innerOffset`` of
estargz/types.go) and of containers/storage's pkg/chunked/internal/minimal/compression.go, ``FileMetadata``. A table
that says anything else, or less than a tar would, is no ground to stand on: the layer is then read whole.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import itertools
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from imgdiff.layer._archive import Member
from imgdiff.layer._header import NANOSECONDS, Header
from imgdiff.layer._names import clean
from imgdiff.layer._toc import Table, UnfitError
from imgdiff.model import Place

EMPTY: Final = hashlib.sha256(b"").digest()

_KINDS: Final = {
    "reg": b"0",
    "hardlink": b"1",
    "symlink": b"2",
    "char": b"3",
    "block": b"4",
    "dir": b"5",
    "fifo": b"6",
}
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_NO_TIME: Final = "0001-01-01T00:00:00Z"  # Go's zero
_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 -- all is UTC here
_LARGEST: Final = 1 << 63


class _Entry(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    """One entry as JSON has it. What only repeats or refines other fields is named so that it is known."""

    name: str = ""
    type: str = ""
    size: int = 0
    modtime: str | None = None
    link_name: str = ""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    dev_major: int = 0
    dev_minor: int = 0
    xattrs: dict[str, str] | None = None
    digest: str = ""
    offset: int = 0
    end_offset: int = 0
    inner_offset: int = 0
    chunk_size: int = 0
    chunk_offset: int = 0
    chunk_digest: str = ""
    chunk_type: str = ""
    user_name: str = ""
    group_name: str = ""
    accesstime: str | None = None
    changetime: str | None = None
    num_link: int = msgspec.field(default=0, name="NumLink")


class _Json(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    entries: list[_Entry]
    tar_split_digest: str = msgspec.field(default="", name="tarSplitDigest")


class Listed(msgspec.Struct, gc=False):
    """One member, and the SHA-256 of its content where it is a regular file."""

    member: Member
    digest: bytes | None = None


class Contents(msgspec.Struct):
    """The members in the table's order, and where each content lies that is not empty, by its SHA-256."""

    members: list[Listed]
    places: dict[bytes, Place]


class _File(msgspec.Struct, gc=False):
    """A regular file that is not empty, and where its chunks begin: (offset, inner offset, offset in the file)."""

    digest: bytes
    size: int
    end: int
    chunks: list[tuple[int, int, int]]


_decoder: Final = msgspec.json.Decoder(_Json)


def parse_table(table: Table) -> Contents:
    """Return what a table of contents lists. Raises UnfitError."""
    try:
        decoded = _decoder.decode(table.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnfitError(f"is no JSON of the kind that is known ({error})") from error
    if decoded.version != 1:
        raise UnfitError(f"is of version {decoded.version}, which is not known")
    members: list[Listed] = []
    files: list[_File] = []
    chunked: _File | None = None  # the file that further chunks belong to
    name = ""
    for entry in decoded.entries:
        if entry.type == "chunk":
            if chunked is None or entry.name not in ("", name):
                raise UnfitError("has a chunk that belongs to no file")
            _chunk(chunked, entry)
            continue
        listed = _listed(entry)
        members.append(listed)
        name, chunked = entry.name, None
        if listed.member.real:
            assert listed.digest is not None
            start = (entry.offset, entry.inner_offset, 0)
            chunked = _File(listed.digest, listed.member.real, entry.end_offset, [start])
            files.append(chunked)
    _check_names(table, members, files)
    return Contents(members, _places(files, table.end))


def _chunk(file: _File, entry: _Entry) -> None:
    offset, _, at = file.chunks[-1]
    if not at < entry.chunk_offset < file.size or entry.offset <= offset:
        raise UnfitError("has chunks that are out of order")
    file.chunks.append((entry.offset, entry.inner_offset, entry.chunk_offset))


def _listed(entry: _Entry) -> Listed:
    kind = _KINDS.get(entry.type)
    if kind is None:
        raise UnfitError("lists something of a type that is not known")
    numbers = (entry.mode, entry.uid, entry.gid, entry.size, entry.dev_major, entry.dev_minor)
    if not all(0 <= number < _LARGEST for number in numbers):
        raise UnfitError("has a number that no tar holds")
    header = Header(
        _text(entry.name),
        kind,
        entry.mode,
        entry.uid,
        entry.gid,
        entry.size,
        _nanoseconds(entry.modtime),
        _text(entry.link_name),
        entry.dev_major,
        entry.dev_minor,
    )
    if bool(header.link) != (kind in b"12"):
        raise UnfitError("has a link without a target, or a target without a link")
    member = Member(header, _xattrs(entry.xattrs or {}), entry.size, entry.size)
    if kind != b"0":
        if entry.size or entry.digest:
            raise UnfitError("gives content to something that has none")
        return Listed(member)
    return Listed(member, _digest(entry))


def _digest(entry: _Entry) -> bytes:
    """Return the digest of a regular file; that of an empty one may be left out."""
    match = _DIGEST.fullmatch(entry.digest)
    if match is None:
        if entry.digest or entry.size:
            raise UnfitError("has no SHA-256 for some of its files")
        return EMPTY
    digest = bytes.fromhex(match[1])
    if (digest == EMPTY) != (entry.size == 0):
        raise UnfitError("has a size and a digest that do not go together")
    return digest


def _text(text: str) -> bytes:
    """Return a name's bytes. Go writes U+FFFD for each byte that is no UTF-8: which one it was, nobody can tell."""
    if "\0" in text or "\ufffd" in text:
        raise UnfitError("has a name that can't be told, or that no tar holds")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UnfitError("has a name that is no UTF-8") from error


def _xattrs(values: dict[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    try:
        return tuple(sorted((_text(name), base64.b64decode(value, validate=True)) for name, value in values.items()))
    except (binascii.Error, ValueError) as error:
        raise UnfitError("has an extended attribute that is no base64") from error


def _nanoseconds(text: str | None) -> int:
    """Read a time of RFC 3339; none, and Go's zero, is the epoch."""
    if not text or text == _NO_TIME:
        return 0
    match = _TIME.fullmatch(text)
    if match is None:
        raise UnfitError("has a time that is none")
    *parts, fraction, sign, hours, minutes = match.groups()
    try:
        moment = datetime.datetime(*map(int, parts)) - _EPOCH  # type: ignore[arg-type]  # noqa: DTZ001 -- six numbers
    except ValueError as error:
        raise UnfitError("has a time that is none") from error
    seconds = moment.days * 86400 + moment.seconds
    if sign:
        shift = int(hours) * 3600 + int(minutes) * 60
        seconds -= shift if sign == "+" else -shift
    return seconds * NANOSECONDS + int((fraction or "").ljust(9, "0"))


def _check_names(table: Table, members: list[Listed], files: list[_File]) -> None:
    """The last of several members of one name wins, as in a tar, where the order is known to be that of the tar."""
    seen: set[bytes] = set()
    twice: set[bytes] = set()
    for listed in members:
        header = listed.member.header
        path = clean(header.name)[0]
        if path in seen and header.kind != b"5":
            twice.add(path)
        seen.add(path)
    if not twice:
        return
    starts = [file.chunks[0][:2] for file in files]
    if table.kind == "zstd:chunked" or starts != sorted(starts):
        raise UnfitError("lists a name twice, in an order that need not be the tar's")
    for listed in members:
        if listed.member.header.kind == b"1" and clean(listed.member.header.link)[0] in twice:
            raise UnfitError("has a hard link to a name that it lists twice")


def _places(files: list[_File], end: int) -> dict[bytes, Place]:
    """Return where the contents lie. Raises UnfitError where they overlap, or lie outside."""
    if not files:
        return {}
    chunks = sorted(_extents(files))
    starts = sorted({offset for offset, *_ in chunks})
    following = dict(zip(starts, [*starts[1:], end], strict=True))
    for (offset, inner, length, _, owner), following_chunk in itertools.pairwise(chunks):
        next_offset, next_inner, _, number, next_owner = following_chunk
        if offset == next_offset and inner + length > next_inner:
            raise UnfitError("has files that overlap")
        if number and owner != next_owner:
            raise UnfitError("has files that overlap")  # a later chunk that does not follow its own file's
    places: dict[bytes, Place] = {}
    for file in files:
        offset, inner, _ = file.chunks[0]
        last = file.chunks[-1][0]
        stop = min(following[last], end)
        if file.end:
            if not last < file.end <= stop:
                raise UnfitError("has files that overlap")
            stop = file.end
        if not 0 < offset < stop or inner < 0:
            raise UnfitError("has a file that lies outside the blob")
        places[file.digest] = Place(offset, stop - offset, inner, file.size)
    return places


def _extents(files: list[_File]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (offset, inner offset, length, number of the chunk, number of the file)."""
    for owner, file in enumerate(files):
        borders = [at for _, _, at in file.chunks] + [file.size]
        for number, (offset, inner, at) in enumerate(file.chunks):
            yield offset, inner, borders[number + 1] - at, number, owner
