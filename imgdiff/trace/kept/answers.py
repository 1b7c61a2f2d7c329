"""The answers that were kept of a role's closures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from imgdiff.model import (
    Hop,
    Trace,
)
from imgdiff.trace.evidence.reached import Asleep, Sleepers
from imgdiff.trace.graph.blocks import Unit
from imgdiff.trace.kept.shapes import (
    KeptRole,
)
from imgdiff.trace.named import Names


class Once:
    """The trace that is made again, once."""

    def __init__(self, again: Callable[[], Trace]) -> None:
        self._again = again
        self._trace: Trace | None = None

    def __call__(self) -> Trace:
        """Return it."""
        if self._trace is None:
            self._trace = self._again()
        return self._trace


class Kept:
    """What was kept of a role's closures (a ``reached.Further``)."""

    def __init__(
        self,
        role: KeptRole,
        names: Names,
        sleepers: Sleepers,
        needs: Mapping[str, tuple[Asleep, Unit]],
        sure: Sequence[frozenset[Unit]],
        again: Once,
    ) -> None:
        self._role, self._kept_names, self._kept_sleepers = role, names, sleepers
        self._needs, self._sure, self._again = needs, sure, again
        self.asked = dict(role.asked)

    @property
    def scans_entry_points(self) -> bool:
        """Whether the role looks for entry points in every distribution."""
        return self._role.scans_entry_points

    def names(self) -> Names:
        """Return what reached code, files, ENV and links name."""
        return self._kept_names

    def sleepers(self) -> Sleepers:
        """Return the dormant closures."""
        return self._kept_sleepers

    def needs_of_sleepers(self) -> Mapping[str, tuple[Asleep, Unit]]:
        """Return the libraries that dormant extension modules need, at any depth, by file name."""
        return self._needs

    def missing(self) -> Mapping[str, int]:
        """Return every module name that reached code asks for and that resolves to nothing, with its level."""
        return self._role.missing

    def sure(self) -> Sequence[frozenset[Unit]]:
        """Return, for each closure, what is eager over unconditional imports alone."""
        return self._sure

    def unbounded(self) -> Sequence[tuple[bytes, str]]:
        """Return the modules that run files by a path that does not fold, and the place (path and line) as text."""
        return self._role.unbounded

    def askers(self, distribution: str) -> tuple[Hop, ...]:
        """Return the places in reached code that ask for a distribution's version."""
        known = self.asked.get(distribution)
        if known is None:
            found = self._again().roles[self._role.name].asks_version(distribution)
            known = self.asked[distribution] = found
        return known
