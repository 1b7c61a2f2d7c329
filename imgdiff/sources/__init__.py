"""Where an image comes from: a reference and a platform in, an :class:`~imgdiff.model.Image` out.

Nothing of an image is unpacked or run here. Manifests and configs are checked against digest and size, and every
layer is known to be there with the size that the manifest states; its content is checked by the layer stage.
"""

from __future__ import annotations

from typing import Protocol

from imgdiff.errors import ImageError, UnknownReferenceError
from imgdiff.model import Image
from imgdiff.sources import archive, layout, registry, rootfs
from imgdiff.sources._files import reason
from imgdiff.sources._platform import parse_platform
from imgdiff.sources._reference import Reference, parse_reference
from imgdiff.sources._text import shown

__all__ = ["SOURCES", "Source", "open_image"]


class Source(Protocol):
    """One kind of place that images come from: a module of this folder."""

    @property
    def SCHEMES(self) -> tuple[str, ...]:  # noqa: N802 - a constant of the module
        """The schemes that name it."""

    def recognises(self, reference: Reference) -> bool:
        """Tell whether a reference, with its scheme or by what lies at its path, is one of this source's."""

    def read(self, reference: Reference, platform: str | None) -> Image:
        """Return the image."""


SOURCES: tuple[Source, ...] = (layout, archive, rootfs)  # the first that recognises a reference reads it


def open_image(reference: str, platform: str | None = None, *, insecure: bool = False) -> Image:
    """Return the image that a reference names, for a platform ``os/arch[/variant]`` where it holds several.

    ``reference`` is ``[scheme:]path[:tag][@digest]``. A bare path is recognised by what lies there. Schemes: ``oci``,
    ``oci-archive``, ``docker-archive``, ``dir`` (skopeo's layout where there is a manifest.json, else a root file
    system), ``rootfs``. A path that exists wins over a tag. Without a platform, an index gives the host's, else the
    only one that is there; attestations are passed over.

    ``registry:NAME`` (or ``docker://NAME``, as skopeo writes it) is read from its registry; ``insecure`` allows plain
    HTTP and unverified TLS there.

    Raises:
        UnknownReferenceError: the reference names nothing, or nothing that is an image.
        ImageError: there is an image that can't be used, or several that could be meant (the sentence lists them).
        BlobError: a manifest, config or layer is missing, or has not the size or digest that is stated.
        ServiceError: a registry can't be reached, or refuses.
        UsageError: the platform is no ``os/arch[/variant]``.
    """
    if platform is not None:
        parse_platform(platform)
    if registry.is_named(reference):
        return registry.open_registry(reference, platform, registry.Options(insecure=insecure))
    parsed = parse_reference(reference, tuple(scheme for source in SOURCES for scheme in source.SCHEMES))
    try:
        for source in SOURCES:
            if source.recognises(parsed):
                return source.read(parsed, platform)
    except OSError as error:  # a directory that may not be looked into
        raise ImageError(f"'{shown(reference)}' can't be read: {reason(error)}") from error
    raise UnknownReferenceError(
        f"'{shown(reference)}' is a directory, but no image that is known",
        f"if it is a root file system, say so: rootfs:{shown(reference)}",
    )
