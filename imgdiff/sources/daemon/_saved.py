"""The layers of images as an engine saves them, taken from the stream while it passes; nothing lies on our disk.

Which member is which layer must be known before it is read, and what says so (manifest.json, index.json) comes last:

- docker 25 and newer: ``blobs/sha256/HEX``, HEX being the layer's diffID; podman: ``HEX.tar`` alike.
- docker to 24: ``ID/layer.tar``. The ID is a digest over a config that has the layer's chain ID in it
  (github.com/moby/moby, image/v1 CreateID), and ``ID/json``, which comes first, is that config.
- docker on containerd's store: ``blobs/sha256/HEX`` of the compressed blob, which states no diffID: it is found out by
  reading it. Blobs of other platforms pass as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import msgspec

from imgdiff.compression import CHUNK, Source, algorithm_of, decompressed
from imgdiff.errors import BlobError, IncompleteError
from imgdiff.model import Descriptor, Layer, LayerStream
from imgdiff.sources.daemon._address import Address
from imgdiff.sources.daemon._engine import Engine, Stream
from imgdiff.sources.daemon._outer import BLOCK, Outer, Passing

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BY_DIGEST: Final = re.compile(r"blobs/sha256/([0-9a-f]{64})|([0-9a-f]{64})\.tar")
_LEGACY: Final = re.compile(r"([0-9a-f]{64})/(json|layer\.tar)")
_JSON_LIMIT: Final = 1 << 20  # bytes of a legacy layer's config


class SavedImage:
    """The layers of one image of an engine, read from ``GET /images/get``."""

    def __init__(self, address: Address, identity: str, diff_ids: tuple[str, ...], platform: str | None) -> None:
        self.address = address
        self.identity = identity
        self.diff_ids = diff_ids
        self._platform = platform
        self._streams: list[Stream] = []

    @property
    def key(self) -> Hashable:
        """One engine, one platform."""
        return ("engine", self.address, self._platform)

    def layers(self) -> tuple[Layer, ...]:
        """Return the layers, base first."""
        return tuple(Layer(None, diff_id, _Opener(self, diff_id), stream=self) for diff_id in self.diff_ids)

    def stop(self) -> None:
        """Give up reading."""
        for stream in list(self._streams):
            stream.stop()

    def read(self, wanted: Collection[str], others: Sequence[LayerStream]) -> Generator[Layer, None, None]:
        """Yield layers as they pass; see :class:`~imgdiff.model.LayerStream`. Images none of whose layers is wanted, or
        whose wanted ones another one has, are not saved."""
        images = _covering(wanted, [self, *(other for other in others if isinstance(other, SavedImage))])
        known = {diff_id for image in images for diff_id in image.diff_ids}
        chains = {chain: diff_id for image in images for chain, diff_id in _chain_ids(image.diff_ids)}
        names = [image.identity for image in images]
        with Engine(self.address) as engine, engine.save(names, self._platform) as stream:
            self._streams.append(stream)
            try:
                outer = Outer(stream, engine)
                yield from self._passing(outer, wanted, known, chains)
            finally:
                self._streams.remove(stream)

    def _passing(
        self, outer: Outer, wanted: Collection[str], known: Collection[str], chains: dict[str, str]
    ) -> Iterator[Layer]:
        legacy: dict[str, str] = {}  # diffID by the ID of a legacy layer
        for member in outer:
            if not wanted:
                return
            by_digest = _BY_DIGEST.fullmatch(member.name)
            by_id = _LEGACY.fullmatch(member.name)
            diff_id: str | None = None
            digest = ""
            if by_digest:
                digest = f"sha256:{by_digest[1] or by_digest[2]}"
                if digest in known:
                    diff_id = digest
            elif by_id and by_id[2] == "json":
                found = _legacy_diff_id(by_id[1], _whole(outer, member), chains)
                if found:
                    legacy[by_id[1]] = found
                continue
            elif by_id:
                diff_id = legacy.get(by_id[1])
            else:
                continue
            if diff_id is not None and diff_id not in wanted:
                continue
            head = _head(outer, member)
            if diff_id is None and not _looks_like_layer(head):
                continue
            file = cast("BinaryIO", _OneMember(outer, member, head))
            yield Layer(Descriptor("", digest, member.size), diff_id, _Once(file, _Member(self, member.name)))

    # Once more -------------------------------------------------------------------------------------------------------

    def reopen(self, name: str) -> BinaryIO:
        """Open one member of the image's archive, by its name there: the whole archive comes once more."""
        engine = Engine(self.address)
        stream = engine.save([self.identity], self._platform)
        try:
            outer = Outer(stream, engine)
            member = next((member for member in outer if member.name == name), None)
        except BaseException:
            stream.stop()
            engine.__exit__()
            raise
        if member is None:
            stream.stop()
            engine.__exit__()
            raise BlobError(f"the archive from the {self.address} has no {name} any more")
        return cast("BinaryIO", _OwnMember(outer, member, stream, engine))

    def open(self, diff_id: str) -> BinaryIO:
        """Open one layer by its diffID; where no name tells which it is, the archive comes twice."""
        with contextlib.closing(self.read({diff_id}, ())) as layers:
            for layer in layers:
                if layer.diff_id is None:
                    with layer.open() as file:
                        if _uncompressed_digest(file) != diff_id:
                            continue
                assert isinstance(layer.open, _Once)
                return layer.open.again()
        raise IncompleteError(
            f"the archive from the {self.address} lacks the layer {diff_id} of its image",
            frozenset((diff_id,)),
            "pull the image again",
        )


class _Opener(msgspec.Struct, frozen=True):
    image: SavedImage
    diff_id: str

    def __call__(self) -> BinaryIO:
        return self.image.open(self.diff_id)


class _Member(msgspec.Struct, frozen=True):
    image: SavedImage
    name: str

    def __call__(self) -> BinaryIO:
        return self.image.reopen(self.name)


class _Once:
    """Opens a member as it passes, and from the second time on in an archive of its own."""

    def __init__(self, file: BinaryIO, again: Callable[[], BinaryIO]) -> None:
        self._file: BinaryIO | None = file
        self.again = again

    def __call__(self) -> BinaryIO:
        file, self._file = self._file, None
        return self.again() if file is None else file


class _OneMember(io.RawIOBase):
    """The bytes of one member while it passes. Closing it leaves the archive open."""

    def __init__(self, outer: Outer, member: Passing, head: bytes) -> None:
        self._outer = outer
        self._member = member
        self._head = head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if self._head:
            count = min(len(view), len(self._head))
            view[:count] = self._head[:count]
            self._head = self._head[count:]
            return count
        return self._outer.take(self._member, view)


class _OwnMember(_OneMember):
    """The same in an archive of its own, which ends with it."""

    def __init__(self, outer: Outer, member: Passing, stream: Stream, engine: Engine) -> None:
        super().__init__(outer, member, b"")
        self._stream = stream
        self._engine = engine

    def abort(self) -> None:
        """End what waits for bytes. For any thread."""
        self._stream.stop()

    def close(self) -> None:
        if not self.closed:
            self._stream.stop()
            self._engine.__exit__()
        super().close()


def _covering(wanted: Collection[str], images: Sequence[SavedImage]) -> list[SavedImage]:
    """Return as few images as have every wanted layer that one of them has, those with the most first."""
    left = set(wanted)
    chosen: list[SavedImage] = []
    while left and (best := max(images, key=lambda image: len(left.intersection(image.diff_ids)))):
        having = left.intersection(best.diff_ids)
        if not having:
            break
        left -= having
        chosen.append(best)
    return chosen


def _chain_ids(diff_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (chain ID, diffID) of each layer (OCI image spec, config.md, "Layer ChainID")."""
    chain = ""
    for diff_id in diff_ids:
        chain = diff_id if not chain else f"sha256:{hashlib.sha256(f'{chain} {diff_id}'.encode()).hexdigest()}"
        yield chain, diff_id


def _legacy_diff_id(identity: str, data: bytes, chains: dict[str, str]) -> str | None:
    """Return the diffID of a legacy layer by its ID and its config, None where no chain ID gives the ID.

    The ID is the SHA-256 of the config with ``layer_id`` and the parent as digests, keys sorted; all but the image's
    last layer got their ``os`` only after that.
    """
    try:
        fields = _raw_fields(data.decode("utf-8").strip())
        fields.pop("id", None)
        if "parent" in fields:
            fields["parent"] = json.dumps(f"sha256:{json.loads(fields['parent'])}")
    except (ValueError, IndexError, RecursionError):
        return None
    for chain, diff_id in chains.items():
        fields["layer_id"] = f'"{chain}"'
        for left_out in ("", "os"):
            text = ",".join(f"{json.dumps(key)}:{fields[key]}" for key in sorted(fields) if key != left_out)
            if hashlib.sha256(f"{{{text}}}".encode()).hexdigest() == identity:
                return diff_id
    return None


def _raw_fields(text: str) -> dict[str, str]:
    """Return the fields of a JSON object without spaces, each value as it is written."""
    decoder = json.JSONDecoder()
    fields: dict[str, str] = {}
    at = 1
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        _, end = decoder.raw_decode(text, at + 1)
        fields[str(key)] = text[at + 1 : end]
        at = end + (text[end] == ",")
    return fields


def _whole(outer: Outer, member: Passing) -> bytes:
    if member.size > _JSON_LIMIT:
        return b""
    return _taken(outer, member, member.size)


def _head(outer: Outer, member: Passing) -> bytes:
    return _taken(outer, member, min(BLOCK, member.size))


def _taken(outer: Outer, member: Passing, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    have = 0
    while have < size:
        have += outer.take(member, view[have:])
    return bytes(data)


def _looks_like_layer(head: bytes) -> bool:
    """Tell a layer, compressed or a tar, from a manifest, a config or an attestation."""
    return algorithm_of(head) != "plain" or head[257:262] == b"ustar"


def _uncompressed_digest(file: BinaryIO) -> str:
    hasher = hashlib.sha256()
    stream = decompressed(cast("Source", file))
    while chunk := stream.read(CHUNK):
        hasher.update(chunk)
    return f"sha256:{hasher.hexdigest()}"
