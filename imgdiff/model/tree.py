"""The merged file system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from imgdiff.model.blindspots import Blindspot
from imgdiff.model.layers import FileEntry, PycStamp

MAX_LINKS = 40  # as Linux: path_resolution(7)


class Tree:
    """The merged file system of an image: ``entries`` by path, and for each path the layer (0 = base) it came from.

    ``hardlinks`` maps each name of a file with several names to the group's first name (by bytes). ``origins`` has
    (layer, member name) where a file's content is not in its path's own layer under its own name; see :meth:`origin`.
    """

    __slots__ = ("_children", "_resolved", "blindspots", "entries", "hardlinks", "layers", "origins", "stamps")

    def __init__(
        self,
        entries: dict[bytes, FileEntry],
        layers: Mapping[bytes, int] | None = None,
        hardlinks: Mapping[bytes, bytes] | None = None,
        stamps: Mapping[bytes, PycStamp] | None = None,
        blindspots: tuple[Blindspot, ...] = (),
        origins: Mapping[bytes, tuple[int, bytes]] | None = None,
    ) -> None:
        self.entries = entries
        self.layers: Mapping[bytes, int] = layers or {}
        self.hardlinks: Mapping[bytes, bytes] = hardlinks or {}
        self.stamps: Mapping[bytes, PycStamp] = stamps or {}
        self.blindspots = blindspots
        self.origins: Mapping[bytes, tuple[int, bytes]] = origins or {}
        self._children: dict[bytes, list[bytes]] | None = None
        self._resolved: dict[bytes, bytes | None] = {b"": b""}

    def __contains__(self, path: bytes) -> bool:
        return path == b"" or path in self.entries

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, path: bytes) -> FileEntry | None:
        """Return the entry that stands at exactly this path (links are not followed)."""
        return self.entries.get(path)

    def origin(self, path: bytes) -> tuple[int, bytes]:
        """Return the layer that holds the content of the file at this path, and the name of the member there: another
        name than the path for a hard link, or where a parent was a link when the layer was applied. Where that layer
        holds several members of the name, the one with the entry's digest is meant."""
        return self.origins.get(path) or (self.layers.get(path, 0), path)

    def children(self, path: bytes) -> list[bytes]:
        """Return the names (not paths) in the directory at this path, sorted by bytes; empty if it is none."""
        if self._children is None:
            children: dict[bytes, list[bytes]] = {}
            for entry_path in self.entries:
                parent, _, name = entry_path.rpartition(b"/")
                children.setdefault(parent, []).append(name)
            for names in children.values():
                names.sort()
            self._children = children
        return self._children.get(path, [])

    def resolve(self, path: bytes, base: bytes = b"") -> bytes | None:
        """Return the canonical path that a process would reach under this name, or None if it dangles or loops.

        ``path`` may start with a slash; a relative one starts at the directory ``base``. Symlinks are followed
        everywhere, the last component too, inside the root (path_resolution(7)).
        """
        if path.startswith(b"/"):
            base = b""
        full = b"/".join(part for part in (base, path) if part)
        return self._walk(full, [MAX_LINKS])

    def _walk(self, path: bytes, budget: list[int]) -> bytes | None:
        known = self._resolved.get(path, b"?")
        if known != b"?":
            return known
        start = b""
        for name in path.split(b"/"):
            if name in (b"", b"."):
                continue
            if name == b"..":
                start = start.rpartition(b"/")[0]
                continue
            here = start + b"/" + name if start else name
            entry = self.entries.get(here)
            if entry is None:
                return None
            if entry.type == "symlink":
                budget[0] -= 1
                if budget[0] < 0 or not entry.link_target:
                    return None
                target = entry.link_target
                joined = target if target.startswith(b"/") else start + b"/" + target
                followed = self._walk(joined, budget)
                if followed is None:
                    return None
                start = followed
            else:
                start = here
        self._resolved[path] = start
        return start

    def lookup(self, path: bytes, base: bytes = b"") -> FileEntry | None:
        """Return the entry that a process would reach under this name, links followed; None for the root or nothing."""
        found = self.resolve(path, base)
        return None if found is None else self.entries.get(found)

    def is_dir(self, path: bytes, base: bytes = b"") -> bool:
        """Tell whether a process would find a directory under this name."""
        found = self.resolve(path, base)
        if found is None:
            return False
        return found == b"" or self.entries[found].type == "dir"

    def walk(self, path: bytes) -> Iterator[FileEntry]:
        """Yield every entry below the directory at this canonical path, depth first in the order of bytes."""
        stack = [path + b"/" + name if path else name for name in reversed(self.children(path))]
        while stack:
            here = stack.pop()
            entry = self.entries[here]
            yield entry
            if entry.type == "dir":
                stack.extend(here + b"/" + name for name in reversed(self.children(here)))
