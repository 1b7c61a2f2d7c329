"""What every role of one image shares, and the files that a role loads apart from modules."""

from __future__ import annotations

from collections.abc import Sequence

from imgdiff.engines import PathRules
from imgdiff.model import (
    Attribution,
    FactSource,
    Hop,
    Resolved,
    Tree,
)
from imgdiff.trace.blocks import Block, Unit
from imgdiff.trace.named import Names


class Loaded:
    """A file that a role loads apart from modules: how surely, and how it comes to that (``by`` a path or module)."""

    __slots__ = ("by", "hop", "level", "why")

    def __init__(self, level: int, hop: Hop, by: bytes | Unit | None, why: str | None = None) -> None:
        self.level, self.hop, self.by, self.why = level, hop, by, why


class World:
    """What every role of one image shares."""

    def __init__(
        self,
        tree: Tree,
        attribution: Attribution,
        facts: FactSource,
        outside: PathRules,
        read_at_run_time: PathRules,
        library_directories: frozenset[bytes],
        listed: tuple[bytes, ...],
        working: frozenset[bytes] = frozenset(),
    ) -> None:
        self.tree, self.attribution, self.facts = tree, attribution, facts
        self.outside, self.read_at_run_time = outside, read_at_run_time
        self.library_directories = library_directories
        self.listed = listed
        self.working = working  # working directories of the launches
        self.names_by_first: dict[bytes, list[bytes]] = {}
        for name, first in tree.hardlinks.items():
            self.names_by_first.setdefault(first, []).append(name)
        self.naming: list[tuple[frozenset[Block], frozenset[bytes]]] = []  # of each role: blocks and files that name
        self.shared_names: tuple[Names, frozenset[Block], frozenset[bytes]] | None = None
        self._code: dict[bytes, bool] = {}
        self._shared_objects: list[bytes] | None = None

    def links(self) -> list[tuple[str, bytes]]:
        """Return the absolute targets of the image's links, and where each link stands."""
        return [
            (entry.link_target.decode("utf-8", "surrogateescape"), path)
            for path, entry in sorted(self.tree.entries.items())
            if entry.type == "symlink" and entry.link_target and entry.link_target.startswith(b"/")
            if self.outside.match(path) is None
        ]

    def shared_objects(self) -> Sequence[bytes]:
        """Return the paths of all files and links that are shared objects by their name."""
        if self._shared_objects is None:
            entries = self.tree.entries.items()
            self._shared_objects = [
                path for path, entry in entries if entry.type in ("file", "symlink") and is_shared_object(path)
            ]
        return self._shared_objects

    def is_code(self, path: bytes) -> bool:
        """Tell whether a file is what a loader executes: a module, a shared object or program, a script."""
        known = self._code.get(path)
        if known is None:
            known = self._code[path] = self._is_code(path)
        return known

    def _is_code(self, path: bytes) -> bool:
        name = path.rpartition(b"/")[2]
        if name.endswith((b".py", b".pyc", b".pyo")) or is_shared_object(path):
            return True
        if self.facts.elf(path) is not None:
            return True
        entry = self.tree.lookup(path)
        if entry is None or not entry.mode & 0o111:
            return False
        text = self.facts.text(path)
        return text is not None and text.startswith(b"#!")


def is_shared_object(path: bytes) -> bool:
    """Tell by its name whether a file is a shared object (``x.so``, ``x.so.1.2``)."""
    name = path.rpartition(b"/")[2]
    stem, found, version = name.rpartition(b".so")
    return bool(found and stem) and all(part.isdigit() for part in version.strip(b".").split(b".") if part)


def module_file(path: bytes) -> bytes:
    """Return the source that a ``.pyc`` belongs to, else the path itself (PEP 3147)."""
    directory, _, name = path.rpartition(b"/")
    if not name.endswith(b".pyc"):
        return path
    parent, _, last = directory.rpartition(b"/")
    prefix = directory + b"/" if directory else b""
    if last == b"__pycache__":
        prefix = parent + b"/" if parent else b""
        return prefix + name.partition(b".")[0] + b".py"
    return prefix + name[:-1]


def resolved(tree: Tree, attribution: Attribution, path: bytes) -> Resolved:
    """Return what stands at a canonical path, with its digest and its place within its first owner."""
    entry = tree.get(path)
    claims = attribution.claims.get(path, ())
    if not claims:
        return Resolved(path, None if entry is None else entry.digest)
    claim = min(claims, key=lambda each: (attribution.owners[each.owner].name, each.relative))
    owner = attribution.owners[claim.owner]
    return Resolved(path, None if entry is None else entry.digest, (owner.kind, owner.name), claim.relative)


def show(path: bytes) -> str:
    """Return a path as the container sees it, for a sentence."""
    return "/" + path.decode("utf-8", "backslashreplace")
