"""``/etc/ld.so.cache``: which file the loader takes for a SONAME (glibc's ``sysdeps/generic/dl-cache.h``)."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from imgdiff.kinds._lines import MAX_LISTED, MAX_TEXT
from imgdiff.model import Delta

VERSION = 1

_MAGIC = b"glibc-ld.so.cache1.1"
_OLD_MAGIC = b"ld.so-1.7.0"
_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_OLD_ENTRY_SIZE = 12
_EXTENSION_MAGIC = 0xEAA42174
_HWCAP_EXTENSION = 1 << 62
_TAG_HWCAPS = 1
MAX_ENTRIES = 100_000


class CacheFormatError(ValueError):
    """The bytes are no cache of the loader in a format that we know."""


class CacheEntry(msgspec.Struct, frozen=True):
    """One line of ``ldconfig -p``: ``flags`` (ABI and kind), ``hwcap`` as stored, ``subdirectory`` of glibc-hwcaps
    where the entry is for one ("x86-64-v3")."""

    soname: bytes
    path: bytes
    flags: int
    hwcap: int
    subdirectory: bytes = b""


def read(data: bytes) -> tuple[CacheEntry, ...]:
    """Read the entries in stored order. Raises :class:`CacheFormatError`."""
    try:
        return _read(_new_format(data))
    except struct.error:
        raise CacheFormatError("it is truncated") from None


def _new_format(data: bytes) -> bytes:
    """Return the part in the new format, which may stand behind one in the old."""
    if data.startswith(_OLD_MAGIC):
        (count,) = struct.unpack_from("<I", data, 12)
        start = 16 + count * _OLD_ENTRY_SIZE
        data = data[start + (-start % 8) :]
    if not data.startswith(_MAGIC):
        raise CacheFormatError("its magic is not glibc-ld.so.cache1.1")
    return data


def _read(data: bytes) -> tuple[CacheEntry, ...]:
    _, count, _, flags, extensions = _HEADER.unpack_from(data)
    if flags & 3 == 3 or (flags & 3) not in {0, 2}:
        raise CacheFormatError("it is for a big-endian machine")
    if count > MAX_ENTRIES:
        raise CacheFormatError(f"it claims {count} entries")
    subdirectories = _subdirectories(data, extensions) if extensions else ()
    entries = []
    for at in range(count):
        kind, key, value, _, hwcap = _ENTRY.unpack_from(data, _HEADER.size + at * _ENTRY.size)
        subdirectory = b""
        if hwcap & _HWCAP_EXTENSION:
            index = hwcap & 0xFFFFFFFF
            if index >= len(subdirectories):
                raise CacheFormatError("an entry names a subdirectory that is not there")
            subdirectory = subdirectories[index]
        entries.append(CacheEntry(_string(data, key), _string(data, value), kind, hwcap, subdirectory))
    return tuple(entries)


def _subdirectories(data: bytes, at: int) -> tuple[bytes, ...]:
    magic, count = struct.unpack_from("<II", data, at)
    if magic != _EXTENSION_MAGIC or count > 64:
        raise CacheFormatError("its extensions are malformed")
    for section in range(count):
        tag, _, offset, size = struct.unpack_from("<IIII", data, at + 8 + 16 * section)
        if tag == _TAG_HWCAPS:
            if size > 4 * 1024:
                raise CacheFormatError("its extensions are malformed")
            return tuple(_string(data, start) for (start,) in struct.iter_unpack("<I", data[offset : offset + size]))
    return ()


def _string(data: bytes, start: int) -> bytes:
    end = data.find(b"\0", start)
    if not 0 < start < len(data) or end < 0 or end - start > 4096:
        raise CacheFormatError("a string lies outside of it")
    return data[start:end]


def delta(a: bytes, b: bytes) -> Delta:
    """Compare two caches: noise where they hold the same entries in the same order, else code with the SONAMEs.

    Whether a role needs one of these SONAMEs is not known here; the detail lists all of them, up to a bound.
    """
    tables = []
    for side, data in (("a", a), ("b", b)):
        try:
            tables.append(read(data))
        except CacheFormatError as error:
            return Delta("code", f"The loader's cache in {side} can't be read: {error}.")
    if tables[0] == tables[1]:
        return Delta("noise", "The loader's cache resolves every SONAME the same: equal entries in equal order.")
    by_name = [_by_name(table) for table in tables]
    names = sorted(
        name for name in by_name[0].keys() | by_name[1].keys() if by_name[0].get(name) != by_name[1].get(name)
    )
    if not names:
        return Delta("noise", "The loader's cache resolves every SONAME the same: equal entries for each name.")
    shown = [name[:MAX_TEXT].decode("utf-8", "backslashreplace") for name in names[:MAX_LISTED]]
    detail: dict[str, Any] = {"sonames": shown, "sonames_count": len(names)}
    return Delta("code", f"The loader's cache resolves {len(names)} SONAMEs differently: {shown[0]}.", detail)


def _by_name(entries: tuple[CacheEntry, ...]) -> dict[bytes, tuple[CacheEntry, ...]]:
    """Group entries by SONAME; within one name the order counts, and the stored index of a subdirectory doesn't."""
    grouped: dict[bytes, list[CacheEntry]] = {}
    for entry in entries:
        hwcap = _HWCAP_EXTENSION if entry.subdirectory else entry.hwcap
        grouped.setdefault(entry.soname, []).append(msgspec.structs.replace(entry, hwcap=hwcap))
    return {name: tuple(found) for name, found in grouped.items()}
