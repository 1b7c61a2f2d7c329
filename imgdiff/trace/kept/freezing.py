"""A trace to bytes."""

from __future__ import annotations

from collections.abc import Mapping

from imgdiff.model import (
    Side,
    Trace,
)
from imgdiff.trace.evidence.levels import Role
from imgdiff.trace.evidence.reached import Closed, Origin
from imgdiff.trace.evidence.world import World
from imgdiff.trace.graph.blocks import Unit
from imgdiff.trace.kept.shapes import (
    ENCODER,
    NONE,
    KeptAsleep,
    KeptClosure,
    KeptFile,
    KeptNames,
    KeptRole,
    KeptSteps,
    KeptTrace,
    KeptUnit,
    KeptWorld,
)
from imgdiff.trace.named import Names


def freeze(trace: Trace, side: Side, earlier: Trace | None = None) -> bytes | None:
    """Return a trace as bytes. None where it can't be: one of its texts is not Unicode.

    ``trace`` is one that was made (not one that was thawed) for ``side``. ``earlier`` is a thawed one of the same
    image: what was asked of it is kept as well.
    """
    if earlier is not None:
        for name, role in earlier.roles.items():
            made = trace.roles[name]
            assert isinstance(role, Role)
            assert isinstance(made, Role)
            made.further.asked.update(role.further.asked)
    try:
        return ENCODER.encode(_Freezing().trace(trace, side))
    except UnicodeEncodeError:
        return None


class _Freezing:
    """Turns modules into numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Unit, int] = {}
        self._units: list[KeptUnit] = []

    def unit(self, unit: Unit) -> int:
        number = self._numbers.get(unit)
        if number is None:
            parent = NONE if unit.parent is None else self.unit(unit.parent)
            number = self._numbers[unit] = len(self._units)
            self._units.append(KeptUnit(unit.name, unit.path, unit.kind, unit.found.portions, parent))
        return number

    def trace(self, trace: Trace, side: Side) -> KeptTrace:
        frozen = []
        world: World | None = None
        base: Names | None = None
        for role in trace.roles.values():
            assert isinstance(role, Role)
            world = role.world
            base = role.further.names().base
            frozen.append(self._role(role))
        assert world is not None, "a profile has roles"
        kept = KeptWorld(
            frozenset(world.library_directories),
            world.listed,
            world.working,
            None if base is None else self._names(base),
        )
        said = trace.blindspots, trace.caveats, trace.integrity, trace.unresolved
        return KeptTrace(side, self._units, kept, frozen, *said)

    def _role(self, role: Role) -> KeptRole:
        further = role.further
        sleepers = further.sleepers()
        place = {id(closed): number for number, closed in enumerate(role.closures)}
        asleep = {id(each): number for number, each in enumerate(sleepers.closures)}
        return KeptRole(
            role.role,
            role.roots,
            [self._closure(closed, sure) for closed, sure in zip(role.closures, further.sure(), strict=True)],
            [
                KeptFile(
                    path, each.level, each.hop, self.unit(each.by) if isinstance(each.by, Unit) else each.by, each.why
                )
                for path, each in role.files.items()
            ],
            dict(role.libraries),
            [(self.unit(unit), edge, why) for unit, (edge, why) in role.chains.roots.items()],
            dict(role.wanted_libraries),
            role.rules,
            further.scans_entry_points,
            self._names(further.names()),
            [KeptAsleep(self._steps(each.came), place[id(each.closed)]) for each in sleepers.closures],
            [(path, asleep[id(each)], self.unit(unit)) for path, (each, unit) in sleepers.by_path.items()],
            self._names(sleepers.names),
            [(name, asleep[id(each)], self.unit(unit)) for name, (each, unit) in further.needs_of_sleepers().items()],
            dict(further.missing()),
            list(further.unbounded()),
            dict(further.asked),
        )

    def _closure(self, closed: Closed, sure: frozenset[Unit]) -> KeptClosure:
        return KeptClosure(
            [self.unit(unit) for unit in closed.level],
            bytes(closed.level.values()),
            closed.resolver.search,
            dict(closed.unread),
            self._steps(closed.came),
            sorted(self.unit(unit) for unit in sure),
        )

    def _steps(self, came: Mapping[Unit, Origin | None]) -> KeptSteps:
        steps = KeptSteps([], [], [], [], [])
        for unit, origin in came.items():
            before, (target, edge, line, function) = origin or (None, (unit, "root", None, None))
            assert target is unit, "a step leads to where it says"
            steps.units.append(self.unit(unit))
            steps.origins.append(NONE if before is None else self.unit(before))
            steps.edges.append(edge)
            steps.lines.append(line)
            steps.functions.append(function)
        return steps

    def _names(self, names: Names) -> KeptNames:
        tokens, telling = names.tokens, names.telling
        sources = dict.fromkeys((*tokens.values(), *(source for _, source in telling)))
        modules = [each for each in sources if isinstance(each, Unit)]
        paths = [each for each in sources if isinstance(each, bytes)]
        words = [each for each in sources if isinstance(each, str)]
        number = {source: at for at, source in enumerate((*modules, *paths, *words))}
        return KeptNames(
            list(tokens),
            [number[source] for source in tokens.values()],
            [pattern for pattern, _ in telling],
            [number[source] for _, source in telling],
            [self.unit(unit) for unit in modules],
            paths,
            words,
        )
