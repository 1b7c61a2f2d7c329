"""The uncompressed bytes of one layer, in order, verified as they pass.

Three threads share a layer: one reads, hashes and decompresses the blob, one hashes the uncompressed bytes for the
diffID, and the caller's parses the archive and hashes the files. Decompression and hashing let go of the interpreter
lock, so that the wall time comes near to that of the slowest of them. Chunks wait in short channels: memory does not
grow with the layer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import BinaryIO, Final, Self

from imgdiff.compression import CHUNK, StreamError, decompressed
from imgdiff.errors import BlobError
from imgdiff.layer._blob import Blob, hasher, label
from imgdiff.layer._header import BLOCK, TarError
from imgdiff.model import Layer

_WAITING: Final = 4  # chunks that may wait in a channel


class _Channel:
    """Chunks from one thread to the next; ``b""`` is the end. An error put in is raised by ``get``."""

    def __init__(self) -> None:
        self._items: deque[bytes | Exception] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item: bytes | Exception) -> bool:
        """Hand one chunk on; False where nobody wants any more."""
        with self._changed:
            while len(self._items) >= _WAITING and not self._closed:
                self._changed.wait()
            self._items.append(item)
            self._changed.notify()
            return not self._closed

    def get(self) -> bytes:
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            if self._closed:
                return b""
            item = self._items.popleft()
            self._changed.notify()
        if isinstance(item, Exception):
            raise item
        return item

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Tape:
    """A layer's uncompressed tar as a tape that only runs forward. A context manager; for one thread.

    When ``finish`` has returned, every byte of the blob was read, and its size, its digest and its diffID are right.
    ``diff_id`` is then the computed one where the layer stated none. All methods raise BlobError where they are not,
    and TarError where the tape ends too early.
    """

    def __init__(self, layer: Layer, advance: Callable[[int], None]) -> None:
        self._layer = layer
        self._label = label(layer)
        self._advance = advance
        self._stated = layer.diff_id
        self._hash = hasher(layer.diff_id or f"sha256:{'0' * 64}")
        self._implied = False
        self._decoded = _Channel()
        self._hashed = _Channel()
        self._chunk = b""
        self._view = memoryview(b"")
        self._at = 0
        self._before = 0
        self._ended = False
        self._file: BinaryIO | None = None
        self._threads = [
            threading.Thread(target=self._decode, name="imgdiff-decode", daemon=True),
            threading.Thread(target=self._digest, name="imgdiff-diffid", daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._decoded.close()
        self._hashed.close()
        abort = getattr(self._file, "abort", None)  # what may wait for a network has one
        if abort is not None:
            abort()
        for thread in self._threads:
            thread.join()

    @property
    def offset(self) -> int:
        """Bytes of the uncompressed tar in front of the tape's position."""
        return self._before + self._at

    @property
    def verified(self) -> bool:
        """Whether anything states what the layer's bytes must be."""
        return self._stated is not None or (self._layer.descriptor is not None and bool(self._layer.descriptor.digest))

    @property
    def diff_id(self) -> str:
        """The digest of the uncompressed tar; right when ``finish`` has returned."""
        return self._stated or f"sha256:{self._hash.hexdigest()}"

    # The two threads that feed the tape ------------------------------------------------------------------------------

    def _decode(self) -> None:
        try:
            with self._layer.open() as file:
                self._file = file
                blob = Blob(self._layer, file, self._advance)
                try:
                    self._pump(blob)
                except StreamError as error:
                    blob.finish()  # a blob that is not what the manifest says is the better news
                    raise BlobError(
                        f"The {self._label} {error}.", "The image was built or stored with damage; build it again."
                    ) from error
        except OSError as error:
            reason = error.strerror or str(error)
            failed = BlobError(f"The {self._label} can't be opened: {reason}.", "Check the file or the connection.")
            failed.__cause__ = error
            self._decoded.put(failed)
        except Exception as error:  # noqa: BLE001 -- raised again by the thread that reads the tape
            self._decoded.put(error)

    def _pump(self, blob: Blob) -> None:
        stream = decompressed(blob)
        # A plain tar whose blob digest is its diffID as well is hashed once, by the blob.
        descriptor = self._layer.descriptor
        self._implied = stream.algorithm == "plain" and descriptor is not None and descriptor.digest == self._stated
        while chunk := stream.read(CHUNK):
            if not self._decoded.put(chunk):
                return
        blob.finish()
        self._decoded.put(b"")

    def _digest(self) -> None:
        try:
            while chunk := self._decoded.get():
                if not self._implied:
                    self._hash.update(chunk)
                if not self._hashed.put(chunk):
                    return
            self._hashed.put(b"")
        except Exception as error:  # noqa: BLE001 -- raised again by the thread that reads the tape
            self._hashed.put(error)

    # The reader's side -----------------------------------------------------------------------------------------------

    def _next(self) -> bool:
        """Take the next chunk; False at the end of the tape."""
        if self._ended:
            return False
        chunk = self._hashed.get()
        self._before += len(self._chunk)
        self._chunk = chunk
        self._view = memoryview(chunk)
        self._at = 0
        self._ended = not chunk
        return bool(chunk)

    def block(self) -> bytes:
        """Return the next 512 bytes, or none at the end of the tape."""
        at = self._at
        block = self._chunk[at : at + BLOCK]
        if len(block) == BLOCK:
            self._at = at + BLOCK
            return block
        self._at += len(block)
        while len(block) < BLOCK and self._next():
            self._at = min(BLOCK - len(block), len(self._chunk))
            block += self._chunk[: self._at]
        if block and len(block) < BLOCK:
            raise TarError("ends in the middle of a header")
        return block

    def peek(self) -> bytes:
        """Return the next 512 bytes (fewer at the end of the tape) without taking them."""
        if len(self._chunk) - self._at < BLOCK and not self._ended:
            rest = self._chunk[self._at :]
            offset = self.offset
            while len(rest) < BLOCK and self._next():
                rest += self._chunk
            self._chunk = rest
            self._view = memoryview(rest)
            self._at = 0
            self._before = offset
            self._ended = False if rest else self._ended
        return self._chunk[self._at : self._at + BLOCK]

    def whole(self, size: int) -> memoryview | None:
        """Return the next ``size`` bytes and the padding behind them is passed, or None where they don't lie in one
        chunk (``pieces`` then gives them)."""
        at = self._at
        end = at + size + (-size % BLOCK)
        if end > len(self._chunk):
            return None
        self._at = end
        return self._view[at : at + size]

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Yield the next ``size`` bytes in pieces, and pass the padding behind them. Each piece must be used before
        the next one is asked for."""
        left = size
        while left:
            if self._at == len(self._chunk) and not self._next():
                raise TarError(f"ends {left} bytes before the end of a file")
            piece = self._view[self._at : self._at + left]
            self._at += len(piece)
            left -= len(piece)
            yield piece
        self.skip(-size % BLOCK, strict=False)

    def skip(self, size: int, *, strict: bool = True) -> None:
        """Pass over ``size`` bytes. The padding behind the last file may be missing (Go's reader allows it)."""
        left = size
        while left:
            if self._at == len(self._chunk) and not self._next():
                if strict:
                    raise TarError(f"ends {left} bytes before the end of a file")
                return
            step = min(left, len(self._chunk) - self._at)
            self._at += step
            left -= step

    def rest(self) -> Iterator[memoryview]:
        """Yield all that is left on the tape."""
        if self._at < len(self._chunk):
            yield self._view[self._at :]
        while self._next():
            yield self._view
        self._at = len(self._chunk)

    def finish(self) -> None:
        """Run to the end, and hold the diffID against the stated one."""
        for _ in self.rest():
            pass
        found = f"{self._hash.name}:{self._hash.hexdigest()}"
        if self._stated is not None and not self._implied and found != self._stated:
            raise BlobError(
                f"The {self._label} does not match its diffID: its uncompressed bytes give {found}, and the image's "
                f"config states {self._stated}.",
                "The config belongs to another image, or one of the two was altered.",
            )
