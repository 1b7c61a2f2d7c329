"""The evidence of one role for any path: one object per role, asked path by path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from imgdiff.engines import PathRules
from imgdiff.engines import common as common_lists
from imgdiff.model import (
    ElfFacts,
    Evidence,
    FileEntry,
    Hop,
    Level,
    PathRule,
    Resolved,
    Tree,
    Unreadable,
)
from imgdiff.trace.closure.loaded import Loaded
from imgdiff.trace.closure.reach import DEFERRED, EAGER
from imgdiff.trace.evidence.chains import Chains, path_hop
from imgdiff.trace.evidence.reached import Asleep, Closed, Further
from imgdiff.trace.evidence.world import World
from imgdiff.trace.graph.blocks import Unit
from imgdiff.trace.paths import is_shared_object, module_file, resolved, show

_RANK: Mapping[Level, int] = {
    "recorded": 6, "eager": 5, "deferred": 4, "unknown": 3, "dormant": 2, "unreached": 1, "outside": 0,
}  # fmt: skip
_LEVEL: Mapping[int, Level] = {EAGER: "eager", DEFERRED: "deferred"}
_SITE_FILES = frozenset({b"entry_points.txt"})


class Role:
    """One role in one image (a ``model.RoleTrace``)."""

    def __init__(
        self,
        role: str,
        roots: tuple[str, ...],
        world: World,
        closures: Sequence[Closed],
        files: Mapping[bytes, Loaded],
        libraries: Mapping[str, tuple[Level, Resolved]],
        chains: Chains,
        further: Further,
        wanted_libraries: Mapping[str, int],
        read: Iterable[PathRule] = (),
    ) -> None:
        """``read`` is what a compiler reads that the role starts, or a shell on its way."""
        self._role, self._roots, self._libraries = role, roots, libraries
        self.world, self.closures, self.files, self.chains, self.further = world, closures, files, chains, further
        self.wanted_libraries = wanted_libraries
        self.rules = tuple(read)
        self._read = PathRules(self.rules)
        self._modules: dict[str, tuple[Level, Resolved]] | None = None
        self._known: dict[bytes, Evidence] = {}
        self._bounds: dict[int, str] | None = None
        self._units: dict[bytes, tuple[int, Unit, Closed]] = {}
        self._directories: dict[bytes, tuple[int, bytes]] = {}
        self._index()

    # What it is -----------------------------------------------------------------------------------------------------

    @property
    def role(self) -> str:
        """The role's name."""
        return self._role

    @property
    def roots(self) -> tuple[str, ...]:
        """The modules and files that the closure starts from."""
        return self._roots

    @property
    def modules(self) -> Mapping[str, tuple[Level, Resolved]]:
        """Every module name that is reached, and what it resolves to. A copy that only a child process with another
        search path loads is listed as ``name (in a child process)``."""
        if self._modules is None:
            found: dict[str, tuple[Level, Resolved]] = {}
            for index, closed in enumerate(self.closures):
                for unit, level in closed.level.items():
                    if unit.path is None:
                        continue
                    resolved = self.resolved(unit.path)
                    known = found.get(unit.name)
                    if known is None:
                        found[unit.name] = (_LEVEL[level], resolved)
                    elif index and known[1].path != resolved.path:
                        found[f"{unit.name} (in a child process)"] = (_LEVEL[level], resolved)
            self._modules = dict(sorted(found.items()))
        return self._modules

    @property
    def libraries(self) -> Mapping[str, tuple[Level, Resolved]]:
        """Every library or program name that is reached, and what it resolves to."""
        return self._libraries

    def resolved(self, path: bytes) -> Resolved:
        """Return what stands at a canonical path, as a name's resolution."""
        return resolved(self.world.tree, self.world.attribution, path)

    def unreadable(self) -> Iterable[tuple[bytes, str, str]]:
        """Yield (path, what it is, why) of reached files whose facts could not be had."""
        for path, (_, unit, _) in sorted(self._units.items()):
            if unit.problem is not None:
                yield path, "reached module", f"what it imports is not known: {unit.problem}"
            elif unit.kind == "extension":
                facts = self.world.facts.elf(path)
                if isinstance(facts, Unreadable):
                    yield path, "reached extension module", f"what it needs is not known: {facts.reason}"

    # Index ----------------------------------------------------------------------------------------------------------

    def _index(self) -> None:
        for closed in self.closures:
            for unit, level in closed.level.items():
                for portion in unit.found.portions if unit.path is None else ():
                    self._directory(portion, level, portion)
                if unit.path is None:
                    continue
                known = self._units.get(unit.path)
                if known is None or (-level, unit.name) < (-known[0], known[1].name):
                    self._units[unit.path] = (level, unit, closed)
        for path, (level, _, _) in self._units.items():
            self._directory(path.rpartition(b"/")[0], level, path)
        for path, loaded in self.files.items():
            self._directory(path.rpartition(b"/")[0], loaded.level, path)
        reached: set[int] = set()
        claims = self.world.attribution.claims
        for path in (*self._units, *self.files):
            for claim in claims.get(path, ()):
                reached.add(claim.owner)
        owners = self.world.attribution.owners
        self._owners = frozenset(index for index in reached if owners[index].kind != "unowned")
        self._package_directories = {
            portion for closed in self.closures for unit in closed.level for portion in unit.found.portions
        }
        self._search_roots = frozenset(
            directory for closed in self.closures for directory in closed.resolver.search.directories
        )
        common = {each.strip("/").encode() for each in common_lists().common_directories}
        self._script_homes = {
            path.rpartition(b"/")[0]
            for path, (_, unit, _) in self._units.items()
            if unit.kind == "source" and self._of_nobody(path)
        } - {b"", *common, *self.world.listed}
        self._library_homes = {
            path.rpartition(b"/")[0]
            for path in (
                *self.files,
                *(path for path, (_, unit, _) in self._units.items() if unit.kind == "extension"),
            )
            if is_shared_object(path)
        }

    def _of_nobody(self, path: bytes) -> bool:
        owners = self.world.attribution.owners
        return all(owners[claim.owner].kind == "unowned" for claim in self.world.attribution.claims.get(path, ()))

    def _directory(self, directory: bytes, level: int, path: bytes) -> None:
        while True:
            known = self._directories.get(directory)
            if known is not None and known[0] >= level:
                return
            self._directories[directory] = (level, path)
            if not directory:
                return
            directory = directory.rpartition(b"/")[0]

    # Evidence -------------------------------------------------------------------------------------------------------

    def evidence(self, path: bytes) -> Evidence:
        """Return the strongest level that holds for a path of this image."""
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._strongest(path)
        return known

    def by_name(self, path: bytes) -> Evidence:
        """Return the strongest level that holds for a path, whatever other names its file has (hard links)."""
        return self._strongest(path, shared=False)

    def _strongest(self, path: bytes, *, shared: bool = True) -> Evidence:
        best = self._by_links(path)
        entry = self.world.tree.get(path)
        if entry is None:
            return best
        first = self.world.tree.hardlinks.get(path) if shared else None
        for name in self.world.names_by_first.get(first, ()) if first is not None else ():
            if name != path:
                best = stronger(best, self._by_links(name))
        if entry.type == "symlink":
            target = self.world.tree.resolve(path)
            if target and target != path:
                behind = self._by_links(target)
                if _RANK[behind.level] > _RANK[best.level]:
                    hop = Hop(None, path, None, "a link to it", "named")
                    best = Evidence(behind.level, behind.how, (*behind.chain, hop) if behind.chain else (), behind.note)
        return best

    def _by_links(self, path: bytes) -> Evidence:
        """The level by a path, or by another that links lead from: what is looked for by a link's name, or lies where
        data is read and is a link, is the file that the link leads to."""
        best = self._static(path)
        if _RANK[best.level] >= _RANK["unknown"]:
            return best
        names = self.world.led_to(path)
        if names is None:
            return stronger(best, Evidence("unknown", note="more links lead to it than were looked at"))
        for name in names:
            found = self._static(name)
            if _RANK[found.level] > _RANK[best.level]:
                note = f"the link {show(name)} leads to it" + (f": {found.note}" if found.note else "")
                best = Evidence(found.level, found.how, found.chain, note)
        return best

    def _static(self, path: bytes) -> Evidence:
        loaded = self._loaded(path)
        if loaded is not None:
            return loaded
        rule = self.world.outside.match(path)
        if rule is not None:
            return Evidence("outside", note=rule.reason)
        return self._unknown(path) or self._dormancy(path) or Evidence("unreached")

    def _loaded(self, path: bytes) -> Evidence | None:
        source = module_file(path)
        level, unit, closed = self._units.get(source) or self._units.get(path) or (0, None, None)
        file = self.files.get(path)
        if file is not None and file.level > level:
            return Evidence(_LEVEL[file.level], chain=self.chains.of_file(path), note=file.why)
        if unit is not None and closed is not None:
            return Evidence(_LEVEL[level], chain=self.chains.of_unit(unit, closed))
        if file is not None:
            return Evidence(_LEVEL[file.level], chain=self.chains.of_file(path), note=file.why)
        directory = self._directories.get(path)
        entry = self.world.tree.get(path)
        if directory is not None and (entry is None or entry.type == "dir"):
            return Evidence(_LEVEL[directory[0]], note=f"it leads to {show(directory[1])}")
        if path.rpartition(b"/")[2] in _SITE_FILES and self.further.scans_entry_points:
            return Evidence("deferred", note="the role looks for entry points in every distribution")
        rule = self._read.match(path)
        return None if rule is None else Evidence("deferred", note=rule.reason)

    def _unknown(self, path: bytes, like: FileEntry | None = None) -> Evidence | None:
        rule = self.world.read_at_run_time.match(path)
        if rule is not None:
            return Evidence("unknown", note=f"it lies where files are read at run time: {rule.reason}")
        entry = self.world.tree.get(path)
        if entry is not None and entry.type == "dir":  # its mode opens or bars the way to what lies below
            found = self._leading(path) or self._data(path, code=False) or self._named(path, code=False)
            return found or self._above(path)
        code = self.world.is_code(path) if like is None else _code_by_name(path)
        return (
            self._data(path, code)
            or self._named(path, code)
            or self._beside(path)
            or self._computed(path)
            or self._relative(path, code)
        )

    def _relative(self, path: bytes, code: bool) -> Evidence | None:
        """A file directly in the working directory is found by its bare name, and a bare word names no file of its
        own: too many strings are words."""
        directory = path.rpartition(b"/")[0]
        if code or directory not in self.world.working:
            return None
        return Evidence(
            "unknown", note=f"it lies in the working directory {show(directory)}, where a bare name finds it"
        )

    def _data(self, path: bytes, code: bool) -> Evidence | None:
        if code:
            return None
        claims = self.world.attribution.claims.get(path, ())
        for claim in claims:
            if claim.owner in self._owners:
                owner = self.world.attribution.owners[claim.owner]
                return Evidence("unknown", note=f"it is data of {owner.name}, which the role loads")
        directory = path.rpartition(b"/")[0]
        while directory:
            if directory in self._package_directories:
                return Evidence("unknown", note=f"it is data beside code that the role loads ({show(directory)})")
            if directory in self._script_homes:
                return Evidence(
                    "unknown", note=f"it lies in or below {show(directory)}, where a program of nobody runs"
                )
            if directory in self._search_roots:
                break
            directory = directory.rpartition(b"/")[0]
        return None

    def _above(self, directory: bytes) -> Evidence | None:
        """A directory leads to what may be read below it, wherever that is known from (compile caches, rc files)."""
        best: tuple[Level, bytes] | None = None
        for entry in self.world.tree.walk(directory):
            level: Level = "unreached" if entry.type == "dir" else self._static(entry.path).level
            if _RANK[level] >= _RANK["unknown"]:
                return Evidence("unknown", note=f"it leads to {show(entry.path)}")
            if level == "dormant" and best is None:
                best = level, entry.path
        return None if best is None else Evidence(best[0], note=f"it leads to {show(best[1])}")

    def _leading(self, path: bytes) -> Evidence | None:
        found = self.further.names().leading(path)
        return None if found is None else self._naming(path, *found)

    def _named(self, path: bytes, code: bool) -> Evidence | None:
        found = self.further.names().find(path, self._module_names(path), is_module=code)
        return None if found is None else self._naming(path, *found)

    def placed(self, path: bytes, other: bytes) -> Evidence | None:
        """Return the evidence that reached code, ENV or a link names this absolute path or a directory above it, and
        not the other place just as well."""
        found = self.further.names().place(path, other, is_module=_code_by_name(path))
        return None if found is None else self._naming(path, *found)

    def _naming(self, path: bytes, what: str, source: object) -> Evidence:
        where, hops = self.chains.of_source(source)
        return Evidence(
            "unknown", chain=(*hops, path_hop(path, "named")) if hops else (), note=f"{what} stands in {where}"
        )

    def _module_names(self, path: bytes) -> list[str]:
        names: list[str] = []
        for closed in self.closures:
            names += closed.resolver.names_of(path)
        return names or _package_names(self.world.tree, path)

    def _beside(self, path: bytes) -> Evidence | None:
        if not is_shared_object(path):
            return None
        directory = path.rpartition(b"/")[0]
        if directory in self.world.library_directories or directory in self._search_roots:
            return None
        while True:
            if directory in self._library_homes:
                return Evidence(
                    "unknown", note=f"it lies in or below the directory of a reached library, {show(directory)}"
                )
            if not directory:
                return None
            directory = directory.rpartition(b"/")[0]
            if directory in self._search_roots:
                return None

    def _computed(self, path: bytes) -> Evidence | None:
        if not path.endswith((b".py", b".pyc", b".so")):
            return None
        bounds = self._unbounded()
        for claim in self.world.attribution.claims.get(path, ()):
            use = bounds.get(claim.owner)
            if use is not None:
                return Evidence("unknown", note=f"{use} could run it: it runs a file by computed path")
        return self._unread(path)

    def _unread(self, path: bytes) -> Evidence | None:
        """A module that a data file could name which was too big to be kept."""
        for closed in self.closures:
            for name in closed.resolver.names_of(path) if closed.unread else ():
                data = closed.unread.get(name.partition(".")[0]) or (
                    closed.unread.get("") if self._of_nobody(path) else None
                )
                if data is not None:
                    return Evidence("unknown", note=f"{show(data)} could name it, which was too big to be looked into")
        return None

    def _unbounded(self) -> Mapping[int, str]:
        """Owners whose code runs files by a path that does not fold, and the first place of each."""
        if self._bounds is None:
            self._bounds = {}
            for path, where in self.further.unbounded():
                for claim in self.world.attribution.claims.get(path, ()):
                    self._bounds.setdefault(claim.owner, where)
        return self._bounds

    def _dormancy(self, path: bytes) -> Evidence | None:
        sleepers = self.further.sleepers()
        self.chains.know(sleepers.closures)
        found = sleepers.by_path.get(module_file(path)) or sleepers.by_path.get(path)
        if found is not None:
            return Evidence("dormant", chain=self.chains.of_asleep(*found))
        needing = self._dormant_library(path)
        if needing is not None:
            return Evidence("dormant", chain=(*self.chains.of_asleep(*needing), path_hop(path, "needed")))
        code = self.world.is_code(path)
        named = sleepers.names.find(path, self._module_names(path), is_module=code)
        if named is None:
            return None
        where, hops = self.chains.of_source(named[1])
        note = f"{named[0]} stands in a function of {where} that nothing refers to"
        return Evidence("dormant", chain=(*hops, path_hop(path, "dormant")) if hops else (), note=note)

    def _dormant_library(self, path: bytes) -> tuple[Asleep, Unit] | None:
        """Return the dormant extension module that needs this library, at any depth. By names alone, wherever the
        library lies: which of two copies a search would find does not matter for what nobody is known to load."""
        if not is_shared_object(path):
            return None
        needs = self.further.needs_of_sleepers()
        return next((needs[name] for name in self._library_names(path) if name in needs), None)

    def _library_names(self, path: bytes) -> tuple[str, ...]:
        facts = self.world.facts.elf(path)
        own = path.rpartition(b"/")[2].decode("utf-8", "surrogateescape")
        return (own, facts.soname) if isinstance(facts, ElfFacts) and facts.soname else (own,)

    # Absent files ---------------------------------------------------------------------------------------------------

    def absent(self, path: bytes, like: FileEntry) -> Evidence:
        """Return the level that a file would have here if it stood at this path."""
        looked = self._looked_for(path)
        if looked is not None:
            return looked
        rule = self.world.outside.match(path)
        if rule is not None:
            return Evidence("outside", note=rule.reason)
        found = self._unknown(path, like)
        if found is not None:
            return found
        owner = self._owner_above(path)
        if owner is not None and not _code_by_name(path):
            return Evidence("unknown", note=f"it would be data of {owner}, which the role loads")
        return self._dormancy(path) or Evidence("unreached")

    def _looked_for(self, path: bytes) -> Evidence | None:
        source = module_file(path)
        if source != path and source in self._units:
            return self._loaded(source)
        best: tuple[int, str] | None = None
        missing = self.further.missing()
        for closed in self.closures:
            for name in closed.resolver.names_of(source):
                loaded = [level for path, level in closed.named(name) if not _package_beside(path, source)]
                level = max(missing.get(name, 0), *loaded[-1:], 0)
                if level and (best is None or best[0] < level):
                    best = (level, name)
        if best is not None:
            return Evidence(_LEVEL[best[0]], note=f"reached code imports {best[1]}, which a file here would give")
        return self._looked_for_file(path)

    def _looked_for_file(self, path: bytes) -> Evidence | None:
        directory, _, name = path.rpartition(b"/")
        sites = {site for closed in self.closures for site in closed.resolver.search.sites}
        if name.endswith(b".pth") and directory in sites:
            return Evidence("eager", note="site runs the lines of every .pth file here")
        if path in (b"etc/ld.so.preload", b"etc/ld.so.cache") or name == b"pyvenv.cfg":
            return Evidence("eager", note="it is looked for at every start")
        if name in _SITE_FILES and self.further.scans_entry_points:
            return Evidence("deferred", note="the role looks for entry points in every distribution")
        level = self.wanted_libraries.get(name.decode("utf-8", "surrogateescape"), 0)
        if level:
            return Evidence(_LEVEL[level], note="the role looks for a library of this name")
        file = self.files.get(path)
        if file is not None:
            return Evidence(_LEVEL[file.level], note=file.why)
        rule = self._read.match(path)
        return None if rule is None else Evidence("deferred", note=rule.reason)

    def _owner_above(self, path: bytes) -> str | None:
        """The reached owner of the files around a path that does not exist."""
        directory = path.rpartition(b"/")[0]
        claims = self.world.attribution.claims
        while directory and directory not in self._search_roots:
            for name in self.world.tree.children(directory):
                for claim in claims.get(directory + b"/" + name, ()):
                    if claim.owner in self._owners:
                        return self.world.attribution.owners[claim.owner].name
            if self.world.tree.children(directory):
                return None
            directory = directory.rpartition(b"/")[0]
        return None

    # Conditions -----------------------------------------------------------------------------------------------------

    def conditional(self, path: bytes) -> bool:
        """Tell whether a module is eager over conditional imports alone. What is no module is not known to be."""
        source = module_file(path)
        names = {source, path}
        if any(file is not None and file.level == EAGER for file in map(self.files.get, names)):
            return False
        eager = [
            unit not in sure
            for closed, sure in zip(self.closures, self.further.sure(), strict=True)
            for unit, level in closed.level.items()
            if level == EAGER and unit.path in names
        ]
        return bool(eager) and all(eager)

    # Names ----------------------------------------------------------------------------------------------------------

    def misses(self, name: str) -> Level | None:
        """Return the level at which reached code asks for a module or library of this name, which nothing gives."""
        if name in self.libraries or any(closed.named(name) for closed in self.closures):
            return None
        return _LEVEL.get(max(self.further.missing().get(name, 0), self.wanted_libraries.get(name, 0)))

    # Versions -------------------------------------------------------------------------------------------------------

    def asks_version(self, distribution: str) -> tuple[Hop, ...]:
        """Return the places in reached code that ask for a distribution's version."""
        return self.further.askers(distribution)


def stronger(one: Evidence, other: Evidence) -> Evidence:
    """Return the stronger of two; the first of two equal ones."""
    return other if _RANK[other.level] > _RANK[one.level] else one


def _code_by_name(path: bytes) -> bool:
    return path.endswith((b".py", b".pyc", b".pyo")) or is_shared_object(path)


def _package_beside(loaded: bytes | None, module: bytes) -> bool:
    """Tell whether what is loaded is a package in a module's own directory and of its name: the finder takes a package
    first (importlib's FileFinder.find_spec)."""
    package, _, name = (loaded or b"").rpartition(b"/")
    stem = package.rpartition(b"/")[2]
    if name.partition(b".")[0] != b"__init__" or package.rpartition(b"/")[0] != module.rpartition(b"/")[0]:
        return False
    return module.rpartition(b"/")[2].partition(b".")[0] == stem


def _package_names(tree: Tree, path: bytes) -> list[str]:
    """The dotted names of a module that lies under no search path: from each package above it."""
    if not path.endswith(b".py"):
        return []
    directory, _, name = path.rpartition(b"/")
    parts = [] if name == b"__init__.py" else [name[:-3]]
    while directory and tree.lookup(directory + b"/__init__.py") is not None:
        directory, _, last = directory.rpartition(b"/")
        parts.insert(0, last)
    return [b".".join(parts).decode("utf-8", "surrogateescape")] if len(parts) > 1 else []
