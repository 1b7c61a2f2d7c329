"""Where the way from an entry ends in a program that is neither a Python nor a shell: what it starts is not followed,
so that only what surely starts nothing may end a way in silence."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence

from imgdiff.engines import ProgramRule, common
from imgdiff.model import ElfFacts
from imgdiff.trace.launch.started import Launch
from imgdiff.trace.libraries.natives import Natives
from imgdiff.trace.libraries.needed import Start
from imgdiff.trace.paths import show

_STARTS = frozenset(
    {"execve", "execv", "execvp", "execvpe", "execl", "execle", "execlp", "execveat", "fexecve"}
    | {"posix_spawn", "posix_spawnp", "system", "popen", "wordexp"}
)


def unfollowed(launches: Sequence[Launch], natives: Natives, *, alone: bool) -> Iterator[str]:
    """Yield why the programs that a way from the entry ends in may start or load what was not followed. ``alone``: no
    Python was found on any way, so that all which can start one, or is one, may be the way to it."""
    for launch in launches:
        if launch.program is None or launch.python is not None or launch.open:  # what is open is said already
            continue
        known = _rule(launch, common().starters)
        if known is not None and not _packaged(launch, natives):
            yield f"the entry starts {show(launch.program)}, and what that starts is not followed: {known.reason}"
        elif alone and launch.told:
            yield f"the entry starts {show(launch.program)} without a program: what it is told to run is not known"
        elif alone and _rule(launch, common().no_python) is None:
            touched = (one.path for other in launches if other.program != launch.program for one in other.touched)
            reason = None if launch.program in touched else _can_start(launch, natives)  # it is only on the way
            if reason is not None:
                yield f"the entry leads to no Python, but to {show(launch.program)}, and {reason}; --entry can say it"
    for launch in launches if alone else ():
        if launch.python is not None and launch.program is not None and launch.python.environment is None:
            yield f"the entry starts the Python {show(launch.program)}, and its standard library is not in the image"


def _rule(launch: Launch, rules: Sequence[ProgramRule]) -> ProgramRule | None:
    """Return the rule that lists a program, by the name it was started under or by its own."""
    program = (launch.program or b"").decode("utf-8", "surrogateescape")
    names = {each.rpartition("/")[2] for each in (program, *launch.argv[:1])}
    fits = (rule for rule in rules for name in names for pattern in rule.programs if fnmatch.fnmatchcase(name, pattern))
    return next(fits, None)


def _packaged(launch: Launch, natives: Natives) -> bool:
    """Tell whether a script of the image's distribution starts a program."""
    by = next((each.by for each in reversed(launch.touched) if each.path == launch.program), None)
    return by is not None and natives.follower.programs.packaged(by)


def _can_start(launch: Launch, natives: Natives) -> str | None:
    """Say how a program can come to Python code; None if it surely can't."""
    assert launch.program is not None
    facts = natives.facts.elf(launch.program)
    if facts is None:
        return "its interpreter is not in the image"
    if not natives.attribution.environments:
        return None  # there is no Python that it could come to
    if not isinstance(facts, ElfFacts):
        return "what that starts could not be read"
    closure = natives.resolver(launch, launch.program).closure([Start(launch.program)])
    everything = [facts, *(found for each in closure.loaded if (found := natives.elf(each.path)) is not None)]
    if any(each.python for each in everything):
        return "that has a Python inside: what it runs there is not followed"
    if facts.interpreter is None and not facts.needed:
        return "that is linked statically: what it starts can't be told"
    if any(not _STARTS.isdisjoint(each.symbols) for each in everything):
        return "what that starts is not followed"
    return None
