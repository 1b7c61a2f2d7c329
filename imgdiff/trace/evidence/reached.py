"""What the answers of a role need of its closures: made by a trace, or kept of an earlier one (see ``kept``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from imgdiff.model import Hop
from imgdiff.trace.finder.resolver import Resolver
from imgdiff.trace.graph.blocks import Target, Unit
from imgdiff.trace.named import Names

Origin = tuple[Unit, Target]
Came = dict[Unit, Origin | None]


class Closed:
    """One closure: its modules with their levels, where its names are looked for, and the data files that could name
    modules and were not kept (by top-level package). ``came`` has the step that leads to each module, None at roots."""

    def __init__(
        self, level: Mapping[Unit, int], resolver: Resolver, unread: Mapping[str, bytes], came: Callable[[], Came]
    ) -> None:
        self.level, self.resolver, self.unread = level, resolver, unread
        self._make_came = came
        self._came: Came | None = None
        self._named: dict[str, list[tuple[bytes | None, int]]] | None = None

    @property
    def came(self) -> Came:
        """The shortest way to each module."""
        if self._came is None:
            self._came = self._make_came()
        return self._came

    def named(self, name: str) -> Sequence[tuple[bytes | None, int]]:
        """Return the files of the modules of this name (None: a namespace package) with their levels."""
        if self._named is None:
            self._named = {}
            for unit, level in self.level.items():
                self._named.setdefault(unit.name, []).append((unit.path, level))
        return self._named.get(name, ())


class Asleep:
    """The modules that one closure would have besides if functions ran that nothing reached refers to, and what leads
    to each."""

    def __init__(self, came: Mapping[Unit, Origin], closed: Closed) -> None:
        self.came, self.closed = came, closed


class Sleepers(NamedTuple):
    """All of a role's dormant closures; ``names`` are what only their code names. ``by_path`` has the first of them
    that a file belongs to."""

    closures: Sequence[Asleep]
    by_path: Mapping[bytes, tuple[Asleep, Unit]]
    names: Names


class Further(Protocol):
    """What else is asked of a role's closures, each worked out with the first question.

    ``asked`` has the answers of ``askers`` so far.
    """

    asked: dict[str, tuple[Hop, ...]]

    @property
    def scans_entry_points(self) -> bool:
        """Whether the role looks for entry points in every distribution."""

    def names(self) -> Names:
        """Return what reached code, files, ENV and links name."""

    def sleepers(self) -> Sleepers:
        """Return the dormant closures."""

    def needs_of_sleepers(self) -> Mapping[str, tuple[Asleep, Unit]]:
        """Return the libraries that dormant extension modules need, at any depth, by file name."""

    def missing(self) -> Mapping[str, int]:
        """Return every module name that reached code asks for and that resolves to nothing, with its level."""

    def sure(self) -> Sequence[frozenset[Unit]]:
        """Return, for each closure, what is eager over unconditional imports alone."""

    def unbounded(self) -> Sequence[tuple[bytes, str]]:
        """Return the modules that run files by a path that does not fold, and the place (path and line) as text."""

    def askers(self, distribution: str) -> tuple[Hop, ...]:
        """Return the places in reached code that ask for a distribution's version."""
