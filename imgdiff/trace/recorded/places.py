"""Recorded names as one image has them: through its own links, to canonical paths."""

from __future__ import annotations

import msgspec

from imgdiff.model import MAX_LINKS, RecordedProcess, Tree
from imgdiff.trace.paths import module_file

_KERNEL = (b"proc", b"sys", b"dev")
_MEMORY = b"dev/shm/"  # files as any others, in memory


class Found(msgspec.Struct, frozen=True):
    """Where a recorded name leads: the canonical path, or where it would stand (``there`` False), and the links that
    it goes through."""

    path: bytes
    there: bool
    links: tuple[bytes, ...] = ()


class Places:
    """The names of one image."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._known: dict[bytes, Found] = {}

    def find(self, path: bytes, cwd: bytes) -> Found | None:
        """Return where a name leads for a process with this working directory; None for what the kernel makes."""
        full = path if path.startswith(b"/") else cwd.rstrip(b"/") + b"/" + path
        known = self._known.get(full)
        if known is None:
            known = self._known[full] = self._walk(full)
        return None if kernels(known.path) else known

    def _walk(self, full: bytes) -> Found:
        """Follow links as path_resolution(7), and go on by name alone behind what is not there."""
        links: dict[bytes, None] = {}
        here = b""
        there = True
        budget = MAX_LINKS
        waiting = [part for part in reversed(full.split(b"/")) if part not in (b"", b".")]
        while waiting:
            part = waiting.pop()
            if part == b"..":
                here = here.rpartition(b"/")[0]
                continue
            here = here + b"/" + part if here else part
            entry = self.tree.get(here) if there else None
            if entry is None:
                there = False
            elif entry.type == "symlink" and entry.link_target:
                links[here] = None
                budget -= 1
                if budget < 0:
                    there = False
                    continue
                target = entry.link_target
                here = b"" if target.startswith(b"/") else here.rpartition(b"/")[0]
                waiting += [each for each in reversed(target.split(b"/")) if each not in (b"", b".")]
        return Found(here, there, tuple(links))

    def names(self, path: bytes) -> list[bytes]:
        """Return a path and the other names of its file (hard links)."""
        first = self.tree.hardlinks.get(path)
        if first is None:
            return [path]
        if not hasattr(self, "_groups"):
            self._groups: dict[bytes, list[bytes]] = {}
            for name, group in self.tree.hardlinks.items():
                self._groups.setdefault(group, []).append(name)
        return list(dict.fromkeys((path, *self._groups.get(first, ()))))

    def called(self, path: bytes) -> set[bytes]:
        """Return the file names by which a file can be had: its own, its hard links', and those of links to it."""
        if not hasattr(self, "_links"):
            self._links: dict[bytes, set[bytes]] = {}
            for name, entry in self.tree.entries.items():
                end = self.tree.resolve(name) if entry.type == "symlink" else None
                if end is not None:
                    self._links.setdefault(end, set()).add(name.rpartition(b"/")[2])
        names = self.names(path)
        found = {name.rpartition(b"/")[2] for name in names}
        return found.union(*(self._links.get(name, ()) for name in names))


def kernels(path: bytes) -> bool:
    """Tell whether the kernel makes what lies at a canonical path."""
    return path.split(b"/", 1)[0] in _KERNEL and not path.startswith(_MEMORY)


def is_module(path: bytes) -> bool:
    """Tell by its name whether a file is a Python source or bytecode."""
    return path.endswith((b".py", b".pyc", b".pyo", b".pyw"))


def module_key(path: bytes) -> bytes:
    """Return what a module's source and its bytecode have in common."""
    source = module_file(path)
    return source[:-1] if source.endswith((b".pyo", b".pyw")) else source


def recorders(process: RecordedProcess, path: bytes, tree: Tree) -> bool:
    """Tell whether a path is the recorder's own: it lies in a directory of its own that the image does not have."""
    own = (process.recorder or b"").strip(b"/")
    return bool(own) and path.strip(b"/").startswith(own + b"/") and own not in tree
