"""What every role of one image shares."""

from __future__ import annotations

from collections.abc import Sequence

from imgdiff.engines import PathRules
from imgdiff.model import Attribution, FactSource, Tree
from imgdiff.trace.graph.blocks import Block
from imgdiff.trace.named import Names
from imgdiff.trace.paths import is_shared_object

_MAX_NAMES = 500  # of one file, through links


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
        self._links_to: dict[bytes, list[bytes]] | None = None

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

    def led_to(self, path: bytes) -> list[bytes] | None:
        """Return the other paths that lead to a path through links: of the file itself, or of a directory above it, at
        any depth; a link to a directory above itself is gone through once. None where there are too many."""
        if self._links_to is None:
            self._links_to = {}
            for link, entry in self.tree.entries.items():
                end = self.tree.resolve(link) if entry.type == "symlink" else None
                if end and end != link:
                    self._links_to.setdefault(end, []).append(link)
        found: dict[bytes, bool] = {path: False}  # whether such a link was gone through
        waiting = [path]
        while waiting:
            name = waiting.pop()
            here = name
            while here:
                for link in self._links_to.get(here, ()):
                    other = link + name[len(here) :]
                    upwards = link.startswith(here + b"/")
                    if other in found or (upwards and found[name]):
                        continue
                    if len(found) > _MAX_NAMES:
                        return None
                    found[other] = upwards or found[name]
                    waiting.append(other)
                here = here.rpartition(b"/")[0]
        return sorted(found.keys() - {path})

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
