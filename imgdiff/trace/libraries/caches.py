"""The caches of the dynamic loader that the processes of an image can meet."""

from __future__ import annotations

from collections.abc import Iterator

from imgdiff.kinds.ld_cache import CacheFormatError
from imgdiff.model import Blindspot, FactSource, Tree
from imgdiff.trace.libraries import ld_cache
from imgdiff.trace.libraries.ld_cache import Cache, cpu_directories


class Caches:
    """The stored loader's cache of one image and the one that ldconfig would make. Resolvers of an image share it."""

    def __init__(self, tree: Tree, facts: FactSource) -> None:
        self._tree, self._facts = tree, facts
        self._rebuilt: dict[tuple[bytes, ...], Cache] = {}
        self._variants: dict[bytes, list[tuple[bytes, bytes]]] = {}
        self._files: dict[bytes, list[bytes]] | None = None
        self.blindspots: tuple[Blindspot, ...] = ()
        self.stored: Cache | None = None
        self.absent = tree.lookup(ld_cache.CACHE_PATH) is None
        if self.absent:
            return
        data = facts.text(ld_cache.CACHE_PATH)
        reason = "its content was not kept"
        if data is not None:
            try:
                self.stored = ld_cache.parse(data)
            except CacheFormatError as error:
                reason = str(error)
        if self.stored is None:
            text = f"The loader's cache can't be read: {reason}. Libraries were resolved as ldconfig would make it."
            self.blindspots = (Blindspot("ld.so.cache", text, path=ld_cache.CACHE_PATH),)

    def worlds(self, trusted: tuple[bytes, ...]) -> Iterator[tuple[Cache, str]]:
        """Yield the caches that a process can meet, each with words for how a file is found: the stored one and the
        rebuilt one; where none is stored the rebuilt one and none at all."""
        if self.stored is not None:
            yield self.stored, "ld.so.cache"
        yield self.rebuilt(trusted), "ld.so.cache as ldconfig makes it"
        if self.absent:
            yield Cache(()), ""

    def rebuilt(self, trusted: tuple[bytes, ...]) -> Cache:
        """Return the cache as ldconfig would make it, with these directories of the loader's own."""
        if trusted not in self._rebuilt:
            self._rebuilt[trusted] = ld_cache.rebuild(self._tree, self._facts, trusted)
        return self._rebuilt[trusted]

    def files(self, name: bytes) -> list[bytes]:
        """Return the files of a library's name, wherever they lie, sorted."""
        if self._files is None:
            self._files = {}
            for path, entry in sorted(self._tree.entries.items()):
                if b".so" in path and entry.type in ("file", "symlink"):
                    self._files.setdefault(path.rpartition(b"/")[2], []).append(path)
        return self._files.get(name, [])

    def variants(self, canonical: bytes) -> list[tuple[bytes, bytes]]:
        """Return the directories for certain CPUs below a library directory, as (relative, canonical) paths."""
        if canonical not in self._variants:
            self._variants[canonical] = list(cpu_directories(self._tree, canonical))
        return self._variants[canonical]
