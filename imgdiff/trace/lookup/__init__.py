"""Which copy a name leads to, with every place that is searched: the trace's own search, asked about one name.

The answer is what the processes that the entry starts have at their start. What code adds to a search path while it
runs, and what other files have loaded before, is known to the trace of a role.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from imgdiff.errors import UsageError
from imgdiff.model import ElfFacts, LookupAnswer, LookupKind, LookupLoad, Profile, RoleTrace, Trace
from imgdiff.trace.launch.started import Launch
from imgdiff.trace.lookup._asked import Asked, Desk
from imgdiff.trace.lookup._libraries import library
from imgdiff.trace.lookup._modules import module
from imgdiff.trace.lookup._programs import program
from imgdiff.trace.tracer import Tracer

__all__ = ["KINDS", "kinds_of", "loads", "look_up"]

KINDS: tuple[LookupKind, ...] = ("module", "library", "program")
_REACHED = ("recorded", "eager", "deferred", "dormant")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_ANSWERS = {"module": module, "library": library, "program": program}


def kinds_of(name: str) -> tuple[LookupKind, ...]:
    """Return what a name can be by its form: a library (``libx.so.1``), else a module, a program, or both."""
    last = name.rpartition("/")[2]
    if re.search(r"\.so(\.|$)", last):
        return ("library",)
    if "/" in name or not _MODULE.fullmatch(name):
        return ("program",)
    return ("module",) if "." in name else ("module", "program")


def look_up(
    tracer: Tracer, name: str, kinds: Iterable[LookupKind], loader: str | None = None
) -> tuple[LookupAnswer, ...]:
    """Return what a name leads to in each process that the entry starts; processes with one answer share it.

    ``loader`` is the absolute path of the ELF file that asks for a library, instead of the program itself. Raises
    UsageError where that is none.
    """
    desk = Desk(tracer, None if loader is None else _elf(tracer, loader))
    found: dict[LookupAnswer, list[str]] = {}
    asked = list(_processes(tracer))
    for kind in kinds:
        for each in asked:
            answer = _ANSWERS[kind](desk, each, name)
            if answer is not None:
                opens = f", for {loader}" if loader is not None and kind == "library" else ""
                found.setdefault(answer, []).append(each.label + opens)
    return tuple(msgspec.structs.replace(answer, asked_by=tuple(dict.fromkeys(who))) for answer, who in found.items())


def _elf(tracer: Tracer, path: str) -> bytes:
    encoded = path.encode("utf-8", "surrogateescape")
    found = tracer.tree.resolve(encoded)
    if found is None or tracer.tree.get(found) is None:
        raise UsageError(f"{path!r} is not in the image", "name a file as the container sees it, with its whole path")
    if not isinstance(tracer.facts.elf(found), ElfFacts):
        raise UsageError(f"{path!r} is no ELF file that can be read", "name a program or a shared object")
    return encoded


def _processes(tracer: Tracer) -> Iterator[Asked]:
    """Yield the processes that the entry starts; where it starts none, an interpreter of each environment."""
    launches = tracer.commands.launches()
    none = True
    for launch in launches:
        setting = tracer.maker.setting(launch)
        if setting is not None:
            none = False
            yield Asked.of_python(setting)
    for launch in tracer.commands.others:
        if launch.program is not None:
            none = False
            yield Asked.of_program(launch)
    if none:
        for environment in tracer.attribution.environments:
            launch = Launch((), tracer.commands.env, tracer.commands.cwd)
            asked = Asked.of_environment(tracer, launch, environment)
            if asked is not None:
                none = False
                yield asked
    if none:
        yield Asked("a process of the image", Launch((), tracer.commands.env, tracer.commands.cwd), None, None)


def loads(
    trace: Trace, profile: Profile, name: str, roles: Sequence[str], answers: Sequence[LookupAnswer]
) -> tuple[LookupLoad, ...]:
    """Return what these roles of a trace take the name for, every copy. What programs need that are no Python is in no
    table of names: there the copies among the answers that the role reaches are told."""
    found: list[LookupLoad] = []
    for role in (trace.roles[role.name] for role in profile.roles if role.name in roles):
        here = list(_loads(role, name))
        known = {each.file for each in here}
        for answer in answers if not here else ():
            for each in (each for place in answer.places for each in place.candidates):
                evidence = role.evidence(each.file) if each.file is not None and answer.kind != "module" else None
                if evidence is not None and evidence.level in _REACHED and each.file not in known:
                    assert each.file is not None
                    known.add(each.file)
                    here.append(LookupLoad(role.role, answer.kind, name, evidence.level, each.file, evidence.chain))
        found += here
    return tuple(found)


def _loads(role: RoleTrace, name: str) -> Iterator[LookupLoad]:
    """A copy that is not the plain one has a word on it behind the name, in brackets."""
    tables: tuple[tuple[LookupKind, object], ...] = (("module", role.modules), ("library", role.libraries))
    for kind, table in tables:
        assert isinstance(table, dict)
        for label, (level, resolved) in table.items():
            if label == name or label.startswith(f"{name} ("):
                is_program = kind == "library" and kinds_of(name) != ("library",)
                evidence = role.evidence(resolved.path)
                yield LookupLoad(
                    role.role, "program" if is_program else kind, label, level, resolved.path, evidence.chain
                )
