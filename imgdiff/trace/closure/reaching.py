"""What the rules of a closure ask of it, and what they tell it."""

from __future__ import annotations

from typing import Protocol

from imgdiff.model import Edge
from imgdiff.trace.graph.blocks import Block, Unit
from imgdiff.trace.graph.calls import Use
from imgdiff.trace.graph.graph import Graph


class Reaching(Protocol):
    """The reached part of one graph for one role, while it grows (see ``reach``)."""

    graph: Graph
    standard: frozenset[str]
    """Top-level names of the standard library."""
    level: dict[Unit, int]
    dynamic: dict[str, None]
    """Top-level packages whose reached code imports by computed name."""
    unbounded: list[tuple[Unit, Use]]
    """Those imports."""

    def run_block(self, block: Block) -> None:
        """Count code as referred to, and nothing else of its name."""

    def follow(
        self, source: Unit | None, name: str, edge: Edge, line: int | None = None, function: str | None = None
    ) -> None:
        """Count the module of this name as reached over an edge that no block has, if there is one."""

    def ask_lazy(self, unit: Unit, name: str) -> None:
        """Count a lazy attribute of a module as asked for."""

    def word(self, block: Block, name: str) -> None:
        """Count a module as named by a string of this code."""
