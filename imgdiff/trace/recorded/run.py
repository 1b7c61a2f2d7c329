"""One recording held against one image: what each role used there, and what its absence can settle."""

from __future__ import annotations

from collections.abc import Sequence

from imgdiff.model import Change, Covers, FactSource, Profile, ProfileRole, Recording, Trace
from imgdiff.trace.paths import is_shared_object
from imgdiff.trace.recorded.complete import Completeness, Reads
from imgdiff.trace.recorded.family import Roles, is_helper, parents_of
from imgdiff.trace.recorded.places import Places, is_module, module_key
from imgdiff.trace.recorded.used import Used, used


class Run:
    """What a recording says of one image."""

    def __init__(
        self,
        recording: Recording,
        places: Places,
        trace: Trace,
        facts: FactSource,
        profile: Profile,
        doubts: Sequence[str],
    ) -> None:
        self.recording, self.places, self._trace, self._profile = recording, places, trace, profile
        processes = recording.processes
        parents = parents_of(processes)
        self._uses = used(processes, parents, places, trace.roles.values())
        self.roles = Roles(processes, parents, self._uses, profile, trace.roles)
        self._complete = Completeness(processes, parents, self.roles, profile, _heads(facts), doubts)
        self._used: dict[str, Used] = {}

    # Roles ----------------------------------------------------------------------------------------------------------

    def homes(self, role: str) -> tuple[str, ...]:
        """Return the roles whose processes are a role's: its own, or those that it lives in where it has none, and
        where a root of its own ran (else its processes may be elsewhere, as Ray's are)."""
        if self._occurs(role):
            return (role,)
        hosts = [each for each in self._profile.roles if role in each.includes and self._occurs(each.name)]
        return tuple(host.name for host in hosts if self._lives_in(role, host))

    def _lives_in(self, role: str, host: ProfileRole) -> bool:
        guest = next(each for each in self._profile.roles if each.name == role)
        hosts_own = {name for group in host.roots for name in group.any_of}
        modules = self._trace.roles[role].modules
        own = {name for group in guest.roots for name in group.any_of} - hosts_own
        roots = {module_key(modules[name][1].path) for name in own if name in modules}
        ran = [uses.executed() for role, uses in zip(self.roles.role, self._uses, strict=True) if role == host.name]
        return any(not roots.isdisjoint(each) for each in ran)

    def _occurs(self, role: str) -> bool:
        return any(role in each for each in self.roles.candidates)

    def of(self, role: str) -> Used:
        """Return what all processes of a role used together."""
        known = self._used.get(role)
        if known is None:
            known = self._used[role] = Used()
            for home in self.homes(role):
                for index, found in enumerate(self._uses):
                    if self.roles.role[index] == home or is_helper(self.recording.processes[index]):
                        known.add_all(found)
        return known

    def processes(self, role: str) -> tuple[int, ...]:
        """Return the positions of the processes that are surely a role's own."""
        homes = self.homes(role)
        return tuple(index for index, own in enumerate(self.roles.role) if own in homes)

    def outside(self) -> dict[bytes, tuple[str, list[str]]]:
        """Return what was used and the image does not have: by path how, and the roles that did."""
        found: dict[bytes, tuple[str, list[str]]] = {}
        for role in self._profile.roles:
            for path, how in self.of(role.name).outside.items():
                found.setdefault(path, (how, []))[1].append(role.name)
        return found

    # Absence --------------------------------------------------------------------------------------------------------

    def reasons(self, role: str, covers: Sequence[Covers]) -> list[str]:
        """Return why absence from the recording proves nothing for a role and what is needed; none: it does."""
        homes = self.homes(role)
        found = [reason for home in homes for cover in covers for reason in self._complete.reasons(home, cover)]
        return found if homes else ["no process of it was recorded"]

    def sentences(self, role: str) -> tuple[str, ...]:
        """Return all reasons of a role, those that take most away first."""
        return tuple(text for home in self.homes(role) for text in self._complete.sentences(home))

    def lacks(self, role: str, path: bytes, *, named: bool, dormant: bool = False) -> bool:
        """Tell whether a role did not use a file; with ``named``, whether it did not even name it, or what it would
        have to pass, or list one above it.

        What was in memory by fork was used, for all that is known. But of a ``dormant`` module, whose body only binds
        names and which no reached code refers to, functions alone could have run; where starts of functions were
        recorded after the fork and none is in it, they did not.
        """
        found = self.of(role)
        if found.shows(self.places, path) is not None:
            return False
        if found.inherits(self.places, path) and not (dormant and found.watched and is_module(path)):
            return False
        if is_shared_object(path) and found.may_map(self.places, path):
            return False
        return not named or not self._named(found, path)

    def _named(self, found: Used, path: bytes) -> bool:
        if found.mentions(self.places, path):
            return True
        entry = self.places.tree.get(path)
        if entry is not None and entry.type == "dir":  # whoever names what lies below passes it
            return any(each.startswith(path + b"/") for each in found.touched)
        while path and path not in self.places.tree:  # a name that comes shows in the directory that it comes in
            path = path.rpartition(b"/")[0]
            if path in found.listed or (path and path not in self.places.tree and path in found.touched):
                return True
        return False


def _heads(facts: FactSource) -> Reads:
    def read(program: str) -> bytes | None:
        return facts.text(program.encode("utf-8", "surrogateescape").lstrip(b"/"))

    return read


def needs(change: Change) -> tuple[Covers, ...]:
    """Return what a recording must cover for a change's absence from it to mean anything.

    Names that come, go or lead elsewhere are looked for without being opened, and data is read by anyone: only a
    recording of system calls sees that.
    """
    plain = change.status == "modified" and change.path_a == change.path_b
    ends = (change.a, change.b)
    if not plain or any(end is None or end.type != "file" for end in ends):
        return ("syscalls",)
    path = change.path
    if is_module(path):
        sourceless = path.endswith((b".pyc", b".pyo")) and b"__pycache__" not in path.split(b"/")
        return ("python", "origins") if sourceless else ("python",)
    return ("python", "libraries") if is_shared_object(path) else ("syscalls",)
