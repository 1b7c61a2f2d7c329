"""Snapshots: what ``imgdiff snapshot`` kept of an image. Layers have an index and no blob."""

from __future__ import annotations

from functools import partial
from typing import BinaryIO

from imgdiff.errors import ImageError, UnknownReferenceError
from imgdiff.model import Image, Layer
from imgdiff.sources._files import open_regular, reason
from imgdiff.sources._platform import UNKNOWN, matches, parse_platform
from imgdiff.sources._reference import Reference
from imgdiff.sources._text import shown
from imgdiff.store.snapshots import Snapshot, is_snapshot

SCHEMES: tuple[str, ...] = ("snapshot",)


def recognises(reference: Reference) -> bool:
    """Tell a snapshot by its scheme, else by its first bytes."""
    if reference.scheme is not None:
        return reference.scheme in SCHEMES
    return reference.path.is_file() and _is_one(reference)


def _is_one(reference: Reference) -> bool:
    with open_regular(reference.path) as file:
        return is_snapshot(file.read(32))


def read(reference: Reference, platform: str | None) -> Image:
    """Return the image that a snapshot was made of.

    Raises UnknownReferenceError where the file is no snapshot, ImageError where it is damaged, of another version of
    the format, or of another platform than the one that is wanted.
    """
    where = shown(str(reference.path))
    if not _is_one(reference):
        raise UnknownReferenceError(f"{where} is no snapshot", "imgdiff snapshot IMAGE -o FILE makes one")
    if reference.tag or reference.digest:
        raise UnknownReferenceError(f"{where} is a snapshot, which holds one image and has no tags")
    try:
        snapshot = Snapshot(reference.path, where)
    except OSError as error:
        raise ImageError(f"{where} can't be read: {reason(error)}") from error
    manifest = snapshot.manifest
    if platform is not None and not _fits(manifest.platform, platform):
        raise ImageError(
            f"{where} is of an image for {shown(manifest.platform)}, and {shown(platform)} is wanted",
            "make a snapshot of that one: imgdiff snapshot IMAGE --platform OS/ARCH -o FILE",
        )
    layers = tuple(
        Layer(kept.descriptor, kept.diff_id, _no_blob, kept=partial(snapshot.index, number))
        for number, kept in enumerate(manifest.layers)
    )
    return Image(
        reference=reference.given,
        source="snapshot",
        manifest_digest=manifest.manifest_digest,
        config_digest=manifest.config_digest,
        platform=manifest.platform,
        config=manifest.config,
        layers=layers,
        contained=manifest.contained,
        mounts=manifest.mounts,
        caveats=manifest.caveats,
        snapshot=snapshot,
    )


def _fits(own: str, wanted: str) -> bool:
    """Tell whether a platform is the wanted one; a root file system states none. Raises UsageError."""
    return own == UNKNOWN or matches(parse_platform(wanted), parse_platform(own))


def _no_blob() -> BinaryIO:
    raise ImageError("a snapshot holds no layer's bytes")
