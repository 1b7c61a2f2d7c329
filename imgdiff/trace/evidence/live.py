"""What is asked of a role's closures beyond their modules, worked out from their code with the first question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from imgdiff.model import HOLE, ElfFacts, FactSource, Hop
from imgdiff.trace.closure.reach import DEFERRED, EAGER, Reach
from imgdiff.trace.data.names import DataNames
from imgdiff.trace.evidence.askers import askers
from imgdiff.trace.evidence.chains import Root
from imgdiff.trace.evidence.dormant import Dormant
from imgdiff.trace.evidence.reached import Asleep, Closed, Sleepers
from imgdiff.trace.evidence.surely import surely
from imgdiff.trace.evidence.world import World
from imgdiff.trace.graph.blocks import Block, Unit, fill
from imgdiff.trace.graph.calls import Use
from imgdiff.trace.named import Names
from imgdiff.trace.paths import show


class Live:
    """What the code of a role's closures says (a ``reached.Further``).

    ``closures`` are those of ``reaches``, ``files`` what the role loads apart from modules, ``texts`` what the command
    line and ENV say, with where each stands, ``roots`` where the role starts.
    """

    def __init__(
        self,
        world: World,
        reaches: Sequence[Reach],
        closures: Sequence[Closed],
        files: Iterable[bytes],
        texts: Iterable[tuple[str, object]],
        roots: Mapping[Unit, Root],
        data: DataNames,
    ) -> None:
        self._world, self._reaches, self._closures, self._roots = world, reaches, closures, roots
        self._texts = list(texts)
        self._data = data
        self._naming_blocks = frozenset(block for reach in reaches for block in reach.done if block.files)
        extensions = (unit.path for reach in reaches for unit in reach.level if unit.kind == "extension" and unit.path)
        self._naming_files = frozenset((*files, *extensions))
        world.naming.append((self._naming_blocks, self._naming_files))
        self._names: Names | None = None
        self._sleepers: Sleepers | None = None
        self._needs: dict[str, tuple[Asleep, Unit]] | None = None
        self._missing: dict[str, int] | None = None
        self._sure: list[frozenset[Unit]] | None = None
        self._unbounded: list[tuple[bytes, str]] | None = None
        self.asked: dict[str, tuple[Hop, ...]] = {}

    @property
    def scans_entry_points(self) -> bool:
        """Whether the role looks for entry points in every distribution."""
        return any(use.kind == "entry-points" for reach in self._reaches for _, use in reach.uses)

    # Names ----------------------------------------------------------------------------------------------------------

    def names(self) -> Names:
        """Return what reached code, files, ENV and links name."""
        if self._names is None:
            self._names = self._make_names()
        return self._names

    def _search_roots(self) -> Iterable[bytes]:
        return (each for closed in self._closures for each in closed.resolver.search.directories)

    def _make_names(self) -> Names:
        world = self._world
        if world.shared_names is None:
            world.shared_names = self._shared_names()
        base, blocks, files = world.shared_names
        names = Names(world.tree, self._search_roots(), world.listed, base)
        for text, source in self._texts:
            names.add(text, source)
        self._add_names(names, self._naming_blocks - blocks, self._naming_files - files)
        self._add_data(names)
        self._add_needed(names)
        return names

    def _add_data(self, names: Names) -> None:
        """Add what data files say that reached code can read, or that one of those names (an ``include``)."""
        facts = self._world.facts
        waiting = {path for reach in self._reaches for path in reach.read_data}
        for path in self._naming_files:
            waiting.update(self._data.read_by(_strings(facts, path)))
        seen: set[bytes] = set()
        while waiting:
            seen |= waiting
            found: set[bytes] = set()
            for path in sorted(waiting):
                said = self._data.said(path)
                for text in said:
                    names.add(text, path)
                found.update(self._data.read_by(said))
            waiting = found - seen

    def _add_needed(self, names: Names) -> None:
        """Add what the libraries need that are known by such a name alone: they bring it with them."""
        world = self._world
        waiting = {path for path in world.shared_objects() if path not in self._naming_files}
        found = True
        while found:
            found = False
            for path in sorted(waiting):
                if names.find(path, is_module=True) is None:
                    continue
                waiting.discard(path)
                facts = world.facts.elf(path)
                for name in facts.needed if isinstance(facts, ElfFacts) else ():
                    if not names.knows(name.rpartition("/")[2]):
                        names.add(name, path)
                        found = True

    def _shared_names(self) -> tuple[Names, frozenset[Block], frozenset[bytes]]:
        """What every role of the image names alike."""
        world = self._world
        blocks = frozenset.intersection(*(blocks for blocks, _ in world.naming))
        files = frozenset.intersection(*(files for _, files in world.naming))
        names = Names(world.tree, (), world.listed)
        for target, link in world.links():
            names.add(target, link)
        self._add_names(names, blocks, files)
        return names, blocks, files

    def _add_names(self, names: Names, blocks: Iterable[Block], files: Iterable[bytes]) -> None:
        for block in sorted(blocks, key=lambda each: (each.unit.name, each.unit.path or b"", each.gate, each.kind)):
            for text in block.files:
                names.add(text, block.unit)
        for path in sorted(files):
            for text in _strings(self._world.facts, path):
                names.add(text, path)

    # What sleeps ----------------------------------------------------------------------------------------------------

    def sleepers(self) -> Sleepers:
        """Return the dormant closures."""
        if self._sleepers is None:
            names = Names(self._world.tree, self._search_roots(), self._world.listed)
            by_path: dict[bytes, tuple[Asleep, Unit]] = {}
            found: list[Asleep] = []
            for reach, closed in zip(self._reaches, self._closures, strict=True):
                dormant = Dormant(reach)
                asleep = Asleep(dormant.came, closed)
                found.append(asleep)
                for unit in dormant.came:
                    if unit.path is not None:
                        by_path.setdefault(unit.path, (asleep, unit))
                naming = [block for block in dormant.blocks if block.files]
                for block in sorted(naming, key=lambda each: (each.unit.name, each.gate, each.kind)):
                    for text in block.files:
                        names.add(text, block.unit)
            self._sleepers = Sleepers(found, by_path, names)
        return self._sleepers

    def needs_of_sleepers(self) -> Mapping[str, tuple[Asleep, Unit]]:
        """Return the libraries that dormant extension modules need, at any depth, by file name."""
        if self._needs is None:
            self._needs = self._needed()
        return self._needs

    def _needed(self) -> dict[str, tuple[Asleep, Unit]]:
        by_name: dict[str, list[bytes]] = {}
        for path in self._world.shared_objects():
            by_name.setdefault(path.rpartition(b"/")[2].decode("utf-8", "surrogateescape"), []).append(path)
        needs: dict[str, tuple[Asleep, Unit]] = {}
        dormant = self.sleepers().by_path
        waiting = [(path, came) for path, came in sorted(dormant.items(), key=_first) if came[1].kind == "extension"]
        while waiting:
            path, came = waiting.pop()
            facts = self._world.facts.elf(path)
            for name in facts.needed if isinstance(facts, ElfFacts) else ():
                last = name.rpartition("/")[2]
                if last not in needs:
                    needs[last] = came
                    waiting += [(each, came) for each in by_name.get(last, ())]
        return needs

    # Modules that are not there -------------------------------------------------------------------------------------

    def missing(self) -> Mapping[str, int]:
        """Return every module name that reached code asks for and that resolves to nothing, with its level."""
        if self._missing is not None:
            return self._missing
        missing: dict[str, int] = {"sitecustomize": EAGER, "usercustomize": EAGER}
        for reach in self._reaches:
            for block in reach.done:
                if block.missing or block.asked or block.lazy_uses:
                    _add_missing(missing, reach, block)
            if reach.dynamic:
                words: set[str] = set().union(*[block.words for block in reach.done if block.words])
                graph = reach.graph
                stems = graph.resolver.stems()
                for text in words:
                    if text not in missing and (text not in stems or graph.unit(text) is None):
                        missing[text] = DEFERRED
        self._missing = missing
        return missing

    # The rest -------------------------------------------------------------------------------------------------------

    def sure(self) -> Sequence[frozenset[Unit]]:
        """Return, for each closure, what is eager over unconditional imports alone."""
        if self._sure is None:
            self._sure = [surely(reach, self._roots) for reach in self._reaches]
        return self._sure

    def unbounded(self) -> Sequence[tuple[bytes, str]]:
        """Return the modules that run files by a path that does not fold, and the place (path and line) as text."""
        if self._unbounded is None:
            self._unbounded = [
                (unit.place, f"{show(unit.place)}:{use.line}")
                for reach in self._reaches
                for unit, use in reach.ordered_uses()
                if use.kind == "load-path" and unbounded_path(reach, unit, use) and unit.top not in reach.standard
            ]
        return self._unbounded

    def askers(self, distribution: str) -> tuple[Hop, ...]:
        """Return the places in reached code that ask for a distribution's version."""
        known = self.asked.get(distribution)
        if known is None:
            found = askers(self._reaches, self._world.attribution.distributions, distribution)
            known = self.asked[distribution] = found
        return known


def _add_missing(missing: dict[str, int], reach: Reach, block: Block) -> None:
    level = EAGER if block.kind in ("body", "main") and reach.level.get(block.unit) == EAGER else DEFERRED
    for name, how in (*((name, level) for name in block.missing), *((name, DEFERRED) for name in block.asked)):
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            key = ".".join(parts[:end])
            if missing.get(key, 0) < how and reach.graph.unit(key) is None:
                missing[key] = how
    for unit, names, _, _ in block.lazy_uses:
        bound = unit.facts.binds if unit.facts is not None else frozenset()
        for each in names:
            if each != "*" and each not in bound:
                key = f"{unit.name}.{each}"
                missing[key] = max(missing.get(key, 0), level)


def unbounded_path(reach: Reach, unit: Unit, use: Use) -> bool:
    """Tell whether a call runs a file whose path can be anything."""
    if use.path is None or reach.graph.by_path_call(use, unit):
        return False
    return HOLE in fill(use.path, unit)


def _first(item: tuple[bytes, object]) -> bytes:
    return item[0]


def _strings(facts: FactSource, path: bytes) -> Iterable[str]:
    found = facts.elf(path)
    if found is None:
        return ()
    needed = frozenset(getattr(found, "needed", ()))
    return [text for text in getattr(found, "strings", ()) if text not in needed]
