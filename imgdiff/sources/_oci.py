"""An OCI layout (OCI image spec, "Image Layout") in whatever its files lie: a directory or an archive."""

from __future__ import annotations

from imgdiff.errors import ImageError, UnknownReferenceError
from imgdiff.model import Image
from imgdiff.sources._files import Files, read_whole
from imgdiff.sources._index import choose
from imgdiff.sources._manifest import Blobs, parse_object
from imgdiff.sources._reference import Reference
from imgdiff.sources._text import shown


def blob_names(digest: str) -> tuple[str, ...]:
    """Return where an OCI layout keeps a blob."""
    algorithm, _, encoded = digest.partition(":")
    return (f"blobs/{algorithm}/{encoded}",)


def read_layout(reference: Reference, platform: str | None, files: Files, source: str) -> Image:
    """Return the image of a layout that a reference means; ``source`` is the word for where it lies.

    Raises UnknownReferenceError where there is no index.json, ImageError and BlobError as ``open_image`` says.
    """
    if files.size("index.json") is None:
        raise UnknownReferenceError(f"{files.where} is no OCI layout: it has no index.json")
    if files.size("oci-layout") is not None:
        what = f"oci-layout in {files.where}"
        version = parse_object(read_whole(files, "oci-layout"), what).get("imageLayoutVersion")
        if not isinstance(version, str) or not version.startswith("1."):
            raise ImageError(f"{what} is of version {shown(repr(version))}, and 1.0.0 is read")
    return choose(reference, platform, Blobs(files, blob_names), read_whole(files, "index.json"), source)
