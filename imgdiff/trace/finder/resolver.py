"""Which file a module name resolves to, as CPython finds it (importlib.machinery.PathFinder and FileFinder)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from imgdiff.model import Tree
from imgdiff.trace.finder.search_path import SearchPath
from imgdiff.trace.finder.suffixes import Suffixes

FoundKind = Literal["source", "bytecode", "extension", "namespace", "data"]  # data: no module, a step of a chain
# A hyphen keeps a name out of import statements, not out of __import__ (_sysconfigdata__linux_x86_64-linux-gnu).
_IDENTIFIER = re.compile(rb"[^\W\d][\w-]*", re.ASCII)
# Below the standard library they could be imported by a name that code computes, as ``site-packages.NAME``; nobody
# does, and that would make of every string that holds the word the name of all that is installed.
_NO_NAMES = frozenset({b"__pycache__", b"__init__", b"__main__", b"site-packages", b"dist-packages"})


class Found(msgspec.Struct, frozen=True):
    """What a module name resolves to. ``path`` is the canonical path of the file that runs (None for a namespace
    package), ``portions`` the canonical directories of a package."""

    name: str
    path: bytes | None
    kind: FoundKind
    portions: tuple[bytes, ...] = ()


class Resolver:
    """Resolves module names in one tree over one search path; remembers every answer."""

    def __init__(self, tree: Tree, search: SearchPath) -> None:
        self.tree, self.search = tree, search
        self._suffixes = Suffixes(tree, search.environment)
        self._first = frozenset(name for name, (_, first) in search.finders.items() if first)
        self._found: dict[str, Found | None] = {}
        self._names: dict[bytes, frozenset[bytes]] = {}
        self._extensions: dict[bytes, dict[bytes, bytes]] = {}
        self._extra: dict[str, tuple[bytes, ...]] = {}
        self._stems: frozenset[str] | None = None

    def find(self, name: str) -> Found | None:
        """Return what the module name resolves to, or None."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def widen(self, package: str, directories: tuple[bytes, ...]) -> None:
        """Let submodules of a package be found in further directories too (its code extends ``__path__``)."""
        known = self._extra.get(package, ())
        added = tuple(directory for directory in directories if directory not in known)
        if added:
            self._extra[package] = known + added
            prefix = package + "."
            for name in [each for each, found in self._found.items() if found is None and each.startswith(prefix)]:
                del self._found[name]

    def _find(self, name: str) -> Found | None:
        if name in self._first:
            found = self.mapped(name)
            if found is not None:
                return found
        parent, _, last = name.rpartition(".")
        if parent:
            package = self.find(parent)
            if package is None or not package.portions:
                return self.mapped(name)
            directories = package.portions + self._extra.get(parent, ())
        else:
            directories = self.search.directories
        return self.find_in(name, last, directories) or self.mapped(name)

    def find_in(self, name: str, last: str, directories: tuple[bytes, ...]) -> Found | None:
        """Return what ``last`` is in these directories, as the module ``name``; the first that has it wins."""
        try:
            key = last.encode()
        except UnicodeEncodeError:
            return None
        portions: list[bytes] = []
        for directory in directories:
            found = self._in_directory(name, key, directory)
            if found is None:
                continue
            if found.kind != "namespace":
                return found
            portions += found.portions
        return Found(name, None, "namespace", tuple(portions)) if portions else None

    def _in_directory(self, name: str, key: bytes, directory: bytes) -> Found | None:
        names = self.names(directory)
        prefix = directory + b"/" if directory else b""
        here = None
        if key in names:
            here = self.tree.resolve(prefix + key)
            entry = None if here is None else self.tree.get(here)
            if here is not None and entry is not None and entry.type == "dir":
                inside = self._file(name, b"__init__", here)
                if inside is not None:
                    return Found(name, inside.path, inside.kind, (here,))
            else:
                here = None
        module = self._file(name, key, directory)
        if module is not None:
            return module
        return None if here is None else Found(name, None, "namespace", (here,))

    def _file(self, name: str, stem: bytes, directory: bytes) -> Found | None:
        names = self.names(directory)
        prefix = directory + b"/" if directory else b""
        extension = self.extensions(directory).get(stem)
        if extension is not None:
            return self._regular(name, prefix + extension, "extension")
        if stem + b".py" in names and (found := self._regular(name, prefix + stem + b".py", "source")):
            return found
        if stem + b".pyc" in names:
            return self._regular(name, prefix + stem + b".pyc", "bytecode")
        return None

    def _regular(self, name: str, path: bytes, kind: FoundKind) -> Found | None:
        found = self.tree.resolve(path)
        entry = None if found is None else self.tree.get(found)
        return Found(name, found, kind) if entry is not None and entry.type == "file" else None

    def mapped(self, name: str) -> Found | None:
        """What an editable finder knows; most are asked last."""
        path = self.search.mapping.get(name)
        if path is None:
            return None
        entry = self.tree.get(path)
        if entry is None or entry.type != "dir":
            kind: FoundKind = "extension" if path.endswith(b".so") else "source"
            portions = (path.rpartition(b"/")[0],) if path.endswith(b"/__init__.py") else ()
            return Found(name, path, kind, portions)
        inside = self._file(name, b"__init__", path)
        if inside is None:
            return Found(name, None, "namespace", (path,))
        return Found(name, inside.path, inside.kind, (path,))

    def names(self, directory: bytes) -> frozenset[bytes]:
        """Return the names in a directory."""
        known = self._names.get(directory)
        if known is None:
            known = self._names[directory] = frozenset(self.tree.children(directory))
        return known

    def stems(self) -> frozenset[str]:
        """Return names of which every importable top-level name without a dot is one."""
        if self._stems is None:
            found = {name.partition(b".")[0] for each in self.search.directories for name in self.names(each)}
            self._stems = frozenset(stem.decode("utf-8", "surrogateescape") for stem in found).union(
                self.search.mapping
            )
        return self._stems

    def extensions(self, directory: bytes) -> dict[bytes, bytes]:
        """Return the extension modules in a directory that this interpreter can load: stem -> file name."""
        known = self._extensions.get(directory)
        if known is None:
            first: dict[bytes, tuple[int, int, bytes]] = {}
            for name in self.tree.children(directory):
                if name.endswith(b".so"):
                    stem = name.partition(b".")[0]
                    rank = self._suffixes.rank(name[len(stem) :])
                    if rank is not None:  # of two of one rank, the one with a platform is asked first
                        here = rank, -len(name), name
                        first[stem] = min(first.get(stem, here), here)
            known = self._extensions[directory] = {stem: name for stem, (_, _, name) in first.items()}
        return known

    def submodules(self, package: str) -> list[str]:
        """Return the full names of what lies directly in a package, sorted; private caches apart."""
        found = self.find(package)
        if found is None:
            return []
        names: set[str] = set()
        for directory in found.portions + self._extra.get(package, ()):
            names.update(self.importable(directory))
        return [f"{package}.{name}" for name in sorted(names) if self.find(f"{package}.{name}") is not None]

    def importable(self, directory: bytes) -> Iterator[str]:
        """Yield the names that something could import from a directory."""
        for name in self.names(directory):
            stem, dot, suffix = name.partition(b".")
            if _IDENTIFIER.fullmatch(stem) and stem not in _NO_NAMES:
                if not dot:
                    child = self.tree.get(directory + b"/" + name if directory else name)
                    if child is not None and child.type in ("dir", "symlink"):
                        yield stem.decode()
                elif suffix in (b"py", b"pyc") or suffix.endswith(b"so"):
                    yield stem.decode()

    def below(self, package: str) -> list[str]:
        """Return the full names of everything below a package, at any depth."""
        names: list[str] = []
        stack = [package]
        seen: set[bytes] = set()
        while stack:
            current = stack.pop()
            found = self.find(current)
            if found is None or not found.portions or found.portions[0] in seen:
                continue
            seen.add(found.portions[0])
            children = self.submodules(current)
            names += children
            stack += children
        return names

    def top_names(self) -> frozenset[str]:
        """Return every name that could be imported at the top level."""
        return frozenset(name for directory in self.search.directories for name in self.importable(directory)) | {
            name for name in self.search.mapping if "." not in name
        }

    def names_of(self, path: bytes) -> list[str]:
        """Return the module names that a file at this path has, or would have if it stood there."""
        stem = _module_stem(path)
        if stem is None:
            return []
        names = []
        for directory in (*self.search.directories, *self.search.nowhere):
            relative = _below(stem, directory)
            if relative:
                names.append(relative)
        for name, target in self.search.mapping.items():
            base = target[: -len(b"/__init__.py")] if target.endswith(b"/__init__.py") else target
            if stem == base or stem + b".py" == base:
                names.append(name)
            elif (relative := _below(stem, base)) is not None:
                names.append(f"{name}.{relative}")
        return list(dict.fromkeys(names))


def _below(stem: bytes, directory: bytes) -> str | None:
    prefix = directory + b"/" if directory else b""
    if not stem.startswith(prefix):
        return None
    parts = stem[len(prefix) :].split(b"/")
    return ".".join(part.decode() for part in parts) if all(_IDENTIFIER.fullmatch(part) for part in parts) else None


def _module_stem(path: bytes) -> bytes | None:
    """The path of a module without suffix: for a package its directory; None if Python would import no such file."""
    directory, _, name = path.rpartition(b"/")
    stem, dot, suffix = name.partition(b".")
    if not dot or not (suffix in (b"py", b"pyc") or suffix.endswith(b"so")):
        if (
            suffix.startswith((b"cpython-", b"pypy"))
            and suffix.endswith(b".pyc")
            and directory.endswith(b"__pycache__")
        ):
            directory = directory.rpartition(b"/")[0]
        else:
            return None
    if stem == b"__init__":
        return directory or None
    return directory + b"/" + stem if directory else stem
