"""The members of an archive of images while it streams by (POSIX ustar and pax; GNU long names).

The archives that engines write are small in members and large in bytes: headers are read one by one, and what nobody
wants is passed over.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import Final

import msgspec

from imgdiff.errors import BlobError
from imgdiff.sources._text import shown
from imgdiff.sources.daemon._engine import Engine, Stream

BLOCK: Final = 512
_MAX_EXTENDED: Final = 1 << 20  # bytes of a long name or a pax header
_PATH, _SIZE = b"path", b"size"


class Passing(msgspec.Struct):
    """A regular file that passes: its name, its size in bytes, and how many of them were not taken yet."""

    name: str
    size: int
    left: int


class Outer:
    """Iterate over it for the regular files, and take what is wanted of each before the next.

    Raises BlobError for what is no whole archive, ServiceError with the engine's own words where it put an error in
    the archive's place (docker does so once it has begun to send).
    """

    def __init__(self, stream: Stream, engine: Engine) -> None:
        self._stream = stream
        self._engine = engine
        self._member: Passing | None = None

    def __iter__(self) -> Iterator[Passing]:
        """Yield each regular file."""
        name, size = "", -1
        while block := self._header():
            try:
                header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                raise self._broken(block) from error
            if header.type in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE):
                data = self._extension(header.size)
                if header.type == tarfile.XHDTYPE:
                    name, size = _pax(data, name, size)
                elif header.type == tarfile.GNUTYPE_LONGNAME:
                    name = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
                continue
            length = header.size if size < 0 else size
            if not header.isreg():
                length = 0
            self._member = Passing(name or header.name, length, length)
            if header.isreg():
                yield self._member
            self._skip(self._member.left + -length % BLOCK)
            name, size = "", -1

    def take(self, member: Passing, buffer: memoryview) -> int:
        """Fill a part of the buffer with the next bytes of the member; 0 at its end."""
        if not member.left:
            return 0
        count = self._stream.readinto(buffer[: member.left])
        if not count:
            raise self._short()
        member.left -= count
        return count

    def _header(self) -> bytes:
        """Return the next header block; none behind the last member."""
        block = self._stream.read(BLOCK)
        if len(block) < BLOCK:
            raise self._broken(block) if block else self._short()
        return b"" if not block.strip(b"\0") else block

    def _extension(self, size: int) -> bytes:
        if size > _MAX_EXTENDED:
            raise BlobError(f"the {self._engine.address} sent an archive with a header of {size} bytes")
        data = self._stream.read(size)
        self._skip(-size % BLOCK)
        return data

    def _skip(self, size: int) -> None:
        if self._stream.skip(size):
            raise self._short()

    def _short(self) -> BlobError:
        return BlobError(
            f"the archive from the {self._engine.address} ends early",
            "the engine may have been stopped, or the image removed meanwhile: run the command again",
        )

    def _broken(self, block: bytes) -> Exception:
        if block.lstrip()[:1] == b"{":
            text = block + self._stream.read(1 << 12)
            try:
                value = msgspec.json.decode(text.strip(b"\0\r\n "))
                message = value.get("error") or value.get("message")
            except (msgspec.MsgspecError, AttributeError):
                message = text.decode("utf-8", "replace")
            return self._engine.failed(str(message))
        return BlobError(f"the archive from the {self._engine.address} is damaged: {shown(repr(block[:16]))}")


def _pax(data: bytes, name: str, size: int) -> tuple[str, int]:
    """Return the name and the size that pax records give (``LENGTH key=value`` and a newline each)."""
    while data:
        length, _, rest = data.partition(b" ")
        if not length.isdigit() or not 0 < int(length) <= len(data):
            raise BlobError("an engine's archive has a broken pax header")
        record, data = rest[: int(length) - len(length) - 2], data[int(length) :]
        key, _, value = record.partition(b"=")
        if key == _PATH:
            name = value.decode("utf-8", "surrogateescape")
        elif key == _SIZE and value.isdigit():
            size = int(value)
    return name, size
