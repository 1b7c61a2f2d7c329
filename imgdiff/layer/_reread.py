"""Reading whole files of a layer again, for what needs more of them than the indexing pass kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from typing import BinaryIO

from imgdiff.errors import BlobError, RangeRefusedError
from imgdiff.layer._archive import REGULAR, Archive, Member
from imgdiff.layer._blob import label
from imgdiff.layer._header import TarError
from imgdiff.layer._names import clean
from imgdiff.layer._parts import read_places
from imgdiff.layer._sparse import MAX_HOLES
from imgdiff.layer._tape import Tape
from imgdiff.layer._toc_entries import EMPTY
from imgdiff.layer._trust import Trust, places
from imgdiff.model import BelievedContents, Layer
from imgdiff.scratch import scratch_file


def read_contents(
    layer: Layer,
    wanted: Collection[bytes] | Mapping[bytes, bytes] | Mapping[bytes, bytes | None],
    believed: BelievedContents | None = None,
    trust: Trust | None = None,
) -> Iterator[tuple[bytes, BinaryIO]]:
    """Stream one layer again and yield (path, content) of the regular files at the wanted paths.

    The content is an anonymous temporary file, at its start, open until the next one is asked for.

    With a mapping of paths to SHA-256, the member with that digest is meant where several have one name; it is
    yielded as soon as it has passed, and the rest of the layer is not read once all have: what the digest fits is
    right, whatever follows. Raises BlobError if one is not there any more.

    With plain paths (or None for a digest), the last member of that name is meant; all are yielded at the end, when
    blob and diffID are verified. Paths that are not there as regular files are left out.

    With ``believed``, the table of contents that the layer was indexed by, only the parts of the blob are read that
    hold what is wanted, if a digest is given for each path. With ``trust``, that is tried for a layer that was read
    whole, too: what its table says of places is then held against digests that were found out.
    """
    digests: Mapping[bytes, bytes | None] = wanted if isinstance(wanted, Mapping) else dict.fromkeys(wanted)
    if not digests:
        return iter(())
    if layer.directory is not None:
        return read_directory(os.fsencode(layer.directory), digests)
    stated = {path: digest for path, digest in digests.items() if digest is not None}
    if layer.parts is not None and layer.descriptor is not None and len(stated) == len(digests):
        if believed is not None and layer.descriptor.digest == believed.blob:
            return _from_parts(layer, believed, stated)
        if believed is None and trust is not None:
            return _by_table(layer, stated)
    return _from_archive(layer, digests)


def _by_table(layer: Layer, digests: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, BinaryIO]]:
    """Read files of a layer that was read whole before, by its table of contents if that is good for it."""
    left = dict(digests)
    table = places(layer)
    if table is not None and all(digest in table.places or digest == EMPTY for digest in digests.values()):
        try:
            for path, file in read_places(layer, table, digests):
                del left[path]
                yield path, file
        except (BlobError, RangeRefusedError):  # the layer was what its digest says: the table is not
            yield from _from_archive(layer, left)
    else:
        yield from _from_archive(layer, left)


def _from_parts(
    layer: Layer, believed: BelievedContents, digests: Mapping[bytes, bytes]
) -> Iterator[tuple[bytes, BinaryIO]]:
    left = dict(digests)
    try:
        for path, file in read_places(layer, believed, digests):
            del left[path]
            yield path, file
    except RangeRefusedError:  # it took them before, and the layer is there whole
        yield from _from_archive(layer, left)


def _from_archive(layer: Layer, digests: Mapping[bytes, bytes | None]) -> Iterator[tuple[bytes, BinaryIO]]:
    left = {path for path, digest in digests.items() if digest is not None}
    last: dict[bytes, BinaryIO] = {}
    whole = len(left) < len(digests)
    try:
        with Tape(layer, lambda _: None) as tape:
            archive = Archive(tape)
            for member in archive:
                path = clean(member.header.name)[0]
                if path not in digests or member.header.kind not in REGULAR:
                    continue
                digest = digests[path]
                if member.real - member.stored > MAX_HOLES or (digest is not None and path not in left):
                    continue
                file, found = _copy(archive, member)
                if digest is None:
                    if path in last:
                        last[path].close()
                    last[path] = file
                    continue
                with file:
                    if found == digest:
                        left.remove(path)
                        yield path, file
                if not left and not whole:
                    return
            tape.finish()
        if left:
            raise _gone(layer, min(left))
        for path in sorted(last):
            yield path, last[path]
            last[path].close()
    except TarError as error:
        raise BlobError(f"The archive in {label(layer)} {error}.", "It changed since it was indexed.") from error
    finally:
        for file in last.values():
            file.close()


def _copy(archive: Archive, member: Member) -> tuple[BinaryIO, bytes]:
    file = scratch_file()  # closed by who asked for it
    hasher = hashlib.sha256()
    try:
        for piece in archive.pieces(member):
            hasher.update(piece)
            file.write(piece)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file, hasher.digest()


def read_directory(
    root: bytes, digests: Mapping[bytes, bytes] | Mapping[bytes, bytes | None]
) -> Iterator[tuple[bytes, BinaryIO]]:
    """The same for a plain directory."""
    for path in sorted(digests):
        digest = digests[path]
        full = root + b"/" + path
        try:
            file = os.fdopen(os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        except OSError as error:
            if digest is None:
                continue
            raise BlobError(f"{os.fsdecode(full)} can't be read any more: {error.strerror}.") from error
        with file:
            if digest is not None:
                if hashlib.file_digest(file, "sha256").digest() != digest:
                    raise BlobError(f"{os.fsdecode(full)} changed since it was indexed.", "Compare a tree that rests.")
                file.seek(0)
            yield path, file


def _gone(layer: Layer, path: bytes) -> BlobError:
    name = path.decode("utf-8", "backslashreplace")
    return BlobError(f"The {label(layer)} has no file {name!r} with the content that was indexed.")
