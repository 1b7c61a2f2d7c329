"""What the command line and ENV of the image name: modules to import.

A name that is given only when a container is started is not known. One that stands in the image's own command line or
ENV is: where reached code imports by computed name, it counts as a string of that code.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable

from imgdiff.model import HOLE
from imgdiff.trace.closure.reach import Reach
from imgdiff.trace.graph.blocks import Block, Unit

SHELL_CODE = "the shell code of the entry"
_SPLIT = re.compile(r"[\s,;:=|@\"'()\[\]{}]+")
_NAME = re.compile(r"\.*([^\W\d][\w-]*(?:\.[^\W\d][\w-]*)*)")
_TAIL = re.compile(rf"{HOLE}((?:\.[^\W\d]\w*)+)")


def names_given(text: str) -> list[str]:
    """Return the words of a command line or an ENV value that could be module names, as imports spell them."""
    found: list[str] = []
    for piece in _SPLIT.split(text):
        match = _NAME.fullmatch(piece)
        if match is not None:
            found.append(match[1].replace("-", "_"))
    return list(dict.fromkeys(found))


def feed(reach: Reach, texts: Iterable[tuple[str, object]], mains: Iterable[Unit], commands: Collection[str]) -> None:
    """Add to a closure what its command line and ENV name, where reached code imports by computed name: in full, and
    within the packages that do so relatively or by the last part. ``commands`` are words of the command line that the
    profile knows: they choose code by no name."""
    importing = [(unit, use) for unit, use in reach.unbounded if unit.top not in reach.standard]
    if not importing:
        return
    unit, use = min(importing, key=lambda each: (each[0] not in mains, each[0].name, each[1].line))
    for text, source in texts:
        for name in names_given(text):
            if source == SHELL_CODE and "." not in name:
                continue  # most words of a shell are no values
            for target in _targets(reach, name, tails=name not in commands):
                if (b"", target) not in reach.from_data:
                    reach.from_data.add((b"", target))
                    where = f"{use.function or '<module>'}, given {source}"
                    reach.extra.append((unit, (target, "string", use.line, where)))
                    reach.add(target)


def _targets(reach: Reach, name: str, *, tails: bool) -> Iterable[Unit]:
    graph = reach.graph
    found = dict.fromkeys(graph.by_string(f"{name}:", ""))
    for top in sorted(reach.dynamic) if tails else ():
        if top not in reach.standard:
            names = (graph.unit(each) for each in graph.lasts(top).get(name, ()))
            found.update((unit, None) for unit in names if unit is not None)
    for unit in list(found):
        found.update((child, None) for child in behind(reach, unit))
    return found


# Tails: f"{app}.tasks" -----------------------------------------------------------------------------------------------


def behind(reach: Reach, package: Unit) -> Iterable[Unit]:
    """Yield the modules of a package that code asks for behind the name of any package."""
    graph = reach.graph
    for name in graph.below(package.name) if package.found.portions else ():
        if name[len(package.name) :] in reach.tails:
            unit = graph.unit(name)
            if unit is not None:
                yield unit


def _tails_of(block: Block) -> Iterable[str]:
    """Yield what code puts behind the name of a package that it is given."""
    for pattern in block.patterns:
        match = _TAIL.fullmatch(pattern)
        if match is not None:
            yield match[1]


def note_tails(reach: Reach, first: int) -> None:
    """Note what reached code puts behind names of packages. ``first``: the blocks before it were looked at."""
    for block in itertools.islice(reach.done, first, None):
        reach.tails.update(_tails_of(block))
