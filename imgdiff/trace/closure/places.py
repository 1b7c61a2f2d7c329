"""Directories that code adds to the module search path: who adds them, and the copies of modules that lie there."""

from __future__ import annotations

import msgspec

from imgdiff.trace.finder.resolver import Found
from imgdiff.trace.graph.blocks import Unit
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.paths import show


class Added(msgspec.Struct, frozen=True):
    """Who adds a directory. ``front``: what lies there can hide modules found elsewhere. ``folds``: the call says
    which it is, so that names that are computed can be names there. ``guess``: the code names the directory at run
    time only, and this is one that it could mean."""

    unit: Unit
    line: int | None
    function: str | None
    front: bool
    guess: bool = False
    folds: bool = False


class Loose(msgspec.Struct, frozen=True):
    """Code that adds a directory which is known at run time only: one that ``pattern`` matches, else any. ``home`` is
    the directory of the package or program that the file at ``path`` belongs to."""

    path: bytes
    line: int | None
    function: str | None
    pattern: str | None
    home: bytes


class Place:
    """One directory of a graph as a place to import from: its own copies of the modules in it."""

    def __init__(self, graph: Graph, directory: bytes) -> None:
        self.graph, self.directory = graph, directory
        resolver, search = graph.resolver, graph.resolver.search.directories
        tops = frozenset(resolver.importable(directory))
        if directory in search:  # moved to the front, it hides what lies in those before it
            before = search[: search.index(directory)]
            tops &= frozenset(name for each in before for name in resolver.importable(each))
        self.tops = tops
        self.units: dict[str, Unit | None] = {}

    def unit(self, name: str) -> Unit | None:
        """Return the module of this name in this directory, or None."""
        if name not in self.units:
            self.units[name] = None
            self.units[name] = self._make(name)
        return self.units[name]

    def _make(self, name: str) -> Unit | None:
        above, _, last = name.rpartition(".")
        parent = self.unit(above) if above else None
        if above and (parent is None or not parent.found.portions):
            return None
        if not above and name not in self.tops:
            return None
        directories = parent.found.portions if parent is not None else (self.directory,)
        found = self.graph.resolver.find_in(name, last, directories)
        if found is None:
            return None
        known = self._known(found.path)
        if known is not None:
            return known
        label = f"{name} (in {show(self.directory)})"
        unit = Unit(label, Found(label, found.path, found.kind, found.portions), parent)
        unit.package = name if found.portions else above
        unit.top = name.partition(".")[0]
        return unit

    def _known(self, path: bytes | None) -> Unit | None:
        """A file that has a name on the search path too is one module under both: it is not worked out twice."""
        if path is None:
            return None
        names = sorted(self.graph.resolver.names_of(path), key=lambda name: (name.count("."), name))
        units = (self.graph.unit(name) for name in names)
        return next((unit for unit in units if unit is not None and unit.path == path), None)

    def nearest(self, name: str) -> Unit | None:
        """Return the module of this name here, else its nearest parent here."""
        while name:
            unit = self.unit(name)
            if unit is not None:
                return unit
            name = name.rpartition(".")[0]
        return None
