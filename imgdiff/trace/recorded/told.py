"""What is said of recordings, in sentences: their conditions, their end, and what they are not complete for."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence

import msgspec

from imgdiff.model import Covers, RecordedRole, RecordedRun, Recording, Side

_FEW = 3
_WORDS: Mapping[Covers, str] = {
    "python": "Python modules",
    "origins": "modules without a source",
    "libraries": "libraries",
    "syscalls": "all files",
}


def run(
    recording: Recording, sides: tuple[Side, ...], roles: dict[str, RecordedRole], opened: Sequence[bytes]
) -> RecordedRun:
    """Return a recording as the report names it. ``opened`` are files that it read and its images lack."""
    processes = recording.processes
    begun = [process for process in processes if process.start != "unknown"] or list(processes)
    first = min(begun, key=lambda process: process.started or math.inf, default=None)
    starts = [process.started for process in processes if process.started is not None]
    ends = [process.last for process in processes if process.last is not None]
    assigned = {pid for role in roles.values() for pid in role.processes}
    made = RecordedRun(
        source=recording.source,
        formats=recording.formats,
        images=sides,
        processes=len(processes),
        argv=() if first is None else first.argv,
        python=next((process.python for process in processes if process.python), None),
        machine=next((process.machine for process in processes if process.machine), None),
        image=next((process.image for process in processes if process.image), None),
        started=min(starts, default=None),
        last=max(ends, default=None),
        roles=roles,
        unassigned=tuple(
            str(process.pid) for process in processes if process.pid is not None and process.pid not in assigned
        ),
    )
    return msgspec.structs.replace(made, said=(*_sentences(made), *_opened(opened)))


def _sentences(told: RecordedRun) -> list[str]:
    """Return what a report says of one recording."""
    conditions = [f"`{' '.join(told.argv)}`"] if told.argv else []
    if told.python:
        conditions.append(f"Python {told.python}")
    if told.machine:
        conditions.append(f"on {told.machine}")
    about = ", ".join((*conditions, f"{told.processes:,} process{'' if told.processes == 1 else 'es'}", _span(told)))
    found = [f"Recording {told.source} speaks for {_and(told.images)}, and for that run alone: {about}."]
    same: dict[str, list[str]] = {}
    for name, role in told.roles.items():
        same.setdefault(_completeness(role), []).append(name)
    return found + [f"Of {_and(names)} it is {text}." for text, names in same.items()]


def _completeness(role: RecordedRole) -> str:
    covered = [_WORDS[each] for each in role.complete if each != "origins"]
    whole = f"complete for {_and(covered)}" if covered else "complete for nothing"
    if not role.incomplete:
        return whole
    more = len(role.incomplete) - _FEW
    rest = f"; and {more} more" if more > 0 else ""
    but = ", not for the rest" if covered else ", so that absence from it settles nothing"
    return f"{whole}{but}: {'; '.join(role.incomplete[:_FEW])}{rest}"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _span(told: RecordedRun) -> str:
    if told.started is None:
        return "at a time that is not known"
    last = "" if told.last is None else f" to {_time(told.last)}, its last event"
    return f"from {_time(told.started)}{last}"


def _time(seconds: float) -> str:
    try:
        when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return "a time that is none"
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")


def _opened(paths: Sequence[bytes]) -> list[str]:
    """A sentence on files that were read and are in no image."""
    if not paths:
        return []
    shown = ", ".join("/" + path.decode("utf-8", "backslashreplace") for path in paths[:_FEW])
    more = f" and {len(paths) - _FEW:,} more" if len(paths) > _FEW else ""
    what = "a file that the image lacks" if len(paths) == 1 else f"{len(paths):,} files that the image lacks"
    return [f"The recorded run read {what} (mounts, caches, models), and they are not compared: {shown}{more}."]
