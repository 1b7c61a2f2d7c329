"""Who asks for the version of a distribution: by its metadata, by ``__version__``, or by a name that holds it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from packaging.utils import canonicalize_name

from imgdiff.kinds.python.delta import VERSION_NAMES
from imgdiff.model import HOLE, Distribution, Hop
from imgdiff.trace.closure.reach import Reach
from imgdiff.trace.graph.blocks import Block, Unit, fill

# What a name says that holds a version, or of a function that compares one.
_SAYS_VERSION = re.compile(
    r"version|(?:^|_)ver(?:_|$|\d)|major|minor|release|at_?least|newer|older|greater|less|since|support|compat", re.I
)
_Handed = dict[str, set[Unit]]  # a name that gives the version -> the modules that bind it


def askers(reaches: Sequence[Reach], distributions: Iterable[Distribution], distribution: str) -> tuple[Hop, ...]:
    """Return the places in reached code that ask for a distribution's version, sorted by path and line.

    The edge is "dynamic" for a call that asks for metadata, "import" for code that reads a version's variable, and
    "named" for code that refers to a name under which one of the others keeps it, or to a function that gives it.
    """
    wanted = canonicalize_name(distribution)
    packages = {
        package for each in distributions if canonicalize_name(each.name) == wanted for package in each.packages
    } or {distribution.replace("-", "_")}
    hops: dict[Hop, None] = {}
    for reach in reaches:
        handed: _Handed = {}
        loose: _Handed = {}  # by who asks for the version of any distribution
        for hop, unit, outright in _by_metadata(reach, wanted, packages):
            hops[hop] = None
            _hand(handed if outright else loose, unit, hop.function, packages)
        for hop, unit in _by_variable(reach, packages, hops):
            hops[hop] = None
            _hand(handed, unit, hop.function, packages)
        _handed_on(reach, hops, handed, loose, {wanted, *packages})
    return tuple(sorted(hops, key=lambda hop: (hop.path, hop.line or 0, hop.function or "", hop.edge)))


def _by_metadata(reach: Reach, wanted: str, packages: set[str]) -> Iterable[tuple[Hop, Unit, bool]]:
    for unit, use in reach.uses:
        if use.kind == "metadata" and use.name is not None and unit.path is not None:
            name = fill(use.name, unit)
            outright = canonicalize_name(name.partition(".")[0]) == wanted or canonicalize_name(name) == wanted
            outright = outright or name in packages
            if HOLE in name or outright:
                yield Hop(unit.name, unit.path, use.line, use.function, "dynamic"), unit, outright


def _by_variable(reach: Reach, packages: set[str], known: dict[Hop, None]) -> Iterable[tuple[Hop, Unit]]:
    asked = {(hop.path, hop.function) for hop in known}
    speaking: dict[Unit, bool] = {}
    for block in reach.done:
        if VERSION_NAMES.isdisjoint(block.refs) or block.unit.path is None:
            continue
        if block.unit not in speaking:
            speaking[block.unit] = _speaks_of(block.unit, packages)
        if not speaking[block.unit]:
            continue
        for scope in block.scopes:
            function = scope.qualname or None
            if (block.unit.path, function) in asked or VERSION_NAMES.isdisjoint(scope.names | scope.strings):
                continue
            yield Hop(block.unit.name, block.unit.path, scope.line, function, "import"), block.unit


def _speaks_of(unit: Unit, packages: set[str]) -> bool:
    if unit.top in packages:
        return True
    for block in unit.blocks():
        if any(target.top in packages for target, *_ in (*block.imports, *block.edges)):
            return True
        if not packages.isdisjoint(block.refs):
            return True
    return False


def _hand(handed: _Handed, unit: Unit, function: str | None, packages: set[str]) -> None:
    """Note under which names others get what this code asked for: the function's own, or what the body binds."""
    if unit.facts is None or unit.top in packages:
        return
    names: Iterable[str]
    if function is not None and function != "<main>":
        names = (function.partition(".<locals>")[0].rpartition(".")[2],)
    else:
        defined = {scope.qualname.partition(".")[0] for scope in unit.facts.scopes[1:]}
        imported = {name for scope in unit.facts.scopes[:1] for each in scope.imports for name in each.names}
        names = unit.facts.binds - defined - imported
    for name in names:
        if name not in VERSION_NAMES and (_SAYS_VERSION.search(name) or _speaks((name,), packages)):
            handed.setdefault(name, set()).add(unit)


def _handed_on(reach: Reach, hops: dict[Hop, None], handed: _Handed, loose: _Handed, words: set[str]) -> None:
    """Add the code that refers to such a name; what asks for any distribution's version counts where this one is
    spoken of in the same breath."""
    asking = {(hop.path, hop.function) for hop in hops}
    seen: set[tuple[bytes, str | None]] = set()
    every = {*handed, *loose}
    for block in reach.done:
        if every.isdisjoint(block.refs):
            continue
        names = handed.keys() & block.refs
        maybe = loose.keys() & block.refs
        if block.unit.path is None or not (names or maybe):
            continue
        # A place that asks itself can take it by such a name, too; by the package's own it asks itself.
        further = {*_referring(block, names - words, handed, maybe - words, loose, words)}
        for function, line in _referring(block, names, handed, maybe, loose, words):
            place = block.unit.path, function
            if place not in seen and (place not in asking or (function, line) in further):
                seen.add((block.unit.path, function))
                hops[Hop(block.unit.name, block.unit.path, line, function, "named")] = None


def _referring(
    block: Block, names: set[str], handed: _Handed, maybe: set[str], loose: _Handed, words: set[str]
) -> Iterable[tuple[str | None, int]]:
    near = _near(block)
    for scope in block.scopes:
        said = scope.names | scope.strings
        hit = any(name in said and not near.isdisjoint(handed[name]) for name in names)
        if not hit and maybe and _speaks(said, words):
            hit = any(name in said and not near.isdisjoint(loose[name]) for name in maybe)
        if hit:
            yield scope.qualname or None, scope.line


def _speaks(said: Iterable[str], words: set[str]) -> bool:
    return any(word in text.lower().replace("-", "_") for text in said for word in words)


def _near(block: Block) -> set[Unit]:
    """The module itself and those that its code imports, with what a package hands on from its submodules."""
    near: set[Unit] = {block.unit}
    for own in (block, block.unit.body):
        if own is not None:
            near.update(target for target, *_ in (*own.imports, *own.edges))
    for unit in tuple(near):
        if unit.found.portions and unit.body is not None:
            near.update(target for target, *_ in (*unit.body.imports, *unit.body.edges))
    return near
