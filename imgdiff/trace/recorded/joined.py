"""Recordings joined with the static trace: what they raise, what they settle, and what they can't."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from imgdiff.model import (
    Blindspot,
    Change,
    Evidence,
    FactSource,
    Image,
    Profile,
    RecordedRole,
    RecordedRun,
    Recording,
    ResolutionChange,
    RoleTrace,
    Side,
    Trace,
    Tree,
)
from imgdiff.trace.recorded import told
from imgdiff.trace.recorded.complete import SETTLING
from imgdiff.trace.recorded.match import Made, One, made_on
from imgdiff.trace.recorded.places import Places, is_module
from imgdiff.trace.recorded.role import RecordedRoleTrace
from imgdiff.trace.recorded.run import Run, needs

_OPEN = ("eager", "deferred", "unknown", "dormant")
_MOST = 20  # files of one kind of which each is a blindspot of its own


class Traced(msgspec.Struct, frozen=True):  # holds live objects: never serialised
    """One image and its static trace."""

    side: Side
    image: Image
    tree: Tree
    facts: FactSource
    trace: Trace


class Take(msgspec.Struct, frozen=True):  # holds live objects: never serialised
    """One recording, held against each image that it speaks for."""

    recording: Recording
    made: Made
    runs: dict[Side, Run]


class Joined:
    """Both traces with what the recordings say. With no recordings it changes nothing."""

    def __init__(
        self, recordings: Sequence[Recording], images: tuple[Traced, Traced], profile: Profile, *, any_image: bool
    ) -> None:
        self._profile, self._images = profile, images
        ones = [One(each.side, each.image, each.tree, Places(each.tree)) for each in images]
        self.takes = [self._take(each, ones, any_image) for each in recordings]
        self.traces: tuple[Trace, Trace] = (self._wrapped(images[0]), self._wrapped(images[1]))

    def _take(self, recording: Recording, ones: Sequence[One], any_image: bool) -> Take:
        made = made_on(recording, ones, any_image=any_image)
        doubts = [] if made.proven else ["no bytes in it prove on which image it was made"]
        runs = {
            one.side: Run(recording, one.places, each.trace, each.facts, self._profile, doubts)
            for one, each in zip(ones, self._images, strict=True)
            if one.side in made.sides
        }
        return Take(recording, made, runs)

    def _wrapped(self, image: Traced) -> Trace:
        if not self.takes:
            return image.trace
        runs = [take.runs[image.side] for take in self.takes if image.side in take.runs]
        roles: Mapping[str, RoleTrace] = {
            name: RecordedRoleTrace(static, runs) for name, static in image.trace.roles.items()
        }
        return msgspec.structs.replace(image.trace, roles=roles)

    # What absence settles -------------------------------------------------------------------------------------------

    def settle(self, change: Change, role: str, evidence: Evidence) -> Evidence:
        """Return the evidence for a change with what the recordings settle by not showing it.

        Absence settles ``deferred``, ``unknown``, ``dormant`` and what is ``eager`` over conditional edges alone, where
        every recording of the role is complete for what the change needs. Against other ``eager`` it settles nothing:
        trace and recording disagree, and the evidence says so.
        """
        dormant = evidence.level == "dormant"
        if evidence.level not in _OPEN or not self._absent(change, role, dormant=dormant):
            return evidence
        if evidence.level == "eager" and not self._conditional(change, role):
            return msgspec.structs.replace(evidence, disputed="the recording does not show it")
        return msgspec.structs.replace(evidence, settled="not loaded in the recorded run")

    def _absent(self, change: Change, role: str, *, dormant: bool) -> bool:
        takes = self._of(role)
        return bool(takes) and all(self._lacks(take, change, role, dormant=dormant) for take in takes)

    def _of(self, role: str) -> list[Take]:
        return [take for take in self.takes if any(run.homes(role) for run in take.runs.values())]

    def _lacks(self, take: Take, change: Change, role: str, *, dormant: bool) -> bool:
        covers = needs(change)
        named = "syscalls" in covers
        paths = [path for path in dict.fromkeys((change.path_a, change.path_b)) if path is not None]
        return all(
            not run.reasons(role, covers) and all(run.lacks(role, path, named=named, dormant=dormant) for path in paths)
            for run in take.runs.values()
        )

    def _conditional(self, change: Change, role: str) -> bool:
        ends = ((self._images[0], change.path_a), (self._images[1], change.path_b))
        eager = [
            image.trace.roles[role].conditional(path)
            for image, path in ends
            if path is not None and image.trace.roles[role].evidence(path).level == "eager"
        ]
        return bool(eager) and all(eager)

    def settle_name(self, change: ResolutionChange) -> ResolutionChange:
        """Return a name that leads elsewhere with what the recordings settle: a module that no complete recording
        shows was not looked up. Libraries and distributions are looked for without being opened."""
        if change.kind != "module" or change.level not in ("deferred", "unknown", "dormant"):
            return change
        takes = self._of(change.role)
        paths = [end.path for end in (change.a, change.b) if end is not None]
        if not takes or not all(is_module(path) for path in paths):
            return change
        for take in takes:
            for run in take.runs.values():
                if run.reasons(change.role, ("python", "origins")) or change.name in run.of(change.role).names:
                    return change
                if not all(run.lacks(change.role, path, named=False) for path in paths):
                    return change
        return msgspec.structs.replace(change, settled="not looked up in the recorded run")

    # What it can't tell ---------------------------------------------------------------------------------------------

    def blindspots(self) -> list[Blindspot]:
        """Return what was run and is not in the images, or not as it was run, with the roles that ran it."""
        found: list[Blindspot] = []
        if not self.takes:
            return found
        names = {path.rpartition(b"/")[2] for each in self._images for path in each.tree.entries}
        for take in self.takes:
            for side, run in take.runs.items():
                found += self._not_there(side, run, names)
                found += self._other_bytes(side, run, take.made)
        return found

    def _not_there(self, side: Side, run: Run, names: set[bytes]) -> list[Blindspot]:
        reason = "the recording shows it, and the image does not have it: it was mounted or made, and is not compared"
        found = [
            Blindspot(f"recorded file, {how}", reason, path, side, tuple(roles))
            for path, (how, roles) in sorted(run.outside().items())
            if how == "executed" or (how == "mapped" and path.rpartition(b"/")[2] in names)
        ]
        return _few(found, side)

    def _other_bytes(self, side: Side, run: Run, made: Made) -> list[Blindspot]:
        fit = made.fits[side]
        found: list[Blindspot] = []
        for paths, reason in (
            (fit.other, "the recorded run had other bytes there than the image has"),
            (fit.unseen, "the recorded run had nothing there, and the image has a file"),
        ):
            for path in sorted(set(paths)):
                roles = tuple(
                    role.name
                    for role in self._profile.roles
                    if run.of(role.name).shows(run.places, path) or run.of(role.name).inherits(run.places, path)
                )
                found.append(Blindspot("recorded file", reason, path, side, roles or self._names()))
        return _few(found, side)

    def _names(self) -> tuple[str, ...]:
        return tuple(role.name for role in self._profile.roles)

    # What is said of them -------------------------------------------------------------------------------------------

    def told(self) -> tuple[RecordedRun, ...]:
        """Return the recordings as the report names them."""
        return tuple(
            told.run(take.recording, take.made.sides, self._roles(take), self._opened(take)) for take in self.takes
        )

    def _roles(self, take: Take) -> dict[str, RecordedRole]:
        found: dict[str, RecordedRole] = {}
        for role in self._profile.roles:
            runs = [run for run in take.runs.values() if run.homes(role.name)]
            if not runs:
                continue
            complete = tuple(each for each in SETTLING if not any(run.reasons(role.name, (each,)) for run in runs))
            pids = [take.recording.processes[index].pid for index in runs[0].processes(role.name)]
            sentences = tuple(dict.fromkeys(text for run in runs for text in run.sentences(role.name)))
            found[role.name] = RecordedRole(tuple(pid for pid in pids if pid is not None), complete, sentences)
        return found

    def caveats(self) -> list[str]:
        """Return sentences on the recordings: on which image, of what, when, and what they can't settle."""
        return [text for run in self.told() for text in run.said]

    def _opened(self, take: Take) -> list[bytes]:
        """What was read that is in no image: models, caches, mounts."""
        found = {path for run in take.runs.values() for path, (how, _) in run.outside().items() if how == "opened"}
        return sorted(found)


def _few(found: list[Blindspot], side: Side) -> list[Blindspot]:
    """Caches hold thousands of files: the first are named, the rest are counted, with all their roles."""
    rest = found[_MOST:]
    if not rest:
        return found
    roles = tuple(dict.fromkeys(role for spot in rest for role in spot.roles))
    what = f"{len(rest):,} more recorded files"
    return [*found[:_MOST], Blindspot(what, "the image does not have them as they were run", None, side, roles)]
