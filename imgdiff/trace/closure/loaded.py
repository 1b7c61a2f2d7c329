"""Files that a role loads apart from modules."""

from __future__ import annotations

from imgdiff.model import Hop
from imgdiff.trace.graph.blocks import Unit


class Loaded:
    """A file that a role loads apart from modules: how surely, and how it comes to that (``by`` a path or module)."""

    __slots__ = ("by", "hop", "level", "why")

    def __init__(self, level: int, hop: Hop, by: bytes | Unit | None, why: str | None = None) -> None:
        self.level, self.hop, self.by, self.why = level, hop, by, why
