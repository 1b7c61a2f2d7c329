"""Magic numbers and the header of a ``.pyc`` (PEP 552)."""

from __future__ import annotations

from typing import Literal

import msgspec

HEADER_SIZE = 16

# The magic number of each final release, and the range that its pre-releases used (Include/internal/
# pycore_magic_number.h). CPython runs a .pyc only under exactly its own number.
FINAL_MAGIC: dict[tuple[int, int], int] = {
    (3, 8): 3413,
    (3, 9): 3425,
    (3, 10): 3439,
    (3, 11): 3495,
    (3, 12): 3531,
    (3, 13): 3571,
    (3, 14): 3627,
}
_RANGES: tuple[tuple[int, int, tuple[int, int]], ...] = (
    (3400, 3419, (3, 8)),
    (3420, 3429, (3, 9)),
    (3430, 3449, (3, 10)),
    (3450, 3499, (3, 11)),
    (3500, 3549, (3, 12)),
    (3550, 3599, (3, 13)),
    (3600, 3649, (3, 14)),
    (3650, 3699, (3, 15)),
    (3700, 3749, (3, 16)),
)
_FINAL_MINOR = {magic: minor for minor, magic in FINAL_MAGIC.items()}


class HeaderError(ValueError):
    """The bytes are no header of a ``.pyc`` that any known CPython accepts."""


Check = Literal["timestamp", "checked-hash", "unchecked-hash"]


class Header(msgspec.Struct, frozen=True):
    """The header of a ``.pyc``: ``minor`` of the Python that wrote it, how it is checked against its source, and
    what is checked: ``mtime`` (seconds, modulo 2**32) and ``size`` (bytes, modulo 2**32), or the ``hash``.
    ``final`` tells whether a final release of that minor accepts the magic number."""

    magic: int
    minor: tuple[int, int]
    final: bool
    check: Check
    mtime: int = 0
    size: int = 0
    hash: bytes = b""


def minor_of(magic: int) -> tuple[int, int] | None:
    """Return the minor whose releases (or pre-releases) write this magic number; None if none from 3.8 on does."""
    known = _FINAL_MINOR.get(magic)
    if known is not None:
        return known
    for first, last, minor in _RANGES:
        if first <= magic <= last:
            return minor
    return None


def read_header(data: bytes) -> Header:
    """Read the first 16 bytes of a ``.pyc`` (PEP 552). Raises :class:`HeaderError` where CPython would refuse them."""
    if len(data) < HEADER_SIZE:
        raise HeaderError(f"{len(data)} bytes are no header of bytecode")
    magic = int.from_bytes(data[:2], "little")
    minor = minor_of(magic) if data[2:4] == b"\r\n" else None
    if minor is None:
        raise HeaderError(f"magic number {data[:4].hex()} is of no Python from 3.8 on")
    flags = int.from_bytes(data[4:8], "little")
    if flags & ~0b11 or flags == 0b10:
        # CPython refuses other flags; "checked" without "hash" it takes for a timestamp, which nothing writes
        raise HeaderError(f"flags {flags:#x} are none of PEP 552")
    final = magic in _FINAL_MINOR
    if not flags:
        mtime, size = int.from_bytes(data[8:12], "little"), int.from_bytes(data[12:16], "little")
        return Header(magic, minor, final, "timestamp", mtime, size)
    return Header(magic, minor, final, "checked-hash" if flags == 0b11 else "unchecked-hash", hash=data[8:16])
