"""A root file system in a plain directory, such as a mounted image or an unpacked ``docker export``.

It has no config, no platform (``unknown``) and one layer, which is walked by the layer stage.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, NoReturn

from imgdiff.errors import ImageError, UnknownReferenceError
from imgdiff.model import Image, Layer
from imgdiff.sources._files import reason
from imgdiff.sources._platform import UNKNOWN
from imgdiff.sources._reference import Reference
from imgdiff.sources._text import shown

SCHEMES: tuple[str, ...] = ("rootfs", "dir")

# One of the first, or two of all, tell a root file system from a directory named by mistake; rootfs: takes any.
_SURE = ("etc", "usr")
_TOPS = (*_SURE, "bin", "home", "lib", "lib64", "opt", "root", "sbin", "srv", "var")


def recognises(reference: Reference) -> bool:
    """Tell whether a directory is taken as a root file system: by scheme, else by its top directories."""
    if reference.scheme is not None:
        return reference.scheme in SCHEMES
    there = [top for top in _TOPS if (reference.path / top).is_dir()]
    return len(there) > 1 or any(top in _SURE for top in there)


def read(reference: Reference, platform: str | None) -> Image:  # noqa: ARG001 - nothing here states a platform
    """Return the root file system as an image of one layer; a wanted platform can't be checked and is ignored.

    Raises UnknownReferenceError for what is no directory and ImageError for an empty one, one that can't be read, and
    the root of the running system.
    """
    path = reference.path
    if not path.is_dir():
        raise UnknownReferenceError(f"{shown(str(path))} is no directory, and a root file system is one")
    if reference.scheme == "dir" and (path / "oci-layout").exists():
        raise UnknownReferenceError(
            f"{shown(str(path))} is an OCI layout, and dir: is a directory of skopeo or a root file system",
            f"say oci:{shown(str(path))}",
        )
    if reference.tag or reference.digest:
        raise UnknownReferenceError(f"{shown(str(path))} is a root file system, which has no tags and no digest")
    try:
        if path.samefile(Path(os.sep)):
            raise ImageError(
                "the root of the running system can't be compared: /proc, /sys and /dev are no files of an image",
                "mount or copy the image to a directory of its own",
            )
        with os.scandir(path) as entries:
            if next(entries, None) is None:
                raise ImageError(f"{shown(str(path))} is an empty directory")
    except OSError as error:
        raise ImageError(f"{shown(str(path))} can't be read: {reason(error)}") from error
    layer = Layer(descriptor=None, diff_id=None, open=_no_blob, directory=path.absolute())
    return Image(
        reference=reference.given,
        source="rootfs",
        manifest_digest=None,
        config_digest=None,
        platform=UNKNOWN,
        config=None,
        layers=(layer,),
    )


def _no_blob() -> BinaryIO:
    _refuse()


def _refuse() -> NoReturn:
    raise ImageError("a root file system is walked and has no blob")
