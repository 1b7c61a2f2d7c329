"""The members of a tar, in order, with their content: headers, long names and PAX records put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from imgdiff.compression import algorithm_of
from imgdiff.layer import _pax, _sparse
from imgdiff.layer._header import BLOCK, ZERO_BLOCK, Header, TarError, checksum_fits, parse, text
from imgdiff.layer._tape import Tape

REGULAR: Final = b"0\x007S"  # 7 is a contiguous file, S an old GNU sparse one
MAX_EXTENDED: Final = 1 << 20  # bytes of a long name or a PAX header, as in Go's reader
_BODILESS: Final = b"123456"  # links, devices, directories, pipes: a size in their header counts for nothing
_GLOBAL_HARMLESS: Final = (b"comment", b"charset", b"hdrcharset")


class Member(msgspec.Struct, gc=False):
    """One member. ``header`` has what long names and PAX records override already, ``real`` the size of the content
    in bytes and ``stored`` how much of it is in the archive; ``parts`` is set for sparse files. ``doubt`` is a
    sentence where readers of tar differ over this member."""

    header: Header
    xattrs: tuple[tuple[bytes, bytes], ...]
    real: int
    stored: int
    parts: list[tuple[int, int]] | None = None
    doubt: str | None = None


class Archive:
    """Reads members from a tape. Iterate over it, and take each member's content before the next member."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._left = 0  # bytes of the current member that nobody took
        self.doubts: list[str] = []  # sentences on what concerns no single member
        self.marked = False  # whether the end-of-archive blocks were there

    def __iter__(self) -> Iterator[Member]:
        """Yield the members up to the end of the archive. Raises TarError, and BlobError from the tape."""
        tape = self._tape
        long_name = long_link = b""
        extended: _pax.Records = {}
        while block := self._header():
            header = parse(block)
            kind = header.kind
            if kind == b"L":
                long_name = text(self._extension(header))
            elif kind == b"K":
                long_link = text(self._extension(header))
            elif kind in b"xX" and kind:
                extended = _pax.records(self._extension(header))
            elif kind == b"g":
                self._global(_pax.records(self._extension(header)))
            else:
                xattrs = _pax.merge(header, extended) if extended else ()
                header.name = long_name or header.name
                header.link = long_link or header.link
                member = self._member(header, block, extended, xattrs)
                self._left = member.stored
                yield member
                if self._left:
                    tape.skip(self._left)
                    tape.skip(-self._left % BLOCK, strict=False)
                long_name = long_link = b""
                extended = {}

    def whole(self, member: Member) -> memoryview | None:
        """Return a member's content in one piece where that is cheap; it holds until the next member."""
        if member.parts is not None:
            return None
        view = self._tape.whole(member.stored)
        if view is not None:
            self._left = 0
        return view

    def pieces(self, member: Member) -> Iterator[memoryview]:
        """Yield a member's content in pieces, holes of sparse files filled; each holds until the next."""
        self._left = 0
        data = self._tape.pieces(member.stored)
        return data if member.parts is None else _sparse.expand(data, member.parts, member.real)

    def _header(self) -> bytes:
        """Return the next header block, none at the end of the archive."""
        start = self._tape.offset
        block = self._tape.block()
        if not block:
            return b""
        if block == ZERO_BLOCK:
            second = self._tape.block()
            if second and second != ZERO_BLOCK:
                raise TarError(f"has a lone block of zeros at byte {start} and goes on behind it")
            self.marked = bool(second)
            return b""
        if not checksum_fits(block):
            raise TarError(_no_header(block, start))
        return block

    def _extension(self, header: Header) -> bytes:
        if header.size > MAX_EXTENDED:
            raise TarError(f"has an extended header of {header.size} bytes")
        return b"".join(map(bytes, self._tape.pieces(header.size)))

    def _global(self, records: _pax.Records) -> None:
        telling = sorted(key.decode("ascii", "replace") for key in records if key not in _GLOBAL_HARMLESS)
        if telling:
            self.doubts.append(
                f"A global PAX header sets {', '.join(telling)} for all members behind it; container engines ignore "
                "it, as imgdiff does, and tar does not."
            )

    def _member(
        self, header: Header, block: bytes, extended: _pax.Records, xattrs: tuple[tuple[bytes, bytes], ...]
    ) -> Member:
        kind = header.kind
        if kind == b"\0" and header.name.endswith(b"/"):
            kind = header.kind = b"5"  # how archives older than ustar spell a directory
        if kind in _BODILESS and header.size:
            return self._with_body(header, xattrs)
        if kind in _BODILESS:
            return Member(header, xattrs, 0, 0)
        size = header.size
        if kind == b"S":
            real, parts = _sparse.old_gnu(self._tape, block)
            _sparse.check(parts, real, size)
            return Member(header, xattrs, real, size, parts)
        if extended and kind in REGULAR:
            sparse = _sparse.pax(self._tape, extended, size)
            if sparse is not None:
                real, stored, parts, name = sparse
                _sparse.check(parts, real, stored)
                header.name = name or header.name
                return Member(header, xattrs, real, stored, parts)
        return Member(header, xattrs, size, size)

    def _with_body(self, header: Header, xattrs: tuple[tuple[bytes, bytes], ...]) -> Member:
        """A link or directory whose header has a size. Engines take no body; old writers put sizes of the target
        there without one; pax -o linkdata puts the body there. The next block tells which: a header or the end."""
        following = self._tape.peek()
        if not following or following == ZERO_BLOCK or (len(following) == BLOCK and checksum_fits(following)):
            return Member(header, xattrs, 0, 0)
        return Member(
            header,
            xattrs,
            0,
            header.size,
            doubt="The member is a link, device or directory and has content of its own, which engines refuse.",
        )


def _no_header(block: bytes, start: int) -> str:
    if start:
        return f"has no valid header at byte {start}"
    for magic, name in ((b"BZh", "bzip2"), (b"\xfd7zXZ", "xz"), (b"PK\x03\x04", "zip"), (b"\x04\x22\x4d\x18", "lz4")):
        if block.startswith(magic):
            return f"is no tar but looks like {name}, which no image layer may be"
    if algorithm_of(block) != "plain":
        return "is compressed twice"
    return "is no tar"
