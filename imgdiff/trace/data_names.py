"""Modules that stand only in data files: names that reached code reads from a file and imports.

Where reached code imports by computed name, the data files that it can read count as strings of its own: those of the
distributions and packages that the role reaches, those beside its programs and in its working directory, and those
that its strings, the command line or ENV name. A dotted name counts in full; within the top-level packages of those
who can read the file it counts relatively and by its last part too, and so does what lies in a package that the file
names. All of it only ever grows, so the result does not depend on the order.
"""

from __future__ import annotations

import html
import io
import itertools
import pickletools
import re
import struct
import sys
import warnings
from collections.abc import Iterable, Mapping

from imgdiff.engines import PathRules, common
from imgdiff.kinds import data_by_name
from imgdiff.model import HOLE, Attribution, Edge, FactSource, Tree
from imgdiff.trace.blocks import DOTTED, Unit
from imgdiff.trace.closure import EAGER, Reach
from imgdiff.trace.graph import Graph
from imgdiff.trace.named import fixes_enough, pattern_regex, tokens_of
from imgdiff.trace.resolver import Found

# A module of these, reached, imports what data names: the first what any configuration says, the others what was
# pickled. All else in the standard library is told the name by its caller.
_CONFIGURED = ("logging.config",)
_PICKLED = ("pickle", "shelve")
# Such a file lists distributions that were installed, not modules that are imported.
_REQUIREMENTS = re.compile(
    rb"(?:requirements|constraints)[^/]*\.(?:txt|in)|(?:pyproject|Cargo)\.toml|setup\.cfg|Pipfile(?:\.lock)?"
    rb"|(?:poetry|uv|pdm|conda)[^/]*\.lock|package(?:-lock)?\.json|environment\.ya?ml|meta\.ya?ml|tox\.ini|top_level\.txt"
)
# What is told to be data by its name: not to know what such a file names leaves a question.
_TOLD = frozenset(b"json jsonl yaml yml toml ini cfg conf csv xml properties env pkl pickle db sqlite sqlite3".split())
_WORDS = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_WITH_ATTRIBUTE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_HYPHENED = re.compile(r"[^\W\d][\w.]*(?:-[\w.]+)+")
_RUNS = re.compile(rb"[A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?", re.ASCII)
_FILES = re.compile(r"(?:/[\w.@+-]+){2,}|[\w.@+-][\w./@+-]*\.(?:pyc?|so(?:\.\d+)*|sh)(?!\w)")
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|U([0-9A-Fa-f]{8}))")


class _File:
    """One data file: the words in it, split into dotted and single ones, and the paths of code."""

    __slots__ = ("dotted", "files", "pickle", "requirements", "single", "unit")

    def __init__(self, path: bytes, data: bytes) -> None:
        words, self.pickle = words_of(data)
        self.dotted = frozenset(word for word in words if "." in word or ":" in word)
        self.single = words - self.dotted
        text = data.decode("utf-8", "surrogateescape").replace("\\/", "/")
        self.files = tuple(sorted(set(_FILES.findall(text))))
        self.requirements = _REQUIREMENTS.fullmatch(path.rpartition(b"/")[2]) is not None
        label = "/" + path.decode("utf-8", "backslashreplace")
        self.unit = Unit(label, Found(label, path, "data"), None)


class _Hits:
    """The modules of one graph that one file names in full, and the attributes that it names with them."""

    __slots__ = ("names", "units")

    def __init__(self, file: _File, graph: Graph) -> None:
        self.units: dict[Unit, None] = {}
        self.names: set[str] = set()
        for word in sorted(file.dotted):
            module, _, attribute = word.partition(":")
            for unit in graph.by_string(word, ""):
                self.units[unit] = None
                rest = module.removeprefix(unit.name).strip(".")
                self.names.update(part for part in (*rest.split("."), *attribute.split(".")) if part)
        for word in sorted(file.single & graph.tops()) if not file.requirements else ():
            unit_of = graph.unit(word)
            if unit_of is not None:
                self.units[unit_of] = None
        for package in [unit for unit in self.units if unit.found.portions]:
            inside = {name.rpartition(".")[2] for name in graph.resolver.submodules(package.name)}
            for word in sorted(file.single & inside):
                child = graph.unit(f"{package.name}.{word}")
                if child is not None:
                    self.units[child] = None


class DataNames:
    """What the data files of one image name, worked out as it is asked for."""

    def __init__(self, tree: Tree, attribution: Attribution, facts: FactSource, outside: PathRules) -> None:
        self._tree, self._attribution, self._facts, self._outside = tree, attribution, facts, outside
        self._paths: tuple[bytes, ...] | None = None
        self._files: dict[bytes, _File | None] = {}
        self._hits: dict[tuple[int, int, bytes], _Hits] = {}
        self._common = frozenset(each.strip("/").encode() for each in common().common_directories)
        self._index: _Index | None = None
        self._links: dict[bytes, list[bytes]] | None = None
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
        return entry is not None and entry.type == "file" and entry.size > 0 and self._facts.elf(path) is None

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

    def feed(self, reach: Reach, working: Iterable[bytes], texts: Iterable[str]) -> None:
        """Add to a closure that has run to its end what the data files that it can read name. ``working`` are its
        working directories, ``texts`` the command line and ENV."""
        now = [len(reach.level), len(reach.done), len(reach.graph.widened)]
        if reach.fed == now:
            return
        first = reach.fed[1] if reach.fed else 0
        reach.fed = now
        mains = _mains(reach)
        who = _Readers(reach, self._attribution, self._common, self._aliases(), working, mains)
        named = self._named(reach, first, texts, mains)
        every = {unit.name for unit in reach.level if unit.top in reach.standard}
        loose = any(top not in reach.standard for top in reach.dynamic)
        anything = loose or not every.isdisjoint(_CONFIGURED)
        pickles = anything or not every.isdisjoint(_PICKLED)
        for path in self.paths():
            readers = who.of(path)
            edge: Edge = "data"
            if path in named:
                edge = "data" if readers else "named"
                readers = readers | named[path]
            if readers:
                file = self._file(path)
                if file is None:
                    self._unread(reach, path, readers)
                    continue
                reach.read_data[path] = file.files
                if pickles if file.pickle else anything:
                    self._read(reach, path, file, readers, edge, loose=loose)

    def _unread(self, reach: Reach, path: bytes, readers: set[Unit]) -> None:
        """A data file that the indexing pass did not keep: what it names is not known."""
        if path.rpartition(b".")[2].lower() in _TOLD:
            for unit in readers:
                if unit.top in reach.dynamic:
                    reach.unread.setdefault(unit.top, path)
                    if unit.path is not None and _of_nobody(self._attribution, unit.path):
                        reach.unread.setdefault("", path)  # what lies beside a script is at the top level too

    def _read(self, reach: Reach, path: bytes, file: _File, readers: set[Unit], edge: Edge, *, loose: bool) -> None:
        graph = reach.graph
        key = (id(graph), len(graph.widened), path)
        hits = self._hits.get(key)
        if hits is None:
            hits = self._hits[key] = _Hits(file, graph)
        found = dict(hits.units)
        for top in sorted({unit.top for unit in readers}) if loose else ():
            tails = graph.lasts(top)
            for word in (*sorted(file.single & tails.keys()), *_relative(file.dotted, tails)):
                for name in tails[word]:
                    target = graph.unit(name)
                    if target is not None:
                        found[target] = None
        new = [unit for unit in found if (path, unit) not in reach.from_data]
        if not new:
            return
        if path not in reach.data_files:
            reach.data_files[path] = file.unit
            reader, line, function = _reader(reach, readers)
            reach.extra.append((reader, (file.unit, edge, line, function)))
        for unit in new:
            reach.from_data.add((path, unit))
            reach.extra.append((file.unit, (unit, "string", None, None)))
            reach.add(unit)
        reach.refer(hits.names)

    # Files that strings name ----------------------------------------------------------------------------------------

    def _named(self, reach: Reach, first: int, texts: Iterable[str], mains: Iterable[Unit]) -> dict[bytes, set[Unit]]:
        """The data files that strings of reached code, the command line or ENV name, and who says so. ``first``: the
        blocks before it were looked at."""
        for block in itertools.islice(reach.done, first, None):
            if block.files and block.unit.top not in reach.standard:
                for text in block.files:
                    reach.named_data.update((path, block.unit) for path in self._named_by(text))
        for text in texts:
            reach.named_data.update((path, unit) for path in self._named_by(text) for unit in mains)
        found: dict[bytes, set[Unit]] = {}
        for path, unit in reach.named_data:
            found.setdefault(path, set()).add(unit)
        return found

    def _named_by(self, text: str) -> tuple[bytes, ...]:
        known = self._known.get(text)
        if known is None:
            if self._index is None:
                self._index = _Index(self._tree, self.paths(), self._common)
            known = self._known[text] = self._index.find(text)
        return known


class _Readers:
    """Which reached modules can read a data file without naming it."""

    def __init__(
        self,
        reach: Reach,
        attribution: Attribution,
        common_directories: frozenset[bytes],
        aliases: Mapping[bytes, list[bytes]],
        working: Iterable[bytes],
        mains: Iterable[Unit],
    ) -> None:
        self._claims, self._owners = attribution.claims, attribution.owners
        self._aliases = aliases
        self._by_owner: dict[int, set[Unit]] = {}
        self._below: dict[bytes, set[Unit]] = {}
        self._beside: dict[bytes, set[Unit]] = {}
        self._sites = frozenset(reach.graph.resolver.search.directories)
        search = reach.graph.resolver.search
        stdlib = search.environment.stdlib
        self._common = common_directories | {*search.sites, *([] if stdlib is None else [stdlib])}
        nobodys: set[Unit] = set(mains)
        for unit in reach.level:
            if unit.top in reach.standard:
                continue
            for portion in unit.found.portions:
                self._below.setdefault(portion, set()).add(unit)
            if unit.path is None:
                continue
            for claim in self._claims.get(unit.path, ()):
                if self._owners[claim.owner].kind not in ("unowned", "stdlib"):
                    self._by_owner.setdefault(claim.owner, set()).add(unit)
            if _of_nobody(attribution, unit.path):
                nobodys.add(unit)
                self._at(unit.path.rpartition(b"/")[0], {unit})
        for directory in working:
            self._at(directory, nobodys)

    def _at(self, directory: bytes, units: set[Unit]) -> None:
        table = self._beside if not directory or directory in self._common else self._below
        table.setdefault(directory, set()).update(units)

    def of(self, path: bytes) -> set[Unit]:
        """Return who can read this file."""
        found: set[Unit] = set()
        for claim in self._claims.get(path, ()):
            found |= self._by_owner.get(claim.owner, set())
        found |= self._around(path)
        directory = path.rpartition(b"/")[0]
        while directory:
            for link in self._aliases.get(directory, ()):
                found |= self._around(link + path[len(directory) :])
            directory = directory.rpartition(b"/")[0]
        return found

    def _around(self, path: bytes) -> set[Unit]:
        directory = path.rpartition(b"/")[0]
        found = set(self._beside.get(directory, ()))
        while directory:
            found |= self._below.get(directory, set())
            if directory in self._sites:
                break
            directory = directory.rpartition(b"/")[0]
        return found


class _Index:
    """Data files by what a string can call them; the rules are those of ``named.Names``."""

    def __init__(self, tree: Tree, paths: Iterable[bytes], common_directories: frozenset[bytes]) -> None:
        self._tree, self._common = tree, common_directories
        self._names = {each.encode() for each in common().common_names}
        self._exact: dict[bytes, list[bytes]] = {}
        self._above: dict[bytes, list[bytes]] = {}
        self._last: dict[bytes, list[bytes]] = {}
        for path in paths:
            parts = path.split(b"/")
            self._exact.setdefault(b"/" + path, []).append(path)
            for start in range(1, len(parts) - 1):
                self._exact.setdefault(b"/".join(parts[start:]), []).append(path)
            self._last.setdefault(parts[-1], []).append(path)
            directory = path.rpartition(b"/")[0]
            while directory and directory not in common_directories:
                self._above.setdefault(directory, []).append(path)
                directory = directory.rpartition(b"/")[0]

    def find(self, text: str) -> tuple[bytes, ...]:
        """Return the data files that a string names."""
        names, patterns = tokens_of(text)
        found: dict[bytes, None] = {}
        for name in names:
            token = name.encode("utf-8", "surrogateescape")
            found.update(dict.fromkeys(self._exact.get(token, ())))
            if b"/" not in token and token not in self._names:
                found.update(dict.fromkeys(self._last.get(token, ())))
            elif token.startswith(b"/"):
                canonical = self._tree.resolve(token)
                for each in {token.strip(b"/"), canonical or b""}:
                    found.update(dict.fromkeys(self._above.get(each, ())))
                if canonical:
                    found.update(dict.fromkeys(self._exact.get(b"/" + canonical, ())))
        for pattern in patterns:
            found.update(dict.fromkeys(self._by_pattern(pattern)))
        return tuple(found)

    def _by_pattern(self, pattern: str) -> list[bytes]:
        tail = pattern.rstrip("/").rpartition("/")[2]
        pieces = [piece.encode("utf-8", "surrogateescape") for piece in tail.split(HOLE)]
        if len(pieces) == 1:
            candidates = self._last.get(pieces[0], ())
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


def words_of(data: bytes) -> tuple[frozenset[str], bool]:
    """Return the words of a file that could be module names, dotted ones with what follows a colon too, and whether it
    is a pickle. In binary data a length or an operation can look like a letter of the name: both readings count."""
    pickle = _pickle(data)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = "\0"
    if "\0" in text:
        return frozenset(_binary(data) | (pickle or set())), pickle is not None
    words = _words(text) | (pickle or set())
    if "\\" in text:
        words |= _words(_ESCAPED.sub(_character, text))
    if "&" in text:
        words |= _words(html.unescape(text))
    return frozenset(words), pickle is not None


def _pickle(data: bytes) -> set[str] | None:
    """Return the words of the strings and globals of pickles, one behind the other; None where it is none. Nothing is
    unpickled: the operations are read."""
    words: set[str] = set()
    stream = io.BytesIO(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in strings
            while stream.tell() < len(data):
                for _, argument, _ in pickletools.genops(stream):
                    if isinstance(argument, str):
                        words |= _words(argument)
    except (ValueError, OverflowError, struct.error):
        return words or None if data.startswith(b"\x80") else None
    return words


def _words(text: str) -> set[str]:
    words = {*_WORDS.findall(text), *_WITH_ATTRIBUTE.findall(text)}
    words.update(word.replace("-", "_") for word in _HYPHENED.findall(text))  # as distributions spell it
    return words


def _character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2] or match[3], 16)
    return chr(code) if code <= sys.maxunicode else match[0]


def _binary(data: bytes) -> set[str]:
    words: set[str] = set()
    for run in _RUNS.findall(data):
        word = run.decode("ascii").rstrip(".:")
        words.update((word, word[1:], word[:-1], word[1:-1]))
    return {word for word in words if DOTTED.fullmatch(word)}


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


def _reader(reach: Reach, readers: set[Unit]) -> tuple[Unit, int | None, str | None]:
    """Who is said to read a file: the first that imports by computed name, else the first."""
    uses = [(unit.name, use.line, use.function or "", unit) for unit, use in reach.unbounded if unit in readers]
    if uses:
        _, line, function, unit = min(uses, key=lambda each: each[:3])
        return unit, line, function or None
    return min(readers, key=lambda unit: unit.name), None, None
