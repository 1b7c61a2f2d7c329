"""References as the user writes them: ``[scheme:]path[:tag][@digest]``."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from imgdiff.errors import UnknownReferenceError
from imgdiff.sources._text import shown

DIGEST = re.compile(r"(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})")
_PINNED = re.compile(r"(?P<rest>.+)@(?P<digest>[a-z0-9]+:[0-9a-f]+)", re.DOTALL)
# distribution/reference: [domain[:port]/]path[:tag], the path in lower case
_NAME = re.compile(r"(?:[A-Za-z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*(?::\w[\w.-]{0,127})?")
_ELSEWHERE = {"containerd", "containers-storage", "http", "https"}  # as other tools say where an image is
_FILE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".json", ".oci")


class Reference(msgspec.Struct, frozen=True):
    """A reference taken apart. ``path`` exists. ``tag`` is a tag or a whole name with a tag, or empty."""

    given: str
    scheme: str | None
    path: Path
    tag: str = ""
    digest: str = ""


def parse_reference(given: str, schemes: tuple[str, ...]) -> Reference:
    """Take a reference apart. A path that exists wins over a reading with tag or digest.

    Raises UnknownReferenceError where no path of it exists; :func:`may_be_name` tells what may be one elsewhere.
    """
    scheme, colon, rest = given.partition(":")
    if colon and scheme in schemes:
        found = _split(given, scheme, rest)
        if found is not None:
            return found
    found = _split(given, None, given)
    if found is None:
        raise _unknown(given, scheme if colon and scheme in schemes else None)
    return found


def _split(given: str, scheme: str | None, text: str) -> Reference | None:
    """Return the reading of ``text`` whose path exists and is the longest, or None."""
    if not text:
        return None
    if _exists(text):
        return Reference(given, scheme, Path(text))
    digest = ""
    pinned = _PINNED.fullmatch(text)
    if pinned:
        text, digest = pinned["rest"], pinned["digest"]
        if _exists(text):
            return Reference(given, scheme, Path(text), digest=digest)
    position = len(text)
    while (position := text.rfind(":", 0, position)) > 0:
        if text[position + 1 :] and _exists(text[:position]):
            return Reference(given, scheme, Path(text[:position]), text[position + 1 :], digest)
    return None


def _exists(text: str) -> bool:
    try:
        return os.path.lexists(text)
    except ValueError:  # a NUL byte
        return False


def may_be_name(given: str, schemes: tuple[str, ...]) -> bool:
    """Tell what can be a name in an engine or a registry, or an image's ID, from what can only be a path."""
    scheme, colon, _ = given.partition(":")
    if (colon and (scheme in schemes or scheme in _ELSEWHERE)) or given.startswith(("./", "../")):
        return False
    text = given.partition("@")[0]
    files = (text, text.rpartition(":")[0])  # FILE.tar:TAG is an archive that is not there
    return bool(_NAME.fullmatch(text)) and not any(file.endswith(_FILE_SUFFIXES) for file in files)


def is_identity(given: str) -> bool:
    """Tell an image's whole ID, which no registry knows."""
    return bool(re.fullmatch(r"(?:sha256:)?[0-9a-f]{64}", given))


def _unknown(given: str, scheme: str | None) -> UnknownReferenceError:
    """Return the error for a reference of which no path exists, with the best hint there is."""
    if scheme is not None:
        return UnknownReferenceError(f"'{shown(given)}' names no image: there is no such file or directory")
    before, colon, rest = given.partition(":")
    if colon and before in _ELSEWHERE:
        name = rest.lstrip("/")
        return UnknownReferenceError(
            f"'{shown(given)}' names no image: {before}: is nothing that this version reads",
            f"say docker:NAME, podman:NAME or registry:NAME (so registry:{shown(name)}), or bring it to disk with "
            "docker save or skopeo copy",
        )
    return UnknownReferenceError(
        f"'{shown(given)}' names no image: there is no such file or directory",
        "name an OCI layout, an archive of docker save or podman save, a root file system directory, or an image: "
        "NAME, docker:NAME, podman:NAME, registry:NAME, container:NAME",
    )
