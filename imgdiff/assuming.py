"""What the user says of the run, on the command line and by a model's config.json."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from imgdiff.errors import UsageError
from imgdiff.model import Assumed, Attribution, Distribution, Profile

_MAX_CONFIG = 10_000_000  # bytes of a config.json
_NAMES = "architectures"  # the key of a config.json that names the classes (transformers, PretrainedConfig)

# What the local label of a version, or the end of a distribution's name, says that a build is for (torch 2.9.0+cu128,
# vllm-xpu, vllm 0.20.0+cpu)
_BUILT_FOR = {"cpu": "cpu", "xpu": "xpu", "rocm": "rocm", "cu": "cuda", "cuda": "cuda", "tpu": "tpu"}
_LABEL = re.compile(r"(cpu|xpu|rocm|tpu|cuda|cu(?=\d))")

# Configs inside a config.json that are of no model, or of a part that an engine makes by an import, not by its registry
_NO_MODELS = frozenset(
    {"quantization_config", "compression_config", "generation_config", "vision_config", "audio_config"}
)


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
    unnamed: tuple[str, ...] = ()
    if config is not None:
        content = _of_config(config)
        top = isinstance(content, dict) and _names_of(content)
        inner = list(dict.fromkeys(_architectures(content)))
        if not inner or (not top and not architectures):
            where = " at its top, where the model's own stand" if inner else ""
            hint = "name a model's config.json, or the model's own by --model-arch"
            raise UsageError(f"{str(config)!r} names no {_NAMES}{where}", hint)
        named += inner
        unnamed = tuple(dict.fromkeys(_unnamed(content)))
    whole = config is not None and not unnamed
    return Assumed(tuple(sorted(values.items())), tuple(dict.fromkeys(named)), whole, unnamed)


def _of_config(path: Path) -> object:
    """The content of a config.json."""
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
    return config


def _names_of(config: dict[object, object]) -> list[str]:
    named = config.get(_NAMES)
    return [each for each in named if isinstance(each, str)] if isinstance(named, list) else []


def _unnamed(config: object) -> Iterator[str]:
    """Yield the keys of the configs inside a config that could be those of models, and name no architectures: the
    engine takes them from elsewhere."""
    items = config.items() if isinstance(config, dict) else ()
    for key, value in items:
        for inner in value if isinstance(value, list) else (value,):
            if isinstance(inner, dict):
                is_model = "model_type" in inner or str(key).endswith("_config")
                if is_model and key not in _NO_MODELS and not _names_of(inner):
                    yield str(key)
                yield from _unnamed(inner)


def _architectures(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _names_of(value)
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


def against(profile: Profile, sides: Sequence[tuple[str, Attribution]]) -> str | None:
    """Return the sentence that the builds in the images (each with its letter) are not for the platform that is
    assumed; None where none says so."""
    assumed_platform = dict(profile.assumed.values).get("platform")
    found: dict[str, list[str]] = {}
    for side, attribution in sides if assumed_platform is not None else ():
        for each in attribution.distributions:
            is_engine = profile.package is not None and profile.package in each.packages
            platform = _built_for(each) if is_engine or each.name == "torch" else None
            # torch-xla has its own code for TPUs beside the torch for CPUs
            if platform not in (None, assumed_platform, "cpu" if assumed_platform == "tpu" and not is_engine else None):
                found.setdefault(f"{each.name} {each.version} is a build for {platform}", []).append(side)
    if not found:
        return None
    builds = "; ".join(f"{text} (in {' and '.join(dict.fromkeys(where))})" for text, where in found.items())
    return f"platform={assumed_platform} is assumed, and what is installed speaks against it: {builds}."


def _built_for(distribution: Distribution) -> str | None:
    label = _LABEL.match((distribution.version or "").partition("+")[2].lower())
    name = _LABEL.fullmatch(distribution.name.rpartition("-")[2]) if "-" in distribution.name else None
    match = label or name
    return None if match is None else _BUILT_FOR[match[1]]


def caveat(profile: Profile) -> str | None:
    """Return the sentence that a verdict under assumptions carries first; None where there are none."""
    words = told(profile.assumed)
    if not words:
        return None
    return (
        f"Assumed on the user's word: {', '.join(words)}. What only another platform or another model would load "
        "counts as not loaded: if the run was another, this verdict does not hold."
    )
