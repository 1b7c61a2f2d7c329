"""Where an image comes from: a reference and a platform in, an :class:`~imgdiff.model.Image` out.

Nothing of an image is unpacked or run here. Manifests and configs are checked against digest and size; the content of
layers is checked by the layer stage.
"""

from __future__ import annotations

from typing import Protocol

from imgdiff.errors import ImageError, ServiceError, UnknownReferenceError
from imgdiff.model import Image
from imgdiff.sources import archive, daemon, layout, registry, rootfs, snapshot, wheel
from imgdiff.sources._files import reason
from imgdiff.sources._names import without_login
from imgdiff.sources._platform import parse_platform
from imgdiff.sources._reference import Reference, is_identity, may_be_name, parse_reference
from imgdiff.sources._text import shown
from imgdiff.sources.wheel import VERSION as WHEEL_VERSION

__all__ = ["SOURCES", "WHEEL_VERSION", "Source", "open_image"]


class Source(Protocol):
    """One kind of place on disk that images come from: a module of this folder."""

    @property
    def SCHEMES(self) -> tuple[str, ...]:  # noqa: N802 - a constant of the module
        """The schemes that name it."""

    def recognises(self, reference: Reference) -> bool:
        """Tell whether a reference, with its scheme or by what lies at its path, is one of this source's."""

    def read(self, reference: Reference, platform: str | None) -> Image:
        """Return the image."""


SOURCES: tuple[Source, ...] = (
    layout,
    snapshot,
    wheel,
    archive,
    rootfs,
)  # the first that recognises a reference reads it
_ENGINES: dict[str, daemon.Kind] = {"docker": "docker", "docker-daemon": "docker", "podman": "podman"}


def open_image(reference: str, platform: str | None = None, *, insecure: bool = False) -> Image:
    """Return the image that a reference names, for a platform ``os/arch[/variant]`` where it holds several.

    - ``[scheme:]path[:tag][@digest]`` where the path exists. A bare path is recognised by what lies there. Schemes:
      ``oci``, ``oci-archive``, ``docker-archive``, ``dir`` (skopeo's layout where there is a manifest.json, else a root
      file system), ``rootfs``, ``snapshot``, ``wheel``. A path that exists wins over a tag, and over a name.
    - A bare name, ``[host[:port]/]name[:tag][@digest]`` or an image ID: looked for in the local docker engine, then in
      podman, then in its registry.
    - ``docker:NAME``, ``podman:NAME``, ``registry:NAME`` (or ``docker://NAME``) and ``container:NAME`` say it outright.

    ``insecure`` allows plain HTTP and unverified TLS for a registry.

    Without a platform, an index gives the host's, else the only one that is there; attestations are passed over.

    Raises:
        UnknownReferenceError: the reference names nothing, or nothing that is an image.
        ImageError: there is an image that can't be used, or several that could be meant (the sentence lists them).
        BlobError: a manifest, config or layer is missing, or has not the size or digest that is stated.
        ServiceError: an engine or a registry that was named, or is the last to be asked, can't be asked.
        UsageError: the platform is no ``os/arch[/variant]``.
    """
    if platform is not None:
        parse_platform(platform)
    outright = _outright(reference, platform, insecure)
    if outright is not None:
        return outright
    try:
        parsed = parse_reference(reference, _schemes())
    except UnknownReferenceError:
        if not may_be_name(reference, _schemes()):
            raise
        return _named(reference, platform, insecure)
    try:
        for source in SOURCES:
            if source.recognises(parsed):
                if source is rootfs and _rather_a_name(parsed):
                    break
                return source.read(parsed, platform)
    except OSError as error:  # a directory that may not be looked into
        raise ImageError(f"'{shown(reference)}' can't be read: {reason(error)}") from error
    if _rather_a_name(parsed):
        return _named(reference, platform, insecure)
    raise UnknownReferenceError(
        f"'{shown(reference)}' is a directory, but no image that is known",
        f"if it is a root file system, say so: rootfs:{shown(reference)}",
    )


def _schemes() -> tuple[str, ...]:
    return tuple(scheme for source in SOURCES for scheme in source.SCHEMES)


def _rather_a_name(parsed: Reference) -> bool:
    """Tell ``vllm:nightly`` beside a directory ``vllm`` that is no image: it has no tags, so a name is meant."""
    return parsed.scheme is None and bool(parsed.tag or parsed.digest) and may_be_name(parsed.given, ())


def _outright(reference: str, platform: str | None, insecure: bool) -> Image | None:
    """Return the image of a reference that says which engine or registry it means, None for any other."""
    scheme, colon, name = reference.partition(":")
    if not colon or not name:
        return None
    given = without_login(reference)
    if registry.is_named(reference):
        return registry.open_registry(reference, platform, registry.Options(insecure=insecure))
    if scheme in _ENGINES:
        return daemon.open_engine(_ENGINES[scheme], name, given, platform)
    if scheme == daemon.CONTAINER:
        return daemon.open_container(name, given, platform)
    return None


def _named(reference: str, platform: str | None, insecure: bool) -> Image:
    """Return the image of a bare name: an engine's, else the registry's. An error says where it was looked for."""
    given = without_login(reference)
    search = daemon.find_image(reference, given, platform)
    if search.image is not None:
        return search.image
    looked = "; ".join(["it is no path", *search.looked])
    near = f"near to it: {', '.join(map(shown, dict.fromkeys(search.nearest)))}" if search.nearest else None
    if is_identity(reference):
        raise UnknownReferenceError(f"'{shown(given)}' names no image: {looked}", near or "docker images has the IDs")
    try:
        return registry.open_registry(reference, platform, registry.Options(insecure=insecure))
    except (UnknownReferenceError, ServiceError) as error:
        message = f"'{shown(given)}' names no image: {looked}; in its registry: {error}"
        raise type(error)(message, near or error.hint) from error
