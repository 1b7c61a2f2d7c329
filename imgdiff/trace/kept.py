"""A trace as bytes, and back: all that its roles can be asked, without the code that it was made from.

What the answers take from the code (``reached.Further``) is worked out when a trace is frozen, but for who asks for a
distribution's version: that is kept for those that were asked for. For others the trace is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from imgdiff.engines import PathRules, common
from imgdiff.model import (
    Attribution,
    Blindspot,
    Edge,
    FactSource,
    Hop,
    Integrity,
    Level,
    PathRule,
    Profile,
    Resolved,
    RoleTrace,
    Side,
    Trace,
    Tree,
)
from imgdiff.trace.blocks import Unit
from imgdiff.trace.chains import Chains
from imgdiff.trace.levels import Role
from imgdiff.trace.named import Names
from imgdiff.trace.reached import Asleep, Closed, Further, Origin, Sleepers
from imgdiff.trace.resolver import Found, FoundKind, Resolver
from imgdiff.trace.search_path import SearchPath
from imgdiff.trace.world import Loaded, World

_NONE = -1  # in place of a module
_Line = int | None
_Function = str | None


class _Unit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    path: bytes | None
    kind: FoundKind
    portions: tuple[bytes, ...]
    parent: int


class _Steps(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which step leads to each of ``units``: from where (-1: it is a root), how, and by which line and function."""

    units: list[int]
    origins: list[int]
    edges: list[Edge]
    lines: list[_Line]
    functions: list[_Function]


class _Names(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``named.Names``: its tokens and patterns, and for each where it stands: in a module, at a path, or what words
    say, numbered in this order."""

    tokens: list[bytes]
    token_sources: list[int]
    patterns: list[str]
    pattern_sources: list[int]
    modules: list[int]
    paths: list[bytes]
    words: list[str]


class _Asleep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    steps: _Steps
    closure: int


class _Closure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    units: list[int]
    levels: bytes
    search: SearchPath
    unread: dict[str, bytes]
    steps: _Steps
    sure: list[int]


class _File(msgspec.Struct, frozen=True, array_like=True, gc=False):
    path: bytes
    level: int
    hop: Hop
    by: int | bytes | None
    why: str | None


class _Role(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    roots: tuple[str, ...]
    closures: list[_Closure]
    files: list[_File]
    libraries: dict[str, tuple[Level, Resolved]]
    starts: list[tuple[int, Edge, str]]
    wanted: dict[str, int]
    rules: tuple[PathRule, ...]
    scans_entry_points: bool
    names: _Names
    asleep: list[_Asleep]
    asleep_by_path: list[tuple[bytes, int, int]]
    asleep_names: _Names
    asleep_needs: list[tuple[str, int, int]]
    missing: dict[str, int]
    unbounded: list[tuple[bytes, str]]
    asked: dict[str, tuple[Hop, ...]]


class _World(msgspec.Struct, frozen=True, array_like=True, gc=False):
    library_directories: frozenset[bytes]
    listed: tuple[bytes, ...]
    working: frozenset[bytes]
    names: _Names | None  # what all roles name alike


class _Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    side: Side
    units: list[_Unit]
    world: _World
    roles: list[_Role]
    blindspots: tuple[Blindspot, ...]
    caveats: tuple[str, ...]
    integrity: tuple[Integrity, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Trace)


# --------------------------------------------------------------------------------------------------------------------
# To bytes
# --------------------------------------------------------------------------------------------------------------------


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
        return _encoder.encode(_Freezing().trace(trace, side))
    except UnicodeEncodeError:
        return None


class _Freezing:
    """Turns modules into numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Unit, int] = {}
        self._units: list[_Unit] = []

    def unit(self, unit: Unit) -> int:
        number = self._numbers.get(unit)
        if number is None:
            parent = _NONE if unit.parent is None else self.unit(unit.parent)
            number = self._numbers[unit] = len(self._units)
            self._units.append(_Unit(unit.name, unit.path, unit.kind, unit.found.portions, parent))
        return number

    def trace(self, trace: Trace, side: Side) -> _Trace:
        frozen = []
        world: World | None = None
        base: Names | None = None
        for role in trace.roles.values():
            assert isinstance(role, Role)
            world = role.world
            base = role.further.names().base
            frozen.append(self._role(role))
        assert world is not None, "a profile has roles"
        kept = _World(
            frozenset(world.library_directories),
            world.listed,
            world.working,
            None if base is None else self._names(base),
        )
        return _Trace(side, self._units, kept, frozen, trace.blindspots, trace.caveats, trace.integrity)

    def _role(self, role: Role) -> _Role:
        further = role.further
        sleepers = further.sleepers()
        place = {id(closed): number for number, closed in enumerate(role.closures)}
        asleep = {id(each): number for number, each in enumerate(sleepers.closures)}
        return _Role(
            role.role,
            role.roots,
            [self._closure(closed, sure) for closed, sure in zip(role.closures, further.sure(), strict=True)],
            [
                _File(
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
            [_Asleep(self._steps(each.came), place[id(each.closed)]) for each in sleepers.closures],
            [(path, asleep[id(each)], self.unit(unit)) for path, (each, unit) in sleepers.by_path.items()],
            self._names(sleepers.names),
            [(name, asleep[id(each)], self.unit(unit)) for name, (each, unit) in further.needs_of_sleepers().items()],
            dict(further.missing()),
            list(further.unbounded()),
            dict(further.asked),
        )

    def _closure(self, closed: Closed, sure: frozenset[Unit]) -> _Closure:
        return _Closure(
            [self.unit(unit) for unit in closed.level],
            bytes(closed.level.values()),
            closed.resolver.search,
            dict(closed.unread),
            self._steps(closed.came),
            sorted(self.unit(unit) for unit in sure),
        )

    def _steps(self, came: Mapping[Unit, Origin | None]) -> _Steps:
        steps = _Steps([], [], [], [], [])
        for unit, origin in came.items():
            before, (target, edge, line, function) = origin or (None, (unit, "root", None, None))
            assert target is unit, "a step leads to where it says"
            steps.units.append(self.unit(unit))
            steps.origins.append(_NONE if before is None else self.unit(before))
            steps.edges.append(edge)
            steps.lines.append(line)
            steps.functions.append(function)
        return steps

    def _names(self, names: Names) -> _Names:
        tokens, telling = names.tokens, names.telling
        sources = dict.fromkeys((*tokens.values(), *(source for _, source in telling)))
        modules = [each for each in sources if isinstance(each, Unit)]
        paths = [each for each in sources if isinstance(each, bytes)]
        words = [each for each in sources if isinstance(each, str)]
        number = {source: at for at, source in enumerate((*modules, *paths, *words))}
        return _Names(
            list(tokens),
            [number[source] for source in tokens.values()],
            [pattern for pattern, _ in telling],
            [number[source] for _, source in telling],
            [self.unit(unit) for unit in modules],
            paths,
            words,
        )


def _columns(steps: _Steps) -> tuple[list[int], list[int], list[Edge], list[_Line], list[_Function]]:
    return steps.units, steps.origins, steps.edges, steps.lines, steps.functions


# --------------------------------------------------------------------------------------------------------------------
# And back
# --------------------------------------------------------------------------------------------------------------------


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
        found = _decoder.decode(kept)
        return _Thawing(found, tree, attribution, facts, profile, again).trace(found, side)
    except (msgspec.MsgspecError, IndexError, ValueError):
        return None


class _Thawing:
    """Turns numbers into modules."""

    def __init__(
        self,
        found: _Trace,
        tree: Tree,
        attribution: Attribution,
        facts: FactSource,
        profile: Profile,
        again: Callable[[], Trace],
    ) -> None:
        self._tree, self._profile = tree, profile
        self._again = _Once(again)
        self._units: list[Unit] = []
        for each in found.units:
            parent = None if each.parent == _NONE else self._units[each.parent]
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

    def trace(self, found: _Trace, side: Side) -> Trace:
        def own(image: Side | None) -> Side | None:
            return side if image == found.side else image

        roles: dict[str, RoleTrace] = {each.name: self._role(each) for each in found.roles}
        return Trace(
            self._profile,
            roles,
            tuple(msgspec.structs.replace(spot, image=own(spot.image)) for spot in found.blindspots),
            found.caveats,
            tuple(msgspec.structs.replace(note, image=own(note.image)) for note in found.integrity),
        )

    def _unit(self, number: int) -> Unit:
        if number < 0:
            raise IndexError(number)
        return self._units[number]

    def _role(self, role: _Role) -> Role:
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

    def _closure(self, closure: _Closure) -> Closed:
        level = dict(zip(map(self._unit, closure.units), closure.levels, strict=True))
        self._check(closure.steps)
        return Closed(
            level, Resolver(self._tree, closure.search), closure.unread, lambda: dict(self._steps(closure.steps))
        )

    def _check(self, steps: _Steps) -> None:
        if {len(column) for column in _columns(steps)} != {len(steps.units)}:
            raise ValueError("columns of steps differ in length")
        if steps.units and not (min(steps.units) >= 0 and max(*steps.units, *steps.origins) < len(self._units)):
            raise IndexError("a step leads nowhere")

    def _steps(self, steps: _Steps) -> Iterable[tuple[Unit, Origin | None]]:
        units = self._units
        for number, origin, edge, line, function in zip(*_columns(steps), strict=True):
            unit = units[number]
            yield unit, None if origin == _NONE else (units[origin], (unit, edge, line, function))

    def _further(self, role: _Role, closures: Sequence[Closed]) -> Further:
        sleeping = []
        for each in role.asleep:
            self._check(each.steps)
            came = {unit: origin for unit, origin in self._steps(each.steps) if origin is not None}
            sleeping.append(Asleep(came, closures[each.closure]))
        roots = tuple(each for closed in closures for each in closed.resolver.search.directories)
        return _Kept(
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

    def _names(self, kept: _Names, roots: Iterable[bytes], base: Names | None) -> Names:
        sources: list[object] = [*map(self._unit, kept.modules), *kept.paths, *kept.words]
        names = Names(self._tree, roots, self._world.listed, base)
        names.restore(
            dict(zip(kept.tokens, map(sources.__getitem__, kept.token_sources), strict=True)),
            list(zip(kept.patterns, map(sources.__getitem__, kept.pattern_sources), strict=True)),
        )
        return names


class _Once:
    """The trace that is made again, once."""

    def __init__(self, again: Callable[[], Trace]) -> None:
        self._again = again
        self._trace: Trace | None = None

    def __call__(self) -> Trace:
        if self._trace is None:
            self._trace = self._again()
        return self._trace


class _Kept:
    """What was kept of a role's closures (a ``reached.Further``)."""

    def __init__(
        self,
        role: _Role,
        names: Names,
        sleepers: Sleepers,
        needs: Mapping[str, tuple[Asleep, Unit]],
        sure: Sequence[frozenset[Unit]],
        again: _Once,
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
