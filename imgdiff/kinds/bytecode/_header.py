"""Magic numbers, the header of a ``.pyc``, and whether it fits its source (PEP 552)."""

from __future__ import annotations

from typing import Literal

import msgspec

HEADER_SIZE = 16

# The magic number of each final release, and the range that its pre-releases used (CPython's
# Include/internal/pycore_magic_number.h). CPython runs a .pyc only under exactly its own number.
FINAL_MAGIC: dict[tuple[int, int], int] = {
    (3, 8): 3413,
    (3, 9): 3425,
    (3, 10): 3439,
    (3, 11): 3495,
    (3, 12): 3531,
    (3, 13): 3571,
    (3, 14): 3627,
}
_FINAL = {magic: minor for minor, magic in FINAL_MAGIC.items()}
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


class HeaderError(ValueError):
    """CPython ignores a ``.pyc`` that starts like this."""


class UnknownMagicError(HeaderError):
    """The magic number is of no known CPython; another Python (PyPy, an older or newer CPython) may accept it."""


Check = Literal["timestamp", "checked-hash", "unchecked-hash"]


class Header(msgspec.Struct, frozen=True):
    """The header of a ``.pyc``: ``minor`` of the Python that wrote it, how it is checked against its source, and
    what is checked: ``mtime`` (seconds, modulo 2**32) and ``size`` (bytes, modulo 2**32), or ``hash``."""

    magic: int
    minor: tuple[int, int]
    check: Check
    mtime: int = 0
    size: int = 0
    hash: bytes = b""

    @property
    def final(self) -> bool:
        """Whether a final release of the minor accepts it."""
        return FINAL_MAGIC.get(self.minor) == self.magic

    @property
    def python(self) -> str:
        """The minor as people write it: ``3.12``."""
        return f"{self.minor[0]}.{self.minor[1]}"


def minor_of(magic: int) -> tuple[int, int] | None:
    """Return the minor whose releases or pre-releases write this magic number; None if none from 3.8 on does."""
    for first, last, minor in _RANGES:
        if first <= magic <= last:
            return minor
    return None


def read_header(data: bytes) -> Header:
    """Read the first 16 bytes of a ``.pyc`` (PEP 552).

    Raises :class:`HeaderError` where every CPython would ignore it, :class:`UnknownMagicError` where we can't tell.
    """
    if len(data) < HEADER_SIZE:
        raise HeaderError(f"{len(data)} bytes are too short for the header of bytecode")
    magic = int.from_bytes(data[:2], "little")
    minor = minor_of(magic) if data[2:4] == b"\r\n" else None
    if minor is None:
        raise UnknownMagicError(f"its magic number {data[:4].hex()} is of no CPython from 3.8 on")
    flags = int.from_bytes(data[4:8], "little")
    if flags & ~0b11:
        raise HeaderError(f"its flags {flags:#x} are none of PEP 552")
    if not flags & 0b1:  # the check bit without the hash bit means nothing to CPython
        mtime, size = int.from_bytes(data[8:12], "little"), int.from_bytes(data[12:16], "little")
        return Header(magic, minor, "timestamp", mtime, size)
    return Header(magic, minor, "checked-hash" if flags & 0b10 else "unchecked-hash", hash=data[8:16])


def fits(header: bytes, mtime: int, size: int, source: bytes | None) -> bool | None:
    """Tell whether Python runs the ``.pyc`` with this header (16 bytes) instead of its source.

    ``mtime`` is the source's, in nanoseconds, ``size`` in bytes, ``source`` its content where at hand (only a
    checked hash needs it). None means that we can't tell: an unknown magic number, or a checked hash without the
    source. That the image's Python has this magic number is not asked here.
    """
    try:
        known = read_header(header)
    except UnknownMagicError:
        return None
    except HeaderError:
        return False
    if known.check == "unchecked-hash":
        return True
    if known.check == "timestamp":
        return known.mtime == _whole_seconds(mtime) & 0xFFFFFFFF and known.size == size & 0xFFFFFFFF
    if source is None:
        return None
    return known.hash == source_hash(source, known)


def _whole_seconds(mtime: int) -> int:
    """Return what importlib makes of an mtime in nanoseconds: the integer part of ``st_mtime``, a double, which
    rounds the last fractions of a second up to the next one."""
    seconds, nanoseconds = divmod(mtime, 1_000_000_000)
    return int(seconds + 1e-9 * nanoseconds)


def source_hash(source: bytes, header: Header) -> bytes:
    """Return the hash of a source that the Python of this header would check: SipHash keyed with its magic number
    (``importlib.util.source_hash``); SipHash-2-4 before 3.11, SipHash-1-3 since."""
    key = header.magic | 0x0A0D0000
    return siphash(key, source, 2 if header.minor < (3, 11) else 1, 4 if header.minor < (3, 11) else 3)


_MASK = 0xFFFFFFFFFFFFFFFF


def siphash(key: int, data: bytes, rounds: int, final_rounds: int) -> bytes:
    """Return the 8 bytes of SipHash (Aumasson and Bernstein) under the 128-bit key ``(key, 0)``."""
    v0 = key ^ 0x736F6D6570736575
    v1 = 0x646F72616E646F6D
    v2 = key ^ 0x6C7967656E657261
    v3 = 0x7465646279746573
    whole = len(data) & ~7
    last = int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little")
        v0, v1, v2, v3 = _mix(v0, v1, v2, v3 ^ word, rounds)
        v0 ^= word
    v0, v1, v2, v3 = _mix(v0, v1, v2, v3 ^ last, rounds)
    v0, v1, v2, v3 = _mix(v0 ^ last, v1, v2 ^ 0xFF, v3, final_rounds)
    return (v0 ^ v1 ^ v2 ^ v3).to_bytes(8, "little")


def _mix(v0: int, v1: int, v2: int, v3: int, rounds: int) -> tuple[int, int, int, int]:
    for _ in range(rounds):
        v0 = (v0 + v1) & _MASK
        v1 = ((v1 << 13 | v1 >> 51) & _MASK) ^ v0
        v0 = (v0 << 32 | v0 >> 32) & _MASK
        v2 = (v2 + v3) & _MASK
        v3 = ((v3 << 16 | v3 >> 48) & _MASK) ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = ((v3 << 21 | v3 >> 43) & _MASK) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = ((v1 << 17 | v1 >> 47) & _MASK) ^ v2
        v2 = (v2 << 32 | v2 >> 32) & _MASK
    return v0, v1, v2, v3
