"""A plain root file system as one layer: walked without following links, each file hashed."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from imgdiff.compression import CHUNK
from imgdiff.errors import ImageError
from imgdiff.layer._content import ContentReader
from imgdiff.layer._reread import read_directory
from imgdiff.model import Blindspot, FileEntry, FileType, LayerIndex
from imgdiff.store import Store

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a name may turn into a link or a pipe


_NO_XATTRS: Final = (errno.ENOTSUP, errno.ENODATA, errno.ENOENT)  # no such file system, or gone a moment ago
_KINDS: Final[dict[int, FileType]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "symlink",
    stat.S_IFCHR: "char",
    stat.S_IFBLK: "block",
    stat.S_IFIFO: "fifo",
}


class _Found(msgspec.Struct, gc=False):
    path: bytes
    status: os.stat_result


def index_directory(root: Path, store: Store, advance: Callable[[int], None]) -> LayerIndex:
    """Index a directory tree: every name with its attributes, every file hashed, entries sorted by path.

    What can't be read is a blindspot, and so is a mount below the root (a live system's /proc has no end). The
    texts that it keeps live as long as the store. ``advance`` is told the bytes of file content read. Raises
    ImageError if the root itself can't be read.
    """
    with store.writer() as writer:
        content = ContentReader(writer)
        index = _Walk(os.fsencode(root), content, advance).index()
        for wanted in content.second_read():
            for path, file in read_directory(os.fsencode(root), wanted):
                content.again(wanted[path], file)
        writer.commit(index)
    return index


class _Walk:
    def __init__(self, root: bytes, content: ContentReader, advance: Callable[[int], None]) -> None:
        self._root = root
        self._content = content
        self._advance = advance
        self._blindspots: list[Blindspot] = []
        self._names: dict[tuple[int, int], bytes] = {}

    def _blind(self, what: str, reason: str, path: bytes) -> None:
        self._blindspots.append(Blindspot(what, reason, path))

    def index(self) -> LayerIndex:
        found = sorted(self._find(), key=lambda item: item.path)
        entries = [entry for item in found if (entry := self._entry(item)) is not None]
        size = sum(entry.size for entry in entries)
        self._blindspots.sort(key=lambda blindspot: blindspot.path or b"")
        return LayerIndex("", tuple(entries), (), (), self._content.stamps, tuple(self._blindspots), size)

    def _full(self, path: bytes) -> bytes:
        return self._root + b"/" + path if path else self._root

    def _find(self) -> Iterator[_Found]:
        try:
            top = Path(os.fsdecode(self._root)).stat()  # the root itself may be named through a link
            os.scandir(self._root).close()
        except OSError as error:
            raise ImageError(
                f"The directory {os.fsdecode(self._root)} can't be read: {error.strerror}.", "Check its permissions."
            ) from error
        yield _Found(b"", top)
        pending = [b""]
        while pending:
            directory = pending.pop()
            try:
                with os.scandir(self._full(directory)) as scan:
                    names = [entry.name for entry in scan]
            except OSError as error:
                self._blind("directory", f"The directory can't be read: {error.strerror}.", directory)
                continue
            for name in names:
                path = directory + b"/" + name if directory else name
                try:
                    status = os.lstat(self._full(path))
                except OSError as error:
                    self._blind("file", f"The file can't be looked at: {error.strerror}.", path)
                    continue
                yield _Found(path, status)
                if stat.S_ISDIR(status.st_mode):
                    if status.st_dev == top.st_dev:
                        pending.append(path)
                    else:
                        self._blind("mount", "Another file system is mounted here and was not read.", path)

    def _entry(self, item: _Found) -> FileEntry | None:
        path, status = item.path, item.status
        kind = _kind(status.st_mode)
        if kind is None:
            self._blind("socket", "A socket holds nothing that could be compared.", path)
            return None
        size = 0
        digest: bytes | None = None
        link: bytes | None = None
        device = (os.major(status.st_rdev), os.minor(status.st_rdev)) if kind in ("char", "block") else None
        if status.st_nlink > 1 and kind != "dir":
            first = self._names.setdefault((status.st_dev, status.st_ino), path)
            if first != path:
                kind, link, device = "hardlink", first, None
        if kind == "file":
            size, digest = self._hash(path, status)
        elif kind == "symlink":
            try:
                link = os.readlink(self._full(path))  # noqa: PTH115 -- pathlib has no paths of bytes
            except OSError as error:
                self._blind("symlink", f"The link can't be read: {error.strerror}.", path)
        return FileEntry(
            path,
            kind,
            stat.S_IMODE(status.st_mode),
            status.st_uid,
            status.st_gid,
            status.st_mtime_ns,
            size,
            digest,
            link,
            self._xattrs(path, kind),
            device,
        )

    def _xattrs(self, path: bytes, kind: FileType) -> tuple[tuple[bytes, bytes], ...]:
        if kind == "hardlink":
            return ()
        full = self._full(path)
        try:
            names = os.listxattr(full, follow_symlinks=False)
            pairs = [(os.fsencode(name), os.getxattr(full, name, follow_symlinks=False)) for name in names]
        except OSError as error:
            if error.errno not in _NO_XATTRS:
                self._blind("xattrs", f"The extended attributes can't be read: {error.strerror}.", path)
            return ()
        return tuple(sorted(pairs))

    def _hash(self, path: bytes, status: os.stat_result) -> tuple[int, bytes | None]:
        try:
            with os.fdopen(os.open(self._full(path), _OPEN), "rb", buffering=0) as file:
                before = os.fstat(file.fileno())
                if _identity(before) == _identity(status):
                    pieces = _Pieces(file, before.st_size, self._advance)
                    digest = self._content.pieces(path, before.st_size, pieces)
                    if pieces.count == before.st_size and _identity(os.fstat(file.fileno())) == _identity(before):
                        return before.st_size, digest
        except OSError as error:
            self._blind("file", f"The file can't be read: {error.strerror}.", path)
        else:
            self._blind("file", "The file changed while it was read.", path)
        return status.st_size, None


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mode, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class _Pieces:
    """The content of a file in pieces, no more than its size (a log can grow faster than one reads it)."""

    def __init__(self, file: io.RawIOBase, size: int, advance: Callable[[int], None]) -> None:
        self._file = file
        self._size = size
        self._advance = advance
        self.count = 0

    def __iter__(self) -> Iterator[memoryview]:
        return self

    def __next__(self) -> memoryview:
        data = self._file.read(min(CHUNK, self._size - self.count))
        if not data:
            raise StopIteration
        self.count += len(data)
        self._advance(len(data))
        return memoryview(data)


def _kind(mode: int) -> FileType | None:
    """Return the type that the bits of st_mode say; None for a socket."""
    return _KINDS.get(stat.S_IFMT(mode))
