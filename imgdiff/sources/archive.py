"""Images in a tar archive, plain or gzip: ``docker save``, ``podman save``, ``skopeo copy``, crane, OCI layouts.

An archive that has both an OCI index and docker's manifest.json (docker 25 and newer) is read by its index, which
states digests; ``docker-archive:`` reads it by manifest.json, and ``source`` tells its kind either way.
"""

from __future__ import annotations

from imgdiff.errors import ImageError, UnknownReferenceError
from imgdiff.model import Image
from imgdiff.sources._oci import read_layout
from imgdiff.sources._reference import Reference
from imgdiff.sources._saved import choose_saved
from imgdiff.sources._tar import ArchiveFiles, is_archive
from imgdiff.sources._text import shown

SCHEMES: tuple[str, ...] = ("oci-archive", "docker-archive")


def recognises(reference: Reference) -> bool:
    """Tell whether a reference is ours: by scheme, else any file is."""
    if reference.scheme is not None:
        return reference.scheme in SCHEMES
    return not reference.path.is_dir()


def read(reference: Reference, platform: str | None) -> Image:
    """Return the image that an archive holds under a reference.

    Raises UnknownReferenceError where the file is no image archive, ImageError where it is damaged or compressed with
    something else than gzip, and both and BlobError as ``open_image`` says.
    """
    path = reference.path
    if path.is_dir():
        raise UnknownReferenceError(
            f"'{shown(reference.given)}' is a directory, and an archive is a file", "for an OCI layout say oci:"
        )
    if not is_archive(path):
        raise UnknownReferenceError(
            f"{shown(str(path))} is a file, but no image archive",
            "archives are made by docker save, podman save or skopeo copy",
        )
    files = ArchiveFiles(path)
    oci, saved = "index.json" in files, "manifest.json" in files
    if not oci and not saved and "repositories" in files:
        raise ImageError(
            f"{files.where} was saved by a docker before 1.10 and has no manifest.json",
            "load it into an engine of today and save it again",
        )
    if reference.scheme == "docker-archive" or (saved and not oci and reference.scheme is None):
        return choose_saved(reference, platform, files)
    if reference.scheme == "oci-archive" or oci:
        source = "docker-archive" if saved and reference.scheme is None else "oci-archive"
        return read_layout(reference, platform, files, source)
    raise UnknownReferenceError(
        f"{files.where} is a tar archive without an image: it has neither index.json nor manifest.json",
        "an exported container or another root file system is read from a directory: unpack it and name that",
    )
