"""Layers that come in one stream, as an engine saves them: each is indexed as it passes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Sequence

from imgdiff.errors import BlobError, IncompleteError
from imgdiff.layer._indexing import index_archive
from imgdiff.model import Layer, LayerIndex, LayerStream
from imgdiff.store import Store

_BLOBS, _VERSION = "blob", 1  # what the store knows of blobs that state no diffID: theirs


def groups(streams: Iterable[LayerStream]) -> list[list[LayerStream]]:
    """Return the streams, each once, in groups that can come as one."""
    by_key: dict[Hashable, dict[int, LayerStream]] = {}
    for stream in streams:
        by_key.setdefault(stream.key, {})[id(stream)] = stream
    return [list(group.values()) for group in by_key.values()]


def index_stream(
    streams: Sequence[LayerStream], wanted: set[str], store: Store, advance: Callable[[int], None]
) -> dict[object, LayerIndex]:
    """Index the layers of streams of one key that are wanted, by diffID. What they don't have is left out, and what has
    no diffID and is nothing that is wanted is passed over.

    Raises IncompleteError where the streams state that they have a layer, and end without it.
    """
    first, *others = streams
    left = {diff_id for diff_id in wanted if any(diff_id in stream.diff_ids for stream in streams)}
    missing_at_start = frozenset(left)
    found: dict[object, LayerIndex] = {}
    refused: BlobError | None = None
    with contextlib.closing(first.read(left, others)) as layers:
        for layer in layers:
            if layer.diff_id is None and _known(layer, store) not in (None, *left):
                continue
            try:
                index = index_archive(layer, store, advance)
            except BlobError as error:
                if layer.diff_id is not None:
                    raise
                refused = (
                    refused or error
                )  # a blob of something else may be no layer; if ours is not there, it was this
                continue
            _remember(layer, index.diff_id, store)
            if index.diff_id in left:
                left.discard(index.diff_id)
                found[index.diff_id] = index
    if not left:
        return found
    if refused is not None:
        raise refused
    count = f"{len(left)} of {len(missing_at_start)}"
    raise IncompleteError(
        f"the engine's archive lacks {count} layers that its images have, such as {min(left)}",
        frozenset(left),
        "pull the image again, or name it in its registry: registry:NAME",
    )


def _known(layer: Layer, store: Store) -> str | None:
    """Return the diffID that a blob was once found to have."""
    if layer.descriptor is None or not layer.descriptor.digest:
        return None
    key = layer.descriptor.digest.encode()
    found = store.facts(_BLOBS, _VERSION, [key]).get(key)
    return None if found is None else found.decode("ascii")


def _remember(layer: Layer, diff_id: str, store: Store) -> None:
    if layer.diff_id is None and layer.descriptor is not None and layer.descriptor.digest:
        store.put_facts(_BLOBS, _VERSION, {layer.descriptor.digest.encode(): diff_id.encode("ascii")})
