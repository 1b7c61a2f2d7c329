"""Which engine profile two images have, and which of its roles the claim is about."""

from __future__ import annotations

from collections.abc import Sequence

from imgdiff import assuming, engines
from imgdiff.errors import UsageError
from imgdiff.model import Assumed, Profile, Recording
from imgdiff.pipeline.images import Indexed
from imgdiff.pipeline.options import Options
from imgdiff.trace.recorded.family import fits


def check_recorded_roles(runs: Sequence[Recording], profile: Profile) -> None:
    """Raise UsageError where a recording is said to be of a role that the profile lacks, or that a process of it
    contradicts by its own title."""
    names = [role.name for role in profile.roles]
    for process in (process for run in runs for process in run.processes if process.role is not None):
        if process.role not in names:
            raise UsageError(
                f"--trace {process.role}=... names a role that the profile {profile.name} does not have",
                f"it has: {', '.join(names)}",
            )
        own = {
            role.name: title
            for role in profile.roles
            for title in process.titles
            if any(fits(title, pattern) for pattern in role.titles)
        }
        if own and process.role not in own:
            role, title = next(iter(own.items()))
            raise UsageError(
                f"--trace {process.role}=... holds a process that calls itself {title!r}, as those of {role} do",
                "leave the role out, since the recording tells it, or name the file of one process",
            )


def profile_of(a: Indexed, b: Indexed, options: Options, assumed: Assumed) -> Profile:
    """Return the profile that both images are judged by: the one asked for, else what b holds, else what a holds;
    and with what is assumed of the run."""
    return assuming.applied(_plain_profile(a, b, options), assumed)


def _plain_profile(a: Indexed, b: Indexed, options: Options) -> Profile:
    if options.profile is not None:
        return next(profile for profile in engines.load_profiles() if profile.name == options.profile)
    found = engines.recognise(b.attribution, b.tree)
    return found if found.package is not None else engines.recognise(a.attribution, a.tree)


def claim_of(profile: Profile, options: Options) -> tuple[str, ...]:
    """Return the names of the roles that the claim is about. Raises UsageError for one that the profile lacks."""
    names = [role.name for role in profile.roles]
    for role in options.roles:
        if role not in names:
            raise UsageError(f"profile {profile.name} has no role {role!r}", f"it has: {', '.join(names)}")
    return tuple(dict.fromkeys(options.roles)) or tuple(role.name for role in profile.roles if role.engine)
