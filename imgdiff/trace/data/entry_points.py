"""Entry points: which of them reached code asks for.

A call that folds to a group asks for it, and where it gives a name that folds, too, for that one alone
(``entry_points(group="g", name="n")``): any of the group, where only a run can tell the name. A call with a computed
group asks for the groups that strings name. A group that its module writes down only to ask for one of its entry points
is said to nobody else.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable

from imgdiff.model import HOLE, Attribution, Pattern
from imgdiff.trace.closure.reach import Reach
from imgdiff.trace.graph.blocks import Block, Unit, fill
from imgdiff.trace.graph.calls import SELECT, Use
from imgdiff.trace.graph.narrowing import parsed

_SCRIPTS = frozenset({"console_scripts", "gui_scripts"})
# What defines entry points reads all of them for others.
_DEFINES = frozenset({"importlib", "importlib_metadata", "pkg_resources", "setuptools", "pip", "stevedore"})
_ASK = frozenset({"entry_points", "iter_entry_points"})
_CHOOSE = frozenset({"select", "get", "groups", "get_entry_map", "get_entry_info"})
_ONE_BY_ONE = frozenset({"distributions", "distribution", "from_name"})


class EntryPoints:
    """The groups of all entry points of one image, and what strings say of them."""

    def __init__(self, attribution: Attribution) -> None:
        groups = {group for each in attribution.distributions for group, _, _ in each.entry_points}
        self.groups = frozenset(groups) - _SCRIPTS
        self._by_word = {group.replace("-", "_"): group for group in self.groups}
        self._spent: dict[Unit, frozenset[str]] = {}

    def given(self, reach: Reach, words: Iterable[str]) -> None:
        """Note what data, the command line or ENV name; ``words`` as imports spell them."""
        reach.said_groups.update(self._by_word[word] for word in words if word in self._by_word)

    def said(self, reach: Reach, first: int) -> None:
        """Note which groups strings of reached code name. Code that goes through all entry points and loads what it
        finds asks for every group. ``first``: the blocks before it were looked at."""
        for block in itertools.islice(reach.done, first, None):
            named = self.groups & (block.words | block.texts)
            if named:
                reach.said_groups |= named - self._only_asked(reach, block)
            if block.unit.top in _DEFINES or block.unit.top in reach.standard:
                continue
            if _reads_itself(block):
                reach.every_group |= named or self.groups
            elif not named and _asks_all(block):
                reach.every_group |= self.groups

    def loaded(self, reach: Reach, groups: set[str]) -> Callable[[str, str], bool]:
        """Return what tells whether reached code loads an entry point, by group and name; ``groups`` are the
        profile's."""
        uses = list(dict.fromkeys((unit, use) for unit, use in reach.uses if use.kind == "entry-points"))

        def loads(group: str, name: str) -> bool:
            if group in groups or group in reach.every_group:
                return True
            return any(self._asks(reach, unit, use, group) and _fits(unit, use, name) for unit, use in uses)

        return loads

    def _asks(self, reach: Reach, unit: Unit, use: Use, group: str) -> bool:
        asked = HOLE if use.name is None else fill(use.name, unit)
        if HOLE not in asked:
            return asked == group
        return group in reach.said_groups and group not in _SCRIPTS and _matches(asked, group)

    # Groups that stand in no other place ----------------------------------------------------------------------------

    def _only_asked(self, reach: Reach, block: Block) -> frozenset[str]:
        """The groups that a module writes down only as what it asks for, if a call of this block does."""
        if not any(use.kind == "entry-points" and use.entry is not None for use in block.calls):
            return frozenset()
        unit = block.unit
        known = self._spent.get(unit)
        if known is None:
            text = None if unit.path is None or unit.kind != "source" else reach.graph.facts.text(unit.path)
            module = None if text is None else parsed(text)
            known = self._spent[unit] = frozenset() if module is None else _spent(module, unit)
        return known


def _fits(unit: Unit, use: Use, name: str) -> bool:
    """Tell whether a call that asks for a group can mean this entry point of it."""
    asked = HOLE if use.entry is None else fill(use.entry, unit)
    return not asked.strip(HOLE) or _matches(asked, name)


def _spent(module: ast.Module, unit: Unit) -> frozenset[str]:
    """The strings that stand in a module only as the group in calls that give a name too; none where the calls are not
    those that the facts have, which were then made from another text."""
    asked: dict[str, int] = {}
    lines: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _last(node.func) in SELECT:
            groups = [each.value for each in node.keywords if each.arg == "group"]
            if groups and any(each.arg == "name" for each in node.keywords):
                lines.add(_line(node))
                if isinstance(groups[0], ast.Constant) and isinstance(groups[0].value, str):
                    asked[groups[0].value] = asked.get(groups[0].value, 0) + 1
    scopes = unit.facts.scopes if unit.facts is not None else ()
    told = {call.line for scope in scopes for call in scope.calls if call.callee.rpartition(".")[2] in SELECT}
    if not lines <= told:
        return frozenset()
    every: dict[str, int] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in asked:
            every[node.value] = every.get(node.value, 0) + 1
    return frozenset(group for group, count in asked.items() if every[group] == count)


def _line(node: ast.Call) -> int:
    """The line of a call as the facts have it."""
    return (node.func.end_lineno if isinstance(node.func, ast.Attribute) else None) or node.lineno


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _matches(pattern: Pattern, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split(HOLE))), text) is not None


def _reads_itself(block: Block) -> bool:
    """Tell whether code reads the files of entry points and imports what it finds."""
    return any("entry_points.txt" in text for text in (*block.texts, *block.patterns)) and any(
        use.kind == "import" for each in block.unit.blocks() for use in each.calls
    )


def _asks_all(block: Block) -> bool:
    if _ASK.isdisjoint(block.refs) or not _CHOOSE.isdisjoint(block.refs):
        return False
    loads = "load" in block.refs or any(use.kind == "import" for use in block.calls)
    asked = [call for scope in block.scopes for call in scope.calls if call.callee.rpartition(".")[2] in _ASK]
    if asked:
        return loads and any(not call.arguments and not call.keywords for call in asked)
    return loads and not _ONE_BY_ONE.isdisjoint(block.refs)
