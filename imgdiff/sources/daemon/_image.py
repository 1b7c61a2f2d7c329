"""What an engine says of an image, as an :class:`~imgdiff.model.Image`: nothing is saved before a layer is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, Final

import msgspec

from imgdiff.errors import ImageError, ServiceError, UnknownReferenceError
from imgdiff.model import Image, ImageConfig, Layer
from imgdiff.sources._manifest import parse_config
from imgdiff.sources._names import parse_name
from imgdiff.sources._platform import UNKNOWN, matches, parse_platform
from imgdiff.sources._text import shown
from imgdiff.sources.daemon._address import Address
from imgdiff.sources.daemon._contents import from_container, opened_export
from imgdiff.sources.daemon._engine import Engine, NotHereError, removed
from imgdiff.sources.daemon._saved import SavedImage

# Names of containerd's snapshotters that are no graph drivers: the engine's IDs are then digests of manifests.
_SNAPSHOTTERS: Final = ("overlayfs", "native", "stargz", "nydus", "soci")


def image_of(engine: Engine, inspected: dict[str, Any], name: str, given: str, platform: str | None) -> Image:
    """Return the image that the engine describes so; ``name`` is how it was asked for.

    Raises ImageError where it is for another platform than the one that is wanted, or is described in a way that none
    can use (a manifest whose platform was not pulled).
    """
    identity = str(inspected.get("Id") or "")
    config, diff_ids, stated = described_config(inspected, f"what the {engine.address} says of '{shown(name)}'")
    if not diff_ids and not _empty_is_meant(inspected):
        raise ImageError(
            f"the {engine.address} has no layers of '{shown(name)}' for this platform",
            f"pull it for the platform that is meant: {engine.kind} pull --platform OS/ARCH {shown(name)}",
        )
    if platform is not None and stated is not None and not matches(parse_platform(platform), stated):
        raise ImageError(
            f"the {engine.address} has '{shown(name)}' for {stated}, not for {shown(platform)}",
            f"pull it for that platform ({engine.kind} pull --platform {shown(platform)} {shown(name)}), "
            f"or name it in its registry: registry:{shown(name)}",
        )
    saved = SavedImage(engine.address, identity, diff_ids, platform)
    manifest = _manifest_digest(inspected, name)
    return Image(
        reference=given,
        source=engine.kind,
        manifest_digest=manifest,
        config_digest=None if _is_manifest(inspected) else identity,
        platform=UNKNOWN if stated is None else str(stated),
        config=config,
        layers=saved.layers(),
        contents=partial(_contents, engine.address, identity),
        whole=partial(_whole, engine.address, identity, name, given, platform),
    )


def described_config(inspected: Mapping[str, Any], what: str) -> tuple[ImageConfig, tuple[str, ...], Any]:
    """Return config, diffIDs and platform from an inspection, as the image's own config has them: an engine adds
    fields that are not set, and leaves out the history."""
    run = inspected.get("Config")
    run = run if isinstance(run, dict) else {}
    rootfs = inspected.get("RootFS")
    layers = rootfs.get("Layers") if isinstance(rootfs, dict) else None
    raw = {
        "architecture": inspected.get("Architecture") or "",
        "os": inspected.get("Os") or "",
        "created": inspected.get("Created") or "",
        "config": {key: value for key, value in run.items() if value not in (None, "", False, [], {})},
        "rootfs": {"type": "layers", "diff_ids": layers or []},
    }
    if inspected.get("Variant"):
        raw["variant"] = inspected["Variant"]
    return parse_config(msgspec.json.encode(raw), what)


def _empty_is_meant(inspected: Mapping[str, Any]) -> bool:
    """An image without layers can be meant (FROM scratch with a label); then its config is there."""
    return bool(inspected.get("Architecture"))


def _is_manifest(inspected: Mapping[str, Any]) -> bool:
    """Tell containerd's store, whose image IDs are digests of manifests or indexes and not of configs."""
    identity = str(inspected.get("Id") or "")
    if any(str(each).endswith(f"@{identity}") for each in inspected.get("RepoDigests") or ()):
        return True
    driver = inspected.get("GraphDriver")
    name = driver.get("Name") if isinstance(driver, dict) else None
    return bool(inspected.get("Descriptor")) or name in _SNAPSHOTTERS


def _manifest_digest(inspected: Mapping[str, Any], name: str) -> str | None:
    """Return the digest under which the image is known in the repository of the name, else in any, else None."""
    digests = sorted(str(each) for each in inspected.get("RepoDigests") or ())
    repository = _repository(name)
    own = [each for each in digests if _repository(each.partition("@")[0]) == repository]
    return next((each.partition("@")[2] for each in (*own, *digests)), None)


def _repository(name: str) -> str:
    try:
        return parse_name(name).repository
    except UnknownReferenceError:  # an ID, or a name that only an engine takes
        return name


def _contents(address: Address, identity: str, wanted: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, BinaryIO]]:
    """Read files of the image again, out of a container that is made for it and never started."""
    try:
        with Engine(address) as engine, engine.created(identity) as container:
            yield from from_container(engine, container, wanted)
    except (ServiceError, NotHereError):
        return  # an engine that makes no containers still saves: what was not yielded is read from the layers


def _whole(address: Address, identity: str, name: str, given: str, platform: str | None) -> Image:
    """Return the image as the one tree that a container of it has: the container is made, exported and removed."""
    with Engine(address) as engine:
        try:
            image = image_of(engine, engine.image(identity, platform), name, given, platform)
        except NotHereError as error:
            raise removed(engine) from error
    layer = Layer(None, None, partial(_export_created, address, identity))
    caveat = (
        "{side} could not be saved as layers by its engine and was read as the tree of a container made for it: no "
        "digest of a layer could be checked."
    )
    return msgspec.structs.replace(
        image, source=f"{image.source}-export", layers=(layer,), whole=None, contained=True, caveats=(caveat,)
    )


def _export_created(address: Address, identity: str) -> BinaryIO:
    engine = Engine(address)
    created = engine.created(identity)
    try:
        container = created.__enter__()
    except NotHereError as error:
        engine.__exit__()
        raise removed(engine) from error
    except BaseException:
        engine.__exit__()
        raise

    def over() -> None:
        try:
            created.__exit__(None, None, None)
        finally:
            engine.__exit__()

    return opened_export(engine, container, over)
