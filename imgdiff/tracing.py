"""The traces of a pair: recalled where the same image was traced before, else made, and kept for the next time.

An image's trace is kept by what it depends on (see ``recall.trace_key``), whichever side it was and whatever it was
compared with. What is recalled answers as what was made: the answers come from the same tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from imgdiff import recall
from imgdiff.model import Attribution, FactSource, Image, ImageConfig, LayerIndex, Profile, Side, Trace, Tree
from imgdiff.store import Store
from imgdiff.trace import freeze, thaw, trace, turned


class Traceable(msgspec.Struct, frozen=True):  # holds live objects: never serialised
    """One image, ready to be traced. ``key`` is what its trace is kept under; None: it is not."""

    tree: Tree
    attribution: Attribution
    facts: FactSource
    config: ImageConfig | None
    side: Side
    key: bytes | None


class Traces:
    """Makes, recalls and keeps the traces of one run."""

    def __init__(self, profile: Profile, entry: str | None, store: Store | None) -> None:
        """``store`` is None where nothing is recalled or kept. ``entry`` is another command line than the image's."""
        self._profile, self._entry, self._store = profile, entry, store
        self._made: dict[bytes, tuple[Trace, Side]] = {}
        self._recalled: dict[bytes, Trace] = {}

    def of(self, image: Traceable) -> Trace:
        """Return the trace of an image."""
        known = None if image.key is None else self._made.get(image.key)
        if known is not None:  # both sides are one image, as far as a trace can tell
            return turned(*known, image.side)
        found = self._recall(image)
        return self._make(image) if found is None else found

    def _recall(self, image: Traceable) -> Trace | None:
        if self._store is None or image.key is None:
            return None
        kept = recall.load_trace(self._store, image.key)
        if kept is None:
            return None

        def again() -> Trace:
            return self._make(image)

        found = thaw(kept, image.tree, image.attribution, image.facts, self._profile, image.side, again)
        if found is not None:
            self._recalled[image.key] = found
        return found

    def _make(self, image: Traceable) -> Trace:
        made = trace(image.tree, image.attribution, image.facts, image.config, self._profile, self._entry, image.side)
        if image.key is not None:
            self._made[image.key] = made, image.side
        return made

    def keep(self) -> None:
        """Keep what was made, for the next run: once all has been asked of it, since the answers are kept."""
        if self._store is None:
            return
        for key, (made, side) in self._made.items():
            kept = freeze(made, side, self._recalled.get(key))
            if kept is not None:
                recall.save_trace(self._store, key, kept)

    def keys(self, images: Sequence[Image], indexes: Sequence[Sequence[LayerIndex]]) -> list[bytes | None]:
        """Return what the traces of the images of this run are kept under.

        None for all where the layers' diffIDs do not say all that a trace of this run sees: a snapshot lends its texts
        and facts to both images, a table of contents was believed and not held against the diffID, or an engine's own
        files were taken out of both trees.
        """
        if self._store is None or any(image.snapshot is not None or image.contained for image in images):
            return [None for _ in images]
        if any(index.believed is not None for own in indexes for index in own):
            return [None for _ in images]
        return [
            recall.trace_key([index.diff_id for index in own], image.config, self._profile, self._entry)
            for image, own in zip(images, indexes, strict=True)
        ]
