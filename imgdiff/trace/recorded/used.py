"""What each process of a recording used, in the names of one image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from imgdiff.model import FileEntry, How, RecordedFile, RecordedProcess, RoleTrace
from imgdiff.trace.paths import is_shared_object
from imgdiff.trace.recorded.places import Found, Places, is_module, module_key, recorders

RANK: Mapping[How, int] = {"executed": 3, "mapped": 2, "opened": 1}


class Used:
    """What one process, or several together, used of one image. All paths are canonical.

    ``how`` says how a file was used, ``modules`` the same of modules (by their source's path, whether it or its
    bytecode was used), ``inherited`` are modules and files that were in memory by fork and of which no function was
    seen to start, ``watched`` is True where every process with such files would have shown function starts.
    ``touched`` is every path that was named in any way, found or not, links that names went through included;
    ``listed`` are directories whose names were read. ``outside`` are names that the image does not have, with how they
    were used. ``names`` are modules by name, ``libraries`` are libraries of which only the file name is
    known.
    """

    def __init__(self) -> None:
        self.how: dict[bytes, How] = {}
        self.modules: dict[bytes, How] = {}
        self.inherited: set[bytes] = set()
        self.watched = True
        self.touched: set[bytes] = set()
        self.listed: set[bytes] = set()
        self.outside: dict[bytes, How] = {}
        self.names: set[str] = set()
        self.libraries: set[bytes] = set()

    def add(self, path: bytes, how: How) -> None:
        """Note that a file was used."""
        _stronger(self.how, path, how)
        if is_module(path):
            _stronger(self.modules, module_key(path), how)
        self.touched.add(path)

    def add_all(self, other: Used) -> None:
        """Note all that another process used."""
        for path, how in other.how.items():
            _stronger(self.how, path, how)
        for path, how in other.modules.items():
            _stronger(self.modules, path, how)
        for path, how in other.outside.items():
            _stronger(self.outside, path, how)
        self.inherited |= other.inherited
        self.watched = self.watched and (other.watched or not other.inherited)
        self.touched |= other.touched
        self.listed |= other.listed
        self.names |= other.names
        self.libraries |= other.libraries

    def everything(self) -> set[bytes]:
        """Return all that is in memory: what was used, and what was inherited."""
        return {*self.how, *self.modules, *self.inherited}

    def executed(self) -> set[bytes]:
        """Return the modules whose bodies ran here or before the process was forked."""
        return {path for path, how in self.modules.items() if how == "executed"} | self.inherited

    # Questions ------------------------------------------------------------------------------------------------------

    def shows(self, places: Places, path: bytes) -> How | None:
        """Return how the file at a path was used, under any of its names; None if it was not."""
        best: How | None = None
        for name in places.names(path):
            for found in (self.how.get(name), self.modules.get(module_key(name)) if is_module(name) else None):
                if found is not None and (best is None or RANK[found] > RANK[best]):
                    best = found
        return best

    def inherits(self, places: Places, path: bytes) -> bool:
        """Tell whether the file at a path was in memory by fork, unseen."""
        names = places.names(path)
        return any(name in self.inherited or (is_module(name) and module_key(name) in self.inherited) for name in names)

    def mentions(self, places: Places, path: bytes) -> bool:
        """Tell whether a path was named in any way, under any of its names."""
        return any(name in self.touched for name in places.names(path))

    def may_map(self, places: Places, path: bytes) -> bool:
        """Tell whether a library at a path could be one of which only the file name is known, under any name of it."""
        return bool(self.libraries) and not self.libraries.isdisjoint(places.called(path))


def _stronger(table: dict[bytes, How], path: bytes, how: How) -> None:
    known = table.get(path)
    if known is None or RANK[how] > RANK[known]:
        table[path] = how


class _Named:
    """Where modules lie of which only the names are known: as the trace found them, else where it found others."""

    def __init__(self, places: Places, roles: Iterable[RoleTrace]) -> None:
        self._tree = places.tree
        self._known: dict[str, bytes | None] = {}
        self._homes: dict[bytes, None] = {}
        for role in roles:
            for name, (_, found) in role.modules.items():
                self._known.setdefault(name, found.path)
                tail = name.replace(".", "/").encode("utf-8", "surrogateescape")
                for end in (b".py", b"/__init__.py"):
                    if (b"/" + found.path).endswith(b"/" + tail + end):
                        self._homes[found.path[: len(found.path) - len(tail + end)].rstrip(b"/")] = None

    def find(self, name: str) -> bytes | None:
        """Return a module's canonical path; None where the image has none of the name."""
        if name not in self._known:
            self._known[name] = self._search(name.replace(".", "/").encode("utf-8", "surrogateescape"))
        return self._known[name]

    def _search(self, tail: bytes) -> bytes | None:
        for home in self._homes:
            base = home + b"/" + tail if home else tail
            for end in (b".py", b"/__init__.py", b".pyc"):
                found = self._tree.resolve(base + end)
                if found is not None:
                    return found
            directory, _, last = base.rpartition(b"/")
            for name in self._tree.children(directory):
                if name.startswith(last + b".") and name.endswith(b".so"):
                    return directory + b"/" + name
        return None


def used(
    processes: Sequence[RecordedProcess],
    parents: Sequence[int | None],
    places: Places,
    roles: Iterable[RoleTrace],
) -> list[Used]:
    """Return what each process used, in order. ``parents`` is, for each, the process that it was forked from or that
    started it. ``roles`` say where modules lie of which only the names are known."""
    made: dict[int, Used] = {}
    named = _Named(places, roles)

    def one(index: int) -> Used:
        known = made.get(index)
        if known is not None:
            return known
        process = processes[index]
        found = made[index] = Used()
        parent = parents[index]
        forked = process.start == "fork"
        if forked and parent is not None:
            found.inherited = one(parent).everything()
        for file in process.files:
            _take(found, file, process, places, named)
        if forked:
            found.watched = "functions" in process.coverage
            seen = {path for path, how in found.modules.items() if how == "executed"} | set(found.how)
            found.inherited -= seen
        return found

    return [one(index) for index in range(len(processes))]


_HOW: Mapping[str, How] = {"executed": "executed", "mapped": "mapped", "opened": "opened", "started": "executed"}


def _take(found: Used, file: RecordedFile, process: RecordedProcess, places: Places, named: _Named) -> None:
    if file.how == "named":
        found.libraries.add(file.path)
        return
    if file.name is not None and file.how in ("executed", "before", "mapped"):
        found.names.add(file.name)
    path = file.path
    if not path:
        module = None if file.name is None else named.find(file.name)
        if module is None:
            return
        path = b"/" + module
    if recorders(process, path, places.tree):
        return
    place = places.find(path, file.cwd if file.cwd is not None else process.cwd)
    if place is not None:
        _place(found, file, place, process, places.tree.get(place.path) if place.there else None)
    elif file.how in ("executed", "started") or (file.how == "mapped" and path.startswith(b"/proc/")):
        # behind a descriptor: which file that was is not known
        _stronger(found.outside, path.strip(b"/"), "executed")


def _place(found: Used, file: RecordedFile, place: Found, process: RecordedProcess, entry: FileEntry | None) -> None:
    how = _HOW.get(file.how)
    if file.how == "before":
        if process.start == "fork":
            found.inherited.add(module_key(place.path) if is_module(place.path) else place.path)
        else:
            how = "mapped" if is_shared_object(place.path) else "executed"
    found.touched.add(place.path)
    found.touched.update(place.links)
    if file.how == "listed":
        found.listed.add(place.path)
    if how is None:
        return
    if place.there and _is_file(entry):
        found.add(place.path, how)
        for link in place.links:
            _stronger(found.how, link, how)
    elif not place.there and not (file.how == "before" and file.path.endswith(b".pyc")):
        _stronger(found.outside, place.path, how)
        if is_module(place.path):  # a source that is not there may have been run from its bytecode
            _stronger(found.modules, module_key(place.path), how)


def _is_file(entry: FileEntry | None) -> bool:
    return entry is not None and entry.type == "file"
