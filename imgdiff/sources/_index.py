"""Which of the images of an OCI layout is meant: by name, by digest, by platform (OCI image spec, "Image Index")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from imgdiff.errors import BlobError, ImageError
from imgdiff.model import Descriptor, Image
from imgdiff.sources._manifest import (
    INDEX_TYPES,
    BlobReader,
    parse_config,
    parse_descriptor,
    parse_object,
    read_image,
    refuse_schema_1,
    sequence,
)
from imgdiff.sources._platform import Platform, fitting, host_platform, normal, parse_platform, stated_platform
from imgdiff.sources._reference import Reference
from imgdiff.sources._text import listed, shown

NAME_KEYS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")  # a full name before a bare tag
_DOCKER_REFERENCE = "vnd.docker.reference.type"
_DEEPEST = 8  # indexes inside indexes
_MOST = 10_000  # manifests looked at


class Entry(msgspec.Struct, frozen=True):
    """One line of an index. ``aside`` is what accompanies images and is none: attestations, artifacts."""

    descriptor: Descriptor
    names: tuple[str, ...]
    platform: Platform | None
    aside: bool


def parse_index(index: dict[str, Any], what: str) -> list[Entry]:
    """Return the entries of an image index or a manifest list; raise ImageError for what is none."""
    refuse_schema_1(index, what)
    if not isinstance(index.get("manifests"), list):
        raise ImageError(f"{what} is no image index: it has no list of manifests")
    values = sequence(index, "manifests", what)
    if len(values) > _MOST:
        raise ImageError(f"{what} lists {len(values)} manifests, more than can be meant")
    return [_entry(value, f"entry {number} of {what}") for number, value in enumerate(values, 1)]


def _entry(value: Any, what: str) -> Entry:
    descriptor = parse_descriptor(value, what)
    notes = value.get("annotations")
    notes = notes if isinstance(notes, dict) else {}
    names = tuple(notes[key] for key in NAME_KEYS if isinstance(notes.get(key), str) and notes[key])
    platform = stated_platform(value.get("platform"))
    aside = (
        _DOCKER_REFERENCE in notes
        or bool(value.get("artifactType"))
        or (platform is not None and (platform.os, platform.architecture) == ("unknown", "unknown"))
    )
    return Entry(descriptor, names, platform, aside)


def choose(reference: Reference, platform: str | None, blobs: BlobReader, index: bytes, source: str) -> Image:
    """Return the image of an index (its bytes, of which nothing states a digest) that a reference means.

    Raises ImageError where several could be meant, listing them, or none fits the platform; BlobError where the one
    that is meant is not there or was changed.
    """
    what = f"the index of {blobs.where}"
    wanted = None if platform is None else parse_platform(platform)
    entries = parse_index(parse_object(index, what), what)
    chosen = _by_digest(reference, entries, blobs) if reference.digest else entries
    if reference.tag:
        chosen = by_name(reference, chosen, [entry.names for entry in chosen], blobs.where)
    images = _distinct(entry for entry in chosen if not entry.aside)
    if not images:
        raise _none(reference, chosen, blobs.where)
    if len(images) > 1 and not _one_in_several_platforms(images):
        raise ambiguous(reference, entries, blobs.where)
    return _choose_platform(reference.given, wanted, images, blobs, source)


def choose_platform(
    given: str, platform: str | None, blobs: BlobReader, index: dict[str, Any], what: str, source: str
) -> Image:
    """Return the image for a platform out of an index that is the index of one image (a registry's, of a tag).

    ``given`` is the reference for sentences, ``what`` the words for the index. Raises as :func:`choose` does.
    """
    wanted = None if platform is None else parse_platform(platform)
    images = _distinct(entry for entry in parse_index(index, what) if not entry.aside)
    return _choose_platform(given, wanted, images, blobs, source)


def _none(reference: Reference, chosen: Sequence[Entry], where: str) -> ImageError:
    if chosen:
        return ImageError(f"'{shown(reference.given)}' is no image, but an attestation or an artifact beside one")
    return ImageError(f"{where} holds no image: its index is empty")


def _distinct(entries: Iterable[Entry]) -> list[Entry]:
    """Return one entry for each digest, with the names of all of them."""
    by_digest: dict[str, Entry] = {}
    for entry in entries:
        known = by_digest.get(entry.descriptor.digest)
        names = entry.names if known is None else (*known.names, *entry.names)
        by_digest[entry.descriptor.digest] = Entry(
            entry.descriptor, names, entry.platform if known is None else known.platform or entry.platform, entry.aside
        )
    return list(by_digest.values())


def _one_in_several_platforms(entries: Sequence[Entry]) -> bool:
    """Tell whether an index of a layout is itself the index of one image (no names apart, one entry a platform)."""
    platforms = [normal(entry.platform) for entry in entries if entry.platform is not None]
    return len(set(platforms)) == len(entries) and len({frozenset(entry.names) for entry in entries}) == 1


def ambiguous(reference: Reference, entries: Iterable[Entry], where: str) -> ImageError:
    """Return the error that lists the names (or digests) of what could be meant."""
    labels = [
        shown(entry.names[0]) if entry.names else f"@{entry.descriptor.digest}"
        for entry in _distinct(entry for entry in entries if not entry.aside)
    ]
    return several(reference, labels, where)


def several(reference: Reference, labels: Sequence[str], where: str) -> ImageError:
    """Return the error for a reference that could mean each of several images, in order: engines list them in none."""
    labels = sorted(labels)
    first = labels[0] if labels[0].startswith("@") else f":{labels[0]}"
    return ImageError(
        f"'{shown(reference.given)}' could be each of {len(labels)} images: {listed(labels)}",
        f"say which one: {where}{first}",
    )


def by_name(reference: Reference, items: Sequence[Entry], names: Sequence[Sequence[str]], where: str) -> list[Entry]:
    """Return the entries that a tag or name means; raise ImageError listing the names where there are none."""
    found = named(reference.tag, names)
    if not found:
        known = sorted({name for each in names for name in each})
        has = f"it has {listed(known)}" if known else "nothing in it has a name"
        raise ImageError(f"{where} has no image '{shown(reference.tag)}': {has}")
    return [items[position] for position in found]


def named(tag: str, names: Sequence[Sequence[str]]) -> list[int]:
    """Return the positions of the name lists that a tag or name means.

    An equal name goes first, then one that is equal but for the default registry (``docker.io/library/`` and
    ``localhost/`` are left out by engines), then one whose tag is equal.
    """
    for same in (_equal, _equal_without_registry, _equal_tag):
        found = [position for position, each in enumerate(names) if any(same(tag, name) for name in each)]
        if found:
            return found
    return []


def _equal(tag: str, name: str) -> bool:
    return tag == name


def _equal_without_registry(tag: str, name: str) -> bool:
    return _familiar(tag) == _familiar(name)


def _equal_tag(tag: str, name: str) -> bool:
    return "/" not in tag and ":" not in tag and name.endswith(f":{tag}")


def _familiar(name: str) -> str:
    for prefix in ("docker.io/library/", "docker.io/", "localhost/"):
        name = name.removeprefix(prefix)
    return name


def _by_digest(reference: Reference, entries: Sequence[Entry], blobs: BlobReader) -> list[Entry]:
    """Return the entries, of the index or of one inside it, with the digest that is asked for."""
    digest = reference.digest
    found = [entry for entry in entries if entry.descriptor.digest == digest]
    if not found:
        found = [
            Entry(leaf.descriptor, entry.names, leaf.platform, leaf.aside)
            for entry in entries
            for leaf in _leaves(entry, blobs, set(), keep_aside=True)
            if leaf.descriptor.digest == digest
        ]
    if not found:
        raise ImageError(f"{blobs.where} has no image @{shown(digest)}: it has {listed(_digests(entries))}")
    return found


def _digests(entries: Iterable[Entry]) -> list[str]:
    return [f"@{entry.descriptor.digest}" for entry in _distinct(entry for entry in entries if not entry.aside)]


def _leaves(
    entry: Entry, blobs: BlobReader, seen: set[str], depth: int = 0, *, keep_aside: bool = False
) -> Iterator[Entry]:
    """Yield the manifests under an entry: itself, or those of the index that it is. Absent blobs are leaves.

    ``seen`` are the digests that were yielded or looked into, once each: indexes that list each other many times over
    cost no more than their number.
    """
    if entry.descriptor.digest in seen:
        return
    seen.add(entry.descriptor.digest)
    if depth > _DEEPEST:
        raise ImageError(f"{blobs.where} has indexes inside indexes without end")
    index = _nested(entry, blobs)
    if index is None:
        yield entry
        return
    for inner in parse_index(index, f"the index {entry.descriptor.digest} in {blobs.where}"):
        if keep_aside or not inner.aside:
            yield from _leaves(inner, blobs, seen, depth + 1, keep_aside=keep_aside)


def _nested(entry: Entry, blobs: BlobReader) -> dict[str, Any] | None:
    """Return an entry's index; None where it is a manifest or is not there. What it is, its content says."""
    media_type = entry.descriptor.media_type
    if not blobs.has(entry.descriptor.digest) or (media_type and media_type not in INDEX_TYPES and entry.platform):
        return None
    value = _read(entry, blobs)
    return value if "manifests" in value and "layers" not in value else None


def _read(entry: Entry, blobs: BlobReader) -> dict[str, Any]:
    data = blobs.manifest(entry.descriptor, "the manifest")
    return parse_object(data, f"the manifest {entry.descriptor.digest} in {blobs.where}")


def _choose_platform(
    given: str, wanted: Platform | None, images: Sequence[Entry], blobs: BlobReader, source: str
) -> Image:
    seen: set[str] = set()
    leaves = [leaf for entry in images for leaf in _leaves(entry, blobs, seen)]
    if not leaves:
        raise ImageError(f"'{shown(given)}' is an index without images")
    single = len(images) == 1 and leaves[0] is images[0]
    leaf = images[0] if single else _fitting(given, wanted, leaves, blobs)
    if not blobs.has(leaf.descriptor.digest):
        at = f" for {leaf.platform}" if leaf.platform else ""
        raise BlobError(
            f"{blobs.where} lists a manifest{at} that it does not hold ({leaf.descriptor.digest})",
            "pull and save the image again for this platform",
        )
    return read_image(
        blobs,
        _read(leaf, blobs),
        leaf.descriptor.digest,
        leaf.platform,
        wanted,
        reference=given,
        source=source,
    )


def _fitting(given: str, wanted: Platform | None, leaves: Sequence[Entry], blobs: BlobReader) -> Entry:
    """Return the manifest for the platform that is wanted, else for the host's, else the only one that is there."""
    offers = [(_platform(leaf, blobs), leaf) for leaf in leaves]
    present = [(platform, leaf) for platform, leaf in offers if blobs.has(leaf.descriptor.digest)]
    if wanted is not None:
        found = fitting(wanted, present) or fitting(wanted, offers)
        if not found:
            raise ImageError(f"'{shown(given)}' has no image for {wanted}: it has {_platforms(offers)}")
        return found[0]
    found = fitting(host_platform(), present)
    if found:
        return found[0]
    if len(present) == 1:
        return present[0][1]
    if not present:
        raise BlobError(f"{blobs.where} holds none of the manifests that '{shown(given)}' lists")
    raise ImageError(
        f"'{shown(given)}' has no image for this host: it has {_platforms(present)}",
        f"choose one: --platform {present[0][0] or 'OS/ARCH'}",
    )


def _platforms(offers: Iterable[tuple[Platform | None, Entry]]) -> str:
    return listed(dict.fromkeys(str(platform or "unknown") for platform, _ in offers))


def _platform(leaf: Entry, blobs: BlobReader) -> Platform | None:
    """Return the platform that the index states, else the one of the config, where both blobs are there."""
    if leaf.platform is not None or not blobs.has(leaf.descriptor.digest):
        return leaf.platform
    manifest = _read(leaf, blobs)
    if "config" not in manifest:
        return None
    config = parse_descriptor(manifest["config"], "the config of a manifest")
    if not blobs.has(config.digest):
        return None
    return parse_config(blobs.read(config, "the image config"), f"an image config in {blobs.where}")[2]
