"""The Pythons that a role starts beside its own: on the way from the entry, and by calls of reached code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from imgdiff.model import HOLE, FactSource, Tree
from imgdiff.trace.closure.reach import Reach
from imgdiff.trace.evidence.chains import Root
from imgdiff.trace.graph.blocks import Unit, fill
from imgdiff.trace.graph.calls import Use
from imgdiff.trace.graph.children import child_module
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.launch.entry import Follower
from imgdiff.trace.launch.started import Launch, PythonStart
from imgdiff.trace.libraries.natives import Natives
from imgdiff.trace.roles import Maker, main_of


class Running(msgspec.Struct):
    """The closures of one role by the identity of their graphs, the launch of each, and what is rooted where."""

    reaches: dict[int, Reach]
    starts: dict[int, Launch]
    roots: dict[Unit, Root]


class Starts:
    """Adds to the closures of a role what other Pythons load."""

    def __init__(self, tree: Tree, facts: FactSource, follower: Follower, maker: Maker, natives: Natives) -> None:
        self.tree, self.facts, self.follower = tree, facts, follower
        self.maker, self.natives = maker, natives

    def on_the_way(self, steps: Sequence[Launch], running: Running) -> None:
        """Other Pythons that the entry starts on the way to the engine can change what it loads, or start it."""
        for launch in steps:
            setting = self.maker.setting(launch)
            if setting is None or setting.main is None:
                continue
            graph = setting.graph
            module = launch.python is not None and launch.python.mode != "script"
            reach = self._begun(graph, launch, running, module=module)
            running.roots.setdefault(setting.main, ("program", "the entry starts it on the way to the engine"))
            reach.run_main(setting.main)

    def _begun(
        self,
        graph: Graph,
        launch: Launch,
        running: Running,
        *,
        module: bool,
    ) -> Reach:
        """Return the closure of another Python that is started, with what that imports at its start."""
        reach = running.reaches.get(id(graph))
        if reach is None:
            reach = running.reaches[id(graph)] = Reach(graph, self.maker.standard(graph))
            running.starts[id(graph)] = launch
        for unit, why in self.maker.begins(graph, module=module):
            if unit not in reach.level:
                reach.add(unit)
                running.roots.setdefault(unit, why)
        return reach

    def modules(
        self,
        reach: Reach,
        launch: Launch,
        running: Running,
    ) -> None:
        """Processes started as ``python -m X``: the working directory comes first on their path."""
        search = reach.graph.resolver.search
        for unit, use, started, by in self._child_modules(reach, launch):
            start = msgspec.structs.replace(started, environment=search.environment)
            graph = self.maker.child_graph(reach.graph, start, by)
            main = None if graph is None else main_of(graph, start.target)
            if graph is None or main is None:
                continue
            child = self._begun(graph, by, running, module=True)
            if child is reach:
                reach.extra.append((unit, (main, "program", use.line, use.function)))
            else:
                self.maker.run_time.hand_on(child, reach)
                where = f"started by {unit.name}, line {use.line}"
                running.roots.setdefault(main, ("program", where))
            child.run_main(main)

    def _child_modules(self, reach: Reach, launch: Launch) -> Iterator[tuple[Unit, Use, PythonStart, Launch]]:
        """Yield the modules that calls of reached code start, with the launch that says where: by a command line of
        their own, or through a shell, which may have changed its directory and ENV."""
        for unit, use in reach.ordered_uses():
            target = child_module(use.argv) if use.kind == "program" else None
            name = fill(target, unit) if target is not None else HOLE
            if HOLE not in name:
                yield unit, use, PythonStart(b"", None, frozenset(), "module", name, ()), launch
                continue
            for inner in self.natives.children(unit, use, launch):
                start = inner.python
                if start is not None and start.mode == "module" and HOLE not in start.target:
                    yield unit, use, start, inner

    def program(self, reach: Reach, unit: Unit, use: Use, launch: Launch) -> None:
        """A script or code that Python runs in a program which a call starts, be it through a shell."""
        for inner in self.natives.children(unit, use, launch):
            start = inner.python
            if start is not None:
                self.maker.run_time.started(reach, unit, use, _other_places(inner, launch))
            if start is None or start.mode not in ("script", "code"):
                continue
            key = start.mode, start.target
            main = reach.started.get(key)
            if main is None:
                script = self.tree.resolve(start.target.encode("utf-8", "surrogateescape"), inner.cwd)
                entry = None if script is None else self.tree.get(script)
                if start.mode == "code":
                    main = reach.graph.unit_of(start.target)
                elif script is not None and entry is not None and entry.type == "file":
                    main = reach.graph.unit_at(script)
                    self.maker.run_time.script(reach, unit, use, script)
                if main is None:
                    continue
                reach.started[key] = main
                reach.extra.append((unit, (main, "program", use.line, use.function)))
            reach.run_main(main)

    def script(self, reach: Reach, path: bytes, unit: Unit, use: Use, launch: Launch) -> None:
        """A program that is a Python script: its main module belongs to the role that starts it."""
        if self.facts.elf(path) is not None:
            return
        for inner in self.follower.follow(["/" + path.decode("utf-8", "surrogateescape")], launch.env, launch.cwd):
            if inner.python is not None and inner.python.mode == "script":
                script = self.tree.resolve(inner.python.target.encode("utf-8", "surrogateescape"), launch.cwd)
                if script is not None:
                    main = reach.graph.unit_at(script)
                    self.maker.run_time.script(reach, unit, use, script)
                    reach.extra.append((unit, (main, "program", use.line, use.function)))
                    reach.run_main(main)


def _other_places(inner: Launch, launch: Launch) -> list[str]:
    """Return the directories that a child looks into, and its parent does not, since a shell on the way set them."""
    found = ["/" + inner.cwd.decode("utf-8", "surrogateescape")] if inner.cwd != launch.cwd else []
    known = launch.env.get("PYTHONPATH", "").split(":")
    cwd = "/" + inner.cwd.decode("utf-8", "surrogateescape")
    parts = [part for part in inner.env.get("PYTHONPATH", "").split(":") if part and part not in known]
    return found + [part if part.startswith("/") else f"{cwd}/{part}" for part in parts]
