"""The shortest proof that a role loads a file: hop by hop from a root.

The first hop of every chain is a root of the role: its edge is one of ``ROOT_EDGES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from imgdiff.model import Edge, Hop
from imgdiff.trace.closure.loaded import Loaded
from imgdiff.trace.closure.reach import EAGER, Reach
from imgdiff.trace.evidence.reached import Asleep, Came, Closed
from imgdiff.trace.graph.blocks import Target, Unit

Root = tuple[Edge, str]
# What a role starts from: the roots of the profile and the entry, what Python and the loader run at every start, and
# what the entry points of its groups bring in.
ROOT_EDGES: frozenset[Edge] = frozenset({"root", "main", "pth", "interpreter", "preload", "entry-point"})


def path_hop(path: bytes, edge: Edge) -> Hop:
    """Return the last hop of a chain: a file that leads no further."""
    return Hop(None, path, None, None, edge)


class Chains:
    """Chains of one role."""

    def __init__(self, roots: Mapping[Unit, Root], files: Mapping[bytes, Loaded], closures: Sequence[Closed]) -> None:
        self._roots, self._files, self._closures = roots, files, closures
        self._asleep: Sequence[Asleep] = ()

    @property
    def roots(self) -> Mapping[Unit, Root]:
        """Where the role starts, and why there."""
        return self._roots

    def know(self, asleep: Sequence[Asleep]) -> None:
        """Know the dormant closures too, so that what their modules name has a chain."""
        self._asleep = asleep

    def of_unit(self, unit: Unit, closed: Closed) -> tuple[Hop, ...]:
        """Return the shortest chain to a module."""
        return self._walk(unit, closed.came)

    def of_asleep(self, asleep: Asleep, unit: Unit) -> tuple[Hop, ...]:
        """Return the shortest chain to a module that only unreferred functions lead to."""
        steps: list[tuple[Unit, Target]] = []
        current = unit
        while current in asleep.came:
            origin = asleep.came[current]
            steps.append(origin)
            current = origin[0]
        hops = list(self.of_unit(current, asleep.closed))
        return self._append(hops, list(reversed(steps)))

    def of_file(self, path: bytes) -> tuple[Hop, ...]:
        """Return the chain to a file that is no module."""
        hops: list[Hop] = []
        seen: set[bytes] = set()
        current: bytes | Unit | None = path
        while isinstance(current, bytes) and current not in seen:
            seen.add(current)
            loaded = self._files.get(current)
            if loaded is None:
                break
            hops.insert(0, Hop(None, current, None, loaded.why if loaded.by is None else None, loaded.hop.edge))
            current = loaded.by
        if isinstance(current, Unit):
            first = self._files[hops[0].path].hop
            before = self._unit_anywhere(current)
            if not before:
                return ()
            last = before[-1]
            return (*before[:-1], Hop(last.module, last.path, first.line, first.function, last.edge), *hops)
        return tuple(hops) if hops and hops[0].edge in ROOT_EDGES else ()

    def of_source(self, source: object) -> tuple[str, tuple[Hop, ...]]:
        """Return where a string stands, in words, and the chain to there."""
        if isinstance(source, Unit):
            return source.name, self._unit_anywhere(source)
        if isinstance(source, bytes):
            return "/" + source.decode("utf-8", "backslashreplace"), self.of_file(source)
        return str(source), ()

    def _unit_anywhere(self, unit: Unit) -> tuple[Hop, ...]:
        """Return the chain to a module in the first closure that reaches it, else in a dormant one."""
        for closed in self._closures:
            if unit in closed.level:
                return self.of_unit(unit, closed)
        for asleep in self._asleep:
            if unit in asleep.came:
                return self.of_asleep(asleep, unit)
        return ()

    def _walk(self, unit: Unit, came: Came) -> tuple[Hop, ...]:
        steps: list[tuple[Unit, Target]] = []
        current = unit
        while (origin := came.get(current)) is not None:
            steps.append(origin)
            current = origin[0]
        edge, why = self._roots.get(current, ("root", ""))
        hops = [Hop(current.name, current.place, None, why or None, edge)]
        return self._append(hops, list(reversed(steps)))

    def _append(self, hops: list[Hop], steps: list[tuple[Unit, Target]]) -> tuple[Hop, ...]:
        for _, (unit, edge, line, function) in steps:
            last = hops[-1]
            hops[-1] = Hop(
                last.module, last.path, line, function or (last.function if len(hops) == 1 else None), last.edge
            )
            shown: Edge = "deferred" if edge == "import" and function else edge
            hops.append(Hop(None if unit.kind == "data" else unit.name, unit.place, None, None, shown))
        return tuple(hops)


def shortest(reach: Reach, starts: Mapping[Unit, Root]) -> Came:
    """Return the step that leads to each module of a closure. Breadth first: over eager edges alone for what is eager,
    then over all; ties go to the smaller name."""
    came: Came = {}
    roots = sorted((unit for unit in starts if unit in reach.level), key=lambda unit: unit.name)
    eager = [unit for unit in roots if reach.level[unit] == EAGER]
    for unit in eager:
        came[unit] = None
    _parents(eager, came)
    outgoing: dict[Unit, list[Target]] = {}
    eager_only: dict[Unit, list[Target]] = {}
    for block in reach.done:
        if block.imports or block.edges:
            outgoing.setdefault(block.unit, []).extend((*block.imports, *block.edges))
        if block.kind in ("body", "main"):
            lazy = reach.eager_lazy(block) if block.lazy_uses else ()
            kept = [*block.imports, *((unit, "lazy", line, function) for unit, line, function in lazy)]
            eager_only.setdefault(block.unit, []).extend(kept)
    for source, target in reach.extra:
        if source is not None:
            outgoing.setdefault(source, []).append(target)
    _layers(eager, came, eager_only, lambda unit: reach.level.get(unit) == EAGER)
    rest = [unit for unit in roots if unit not in came]
    for unit in rest:
        came[unit] = None
    _parents(rest, came)
    _layers([*came], came, outgoing, lambda unit: unit in reach.level or unit.kind == "data")
    return came


def _layers(start: list[Unit], came: Came, outgoing: dict[Unit, list[Target]], allowed: Callable[[Unit], bool]) -> None:
    layer = start
    while layer:
        following: dict[Unit, tuple[Unit, Target]] = {}
        for unit in sorted(layer, key=lambda each: each.name):
            for target in outgoing.get(unit, ()):
                current: Unit | None = target[0]
                step = target
                while current is not None and current not in came and allowed(current):
                    known = following.get(current)
                    if known is None or (known[0] is unit and _order(step) < _order(known[1])):
                        following[current] = (unit, step)
                    current = current.parent
                    if current is not None:
                        step = (current, "parent", target[2], target[3])
        came.update(following)
        layer = list(following)


def _order(target: Target) -> tuple[int, str, str]:
    return target[2] or 0, target[1], target[3] or ""


def _parents(roots: list[Unit], came: Came) -> None:
    """A root is imported with the packages above it."""
    for root in roots:
        unit = root.parent
        while unit is not None and unit not in came:
            came[unit] = (root, (unit, "parent", None, None))
            unit = unit.parent
