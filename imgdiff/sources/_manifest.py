"""Manifests and configs (OCI image spec, "Image Manifest" and "Image Configuration"; docker's schema 2 alike).

Everything here comes from outside: JSON of any shape leads to an Image or to an ImageError, never to anything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from imgdiff.errors import BlobError, ImageError
from imgdiff.model import Descriptor, Image, ImageConfig, Layer
from imgdiff.sources._files import Files, Opener, read_whole
from imgdiff.sources._platform import UNKNOWN, Platform, matches, stated_platform
from imgdiff.sources._reference import DIGEST
from imgdiff.sources._text import shown

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
SCHEMA_1_TYPES = (
    "application/vnd.docker.distribution.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
)
_FOREIGN = ("foreign", "nondistributable")
COPY_HINT = (
    "copy or save the image again; docker's containerd store can leave blobs out of an archive without an error, "
    "then save another way: skopeo copy"
)


def parse_json(data: bytes, what: str) -> Any:
    """Return what JSON says; raise ImageError with one sentence for anything that is none."""
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise ImageError(f"{what} is nested too deeply to be read") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ImageError(f"{what} is no valid JSON ({shown(str(error))})") from error


def parse_object(data: bytes, what: str) -> dict[str, Any]:
    """Return a JSON object; raise ImageError for anything else."""
    value = parse_json(data, what)
    if not isinstance(value, dict):
        raise ImageError(f"{what} is no JSON object")
    return value


def sequence(value: dict[str, Any], key: str, what: str) -> list[Any]:
    """Return a list of an object, empty for null or where it is not there; raise ImageError for another type."""
    items = value.get(key)
    if items is None:
        return []
    if not isinstance(items, list):
        raise ImageError(f"{key} of {what} is no list")
    return items


def parse_descriptor(value: Any, what: str) -> Descriptor:
    """Return a content descriptor; raise ImageError where it names no digest that can be checked."""
    if not isinstance(value, dict):
        raise ImageError(f"{what} is no descriptor")
    digest, size, media_type = value.get("digest"), value.get("size"), value.get("mediaType")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise ImageError(f"{what} has no digest that can be checked, but {shown(repr(digest))}")
    if size is None:
        size = -1
    elif not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ImageError(f"{what} has no valid size, but {shown(repr(size))}")
    return Descriptor(media_type if isinstance(media_type, str) else "", digest, size)


def parse_annotations(value: Any) -> dict[str, str]:
    """Return a descriptor's annotations, texts by name; what is none is left out."""
    given = value.get("annotations") if isinstance(value, dict) else None
    if not isinstance(given, dict):
        return {}
    return {name: text for name, text in given.items() if isinstance(text, str)}


class BlobReader(Protocol):
    """Blobs by digest, wherever an image lies. All methods raise ImageError where the place itself gives trouble."""

    @property
    def where(self) -> str:
        """The place, ready for a sentence."""

    def has(self, digest: str) -> bool:
        """Tell whether the blob is there, as far as that can be told without moving it."""

    def manifest(self, descriptor: Descriptor, what: str) -> bytes:
        """Return a manifest or an index, checked against size and digest; raise BlobError where it does not match."""

    def read(self, descriptor: Descriptor, what: str) -> bytes:
        """Return a small blob, checked against size and digest; raise BlobError where it does not match."""

    def opener(self, descriptor: Descriptor, what: str) -> Opener:
        """Return what opens a blob; raise BlobError where it is known to be missing or to have another size."""


class Blobs:
    """Blobs by digest in the files of an image; ``names`` gives the names under which one may lie."""

    def __init__(self, files: Files, names: Callable[[str], Sequence[str]]) -> None:
        self.files = files
        self._names = names

    @property
    def where(self) -> str:
        """The path on disk, ready for a sentence."""
        return self.files.where

    def has(self, digest: str) -> bool:
        """Tell whether the blob is there at all."""
        return self._find(digest) is not None

    def manifest(self, descriptor: Descriptor, what: str) -> bytes:
        """Return a manifest: it is a blob like others here."""
        return self.read(descriptor, what)

    def read(self, descriptor: Descriptor, what: str) -> bytes:
        """Return a small blob, checked against size and digest; raise BlobError where it does not match."""
        found = self._find(descriptor.digest)
        if found is None:
            raise BlobError(f"{self.where} lacks {what} ({descriptor.digest})", COPY_HINT)
        data = read_whole(self.files, found[0])
        check_blob(data, descriptor, f"{what} in {self.where}")
        return data

    def opener(self, descriptor: Descriptor, what: str) -> Opener:
        """Return what opens a blob, after a check of its size; raise BlobError where it is missing."""
        found = self._find(descriptor.digest)
        if found is None:
            raise BlobError(f"{self.where} lacks {what} ({descriptor.digest})", COPY_HINT)
        name, size = found
        if descriptor.size not in (-1, size):
            raise BlobError(
                f"{what} in {self.where} ({descriptor.digest}) is {size} bytes long, "
                f"and the manifest says {descriptor.size}",
                COPY_HINT,
            )
        return self.files.opener(name)

    def _find(self, digest: str) -> tuple[str, int] | None:
        for name in self._names(digest):
            size = self.files.size(name)
            if size is not None:
                return name, size
        return None


def check_blob(data: bytes, descriptor: Descriptor, what: str) -> None:
    """Raise BlobError unless the bytes have the digest and the size of a descriptor."""
    check_digest(data, descriptor.digest, what)
    if descriptor.size not in (-1, len(data)):
        raise BlobError(f"{what} is {len(data)} bytes long, and its descriptor says {descriptor.size}")


def check_digest(data: bytes, digest: str, what: str) -> None:
    """Raise BlobError unless the bytes have this digest."""
    algorithm, _, _ = digest.partition(":")
    actual = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
    if actual != digest:
        raise BlobError(f"{what} was changed: its digest is {actual} and should be {digest}")


def refuse_schema_1(manifest: dict[str, Any], what: str) -> None:
    """Raise ImageError for a manifest of docker's schema 1, which has no config and no diffIDs."""
    if manifest.get("mediaType") in SCHEMA_1_TYPES or manifest.get("schemaVersion") == 1 or "fsLayers" in manifest:
        raise ImageError(
            f"{what} is of docker's schema 1, which is not read",
            "convert the image: skopeo copy --format oci docker://NAME oci:DIR",
        )


def read_image(
    blobs: BlobReader,
    manifest: dict[str, Any],
    digest: str,
    hint: Platform | None,
    wanted: Platform | None,
    *,
    reference: str,
    source: str,
) -> Image:
    """Return the image of one manifest (already checked), with every blob that it names known to be there.

    ``hint`` is the platform that an index states for it, ``wanted`` the one that the config must match (None: any).
    Raises ImageError for schema 1, artifacts, encrypted and absent foreign layers, and BlobError for missing,
    changed or wrongly sized blobs.
    """
    what = f"the manifest {digest} in {blobs.where}"
    refuse_schema_1(manifest, what)
    if "config" not in manifest or "layers" not in manifest:
        raise ImageError(f"{what} is no image manifest: it has no config or no layers")
    descriptor = parse_descriptor(manifest["config"], f"the config of {what}")
    values = sequence(manifest, "layers", what)
    layers = [parse_descriptor(value, f"layer {number} of {what}") for number, value in enumerate(values, 1)]
    for number, layer in enumerate(layers, 1):
        refuse_layer(layer.media_type, number, blobs.where, present=blobs.has(layer.digest))
    data = blobs.read(descriptor, "the image config")
    kind = f" (it is of type {shown(descriptor.media_type)})" if "image" not in descriptor.media_type else ""
    config, diff_ids, stated = parse_config(data, f"the image config in {blobs.where}{kind}")
    check_count(len(layers), diff_ids, blobs.where)
    return Image(
        reference=reference,
        source=source,
        manifest_digest=digest,
        config_digest=descriptor.digest,
        platform=image_platform(stated, hint, wanted, blobs.where),
        config=config,
        layers=tuple(
            Layer(
                layer,
                diff_id,
                blobs.opener(layer, f"layer {number} of {len(layers)}"),
                annotations=parse_annotations(value),
            )
            for number, (layer, diff_id, value) in enumerate(zip(layers, diff_ids, values, strict=True), 1)
        ),
    )


def refuse_layer(media_type: str, number: int, where: str, *, present: bool) -> None:
    """Raise ImageError for an encrypted layer, and for a foreign one whose blob is not there."""
    if media_type.endswith("+encrypted"):
        raise ImageError(
            f"layer {number} of {where} is encrypted, and imgdiff has no keys",
            "decrypt the image first: skopeo copy --decryption-key KEY SOURCE oci:DIR",
        )
    if not present and any(word in media_type for word in _FOREIGN):
        raise ImageError(
            f"layer {number} of {where} is foreign ({shown(media_type)}): its content is not part of the image"
        )


def check_count(layers: int, diff_ids: Sequence[str], where: str) -> None:
    """Raise ImageError unless there are as many layers as diffIDs."""
    if layers != len(diff_ids):
        raise ImageError(f"{where} has {layers} layers, and its config names {len(diff_ids)} diffIDs")


def image_platform(stated: Platform | None, hint: Platform | None, wanted: Platform | None, where: str) -> str:
    """Return the platform as the config states it, else as the index does, else ``unknown``.

    Raises ImageError where a platform is wanted and this is another.
    """
    actual = stated or hint
    if actual is None:
        return UNKNOWN
    if wanted is not None and not any(matches(wanted, each) for each in (hint, stated) if each is not None):
        raise ImageError(f"{where} is for {actual}, not for {wanted}", f"name it without --platform, or as {actual}")
    if hint is not None and not actual.variant and matches(actual, hint):
        actual = Platform(actual.os, actual.architecture, hint.variant)
    return str(actual)


def parse_config(data: bytes, what: str) -> tuple[ImageConfig, tuple[str, ...], Platform | None]:
    """Return an image config, its diffIDs and its platform; nulls stand for what is not set.

    Raises ImageError where there are no diffIDs to read or a field has a type that no engine would take.
    """
    raw = parse_object(data, what)
    rootfs = raw.get("rootfs")
    if not isinstance(rootfs, dict):
        raise ImageError(f"{what} is no image config: it has no rootfs")
    diff_ids = sequence(rootfs, "diff_ids", what)
    for diff_id in diff_ids:
        if not isinstance(diff_id, str) or not DIGEST.fullmatch(diff_id):
            raise ImageError(f"{what} has a diffID that can't be checked: {shown(repr(diff_id))}")
    run = raw.get("config")
    if run is None:
        run = {}
    if not isinstance(run, dict):
        raise ImageError(f"'config' of {what} is no object")
    config = ImageConfig(
        env=_texts(run, "Env", what),
        entrypoint=_command(run, "Entrypoint", what),
        cmd=_command(run, "Cmd", what),
        user=_text(run, "User", what),
        working_dir=_text(run, "WorkingDir", what),
        labels=_labels(run, what),
        raw=raw,
    )
    return config, tuple(diff_ids), stated_platform(raw)


def _text(run: dict[str, Any], key: str, what: str) -> str:
    value = run.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ImageError(f"{key} in {what} is no text")
    return value


def _texts(run: dict[str, Any], key: str, what: str) -> tuple[str, ...]:
    values = sequence(run, key, what)
    if not all(value is None or isinstance(value, str) for value in values):
        raise ImageError(f"{key} in {what} is no list of texts")
    return tuple(value or "" for value in values)  # as Go reads a null


def _command(run: dict[str, Any], key: str, what: str) -> tuple[str, ...]:
    """Return an argv; docker takes a single text for a list of one (strslice)."""
    value = run.get(key)
    return (value,) if isinstance(value, str) else _texts(run, key, what)


def _labels(run: dict[str, Any], what: str) -> dict[str, str]:
    labels = run.get("Labels")
    if labels is None:
        return {}
    if not isinstance(labels, dict) or not all(value is None or isinstance(value, str) for value in labels.values()):
        raise ImageError(f"Labels in {what} are no texts by name")
    return {name: value or "" for name, value in labels.items()}
