"""Layers: decompressed by magic, verified to the last byte, indexed in one stream (OCI image spec, layer.md)."""

from __future__ import annotations

import concurrent.futures
import os
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from imgdiff.layer._believed import Known, index_believed, load_believed
from imgdiff.layer._content import RULES
from imgdiff.layer._directory import index_directory
from imgdiff.layer._indexing import index_archive
from imgdiff.layer._reread import read_contents
from imgdiff.layer._streams import groups, index_stream
from imgdiff.layer._toc import Stated
from imgdiff.layer._trust import Trust, vouched
from imgdiff.model import Layer, LayerIndex
from imgdiff.store import Store

__all__ = ["Progress", "Trust", "index_layers", "read_contents", "vouched"]


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
    trust: Trust | None = None,
) -> list[LayerIndex]:
    """Return the indexes of layers, in the same order.

    Layers of one diffID are read once (the one that needs no network, if there is one), those that the store has not
    at all. Up to ``jobs`` layers are read at a time (default: as many as there are cores, and three where they come
    over a network), each by three threads; those of one stream are read one after the other, as they come. One of a
    snapshot is taken from it, unless another image has that layer. ``stop`` is
    called when reading is given up, to end what waits for a network.

    With ``trust``, a layer that would come over a network, and whose manifest vouches for a table of contents, is
    not read whole: the table is believed, and its index says so (``LayerIndex.believed``).

    Raises BlobError where a layer is not what its manifest, config or table of contents says, IncompleteError where a
    stream ends without some of its layers, ImageError where a root directory can't be read, CacheError where the store
    can't be written. Nothing of a failed layer is stored.
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
            if key in missing and _cost(layer, trust) < _cost(missing[key], trust):
                missing[key] = layer
            continue
        index = None if layer.diff_id is None or layer.directory is not None else store.load_index(layer.diff_id, RULES)
        if index is None:
            missing[key] = layer
        else:
            found[key] = index
    believed = {} if trust is None else {key: layer for key, layer in missing.items() if vouched(layer)}
    whole = {key: layer for key, layer in missing.items() if key not in believed}
    found |= _read(whole, store, progress, jobs, stop)
    if trust is not None and believed:  # last, since what other layers have of them need not be fetched
        found |= _believe(believed, found.values(), store, progress, trust)
        found |= _read({key: believed[key] for key in believed if key not in found}, store, progress, jobs, stop)
    return [kept[position]() if position in kept else found[_key(layer)] for position, layer in enumerate(layers)]


def _cost(layer: Layer, trust: Trust | None) -> int:
    """Return what reading a layer takes: nothing but itself, a stream of others with it, or a network."""
    if layer.remote:
        return 2 if trust is not None and vouched(layer) else 3
    return int(layer.stream is not None)


def _key(layer: Layer) -> object:
    """Return what is equal for layers of equal content."""
    if layer.directory is not None:
        return layer.directory
    if layer.diff_id is not None:
        return layer.diff_id
    if layer.descriptor is not None and layer.descriptor.digest:
        return layer.descriptor.digest
    return id(layer)


def _believe(
    layers: Mapping[object, Layer],
    others: Iterable[LayerIndex],
    store: Store,
    progress: Progress | None,
    trust: Trust,
) -> dict[object, LayerIndex]:
    """Index layers by their tables of contents, one after the other; those that must be read whole are left out."""
    found: dict[object, LayerIndex] = {}
    known = Known(store)
    for index in others:
        known.add(index)
    missing: list[tuple[object, Layer, Stated]] = []
    for key, layer in layers.items():
        what = vouched(layer)
        assert what is not None
        loaded = load_believed(layer, what, store)
        if loaded is None:
            missing.append((key, layer, what))
        else:
            found[key] = loaded
            known.add(loaded)
    if progress is not None and missing:
        progress.start("Reading tables of contents", None)
    try:
        for key, layer, what in missing:
            advance = _nothing if progress is None else progress.advance
            made = index_believed(layer, what, store, known, trust, advance)
            if made is not None:
                found[key] = made
                known.add(made)
    finally:
        if progress is not None and missing:
            progress.finish()
    return found


def _nothing(_: int) -> None:
    """Show nothing."""


def _read(
    missing: dict[object, Layer],
    store: Store,
    progress: Progress | None,
    jobs: int | None,
    stop: Callable[[], None] | None,
) -> dict[object, LayerIndex]:
    if not missing:
        return {}
    remote = any(layer.remote for layer in missing.values())
    most = jobs or max(len(os.sched_getaffinity(0)), _DOWNLOADS if remote else 1)
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
    pool = concurrent.futures.ThreadPoolExecutor(most, thread_name_prefix="imgdiff-layer")
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
