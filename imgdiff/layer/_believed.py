"""Layers that are not read to their end: their table of contents is believed, and only those contents are fetched that
later stages look into. Each of these is held against the table's digest; the rest is the table's word alone."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from imgdiff import kinds
from imgdiff.compression import CHUNK
from imgdiff.errors import RangeRefusedError
from imgdiff.kinds import elf
from imgdiff.layer._archive import Member
from imgdiff.layer._content import RULES, ContentReader
from imgdiff.layer._indexing import LayerReader
from imgdiff.layer._parts import Advance, Wanted, check, contents, heads, read_places
from imgdiff.layer._toc import Stated, Table, UnfitError, read_table
from imgdiff.layer._toc_entries import EMPTY, Listed, parse_table
from imgdiff.layer._trust import Trust
from imgdiff.model import BelievedContents, BlobParts, FileEntry, Layer, LayerIndex, Place, Texts
from imgdiff.store import LayerWriter, Store

_SMALL: Final = 1 << 17  # bytes as stored: up to here a head is not worth a request of its own


def load_believed(layer: Layer, what: Stated, store: Store) -> LayerIndex | None:
    """Return the index that was made of a table of contents before."""
    assert layer.descriptor is not None
    assert layer.diff_id is not None
    return store.load_believed(layer.diff_id, layer.descriptor.digest, what.digest, RULES)


def index_believed(
    layer: Layer, what: Stated, store: Store, known: Known, trust: Trust, advance: Advance
) -> LayerIndex | None:
    """Index a layer by its table of contents; None, with the reason in ``trust``, where it is to be read whole.

    Raises BlobError where the table is not the one that the manifest vouches for, or a content not the one that the
    table states, and ServiceError where the registry can't be reached.
    """
    assert layer.parts is not None
    assert layer.diff_id is not None
    try:
        with layer.parts() as parts:
            return _Pass(layer, what, store, known, advance).run(parts)
    except UnfitError as error:
        trust.refused[layer.diff_id] = f"its table of contents {error}"
    except RangeRefusedError:
        trust.refused[layer.diff_id] = "its registry gives blobs whole only"
    return None


class Known:
    """What was kept of files that lie at the same path with the same content in other layers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._where: dict[tuple[bytes, bytes], int] = {}
        self._indexes: list[tuple[LayerIndex, Texts]] = []

    def add(self, index: LayerIndex) -> None:
        """Take in a layer whose index, texts and facts are in the store."""
        if not index.diff_id:
            return  # a directory's: it may change
        number = len(self._indexes)
        self._indexes.append((index, self._store.texts([index])))
        self._where.update(
            ((entry.path, entry.digest), number) for entry in index.entries if entry.digest is not None and entry.size
        )

    def copy(self, digest: bytes, paths: list[bytes], writer: LayerWriter, content: ContentReader) -> bool:
        """Take over what was kept of a content, if all its paths are known."""
        numbers = {self._where.get((path, digest), -1) for path in paths}
        if -1 in numbers:
            return False
        for number in sorted(numbers):
            index, texts = self._indexes[number]
            if digest in index.stamps:
                content.stamps[digest] = index.stamps[digest]
            text = texts.get(digest)
            if text is not None:
                writer.keep(digest, text)
        return True


class _TableReader(LayerReader):
    """Reads the members of a table of contents, which has their digests."""

    def __init__(self, content: ContentReader) -> None:
        super().__init__(content)
        self._digest: bytes | None = None

    def take(self, listed: Listed) -> None:
        self._digest = listed.digest
        self.member(listed.member)

    def digest(self, member: Member, path: bytes) -> bytes | None:  # noqa: ARG002 -- the table has it
        return self._digest


class _Pass:
    """The indexing pass over one table of contents."""

    def __init__(self, layer: Layer, what: Stated, store: Store, known: Known, advance: Advance) -> None:
        self._layer = layer
        self._what = what
        self._store = store
        self._known = known
        self._advance = advance
        self._kind = "gzip" if what.kind == "eStargz" else "zstd"
        self._hashed: set[bytes] = set()

    def run(self, parts: BlobParts) -> LayerIndex:
        table = read_table(self._layer, self._what, parts)
        listed = parse_table(table)
        with self._store.writer(RULES) as writer:
            content = ContentReader(writer)
            reader = _TableReader(content)
            for each in listed.members:
                reader.take(each)
            self._table_itself(table, reader, content, listed.places)
            assert self._layer.diff_id is not None
            entries = reader.index(self._layer.diff_id, 0, []).entries
            self._fetch(parts, self._wanted(entries, listed.places, writer, content), listed.places, content)
            believed = self._believed(entries, listed.places)
            for wanted in content.second_read():
                for path, file in read_places(self._layer, believed, wanted):
                    content.again(wanted[path], file)
            index = reader.index(self._layer.diff_id, 0, [])
            index = msgspec.structs.replace(index, believed=believed)
            writer.commit(index)
        return index

    def _table_itself(
        self, table: Table, reader: _TableReader, content: ContentReader, places: dict[bytes, Place]
    ) -> None:
        """In eStargz the table is a file of the layer, the last one."""
        if table.header is not None and table.place is not None:
            size = len(table.data)
            digest = hashlib.sha256(table.data).digest()
            reader.take(Listed(Member(table.header, (), size, size), digest))
            content.pieces(table.header.name, size, iter([memoryview(table.data)]))
            places[digest] = table.place
            self._hashed.add(digest)

    def _wanted(
        self,
        entries: tuple[FileEntry, ...],
        places: dict[bytes, Place],
        writer: LayerWriter,
        content: ContentReader,
    ) -> dict[bytes, list[bytes]]:
        """Return the paths of contents that have to be looked into, by digest, and take over what is known."""
        paths: dict[bytes, list[bytes]] = {}
        for entry in entries:
            if entry.digest == EMPTY:
                content.whole(entry.path, memoryview(b""))
            elif entry.digest in places and entry.digest not in self._hashed:
                paths.setdefault(entry.digest, []).append(entry.path)
        facts = self._store.facts("elf", elf.VERSION, paths)
        wanted: dict[bytes, list[bytes]] = {}
        for digest, names in paths.items():
            if digest in facts:
                writer.fact("elf", elf.VERSION, digest, facts[digest])
            if self._known.copy(digest, names, writer, content):
                continue
            if digest not in facts or any(name.endswith(b".pyc") for name in names):  # nothing else is kept of ELF
                wanted[digest] = names
        return wanted

    def _fetch(
        self, parts: BlobParts, wanted: dict[bytes, list[bytes]], places: dict[bytes, Place], content: ContentReader
    ) -> None:
        unsure = {digest for digest, paths in wanted.items() if not _worth(paths, places[digest])}
        items = [Wanted(digest, places[digest]) for digest in wanted if digest not in unsure]
        for item, head in heads(
            parts, [Wanted(digest, places[digest]) for digest in unsure], self._advance, self._kind
        ):
            size = item.place.size
            told = len(head) == min(size, kinds.HEAD_SIZE)
            if not told or head[:4] == b"\x7fELF" or any(kinds.kept(path, head, size) for path in wanted[item.digest]):
                items.append(item)
        for item, pieces in contents(self._layer, parts, items, self._advance):
            size = item.place.size
            if size <= CHUNK:
                view = memoryview(b"".join(pieces))
                found = {content.whole(path, view) for path in wanted[item.digest]}
            else:
                found = {content.pieces(_telling(wanted[item.digest], size), size, pieces)}
            check(self._layer, found.pop(), item.digest)
            self._hashed.add(item.digest)

    def _believed(self, entries: tuple[FileEntry, ...], places: dict[bytes, Place]) -> BelievedContents:
        assert self._layer.descriptor is not None
        files = [entry.digest for entry in entries if entry.type == "file"]
        hashed = len(self._hashed.intersection(files))  # of several copies of a content one is read
        return BelievedContents(self._what.digest, self._layer.descriptor.digest, places, hashed, len(files) - hashed)


def _worth(paths: list[bytes], place: Place) -> bool:
    """Tell whether a content is read whole at once: it is small or surely wanted, as far as paths tell."""
    if place.length <= _SMALL or place.inner:
        return True
    return any(
        kinds.kept(path, b"", place.size)
        or path.endswith(b".pyc")
        or b".so" in path.rpartition(b"/")[2]
        or path.rpartition(b"/")[0].endswith(b"bin")
        for path in paths
    )


def _telling(paths: list[bytes], size: int) -> bytes:
    """Return the path of a content under which most is kept of it."""
    return max(paths, key=lambda path: (kinds.kept(path, b"", size), path.endswith(b".pyc")))
