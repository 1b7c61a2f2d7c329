"""Differences of the configs, and what all of it comes to."""

from __future__ import annotations

from typing import Literal

import msgspec

from imgdiff.model.profiles import Bears

ConfigField = Literal[
    "env",
    "entrypoint",
    "cmd",
    "user",
    "working_dir",
    "labels",
    "ports",
    "volumes",
    "healthcheck",
    "stop_signal",
    "shell",
    "other",
]


class ConfigChange(msgspec.Struct, frozen=True):
    """One difference of the image configs. ``name`` is the ENV name or label key. Values are redacted already."""

    field: ConfigField
    name: str | None
    a: str | None
    b: str | None
    bears: Bears
    reason: str
    redacted: bool = False


Outcome = Literal["identical", "killed", "stands", "undecided"]
Confidence = Literal["recorded", "static"]


class RoleVerdict(msgspec.Struct, frozen=True):
    """The outcome for one role, with sentences."""

    outcome: Outcome
    confidence: Confidence
    reasons: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """Worst of the claim's roles, with sentences. ``claim`` are the roles the claim is about."""

    outcome: Outcome
    confidence: Confidence
    headline: str
    reasons: tuple[str, ...]
    caveats: tuple[str, ...]
    claim: tuple[str, ...]
    roles: dict[str, RoleVerdict]
    settle: tuple[str, ...] = ()
