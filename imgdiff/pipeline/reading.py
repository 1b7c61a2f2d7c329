"""Contents of an image that are looked into once more, after its layers were indexed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import BinaryIO

import msgspec

from imgdiff import explanation
from imgdiff.layer import Trust, read_contents
from imgdiff.model import Image, Layer, LayerIndex, Tree


def as_one_tree(image: Image, missing: Collection[str]) -> Image:
    """Return an image that an engine can't save as layers as one merged tree, and any other as it is."""
    if image.whole is None or not any(layer.diff_id in missing for layer in image.layers):
        return image
    return msgspec.structs.replace(image.whole(), reference=image.reference)


def lost_contents(image: Image, indexes: Sequence[LayerIndex], real: Mapping[str, Layer]) -> frozenset[bytes]:
    """Return the contents of a snapshot's layers that no layer of the other image has, too."""
    held: set[bytes] = set()
    lost: set[bytes] = set()
    for layer, layer_index in zip(image.layers, indexes, strict=True):
        gone = layer.kept is not None and layer.diff_id not in real
        (lost if gone else held).update(entry.digest for entry in layer_index.entries if entry.digest is not None)
    return frozenset(lost - held)


def reader(
    image: Image,
    indexes: Sequence[LayerIndex],
    merged: Tree,
    real: Mapping[str, Layer],
    trust: Trust | None,
) -> explanation.Read:
    """Return a function that reads whole contents of an image again by their digests: from where it can give single
    files, else layer by layer.

    By digest, since a name of the merged tree can be another than the member's (a hard link, a linked parent).
    """

    def read(digests: Collection[bytes]) -> Iterator[tuple[bytes, BinaryIO]]:
        left = set(digests)
        if image.contents is not None and left:
            places = {entry.digest: entry.path for entry in merged.entries.values() if entry.digest in left}
            wanted = {path: digest for digest, path in places.items() if digest is not None}
            for path, stream in image.contents(wanted):
                left.discard(wanted[path])
                yield wanted[path], stream
        for own, layer_index in zip(image.layers, indexes, strict=True):
            layer = own if own.kept is None else real.get(own.diff_id or "")
            if layer is None:
                continue  # a snapshot's, and the other image lacks it
            names: dict[bytes, list[bytes]] = {}
            for entry in layer_index.entries:
                if entry.digest in left:
                    left.discard(entry.digest)
                    names.setdefault(entry.path, []).append(entry.digest)
            while names:  # one name can stand for several contents of a layer, which a hard link keeps
                members = {path: found.pop() for path, found in names.items()}
                names = {path: found for path, found in names.items() if found}
                for path, stream in read_contents(layer, members, layer_index.believed, trust):
                    yield members[path], stream

    return read
