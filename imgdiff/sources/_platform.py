"""Platforms as ``os/architecture[/variant]``, and which of several fits (OCI image index, "platform")."""

from __future__ import annotations

import platform as machine
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from imgdiff.errors import UsageError
from imgdiff.sources._text import shown

UNKNOWN = "unknown"

_WORD = re.compile(r"[A-Za-z0-9_.-]+")
# The names that uname and others use, as containerd's platforms package folds them.
_ALIASES = {
    "i386": ("386", ""),
    "i686": ("386", ""),
    "x86_64": ("amd64", ""),
    "x86-64": ("amd64", ""),
    "aarch64": ("arm64", ""),
    "armhf": ("arm", "v7"),
    "armv7l": ("arm", "v7"),
    "armel": ("arm", "v6"),
    "armv6l": ("arm", "v6"),
}
_DEFAULT_VARIANTS = {"amd64": "v1", "arm64": "v8", "arm": "v7"}

T = TypeVar("T")


class Platform(msgspec.Struct, frozen=True):
    """One platform in the spelling of the OCI spec; an empty variant is not stated."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


def parse_platform(text: str) -> Platform:
    """Return the platform that ``--platform`` names; raise UsageError for anything but ``os/arch[/variant]``."""
    parts = text.lower().split("/")
    if len(parts) not in (2, 3) or not all(_WORD.fullmatch(part) for part in parts):
        raise UsageError(f"'{shown(text)}' is no platform", "a platform is os/arch[/variant], such as linux/amd64")
    return Platform(*parts)


def stated_platform(value: Any) -> Platform | None:
    """Return the platform in a descriptor's ``platform`` or in a config; None where it states none or rubbish."""
    if not isinstance(value, dict):
        return None
    system, architecture, variant = (_word(value.get(key)) for key in ("os", "architecture", "variant"))
    return Platform(system, architecture, variant) if system and architecture else None


def _word(value: Any) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def host_platform() -> Platform:
    """Return the platform of containers on this host: Linux (also where a virtual machine runs them)."""
    return Platform("linux", machine.machine().lower())


def normal(platform: Platform) -> Platform:
    """Return the platform in the one spelling that compares: aliases folded, the default variant written out."""
    architecture, variant = platform.architecture.lower(), platform.variant.lower()
    if architecture in _ALIASES:
        architecture, implied = _ALIASES[architecture]
        variant = variant or implied
    if variant.isdigit():
        variant = "v" + variant
    return Platform(platform.os.lower(), architecture, variant or _DEFAULT_VARIANTS.get(architecture, ""))


def matches(wanted: Platform, stated: Platform) -> bool:
    """Tell whether an image for ``stated`` is one for ``wanted``; a wanted platform without variant takes any."""
    first, second = normal(wanted), normal(stated)
    if (first.os, first.architecture) != (second.os, second.architecture):
        return False
    return not wanted.variant or first.variant == second.variant


def fitting(wanted: Platform, offers: Sequence[tuple[Platform | None, T]]) -> list[T]:
    """Return what fits the wanted platform, in the order of the offers.

    Where the wanted platform has no variant, the default variant goes before all others.
    """
    exact = [offer for stated, offer in offers if stated is not None and normal(stated) == normal(wanted)]
    return exact or [offer for stated, offer in offers if stated is not None and matches(wanted, stated)]
