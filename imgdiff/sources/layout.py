"""Images in a directory: an OCI layout (OCI image spec, "Image Layout"), skopeo's ``dir:``, an unpacked archive.

An OCI layout has ``index.json`` and ``blobs/ALGORITHM/HEX``. skopeo's ``dir:`` has ``manifest.json`` and one file
named by the HEX of each blob; where it holds a manifest list, ``HEX.manifest.json`` for each manifest in it.
A layout's index has no digest, so it is believed as it lies there; all below it is checked.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from imgdiff.errors import ImageError, UnknownReferenceError
from imgdiff.model import Image
from imgdiff.sources._files import DirectoryFiles, Files, read_whole
from imgdiff.sources._index import choose
from imgdiff.sources._manifest import Blobs, parse_json, read_image
from imgdiff.sources._oci import read_layout
from imgdiff.sources._platform import parse_platform
from imgdiff.sources._reference import Reference
from imgdiff.sources._saved import choose_saved
from imgdiff.sources._text import shown

SCHEMES: tuple[str, ...] = ("oci", "dir")

_DIR_VERSION = b"Directory Transport Version:"


def recognises(reference: Reference) -> bool:
    """Tell whether a directory is one of ours: by scheme, else by the files that lie in it."""
    path = reference.path
    if reference.scheme == "dir":  # skopeo's where it has a manifest, else left to the root file systems
        return (path / "manifest.json").is_file()
    if reference.scheme is not None:
        return reference.scheme in SCHEMES
    if not path.is_dir():
        return False
    return _is_layout(path) or (not (path / "usr").exists() and (_is_dir(path) or _is_unpacked(path)))


def read(reference: Reference, platform: str | None) -> Image:
    """Return the image that a directory holds under a reference.

    Raises UnknownReferenceError where the path is no such directory, ImageError and BlobError as ``open_image`` says.
    """
    path = reference.path
    if reference.scheme == "oci" and path.is_file():
        raise UnknownReferenceError(
            f"'{shown(reference.given)}' is a file, and an OCI layout is a directory", "for a tar say oci-archive:"
        )
    if not path.is_dir():
        raise UnknownReferenceError(f"{shown(str(path))} is no directory")
    files = DirectoryFiles(path)
    if reference.scheme == "oci" or (reference.scheme is None and _is_layout(path)):
        return read_layout(reference, platform, files, "oci")
    if _is_unpacked(path):
        return choose_saved(reference, platform, files)
    return _read_dir(reference, platform, files)


def _is_layout(path: Path) -> bool:
    return (path / "index.json").exists() and ((path / "oci-layout").exists() or (path / "blobs").is_dir())


def _is_dir(path: Path) -> bool:
    """Tell skopeo's directory by its version file, else by a manifest.json that is a manifest."""
    files = DirectoryFiles(path)
    if files.size("manifest.json") is None:
        return False
    version = files.size("version")
    if version is not None and version < 100 and read_whole(files, "version").startswith(_DIR_VERSION):
        return True
    return read_whole(files, "manifest.json").lstrip()[:1] == b"{"


def _is_unpacked(path: Path) -> bool:
    """Tell a docker archive that was unpacked: its manifest.json is a list, a manifest is an object."""
    files = DirectoryFiles(path)
    if files.size("manifest.json") is None:
        return False
    return read_whole(files, "manifest.json").lstrip()[:1] == b"["


def _read_dir(reference: Reference, platform: str | None, files: Files) -> Image:
    if reference.tag:
        raise ImageError(f"{files.where} is a directory of skopeo, which has no tags", "leave the tag away")
    data = read_whole(files, "manifest.json")
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    what = f"manifest.json in {files.where}"
    manifest = parse_json(data, what)
    if not isinstance(manifest, dict):
        raise ImageError(f"{what} is no JSON object")
    blobs = Blobs(files, _dir_names)
    if "manifests" in manifest and "layers" not in manifest:
        return choose(reference, platform, blobs, data, "dir")
    if reference.digest not in ("", digest):
        raise ImageError(f"{files.where} has no image @{shown(reference.digest)}: it has @{digest}")
    wanted = None if platform is None else parse_platform(platform)
    return read_image(blobs, manifest, digest, None, wanted, reference=reference.given, source="dir")


def _dir_names(digest: str) -> tuple[str, ...]:
    algorithm, _, encoded = digest.partition(":")
    plain = (encoded, f"{encoded}.manifest.json")
    return plain if algorithm == "sha256" else (f"{algorithm}-{encoded}", *plain)
