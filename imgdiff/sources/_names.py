"""Names of images in registries: ``[domain/]path[:tag][@digest]`` (github.com/distribution/reference).

Docker Hub's short names are written out: ``ubuntu`` is ``docker.io/library/ubuntu:latest``.
"""

from __future__ import annotations

import re

import msgspec

from imgdiff.errors import UnknownReferenceError
from imgdiff.sources._reference import DIGEST
from imgdiff.sources._text import shown

DOCKER_HUB = "docker.io"
_HUB_HOST = "registry-1.docker.io"  # where Docker Hub's registry answers
_HUB_ALIASES = ("docker.io", "index.docker.io", _HUB_HOST)
_LONGEST = 255  # characters of a name

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?")
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_LOGIN = re.compile(r"(?<=//)[^/@]*@|\A[^/@]*:[^/@]*@(?=[^/]*/)")


class ImageName(msgspec.Struct, frozen=True):
    """An image in a registry. ``domain`` is as logins and certificates are kept under it (``docker.io``,
    ``localhost:5000``). ``tag`` is empty where a digest alone is named; where both are, the digest decides."""

    domain: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def host(self) -> str:
        """The ``host[:port]`` that answers for the domain."""
        return _HUB_HOST if self.domain == DOCKER_HUB else self.domain

    @property
    def repository(self) -> str:
        """The whole name without tag and digest."""
        return f"{self.domain}/{self.path}"

    @property
    def version(self) -> str:
        """What is asked for: the digest, else the tag."""
        return self.digest or self.tag

    def __str__(self) -> str:
        return self.repository + (f"@{self.digest}" if self.digest else f":{self.tag}")


def parse_name(text: str) -> ImageName:
    """Take a name apart, its defaults written out (Docker Hub, ``library/``, ``latest``).

    Raises UnknownReferenceError for what can be no name, with what is wrong with it.
    """
    rest, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise _invalid(text, "what stands behind its @ is no digest", "a digest is sha256: and 64 digits in hex")
    head, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        head, tag = rest, ""
    elif not _TAG.fullmatch(tag):
        raise _invalid(text, "what stands behind its : is no tag", "a tag has letters, digits, _ . and -, at most 128")
    domain, path = _domain_and_path(head)
    if not _DOMAIN.fullmatch(domain):
        raise _invalid(text, f"'{shown(domain)}' is no host", "a name in a registry is [HOST[:PORT]/]NAME[:TAG]")
    if not _PATH.fullmatch(path):
        hint = "names are in lower case" if path != path.lower() else "a name in a registry is [HOST[:PORT]/]NAME[:TAG]"
        raise _invalid(text, "its path is none that a registry takes", hint)
    if len(path) > _LONGEST:
        raise _invalid(text, f"it is longer than {_LONGEST} characters", None)
    return ImageName(domain, path, tag or ("" if digest else "latest"), digest)


def _domain_and_path(text: str) -> tuple[str, str]:
    """Split as docker does: the first part is a host if it could be no path, or is localhost."""
    first, slash, rest = text.partition("/")
    if slash and (any(char in ".:[" for char in first) or first == "localhost" or first != first.lower()):
        domain, path = first, rest
    else:
        domain, path = DOCKER_HUB, text
    if domain in _HUB_ALIASES:
        domain = DOCKER_HUB
        path = path if "/" in path else f"library/{path}"
    return domain, path


def without_login(text: str) -> str:
    """Return a reference or URL as it may be shown: without a user and password in it."""
    return _LOGIN.sub("***@", text)


def _invalid(text: str, why: str, hint: str | None) -> UnknownReferenceError:
    return UnknownReferenceError(f"'{shown(without_login(text))}' is no name of an image in a registry: {why}", hint)
