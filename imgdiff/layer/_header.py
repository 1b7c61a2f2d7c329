"""Tar headers: ustar, V7, GNU and star (pax(1), "ustar Interchange Format"; GNU tar manual, "Basic Tar Format").

Where readers differ, this one sides with Go's archive/tar, since every container engine unpacks layers with it.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from imgdiff.compression import adler32

BLOCK: Final = 512
ZERO_BLOCK: Final = bytes(BLOCK)
_FIELDS: Final = struct.Struct("100s8s8s8s12s12s8s1s100s6s2s").unpack_from  # up to the version, in the order of ustar
NANOSECONDS: Final = 1_000_000_000


class TarError(Exception):
    """The archive can't be read any further. ``str(error)`` is a clause that fits behind "the archive ..."."""


class Header(msgspec.Struct, gc=False):
    """The fields of one header block. ``size`` and the device numbers in plain units, ``mtime`` in nanoseconds.
    ``kind`` is the type flag."""

    name: bytes
    kind: bytes
    mode: int
    uid: int
    gid: int
    size: int
    mtime: int
    link: bytes = b""
    major: int = 0
    minor: int = 0


_numbers: dict[bytes, int] = {}
_NUMBERS_MAX: Final = 4096  # modes, owners and times repeat; the bound keeps a hostile layer from filling memory


def number(field: bytes) -> int:
    """Read a numeric field: octal digits between spaces and NULs, or base-256 (two's complement) with bit 7 set."""
    known = _numbers.get(field)
    if known is not None:
        return known
    value = _number(field)
    if len(_numbers) < _NUMBERS_MAX:
        _numbers[field] = value
    return value


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        bits = 8 * len(field) - 1
        value = int.from_bytes(field, "big") & ((1 << bits) - 1)
        if value >> (bits - 1):  # the bit behind the marker is the sign
            value -= 1 << bits
        if not -(1 << 63) <= value < 1 << 63:
            raise TarError("has a number of more than 64 bits in a header")
        return value
    digits = field.strip(b" \0").partition(b"\0")[0].rstrip(b" ")
    if not digits:
        return 0
    try:
        if digits.isdigit():
            return int(digits, 8)
    except ValueError:
        pass  # an 8 or a 9: said below
    raise TarError("has a number in a header that is not octal")


def text(field: bytes) -> bytes:
    """Return a field up to its first NUL."""
    return field.partition(b"\0")[0]


def checksum_fits(block: bytes) -> bool:
    """Tell whether a block carries its own checksum: the sum of its bytes, the field itself taken as spaces.

    Adler-32 starts at one and adds the bytes modulo 65521, and C adds faster than Python. Sums over signed bytes,
    as some old writers made them, count as well.
    """
    field = block[148:156]
    try:
        digits = field.strip(b" \0")
        stated = int(digits, 8) if digits.isdigit() else _number(field)
    except (TarError, ValueError):
        return False
    if (adler32(block) & 0xFFFF) - 1 - sum(field) + 8 * 32 == stated:
        return True
    exact = sum(block) - sum(field) + 8 * 32
    signed = exact - 256 * sum(byte > 127 for byte in block[:148] + block[156:])
    return stated in (exact, signed)


def parse(block: bytes) -> Header:
    """Read one header block whose checksum was checked. Raises TarError on numbers that are none."""
    raw, mode, uid, gid, size_field, mtime, _, kind, link, magic, version = _FIELDS(block)
    name = raw.partition(b"\0")[0]
    major = minor = 0
    if block[345]:
        if magic == b"ustar\0":
            star = block[508:512] == b"tar\0"
            name = text(block[345 : 476 if star else 500]) + b"/" + name
        elif magic == b"ustar " and version == b" \0":
            name = _old_go_prefix(block, name)
    if kind in b"34" and magic[:5] == b"ustar":
        major, minor = number(block[329:337]), number(block[337:345])
    size = number(size_field)
    if size < 0:
        raise TarError("has a header with a negative size")
    get = _numbers.get
    if (mode_number := get(mode)) is None:
        mode_number = number(mode)
    if (uid_number := get(uid)) is None:
        uid_number = number(uid)
    if (gid_number := get(gid)) is None:
        gid_number = number(gid)
    return Header(
        name,
        kind,
        mode_number,
        uid_number,
        gid_number,
        size,
        number(mtime) * NANOSECONDS,
        link.partition(b"\0")[0] if block[157] else b"",
        major,
        minor,
    )


def _old_go_prefix(block: bytes, name: bytes) -> bytes:
    """GNU headers have times where ustar has its prefix, but Go before 1.8 wrote a prefix there, and old images were
    written by it. As Go's reader does: what is no time and is ASCII is a prefix."""
    try:
        for field in (block[345:357], block[357:369]):
            if field[0]:
                _number(field)
    except TarError:
        prefix = text(block[345:500])
        if prefix.isascii():
            return prefix + b"/" + name
    return name
