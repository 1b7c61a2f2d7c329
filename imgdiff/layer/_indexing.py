"""The indexing pass over one layer: one stream, every byte verified, every file hashed."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Final

from imgdiff.errors import BlobError
from imgdiff.layer._archive import REGULAR, Archive, Member
from imgdiff.layer._blob import label
from imgdiff.layer._content import RULES, ContentReader
from imgdiff.layer._header import TarError
from imgdiff.layer._names import clean, whiteout
from imgdiff.layer._reread import read_contents
from imgdiff.layer._sparse import MAX_HOLES
from imgdiff.layer._tape import Tape
from imgdiff.model import Blindspot, FileEntry, FileType, Layer, LayerIndex
from imgdiff.store import Store

_TYPES: Final[dict[bytes, FileType]] = {
    b"1": "hardlink",
    b"2": "symlink",
    b"3": "char",
    b"4": "block",
    b"5": "dir",
    b"6": "fifo",
}
_HINT: Final = "Its digests are right, so it was built so; build the image again."


def index_archive(layer: Layer, store: Store, advance: Callable[[int], None]) -> LayerIndex:
    """Read one layer from its first byte to its last and return its index, which then is in the store as well.

    ``advance`` is told the count of bytes of each read of the blob. Raises BlobError where the blob is not what the
    manifest and the config say, or holds no tar; nothing is stored then.
    """
    with store.writer(RULES) as writer:
        with Tape(layer, advance) as tape:
            content = ContentReader(writer)
            archive = Archive(tape)
            reader = _ArchiveReader(content, archive)
            try:
                for member in archive:
                    reader.member(member)
                _check_rest(tape)
            except TarError as error:
                tape.finish()  # a blob or a diffID that is wrong is the better news
                raise BlobError(f"The archive in {label(layer)} {error}.", _HINT) from error
            tape.finish()
            if not (tape.verified or archive.marked):
                raise BlobError(
                    f"The archive in {label(layer)} has no end mark, and nothing states how long it should be.",
                    "It is probably cut short; fetch or export it again.",
                )
            index = reader.index(tape.diff_id, tape.offset, archive.doubts)
        for wanted in content.second_read():
            for path, file in read_contents(layer, wanted):
                content.again(wanted[path], file)
        writer.commit(index)
    return index


def _check_rest(tape: Tape) -> None:
    """Bytes behind the end-of-archive blocks belong to the diffID, but only zeros say nothing."""
    for piece in tape.rest():
        if piece.tobytes().strip(b"\0"):
            raise TarError("has bytes behind its end that are not zero")


class LayerReader(abc.ABC):
    """Collects what the members of a layer say, wherever that stands. ``digest`` is its children's."""

    def __init__(self, content: ContentReader) -> None:
        self._content = content
        self._entries: list[FileEntry] = []
        self._whiteouts: dict[bytes, None] = {}
        self._opaques: dict[bytes, None] = {}
        self._blindspots: list[Blindspot] = []

    def index(self, diff_id: str, size: int, doubts: list[str]) -> LayerIndex:
        """Return the index of all that was collected."""
        blindspots = [*self._blindspots, *(Blindspot("layer", doubt) for doubt in doubts)]
        return LayerIndex(
            diff_id,
            tuple(self._entries),
            tuple(self._whiteouts),
            tuple(self._opaques),
            self._content.stamps,
            tuple(blindspots),
            size,
        )

    def _blind(self, what: str, reason: str, path: bytes) -> None:
        self._blindspots.append(Blindspot(what, reason, path))

    @abc.abstractmethod
    def digest(self, member: Member, path: bytes) -> bytes | None:
        """Return the SHA-256 of a regular file's content; None, and a blindspot, where it can't be told."""

    def member(self, member: Member) -> None:
        """Take one member, its content included."""
        header = member.header
        path, escaped = clean(header.name)
        if escaped:
            self._blind("member name", "The name leads out of the root; it is taken as inside, as engines do.", path)
        if member.doubt is not None:
            self._blind("member", member.doubt, path)
        if b".wh." in path and self._hides(path):
            return
        if header.kind in REGULAR:
            if path:
                self._file(member, path)
            else:
                self._blind("member", "The root directory is replaced by a file, which engines refuse.", path)
            return
        kind = _TYPES.get(header.kind)
        if kind is None:
            self._blind("member", f"The member has the unknown type {header.kind!r}.", path)
        elif path or kind == "dir":
            self._entries.append(self._entry(member, path, kind))
        else:
            self._blind("member", f"The root directory is replaced by a {kind}, which engines refuse.", path)

    def _hides(self, path: bytes) -> bool:
        hidden = whiteout(path)
        if hidden is None:
            return False
        kind, target = hidden
        if kind == "opaque":
            self._opaques[target] = None
        elif kind == "whiteout":
            self._whiteouts[target] = None
        else:
            self._blind("whiteout", "A whiteout names no file; engines differ over what it removes.", path)
        return True

    def _file(self, member: Member, path: bytes) -> None:
        header = member.header
        digest = self.digest(member, path)
        self._entries.append(
            FileEntry(
                path,
                "file",
                header.mode & 0o7777,
                header.uid,
                header.gid,
                header.mtime,
                member.real,
                digest,
                None,
                member.xattrs,
            )
        )

    def _entry(self, member: Member, path: bytes, kind: FileType) -> FileEntry:
        header = member.header
        link: bytes | None = None
        if kind == "symlink":
            link = header.link
        elif kind == "hardlink":
            link, escaped = clean(header.link)
            if escaped:
                self._blind("hard link", "The target leads out of the root; it is taken as inside.", path)
        device = (header.major, header.minor) if kind in ("char", "block") else None
        return FileEntry(
            path,
            kind,
            header.mode & 0o7777,
            header.uid,
            header.gid,
            header.mtime,
            0,
            None,
            link,
            member.xattrs,
            device,
        )


class _ArchiveReader(LayerReader):
    """Reads the members of a tar, their content included."""

    def __init__(self, content: ContentReader, archive: Archive) -> None:
        super().__init__(content)
        self._archive = archive

    def digest(self, member: Member, path: bytes) -> bytes | None:
        view = self._archive.whole(member)
        if view is not None:
            return self._content.whole(path, view)
        size = member.real
        if size - member.stored > MAX_HOLES:
            self._blind("sparse file", f"The file has {size - member.stored} bytes of holes, too many to hash.", path)
            return None
        return self._content.pieces(path, size, self._archive.pieces(member))
