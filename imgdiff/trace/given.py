"""What the command line and ENV of the image name: modules to import, and groups of entry points to load.

A name that is given only when a container is started is not known. One that stands in the image's own command line or
ENV is: where reached code imports by computed name, it counts as a string of that code.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping

from imgdiff.model import HOLE, Attribution
from imgdiff.trace.blocks import Block, Unit
from imgdiff.trace.closure import Reach

SHELL_CODE = "the shell code of the entry"
_SPLIT = re.compile(r"[\s,;:=|@\"'()\[\]{}]+")
_NAME = re.compile(r"\.*([^\W\d][\w-]*(?:\.[^\W\d][\w-]*)*)")
_TAIL = re.compile(rf"{HOLE}((?:\.[^\W\d]\w*)+)")
_SCRIPTS = frozenset({"console_scripts", "gui_scripts"})
# What defines entry points reads all of them for others.
_DEFINES = frozenset({"importlib", "importlib_metadata", "pkg_resources", "setuptools", "pip", "stevedore"})
_ASK = frozenset({"entry_points", "iter_entry_points"})
_CHOOSE = frozenset({"select", "get", "groups", "get_entry_map", "get_entry_info"})


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


# Entry points --------------------------------------------------------------------------------------------------------


def groups_of(attribution: Attribution) -> frozenset[str]:
    """Return the groups of all entry points of an image."""
    return frozenset(group for each in attribution.distributions for group, _, _ in each.entry_points) - _SCRIPTS


def said(reach: Reach, first: int, groups: frozenset[str]) -> None:
    """Note what reached code puts behind names of packages, and which groups strings of it name. Code that goes through
    all entry points and loads what it finds asks for every group. ``first``: the blocks before it were looked at."""
    for block in itertools.islice(reach.done, first, None):
        reach.tails.update(_tails_of(block))
        named = groups & (block.words | block.texts)
        reach.said_groups |= named
        if not named and block.unit.top not in _DEFINES and block.unit.top not in reach.standard and _asks_all(block):
            reach.every_group |= groups


def _asks_all(block: Block) -> bool:
    if _ASK.isdisjoint(block.refs) or not _CHOOSE.isdisjoint(block.refs):
        return False
    loads = "load" in block.refs or any(use.kind == "import" for use in block.calls)
    asked = [call for scope in block.scopes for call in scope.calls if call.callee.rpartition(".")[2] in _ASK]
    if asked:
        return loads and any(not call.arguments and not call.keywords for call in asked)
    return loads and "distributions" in block.refs


def given_groups(words: Iterable[str], groups: Mapping[str, str]) -> set[str]:
    """Return the groups that data, the command line or ENV name; ``groups`` by their name with ``_`` for ``-``."""
    return {groups[word] for word in words if word in groups}
