"""For which roles a recording is complete, and for what: only then absence from it settles anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from imgdiff.engines import common
from imgdiff.interpreters import is_python
from imgdiff.model import Covers, Profile, RecordedProcess, Started
from imgdiff.trace.recorded.family import Roles, is_helper, is_tracker, replaced_by

SETTLING: tuple[Covers, ...] = ("python", "origins", "libraries", "syscalls")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "busybox", "zsh"})
# Programs that start others out of sight, or go on as them: of what one did last, the loader's log tells nothing.
_DROPPERS = frozenset({"env", "sudo", "su", "runuser", "doas", "chroot", "nsenter", "unshare", "setpriv", "login"})
_PLAIN = re.compile(r"[\w./+:=,@%-]+(?: +[\w./+:=,@%-]+)*")  # words alone: no operator, expansion or quote
_MOST = 3  # reasons of one kind that are said

Reads = Callable[[str], bytes | None]
"""Returns the head of a program of the image, if it was kept."""


class Completeness:
    """Why a recording is not complete, by role: each reason with the coverages that it takes away."""

    def __init__(
        self,
        processes: Sequence[RecordedProcess],
        parents: Sequence[int | None],
        roles: Roles,
        profile: Profile,
        reads: Reads,
        doubts: Sequence[str] = (),
    ) -> None:
        self._processes, self._parents, self._roles = processes, parents, roles
        self._profile, self._reads = profile, reads
        self._reasons: dict[str, dict[str, set[Covers]]] = {role.name: {} for role in profile.roles}
        for doubt in doubts:
            self._blame(frozenset(self._reasons), doubt)
        self._first = frozenset(role.name for role in profile.roles if role.parent is None)
        self._children()
        for role in profile.roles:
            names = roles.starts_with(role)
            if names is not None:
                shown = " or ".join(names[:_MOST])
                self._blame(frozenset((role.name,)), f"no recorded process ran what {role.name} starts with ({shown})")
        for index, process in enumerate(processes):
            self._one(index, process)

    def _blame(self, roles: Iterator[str] | frozenset[str], reason: str, covers: Sequence[Covers] = SETTLING) -> None:
        for role in roles:
            self._reasons[role].setdefault(reason, set()).update(covers)

    def _one(self, index: int, process: RecordedProcess) -> None:
        candidates = self._roles.candidates[index]
        who = name_of(process)
        if is_helper(process) and "libraries" in process.coverage:
            for gap in process.gaps:
                self._blame(candidates, f"of {who} not all is known: {gap}", ("libraries",))
            reason = self._out_of_sight(process)
            if reason is not None and "syscalls" not in process.coverage:
                self._blame(candidates, reason)
            return
        if len(candidates) != 1:
            self._blame(candidates, f"{who} could be of several roles")
        if process.start == "unknown":
            self._blame(candidates, f"the beginning of {who} was not recorded")
        elif self._parents[index] is None and (process.start == "fork" or not candidates & self._first):
            self._blame(candidates, f"the process that started {who} was not recorded, and may have started others")
        if self._parents[index] is None and all(file.digest is None for file in process.files):
            self._blame(candidates, f"nothing in {who} proves on which image it ran")
        for gap in process.gaps:
            self._blame(self._with_children(candidates), f"of {who} not all is known: {gap}")
        for cover in SETTLING:
            if cover not in process.coverage and "syscalls" not in process.coverage:
                self._blame(candidates, _UNRECORDED[cover], (cover,))

    def _out_of_sight(self, process: RecordedProcess) -> str | None:
        """Return why a program of which the loader's log alone tells may have started others that nobody saw.

        What ran before the first Python is taken for the shell's way to it; what runs later was started by no event.
        """
        last = process.programs[-1] if process.programs else process.executable or ""
        name = last.rpartition("/")[2]
        said = f"{last} ran as {name_of(process)}, and"
        if name in _DROPPERS:
            return f"{said} may have started others out of the recorder's sight"
        first = self._pythons.get(process.place)
        if first is None or process.pid is None or process.pid < first:
            return None
        if program_kind(last, (last,), self._reads) == "no python":
            return None
        self._shells[name] = self._shells.get(name, 0) - 1
        if self._shells[name] >= 0:
            return None
        return f"{said} no event tells who started it, and what it started"

    def _with_children(self, roles: frozenset[str]) -> frozenset[str]:
        """Return roles and those of which they can start processes."""
        found = set(roles)
        while more := {r.name for r in self._profile.roles if r.parent in found} - found:
            found |= more
        return frozenset(found)

    # Processes that were started ------------------------------------------------------------------------------------

    def _children(self) -> None:
        """Hold what each process started against the processes that have a start record."""
        groups: dict[tuple[str, int], list[int]] = {}
        self._helpers: dict[str, int] = {}  # programs of which the loader's log tells
        self._shells: dict[str, int] = {}  # shells that Python started, for one command each that is known
        self._pythons: dict[str, int] = {}  # the first Python of each place
        for process in self._processes:
            if is_helper(process) and "libraries" in process.coverage:
                name = (process.executable or "").rpartition("/")[2]
                self._helpers[name] = self._helpers.get(name, 0) + 1
        self._pids = {(process.place, process.pid) for process in self._processes}
        for index, process in enumerate(self._processes):
            if process.pid is not None:
                groups.setdefault((process.place, process.pid), []).append(index)
            if process.pid is not None and process.python is not None:
                self._pythons[process.place] = min(process.pid, self._pythons.get(process.place, process.pid))
        before = replaced_by(self._processes)
        came: dict[tuple[str, int, str], int] = {}
        for index, process in enumerate(self._processes):
            if process.parent is None or process.start == "unknown" or is_tracker(process):
                continue
            if index in before and any(x.how == "replace" for x in self._processes[before[index]].children):
                continue  # the program that one of the group's own children went on as
            key = process.place, process.parent, process.start
            came[key] = came.get(key, 0) + 1
        for (place, pid), members in groups.items():
            self._of_one_pid(place, pid, members, came, before)

    def _of_one_pid(
        self,
        place: str,
        pid: int,
        members: Sequence[int],
        came: Mapping[tuple[str, int, str], int],
        before: Mapping[int, int],
    ) -> None:
        affected = frozenset(role for index in members for role in self._roles.candidates[index])
        who = name_of(self._processes[members[0]])
        children = [(child, self._processes[index]) for index in members for child in self._processes[index].children]
        alone = [index for index in members if index not in before]
        if len(alone) > 1:
            reason = f"several processes have the pid {pid}, so that whose children are whose is not known"
            self._blame(self._with_children(affected), reason)
        if any("syscalls" in self._processes[index].coverage for index in members):
            self._followed(place, who, affected, [child for child, _ in children])
            return
        counts = {"fork": 0, "exec": 0}
        begun = 0
        for child, process in children:
            if child.how in ("replace", "fork"):
                begun += child.how == "replace"
                counts["fork"] += child.how == "fork"
                continue
            if child.how == "thread":
                continue
            kind = self._kind(child)
            counts["exec"] += kind == "python"
            self._judge(child, kind, process, affected)
        for how, number in counts.items():
            missing = number - came.get((place, pid, how), 0)
            if missing > 0:
                verb = "forked" if how == "fork" else "started Python"
                times = "once" if missing == 1 else f"{missing:,} times"
                reason = f"{who} {verb} {times} more often than processes were recorded"
                self._blame(self._with_children(affected), reason)
        followed = sum(index in before for index in members)
        if begun > followed:
            self._blame(self._with_children(affected), f"{who} went on as another program, which was not recorded")

    def _followed(self, place: str, who: str, affected: frozenset[str], children: Sequence[Started]) -> None:
        """Where system calls were recorded, each child is followed, and its pid known. What Python says of children is
        held against that: the log may have been made without -f."""
        followed = {child.pid for child in children if child.how == "fork" and child.pid is not None}
        for pid in sorted(followed):
            if (place, pid) not in self._pids:
                reason = f"{who} started process {pid}, of which nothing was recorded"
                self._blame(self._with_children(affected), reason)
        said = sum(child.how == "fork" and child.pid is None for child in children)
        said += sum(child.how == "exec" for child in children)
        if said > len(followed):
            reason = f"{who} started {said:,} processes, and the log of system calls shows {len(followed):,}"
            self._blame(self._with_children(affected), reason)

    def _judge(self, child: Started, kind: str, process: RecordedProcess, affected: frozenset[str]) -> None:
        program = child.program or "a program"
        who = name_of(process)
        if kind == "python":
            if child.pid is not None and (process.place, child.pid) not in self._pids:
                reason = f"{who} started process {child.pid}, of which nothing was recorded"
                self._blame(self._with_children(affected), reason)
            if not child.whole:
                self._blame(self._with_children(affected), f"{who} started {program} out of the recorder's sight")
        elif kind == "no python":
            name = program.rpartition("/")[2]
            if name in _SHELLS:
                self._shells[name] = self._shells.get(name, 0) + 1
            self._helpers[name] = self._helpers.get(name, 0) - 1
            if self._helpers[name] < 0:
                reason = f"{who} started {program}, whose libraries were not recorded"
                self._blame(affected, reason, ("libraries",))
        else:
            reason = f"{who} started {program}, which no record shows and which may have started others"
            self._blame(self._with_children(affected), reason)

    def _kind(self, child: Started) -> str:
        return program_kind(child.program, child.argv, self._reads)

    # Answers --------------------------------------------------------------------------------------------------------

    def reasons(self, role: str, covers: Covers) -> list[str]:
        """Return why the recording of a role is not complete for a coverage; none: it is."""
        return [reason for reason, taken in self._reasons[role].items() if covers in taken]

    def sentences(self, role: str) -> tuple[str, ...]:
        """Return all reasons of a role, those that take most away first, each with what it takes."""
        found = sorted(self._reasons[role].items(), key=lambda item: -len(item[1]))
        return tuple(
            reason if len(taken) == len(SETTLING) or reason in _UNRECORDED.values()
            else f"{reason} (for {' and '.join(_WHAT[each] for each in SETTLING if each in taken)})"
            for reason, taken in found
        )  # fmt: skip


_WHAT: Mapping[Covers, str] = {
    "python": "what Python loads",
    "origins": "modules without a source",
    "libraries": "libraries",
    "syscalls": "system calls",
}
_UNRECORDED: Mapping[Covers, str] = {
    "python": "what Python opens was not recorded",
    "origins": "modules without a source were not recorded as such",
    "libraries": "libraries were not recorded as they were mapped",
    "syscalls": "system calls were not recorded",
}


def name_of(process: RecordedProcess) -> str:
    """Return what a process is called in a sentence."""
    pid = "a process" if process.pid is None else f"process {process.pid}"
    return f"{pid} ({process.titles[-1]})" if process.titles else f"{pid} ({process.source})"


def program_kind(program: str | None, argv: Sequence[str], reads: Reads, depth: int = 0) -> str:
    """Return "python" for a program that is an interpreter or a script of one, "no python" for one that is on the list
    of those that start none, else "unknown"."""
    name = (program or "").rpartition("/")[2]
    if is_python(name):
        return "python"
    if name in _SHELLS:
        command = argv[2] if len(argv) == 3 and argv[1] == "-c" else None
        if command is None or depth or not _PLAIN.fullmatch(command.strip()):
            return "unknown"
        words = command.split()
        return "unknown" if "=" in words[0] else program_kind(words[0], words, reads, depth + 1)
    head = reads(program or "") if (program or "").startswith("/") else None
    if head is not None and head.startswith(b"#!"):
        return "python" if b"python" in head.split(b"\n", 1)[0] else "unknown"
    listed = any(fnmatchcase(name, pattern) for rule in common().no_python for pattern in rule.programs)
    return "no python" if listed and name else "unknown"
