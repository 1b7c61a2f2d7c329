"""Entry points: which of them reached code asks for.

A call that folds to a group asks for it, and where it gives a name that folds, too, for that one alone
(``entry_points(group="g", name="n")``): any of the group, where only a run can tell the name. Where ENV alone can give
it (see ``from_env``), those that something in the image could put into ENV (see ``unsaid``); the rest is a caveat with
file and line, as for modules that are imported by such a name. A call with a computed group asks for the groups that
strings name. A group that its module writes down only to ask for one of its entry points is said to nobody else.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable

from imgdiff.model import HOLE, Attribution, Pattern
from imgdiff.trace.closure.reach import Reach
from imgdiff.trace.data.from_env import Told, last, line_of, only_reads, told_by_env
from imgdiff.trace.data.selecting import Names
from imgdiff.trace.data.unsaid import Unsaid, Wanted
from imgdiff.trace.graph.blocks import Block, Unit, fill
from imgdiff.trace.graph.calls import SELECT, Use
from imgdiff.trace.graph.narrowing import parsed

_SCRIPTS = frozenset({"console_scripts", "gui_scripts"})
# What defines entry points reads all of them for others.
_DEFINES = frozenset({"importlib", "importlib_metadata", "pkg_resources", "setuptools", "pip", "stevedore"})
_ASK = frozenset({"entry_points", "iter_entry_points"})
_CHOOSE = frozenset({"select", "get", "groups", "get_entry_map", "get_entry_info"})
_ONE_BY_ONE = frozenset({"distributions", "distribution", "from_name"})
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # names whose letters stand in all texts, data and libraries as they are

_Asked = tuple[Told, frozenset[bytes]]  # what ENV tells, and the files that do no more with the variable than read it


class EntryPoints:
    """The groups of all entry points of one image, and what strings say of them."""

    def __init__(self, attribution: Attribution) -> None:
        self._names: dict[str, set[str]] = {}
        for group, name, _ in (point for each in attribution.distributions for point in each.entry_points):
            self._names.setdefault(group, set()).add(name)
        self.groups = frozenset(self._names) - _SCRIPTS
        self._by_word = {group.replace("-", "_"): group for group in self.groups}
        self._spent: dict[Unit, frozenset[str]] = {}
        self._parsed: dict[Unit, ast.Module | None] = {}
        self._by_env: dict[Unit, dict[int, _Asked]] = {}
        self._wanted: dict[tuple[_Asked, str], Wanted] = {}
        self._unsaid: dict[tuple[int, int], tuple[Reach, Unsaid]] = {}
        self._on_the_way: list[str | None] = []

    def hear(self, texts: list[str | None]) -> None:
        """Take note of what shells read at their start, on the way to a program; None for what can't be read."""
        self._on_the_way = texts

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
        reach.by_env.clear()

        def loads(group: str, name: str) -> bool:
            if group in groups or group in reach.every_group:
                return True
            left: list[tuple[Unit, Use]] = []
            for unit, use in uses:
                if self._asks(reach, unit, use, group) and _fits(unit, use, name):
                    if not self._only_by_env(reach, unit, use, group, name):
                        return True
                    left.append((unit, use))
            reach.by_env.update(dict.fromkeys(left))
            return False

        return loads

    def _asks(self, reach: Reach, unit: Unit, use: Use, group: str) -> bool:
        asked = HOLE if use.name is None else fill(use.name, unit)
        if HOLE not in asked:
            return asked == group
        return group in reach.said_groups and group not in _SCRIPTS and _matches(asked, group)

    # Which of a group, where ENV says it -----------------------------------------------------------------------------

    def _only_by_env(self, reach: Reach, unit: Unit, use: Use, group: str, name: str) -> bool:
        """Tell whether a call can ask for this entry point only if ENV of a run names it."""
        if use.entry is None or fill(use.entry, unit).strip(HOLE) or not _PLAIN.fullmatch(name):
            return False
        asked = self._told(reach, unit).get(use.line)
        if asked is None or any(name.casefold() in text.casefold() for text in asked[0].texts):
            return False  # what code makes of these is a piece of them, wherever it cuts
        words = [each.casefold() for each in (name, *asked[0].keys, *asked[0].names)]
        lines = self._lines(reach)  # of code that runs when Python starts
        if any(text is None or any(word in text.casefold() for word in words) for text in (*self._on_the_way, *lines)):
            return False
        wanted = self._wanted.get((asked, group))
        if wanted is None:
            wanted = self._wanted[asked, group] = Wanted(asked[0], self._names[group], asked[1])
        for each in (reach, *reach.beside):
            key = id(each), id(wanted)
            if key not in self._unsaid:
                self._unsaid[key] = each, Unsaid(each, wanted)
            if self._unsaid[key][1].says(name):
                return False
        return True

    def _lines(self, reach: Reach) -> list[str | None]:
        found: list[str | None] = []
        for path in (*reach.graph.resolver.search.files, *reach.path_files):
            text = reach.graph.facts.text(path)
            found.append(None if text is None else text.decode("utf-8", "replace"))
        return found

    def _told(self, reach: Reach, unit: Unit) -> dict[int, _Asked]:
        """The calls of a module whose name ENV alone gives, by line."""
        known = self._by_env.get(unit)
        if known is None:
            known = self._by_env[unit] = {}
            module = self._module(reach, unit)
            if module is not None and _asked(module) <= _told(unit):
                names = Names(reach.graph, unit, module, lambda home: self._module(reach, home))
                for line, told in told_by_env(module, names.selects).items():
                    whole = self._variables(reach, unit, told, names)
                    if whole is not None:
                        known[line] = whole
        return known

    def _variables(self, reach: Reach, unit: Unit, told: Told, names: Names) -> _Asked | None:
        """Put the texts of the variables beside their names; None where one is not known, or a module that has it does
        more than read it."""
        keys, homes = set(told.keys), {unit}
        for name in told.names:
            found = names.text(name)
            if found is None:
                return None
            keys.add(found[0])
            homes.add(found[1])
        told = told._replace(keys=frozenset(keys))
        modules = [self._module(reach, home) for home in homes]
        if "" in keys or any(module is None or not only_reads(module, told) for module in modules):
            return None
        return told, frozenset(home.path for home in homes if home.path is not None)

    def _module(self, reach: Reach, unit: Unit) -> ast.Module | None:
        if unit not in self._parsed:
            text = None if unit.path is None or unit.kind != "source" else reach.graph.facts.text(unit.path)
            self._parsed[unit] = None if text is None else parsed(text)
        return self._parsed[unit]

    # Groups that stand in no other place ----------------------------------------------------------------------------

    def _only_asked(self, reach: Reach, block: Block) -> frozenset[str]:
        """The groups that a module writes down only as what it asks for, if a call of this block does."""
        if not any(use.kind == "entry-points" and use.entry is not None for use in block.calls):
            return frozenset()
        unit = block.unit
        known = self._spent.get(unit)
        if known is None:
            module = self._module(reach, unit)
            known = self._spent[unit] = frozenset() if module is None else _spent(module, unit)
        return known


def _fits(unit: Unit, use: Use, name: str) -> bool:
    """Tell whether a call that asks for a group can mean this entry point of it."""
    asked = HOLE if use.entry is None else fill(use.entry, unit)
    return not asked.strip(HOLE) or _matches(asked, name)


def _asked(module: ast.Module) -> set[int]:
    """The lines of calls that ask for one entry point by its name."""
    calls = (node for node in ast.walk(module) if isinstance(node, ast.Call) and last(node.func) in SELECT)
    return {line_of(node) for node in calls if any(each.arg == "name" for each in node.keywords)}


def _told(unit: Unit) -> set[int]:
    """The lines of such calls that the facts have: others, where they were made from another text."""
    scopes = unit.facts.scopes if unit.facts is not None else ()
    return {call.line for scope in scopes for call in scope.calls if call.callee.rpartition(".")[2] in SELECT}


def _spent(module: ast.Module, unit: Unit) -> frozenset[str]:
    """The strings that stand in a module only as the group in calls that give a name too; none where the calls are not
    those that the facts have, which were then made from another text."""
    asked: dict[str, int] = {}
    lines: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and last(node.func) in SELECT:
            groups = [each.value for each in node.keywords if each.arg == "group"]
            if groups and any(each.arg == "name" for each in node.keywords):
                lines.add(line_of(node))
                if isinstance(groups[0], ast.Constant) and isinstance(groups[0].value, str):
                    asked[groups[0].value] = asked.get(groups[0].value, 0) + 1
    if not lines <= _told(unit):
        return frozenset()
    every: dict[str, int] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in asked:
            every[node.value] = every.get(node.value, 0) + 1
    return frozenset(group for group, count in asked.items() if every[group] == count)


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
