"""Files of a container, and the whole of it, as the engine gives them: ``archive`` and ``export``."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO, cast

from imgdiff.errors import BlobError
from imgdiff.scratch import scratch_file
from imgdiff.sources.daemon._engine import Engine, NotHereError, Stream
from imgdiff.sources.daemon._outer import Outer

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CHUNK = 1 << 20  # bytes


def from_container(engine: Engine, container: str, wanted: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, BinaryIO]]:
    """Yield (path, content) of those wanted files (path to SHA-256) that the container has with this content."""
    for path in sorted(wanted):
        with scratch_file() as file:
            if _copied(engine, container, path, file) == wanted[path]:
                file.seek(0)
                yield path, file


def _copied(engine: Engine, container: str, path: bytes, file: BinaryIO) -> bytes | None:
    """Copy one regular file out of a container; returns its SHA-256, None where there is none."""
    try:
        with engine.archive(container, path) as stream:
            outer = Outer(stream, engine)
            buffer = memoryview(bytearray(_CHUNK))
            for member in outer:
                hasher = hashlib.sha256()
                while count := outer.take(member, buffer):
                    hasher.update(buffer[:count])
                    file.write(buffer[:count])
                return hasher.digest()
    except NotHereError:
        return None
    return None


def opened_export(engine: Engine, container: str, over: Callable[[], None]) -> BinaryIO:
    """Open the tar of a container's whole file system; ``over`` is called when it is closed."""
    return cast("BinaryIO", _Export(engine, container, over))


class _Export(io.RawIOBase):
    def __init__(self, engine: Engine, container: str, over: Callable[[], None]) -> None:
        self._engine = engine
        self._over: Callable[[], None] | None = over
        self._stream: Stream = engine.export(container)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        try:
            return self._stream.readinto(memoryview(buffer).cast("B"))
        except NotHereError as error:
            raise BlobError(
                f"the container was removed from the {self._engine.address} while it was read", "name another one"
            ) from error

    def abort(self) -> None:
        """End what waits for bytes. For any thread."""
        self._stream.stop()

    def close(self) -> None:
        over, self._over = self._over, None
        if over is not None:
            self._stream.stop()
            over()
        super().close()
