"""The header of an installed RPM package, as rpmdb stores it (rpm's docs/manual/format_header.md and tags.md)."""

from __future__ import annotations

import struct

import msgspec

_MAX_ENTRIES = 0x10000  # rpm's own limits (header.c: HEADER_TAGS_MAX, HEADER_DATA_MAX)
_MAX_DATA = 0x10000000

_INT_SIZES = {1: "B", 2: "B", 3: "H", 4: "I", 5: "Q"}  # CHAR, INT8, INT16, INT32, INT64
_STRING, _BIN, _STRING_ARRAY, _I18N = 6, 7, 8, 9

NAME, VERSION, RELEASE, EPOCH, ARCH = 1000, 1001, 1002, 1003, 1022
FILE_STATES, FILE_MODES, FILE_DIGESTS, FILE_FLAGS, OLD_NAMES = 1029, 1030, 1035, 1037, 1027
VERIFY_FLAGS, DIR_INDEXES, BASE_NAMES, DIR_NAMES, DIGEST_ALGORITHM = 1045, 1116, 1117, 1118, 5011
_WANTED = frozenset(
    {
        *(NAME, VERSION, RELEASE, EPOCH, ARCH, FILE_STATES, FILE_MODES, FILE_DIGESTS, FILE_FLAGS, OLD_NAMES),
        *(VERIFY_FLAGS, DIR_INDEXES, BASE_NAMES, DIR_NAMES, DIGEST_ALGORITHM),
    }
)

_SHA256 = 8  # RFC 4880, 9.4
_CONFIG, _GHOST = 1 << 0, 1 << 6
_VERIFY_DIGEST = 1 << 0
_REGULAR = 0o100000


class RpmFile(msgspec.Struct, frozen=True):
    """One file of a package: path without leading slash, its SHA-256 where rpm would verify it (a regular file that
    is no configuration and no ghost), and whether the package's install put it there."""

    path: bytes
    digest: bytes | None
    installed: bool


class RpmPackage(msgspec.Struct, frozen=True):
    """One installed package; ``version`` is ``[epoch:]version-release``."""

    name: str
    version: str
    architecture: str
    files: tuple[RpmFile, ...]


def read_header(blob: bytes) -> RpmPackage:
    """Read one header.

    Raises ValueError with a sentence where it is damaged.
    """
    tags = _tags(blob)
    name = _text(tags, NAME)
    if not name:
        raise ValueError("a header names no package")
    version = f"{_text(tags, VERSION)}-{_text(tags, RELEASE)}"
    epoch = _numbers(tags, EPOCH)
    if epoch:
        version = f"{epoch[0]}:{version}"
    return RpmPackage(name, version, _text(tags, ARCH), tuple(_files(tags)))


Values = list[bytes] | tuple[int, ...]


def _tags(blob: bytes) -> dict[int, Values]:
    if len(blob) < 8:
        raise ValueError("a header is cut short")
    count, size = struct.unpack_from(">II", blob)
    data_start = 8 + 16 * count
    if count > _MAX_ENTRIES or size > _MAX_DATA or data_start + size > len(blob):
        raise ValueError("a header's sizes lead out of it")
    data = blob[data_start : data_start + size]
    tags: dict[int, Values] = {}
    for tag, kind, offset, number in struct.iter_unpack(">IIII", blob[8:data_start]):
        if tag in _WANTED and tag not in tags:
            tags[tag] = _values(data, kind, offset, number)
    return tags


def _values(data: bytes, kind: int, offset: int, number: int) -> Values:
    if kind in _INT_SIZES:
        layout = f">{number}{_INT_SIZES[kind]}"
        if offset + struct.calcsize(layout) > len(data):
            raise ValueError("a header's numbers lead out of it")
        return struct.unpack_from(layout, data, offset)
    if kind in (_STRING, _STRING_ARRAY, _I18N):
        if offset > len(data) or number > len(data) - offset:
            raise ValueError("a header's strings lead out of it")
        parts = data[offset:].split(b"\0", number)
        if len(parts) <= number:
            raise ValueError("a header's strings are cut short")
        return parts[:number]
    return []


def _text(tags: dict[int, Values], tag: int) -> str:
    values = tags.get(tag, ())
    first = values[0] if values else b""
    return first.decode("utf-8", "backslashreplace") if isinstance(first, bytes) else ""


def _numbers(tags: dict[int, Values], tag: int) -> tuple[int, ...]:
    values = tags.get(tag, ())
    return values if isinstance(values, tuple) else ()


def _strings(tags: dict[int, Values], tag: int) -> list[bytes]:
    values = tags.get(tag, [])
    return values if isinstance(values, list) else []


def _paths(tags: dict[int, Values]) -> list[bytes]:
    names, directories, indexes = _strings(tags, BASE_NAMES), _strings(tags, DIR_NAMES), _numbers(tags, DIR_INDEXES)
    if not names:
        return _strings(tags, OLD_NAMES)
    if len(indexes) != len(names) or any(index >= len(directories) for index in indexes):
        raise ValueError("a header's file names do not fit together")
    return [directories[index] + name for index, name in zip(indexes, names, strict=True)]


def _files(tags: dict[int, Values]) -> list[RpmFile]:
    paths = _paths(tags)
    algorithm = _numbers(tags, DIGEST_ALGORITHM)
    digests = _strings(tags, FILE_DIGESTS) if algorithm[:1] == (_SHA256,) else []
    flags, verify = _numbers(tags, FILE_FLAGS), _numbers(tags, VERIFY_FLAGS)
    modes, states = _numbers(tags, FILE_MODES), _numbers(tags, FILE_STATES)
    whole = all(len(values) == len(paths) for values in (digests, flags, verify, modes))
    files = []
    for position, path in enumerate(paths):
        digest = None
        changeable = whole and bool(flags[position] & (_CONFIG | _GHOST))
        if whole and not changeable and verify[position] & _VERIFY_DIGEST and modes[position] & 0o170000 == _REGULAR:
            digest = _digest(digests[position])
        installed = len(states) != len(paths) or states[position] == 0
        files.append(RpmFile(path.lstrip(b"/"), digest, installed and not changeable))
    return files


def _digest(text: bytes) -> bytes | None:
    try:
        digest = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
    return digest if len(digest) == 32 else None
