"""What a trace could not tell: blindspots with the roles that they block, caveats, and imports by computed names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from imgdiff.model import ENTRY, HOLE, Blindspot, Integrity, Side, UnresolvedImport
from imgdiff.trace.closure.reach import Reach
from imgdiff.trace.evidence.levels import Role
from imgdiff.trace.evidence.live import unbounded_path
from imgdiff.trace.graph.blocks import Unit, fill
from imgdiff.trace.graph.calls import Use
from imgdiff.trace.launch.started import Launch, PythonStart
from imgdiff.trace.libraries.caches import Caches
from imgdiff.trace.libraries.natives import Native
from imgdiff.trace.paths import show
from imgdiff.trace.roles import Maker, Setting

_MAX_LINES = 12  # places that one caveat names


class Untold:
    """Gathers what the trace of one image leaves open."""

    def __init__(self, maker: Maker, side: Side) -> None:
        self.maker, self.side = maker, side
        self.blindspots: list[Blindspot] = list(maker.blindspots)
        self.caveats: dict[str, None] = {}
        self.integrity: dict[Integrity, None] = {}
        self._unreadable: dict[tuple[bytes, str], list[str]] = {}
        self._unresolved: dict[str, bytes] = {}
        self._places: set[str] = set()
        self._by_env: set[str] = set()
        self._unbounded: dict[UnresolvedImport, dict[str, None]] = {}
        self._packed: set[str] = set()

    def name_nothing(self, settings: list[Setting], *, chosen: bool) -> None:
        """A module or script that the command line names and the image lacks (a typo, a mounted file), or code that
        can't be read or comes from standard input: what it would load is not known, and every spawned child would load
        a module or script again."""
        missing = [each for each in settings if each.main is None and not each.launch.handed]
        if not missing or not (chosen or len(missing) == len(settings)):
            return
        names = tuple(role.name for role in self.maker.profile.roles)
        for each in missing:
            assert each.launch.python is not None
            spot = Blindspot(ENTRY, _unknown_main(each.launch.python, each.label), None, self.side, names)
            if spot not in self.blindspots:
                self.blindspots.append(spot)

    def leave_open(self, launches: Sequence[Launch]) -> None:
        """Where shell code on the way computes what it starts, nothing is known not to be loaded."""
        names = tuple(role.name for role in self.maker.profile.roles)
        for reason in dict.fromkeys(each for launch in launches for each in launch.open):
            self.blindspots.append(Blindspot(ENTRY, reason, None, self.side, names))

    def unfollowed(self, reasons: Iterable[str]) -> None:
        """Note programs on the way from the entry that may start what was not followed."""
        names = tuple(role.name for role in self.maker.profile.roles)
        self.blindspots += (Blindspot(ENTRY, each, None, self.side, names) for each in dict.fromkeys(reasons))

    def lead_nowhere(self) -> None:
        """Note that no program of the entry is in the image."""
        self.unfollowed(["the entry leads to no program in the image: nothing could be traced"])

    def natives(self, role: str, native: Native) -> None:
        """Note what the libraries of a role left open."""
        for path, reason in native.unreadable.items():
            self._unreadable.setdefault((path, reason), []).append(role)
        for name, loader in native.unresolved.items():
            self._unresolved.setdefault(name, loader)
        self.integrity.update(native.integrity)

    def closures(self, role: str, reaches: list[Reach]) -> None:
        """Note every place that imports by a computed name, or runs a file by a computed path."""
        for reach in reaches:
            for unit, use in reach.unbounded:
                if unit.top not in reach.standard:
                    self._places.add(f"{show(unit.path or b'')}:{use.line}")
                    self._note_import(role, unit, use, "module", use.name or HOLE)
            for unit, use in reach.by_env:
                self._by_env.add(f"{show(unit.place)}:{use.line}")
            for unit, use in reach.ordered_uses():
                if use.kind == "load-path" and unit.top not in reach.standard and unbounded_path(reach, unit, use):
                    self._note_import(role, unit, use, "file", use.path or HOLE)
        self._packed |= {show(unit.place) for reach in reaches for unit in reach.packed}

    def _note_import(self, role: str, unit: Unit, use: Use, what: Literal["module", "file"], name: str) -> None:
        known = re.sub(f"{HOLE}+", "*", fill(name, unit))
        key = UnresolvedImport(unit.place, use.line, use.function, what, known, ())
        self._unbounded.setdefault(key, {})[role] = None

    def unresolved_imports(self) -> tuple[UnresolvedImport, ...]:
        """Return the places that import by a computed name, sorted, with the roles that reach them."""
        found = [msgspec.structs.replace(each, roles=tuple(roles)) for each, roles in self._unbounded.items()]
        return tuple(sorted(found, key=lambda each: (each.path, each.line, each.function or "", each.name)))

    def finish(self, roles: dict[str, Role], caches: Caches) -> list[Blindspot]:
        """Return all blindspots; what is none, but must be said, is in ``caveats`` then."""
        names = tuple(roles)
        found: list[Blindspot] = list(self.blindspots)
        found += self.maker.blindspots
        for graph in self.maker.graphs.values():
            for note in graph.narrowing.notes if graph.narrowing is not None else ():
                self.caveats[f"an assumption left nothing out: {note}"] = None
        found += (msgspec.structs.replace(each, roles=names) for each in self.maker.run_time.blindspots)
        self.caveats.update(dict.fromkeys(self.maker.run_time.caveats()))
        for search in self.maker.searches:
            for each in search.blindspots:
                found.append(Blindspot(each.what, each.reason, each.path, self.side, names))
        unreadable: dict[tuple[bytes, str, str], list[str]] = {}
        for name, role in roles.items():
            for path, what, reason in role.unreadable():
                unreadable.setdefault((path, what, reason), []).append(name)
        for (path, what, reason), who in sorted(unreadable.items()):
            found.append(Blindspot(what, reason, path, self.side, tuple(who)))
        for (path, reason), who in sorted(self._unreadable.items()):
            found.append(
                Blindspot("reached library", f"what it needs is not known: {reason}", path, self.side, tuple(who))
            )
        for blind in caches.blindspots:
            found.append(Blindspot(blind.what, blind.reason, blind.path, self.side, names))
        if self._unresolved:
            needs = ", ".join(
                f"{name} (for {show(loader)})" for name, loader in sorted(self._unresolved.items())[:_MAX_LINES]
            )
            self.caveats[f"needed libraries that are not in the image (the host may give them): {needs}"] = None
        if self._packed:
            packed = sorted(self._packed)
            more = f" and {len(packed) - _MAX_LINES} more" if len(packed) > _MAX_LINES else ""
            self.caveats[
                "Cython packs the strings of its modules, and these could not be read; what their distributions hold "
                f"and declare to need was followed: {', '.join(packed[:_MAX_LINES])}{more}"
            ] = None
        places = sorted(self._places)
        if places:
            more = f" and {len(places) - _MAX_LINES} more" if len(places) > _MAX_LINES else ""
            self.caveats[
                "only names that stand in the image were followed where code imports by a name from the command line, "
                f"ENV or a model's config: {', '.join(places[:_MAX_LINES])}{more}"
            ] = None
        if self._by_env:
            # In full: each is a place where ENV of a run can load what is not called reached.
            self.caveats[
                "only entry points that stand in the image were followed where code asks for one by a name from ENV: "
                + ", ".join(sorted(self._by_env))
            ] = None
        return list(dict.fromkeys(found))


def _unknown_main(start: PythonStart, label: str) -> str:
    if start.mode == "stdin":
        return "the command line starts Python without a program: what standard input tells it to run is not known"
    if start.mode == "code":
        return "the code that the command line gives to `python -c` can't be read: what it loads is not known"
    shown = label.replace(HOLE, "...")
    return f"the command line runs `{shown}`, which is not in the image: what it loads is not known"
