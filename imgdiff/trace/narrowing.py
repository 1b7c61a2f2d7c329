"""What the user's word leaves out: modules that are loaded by name alone, for another platform or another model.

Only edges over names are left out: those of the module that holds the table or chooses the platform, and those of bare
words, which stand for nothing but what such a table could mean. An import statement, a full dotted name elsewhere, an
entry point or a data file that leads to the module keeps it.
"""

from __future__ import annotations

import ast
import fnmatch
import warnings
from collections.abc import Collection, Iterator, Mapping

from imgdiff.kinds.python import newer
from imgdiff.model import FactSource, ModelTable, Profile, Unreadable
from imgdiff.trace.blocks import Unit
from imgdiff.trace.dead_lines import dead_lines, import_lines
from imgdiff.trace.graph import Graph
from imgdiff.trace.left_out import Narrowing

_NONE: frozenset[int] = frozenset()


def narrowing(graph: Graph, profile: Profile, facts: FactSource, words: Collection[str]) -> Narrowing:
    """Return what the assumptions of a profile leave out of a graph, and in sentences what they could not.

    ``words`` are those of the command lines.
    """
    found = Narrowing()
    assumed = profile.assumed
    for rule in profile.assumes:
        if (rule.name, rule.value) in assumed.values:
            targets = [name for each in rule.leaves_out for name in _with_below(graph, each)]
            found.add(rule.by, targets, None)
    lines = _Lines(graph, profile, facts)
    if lines.truths:
        found.dead = lines
    if assumed.architectures:
        tables = [table for table in profile.model_tables if graph.unit(table.module) is not None]
        if not tables:
            found.notes.append("no table of model architectures that the profile knows is in the image")
        for table in tables:
            why = _table(found, graph, table, profile, facts, words)
            if why is not None:
                found.notes.append(f"nothing of {table.module} was left out: {why}")
    return found


class _Lines:
    """The lines of modules that do not run under the assumptions."""

    def __init__(self, graph: Graph, profile: Profile, facts: FactSource) -> None:
        self._graph, self._facts = graph, facts
        self._known: dict[str, frozenset[int]] = {}
        self.truths: dict[tuple[str, str], dict[str, bool]] = {}  # (module, name of the object) -> method -> value
        values = dict(profile.assumed.values)
        for each in profile.conditions:
            if each.assume in values:
                module, _, name = each.object.rpartition(".")
                self.truths.setdefault((module, name), {})[each.method] = values[each.assume] in each.true
        self._methods = frozenset(method for truth in self.truths.values() for method in truth)

    def __call__(self, name: str, path: bytes | None, names: Collection[str]) -> frozenset[int]:
        if name not in self._known:
            asks = path is not None and not self._methods.isdisjoint(names)
            self._known[name] = self._of(name, path) if asks and path is not None else _NONE
        return self._known[name]

    def _of(self, name: str, path: bytes) -> frozenset[int]:
        unit, text = self._graph.unit(name), self._facts.text(path)
        if unit is None or unit.path != path or unit.kind != "source" or unit.facts is None or text is None:
            return _NONE
        module = parsed(text)
        if module is None:
            return _NONE
        told = {each.line for scope in unit.facts.scopes for each in scope.imports}
        if not told <= import_lines(module):
            return _NONE  # what runs was made from another text
        dead: frozenset[int] = _NONE
        for (home, object_), truth in self.truths.items():

            def is_it(node: ast.ImportFrom, home: str = home, unit: Unit = unit) -> bool:
                return self._graph.absolute(unit, node.module or "", node.level) == home

            dead |= dead_lines(module, object_, truth, is_it)
        return dead


def _with_below(graph: Graph, name: str) -> Iterator[str]:
    if graph.unit(name) is not None:
        yield name
        yield from graph.below(name)


def _table(
    found: Narrowing, graph: Graph, table: ModelTable, profile: Profile, facts: FactSource, words: Collection[str]
) -> str | None:
    """Leave out what a table names and the assumed architectures do not need; return why nothing is left out."""
    option = next((each for word in words for each in table.unless if word.partition("=")[0] == each), None)
    if option is not None:
        return f"{option} on the command line can name another model"
    unit = graph.unit(table.module)
    assert unit is not None
    entries = _entries(table, unit, facts)
    if not entries:
        return "its table could not be read"
    unknown = [each for each in profile.assumed.architectures if each not in entries]
    if unknown:
        return f"it does not hold {', '.join(unknown)}"
    kept = _kept(graph, table, entries, profile.assumed.architectures)
    for name in kept:
        reopened = _reopens(graph, table, name)
        if reopened is not None and not profile.assumed.whole:
            return f"{name} loads further models ({reopened}), which only a config.json names (--model-config)"
    kept |= {inner for each in table.always for inner in _with_below(graph, f"{table.package}.{each}")}
    targets = {
        name for module in set(entries.values()) if f"{table.package}.{module}" not in kept
        for name in _with_below(graph, f"{table.package}.{module}")
    }  # fmt: skip
    found.add((table.module,), targets - kept, table.package + ".")
    return None


def _kept(graph: Graph, table: ModelTable, entries: Mapping[str, str], architectures: Collection[str]) -> set[str]:
    """The modules of the architectures, and of those that their code names in turn."""
    kept: set[str] = set()
    waiting = [f"{table.package}.{entries[each]}" for each in architectures]
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        kept.add(name)
        for inner in _with_below(graph, name):
            waiting += [f"{table.package}.{entries[text]}" for text in _strings(graph, inner) if text in entries]
    return kept


def _strings(graph: Graph, name: str) -> Iterator[str]:
    unit = _prepared(graph, name)
    for scope in unit.facts.scopes if unit is not None and unit.facts is not None else ():
        yield from scope.strings


def _reopens(graph: Graph, table: ModelTable, name: str) -> str | None:
    """Return the name by which a module, or one of its own package that it is made of, asks for further models."""
    for inner in _with_below(graph, name):
        unit = _prepared(graph, inner)
        if unit is None or unit.facts is None:
            return "its code could not be read"
        for scope in unit.facts.scopes:
            asked = sorted(scope.names & frozenset(table.reopens))
            if asked:
                return asked[0]
    return None


def _prepared(graph: Graph, name: str) -> Unit | None:
    unit = graph.unit(name)
    if unit is not None and unit.path is not None:
        graph.prepare([unit])
    return unit


def _entries(table: ModelTable, unit: Unit, facts: FactSource) -> dict[str, str]:
    """Return architecture -> module, of the dict literals ``{"Arch": ("module", "Class")}``; nothing where one of the
    tables is made otherwise. ``{**TABLE, ...}`` and comprehensions over them hold what they hold."""
    module = parsed(facts.text(unit.path or b"") or b"")
    if module is None:
        return {}
    entries: dict[str, str] = {}
    for statement in module.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        value = getattr(statement, "value", None)
        if not (isinstance(target, ast.Name) and any(fnmatch.fnmatchcase(target.id, each) for each in table.tables)):
            continue
        if not isinstance(value, ast.Dict):
            return {}
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(item, ast.Tuple | ast.List) and item.elts:
                first = item.elts[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str) and isinstance(key.value, str):
                    entries[key.value] = first.value
    return entries


def parsed(text: bytes) -> ast.Module | None:
    """Return the syntax tree of a source, by newer grammars too; None where none fits."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError:
        found = newer.parse(text)
        return None if isinstance(found, Unreadable) else found
    except (ValueError, RecursionError, MemoryError):
        return None
