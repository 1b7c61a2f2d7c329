"""The files of a tar archive, read where they lie: headers are scanned once, nothing is unpacked.

A gzip archive can be read from many places too: while its headers are scanned, the state of the decompressor is kept
every 64 MiB, and a member is read from the nearest state before it (32 KiB of window each, so some 14 MB for an
archive of 20 GB). That needs a decompressor that can be copied, which zlib's can and isal's can't.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec

from imgdiff.errors import BlobError, ImageError, UnknownReferenceError
from imgdiff.sources._files import Opener, open_regular, reason
from imgdiff.sources._text import shown

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK = 512
GZIP = b"\x1f\x8b"
MAX_LINKS = 40
MAX_MEMBERS = 1_000_000  # an image archive has some thousand at most
MAX_HEADER = 1024 * 1024  # bytes of one long name or PAX header
STATE_EVERY = 64 * 1024 * 1024  # uncompressed bytes between two kept states
CHUNK = 256 * 1024

_REFUSED = {
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -d"),
    b"\xfd7zXZ\x00": ("xz", "xz -d"),
    b"BZh": ("bzip2", "bzip2 -d"),
}


class _Member(msgspec.Struct, frozen=True):
    """A regular file at ``offset`` of ``size`` bytes, or a link to the normalised name ``target`` (None: leads out)."""

    regular: bool
    offset: int = 0
    size: int = 0
    target: str | None = None


# --------------------------------------------------------------------------------------------------------------------
# Reading at an offset
# --------------------------------------------------------------------------------------------------------------------


class _State(msgspec.Struct, frozen=True):
    """Where a decompressor stood: its next compressed and uncompressed byte."""

    compressed: int
    uncompressed: int
    decoder: Any  # zlib's decompressobj, which has no public type


class States:
    """The kept states of one gzip file, in order. A pickled copy is empty: the states can't travel, reading can."""

    def __init__(self) -> None:
        self._states: list[_State] = []

    def __reduce__(self) -> tuple[type[States], tuple[()]]:
        return (States, ())

    def keep(self, state: _State) -> None:
        """Keep a state that lies far enough behind the last one."""
        last = self._states[-1].uncompressed if self._states else 0
        if state.uncompressed - last >= STATE_EVERY:
            self._states.append(_State(state.compressed, state.uncompressed, state.decoder.copy()))

    def before(self, position: int) -> _State | None:
        """Return the last state at or before an uncompressed position; its decoder is to be copied, not used."""
        index = bisect_right(self._states, position, key=lambda state: state.uncompressed)
        return self._states[index - 1] if index else None


class Inflated(io.RawIOBase):
    """A gzip file's uncompressed bytes, seekable (RFC 1952: members follow each other, zero padding may follow).

    Raises ImageError where the data is damaged or ends early. Checksums of gzip members are checked by zlib at their
    ends; what comes from the middle is checked by the digests of the image.
    """

    def __init__(self, path: Path, states: States, keep: bool = False) -> None:
        self._path = path
        self._file = open_regular(path)
        self._states = states
        self._keep = keep
        self._start(None)

    def _start(self, state: _State | None) -> None:
        self._decoder = zlib.decompressobj(wbits=31) if state is None else state.decoder.copy()
        self._compressed = 0 if state is None else state.compressed
        self._position = 0 if state is None else state.uncompressed
        self._file.seek(self._compressed)
        self._input = b""
        self._buffer = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            raise io.UnsupportedOperation("the end of a gzip file is not known")
        goal = offset + (self._position if whence == io.SEEK_CUR else 0)
        if goal == self._position:
            return goal
        state = self._states.before(goal)
        if goal < self._position or (state is not None and state.uncompressed > self._position + len(self._buffer)):
            self._start(state)
        while self._position < goal and self._fill():
            step = min(goal - self._position, len(self._buffer))
            self._buffer = self._buffer[step:]
            self._position += step
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        if not len(view) or not self._fill():
            return 0
        count = min(len(view), len(self._buffer))
        view[:count] = self._buffer[:count]
        self._buffer = self._buffer[count:]
        self._position += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()

    def _fill(self) -> bool:
        """Make sure that there are bytes to give; False at the end."""
        while not self._buffer and not self._ended:
            if not self._input:
                self._input = self._file.read(CHUNK)
                if not self._input:
                    raise ImageError(
                        f"the gzip archive {shown(str(self._path))} ends early", "the file is cut short: copy it again"
                    )
            before = len(self._input)
            try:
                data = self._decoder.decompress(self._input, CHUNK)
            except zlib.error as error:
                raise ImageError(f"the gzip archive {shown(str(self._path))} is damaged ({error})") from error
            self._input = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
            self._compressed += before - len(self._input)
            self._buffer = memoryview(data)
            if self._decoder.eof:
                self._next_member()
            elif self._keep:
                self._states.keep(_State(self._compressed, self._position + len(data), self._decoder))
        return bool(self._buffer)

    def _next_member(self) -> None:
        """Go on behind the end of a gzip member: another member, or zero padding up to the end of the file."""
        while True:
            rest = self._input.lstrip(b"\0")
            self._compressed += len(self._input) - len(rest)
            self._input = rest or self._file.read(CHUNK)
            if rest or not self._input:
                break
        if not self._input:
            self._ended = True
            return
        self._decoder = zlib.decompressobj(wbits=31)


class _Slice(io.RawIOBase):
    """The bytes of a plain file from ``start`` on, ``size`` of them."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file = file
        self._start = start
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._position)]
        if not len(view):
            return 0
        self._file.seek(self._start + self._position)
        count = cast("io.RawIOBase", self._file).readinto(view) or 0
        self._position += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_plain(path: Path, offset: int, size: int) -> BinaryIO:
    return io.BufferedReader(_Slice(open_regular(path), offset, size))


def _open_gzip(path: Path, states: States, offset: int, size: int) -> BinaryIO:
    return io.BufferedReader(_Slice(cast("BinaryIO", Inflated(path, states)), offset, size))


# --------------------------------------------------------------------------------------------------------------------
# The archive
# --------------------------------------------------------------------------------------------------------------------


class _Headers(io.RawIOBase):
    """What tarfile reads headers from: a read longer than any honest header is refused, not granted in memory."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file = file
        self._where = where

    def read(self, size: int = -1, /) -> bytes:
        if size < 0 or size > MAX_HEADER:
            raise ImageError(f"a header in the archive {self._where} claims to be {size} bytes long")
        parts = []
        while size and (part := self._file.read(size)):  # a raw file may give less than it is asked for
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def is_archive(path: Path) -> bool:
    """Tell by its first bytes whether a file may be an image archive: gzip, or a tar header. Raises ImageError for a
    compression that is known and not read (zstd, xz, bzip2)."""
    with open_regular(path) as file:
        head = file.read(BLOCK)
    for magic, (name, command) in _REFUSED.items():
        if head.startswith(magic):
            raise ImageError(
                f"{shown(str(path))} is compressed with {name}; archives are read plain or with gzip",
                f"decompress it first: {command} {shown(str(path))}",
            )
    if head.startswith(GZIP):
        return True
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


class ArchiveFiles:
    """The regular files of one tar archive, plain or gzip, by normalised name; the last of several equal names counts.

    Links are followed inside the archive. Names with ``..`` name nothing. Raises ImageError for a damaged archive and
    UnknownReferenceError where the gzip file holds no tar.
    """

    def __init__(self, path: Path) -> None:
        self.where = shown(str(path))
        self._path = path
        self._members: dict[str, _Member] = {}
        with open_regular(path) as file:
            self._states = States() if file.read(2) == GZIP else None
        if self._states is None:
            source = open_regular(path)
        else:
            source = cast("BinaryIO", Inflated(path, self._states, keep=True))
        with source:
            self._scan(source)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def size(self, name: str) -> int | None:
        """Return the size of a regular file in bytes, None where there is none of this name."""
        member = self._resolve(name)
        return None if member is None else member.size

    def opener(self, name: str) -> Opener:
        """Return what opens the member; raise BlobError where there is none."""
        member = self._resolve(name)
        if member is None:
            raise BlobError(f"{self.where} lacks {shown(name)}")
        if self._states is None:
            return partial(_open_plain, self._path, member.offset, member.size)
        return partial(_open_gzip, self._path, self._states, member.offset, member.size)

    def _resolve(self, name: str) -> _Member | None:
        start = name
        for _ in range(MAX_LINKS):
            member = self._members.get(name)
            if member is None or member.regular:
                return member
            if member.target is None:
                raise ImageError(f"{shown(start)} in {self.where} is a link that leads out of the archive")
            name = member.target
        raise ImageError(f"{shown(start)} in {self.where} is a link that never ends")

    def _scan(self, file: BinaryIO) -> None:
        headers = cast("BinaryIO", _Headers(file, self.where))
        try:
            with tarfile.TarFile(fileobj=headers, encoding="utf-8", errors="surrogateescape") as archive:
                for count, info in enumerate(iter(archive.next, None)):
                    if count >= MAX_MEMBERS:
                        raise ImageError(
                            f"{self.where} holds more than {MAX_MEMBERS} files, which no image archive does"
                        )
                    self._add(info)
                    cast("Any", archive).members = []  # tarfile would keep them all
                end = archive.offset
            self._check_end(file, end)
        except tarfile.ReadError as error:
            if not self._members:
                raise UnknownReferenceError(f"{self.where} is no tar archive ({shown(str(error))})") from error
            raise ImageError(f"the archive {self.where} is damaged or cut short ({shown(str(error))})") from error
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise ImageError(f"the archive {self.where} has a broken header ({shown(str(error))})") from error
        except OSError as error:
            raise ImageError(f"{self.where} can't be read: {reason(error)}") from error

    def _check_end(self, file: BinaryIO, end: int) -> None:
        """Raise ImageError unless the headers end with a block of zeros or with the file: tarfile ends at rubbish."""
        file.seek(end)
        block = file.read(BLOCK)
        if block.strip(b"\0"):
            raise ImageError(f"the archive {self.where} is damaged: there is no header at byte {end}")

    def _add(self, info: tarfile.TarInfo) -> None:
        name = _normal(info.name)
        if name is None or not (info.isreg() or info.issym() or info.islnk()):
            return
        if info.issym():
            target = None if info.linkname.startswith("/") else posixpath.join(posixpath.dirname(name), info.linkname)
            self._members[name] = _Member(regular=False, target=None if target is None else _inside(target))
        elif info.islnk():
            self._members[name] = _Member(regular=False, target=_normal(info.linkname))
        elif info.sparse is None:
            self._members[name] = _Member(regular=True, offset=info.offset_data, size=info.size)


def _normal(name: str) -> str | None:
    """Return a member's name without ``./`` and leading slashes; None if it holds ``..`` or is nothing."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if not parts or ".." in parts else "/".join(parts)


def _inside(path: str) -> str | None:
    """Return a link's target as a normalised name; None if it leads out of the archive."""
    return _normal(posixpath.normpath(path))
