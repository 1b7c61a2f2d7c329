"""Layers: decompressed by magic, verified to the last byte, indexed in one stream (OCI image spec, layer.md)."""

from __future__ import annotations

import concurrent.futures
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from imgdiff.layer._content import RULES
from imgdiff.layer._directory import index_directory
from imgdiff.layer._indexing import index_archive
from imgdiff.layer._reread import read_contents
from imgdiff.layer._streams import groups, index_stream
from imgdiff.model import Layer, LayerIndex
from imgdiff.store import Store

__all__ = ["Progress", "index_layers", "read_contents"]


class Progress(Protocol):
    """Shown while layers are read. Called by the thread that called ``index_layers``, and by no other."""

    def start(self, label: str, total: int | None) -> None:
        """Begin: what is done, and how many bytes it will take, if that is known."""

    def advance(self, n: int) -> None:
        """So many bytes more are done."""

    def finish(self) -> None:
        """All is done, or was given up."""


class _CancelledError(Exception):
    """Reading was given up since another layer failed or the user interrupted."""


_DOWNLOADS: Final = 3  # layers that come over a network at a time, as docker does it by default


def index_layers(
    layers: Sequence[Layer],
    store: Store,
    progress: Progress | None = None,
    jobs: int | None = None,
    stop: Callable[[], None] | None = None,
) -> list[LayerIndex]:
    """Return the indexes of layers, in the same order.

    Layers of one diffID are read once (the one that needs no network, if there is one), those that the store has not
    at all. Up to ``jobs`` layers are read at a time (default: as many as there are cores, and three where they come
    over a network), each by three threads; those of one stream are read one after the other, as they come. One of a
    snapshot is taken from it, unless another image has that layer. ``stop`` is
    called when reading is given up, to end what waits for a network. Raises BlobError where a layer is not what its
    manifest or config says, IncompleteError where a stream ends without some of its layers, ImageError where a root
    directory can't be read, CacheError where the store can't be written. Nothing of a failed layer is stored.
    """
    found: dict[object, LayerIndex] = {}
    missing: dict[object, Layer] = {}
    real = {_key(layer) for layer in layers if layer.kept is None}
    kept = {
        position: layer.kept
        for position, layer in enumerate(layers)
        if layer.kept is not None and layer.diff_id not in real
    }
    for layer in layers:
        if layer.kept is not None:
            continue
        key = _key(layer)
        if key in found or key in missing:
            if key in missing and _cost(layer) < _cost(missing[key]):
                missing[key] = layer
            continue
        index = None if layer.diff_id is None or layer.directory is not None else store.load_index(layer.diff_id, RULES)
        if index is None:
            missing[key] = layer
        else:
            found[key] = index
    if missing:
        remote = any(layer.remote for layer in missing.values())
        most = jobs or max(len(os.sched_getaffinity(0)), _DOWNLOADS if remote else 1)
        found |= _read(missing, store, progress, most, stop)
    return [kept[position]() if position in kept else found[_key(layer)] for position, layer in enumerate(layers)]


def _cost(layer: Layer) -> int:
    """Return what reading a layer takes: nothing but itself, a stream of others with it, or a network."""
    return 2 if layer.remote else int(layer.stream is not None)


def _key(layer: Layer) -> object:
    """Return what is equal for layers of equal content."""
    if layer.directory is not None:
        return layer.directory
    if layer.diff_id is not None:
        return layer.diff_id
    if layer.descriptor is not None and layer.descriptor.digest:
        return layer.descriptor.digest
    return id(layer)


def _read(
    missing: dict[object, Layer],
    store: Store,
    progress: Progress | None,
    jobs: int,
    stop: Callable[[], None] | None,
) -> dict[object, LayerIndex]:
    sizes = {key: -1 if layer.descriptor is None else layer.descriptor.size for key, layer in missing.items()}
    steps: queue.SimpleQueue[int] = queue.SimpleQueue()
    cancel = threading.Event()

    def advance(count: int) -> None:
        if cancel.is_set():
            raise _CancelledError
        steps.put(count)

    if progress is not None:
        known = all(size >= 0 for size in sizes.values())
        progress.start("Reading layers", sum(sizes.values()) if known else None)
    streamed = {str(layer.diff_id): layer for layer in missing.values() if layer.stream is not None}
    streams = [layer.stream for layer in streamed.values() if layer.stream is not None]
    alone = [key for key, layer in missing.items() if layer.stream is None]
    order = sorted(alone, key=lambda key: -sizes[key])  # the longest first, so that none is left for the end
    pool = concurrent.futures.ThreadPoolExecutor(jobs, thread_name_prefix="imgdiff-layer")
    try:
        futures = [pool.submit(index_stream, group, set(streamed), store, advance) for group in groups(streams)]
        futures += [pool.submit(_index_one, key, missing[key], store, advance) for key in order]
        for future in futures:
            future.add_done_callback(lambda _: steps.put(0))
        _wait(set(futures), steps, progress)
        return {key: index for future in futures for key, index in future.result().items()}
    except BaseException:
        cancel.set()
        for stream in streams:
            stream.stop()
        if stop is not None:
            stop()
        raise
    finally:
        cancel.set()
        pool.shutdown(cancel_futures=True)
        if progress is not None:
            progress.finish()


def _wait(
    pending: set[concurrent.futures.Future[dict[object, LayerIndex]]],
    steps: queue.SimpleQueue[int],
    progress: Progress | None,
) -> None:
    """Show steps until every future is done; raises the error of the first that failed."""
    while pending:
        count = steps.get()
        if count and progress is not None:
            progress.advance(count)
        if not count:
            done = {future for future in pending if future.done()}
            for future in done:
                future.result()
            pending -= done


def _index_one(key: object, layer: Layer, store: Store, advance: Callable[[int], None]) -> dict[object, LayerIndex]:
    if layer.directory is not None:
        return {key: index_directory(layer.directory, store, advance)}
    return {key: index_archive(layer, store, advance)}
