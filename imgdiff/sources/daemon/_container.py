"""A container: its image plus what was changed in it since, as one tree, with the command line that it was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, Final

from imgdiff.errors import ImageError, ServiceError
from imgdiff.model import Image, ImageConfig, Layer, Mount
from imgdiff.sources._platform import UNKNOWN, matches, parse_platform
from imgdiff.sources._text import listed, shown
from imgdiff.sources.daemon._address import Address
from imgdiff.sources.daemon._contents import from_container, opened_export
from imgdiff.sources.daemon._engine import Engine, NotHereError
from imgdiff.sources.daemon._image import described_config

# What podman puts into the ENV of every container and says of none; docker does the same at start and doesn't say it.
_PODMAN_ENV: Final = {"container": ("podman", "oci"), "TERM": ("xterm",), "HOME": ("/root", "/")}
_RUNNING: Final = ("running", "paused", "restarting")


def container_of(engine: Engine, inspected: Mapping[str, Any], given: str, wanted: str | None) -> Image:
    """Return a container as an image of one layer, its export. Raises ImageError where it is for another platform than
    the one that is wanted."""
    identity = str(inspected["Id"])
    image = _own_image(engine, inspected)
    config, platform = _config(engine, inspected, image)
    if wanted is not None and platform != UNKNOWN and not matches(parse_platform(wanted), parse_platform(platform)):
        raise ImageError(
            f"'{shown(given)}' is for {platform}, not for {shown(wanted)}",
            f"name it without --platform, or as {platform}",
        )
    mounts = tuple(_mounts(inspected))
    return Image(
        reference=given,
        source=f"{engine.kind}-container",
        manifest_digest=None,
        config_digest=None,
        platform=platform,
        config=config,
        layers=(Layer(None, None, partial(_export, engine.address, identity)),),
        contents=partial(_contents, engine.address, identity),
        contained=True,
        mounts=mounts,
        caveats=tuple(_caveats(inspected, mounts)),
    )


def _own_image(engine: Engine, inspected: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the engine says of the container's image; nothing where the image was removed since."""
    try:
        return engine.image(str(inspected.get("Image") or ""))
    except NotHereError:
        return {}


def _config(engine: Engine, inspected: Mapping[str, Any], image: Mapping[str, Any]) -> tuple[ImageConfig, str]:
    run = dict(inspected.get("Config") or {})
    if engine.kind == "podman":
        run = _without_podmans(run, (image.get("Config") or {}), str(inspected.get("Id") or ""))
    described = {**image, "Config": run}
    config, _, stated = described_config(described, f"what the {engine.address} says of a container")
    return config, UNKNOWN if stated is None else str(stated)


def _without_podmans(run: dict[str, Any], image: Mapping[str, Any], identity: str) -> dict[str, Any]:
    """Take out what podman adds to the config of every container, where the image doesn't say the same."""
    own = set(image.get("Env") or ())
    hostname = str(run.get("Hostname") or "")
    kept = []
    for line in run.get("Env") or ():
        name, _, value = str(line).partition("=")
        added = value in _PODMAN_ENV.get(name, ()) or (
            name == "HOSTNAME" and value != "" and (value == hostname or identity.startswith(value))
        )
        if line in own or not added:
            kept.append(line)
    run = {**run, "Env": kept, "StopSignal": None}  # a number here, a name in the image
    for key in ("ExposedPorts", "Healthcheck", "OnBuild", "Shell", "StopSignal", "Volumes"):
        if not run.get(key):  # it leaves these out where they are the image's
            run[key] = image.get(key)
    if isinstance(run.get("WorkingDir"), str) and run["WorkingDir"] == "/" and not image.get("WorkingDir"):
        run["WorkingDir"] = ""
    return run


def _mounts(inspected: Mapping[str, Any]) -> Iterator[Mount]:
    """Yield what lies over the container's own files: volumes, directories and files of the host, tmpfs."""
    found: dict[bytes, str] = {}
    for each in inspected.get("Mounts") or ():
        kind = str(each.get("Type") or "mount")
        what = {"bind": "from the host", "volume": "a volume", "tmpfs": "in memory"}.get(kind, shown(kind))
        found[_path(each.get("Destination"))] = what
    host = inspected.get("HostConfig")
    for path in (host.get("Tmpfs") or {}) if isinstance(host, dict) else ():
        found[_path(path)] = "in memory"
    for path, what in sorted(found.items()):
        yield Mount(path, what)


def _path(value: object) -> bytes:
    return b"/".join(part for part in str(value or "").encode("utf-8", "surrogateescape").split(b"/") if part)


def _caveats(inspected: Mapping[str, Any], mounts: tuple[Mount, ...]) -> Iterator[str]:
    state = inspected.get("State")
    status = str(state.get("Status") or "") if isinstance(state, dict) else ""
    if status in _RUNNING:
        yield "{side} is a container that runs: what changed while it was read may be seen half or not at all."
    if mounts:
        named = listed([f"/{mount.path.decode('utf-8', 'backslashreplace')} ({mount.what})" for mount in mounts])
        places = "a place that can't be seen" if len(mounts) == 1 else f"{len(mounts)} places that can't be seen"
        yield f"{{side}} is a container with something mounted over {places}: {named}."


def _contents(address: Address, identity: str, wanted: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, BinaryIO]]:
    try:
        with Engine(address) as engine:
            yield from from_container(engine, identity, wanted)
    except (ServiceError, NotHereError):
        return  # what was not yielded is looked for in another export, which says what is wrong


def _export(address: Address, identity: str) -> BinaryIO:
    engine = Engine(address)
    return opened_export(engine, identity, engine.__exit__)
