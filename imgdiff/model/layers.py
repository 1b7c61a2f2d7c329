"""Layers as an image has them, and as they are indexed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Protocol, Self

import msgspec

from imgdiff.model.blindspots import Blindspot


class Descriptor(msgspec.Struct, frozen=True):
    """What a manifest says of a blob (OCI image spec, "Content Descriptors"); ``size`` in bytes, -1 if not stated."""

    media_type: str
    digest: str
    size: int


class Layer(msgspec.Struct, frozen=True):
    """One layer of an image.

    ``open`` gives the blob as stored, from its first byte; each call opens it anew. ``diff_id`` is the digest of
    the uncompressed tar, from the config; None where nothing states it. ``directory`` is set instead for a plain
    root file system, which is walked and has no blob (``open`` then raises). ``remote`` is set where opening it moves
    bytes over a network: where two layers have one content, the other one is read. ``stream`` is set where the layer
    comes cheaply only with others, in an order that is not ours to choose; ``open`` then costs the whole stream.
    ``kept`` is set where there is no blob but the index that was made of it, in a snapshot (``open`` then raises).
    ``annotations`` are those of the manifest's descriptor. ``parts`` is set where a part of the blob can be asked for.
    """

    descriptor: Descriptor | None
    diff_id: str | None
    open: Callable[[], BinaryIO]
    directory: Path | None = None
    remote: bool = False
    stream: LayerStream | None = None
    kept: Callable[[], LayerIndex] | None = None
    annotations: Mapping[str, str] = {}
    parts: Callable[[], BlobParts] | None = None


class BlobParts(Protocol):
    """Parts of one blob as stored, over one connection. A context manager; for one thread."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the connection."""

    def open(self, offset: int, length: int) -> BinaryIO:
        """Return the ``length`` bytes (at least one) at ``offset`` as a stream, to be closed before the next is opened.

        Opening and reading raise RangeRefusedError where the place gives whole blobs only, BlobError where the blob is
        not there or has another size, ServiceError where it can't be reached.
        """


class LayerStream(Protocol):
    """Layers that come in one stream, as an engine saves its images: each is read as it passes, or not at all."""

    @property
    def key(self) -> Hashable:
        """What is equal for streams that can come as one."""

    @property
    def diff_ids(self) -> Collection[str]:
        """The diffIDs of the image's layers."""

    def read(self, wanted: Collection[str], others: Sequence[LayerStream]) -> Generator[Layer, None, None]:
        """Yield layers as they pass, of this stream and of ``others`` of its key, those known not to be wanted left
        out. ``wanted`` are diffIDs; the caller takes away what it has, and nothing is read once none is left.

        A layer without diffID may be one that is wanted: whoever reads it finds out. Each is to be read before the
        next is asked for; opening it once more costs another stream. Raises ServiceError where the engine fails.
        """

    def stop(self) -> None:
        """Give up: whoever waits for the stream gets an ImgdiffError at once. May be called by any thread."""


FileType = Literal["file", "dir", "symlink", "hardlink", "char", "block", "fifo"]


class FileEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One member of a layer, or one name of the merged file system.

    ``mtime`` is in nanoseconds since the epoch. ``digest`` is the SHA-256 of a regular file's content (of the
    expanded content for sparse members) and None for all else. ``link_target`` is a symlink's text or, in a layer,
    a hard link's target path. In a :class:`Tree` no entry has type ``hardlink``: each name carries its inode's
    content. ``mode`` holds the permission bits only (``0o7777``). ``size`` is in bytes and 0 for all but files.
    ``device`` is the (major, minor) of a char or block device, else None.
    """

    path: bytes
    type: FileType
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int
    digest: bytes | None = None
    link_target: bytes | None = None
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    device: tuple[int, int] | None = None


class PycStamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Header of a ``.pyc`` (PEP 552, 16 bytes) and the SHA-256 of the marshalled body behind it."""

    header: bytes
    body: bytes


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a file's content lies in a blob, compressed: ``length`` bytes at ``offset`` hold its ``size`` bytes, behind
    ``inner`` bytes of something else."""

    offset: int
    length: int
    inner: int
    size: int


class BelievedContents(msgspec.Struct, frozen=True):
    """A layer's table of contents that was believed: its ``digest``, as the manifest states it, and the ``blob``'s.

    ``places`` has where each content lies in that blob, by its SHA-256. ``hashed`` counts the regular files whose
    content was read and held against the table (of several copies one), ``unhashed`` those of which just the table
    tells.
    """

    digest: str
    blob: str
    places: dict[bytes, Place]
    hashed: int
    unhashed: int


class LayerIndex(msgspec.Struct, frozen=True):
    """What one layer holds, in archive order, duplicates included (the last wins, but a hard link in between keeps
    the earlier inode).

    ``whiteouts`` are the paths that the layer hides in lower layers, ``opaques`` the directories whose lower
    content it hides. ``stamps`` has the :class:`PycStamp` of each ``.pyc`` by its digest. ``blindspots`` is what
    could not be read (names leading out of the root among them). ``size`` is the bytes of the uncompressed tar (0
    where it was not read). ``believed`` is set where the layer was not read to its end: then nothing of it was held
    against its diffID.
    """

    diff_id: str
    entries: tuple[FileEntry, ...]
    whiteouts: tuple[bytes, ...] = ()
    opaques: tuple[bytes, ...] = ()
    stamps: dict[bytes, PycStamp] = {}
    blindspots: tuple[Blindspot, ...] = ()
    size: int = 0
    believed: BelievedContents | None = None


class Texts(Protocol):
    """Content of small files by digest: what the indexing pass kept."""

    def get(self, digest: bytes) -> bytes | None:
        """Return the content with this SHA-256, or None if it was not kept."""
