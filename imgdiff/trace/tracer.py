"""The trace of one image: launches, roots, closures, files, and what could not be told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import msgspec

from imgdiff.engines import PathRules, common
from imgdiff.model import (
    ENTRY,
    HOLE,
    Attribution,
    Blindspot,
    FactSource,
    Hop,
    ImageConfig,
    Integrity,
    PathRule,
    Profile,
    ProfileRole,
    RoleTrace,
    Side,
    Trace,
    Tree,
    UnresolvedImport,
)
from imgdiff.trace.closure.loaded import Loaded
from imgdiff.trace.closure.reach import DEFERRED, EAGER, Reach
from imgdiff.trace.data.names import DataNames
from imgdiff.trace.evidence.chains import Chains, Root, shortest
from imgdiff.trace.evidence.levels import Role
from imgdiff.trace.evidence.live import Live, unbounded_path
from imgdiff.trace.evidence.reached import Closed
from imgdiff.trace.evidence.world import World
from imgdiff.trace.graph.blocks import Unit, fill
from imgdiff.trace.graph.calls import Use
from imgdiff.trace.graph.children import child_module
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.launch.entry import Follower
from imgdiff.trace.launch.programs import python_names
from imgdiff.trace.launch.started import Launch, PythonStart
from imgdiff.trace.launch.words import environment_of, split_entry
from imgdiff.trace.libraries.natives import Native, Natives, feed_interpreter, feed_libraries
from imgdiff.trace.paths import show
from imgdiff.trace.roles import Maker, Setting, inherit, main_of, unless

_MAX_LINES = 12  # places that one caveat names


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
        self.tree, self.attribution, self.facts, self.config = tree, attribution, facts, config
        self.profile, self.entry, self.side = profile, entry, side
        self.env = environment_of(config)
        self.cwd = (config.working_dir if config is not None else "").strip("/").encode("utf-8", "surrogateescape")
        self.follower = Follower(tree, attribution, facts)
        self.maker = Maker(tree, attribution, facts, profile, side)
        self.natives = Natives(tree, attribution, facts, self.follower, side)
        outside = PathRules((*common().outside, *profile.outside))
        self.data_names = DataNames(tree, attribution, facts, outside, self.maker.points, profile.entries)
        self.caveats: dict[str, None] = {}
        self.chosen = False  # one command line is traced, not every entry of the profile
        self.integrity: dict[Integrity, None] = {}
        self._unreadable: dict[tuple[bytes, str], list[str]] = {}
        self._unresolved: dict[str, bytes] = {}
        self._places: set[str] = set()
        self._by_env: set[str] = set()
        self._unbounded: dict[UnresolvedImport, dict[str, None]] = {}
        self._packed: set[str] = set()
        self._bases: dict[int, Reach] = {}
        self.others: list[Launch] = []  # what the way from the entry starts that is no Python
        self.steps: list[Launch] = []  # other Pythons on the way: ``python patch.py && exec vllm serve``
        self.blindspots: list[Blindspot] = list(self.maker.blindspots)

    # The entry ------------------------------------------------------------------------------------------------------

    def launches(self) -> list[Launch]:
        """What can be started: the entry given, the image's own, or every entry of the profile."""
        argv: list[str] = []
        if self.entry is not None:
            argv = split_entry(self.entry)
        elif self.config is not None:
            argv = [*self.config.entrypoint, *self.config.cmd]
        found = self._python(argv) if argv else []
        fitting = [launch for launch in found if self._is_entry(launch)]
        if fitting or (found and (self.entry is not None or not self.profile.entries)):
            self._say_entry(argv)
            self.chosen = True
            self.steps = [launch for launch in found if fitting and launch not in fitting]
            return fitting or found
        if not self.profile.entries:
            if argv and not found:
                found = self.follower.follow(argv, self.env, self.cwd)
            return found
        names = " and ".join(self.profile.entries)
        if self.entry is not None:
            why = f"`{' '.join(argv)}` leads to none of them"
        else:
            why = "there is no image config" if self.config is None else "the image's entry names none of them"
        self.caveats[f"traced under every entry of {self.profile.name} ({names}), since {why}; --entry chooses one"] = (
            None
        )
        launches = [launch for each in self.profile.entries for launch in self._python(self._words(each))]
        return [*launches, *found]

    def _say_entry(self, argv: Sequence[str]) -> None:
        shown = " ".join(argv)
        self.caveats[f"traced for the command line `{shown}`; another command can load other files"] = None

    def _python(self, argv: Sequence[str]) -> list[Launch]:
        launches = self.follower.follow(argv, self.env, self.cwd)
        self.others += [each for each in launches if each.python is None]
        return [each for each in launches if each.python is not None]

    def _words(self, entry: str) -> list[str]:
        words = split_entry(entry)
        if words and words[0] == "python" and self.follower.programs.which("python", self.env, self.cwd) is None:
            words[0] = next(python_names(self.attribution, lambda path: self.tree.lookup(path) is not None), "python3")
        elif words and self.follower.programs.which(words[0], self.env, self.cwd) is None:
            for environment in self.attribution.environments:
                path = (environment.prefix + b"/" if environment.prefix else b"") + b"bin/" + words[0].encode()
                if self.tree.lookup(path) is not None:
                    return ["/" + path.decode("utf-8", "surrogateescape"), *words[1:]]
        return words

    def _is_entry(self, launch: Launch) -> bool:
        start = launch.python
        assert start is not None
        for each in self.profile.entries:
            words = split_entry(each)
            if words[:2] == ["python", "-m"]:
                if start.mode == "module" and start.target == words[2]:
                    return True
            elif (
                start.mode == "script"
                and start.target.rpartition("/")[2] == words[0]
                and (not start.arguments or len(words) == 1 or start.arguments[0] == words[1])
            ):
                return True
        return False

    # Roles ----------------------------------------------------------------------------------------------------------

    def methods(self, launch: Launch) -> Sequence[str]:
        """The multiprocessing start methods that are possible: the ENV's, else the profile's."""
        fixed = launch.env.get(self.profile.start_method_env or "", "")
        return (fixed,) if fixed in ("fork", "spawn", "forkserver") else self.profile.start_methods

    def run(self) -> Trace:
        """Trace every role."""
        launches = self.launches()
        self.maker.words = frozenset(
            word
            for each in (*launches, *self.others, *self.steps)
            for text in (*each.argv, *(each.python.arguments if each.python else ()), *each.texts, *each.env.values())
            for word in (text, *_OPTION.findall(text))  # scripts put options from ENV and their own text on the line
        )
        settings = [each for launch in launches if (each := self.maker.setting(launch)) is not None]
        if not settings:
            self._lead_nowhere(launches)
        self._name_nothing(settings)
        self._leave_open(launches)
        roles: dict[str, Role] = {}
        reached: dict[str, list[Reach]] = {}
        world = self._world(launches)
        self.maker.points.hear(self._shell_files([*launches, *self.others]))
        self._share(settings, launches)
        for role in self.profile.roles:
            roles[role.name] = self._role(role, settings, launches, world, reached)
        blindspots = tuple(self._all_blindspots(roles))
        found: dict[str, RoleTrace] = dict(roles)
        return Trace(
            self.profile,
            found,
            blindspots,
            tuple(self.caveats),
            tuple(sorted(self.integrity, key=repr)),
            self._unresolved_imports(),
        )

    def _name_nothing(self, settings: list[Setting]) -> None:
        """A module or script that the command line names and the image lacks (a typo, a mounted file), or code that
        can't be read or comes from standard input: what it would load is not known, and every spawned child would load
        a module or script again."""
        missing = [each for each in settings if each.main is None and each.launch.python is not None]
        if not missing or not (self.chosen or len(missing) == len(settings)):
            return
        names = tuple(role.name for role in self.profile.roles)
        for each in missing:
            assert each.launch.python is not None
            spot = Blindspot(ENTRY, _unknown_main(each.launch.python, each.label), None, self.side, names)
            if spot not in self.blindspots:
                self.blindspots.append(spot)

    def _leave_open(self, launches: list[Launch]) -> None:
        """Where shell code on the way computes what it starts, nothing is known not to be loaded."""
        names = tuple(role.name for role in self.profile.roles)
        for reason in dict.fromkeys(each for launch in (*launches, *self.others, *self.steps) for each in launch.open):
            self.blindspots.append(Blindspot(ENTRY, reason, None, self.side, names))

    def _lead_nowhere(self, launches: list[Launch]) -> None:
        names = tuple(role.name for role in self.profile.roles)
        if launches and any(launch.program is not None for launch in launches):
            return
        self.blindspots.append(
            Blindspot(
                ENTRY, "the entry leads to no program in the image: nothing could be traced", None, self.side, names
            )
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
        self._steps(reaches, starts, roots)
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
                self._children(reach, starts[key], reaches, starts, roots)
            if before == [len(reach.done) for reach in reaches.values()]:
                break
        for reach in reaches.values():
            for unit, why in reach.entry_points.items():
                roots.setdefault(unit, ("entry-point", why))
        reached[role.name] = list(reaches.values())
        everything = [*launches, *(each for each in (*self.others, *self.steps) if each not in launches)]
        native = self.natives.close(list(reaches.values()), [starts[key] for key in reaches], everything)
        files = native.files
        for path, loaded in self._files(everything, list(reaches.values())).items():
            if path not in files or files[path].level <= loaded.level:
                files[path] = loaded
        self._note_natives(role.name, native)
        world.library_directories |= native.directories.keys()
        self._note_unbounded(role.name, list(reaches.values()))
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
        shown = tuple(dict.fromkeys(sorted(unit.name for unit, (edge, _) in roots.items() if edge in ("root", "main"))))
        return Role(
            role.name,
            shown,
            world,
            closures,
            files,
            dict(sorted(native.libraries.items())),
            Chains(roots, files, closures),
            Live(world, list(reaches.values()), closures, files, self._texts(everything), roots, self.data_names),
            native.wanted,
            read,
        )

    def _finish(self, reach: Reach, groups: set[str], launch: Launch) -> None:
        """Run a closure to its end, with what C code and started programs add."""
        executable = reach.graph.resolver.search.environment.executable
        resolver = self.natives.resolver(launch, executable)
        seen: set[bytes] = set()
        while True:
            self.maker.finish(reach, groups)
            before = len(reach.level), len(reach.done)
            self.data_names.feed(reach, self._working([launch]), self._texts([launch, *self.others]))
            feed_libraries(reach, resolver, executable, seen)
            for path, (unit, use) in self.natives.started(reach, launch).items():
                self._child_script(reach, path, unit, use, launch)
            for unit, use in reach.ordered_uses():
                self._child_program(reach, unit, use, launch)
            self.maker.finish(reach, groups)
            if before == (len(reach.level), len(reach.done)):
                return

    def _steps(self, reaches: dict[int, Reach], starts: dict[int, Launch], roots: dict[Unit, Root]) -> None:
        """Other Pythons that the entry starts on the way to the engine can change what it loads, or start it."""
        for launch in self.steps:
            setting = self.maker.setting(launch)
            if setting is None or setting.main is None:
                continue
            graph = setting.graph
            module = launch.python is not None and launch.python.mode != "script"
            reach = self._begun(graph, launch, module, reaches, starts, roots)
            roots.setdefault(setting.main, ("program", "the entry starts it on the way to the engine"))
            reach.run_main(setting.main)

    def _begun(
        self,
        graph: Graph,
        launch: Launch,
        module: bool,
        reaches: dict[int, Reach],
        starts: dict[int, Launch],
        roots: dict[Unit, Root],
    ) -> Reach:
        """Return the closure of another Python that is started, with what that imports at its start."""
        reach = reaches.get(id(graph))
        if reach is None:
            reach = reaches[id(graph)] = Reach(graph, self.maker.standard(graph))
            starts[id(graph)] = launch
        for unit, why in self.maker.begins(graph, module=module):
            if unit not in reach.level:
                reach.add(unit)
                roots.setdefault(unit, why)
        return reach

    def _children(
        self,
        reach: Reach,
        launch: Launch,
        reaches: dict[int, Reach],
        starts: dict[int, Launch],
        roots: dict[Unit, Root],
    ) -> None:
        """Processes started as ``python -m X``: the working directory comes first on their path."""
        search = reach.graph.resolver.search
        for unit, use, started, by in self._child_modules(reach, launch):
            start = msgspec.structs.replace(started, environment=search.environment)
            graph = self.maker.child_graph(reach.graph, start, by)
            main = None if graph is None else main_of(graph, start.target)
            if graph is None or main is None:
                continue
            child = self._begun(graph, by, True, reaches, starts, roots)
            if child is reach:
                reach.extra.append((unit, (main, "program", use.line, use.function)))
            else:
                self.maker.run_time.hand_on(child, reach)
                where = f"started by {unit.name}, line {use.line}"
                roots.setdefault(main, ("program", where))
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

    def _child_program(self, reach: Reach, unit: Unit, use: Use, launch: Launch) -> None:
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

    def _child_script(self, reach: Reach, path: bytes, unit: Unit, use: Use, launch: Launch) -> None:
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

    def _note_natives(self, role: str, native: Native) -> None:
        for path, reason in native.unreadable.items():
            self._unreadable.setdefault((path, reason), []).append(role)
        for name, loader in native.unresolved.items():
            self._unresolved.setdefault(name, loader)
        self.integrity.update(native.integrity)

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

    # Files ----------------------------------------------------------------------------------------------------------

    def _files(self, launches: list[Launch], reaches: list[Reach]) -> dict[bytes, Loaded]:
        files: dict[bytes, Loaded] = {}
        for launch in launches:
            for each in launch.touched:
                level = EAGER if each.sure else DEFERRED
                hop = Hop(None, each.path, each.line, None, each.edge)
                known = files.get(each.path)
                if known is None or known.level < level:
                    files[each.path] = Loaded(level, hop, each.by, "the way from the entry to the program")
        for path, level, why in self._loader_files():
            files.setdefault(path, Loaded(level, Hop(None, path, None, None, "root"), None, why))
        for reach in reaches:
            search = reach.graph.resolver.search
            for path in search.files:
                resolved = self.tree.resolve(path) or path
                files.setdefault(
                    resolved,
                    Loaded(EAGER, Hop(None, resolved, None, None, "pth"), None, "it decides where modules are found"),
                )
            for path, hop in reach.path_files.items():
                files.setdefault(path, Loaded(DEFERRED, hop, None, "code adds the directory that it lies in"))
            executable = search.environment.executable
            if executable is not None:
                files.setdefault(
                    executable, Loaded(EAGER, Hop(None, executable, None, None, "interpreter"), None, "the interpreter")
                )
        return files

    def _loader_files(self) -> Iterator[tuple[bytes, int, str]]:
        """What the dynamic loader reads at every start, and what ldconfig makes its cache from."""
        for name in sorted(self.tree.children(b"etc")):
            if name in (b"ld.so.preload", b"ld.so.cache") or (name.startswith(b"ld-musl-") and name.endswith(b".path")):
                yield self.tree.resolve(b"etc/" + name) or b"etc/" + name, EAGER, "the loader reads it at every start"
            elif name == b"ld.so.conf":
                yield self.tree.resolve(b"etc/" + name) or b"etc/" + name, DEFERRED, "ldconfig reads it"
        for name in sorted(self.tree.children(b"etc/ld.so.conf.d")):
            path = b"etc/ld.so.conf.d/" + name
            yield self.tree.resolve(path) or path, DEFERRED, "ldconfig reads it"

    def _texts(self, launches: list[Launch]) -> list[tuple[str, object]]:
        texts: list[tuple[str, object]] = []
        for launch in launches:
            texts += [(text, "the shell code of the entry") for text in launch.texts]
            texts += [(word, "the command line") for word in launch.argv]
            for name in sorted(launch.env):
                for part in (launch.env[name], *launch.env[name].split(":")):
                    texts.append((part, f"ENV {name}"))
        for name in sorted(self.env):
            for part in (self.env[name], *self.env[name].split(":")):
                texts.append((part, f"ENV {name}"))
        if self.config is not None:
            texts += [(word, "the command line") for word in (*self.config.entrypoint, *self.config.cmd)]
        if self.cwd:
            texts.append(("/" + self.cwd.decode("utf-8", "surrogateescape"), "the working directory"))
        return texts

    def _shell_files(self, launches: list[Launch]) -> list[str | None]:
        """The scripts on the way to a program, and what its shells read at their start; None for what can't be read."""
        rules = PathRules(common().shell_files)
        paths = {each.path for launch in launches for each in launch.touched if self.facts.elf(each.path) is None}
        if any(each.in_shell for each in launches):
            kinds = ("file", "symlink")
            paths |= {path for path, each in self.tree.entries.items() if each.type in kinds and rules.match(path)}
        texts = [self.facts.text(path) for path in sorted(paths) if not self.tree.is_dir(path)]
        return [None if text is None else text.decode("utf-8", "replace") for text in texts]

    def _world(self, launches: Sequence[Launch]) -> World:
        listed = [
            part.strip("/").encode("utf-8", "surrogateescape")
            for name in ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH")
            for part in self.env.get(name, "").split(":")
            if part
        ]
        directories = frozenset(
            found
            for each in (b"lib", b"usr/lib", b"lib64", b"usr/lib64", *listed)
            if (found := self.tree.resolve(each)) is not None
        )
        rules = common()
        return World(
            self.tree,
            self.attribution,
            self.facts,
            PathRules((*rules.outside, *self.profile.outside)),
            PathRules((*rules.read_at_run_time, *self.profile.read_at_run_time)),
            directories,
            tuple(listed),
            self._working(launches),
        )

    def _working(self, launches: Sequence[Launch]) -> frozenset[bytes]:
        directories = (self.cwd, *(launch.cwd for launch in launches))
        return frozenset(found for each in directories if (found := self.tree.resolve(each)) is not None)

    # What it could not tell -----------------------------------------------------------------------------------------

    def _note_unbounded(self, role: str, reaches: list[Reach]) -> None:
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

    def _unresolved_imports(self) -> tuple[UnresolvedImport, ...]:
        found = [msgspec.structs.replace(each, roles=tuple(roles)) for each, roles in self._unbounded.items()]
        return tuple(sorted(found, key=lambda each: (each.path, each.line, each.function or "", each.name)))

    def _all_blindspots(self, roles: dict[str, Role]) -> list[Blindspot]:
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
        for blind in self.natives.caches.blindspots:
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


def _other_places(inner: Launch, launch: Launch) -> list[str]:
    """Return the directories that a child looks into, and its parent does not, since a shell on the way set them."""
    found = ["/" + inner.cwd.decode("utf-8", "surrogateescape")] if inner.cwd != launch.cwd else []
    known = launch.env.get("PYTHONPATH", "").split(":")
    cwd = "/" + inner.cwd.decode("utf-8", "surrogateescape")
    parts = [part for part in inner.env.get("PYTHONPATH", "").split(":") if part and part not in known]
    return found + [part if part.startswith("/") else f"{cwd}/{part}" for part in parts]
