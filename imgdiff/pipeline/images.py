"""Open, index, flatten, attribute: from a reference to what stands where in an image, and whose it is."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from imgdiff import about, explanation, installation, runtime, sources, tree
from imgdiff import attribution as attributing
from imgdiff import config as configs
from imgdiff.errors import ImageError, IncompleteError, UsageError
from imgdiff.facts import RULES as FACTS_RULES
from imgdiff.facts import Facts, ImageFacts
from imgdiff.kinds import KEPT_VERSION, elf
from imgdiff.layer import Progress, Trust, index_layers, vouched
from imgdiff.model import Attribution, Image, LayerIndex, Side, Texts, Tree
from imgdiff.pipeline.options import Options
from imgdiff.pipeline.reading import as_one_tree, lost_contents, reader
from imgdiff.sources import WHEEL_VERSION
from imgdiff.store import Store

_WHEELS = "wheel"  # what the tars of wheels are known under
SNAPSHOT_RULES = f"kept {KEPT_VERSION} elf {elf.VERSION} {FACTS_RULES}"
"""The versions of all that a snapshot holds."""


class Indexed(msgspec.Struct, frozen=True):  # holds live objects: never serialised
    """One image, read and attributed."""

    side: Side
    image: Image
    indexes: tuple[LayerIndex, ...]
    tree: Tree
    attribution: Attribution
    facts: ImageFacts
    texts: Texts
    read: explanation.Read
    engine_made: tuple[str, ...] = ()  # caveats on what an engine makes in containers, of both images
    lost: frozenset[bytes] = frozenset()  # contents that a snapshot's layers had, which can't be read again
    trusted: tuple[str, ...] = ()  # caveats on tables of contents that were believed, of both images
    own: Tree | None = None  # what the source itself holds, where the tree is another image with a wheel installed
    installed: installation.Installed | None = None  # on both sides where one is a wheel


def trusted_tables(image: Image) -> object:
    """Return what decides, where tables of contents are believed, what is, and what is said of it."""
    blobs = [None if layer.descriptor is None else layer.descriptor.digest for layer in image.layers]
    return image.transfer is None, blobs, [vouched(layer) for layer in image.layers]


def opened(reference: str, options: Options) -> Image:
    """Open an image; from here on its reference is as it may be shown. Raises ImgdiffError where it can't be used."""
    image = sources.open_image(reference, options.platform, insecure=options.insecure)
    if image.snapshot is not None and image.snapshot.rules != SNAPSHOT_RULES:
        raise ImageError(
            f"the snapshot {reference} was made by imgdiff {image.snapshot.made_by} ({image.snapshot.rules}), and this "
            f"is {about.VERSION} ({SNAPSHOT_RULES})",
            "make it again with this version and this Python, or compare it with those that made it",
        )
    return msgspec.structs.replace(image, reference=configs.redact_text(image.reference))


def check_wheels(a: Image, b: Image) -> None:
    """Raise UsageError where both sides are wheels."""
    if a.wheel is not None and b.wheel is not None:
        raise UsageError(
            "both references are wheels, and nothing says which of their files a process loads",
            "name an image that has one of them installed: imgdiff WHEEL IMAGE",
        )


def alike(a: Image, b: Image) -> tuple[Image, Image]:
    """A snapshot holds no secrets: hide those of the image that it is compared with, too."""
    if a.snapshot is None and b.snapshot is None:
        return a, b
    hidden = [
        image if image.config is None else msgspec.structs.replace(image, config=configs.redact_config(image.config))
        for image in (a, b)
    ]
    return hidden[0], hidden[1]


@contextmanager
def no_collector() -> Iterator[None]:
    """Leave the cyclic collector out: nearly all that is made, by the hundred thousand, lives until the report is
    there, and walking it again and again took a fifth of the time of a pair of 2 x 200,000 files."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def open_store(options: Options) -> Iterator[Store]:
    """Open the user's cache, the one at ``cache_dir``, or a temporary one that is gone afterwards."""
    store = Store.open(options.cache_dir) if options.cache else Store.temporary()
    try:
        yield store
    finally:
        store.close()


def index(
    pair: tuple[Image, Image],
    store: Store,
    facts: Facts,
    progress: Progress | None,
    jobs: int | None,
    trust: Trust | None = None,
) -> tuple[Indexed, Indexed]:
    """Read both images' layers, each once, and say what stands where and whose it is. With ``trust``, tables of
    contents are believed."""
    images = _known_layers(pair[0], store), _known_layers(pair[1], store)
    layers = [layer for image in images for layer in image.layers]

    def stop() -> None:
        for image in images:
            if image.transfer is not None:
                image.transfer.stop()

    try:
        indexes = index_layers(layers, store, progress, jobs, stop, trust)
    except IncompleteError as error:
        whole = tuple(as_one_tree(image, error.diff_ids) for image in images)
        if whole == images:
            raise
        return index((whole[0], whole[1]), store, facts, progress, jobs, trust)
    split = len(images[0].layers)
    _remember_layer(images[0], indexes[:split], store)
    _remember_layer(images[1], indexes[split:], store)
    for image in images:
        if image.snapshot is not None:
            store.borrow(image.snapshot)
    texts = store.texts([found for layer, found in zip(layers, indexes, strict=True) if layer.kept is None])

    real = {layer.diff_id: layer for layer in layers if layer.kept is None and layer.diff_id is not None}
    own = tuple(indexes[:split]), tuple(indexes[split:])
    sides: tuple[Side, Side] = ("a", "b")
    records = attributing.Records()
    trusted = () if trust is None else tuple(trust.caveats(images, own))

    def one(side: Side, image: Image, own: tuple[LayerIndex, ...], merged: Tree) -> Indexed:
        attribution = attributing.attribute(merged, texts, side, records)
        return Indexed(
            side,
            image,
            own,
            merged,
            attribution,
            ImageFacts(merged, texts, facts),
            texts,
            reader(image, own, merged, real, trust),
            tuple(engine_made),
            lost_contents(image, own, real),
            trusted,
        )

    trees, engine_made = runtime.seen_alike(images, tree.flatten_both(*own))
    if images[0].wheel is None and images[1].wheel is None:
        a, b = map(one, sides, images, own, trees)
        return a, b
    at = 0 if images[0].wheel is not None else 1
    wheel, holder = (one(sides[i], images[i], own[i], trees[i]) for i in (at, 1 - at))
    wheel, holder = _install(wheel, holder, facts, records)
    return (wheel, holder) if at == 0 else (holder, wheel)


def _known_layers(image: Image, store: Store) -> Image:
    """Return a wheel with the diffID that the tar of it was once found to have, and any image as it is."""
    if image.wheel is None:
        return image
    key = image.wheel.digest.encode()
    found = store.facts(_WHEELS, WHEEL_VERSION, [key]).get(key)
    if found is None:
        return image
    layers = tuple(msgspec.structs.replace(layer, diff_id=found.decode("ascii")) for layer in image.layers)
    return msgspec.structs.replace(image, layers=layers)


def _remember_layer(image: Image, indexes: Sequence[LayerIndex], store: Store) -> None:
    if image.wheel is not None and image.layers[0].diff_id is None:
        row = {image.wheel.digest.encode(): indexes[0].diff_id.encode("ascii")}
        store.put_facts(_WHEELS, WHEEL_VERSION, row)


def _install(wheel: Indexed, image: Indexed, facts: Facts, records: attributing.Records) -> tuple[Indexed, Indexed]:
    """Return both sides with the wheel's as what the image would be, were the wheel installed in it."""
    assert wheel.image.wheel is not None
    installed = installation.install(
        wheel.image.wheel,
        wheel.tree,
        image.tree,
        image.attribution,
        image.texts,
        wheel.side,
        image.image.reference,
        image.image.platform,
    )
    packed = {entry.digest for entry in wheel.tree.entries.values()}

    def read(digests: Collection[bytes]) -> Iterator[tuple[bytes, BinaryIO]]:
        yield from wheel.read([digest for digest in digests if digest in packed])
        yield from image.read([digest for digest in digests if digest not in packed])

    replaced = msgspec.structs.replace(
        wheel,
        image=msgspec.structs.replace(wheel.image, config=image.image.config),
        tree=installed.tree,
        attribution=attributing.attribute(installed.tree, installed.texts, wheel.side, records),
        facts=ImageFacts(installed.tree, installed.texts, facts),
        texts=installed.texts,
        read=read,
        lost=image.lost - packed,
        own=wheel.tree,
        installed=installed,
    )
    return replaced, msgspec.structs.replace(image, texts=installed.texts, installed=installed)
