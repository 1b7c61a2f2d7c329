"""The string table of a Cython module, which holds all of its constants end to end.

Cython 3.2 and newer join the strings of a module, the sorted identifiers last, and then the byte strings, with
nothing between them: where each ends stands elsewhere. The table is plain, or compressed as a whole by zlib, bz2, or
(from 3.3 on, where nothing else is asked for) by an LZSS of Cython's own, which has no header: ``StringTools.c`` in
Cython has its format. A table is known by names that every one of them has.
"""

from __future__ import annotations

import bz2
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence

MAX_TABLE = 4 << 20  # bytes of an unpacked table; the largest of 151 modules has 92 KB
MAX_WORK = 32 << 20  # bytes that are unpacked of one file in vain before its table counts as not to be read
_SIGNS = (b"__main__", b"__name__")  # of a table: every module compares the two
_MARKS = ("__pyx", "_cython", "cython_")
_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_BZ2 = re.compile(rb"BZh[1-9]1AY&SY")
_LZSS_ERROR = b"LZSS string data decompression failed"
_PLAIN = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]{40,}")
# Nothing can refer back before three bytes are there: the first flags say so of three.
_LZSS = re.compile(
    b"(?=[" + b"".join(b"\\x%02x" % flags for flags in range(7, 256, 8)) + b"][\\x00-\\x7e\\xc2-\\xf4]{3})"
)
# None of these is of an identifier.
_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f\xc0\xc1\xf5-\xff]|(?<![\x80-\xf4])[\x80-\xbf]")
_CONTROL = re.compile(r"[^\S ]|[\x00-\x08\x0e-\x1f\x7f]")


def is_cython(identifiers: Iterable[str]) -> bool:
    """Tell by the identifiers of a file whether Cython made it."""
    return any(name.startswith(_MARKS) for name in identifiers)


def tables(pieces: Sequence[bytes]) -> Iterator[str]:
    """Yield the string tables in stretches of read-only data, with a line break for each control character."""
    lzss_is_used = any(_LZSS_ERROR in piece for piece in pieces)
    for piece in pieces:
        for table in _tables(piece, lzss_is_used):
            yield _CONTROL.sub("\n", table.decode("utf-8", "replace"))


def _tables(data: bytes, lzss_is_used: bool) -> Iterator[bytes]:
    for found in _PLAIN.finditer(data):
        if _is_table(found[0]):
            yield found[0]
    work = 0
    for pattern, make in ((_ZLIB, zlib.decompressobj), (_BZ2, bz2.BZ2Decompressor)):
        for place in pattern.finditer(data):
            unpacker = make()
            try:
                text = unpacker.decompress(memoryview(data)[place.start() :], MAX_TABLE)
            except (zlib.error, OSError):
                continue
            if unpacker.eof and _is_table(text):
                yield _cut(text)
            work += len(text)
            if work > MAX_WORK:
                return
    for place in _LZSS.finditer(data) if lzss_is_used else ():
        text = lzss(data, place.start())
        if _is_table(text):
            yield _cut(text)
            return  # what begins inside of it would be more of the same
        work += len(text)
        if work > MAX_WORK:
            return


def _cut(text: bytes) -> bytes:
    """Cut off what is no text: byte strings stand behind the identifiers, and behind LZSS whatever follows it."""
    end = max(text.find(sign) for sign in _SIGNS)
    found = _BYTES.search(text, end)
    return text if found is None else text[: found.start()]


def _is_table(text: bytes) -> bool:
    return all(sign in text for sign in _SIGNS)


def lzss(data: bytes, at: int) -> bytes:
    """Unpack what begins at an offset, up to the first reference that leads nowhere: where the data ends is not said.

    Eight items follow one byte of flags, the lowest bit first: a byte where the bit is set, else a distance behind
    the end of an earlier match and its length less three, in two or three bytes.
    """
    out = bytearray()
    end = len(data) - 3
    while at < end and len(out) < MAX_TABLE:
        flags = data[at] | 0xFF00
        at += 1
        while flags & 0x100 and at < end:
            if flags & 1:
                out.append(data[at])
                at += 1
            else:
                low, high = data[at], data[at + 1]
                at += 2
                if not low & 0x80:
                    distance, length = low, high
                elif not high & 0x80:
                    distance, length = 0x80 + (((high << 2) & 0x180) | (low & 0x7F)), high & 0x1F
                else:
                    distance, length = 0x80 + ((high & 0x7F) << 7 | (low & 0x7F)), data[at]
                    at += 1
                length += 3
                start = len(out) - distance - length
                if start < 0:
                    return bytes(out)
                out += out[start : start + length]
            flags >>= 1
    return bytes(out)
