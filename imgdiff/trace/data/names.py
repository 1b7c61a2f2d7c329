"""Modules that stand only in data files: names that reached code reads from a file and imports.

Where reached code imports by computed name, the data files that it can read count as strings of its own: those of the
distributions and packages that the role reaches, those beside its programs and in its working directory, and those
that its strings, the command line or ENV name. A dotted name counts in full; within the top-level packages of those
who can read the file it counts relatively and by its last part too, and so does what lies in a package that the file
names. All of it only ever grows, so the result does not depend on the order.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from imgdiff.engines import PathRules, common
from imgdiff.kinds import data_by_name
from imgdiff.model import HOLE, Attribution, Edge, FactSource, Tree
from imgdiff.trace.closure.reach import EAGER, Reach
from imgdiff.trace.data import given
from imgdiff.trace.data.entry_points import EntryPoints
from imgdiff.trace.data.words import code_paths, modules_started, unpacked, words_of
from imgdiff.trace.finder.resolver import Found
from imgdiff.trace.graph.blocks import DOTTED, Unit
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.named import fixes_enough, pattern_regex, tokens_of

# A module of these, reached, imports what data names: the first what any configuration says, the others what was
# pickled. All else in the standard library is told the name by its caller.
_CONFIGURED = ("logging.config",)
_PICKLED = ("pickle", "shelve")
# Such a file lists distributions that were installed: a single word in it names a module of nobody's alone.
_REQUIREMENTS = re.compile(
    rb"(?:requirements|constraints)[^/]*\.(?:txt|in)|(?:pyproject|Cargo)\.toml|setup\.cfg|Pipfile(?:\.lock)?"
    rb"|(?:poetry|uv|pdm|conda)[^/]*\.lock|package(?:-lock)?\.json|environment\.ya?ml|meta\.ya?ml|tox\.ini|top_level\.txt"
)
_LOADERS = re.compile(rb"etc/ld(?:\.so\.|-musl-)")  # these say where libraries lie, and load none
_END = 8  # bytes
_DIRECTORY = re.compile(f"^{HOLE}+/")  # that is not known
_INSTALLED = re.compile(
    rb"/(?:site-packages|dist-packages|python\d[\w.]*)$"
)  # where packages lie, an application's not
_BESIDE = ""  # stands for the top level itself, where scripts import what lies beside them
# What is told to be data by its name: not to know what such a file names leaves a question.
_TOLD = frozenset(b"json jsonl yaml yml toml ini cfg conf csv xml properties env pkl pickle db sqlite sqlite3".split())


class _File:
    """One data file: the words in it, split into dotted and single ones, and the paths of code."""

    __slots__ = ("dotted", "files", "pickle", "requirements", "single", "started", "unit")

    def __init__(self, path: bytes, data: bytes) -> None:
        data = unpacked(data)
        words, self.pickle = words_of(data)
        # Where code goes through a directory, the names of files are names too.
        stem = path.rpartition(b"/")[2].decode("utf-8", "replace")
        words |= {word.replace("-", "_") for word in (stem, stem.rpartition(".")[0]) if DOTTED.fullmatch(word)}
        self.dotted = frozenset(word for word in words if "." in word or ":" in word)
        self.single = words - self.dotted
        self.files = code_paths(data)
        self.started = modules_started(data)
        self.requirements = _REQUIREMENTS.fullmatch(path.rpartition(b"/")[2]) is not None
        label = "/" + path.decode("utf-8", "backslashreplace")
        self.unit = Unit(label, Found(label, path, "data"), None)


class _Hits:
    """The modules of one graph that one file names in full, and the attributes that it names with them."""

    __slots__ = ("names", "units")

    def __init__(self, file: _File, graph: Graph, attribution: Attribution) -> None:
        self.units: dict[Unit, None] = {}
        self.names: set[str] = set()
        for word in sorted(file.dotted):
            module, _, attribute = word.partition(":")
            for unit in graph.by_string(word, ""):
                self.units[unit] = None
                rest = module.removeprefix(unit.name).strip(".")
                self.names.update(part for part in (*rest.split("."), *attribute.split(".")) if part)
        for word in sorted(file.single & graph.tops()):
            top = graph.unit(word)
            if top is not None and not (file.requirements and not _of_nobody(attribution, top.path or b"")):
                self.units[top] = None
        for package in [unit for unit in self.units if unit.found.portions]:
            inside = {name.rpartition(".")[2] for name in graph.resolver.submodules(package.name)}
            for word in sorted(file.single & inside):
                child = graph.unit(f"{package.name}.{word}")
                if child is not None:
                    self.units[child] = None


class DataNames:
    """What the data files of one image name, worked out as it is asked for."""

    def __init__(
        self,
        tree: Tree,
        attribution: Attribution,
        facts: FactSource,
        outside: PathRules,
        points: EntryPoints,
        entries: Iterable[str] = (),
    ) -> None:
        """``entries`` are the command lines that the profile knows."""
        self._commands = frozenset(word for each in entries for word in each.split())
        self._tree, self._attribution, self._facts, self._outside = tree, attribution, facts, outside
        self._paths: tuple[bytes, ...] | None = None
        self._files: dict[bytes, _File | None] = {}
        self._hits: dict[tuple[int, int, bytes], _Hits] = {}
        self._common = frozenset(each.strip("/").encode() for each in common().common_directories)
        self._index: _Index | None = None
        self._links: dict[bytes, list[bytes]] | None = None
        self._points = points
        self._known: dict[str, tuple[bytes, ...]] = {}  # a string -> the data files that it names

    # Which files ----------------------------------------------------------------------------------------------------

    def paths(self) -> tuple[bytes, ...]:
        """Return every file that could be data with names in it, sorted."""
        if self._paths is None:
            self._paths = tuple(
                sorted(
                    path
                    for path, entry in self._tree.entries.items()
                    if entry.type in ("file", "symlink") and data_by_name(path) and self._is_file(path)
                    if self._outside.match(path) is None
                )
            )
        return self._paths

    def _is_file(self, path: bytes) -> bool:
        entry = self._tree.lookup(path)
        return entry is not None and entry.type == "file" and self._facts.elf(path) is None

    def read_by(self, texts: Iterable[str]) -> Iterator[bytes]:
        """Yield the data files that native code with these strings can read: those that one names, and all below a
        directory that one names. Of a format (``/etc/x.d/%s.conf``) the directory counts."""
        index = self._indexed()
        for text in texts:
            if "/" in text or "." in text:
                names, patterns = tokens_of(text)
                starts = (each.partition(HOLE)[0].rpartition("/")[0] for each in patterns if each.startswith("/"))
                for path in index.named((*names, *(each for each in starts if each))):
                    if not _LOADERS.match(path):
                        yield path

    def said(self, path: bytes) -> tuple[str, ...]:
        """Return the paths of code and of further data that stand in a data file."""
        file = self._file(path)
        return () if file is None else file.files

    def _file(self, path: bytes) -> _File | None:
        if path not in self._files:
            data = self._facts.text(path)
            self._files[path] = None if data is None or data.startswith(b"#!") else _File(path, data)
        return self._files[path]

    def _aliases(self) -> Mapping[bytes, list[bytes]]:
        """Links to directories, by the directory that they lead to."""
        if self._links is None:
            self._links = {}
            for path, entry in self._tree.entries.items():
                if entry.type == "symlink" and self._tree.is_dir(path):
                    target = self._tree.resolve(path)
                    if target and target not in self._common:
                        self._links.setdefault(target, []).append(path)
        return self._links

    # The closure ----------------------------------------------------------------------------------------------------

    def feed(self, reach: Reach, working: Iterable[bytes], texts: Sequence[tuple[str, object]]) -> None:
        """Add to a closure that has run to its end what the data files that it can read name. ``working`` are its
        working directories, ``texts`` the command line and ENV, each with where it stands."""
        now = [len(reach.level), len(reach.done), len(reach.graph.widened)]
        if reach.fed == now:
            return
        first = reach.fed[1] if reach.fed else 0
        reach.fed = now
        mains = _mains(reach)
        importers = _importers(reach)
        who = _Readers(reach, self._attribution, self._common, self._aliases(), importers)
        who.at_work(working, mains)
        self._groups_said(reach, first, texts)
        given.feed(reach, texts, mains, self._commands)
        self._named(reach, first, [text.lstrip("@") for text, _ in texts], mains)
        named: dict[bytes, _Tops] = {}
        tops = {unit.top for unit in reach.level}
        found = (key for key in reach.bare_data if _package_of(key[0], reach.graph) in (None, *tops))
        for path, top in (*reach.named_data, *found):
            unit = reach.named_data.get((path, top)) or reach.bare_data[path, top]
            named.setdefault(path, {})[top] = importers.get(unit) or _Reader(1, unit.name, 0, "", unit)
        every = {unit.name for unit in reach.level if unit.top in reach.standard}
        loose = any(top not in reach.standard for top in reach.dynamic)
        anything = loose or not every.isdisjoint(_CONFIGURED)
        pickles = anything or not every.isdisjoint(_PICKLED)
        for path in self.paths():
            readers = who.of(path)
            edge: Edge = "data" if readers else "named"
            _merge(readers, named.get(path, {}))
            if not readers:
                continue
            file = self._file(path)
            if file is None:
                if path.rpartition(b".")[2].lower() in _TOLD:
                    for top in readers.keys() & {*reach.dynamic, _BESIDE}:
                        reach.unread.setdefault(top, path)
                continue
            reach.read_data[path] = file.files
            self._start(reach, path, file, readers)
            self._points.given(reach, file.dotted | file.single)
            reach.data_words[path] = file.dotted, file.single
            asked = (loose, anything, pickles, len(reach.tails), len(reach.graph.widened), frozenset(readers))
            if (pickles if file.pickle else anything) and reach.asked_data.get(path) != asked:
                reach.asked_data[path] = asked
                self._read(reach, path, file, readers, edge, loose=loose)

    def _start(self, reach: Reach, path: bytes, file: _File, readers: _Tops) -> None:
        """Run what command lines in a file run: modules, and scripts by their absolute path."""
        graph = reach.graph
        mains = [graph.unit(f"{name}.__main__") or graph.unit(name) for name in sorted(file.started)]
        for text in file.files:
            if text.startswith("/") and text.endswith(".py"):
                script = self._tree.resolve(text.encode("utf-8", "surrogateescape"))
                entry = None if script is None else self._tree.get(script)
                if script is not None and entry is not None and entry.type == "file":
                    mains.append(graph.unit_at(script))
        for unit in mains:
            if unit is not None and (path, unit) not in reach.from_data:
                reach.from_data.add((path, unit))
                self._lead(reach, path, file, readers, "data")
                reach.extra.append((file.unit, (unit, "program", None, None)))
                reach.run_main(unit)

    def _lead(self, reach: Reach, path: bytes, file: _File, readers: _Tops, edge: Edge) -> None:
        """Have a way to a data file in the closure, once."""
        if path not in reach.data_files:
            reach.data_files[path] = file.unit
            reader = min(readers.values(), key=lambda each: each[:4])
            reach.extra.append((reader.unit, (file.unit, edge, reader.line or None, reader.function or None)))

    def _read(self, reach: Reach, path: bytes, file: _File, readers: _Tops, edge: Edge, *, loose: bool) -> None:
        graph = reach.graph
        key = (id(graph), len(graph.widened), path)
        hits = self._hits.get(key)
        if hits is None:
            hits = self._hits[key] = _Hits(file, graph, self._attribution)
        found = dict(hits.units)
        for unit in hits.units:
            for child in given.behind(reach, unit):
                found[child] = None
        for top in sorted(readers) if loose else ():
            tails = graph.lasts(top)
            for word in (*sorted(file.single & tails.keys()), *_relative(file.dotted, tails)):
                for name in tails[word]:
                    target = graph.unit(name)
                    if target is not None:
                        found[target] = None
        new = [unit for unit in found if (path, unit) not in reach.from_data]
        if not new:
            return
        self._lead(reach, path, file, readers, edge)
        for unit in new:
            reach.from_data.add((path, unit))
            reach.extra.append((file.unit, (unit, "string", None, None)))
            reach.add(unit)
        reach.refer(hits.names)

    def _groups_said(self, reach: Reach, first: int, texts: Iterable[tuple[str, object]]) -> None:
        given.note_tails(reach, first)
        self._points.said(reach, first)
        for text, _ in texts:
            self._points.given(reach, given.names_given(text))
            reach.heard.add(text)

    # Files that strings name ----------------------------------------------------------------------------------------

    def _named(self, reach: Reach, first: int, texts: Iterable[str], mains: Iterable[Unit]) -> None:
        """Note the data files that strings of reached code, the command line or ENV name, and who says so. ``first``:
        the blocks before it were looked at."""
        for block in itertools.islice(reach.done, first, None):
            if block.files and block.unit.top not in reach.standard:
                for text in block.files:
                    self._note(reach, text, block.unit)
        for text in texts:
            for unit in mains:
                self._note(reach, text, unit)

    def _note(self, reach: Reach, text: str, unit: Unit) -> None:
        for path in self._named_by(text):
            data = reach.named_data if "/" in _DIRECTORY.sub("", text) else reach.bare_data
            known = data.get((path, unit.top))
            if known is None or unit.name < known.name:
                data[path, unit.top] = unit

    def _homes(self) -> set[bytes]:
        """Where Python's modules lie, and what is above: a string that says where names no data there."""
        homes: set[bytes] = set()
        for each in self._attribution.environments:
            for directory in (*each.sites, *each.user_sites, each.prefix, *([each.stdlib] if each.stdlib else [])):
                here = directory
                while here:
                    homes.add(here)
                    here = here.rpartition(b"/")[0]
        return homes

    def _named_by(self, text: str) -> tuple[bytes, ...]:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._indexed().find(text)
        return known

    def _indexed(self) -> _Index:
        if self._index is None:
            self._index = _Index(self._tree, self.paths(), self._common | self._homes())
        return self._index


def _package_of(path: bytes, graph: Graph) -> str | None:
    """Return the regular top-level package among the installed ones that a data file lies in; None if in none.

    Code that knows no more than the name of a file must have the directory from somewhere, and that of another package
    from this package: one that is not reached gives none.
    """
    for directory in graph.resolver.search.directories:
        first, below, _ = path.removeprefix(directory + b"/").partition(b"/")
        if below and path.startswith(directory + b"/") and _INSTALLED.search(directory):
            unit = graph.unit(first.decode("utf-8", "surrogateescape")) if first.isalnum() or b"_" in first else None
            if unit is not None and unit.path is not None and unit.path.startswith(directory + b"/" + first + b"/"):
                return unit.name
    return None


class _Reader(NamedTuple):
    """A module that can read a data file, and where it imports by computed name: ``rank`` is 0 if it does."""

    rank: int
    name: str
    line: int
    function: str
    unit: Unit


_Tops = dict[str, _Reader]  # who reads, the first of each top-level package; _BESIDE: one of nobody's


class _Readers:
    """Which reached modules can read a data file without naming it."""

    def __init__(
        self,
        reach: Reach,
        attribution: Attribution,
        common_directories: frozenset[bytes],
        aliases: Mapping[bytes, list[bytes]],
        importers: Mapping[Unit, _Reader],
    ) -> None:
        self._claims, self._aliases, self._importers = attribution.claims, aliases, importers
        self._by_owner: dict[int, _Tops] = {}
        self._below: dict[bytes, _Tops] = {}
        self._beside: dict[bytes, _Tops] = {}
        search = reach.graph.resolver.search
        stdlib = search.environment.stdlib
        self._sites = frozenset(search.directories)
        self._common = common_directories | {*search.sites, *([] if stdlib is None else [stdlib])}
        self._dynamic = reach.dynamic
        self._nobodys: _Tops = {}
        owners = attribution.owners
        for unit in reach.level:
            if unit.top in reach.standard:
                continue
            here = self._tops(unit)
            for portion in unit.found.portions:
                _merge(self._below.setdefault(portion, {}), here)
            if unit.path is None:
                continue
            for claim in self._claims.get(unit.path, ()):
                if owners[claim.owner].kind not in ("unowned", "stdlib"):
                    _merge(self._by_owner.setdefault(claim.owner, {}), here)
            if _of_nobody(attribution, unit.path):
                if unit.top in reach.dynamic:
                    here[_BESIDE] = here[unit.top]  # what lies beside a script is at the top level
                _merge(self._nobodys, here)
                self._at(unit.path.rpartition(b"/")[0], here)

    def _tops(self, unit: Unit) -> _Tops:
        return {unit.top: self._importers.get(unit) or _Reader(1, unit.name, 0, "", unit)}

    def at_work(self, working: Iterable[bytes], mains: Iterable[Unit]) -> None:
        """Add the working directories, which the main modules and those of nobody read."""
        for unit in mains:
            _merge(self._nobodys, self._tops(unit))
        for directory in working:
            self._at(directory, self._nobodys)

    def _at(self, directory: bytes, tops: _Tops) -> None:
        table = self._beside if not directory or directory in self._common else self._below
        _merge(table.setdefault(directory, {}), tops)

    def of(self, path: bytes) -> _Tops:
        """Return who can read this file."""
        found: _Tops = {}
        for claim in self._claims.get(path, ()):
            _merge(found, self._by_owner.get(claim.owner, {}))
        self._around(path, found)
        directory = path.rpartition(b"/")[0]
        while directory:
            for link in self._aliases.get(directory, ()):
                self._around(link + path[len(directory) :], found)
            directory = directory.rpartition(b"/")[0]
        return found

    def _around(self, path: bytes, found: _Tops) -> None:
        directory = path.rpartition(b"/")[0]
        _merge(found, self._beside.get(directory, {}))
        while directory:
            _merge(found, self._below.get(directory, {}))
            if directory in self._sites:
                return
            directory = directory.rpartition(b"/")[0]


def _merge(into: _Tops, other: _Tops) -> None:
    for top, reader in other.items():
        known = into.get(top)
        if known is None or reader[:4] < known[:4]:
            into[top] = reader


def _importers(reach: Reach) -> dict[Unit, _Reader]:
    """Every reached module that imports by computed name, with the first place where it does."""
    found: dict[Unit, _Reader] = {}
    for unit, use in reach.unbounded:
        reader = _Reader(0, unit.name, use.line, use.function or "", unit)
        known = found.get(unit)
        if known is None or reader[:4] < known[:4]:
            found[unit] = reader
    return found


class _Index:
    """Data files by what a string can call them; the rules are those of ``named.Names``."""

    def __init__(self, tree: Tree, paths: Iterable[bytes], common_directories: frozenset[bytes]) -> None:
        self._tree, self._common = tree, common_directories
        self._names = {each.encode() for each in common().common_names}
        self._exact: dict[bytes, list[bytes]] = {}
        self._above: dict[bytes, list[bytes]] = {}
        self._last: dict[bytes, list[bytes]] = {}
        self._ends: set[bytes] = {b""}  # of all names, up to so many bytes: most patterns fail there
        self._starts: set[bytes] = {b""}
        for path in paths:
            parts = path.split(b"/")
            self._exact.setdefault(b"/" + path, []).append(path)
            for start in range(1, len(parts) - 1):
                self._exact.setdefault(b"/".join(parts[start:]), []).append(path)
            self._last.setdefault(parts[-1], []).append(path)
            name = parts[-1]
            self._ends.update(name[-length:] for length in range(1, min(len(name), _END) + 1))
            self._starts.update(name[:length] for length in range(1, min(len(name), _END) + 1))
            directory = path.rpartition(b"/")[0]
            while directory:
                if directory not in common_directories:
                    self._above.setdefault(directory, []).append(path)
                directory = directory.rpartition(b"/")[0]

    def find(self, text: str) -> tuple[bytes, ...]:
        """Return the data files that a string names."""
        names, patterns = tokens_of(text)
        found = dict.fromkeys(self.named(names))
        for pattern in patterns:
            found.update(dict.fromkeys(self._by_pattern(pattern)))
        return tuple(found)

    def named(self, names: Iterable[str]) -> tuple[bytes, ...]:
        """Return the data files that one of these paths or names leads to."""
        found: dict[bytes, None] = {}
        for name in names:
            token = name.encode("utf-8", "surrogateescape")
            found.update(dict.fromkeys(self._exact.get(token, ())))
            if b"/" not in token and b"." in token.strip(b".") and token not in self._names:
                found.update(dict.fromkeys(self._last.get(token, ())))
            elif token.startswith(b"/"):
                canonical = self._tree.resolve(token)
                for each in {token.strip(b"/"), canonical or b""}:
                    found.update(dict.fromkeys(self._above.get(each, ())))
                if canonical:
                    found.update(dict.fromkeys(self._exact.get(b"/" + canonical, ())))
        return tuple(found)

    def _by_pattern(self, pattern: str) -> list[bytes]:
        tail = pattern.rstrip("/").rpartition("/")[2]
        pieces = [piece.encode("utf-8", "surrogateescape") for piece in tail.split(HOLE)]
        if len(pieces) == 1:
            candidates = self._last.get(pieces[0], ())
        elif pieces[-1][-_END:] not in self._ends or pieces[0][:_END] not in self._starts or not fixes_enough(pattern):
            return []
        else:
            candidates = [
                path
                for name, paths in self._last.items()
                if name.startswith(pieces[0]) and name.endswith(pieces[-1])
                for path in paths
            ]
        if not candidates or not fixes_enough(pattern):
            return []
        regex = pattern_regex(pattern)
        return [path for path in candidates if regex.fullmatch(b"/" + path)]


def _relative(dotted: Iterable[str], tails: Mapping[str, object]) -> list[str]:
    """The dotted words that are the end of a module's name, with or without an attribute behind."""
    found: list[str] = []
    for word in sorted(dotted):
        name = word.partition(":")[0].strip()
        while name:
            if name in tails:
                found.append(name)
                break
            name = name.rpartition(".")[0]
    return found


def _of_nobody(attribution: Attribution, path: bytes) -> bool:
    return all(attribution.owners[claim.owner].kind == "unowned" for claim in attribution.claims.get(path, ()))


def _mains(reach: Reach) -> set[Unit]:
    """The main modules of a role, else one module that runs at its start."""
    if reach.mains:
        return set(reach.mains)
    eager = [unit for unit, level in reach.level.items() if level == EAGER and unit.top not in reach.standard]
    return {min(eager, key=lambda unit: unit.name)} if eager else set()
