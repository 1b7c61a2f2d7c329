"""Contents of single files out of a compressed blob, by their places: neighbouring ones in one request."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO, Final

import msgspec

from imgdiff.compression import CHUNK, Stream, StreamError, beginning, decompressed
from imgdiff.errors import BlobError
from imgdiff.kinds import HEAD_SIZE
from imgdiff.layer._blob import label
from imgdiff.layer._toc_entries import EMPTY
from imgdiff.model import BelievedContents, BlobParts, Layer, Place
from imgdiff.scratch import scratch_file

_GAP: Final = 1 << 17  # bytes that nobody wants, and that cost less than a request of their own
# DEFLATE comes byte by byte, a block of zstd (RFC 8878, 3.1.1.2; up to 128 KiB) whole.
_HEAD: Final = {"gzip": HEAD_SIZE + (1 << 11), "zstd": (1 << 17) + (1 << 10)}

Advance = Callable[[int], None]


class Wanted(msgspec.Struct, gc=False):
    """A content that is wanted, by its SHA-256."""

    digest: bytes
    place: Place


class _Span(msgspec.Struct, gc=False):
    start: int
    end: int
    items: list[Wanted]


def _spans(wanted: Iterable[Wanted], most: int | None = None) -> Iterator[_Span]:
    """Put neighbours together; of each no more than ``most`` bytes as stored."""
    span: _Span | None = None
    for item in sorted(wanted, key=lambda item: (item.place.offset, item.place.inner)):
        place = item.place
        end = place.offset + (place.length if most is None else min(place.length, most))
        if span is not None and _joins(span, place):
            span.items.append(item)
            span.end = max(span.end, end)
            continue
        if span is not None:
            yield span
        span = _Span(place.offset, end, [item])
    if span is not None:
        yield span


def _joins(span: _Span, place: Place) -> bool:
    """Tell whether a place is better read with what lies before it: behind it, or in the same stream."""
    last = span.items[-1].place
    return span.end <= place.offset <= span.end + _GAP or place.offset == last.offset


class _Window:
    """A span as it comes. ``advance`` is told the count of bytes of each read."""

    def __init__(self, file: BinaryIO, start: int, advance: Advance) -> None:
        self._file = file
        self._advance = advance
        self.at = start

    def readinto(self, buffer: memoryview) -> int:
        count: int = self._file.readinto(buffer)  # type: ignore[attr-defined]  # BinaryIO lacks it, every file has it
        self.at += count
        self._advance(count)
        return count

    def read(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        have = 0
        while have < size and (count := self.readinto(view[have:])):
            have += count
        return bytes(view[:have])

    def skip_to(self, offset: int) -> None:
        while self.at < offset and self.read(min(CHUNK, offset - self.at)):
            pass


class _Limited:
    """The bytes of a window up to an offset, as a compression source."""

    def __init__(self, window: _Window, end: int) -> None:
        self._window = window
        self._end = end

    def readinto(self, buffer: memoryview, /) -> int:
        left = self._end - self._window.at
        return self._window.readinto(buffer[:left]) if left > 0 else 0


class _Unpacked:
    """The uncompressed bytes from a place on: several contents can lie in one stream, one behind the other."""

    def __init__(self, source: _Limited) -> None:
        self._stream: Stream = decompressed(source)
        if self._stream.algorithm == "plain":
            raise StreamError("is not compressed")
        self._rest = memoryview(b"")
        self._at = 0

    def _next(self, most: int) -> memoryview:
        if not self._rest:
            self._rest = memoryview(self._stream.read(CHUNK))
        piece = self._rest[:most]
        if not piece:
            raise StreamError("ends too early")
        self._rest = self._rest[len(piece) :]
        self._at += len(piece)
        return piece

    def content(self, place: Place) -> Iterator[memoryview]:
        while self._at < place.inner:
            self._next(place.inner - self._at)
        left = place.size
        while left:
            piece = self._next(left)
            left -= len(piece)
            yield piece


def contents(
    layer: Layer, parts: BlobParts, wanted: Iterable[Wanted], advance: Advance
) -> Iterator[tuple[Wanted, Iterator[memoryview]]]:
    """Yield what is wanted in the order of the blob, each with its content in pieces, which are to be taken before the
    next one. The digest is the caller's to check. Raises BlobError where a place holds no such content."""
    for span in _spans(wanted):
        with parts.open(span.start, span.end - span.start) as file:
            window = _Window(file, span.start, advance)
            for offset, items in itertools.groupby(span.items, lambda item: item.place.offset):
                stream = list(items)  # one stream, which may hold several contents
                window.skip_to(offset)
                unpacked = _open(layer, window, offset + max(item.place.length for item in stream))
                for item in stream:
                    yield item, _pieces(layer, unpacked, item.place)


def _open(layer: Layer, window: _Window, end: int) -> _Unpacked:
    try:
        return _Unpacked(_Limited(window, end))
    except StreamError as error:
        raise other_content(layer, str(error)) from error


def _pieces(layer: Layer, unpacked: _Unpacked, place: Place) -> Iterator[memoryview]:
    try:
        yield from unpacked.content(place)
    except StreamError as error:
        raise other_content(layer, str(error)) from error


def heads(parts: BlobParts, wanted: Iterable[Wanted], advance: Advance, kind: str) -> Iterator[tuple[Wanted, bytes]]:
    """Yield what is wanted with the first bytes of its content, as many as routing wants if they come cheaply; they are
    held against nothing. ``kind`` is ``gzip`` or ``zstd``."""
    most = _HEAD[kind]
    for span in _spans(wanted, most):
        with parts.open(span.start, span.end - span.start) as file:
            window = _Window(file, span.start, advance)
            for item in span.items:
                window.skip_to(item.place.offset)
                packed = window.read(min(item.place.length, most))
                try:
                    yield item, beginning(packed, item.place.inner + HEAD_SIZE)[item.place.inner :]
                except StreamError:
                    yield item, b""  # it is read whole then, and what is wrong is said


def other_content(layer: Layer, why: str) -> BlobError:
    """Return the error for a place that does not hold what the table of contents says."""
    return BlobError(
        f"The {label(layer)} is not what its table of contents says: the content of a file {why}.",
        "The image was altered or damaged; without --trust-toc layers are read whole and held against their digests.",
    )


def check(layer: Layer, found: bytes, digest: bytes) -> None:
    """Raise BlobError unless a content has the digest that the table of contents states."""
    if found != digest:
        raise other_content(layer, f"has the digest sha256:{found.hex()}, and the table states sha256:{digest.hex()}")


def read_places(
    layer: Layer, believed: BelievedContents, wanted: Mapping[bytes, bytes]
) -> Iterator[tuple[bytes, BinaryIO]]:
    """Yield (path, content) of wanted files, SHA-256 by path, each held against it: as ``read_contents`` does.

    Raises KeyError where the table has no place for a digest, and what the parts raise.
    """
    assert layer.parts is not None
    paths: dict[bytes, list[bytes]] = {}
    for path, digest in wanted.items():
        paths.setdefault(digest, []).append(path)
    empty = paths.pop(EMPTY, [])
    items = [Wanted(digest, believed.places[digest]) for digest in paths]
    for path in empty:
        with scratch_file() as file:
            yield path, file
    with layer.parts() as parts:
        for item, pieces in contents(layer, parts, items, lambda _: None):
            with scratch_file() as file:
                hasher = hashlib.sha256()
                for piece in pieces:
                    hasher.update(piece)
                    file.write(piece)
                check(layer, hasher.digest(), item.digest)
                for path in paths[item.digest]:
                    file.seek(0)
                    yield path, file
