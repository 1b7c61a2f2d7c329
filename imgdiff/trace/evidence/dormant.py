"""What could still be loaded if functions ran that nothing reached refers to."""

from __future__ import annotations

from imgdiff.trace.closure.reach import Reach, lazy_targets
from imgdiff.trace.evidence.reached import Origin
from imgdiff.trace.graph.blocks import Block, Target, Unit
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.graph.making import make


class Dormant:
    """The closure of a reach with every function of every module counted as reached."""

    def __init__(self, reach: Reach) -> None:
        self.came: dict[Unit, Origin] = {}
        self.blocks: list[Block] = []
        self.reach = reach
        graph = reach.graph
        wave = list(reach.level)
        while wave:
            graph.prepare(wave)
            following: dict[Unit, Origin] = {}
            for unit in sorted(wave, key=lambda each: each.name):
                for target in self._targets(graph, unit):
                    current: Unit | None = target[0]
                    while current is not None and current not in reach.level and current not in self.came:
                        if current not in following:
                            following[current] = (
                                unit,
                                target if current is target[0] else (current, "parent", None, None),
                            )
                        current = current.parent
            self.came.update(following)
            wave = list(following)

    def _targets(self, graph: Graph, unit: Unit) -> list[Target]:
        targets: list[Target] = []
        for block in unit.blocks():
            if block in self.reach.done:
                continue
            self.blocks.append(block)
            make(block, graph)
            targets += [
                (unit_, "dormant", line, function) for unit_, _, line, function in (*block.imports, *block.edges)
            ]
            for source, names, line, function in block.lazy_uses:
                graph.prepare([source])
                targets += [(each, "dormant", line, function) for each in lazy_targets(graph, source, names)]
        for name in unit.lazy:
            targets += [(each, "dormant", None, name) for each in lazy_targets(graph, unit, (name,))]
        return targets
