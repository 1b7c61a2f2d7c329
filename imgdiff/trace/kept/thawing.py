"""Bytes to a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from imgdiff.engines import PathRules, common
from imgdiff.model import (
    Attribution,
    FactSource,
    Profile,
    RoleTrace,
    Side,
    Trace,
    Tree,
)
from imgdiff.trace.closure.loaded import Loaded
from imgdiff.trace.closure.reach import DEFERRED, EAGER
from imgdiff.trace.evidence.chains import Chains
from imgdiff.trace.evidence.levels import Role
from imgdiff.trace.evidence.reached import Asleep, Closed, Further, Origin, Sleepers
from imgdiff.trace.evidence.world import World
from imgdiff.trace.finder.resolver import Found, Resolver
from imgdiff.trace.graph.blocks import Unit
from imgdiff.trace.kept.answers import Kept, Once
from imgdiff.trace.kept.shapes import (
    DECODER,
    NONE,
    KeptClosure,
    KeptNames,
    KeptRole,
    KeptSteps,
    KeptTrace,
    columns,
)
from imgdiff.trace.named import Names


def thaw(
    kept: bytes,
    tree: Tree,
    attribution: Attribution,
    facts: FactSource,
    profile: Profile,
    side: Side,
    again: Callable[[], Trace],
) -> Trace | None:
    """Return the trace that these bytes were made of, for the same image as ``side``.

    ``tree``, ``attribution``, ``facts`` and ``profile`` are as they were when it was made; ``again`` makes it anew,
    where something is asked that was not kept. None where the bytes are no trace, or one of another shape.
    """
    try:
        found = DECODER.decode(kept)
        return _Thawing(found, tree, attribution, facts, profile, again).trace(found, side)
    except (msgspec.MsgspecError, IndexError, ValueError):
        return None


def turned(trace: Trace, made_for: Side, side: Side) -> Trace:
    """Return a trace that was made for one side as the other side's."""
    if made_for == side:
        return trace

    def own(image: Side | None) -> Side | None:
        return side if image == made_for else image

    return msgspec.structs.replace(
        trace,
        blindspots=tuple(msgspec.structs.replace(spot, image=own(spot.image)) for spot in trace.blindspots),
        integrity=tuple(msgspec.structs.replace(note, image=side) for note in trace.integrity),
    )


class _Thawing:
    """Turns numbers into modules."""

    def __init__(
        self,
        found: KeptTrace,
        tree: Tree,
        attribution: Attribution,
        facts: FactSource,
        profile: Profile,
        again: Callable[[], Trace],
    ) -> None:
        self._tree, self._profile = tree, profile
        self._again = Once(again)
        self._units: list[Unit] = []
        for each in found.units:
            parent = None if each.parent == NONE else self._unit(each.parent)
            self._units.append(Unit(each.name, Found(each.name, each.path, each.kind, each.portions), parent))
        rules = common()
        world = found.world
        self._world = World(
            tree,
            attribution,
            facts,
            PathRules((*rules.outside, *profile.outside)),
            PathRules((*rules.read_at_run_time, *profile.read_at_run_time)),
            world.library_directories,
            world.listed,
            world.working,
        )
        self._base = None if world.names is None else self._names(world.names, (), None)

    def trace(self, found: KeptTrace, side: Side) -> Trace:
        roles: dict[str, RoleTrace] = {each.name: self._role(each) for each in found.roles}
        made = Trace(self._profile, roles, found.blindspots, found.caveats, found.integrity, found.unresolved)
        return turned(made, found.side, side)

    def _unit(self, number: int) -> Unit:
        if number < 0:
            raise IndexError(number)
        return self._units[number]

    def _role(self, role: KeptRole) -> Role:
        _check_levels((*role.missing.values(), *role.wanted.values(), *(each.level for each in role.files)))
        closures = [self._closure(each) for each in role.closures]
        files = {
            each.path: Loaded(
                each.level, each.hop, self._unit(each.by) if isinstance(each.by, int) else each.by, each.why
            )
            for each in role.files
        }
        starts = {self._unit(number): (edge, why) for number, edge, why in role.starts}
        return Role(
            role.name,
            role.roots,
            self._world,
            closures,
            files,
            role.libraries,
            Chains(starts, files, closures),
            self._further(role, closures),
            role.wanted,
            role.rules,
        )

    def _closure(self, closure: KeptClosure) -> Closed:
        _check_levels(closure.levels)
        level = dict(zip(map(self._unit, closure.units), closure.levels, strict=True))
        self._check(closure.steps)
        return Closed(
            level, Resolver(self._tree, closure.search), closure.unread, lambda: dict(self._steps(closure.steps))
        )

    def _check(self, steps: KeptSteps, before: Iterable[int] = ()) -> None:
        """Each step leads from a module that was come to before: no walk back can run in circles."""
        seen = set(before)
        for number, origin, *_ in zip(*columns(steps), strict=True):
            if origin != NONE and origin not in seen:
                raise IndexError(origin)
            seen.add(number)
        if seen and not 0 <= min(seen) <= max(seen) < len(self._units):
            raise IndexError("a step leads nowhere")

    def _steps(self, steps: KeptSteps) -> Iterable[tuple[Unit, Origin | None]]:
        units = self._units
        for number, origin, edge, line, function in zip(*columns(steps), strict=True):
            unit = units[number]
            yield unit, None if origin == NONE else (units[origin], (unit, edge, line, function))

    def _further(self, role: KeptRole, closures: Sequence[Closed]) -> Further:
        sleeping = []
        for each in role.asleep:
            self._check(each.steps, role.closures[each.closure].steps.units)
            came = {unit: origin for unit, origin in self._steps(each.steps) if origin is not None}
            sleeping.append(Asleep(came, closures[each.closure]))
        roots = tuple(each for closed in closures for each in closed.resolver.search.directories)
        return Kept(
            role,
            self._names(role.names, roots, self._base),
            Sleepers(
                sleeping,
                {path: (sleeping[at], self._unit(number)) for path, at, number in role.asleep_by_path},
                self._names(role.asleep_names, roots, None),
            ),
            {name: (sleeping[at], self._unit(number)) for name, at, number in role.asleep_needs},
            [frozenset(map(self._unit, each.sure)) for each in role.closures],
            self._again,
        )

    def _names(self, kept: KeptNames, roots: Iterable[bytes], base: Names | None) -> Names:
        sources: list[object] = [*map(self._unit, kept.modules), *kept.paths, *kept.words]
        names = Names(self._tree, roots, self._world.listed, base)
        names.restore(
            dict(zip(kept.tokens, map(sources.__getitem__, kept.token_sources), strict=True)),
            list(zip(kept.patterns, map(sources.__getitem__, kept.pattern_sources), strict=True)),
        )
        return names


def _check_levels(levels: Iterable[int]) -> None:
    if not {EAGER, DEFERRED}.issuperset(levels):
        raise ValueError("what is reached is eager or deferred")
