"""The edges of a graph that the user's word leaves out; ``narrowing`` says which."""

from __future__ import annotations

from collections.abc import Callable, Collection

_NOTHING: frozenset[str] = frozenset()


class Narrowing:
    """The edges of one graph that are left out."""

    def __init__(self) -> None:
        self._by: dict[str, set[str]] = {}  # source -> targets
        self._words: dict[str, str | None] = {}  # target -> the package whose own words count all the same
        self.notes: list[str] = []
        self.dead: Callable[[str, bytes | None, Collection[str]], frozenset[int]] | None = None
        """Lines of a module (by name and path, with the names that its code loads) that do not run."""

    def __bool__(self) -> bool:
        return bool(self._words) or self.dead is not None

    def add(self, sources: Collection[str], targets: Collection[str], spared: str | None) -> None:
        """Leave out these modules."""
        for source in sources:
            self._by.setdefault(source, set()).update(targets)
        self._words.update(dict.fromkeys(targets, spared))

    def edge(self, source: str, target: str) -> bool:
        """Tell whether an edge over a name that stands in ``source``, or is computed there, is left out."""
        return target in self._by.get(source, _NOTHING)

    def word(self, source: str, target: str) -> bool:
        """Tell whether a bare word of ``source`` does not name ``target``."""
        if target not in self._words:
            return False
        spared = self._words[target]
        return spared is None or self.edge(source, target) or not source.startswith(spared)
