"""Who starts where: the roots of each role, and its closure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from imgdiff.model import (
    ArgvRule,
    Assumed,
    Attribution,
    Blindspot,
    ElfFacts,
    Environment,
    FactSource,
    Profile,
    ProfileRole,
    Side,
    Tree,
)
from imgdiff.trace.closure.reach import EAGER, Reach, Roots
from imgdiff.trace.closure.run_time_path import RunTimePath
from imgdiff.trace.data.entry_points import EntryPoints
from imgdiff.trace.evidence.chains import Root
from imgdiff.trace.finder.resolver import Found, Resolver
from imgdiff.trace.finder.search_path import SearchPath, build_search_path
from imgdiff.trace.finder.startup import FORKSERVER_STARTUP, MODULE_STARTUP, SPAWN_STARTUP, STARTUP
from imgdiff.trace.finder.suffixes import DEBUG_NAME, builds, is_cpython
from imgdiff.trace.graph.blocks import Unit
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.graph.narrowing import narrowing
from imgdiff.trace.launch.started import Launch, PythonStart

# What lies in the standard library's directory and is none of it: the two modules are the image's maker's.
_NOT_STANDARD = {"site-packages", "dist-packages", "__pycache__", "sitecustomize", "usercustomize"}


class Setting(msgspec.Struct, frozen=True):
    """One way in which the image can be started: the launch and its graph. ``main`` is the module that runs."""

    launch: Launch
    graph: Graph
    main: Unit | None
    label: str


class Maker:
    """Makes the graphs and closures of one image."""

    def __init__(self, tree: Tree, attribution: Attribution, facts: FactSource, profile: Profile, side: Side) -> None:
        self.tree, self.attribution, self.facts, self.profile, self.side = tree, attribution, facts, profile, side
        self.graphs: dict[tuple[bytes, ...], Graph] = {}
        self.searches: list[SearchPath] = []
        self.blindspots: list[Blindspot] = []
        self.words: frozenset[str] = frozenset()  # of the command lines
        self._standard: dict[bytes | None, frozenset[str]] = {}
        self.points = EntryPoints(attribution)
        self.run_time = RunTimePath(tree, attribution, facts.text, side, STARTUP)
        names = tuple(role.name for role in profile.roles)
        for path, entry in sorted(tree.entries.items()):
            if path.endswith(b"._pth") and entry.type != "dir" and tree.lookup(path[: -len(b"._pth")]) is not None:
                reason = "the interpreter beside it takes its search path from here, and it is not read"
                self.blindspots.append(Blindspot("search path", reason, path, side, names))

    # Graphs ---------------------------------------------------------------------------------------------------------

    def graph(self, start: PythonStart, launch: Launch, first: bytes | None) -> Graph | None:
        """Return the graph of an interpreter that is started with this directory first on its path."""
        environment = start.environment
        if environment is None:
            return None
        self._note_build(environment, start)
        base_sites: tuple[bytes, ...] = ()
        if environment.system_site and environment.prefix != environment.base:
            base_sites = tuple(
                site
                for each in self.attribution.environments
                if each.prefix == environment.base and each.version == environment.version
                for site in each.sites
            )
        search = build_search_path(
            self.tree, environment, self.facts.text, launch.env, first, start.flags, self.side, base_sites, launch.cwd
        )
        key = (environment.prefix, *(each for each in search.directories if self._holds_modules(each)))
        known = self.graphs.get(key)
        if known is None:
            self.searches.append(search)
            known = self.graphs[key] = Graph(Resolver(self.tree, search), self.facts)
            if self.profile.assumed != Assumed():
                known.narrowing = narrowing(known, self.profile, self.facts, self.words)
        return known

    def _note_build(self, environment: Environment, start: PythonStart) -> None:
        """Note an interpreter of which it is not known which extension modules and libraries it loads."""
        names = tuple(role.name for role in self.profile.roles)
        asked = (start.invoked, self.tree.resolve(start.invoked) or b"")
        reason = None
        if not is_cpython(environment):
            reason = "it is no CPython: what it has built in, compiles and loads otherwise is not followed"
        elif any(DEBUG_NAME.fullmatch(name) for name in asked) and len(builds(self.tree, environment)) > 1:
            reason = (
                "it is a debug build that shares its library with another: which extension modules it loads is open"
            )
        if reason is not None:
            spot = Blindspot("interpreter", reason, environment.executable, self.side, names)
            self.blindspots += [spot] if spot not in self.blindspots else []

    def child_graph(self, parent: Graph, start: PythonStart, launch: Launch) -> Graph | None:
        """Return the graph of a ``python -m`` child: the parent's own, if the working directory holds no module and
        what only the parent's first directory holds hides nothing."""
        cwd = self.tree.resolve(launch.cwd)
        if cwd is None or not self._holds_modules(cwd) or cwd in parent.resolver.search.directories[:1]:
            first = parent.resolver.search.directories[:1]
            rest = parent.resolver.search.directories[1:]
            own = {name for directory in first for name in parent.resolver.importable(directory)}
            if all(own.isdisjoint(parent.resolver.importable(directory)) for directory in rest):
                return parent
        return self.graph(start, launch, launch.cwd)

    def _holds_modules(self, directory: bytes) -> bool:
        for name in self.tree.children(directory):
            if name.endswith((b".py", b".pyc", b".so")):
                return True
            if b"." not in name and self.tree.is_dir(directory + b"/" + name if directory else name):
                return True
        return False

    def standard(self, graph: Graph) -> frozenset[str]:
        """Return the top-level names of the standard library."""
        stdlib = graph.resolver.search.environment.stdlib
        if stdlib not in self._standard:
            names = set()
            if stdlib is not None:
                for directory in (stdlib, stdlib + b"/lib-dynload"):
                    for name in self.tree.children(directory):
                        names.add(name.partition(b".")[0].decode("utf-8", "surrogateescape"))
            self._standard[stdlib] = frozenset(names) - _NOT_STANDARD
        return self._standard[stdlib]

    def setting(self, launch: Launch) -> Setting | None:
        """Return how a launch starts Python; None if it does not."""
        start = launch.python
        if start is None:
            return None
        self.run_time.hear(launch.cwd, (*launch.env.values(), *start.arguments))
        first: bytes | None = launch.cwd
        script = None
        if start.mode == "script":
            script = self.tree.resolve(start.target.encode("utf-8", "surrogateescape"), launch.cwd)
            first = None if script is None else script.rpartition(b"/")[0]
            if script is not None and self.tree.is_dir(script):  # a directory with a __main__.py
                first, script = script, self.tree.resolve(script + b"/__main__.py")
        graph = self.graph(start, launch, first)
        if graph is None:
            return None
        main: Unit | None = None
        label = start.target
        if start.mode == "script" and script is not None:
            main = graph.unit_at(script)
            label = "/" + script.decode("utf-8", "backslashreplace")
        elif start.mode == "module":
            main = main_of(graph, start.target)
            label = f"-m {start.target}"
        elif start.mode == "code":
            main, label = graph.unit_of(start.target), "the code of -c"
        return Setting(launch, graph, main, label)

    # Roots ----------------------------------------------------------------------------------------------------------

    def roots(
        self, role: ProfileRole, setting: Setting, methods: Sequence[str], included: Sequence[ProfileRole]
    ) -> Roots:
        """Return where a role starts under one setting."""
        graph, roots = setting.graph, Roots()
        start = setting.launch.python
        assert start is not None
        self._startup(roots, graph, start, role, methods)
        if setting.main is not None:
            if role.parent is None:
                roots.eager[setting.main] = ("root", f"the entry: {setting.label}")
                roots.mains.add(setting.main)
            elif setting.main.path is not None and role.spawned and ("spawn" in methods or "forkserver" in methods):
                again = mp_main(graph, setting.main, self.facts, script=start.mode == "script")
                roots.eager[again] = ("main", f"spawned children import the entry again: {setting.label}")
        for each in (role, *included):
            self._groups(roots, graph, role, each)
            roots.groups.update(each.plugins)
        roots.names.update(self._interpreter_names(graph))
        return roots

    def begins(self, graph: Graph, *, module: bool) -> Iterator[tuple[Unit, Root]]:
        """Yield what every interpreter imports at its start (and for ``-m`` and ``-c``), and what ``.pth`` lines do."""
        yield from self._named(graph, (*STARTUP, *MODULE_STARTUP) if module else STARTUP)
        for startup in graph.resolver.search.startup:
            unit = graph.unit(startup.module)
            if unit is not None:
                where = f"line {startup.hop.line} of /{startup.hop.path.decode('utf-8', 'backslashreplace')}"
                yield unit, ("pth", where)

    def _startup(
        self, roots: Roots, graph: Graph, start: PythonStart, role: ProfileRole, methods: Sequence[str]
    ) -> None:
        if role.parent is not None:
            names: tuple[str, ...] = SPAWN_STARTUP if "spawn" in methods else ()
            names += FORKSERVER_STARTUP if "forkserver" in methods else ()
            roots.eager.update(self._named(graph, names))
        roots.eager.update(self.begins(graph, module=start.mode != "script" and role.parent is None))

    @staticmethod
    def _named(graph: Graph, names: Iterable[str]) -> Iterator[tuple[Unit, Root]]:
        for name in names:
            unit = graph.unit(name)
            if unit is not None:
                yield unit, ("root", "runs when Python starts")

    def _groups(self, roots: Roots, graph: Graph, role: ProfileRole, source: ProfileRole) -> None:
        for group in source.roots:
            members = [unit for name in group.any_of if (unit := graph.unit(name)) is not None]
            left = self._left_out()
            members = [unit for unit in members if unit.name not in left] or members
            for unit in members:
                roots.eager.setdefault(unit, ("root", group.reason))
            if not members and not group.optional:
                names = ", ".join(group.any_of)
                self.blindspots.append(
                    Blindspot(
                        f"roots of {source.name}",
                        f"none of {names} is in the image ({group.reason}): the role's closure is not whole",
                        None,
                        self.side,
                        (role.name,),
                    )
                )

    def _left_out(self) -> frozenset[str]:
        """Return the modules that assumptions leave out of several roots."""
        rules = [rule for rule in self.profile.assumes if (rule.name, rule.value) in self.profile.assumed.values]
        return frozenset(name for rule in rules for name in rule.leaves_out)

    def _interpreter_names(self, graph: Graph) -> frozenset[str]:
        executable = graph.resolver.search.environment.executable
        found = None if executable is None else self.facts.elf(executable)
        return frozenset(found.identifiers) if isinstance(found, ElfFacts) else frozenset()

    # Closures -------------------------------------------------------------------------------------------------------

    def finish(self, reach: Reach, groups: Iterable[str]) -> None:
        """Run a closure to its end, entry points included."""
        loaded: set[str] = set()
        while True:
            reach.run()
            before = len(reach.level), len(reach.done)
            self._entry_points(reach, set(groups), loaded)
            self.run_time.extend(reach)
            reach.run()
            if before == (len(reach.level), len(reach.done)):
                return

    def _entry_points(self, reach: Reach, groups: set[str], loaded: set[str]) -> None:
        search = reach.graph.resolver.search
        loads = self.points.loaded(reach, groups)
        for distribution in self.attribution.distributions:
            if (
                self.tree.resolve(distribution.site) not in search.directories
                and distribution.site not in search.directories
            ):
                continue
            for group, name, value in distribution.entry_points:
                key = f"{distribution.name}|{group}|{name}"
                if key in loaded or not loads(group, name):
                    continue
                loaded.add(key)
                module, _, attribute = value.partition("[")[0].strip().partition(":")
                unit = reach.graph.unit(module.strip())
                if unit is not None:
                    reach.extra.append((None, (unit, "entry-point", None, f"{group}: {name}")))
                    reach.entry_points[unit] = f"entry point {name} of the group {group}, by {distribution.name}"
                    reach.add(unit)
                    reach.refer(part for part in attribute.strip().split(".") if part)


def main_of(graph: Graph, name: str) -> Unit | None:
    """Return what ``python -m NAME`` runs: the module, or the ``__main__`` of a package."""
    unit = graph.unit(name)
    if unit is not None and unit.found.portions:
        return graph.unit(f"{name}.__main__") or unit
    return unit


def mp_main(graph: Graph, main: Unit, facts: FactSource, *, script: bool) -> Unit:
    """Return the entry's main module as a spawned child runs it: without its guarded blocks.

    In a script the names that it imports only to call them in the guarded block are no references.
    """
    key = f"__mp_main__ ({main.name})"
    if key in graph.again:
        return graph.again[key]
    assert main.path is not None
    again = graph.again[key] = Unit(key, Found(key, main.path, main.kind), main.parent)
    again.package, again.top = main.package, main.top
    graph.prepare([again])
    again.main = None
    loaded = _loaded_outside_guard(facts.text(main.path)) if script else None
    if loaded is not None and again.body is not None:
        again.body.scopes = [
            msgspec.structs.replace(scope, names=scope.names - (_imported(scope) - loaded))
            for scope in again.body.scopes
        ]
    return again


def _imported(scope: object) -> set[str]:
    return {name for each in getattr(scope, "imports", ()) for name in each.names}


def _loaded_outside_guard(text: bytes | None) -> set[str] | None:
    """The names that a script's body loads outside of ``if __name__ == "__main__"``; None if that can't be told."""
    if text is None:
        return None
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    loaded: set[str] = set()
    for statement in module.body:
        if isinstance(statement, ast.If) and _is_guard(statement.test):
            rest: list[ast.AST] = list(statement.orelse)
        else:
            rest = [statement]
        for node in (inner for each in rest for inner in ast.walk(each)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                loaded.add(node.id)
            elif isinstance(node, ast.Attribute):
                loaded.add(node.attr)
            elif isinstance(node, ast.alias) and node.asname is not None:
                loaded.add(node.name.rpartition(".")[2])
    return loaded


def _is_guard(test: ast.expr) -> bool:
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return False
    sides = [test.left, test.comparators[0]]
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in sides) and any(
        isinstance(each, ast.Constant) and each.value == "__main__" for each in sides
    )


def unless(rules: Sequence[ArgvRule], argv: Sequence[str]) -> ArgvRule | None:
    """Return the first rule that a command line fulfils."""
    for rule in rules:
        for index, word in enumerate(argv):
            option, equals, value = word.partition("=")
            if option != rule.option:
                continue
            if not equals:
                value = argv[index + 1] if index + 1 < len(argv) else ""
            if value in rule.values:
                return rule
            if rule.above is not None and value.isdigit() and int(value) > rule.above:
                return rule
    return None


def inherit(reach: Reach, parent: Reach) -> dict[Unit, str]:
    """Under fork: what is eager in the parent and does more than bind names counts as deferred in the child."""
    inherited: dict[Unit, str] = {}
    for unit, level in parent.level.items():
        if level == EAGER and unit not in reach.level and unit.facts is not None and not unit.facts.binds_only:
            inherited[unit] = "run by the process that it is forked from, and its body does more than bind names"
            reach.add(unit)
    return inherited
