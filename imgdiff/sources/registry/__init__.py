"""Images in registries, read over HTTP: names as docker takes them, logins from docker's configuration.

Nothing is written to disk: manifests and configs are checked against their digests at once, and layers stream into
whoever opens them. What both images share is opened once by the layer stage, what is in the cache not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from imgdiff.sources._index import choose_platform
from imgdiff.sources._manifest import parse_object, read_image, refuse_schema_1
from imgdiff.sources._names import parse_name, without_login
from imgdiff.sources._platform import parse_platform
from imgdiff.sources.registry._options import Options

if TYPE_CHECKING:
    from imgdiff.model import Image

__all__ = ["SCHEME", "Options", "full_name", "is_named", "open_registry"]

SCHEME = "registry"
_PREFIXES = ("docker://", "registry://", "registry:")


def is_named(reference: str) -> bool:
    """Tell whether a reference says outright that it is in a registry."""
    return reference.startswith(_PREFIXES)


def full_name(reference: str) -> str:
    """Return a name in a registry in full: with its host, and with the tag that it stands for. Raises
    UnknownReferenceError where it can be no name."""
    return str(parse_name(strip_scheme(reference)))


def open_registry(reference: str, platform: str | None = None, options: Options | None = None) -> Image:
    """Return the image that a name in a registry means now: ``[registry:][HOST[:PORT]/]NAME[:TAG][@DIGEST]``.

    A tag is resolved once; everything below it is read by digest. An index gives the image for ``platform``, else as
    an index on disk does. ``image.transfer`` counts what comes.

    Raises:
        UnknownReferenceError: the text can be no name, or the registry has no such repository or tag.
        ImageError: what is there is no image that can be used (schema 1, no such platform).
        BlobError: a manifest or config is missing, or has not the digest or size that is stated.
        ServiceError: the registry can't be reached, wants another login, or breaks off.
        UsageError: the platform is no ``os/arch[/variant]``.
    """
    from imgdiff.sources.registry._client import Registry, RegistryBlobs

    name = parse_name(strip_scheme(reference))
    wanted = None if platform is None else parse_platform(platform)
    registry = Registry(name, options or Options())
    given = without_login(reference)
    with registry.network.connect() as connection:
        data, digest = registry.resolved(connection)
        what = f"the manifest of {name}"
        manifest = parse_object(data, what)
        refuse_schema_1(manifest, what)
        blobs = RegistryBlobs(registry, connection)
        if "manifests" in manifest and "layers" not in manifest:
            image = choose_platform(given, platform, blobs, manifest, f"the index of {name}", SCHEME)
        else:
            image = read_image(blobs, manifest, digest, None, wanted, reference=given, source=SCHEME)
    layers = tuple(
        msgspec.structs.replace(layer, remote=True, parts=registry.parts(layer.descriptor, number, len(image.layers)))
        for number, layer in enumerate(image.layers, 1)
    )
    return msgspec.structs.replace(image, layers=layers, transfer=registry)


def strip_scheme(reference: str) -> str:
    """Return a reference without ``registry:`` or ``docker://``; ``registry:5000/x`` is a host with a port."""
    for scheme in _PREFIXES:
        if reference.startswith(scheme):
            rest = reference.removeprefix(scheme)
            port, slash, _ = rest.partition("/")
            return reference if scheme == "registry:" and slash and port.isdecimal() else rest
    return reference
