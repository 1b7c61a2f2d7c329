"""PAX extended headers (pax(1), "pax Extended Header") as far as they say something of a file in a container."""

from __future__ import annotations

from typing import Final

from imgdiff.layer._header import NANOSECONDS, Header, TarError

XATTR: Final = b"SCHILY.xattr."  # what engines write; they don't read libarchive's LIBARCHIVE.xattr
SPARSE: Final = b"GNU.sparse."
MAP: Final = b"GNU.sparse.map"

Records = dict[bytes, bytes]


def records(data: bytes) -> Records:
    """Read the records of an extended header. The repeated offsets and lengths of GNU sparse format 0.0 are joined
    into one ``GNU.sparse.map``, as format 0.1 has it. Raises TarError on what is none."""
    found: Records = {}
    pairs: list[bytes] = []
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 20)
        length = data[at:space] if space > 0 else b""
        end = at + int(length) if length.isdigit() else -1
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not (space < end <= len(data) and data[end - 1 : end] == b"\n" and key and equals):
            raise TarError("has a broken PAX header")
        if key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes"):
            if len(pairs) % 2 != (key == b"GNU.sparse.numbytes") or b"," in value:
                raise TarError("has a broken PAX sparse map")
            pairs.append(value)
        elif b"\0" in (value if key in (b"path", b"linkpath") else key):
            raise TarError("has a NUL in a PAX header")
        else:
            found[key] = value
        at = end
    if pairs:
        found[MAP] = b",".join(pairs)
    return found


def decimal(value: bytes) -> int:
    """Read a decimal integer that fits into 64 bits. Raises TarError."""
    if not value.removeprefix(b"-").isdigit() or len(value) > 20 or not -(1 << 63) <= int(value) < 1 << 63:
        raise TarError("has a number in a PAX header that is none")
    return int(value)


def nanoseconds(value: bytes) -> int:
    """Read a time in seconds with a fraction, cut to nanoseconds (away from the fraction's end, as Go does)."""
    seconds, _, fraction = value.partition(b".")
    if fraction and not fraction.isdigit():
        raise TarError("has a time in a PAX header that is none")
    if not fraction.strip(b"0123456789") and seconds in (b"", b"-"):
        raise TarError("has a time in a PAX header that is none")
    whole = decimal(seconds) * NANOSECONDS
    part = int(fraction[:9].ljust(9, b"0")) if fraction else 0
    return whole - part if seconds.startswith(b"-") else whole + part


def merge(header: Header, extended: Records) -> tuple[tuple[bytes, bytes], ...]:
    """Let an extended header's records override the fields of a header; returns the extended attributes, sorted.

    An empty value leaves the field as it is. Raises TarError.
    """
    xattrs: list[tuple[bytes, bytes]] = []
    for key, value in extended.items():
        if key.startswith(XATTR):
            xattrs.append((key[len(XATTR) :], value))
        elif not value:
            continue
        elif key == b"path":
            header.name = value
        elif key == b"linkpath":
            header.link = value
        elif key == b"size":
            header.size = decimal(value)
            if header.size < 0:
                raise TarError("has a PAX header with a negative size")
        elif key == b"mtime":
            header.mtime = nanoseconds(value)
        elif key == b"uid":
            header.uid = decimal(value)
        elif key == b"gid":
            header.gid = decimal(value)
    xattrs.sort()
    return tuple(xattrs)
