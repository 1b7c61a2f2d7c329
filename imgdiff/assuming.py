"""What the user says of the run, on the command line and by a model's config.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from imgdiff.errors import UsageError
from imgdiff.model import Assumed, Profile

_MAX_CONFIG = 10_000_000  # bytes of a config.json
_NAMES = "architectures"  # the key of a config.json that names the classes (transformers, PretrainedConfig)


def assumed(assume: Sequence[str], architectures: Sequence[str], config: Path | None) -> Assumed:
    """Return what ``--assume NAME=VALUE``, ``--model-arch`` and ``--model-config`` say. Raises UsageError."""
    values: dict[str, str] = {}
    for text in assume:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--assume {text!r} is no NAME=VALUE", "platform=xpu, say")
        if values.setdefault(name, value) != value:
            raise UsageError(f"--assume says two things of {name!r}", "a run has one")
    if any(not name for name in architectures):
        raise UsageError("--model-arch is empty", "name a class, as config.json does: LlamaForCausalLM")
    named = list(architectures)
    if config is not None:
        named += _of_config(config)
    return Assumed(tuple(sorted(values.items())), tuple(dict.fromkeys(named)), config is not None)


def _of_config(path: Path) -> list[str]:
    """The architectures of a config.json, and of the configs inside it."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_CONFIG + 1)
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be read: {error.strerror}", "name a model's config.json") from error
    if len(content) > _MAX_CONFIG:
        raise UsageError(f"{str(path)!r} is larger than {_MAX_CONFIG:,} bytes", "name a model's config.json")
    try:
        config = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{str(path)!r} is no JSON: {error}", "name a model's config.json") from error
    found = list(_architectures(config))
    if not found:
        raise UsageError(f"{str(path)!r} names no {_NAMES}", "name a model's config.json, or use --model-arch")
    return found


def _architectures(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        named = value.get(_NAMES)
        if isinstance(named, list):
            yield from (each for each in named if isinstance(each, str))
        for inner in value.values():
            yield from _architectures(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _architectures(inner)


def applied(profile: Profile, said: Assumed) -> Profile:
    """Return a profile with these assumptions. Raises UsageError where it has no rule for one."""
    known = [f"{rule.name}={rule.value}" for rule in profile.assumes]
    for name, value in said.values:
        if f"{name}={value}" not in known:
            hint = f"it knows: {', '.join(dict.fromkeys(known))}" if known else "it knows none"
            raise UsageError(f"profile {profile.name} has no rule for the assumption {name}={value}", hint)
    if said.architectures and not profile.model_tables:
        raise UsageError(
            f"profile {profile.name} knows no table of model architectures", "leave out --model-arch and --model-config"
        )
    return msgspec.structs.replace(profile, assumed=said)


def told(said: Assumed) -> tuple[str, ...]:
    """Return the assumptions as words, for a report."""
    return (
        *(f"{name}={value}" for name, value in said.values),
        *(f"model-arch={name}" for name in said.architectures),
    )


def caveat(profile: Profile) -> str | None:
    """Return the sentence that a verdict under assumptions carries first; None where there are none."""
    words = told(profile.assumed)
    if not words:
        return None
    return (
        f"Assumed on the user's word: {', '.join(words)}. What only another platform or another model would load "
        "counts as not loaded: if the run was another, this verdict does not hold."
    )
