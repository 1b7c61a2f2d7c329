"""The trace of one image: launches, roots, closures, files, and what could not be told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from imgdiff.engines import PathRules, common
from imgdiff.model import (
    Attribution,
    FactSource,
    ImageConfig,
    PathRule,
    Profile,
    ProfileRole,
    RoleTrace,
    Side,
    Trace,
    Tree,
)
from imgdiff.trace.closure.reach import Reach
from imgdiff.trace.data.names import DataNames
from imgdiff.trace.evidence.chains import Chains, Root, shortest
from imgdiff.trace.evidence.levels import Role
from imgdiff.trace.evidence.live import Live
from imgdiff.trace.evidence.reached import Closed
from imgdiff.trace.evidence.world import World
from imgdiff.trace.graph.blocks import Unit
from imgdiff.trace.launch.entry import Follower
from imgdiff.trace.launch.started import Launch
from imgdiff.trace.libraries.foreign import unfollowed
from imgdiff.trace.libraries.natives import Natives, feed_interpreter, feed_libraries
from imgdiff.trace.roles import Maker, Setting, inherit, unless
from imgdiff.trace.tracer.commands import Commands
from imgdiff.trace.tracer.starts import Running, Starts
from imgdiff.trace.tracer.surroundings import files_read, shell_files, texts, working, world_of
from imgdiff.trace.tracer.untold import Untold

_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w.-]*")


class Tracer:
    """Traces every role of one image."""

    def __init__(
        self,
        tree: Tree,
        attribution: Attribution,
        facts: FactSource,
        config: ImageConfig | None,
        profile: Profile,
        entry: str | None,
        side: Side,
    ) -> None:
        self.tree, self.attribution, self.facts, self.profile = tree, attribution, facts, profile
        self.follower = Follower(tree, attribution, facts)
        self.commands = Commands(tree, attribution, config, profile, entry, self.follower)
        self.maker = Maker(tree, attribution, facts, profile, side)
        self.natives = Natives(tree, attribution, facts, self.follower, side)
        self.starts = Starts(tree, facts, self.follower, self.maker, self.natives)
        outside = PathRules((*common().outside, *profile.outside))
        self.data_names = DataNames(tree, attribution, facts, outside, self.maker.points, profile.entries)
        self.untold = Untold(self.maker, side)
        self._bases: dict[int, Reach] = {}

    def methods(self, launch: Launch) -> Sequence[str]:
        """The multiprocessing start methods that are possible: the ENV's, else the profile's."""
        fixed = launch.env.get(self.profile.start_method_env or "", "")
        return (fixed,) if fixed in ("fork", "spawn", "forkserver") else self.profile.start_methods

    def run(self) -> Trace:
        """Trace every role."""
        commands, untold = self.commands, self.untold
        launches = commands.launches()
        everything = (*launches, *commands.others, *commands.steps)
        self.maker.words = frozenset(
            word
            for each in everything
            for text in (*each.argv, *(each.python.arguments if each.python else ()), *each.texts, *each.env.values())
            for word in (text, *_OPTION.findall(text))  # scripts put options from ENV and their own text on the line
        )
        settings = [each for launch in launches if (each := self.maker.setting(launch)) is not None]
        if not settings and not any(launch.program is not None for launch in launches):
            untold.lead_nowhere()
        elif not settings or not self.profile.entries:
            ends = (*launches, *commands.others)
            untold.unfollowed(unfollowed(ends, self.natives, alone=not settings))
        untold.name_nothing(settings, chosen=commands.chosen)
        untold.leave_open(everything)
        roles: dict[str, Role] = {}
        reached: dict[str, list[Reach]] = {}
        world = world_of(self.tree, self.attribution, self.facts, self.profile, commands, launches)
        self.maker.points.hear(shell_files(self.tree, self.facts, [*launches, *commands.others]))
        self._share(settings, launches)
        for role in self.profile.roles:
            roles[role.name] = self._role(role, settings, launches, world, reached)
        blindspots = tuple(untold.finish(roles, self.natives.caches))
        found: dict[str, RoleTrace] = dict(roles)
        return Trace(
            self.profile,
            found,
            blindspots,
            tuple(dict.fromkeys((*commands.caveats, *untold.caveats))),
            tuple(sorted(untold.integrity, key=repr)),
            untold.unresolved_imports(),
        )

    def _included(self, role: ProfileRole, launches: list[Launch]) -> list[ProfileRole]:
        argvs = [launch.python.arguments for launch in launches if launch.python is not None]
        if argvs and all(unless(role.includes_unless, argv) is not None for argv in argvs):
            return []
        return [each for each in self.profile.roles if each.name in role.includes]

    def _share(self, settings: list[Setting], launches: list[Launch]) -> None:
        """Work out once, for each graph, the closure of what is eager in every role."""
        eager: dict[int, list[dict[Unit, int]]] = {}
        launch_of: dict[int, Launch] = {}
        before = list(self.maker.blindspots)
        for role in self.profile.roles:
            alone: dict[int, Reach] = {}
            for setting in settings:
                key = id(setting.graph)
                launch_of.setdefault(key, setting.launch)
                if key not in alone:
                    alone[key] = Reach(setting.graph, self.maker.standard(setting.graph))
                here = self.maker.roots(role, setting, self.methods(setting.launch), self._included(role, launches))
                alone[key].eager(here.eager, here.mains)
            for key, reach in alone.items():
                eager.setdefault(key, []).append(reach.level)
        self.maker.blindspots = before  # the roles note them again
        groups = frozenset.intersection(*(frozenset(role.plugins) for role in self.profile.roles))
        for setting in settings:
            key = id(setting.graph)
            if key in self._bases:
                continue
            base = self._bases[key] = Reach(setting.graph, self.maker.standard(setting.graph))
            sets = eager[key]
            base.start(unit for unit in sets[0] if all(unit in other for other in sets[1:]))
            if len(sets) > 1:
                feed_interpreter(base, self.natives.interpreter(setting.graph, launch_of[key]), self.facts)
                self._finish(base, set(groups), launch_of[key])

    def _role(
        self,
        role: ProfileRole,
        settings: list[Setting],
        launches: list[Launch],
        world: World,
        reached: dict[str, list[Reach]],
    ) -> Role:
        included = self._included(role, launches)
        reaches: dict[int, Reach] = {}
        roots: dict[Unit, Root] = {}
        groups: set[str] = set()
        for setting in settings:
            methods = self.methods(setting.launch)
            here = self.maker.roots(role, setting, methods, included)
            reach = reaches.get(id(setting.graph))
            if reach is None:
                reach = reaches[id(setting.graph)] = self._bases[id(setting.graph)].fork()
            reach.eager(here.eager, here.mains)
            reach.refer(here.names)
            roots.update(here.eager)
            groups |= here.groups
        for reach in reaches.values():
            self.maker.run_time.inherit(reach, reached.get(role.parent or "", ()))
        starts = {id(setting.graph): setting.launch for setting in reversed(settings)}
        own = len(reaches)
        above = [reach for each in reached.values() for reach in each]
        running = Running(reaches, starts, roots)
        self.starts.on_the_way(self.commands.steps, running)
        while True:
            before = [len(reach.done) for reach in reaches.values()]
            for reach in reaches.values():  # ENV that one writes is another one's
                reach.beside = [*above, *(each for each in reaches.values() if each is not reach)]
            for index, (key, reach) in enumerate(list(reaches.items())):
                feed_interpreter(reach, self.natives.interpreter(reach.graph, starts[key]), self.facts)
                self._finish(reach, groups, starts[key])
                if index < own:
                    self._inherit(role, reach, settings, reached, roots, index)
                    self._finish(reach, groups, starts[key])
                self.starts.modules(reach, starts[key], running)
            if before == [len(reach.done) for reach in reaches.values()]:
                break
        for reach in reaches.values():
            for unit, why in reach.entry_points.items():
                roots.setdefault(unit, ("entry-point", why))
        reached[role.name] = list(reaches.values())
        others = (*self.commands.others, *self.commands.steps)
        everything = [*launches, *(each for each in others if each not in launches)]
        native = self.natives.close(list(reaches.values()), [starts[key] for key in reaches], everything)
        files = native.files
        for path, loaded in files_read(self.tree, everything, list(reaches.values())).items():
            if path not in files or files[path].level <= loaded.level:
                files[path] = loaded
        self.untold.natives(role.name, native)
        world.library_directories |= native.directories.keys()
        self.untold.closures(role.name, list(reaches.values()))
        closures = [
            Closed(reach.level, reach.graph.resolver, reach.unread, partial(shortest, reach, roots))
            for reach in reaches.values()
        ]
        read = [
            PathRule(pattern, f"{rule.reason}: {name} is started by name")
            for name, rule in sorted(native.compilers.items())
            for pattern in rule.reads
        ]
        if any(launch.in_shell for launch in everything):
            read += common().shell_files
        spoken = texts(self.commands, everything)
        shown = tuple(dict.fromkeys(sorted(unit.name for unit, (edge, _) in roots.items() if edge in ("root", "main"))))
        return Role(
            role.name,
            shown,
            world,
            closures,
            files,
            dict(sorted(native.libraries.items())),
            Chains(roots, files, closures),
            Live(world, list(reaches.values()), closures, files, spoken, roots, self.data_names),
            native.wanted,
            read,
        )

    def _finish(self, reach: Reach, groups: set[str], launch: Launch) -> None:
        """Run a closure to its end, with what C code and started programs add."""
        executable = reach.graph.resolver.search.environment.executable
        resolver = self.natives.resolver(launch, executable)
        seen: set[bytes] = set()
        places = working(self.tree, self.commands, [launch])
        spoken = texts(self.commands, [launch, *self.commands.others])
        while True:
            self.maker.finish(reach, groups)
            before = len(reach.level), len(reach.done)
            self.data_names.feed(reach, places, spoken)
            feed_libraries(reach, resolver, executable, seen)
            for path, (unit, use) in self.natives.started(reach, launch).items():
                self.starts.script(reach, path, unit, use, launch)
            for unit, use in reach.ordered_uses():
                self.starts.program(reach, unit, use, launch)
            self.maker.finish(reach, groups)
            if before == (len(reach.level), len(reach.done)):
                return

    def _inherit(
        self,
        role: ProfileRole,
        reach: Reach,
        settings: list[Setting],
        reached: dict[str, list[Reach]],
        roots: dict[Unit, Root],
        index: int,
    ) -> None:
        if role.parent is None or not any("fork" in self.methods(setting.launch) for setting in settings):
            return
        parents = reached.get(role.parent, [])
        if index < len(parents) and parents[index].graph is reach.graph:
            for unit, why in inherit(reach, parents[index]).items():
                roots.setdefault(unit, ("root", why))
