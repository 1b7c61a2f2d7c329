"""The one door to gzip and zstd: streams told by their magic bytes, and small frames for the cache.

Layers come as gzip (RFC 1952, several members), zstd (RFC 8878, several frames, skippable ones among them) or plain
tar. Which one it is is told by the first bytes, never by a media type, since those lie.
"""

from __future__ import annotations

import gzip
import shutil
import sys
import zlib
from typing import BinaryIO, Final, Literal, Protocol, cast

from isal import igzip, igzip_lib, isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Algorithm = Literal["gzip", "zstd", "plain"]

CHUNK: Final = 1 << 20  # bytes read and handed out at a time
MAX_WINDOW_LOG: Final = 27  # 128 MiB, as `zstd --long` writes; `--long=31` would take 2 GiB of memory


_GZIP_DAMAGE: Final = (
    gzip.BadGzipFile,
    cast("type[Exception]", igzip_lib.IsalError),  # isal's stubs call the class an instance
    zlib.error,
)


class StreamError(Exception):
    """A compressed stream is damaged, ends early, has bytes behind its end, or asks for too much memory.

    ``str(error)`` is a clause that fits behind "the blob ...".
    """


class Source(Protocol):
    """Where stored bytes come from: any file opened for reading in binary mode."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a part of the buffer and return how many bytes that was; 0 at the end."""


class Stream(Protocol):
    """Uncompressed bytes."""

    algorithm: Algorithm

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; none at the end. Raises StreamError."""


class _Prefixed:
    """A source whose first bytes were looked at: they are given out again before the rest."""

    algorithm: Algorithm = "plain"

    def __init__(self, source: Source, length: int) -> None:
        head = bytearray(length)
        have = 0
        while have < length and (count := source.readinto(memoryview(head)[have:])):
            have += count
        self.head = bytes(head[:have])
        self._pending = self.head
        self._source = source

    def readinto(self, buffer: memoryview, /) -> int:
        if self._pending:
            count = min(len(buffer), len(self._pending))
            buffer[:count] = self._pending[:count]
            self._pending = self._pending[count:]
            return count
        return self._source.readinto(buffer)

    def read(self, size: int, /) -> bytes:
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: self.readinto(memoryview(buffer))])


def algorithm_of(head: bytes) -> Algorithm:
    """Tell by its first four bytes how a blob is compressed (RFC 1952 2.3.1; RFC 8878 3.1.1 and 3.1.2)."""
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
        return "zstd"
    return "plain"


def decompressed(source: Source) -> Stream:
    """Open the stream of uncompressed bytes of a blob. Reads the first bytes of ``source`` at once.

    A stream read to its end has taken every byte of the source. It raises StreamError while it is read.
    """
    prefixed = _Prefixed(source, 4)
    algorithm = algorithm_of(prefixed.head)
    if algorithm == "gzip":
        return _Gzip(prefixed)
    if algorithm == "zstd":
        return _Zstd(prefixed)
    return prefixed


class _Gzip:
    """isal's file knows members, zero padding, truncation and checksums; its decompressobj stops after a member."""

    algorithm: Algorithm = "gzip"

    def __init__(self, source: Source) -> None:
        self._file = igzip.IGzipFile(fileobj=source, mode="rb")  # type: ignore[no-untyped-call]  # isal leaves it untyped

    def read(self, size: int, /) -> bytes:
        try:
            data: bytes = self._file.read(size)
        except EOFError as error:
            raise StreamError("ends in the middle of its gzip stream") from error
        except _GZIP_DAMAGE as error:
            raise StreamError(f"is damaged gzip ({error})") from error
        return data


class _Zstd:
    algorithm: Algorithm = "zstd"

    def __init__(self, source: Source) -> None:
        self._source = source
        self._decoder = self.decoder()
        self._input = memoryview(bytearray(CHUNK))
        self._pending = b""
        self._began = False  # whether the current frame has taken any byte

    @staticmethod
    def decoder() -> zstd.ZstdDecompressor:
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG})

    def read(self, size: int, /) -> bytes:
        while True:
            if self._decoder.eof:
                self._pending = self._decoder.unused_data
                self._decoder = self.decoder()
                self._began = False
            block: bytes | memoryview = self._pending
            self._pending = b""
            if not block and self._decoder.needs_input:
                block = self._input[: self._source.readinto(self._input)]
                if not block:
                    if self._began:
                        raise StreamError("ends in the middle of its zstd stream")
                    return b""
            self._began = True
            try:
                data = self._decoder.decompress(block, size)
            except zstd.ZstdError as error:
                raise StreamError(_zstd_clause(str(error))) from error
            if data:
                return data


def beginning(packed: bytes, size: int) -> bytes:
    """Return up to ``size`` of the first bytes that a gzip member or zstd frame holds, of which the end may be missing.

    Fewer come where it holds no more, or where more of it would be needed. Raises StreamError where it is neither.
    """
    algorithm = algorithm_of(packed)
    try:
        if algorithm == "gzip":
            return isal_zlib.decompressobj(wbits=31).decompress(packed, size)
        if algorithm == "zstd":
            return _Zstd.decoder().decompress(packed, size)
    except _GZIP_DAMAGE as error:
        raise StreamError(f"is damaged gzip ({error})") from error
    except zstd.ZstdError as error:
        raise StreamError(_zstd_clause(str(error))) from error
    raise StreamError("is neither gzip nor zstd")


def _zstd_clause(message: str) -> str:
    if "too much memory" in message:
        return f"is zstd with a window of more than {1 << (MAX_WINDOW_LOG - 20)} MiB"
    return f"is damaged zstd ({message})"


# --------------------------------------------------------------------------------------------------------------------
# Frames for the cache
# --------------------------------------------------------------------------------------------------------------------


def deflate(data: bytes | memoryview) -> bytes:
    """Return the data as raw DEFLATE (RFC 1951), made for speed: twice that of zstd on texts of some kilobytes."""
    packed: bytes = igzip_lib.compress(data, level=0, flag=igzip_lib.COMP_DEFLATE)
    return packed


class Deflater:
    """The same for data that comes in pieces."""

    def __init__(self) -> None:
        self._compressor = isal_zlib.compressobj(level=0, wbits=-15)

    def feed(self, piece: memoryview) -> bytes:
        """Take a piece and return what is packed so far and was not returned yet."""
        return self._compressor.compress(piece)

    def end(self) -> bytes:
        """Return the rest."""
        return self._compressor.flush()


def inflate(packed: bytes, size: int) -> bytes:
    """Return the ``size`` bytes that ``deflate`` packed. Raises StreamError if it is anything else."""
    decoder = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE)
    try:
        data: bytes = decoder.decompress(packed, size + 1)
    except _GZIP_DAMAGE as error:
        raise StreamError(f"is damaged ({error})") from error
    if len(data) != size or not decoder.eof:
        raise StreamError("is not what was written")
    return data


def crc32(data: bytes | memoryview, value: int = 0) -> int:
    """Return the CRC-32 of zlib, at six times its speed."""
    return isal_zlib.crc32(data, value)


def adler32(data: bytes) -> int:
    """Return the Adler-32 (RFC 1950)."""
    return isal_zlib.adler32(data)


def compress_zstd(source: BinaryIO, target: BinaryIO, level: int = 3) -> None:
    """Copy a file as one zstd frame."""
    with zstd.ZstdFile(target, "wb", level=level) as packed:
        shutil.copyfileobj(source, packed, CHUNK)


def pack(data: bytes, level: int = 3) -> bytes:
    """Return the data as one zstd frame."""
    return zstd.compress(data, level)


def unpack(frame: bytes, size: int) -> bytes:
    """Return the ``size`` bytes that one zstd frame holds. Raises StreamError if it holds anything else."""
    decoder = zstd.ZstdDecompressor()
    try:
        data = decoder.decompress(frame, size + 1)
    except (zstd.ZstdError, EOFError) as error:
        raise StreamError(_zstd_clause(str(error))) from error
    if len(data) != size or not decoder.eof or decoder.unused_data:
        raise StreamError("is not the zstd frame that was written")
    return data
