"""Archives of ``docker save``, podman, skopeo and crane: ``manifest.json`` lists images by config and layers.

There is no specification; docker's image/tarexport is the source. A layer is named by its path: ``ID/layer.tar``
(docker to 24, a shared layer is a link), ``DIFFID.tar`` (podman, skopeo), ``HEX.tar.gz`` (crane), ``blobs/sha256/HEX``.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from imgdiff.errors import BlobError, ImageError, UnknownReferenceError
from imgdiff.model import Descriptor, Image, Layer
from imgdiff.sources._files import Files, read_whole
from imgdiff.sources._index import named, several
from imgdiff.sources._manifest import (
    COPY_HINT,
    check_count,
    check_digest,
    image_platform,
    parse_config,
    parse_json,
    refuse_layer,
    sequence,
)
from imgdiff.sources._platform import Platform, fitting, host_platform, parse_platform
from imgdiff.sources._reference import Reference
from imgdiff.sources._text import listed, shown

_TAR_TYPE = "application/vnd.oci.image.layer.v1.tar"
_COMPRESSIONS = ((b"\x1f\x8b", "+gzip"), (b"\x28\xb5\x2f\xfd", "+zstd"))
# Paths of a config that state its digest: docker and podman, crane, docker from 25 on.
_CONFIG_NAME = re.compile(r"(?:blobs/sha256/|sha256:)?(?P<hex>[0-9a-f]{64})(?:\.json)?")
_LAYER_NAME = re.compile(r"blobs/sha256/(?P<blob>[0-9a-f]{64})|(?:.*/)?(?P<crane>[0-9a-f]{64})\.tar\.gz")


class _Saved(msgspec.Struct, frozen=True):
    """One image of manifest.json: names of files in the archive, and its names."""

    config: str
    layers: tuple[str, ...]
    tags: tuple[str, ...]
    sources: dict[str, Any]


def choose_saved(reference: Reference, platform: str | None, files: Files) -> Image:
    """Return the image of ``manifest.json`` that a reference means.

    A digest in the reference is the config's, docker's image ID. Raises ImageError where several could be meant,
    listing them, and BlobError for a missing file or a changed config.
    """
    if files.size("manifest.json") is None:
        raise UnknownReferenceError(f"{files.where} is no docker archive: it has no manifest.json")
    what = f"manifest.json in {files.where}"
    value = parse_json(read_whole(files, "manifest.json"), what)
    if not isinstance(value, list):
        raise ImageError(f"{what} is no list of images")
    saved = [_parse(item, f"image {number} of {what}") for number, item in enumerate(value, 1)]
    if not saved:
        raise ImageError(f"{files.where} holds no image: its manifest.json is empty")
    wanted = None if platform is None else parse_platform(platform)
    chosen = _distinct(_selected(reference, saved, files))
    if len(chosen) > 1:
        chosen = _by_platform(wanted, chosen, files) or chosen
    if len(chosen) > 1:
        raise several(reference, [_label(each, files) for each in _distinct(saved)], files.where)
    return _image(reference, wanted, chosen[0], files)


def _parse(value: Any, what: str) -> _Saved:
    if not isinstance(value, dict) or not isinstance(value.get("Config"), str):
        raise ImageError(f"{what} names no config")
    layers, tags, sources = (
        sequence(value, "Layers", what),
        sequence(value, "RepoTags", what),
        value.get("LayerSources"),
    )
    if not all(isinstance(text, str) for text in (*layers, *tags)):
        raise ImageError(f"{what} has layers or tags that are no texts")
    return _Saved(value["Config"], tuple(layers), tuple(tags), sources if isinstance(sources, dict) else {})


def _distinct(saved: list[_Saved]) -> list[_Saved]:
    """Return one entry for each config, with the tags of all of them."""
    by_config: dict[tuple[str, tuple[str, ...]], _Saved] = {}
    for each in saved:
        key = (each.config, each.layers)
        tags = (*by_config[key].tags, *each.tags) if key in by_config else each.tags
        by_config[key] = _Saved(each.config, each.layers, tags, each.sources)
    return list(by_config.values())


def _selected(reference: Reference, saved: list[_Saved], files: Files) -> list[_Saved]:
    if reference.digest:
        by_digest = [each for each in saved if _config_digest(each, files) == reference.digest]
        if not by_digest:
            known = listed(f"@{_config_digest(each, files)}" for each in _distinct(saved))
            raise ImageError(f"{files.where} has no image @{shown(reference.digest)}: it has {known}")
        saved = by_digest
    if reference.tag:
        found = named(reference.tag, [each.tags for each in saved])
        if not found:
            tags = sorted({tag for each in saved for tag in each.tags})
            has = f"it has {listed(tags)}" if tags else "nothing in it has a name"
            raise ImageError(f"{files.where} has no image '{shown(reference.tag)}': {has}")
        saved = [saved[position] for position in found]
    return saved


def _by_platform(wanted: Platform | None, saved: list[_Saved], files: Files) -> list[_Saved]:
    """Return those for one platform, of images that have the same tags (docker saves several platforms so)."""
    if len({frozenset(each.tags) for each in saved}) > 1 or not saved[0].tags:
        return []
    offers = [(parse_config(_read_config(each, files), f"a config in {files.where}")[2], each) for each in saved]
    return fitting(wanted or host_platform(), offers)


def _label(saved: _Saved, files: Files) -> str:
    return saved.tags[0] if saved.tags else f"@{_config_digest(saved, files)}"


def _config_digest(saved: _Saved, files: Files) -> str:
    return f"sha256:{hashlib.sha256(_read_config(saved, files)).hexdigest()}"


def _read_config(saved: _Saved, files: Files) -> bytes:
    """Return the bytes of a config, checked against the digest where its path states one."""
    if files.size(saved.config) is None:
        raise BlobError(f"{files.where} lacks the image config {shown(saved.config)}")
    data = read_whole(files, saved.config)
    stated = _CONFIG_NAME.fullmatch(saved.config)
    if stated:
        check_digest(data, f"sha256:{stated['hex']}", f"the image config in {files.where}")
    return data


def _image(reference: Reference, wanted: Platform | None, saved: _Saved, files: Files) -> Image:
    data = _read_config(saved, files)
    config, diff_ids, stated = parse_config(data, f"the image config in {files.where}")
    check_count(len(saved.layers), diff_ids, files.where)
    layers = tuple(
        _layer(saved, number, name, diff_id, files)
        for number, (name, diff_id) in enumerate(zip(saved.layers, diff_ids, strict=True), 1)
    )
    return Image(
        reference=reference.given,
        source="docker-archive",
        manifest_digest=None,
        config_digest=f"sha256:{hashlib.sha256(data).hexdigest()}",
        platform=image_platform(stated, None, wanted, files.where),
        config=config,
        layers=layers,
    )


def _layer(saved: _Saved, number: int, name: str, diff_id: str, files: Files) -> Layer:
    origin = saved.sources.get(diff_id)
    media_type = origin.get("mediaType") if isinstance(origin, dict) else None
    size = files.size(name)
    refuse_layer(media_type if isinstance(media_type, str) else "", number, files.where, present=size is not None)
    if size is None:
        raise BlobError(
            f"{files.where} lacks layer {number} of {len(saved.layers)} ({shown(name)})",
            COPY_HINT,
        )
    opener = files.opener(name)
    with opener() as stream:
        head = stream.read(4)
    suffix = next((suffix for magic, suffix in _COMPRESSIONS if head.startswith(magic)), "")
    digest = _stored_digest(name, diff_id, plain=not suffix)
    return Layer(Descriptor(_TAR_TYPE + suffix, digest, size), diff_id, opener)


def _stored_digest(name: str, diff_id: str, *, plain: bool) -> str:
    """Return the digest of a layer as stored: a plain one's is its diffID, a compressed one's stands in its path.

    Empty where nothing states it; the diffID then vouches for the content alone.
    """
    stated = _LAYER_NAME.fullmatch(name)
    if stated and (stated["blob"] or not plain):
        return f"sha256:{stated['blob'] or stated['crane']}"
    return diff_id if plain else ""
