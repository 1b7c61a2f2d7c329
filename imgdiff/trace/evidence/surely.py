"""What must run when a role starts: reached from its roots over imports that stand under no condition."""

from __future__ import annotations

from collections.abc import Iterable

from imgdiff.trace.closure.reach import EAGER, Reach
from imgdiff.trace.graph.blocks import Block, Unit


def surely(reach: Reach, roots: Iterable[Unit]) -> frozenset[Unit]:
    """Return the modules of a closure that are eager over unconditional imports alone, with the packages above them.

    An import counts as conditional only where every import of its line is one (see ``model.Import``); what a module
    body takes from a lazy package, and what runs as a main module, counts as unconditional.
    """
    found: set[Unit] = set()
    waiting = [unit for unit in roots if reach.level.get(unit) == EAGER]
    while waiting:
        current: Unit | None = waiting.pop()
        while current is not None and current not in found:
            found.add(current)
            for block in (current.body, current.main if current in reach.mains else None):
                if block is not None:
                    waiting += _targets(reach, block)
            current = current.parent
    return frozenset(found)


def _targets(reach: Reach, block: Block) -> list[Unit]:
    conditional = _conditional_lines(block)
    targets = [unit for unit, _, line, _ in block.imports if line not in conditional]
    return targets + [unit for unit, line, _ in reach.eager_lazy(block) if line not in conditional]


def _conditional_lines(block: Block) -> set[int | None]:
    lines: dict[int | None, bool] = {}
    for scope in block.scopes:
        for each in scope.imports:
            lines[each.line] = lines.get(each.line, True) and each.conditional
    return {line for line, all_of_it in lines.items() if all_of_it}
