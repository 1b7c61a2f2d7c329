"""Whose child each recorded process is, and which role it has."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from imgdiff.interpreters import is_python
from imgdiff.model import Profile, ProfileRole, RecordedProcess, RoleTrace
from imgdiff.trace.finder.startup import MODULE_STARTUP, STARTUP
from imgdiff.trace.recorded.places import module_key
from imgdiff.trace.recorded.used import Used

_COMM = 15  # characters of a title that the kernel keeps (prctl(2), PR_SET_NAME)
_CODE = "__main__"  # the module of ``python -c``
_STARTUP = frozenset((*STARTUP, *MODULE_STARTUP))
_TRACKER = "multiprocessing.resource_tracker"


def is_helper(process: RecordedProcess) -> bool:
    """Tell whether a process is a program of another kind of which the loader's log alone tells: who started it is not
    known, and what it mapped counts for every role."""
    program = process.executable
    return process.start == "unknown" and program is not None and not is_python(program) and not process.titles


def is_tracker(process: RecordedProcess) -> bool:
    """Tell whether a process is multiprocessing's resource tracker, whose start no event tells of."""
    return any(_TRACKER in word for word in process.argv)


def _is_multiprocessing(process: RecordedProcess) -> bool:
    spawned = any("multiprocessing" in word and ("spawn_main" in word or "forkserver" in word) for word in process.argv)
    return process.start == "fork" or spawned or "--multiprocessing-fork" in process.argv


def replaced_by(processes: Sequence[RecordedProcess]) -> dict[int, int]:
    """Return, for each process that went on in the place of another one of its pid (exec without a fork), that other
    one."""
    groups: dict[tuple[str, int], list[int]] = {}
    for index, process in enumerate(processes):
        if process.pid is not None and process.start != "unknown":
            groups.setdefault((process.place, process.pid), []).append(index)
    found: dict[int, int] = {}
    for group in groups.values():
        group.sort(key=lambda index: (processes[index].started or 0.0, index))
        for before, after in itertools.pairwise(group):
            earlier, later = processes[before], processes[after]
            leaves = earlier.start == "fork" or any(child.how == "replace" for child in earlier.children)
            if later.start == "exec" and leaves and later.parent == earlier.parent:
                found[after] = before
    return found


def parents_of(processes: Sequence[RecordedProcess]) -> list[int | None]:
    """Return, for each process, the recorded one that started it; None where that is not recorded."""
    by_pid: dict[tuple[str, int], list[int]] = {}
    for index, process in enumerate(processes):
        if process.pid is not None:
            by_pid.setdefault((process.place, process.pid), []).append(index)
    found: list[int | None] = []
    before = replaced_by(processes)
    for index, process in enumerate(processes):
        candidates = [] if process.parent is None else by_pid.get((process.place, process.parent), [])
        began = process.started
        earlier = [
            each
            for each in candidates
            if each != index
            and each not in (before.get(index),)
            and (began is None or (start := processes[each].started) is None or start <= began)
        ]
        found.append(max(earlier, key=lambda each: (processes[each].started or 0.0, each)) if earlier else None)
    return _without_circles(found)


def _without_circles(parents: list[int | None]) -> list[int | None]:
    """A recording that is not honest could make a process its own ancestor."""
    for index in range(len(parents)):
        seen = {index}
        current = parents[index]
        while current is not None:
            if current in seen:
                parents[index] = None
                break
            seen.add(current)
            current = parents[current]
    return parents


class Roles:
    """Which role each process of a recording has: ``role``, or None and the ``candidates`` that it could have."""

    def __init__(
        self,
        processes: Sequence[RecordedProcess],
        parents: Sequence[int | None],
        uses: Sequence[Used],
        profile: Profile,
        traced: Mapping[str, RoleTrace],
    ) -> None:
        self._processes, self._parents, self._uses = processes, parents, uses
        self._profile, self._traced = profile, traced
        self._names = tuple(role.name for role in profile.roles)
        self._before = replaced_by(processes)
        self._known: dict[int, frozenset[str]] = {}
        self.candidates = [self._of(index) for index in range(len(processes))]
        self.role = [next(iter(each)) if len(each) == 1 else None for each in self.candidates]

    def _of(self, index: int) -> frozenset[str]:
        known = self._known.get(index)
        if known is None:
            chain = [index]  # from the oldest on, since families can be deep
            while (parent := self._parents[chain[-1]]) is not None and parent not in self._known:
                chain.append(parent)
            for each in reversed(chain):
                self._known[each] = self._decide(each)
            known = self._known[index]
        return known

    def _decide(self, index: int) -> frozenset[str]:
        process = self._processes[index]
        if process.role is not None:
            return frozenset((process.role,))
        if len(self._names) == 1:
            return frozenset(self._names)
        titled = self._titled(process)
        if titled:
            return titled
        if process.start == "unknown" and process.parent is None:
            return frozenset(self._names)  # a log that says nothing of who it is
        parent = self._parents[index]
        if parent is None:
            return self._first(index)
        own = self._known[parent]
        children = [role for role in self._profile.roles if role.parent in own and self._could_be(role, process, index)]
        return own | {role.name for role in children}

    def _titled(self, process: RecordedProcess) -> frozenset[str]:
        return frozenset(
            role.name
            for role in self._profile.roles
            if any(fits(title, pattern) for title in process.titles for pattern in role.titles)
        )

    def _could_be(self, role: ProfileRole, process: RecordedProcess, index: int) -> bool:
        """Tell whether an untitled process could be one of this role: with the role's roots, whoever started it how."""
        if is_tracker(process) or (role.titles and process.titles):
            return False  # a process of the role bears its name
        return self.roots_ran(role, self._uses[index])

    def roots_ran(self, role: ProfileRole, used: Used) -> bool:
        """Tell whether of each group of a role's roots that the image has one ran in a process."""
        executed = used.executed()
        modules = self._traced[role.name].modules
        groups = [
            [module_key(modules[name][1].path) for name in group.any_of if name in modules]
            for group in role.roots
            if not group.optional
        ]
        return any(groups) and all(not paths or not executed.isdisjoint(paths) for paths in groups)

    def starts_with(self, role: ProfileRole) -> tuple[str, ...] | None:
        """Return what a role starts with, where none of the processes that could be of it ran that: they are something
        else (a health check, multiprocessing's resource tracker). None where one did, or nothing shows what ran."""
        members = [
            uses
            for process, uses, candidates in zip(self._processes, self._uses, self.candidates, strict=True)
            if role.name in candidates and not {"python", "syscalls"}.isdisjoint(process.coverage)
        ]
        if not members or any(self.roots_ran(role, uses) for uses in members):
            return None
        modules = self._traced[role.name].modules
        groups = [[name for name in group.any_of if name in modules] for group in role.roots if not group.optional]
        if any(groups):
            return tuple(name for group in groups for name in group)
        return None if role.parent is not None else self._entry(role, members)

    def _entry(self, role: ProfileRole, members: Sequence[Used]) -> tuple[str, ...] | None:
        """The same for a role of which the entry alone says what it starts with."""
        traced = self._traced[role.name]
        paths: dict[str, bytes] = {}
        for name in traced.roots:
            if name.startswith("/"):
                paths[name] = name.encode("utf-8", "surrogateescape").strip(b"/")
            elif name in traced.modules and name not in _STARTUP:
                paths[name] = traced.modules[name][1].path
        keys = {key for path in paths.values() for key in (path, module_key(path))}
        if any(not keys.isdisjoint(uses.everything()) for uses in members):
            return None
        if _CODE not in traced.roots:
            return tuple(paths) or None
        imported = _imported_by_code(traced)
        if imported and any(uses.everything() >= {module_key(path) for path in imported.values()} for uses in members):
            return None
        return (*paths, *(imported or ("the code of the command line",)))

    def _first(self, index: int) -> frozenset[str]:
        """A process whose parent is not recorded: what the entry starts, unless it goes on in another one's place."""
        before = self._before.get(index)
        if before is not None and before in self._known:
            return self._known[before]
        process = self._processes[index]
        first = [role for role in self._profile.roles if role.parent is None]
        if process.start != "exec" or _is_multiprocessing(process) or len(first) != 1:
            return frozenset(self._names)
        if self.roots_ran(first[0], self._uses[index]):
            return frozenset((first[0].name,))
        others = [role.name for role in self._profile.roles if role.roots and self.roots_ran(role, self._uses[index])]
        return frozenset(others or (first[0].name,))  # what a scheduler of another kind started (Ray), or a helper


def _imported_by_code(traced: RoleTrace) -> dict[str, bytes]:
    """Return what the code of ``python -c`` imports in any case: it lies in no file itself."""
    found: dict[str, bytes] = {}
    for name, (level, resolved) in traced.modules.items():
        chain = traced.evidence(resolved.path).chain if level == "eager" else ()
        if len(chain) == 2 and chain[0].module == _CODE and not traced.conditional(resolved.path):
            found[name] = resolved.path
    return found


def fits(title: str, pattern: str) -> bool:
    """Tell whether a process's title is what a role's processes call themselves; the kernel may have cut it."""
    if fnmatchcase(title, pattern):
        return True
    stem = pattern.rstrip("*")
    return len(title) == _COMM and pattern.endswith("*") and "*" not in stem and stem.startswith(title)
