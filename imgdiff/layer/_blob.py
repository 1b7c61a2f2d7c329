"""One stored blob: read once from its first byte to its last, counted and hashed on the way (OCI image spec,
descriptor.md, "Digests" and "Verification")."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Final

from imgdiff.compression import CHUNK
from imgdiff.errors import BlobError
from imgdiff.model import Layer

if TYPE_CHECKING:
    from hashlib import _Hash

ALGORITHMS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}  # those the OCI image spec registers, and hex digits


def hasher(digest: str) -> _Hash:
    """Return a fresh hash of the algorithm that an OCI digest names. Raises BlobError on one that nobody knows."""
    algorithm, _, value = digest.partition(":")
    if len(value) != ALGORITHMS.get(algorithm, -1) or value.strip("0123456789abcdef"):
        raise BlobError(
            f"{digest!r} is no digest that imgdiff can check.", "Known are sha256, sha384 and sha512 in lower-case hex."
        )
    return hashlib.new(algorithm)


def label(layer: Layer) -> str:
    """Return the words that name a layer in a sentence."""
    if layer.descriptor is not None and layer.descriptor.digest:
        return f"layer blob {layer.descriptor.digest}"
    return f"layer {layer.diff_id or 'without a digest'}"


class Blob:
    """The blob of a layer as a compression source. ``advance`` is told the count of bytes of each read."""

    def __init__(self, layer: Layer, file: BinaryIO, advance: Callable[[int], None]) -> None:
        descriptor = layer.descriptor
        self._label = label(layer)
        self._file = file
        self._advance = advance
        self._size = -1 if descriptor is None else descriptor.size
        self._digest = descriptor.digest if descriptor is not None and descriptor.digest else None
        self._hash = None if self._digest is None else hasher(self._digest)
        self._into: Callable[[memoryview], int | None] | None = getattr(file, "readinto", None)
        self.count = 0

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a part of the buffer and return how many bytes that was; 0 at the end. Raises BlobError."""
        try:
            if self._into is not None:
                count = self._into(buffer) or 0
            else:
                data = self._file.read(len(buffer))
                count = len(data)
                buffer[:count] = data
        except OSError as error:
            raise BlobError(
                f"The {self._label} can't be read: {error.strerror or error}.", "Check the file or the connection."
            ) from error
        if not count:
            return 0
        self.count += count
        if 0 <= self._size < self.count:
            raise BlobError(
                f"The {self._label} is longer than the {self._size} bytes that its manifest states.",
                "The image was altered or damaged; fetch it again.",
            )
        if self._hash is not None:
            self._hash.update(buffer[:count])
        self._advance(count)
        return count

    def finish(self) -> None:
        """Read what is left, and hold size and digest against the descriptor. Raises BlobError."""
        buffer = memoryview(bytearray(CHUNK))
        while self.readinto(buffer):
            pass
        if 0 <= self._size != self.count:
            raise BlobError(
                f"The {self._label} ends after {self.count} of {self._size} bytes.",
                "The image is incomplete; fetch it again.",
            )
        if self._hash is not None and self._digest is not None:
            found = f"{self._hash.name}:{self._hash.hexdigest()}"
            if found != self._digest:
                raise BlobError(
                    f"The {self._label} does not match its digest: its bytes give {found}.",
                    "The image was altered or damaged; fetch it again.",
                )
