"""Named files of an image on disk, whichever way they are held: a directory here, an archive in ``_tar``."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from imgdiff.errors import BlobError, ImageError
from imgdiff.sources._text import shown

JSON_LIMIT = 16 * 1024 * 1024  # bytes; registries take manifests up to 4 MiB, configs with a long history are larger

Opener = Callable[[], BinaryIO]


class Files(Protocol):
    """Regular files by name (``blobs/sha256/...``), links inside followed, none outside.

    All methods raise :class:`ImageError` where a name is there but is no regular file, can't be read, or is a link
    that leads out.
    """

    @property
    def where(self) -> str:
        """The path on disk, ready for a sentence."""

    def size(self, name: str) -> int | None:
        """Return the file's size in bytes, or None if there is none of this name."""

    def opener(self, name: str) -> Opener:
        """Return what opens the file anew on each call, at its first byte; raise BlobError if there is none."""


def read_whole(files: Files, name: str, limit: int = JSON_LIMIT) -> bytes:
    """Return the content of a small file; raise ImageError above ``limit`` bytes and BlobError where it is missing."""
    size = files.size(name)
    if size is not None and size > limit:
        raise ImageError(f"{shown(name)} in {files.where} is {size} bytes long, which no manifest or config is")
    try:
        with files.opener(name)() as stream:
            return stream.read(limit)
    except OSError as error:
        raise ImageError(f"{shown(name)} in {files.where} can't be read: {reason(error)}") from error


def reason(error: OSError) -> str:
    """Return the system's words for what went wrong."""
    return (error.strerror or type(error).__name__).lower()


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; raise ImageError for all else (a FIFO would wait forever)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ImageError(f"{shown(str(path))} can't be read: {reason(error)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ImageError(f"{shown(str(path))} is no regular file")
    return os.fdopen(descriptor, "rb")


class DirectoryFiles:
    """The files below one directory. A link that leads out of it is refused: what an image holds lies inside."""

    def __init__(self, root: Path) -> None:
        self.where = shown(str(root))
        self._root = root
        self._real = os.path.realpath(root)

    def size(self, name: str) -> int | None:
        """Return the size of a regular file in bytes, None where there is nothing."""
        path = self._path(name)
        if path is None:
            return None
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ImageError(f"{shown(name)} in {self.where} can't be read: {reason(error)}") from error
        if not stat.S_ISREG(status.st_mode):
            raise ImageError(f"{shown(name)} in {self.where} is no regular file")
        return status.st_size

    def opener(self, name: str) -> Opener:
        """Return what opens the file; raise BlobError where there is none."""
        path = self._path(name)
        if path is None:
            raise BlobError(f"{self.where} lacks {shown(name)}")
        return partial(open_regular, path)

    def _path(self, name: str) -> Path | None:
        """Return the canonical path under a name; None for a name that can't be one or is not there."""
        try:
            real = os.path.realpath(self._root / name, strict=True)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None  # ValueError: a NUL byte in a name
        except OSError as error:
            raise ImageError(f"{shown(name)} in {self.where} can't be read: {reason(error)}") from error
        if not real.startswith(self._real.rstrip(os.sep) + os.sep):
            raise ImageError(
                f"{shown(name)} in {self.where} leads out of the directory",
                "if it is a link, copy the directory with its links followed: cp -rL",
            )
        return Path(real)
