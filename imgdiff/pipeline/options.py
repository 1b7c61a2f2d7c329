"""What a run is asked for."""

from __future__ import annotations

from pathlib import Path

import msgspec

from imgdiff import assuming, engines
from imgdiff.errors import UsageError
from imgdiff.model import Assumed
from imgdiff.trace.launch.words import split_entry

ACCEPTABLE: frozenset[str] = frozenset({"dormant"})


class Options(msgspec.Struct, frozen=True):
    """What a run was asked for.

    ``platform``: os/arch[/variant] out of an index. ``entry``: another command line than the image's. ``roles``: the
    roles that the claim is about (default: the profile's engine roles). ``accept``: levels taken as not loaded.
    ``profile``: an engine profile by name (default: recognised). ``cache_dir``: None for the user's own; ``cache``
    False for a temporary one. ``jobs``: processes (default: all cores). ``argv``: for the report.
    ``insecure``: plain HTTP and unverified TLS are allowed for registries. ``trust_toc``: tables of contents that the
    manifests of layers in registries vouch for are believed. ``traces``: recordings of runs, each ``PATH`` or
    ``ROLE=PATH``. ``any_image``: those that were made on another image are taken too. ``assume``: NAME=VALUE each,
    ``model_archs`` and ``model_config`` (its config.json) the model: what they leave out counts as not loaded.
    """

    platform: str | None = None
    entry: str | None = None
    roles: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    profile: str | None = None
    cache_dir: Path | None = None
    cache: bool = True
    jobs: int | None = None
    argv: tuple[str, ...] = ()
    insecure: bool = False
    trust_toc: bool = False
    traces: tuple[str, ...] = ()
    any_image: bool = False
    assume: tuple[str, ...] = ()
    model_archs: tuple[str, ...] = ()
    model_config: Path | None = None


def check(options: Options) -> None:
    """Say before the long work what is asked for that there is not. Raises UsageError."""
    for level in options.accept:
        if level not in ACCEPTABLE:
            raise UsageError(f"level {level!r} can't be accepted as not loaded", "only dormant can: --accept dormant")
    profiles = engines.load_profiles()
    names = [profile.name for profile in profiles]
    if options.profile is not None and options.profile not in names:
        raise UsageError(f"there is no engine profile {options.profile!r}", f"there are: {', '.join(sorted(names))}")
    asked = [profile for profile in profiles if options.profile in (None, profile.name)]
    known = dict.fromkeys(role.name for profile in asked for role in profile.roles)
    for role in options.roles:  # whether the recognised profile has it is known later
        if role not in known:
            whose = f"profile {options.profile}" if options.profile is not None else "any engine profile"
            raise UsageError(f"there is no role {role!r} in {whose}", f"there are: {', '.join(known)}")
    if options.entry is not None:
        try:
            words = split_entry(options.entry)
        except ValueError as error:
            raise UsageError(f"--entry is no command line: {error}", "quote its words as for a shell") from error
        if not words:
            raise UsageError("--entry is empty", "name a command, or a module: python -m NAME, or NAME")


def assumed_by(options: Options) -> Assumed:
    """Return what the trace is to take for given. Raises UsageError for what can't be assumed.

    To be asked once a run: a file that changes meanwhile would have the report kept under a false key, and a pipe can
    be read once.
    """
    return assuming.assumed(options.assume, options.model_archs, options.model_config)
