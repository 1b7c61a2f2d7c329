"""What the user's word leaves out: modules that are loaded by name alone, for another platform or another model.

Only edges over names are left out: those of the module that holds the table or chooses the platform, and those of bare
words, which stand for nothing but what such a table could mean. An import statement, a full dotted name elsewhere, an
entry point or a data file that leads to the module keeps it.
"""

from __future__ import annotations

import ast
import fnmatch
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping

from imgdiff.kinds.python import newer
from imgdiff.model import FactSource, ModelTable, Profile, Unreadable
from imgdiff.trace.graph.blocks import Unit
from imgdiff.trace.graph.dead_lines import dead_lines, import_lines
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.graph.left_out import Narrowing

_NONE: frozenset[int] = frozenset()
_READING = frozenset({"items", "keys", "values", "get", "copy"})  # methods of a dict that put nothing into it
_TAKING = frozenset({"len", "list", "dict", "set", "frozenset", "sorted", "tuple", "iter", "next"})

_Entries = Mapping[str, Collection[str]]  # architecture -> modules: two tables can hold the same one


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
    option = _option(words, table)
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
    for name in sorted(kept):
        reopened = _reopens(graph, table, name)
        if reopened is None or profile.assumed.whole:
            continue
        if profile.assumed.unnamed:
            unnamed = ", ".join(profile.assumed.unnamed)
            return f"{name} loads further models ({reopened}), and the config.json has no architectures in {unnamed}"
        return f"{name} loads further models ({reopened}), which only a config.json names (--model-config)"
    renamed = _strings_below(graph, table.renames) & entries.keys()
    kept |= _kept(graph, table, entries, renamed) if renamed else set()
    kept |= {inner for each in table.always for inner in _with_below(graph, f"{table.package}.{each}")}
    targets = {
        name for module in set().union(*entries.values()) if f"{table.package}.{module}" not in kept
        for name in _with_below(graph, f"{table.package}.{module}")
    }  # fmt: skip
    found.add((table.module,), targets - kept, table.package + ".")
    return None


def _option(words: Collection[str], table: ModelTable) -> str | None:
    """Return the option of a command line that can name another model: as it is, with a key behind a dot, cut short as
    argparse allows, or with underscores."""
    for word in sorted(words):
        name = word.partition("=")[0].replace("_", "-")
        if any(fnmatch.fnmatchcase(name, each) for each in table.unless):
            return word.partition("=")[0]
    return None


def _kept(graph: Graph, table: ModelTable, entries: _Entries, architectures: Collection[str]) -> set[str]:
    """The modules of the architectures, those of the package that these import (a base class loads what its subclass
    needs), and those that their code names in turn."""
    ours = {f"{table.package}.{module}" for modules in entries.values() for module in modules}
    kept: set[str] = set()
    waiting = [f"{table.package}.{module}" for each in architectures for module in entries[each]]
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        kept.add(name)
        for inner in _with_below(graph, name):
            for text in _strings(graph, inner):
                waiting += [f"{table.package}.{module}" for module in entries.get(text, ())]
            waiting += [
                each for each in _imported(graph, table, inner) if each in ours or _loads_more(graph, each, table)
            ]
    return kept


def _imported(graph: Graph, table: ModelTable, name: str) -> Iterator[str]:
    """Yield the modules of the table's package that a module imports anywhere."""
    unit = _prepared(graph, name)
    for scope in unit.facts.scopes if unit is not None and unit.facts is not None else ():
        for each in scope.imports:
            assert unit is not None
            module = graph.absolute(unit, each.module, each.level)
            for target in (module, *(f"{module}.{inner}" for inner in each.names)):
                if target is not None and target.startswith(table.package + ".") and graph.unit(target) is not None:
                    yield target


def _loads_more(graph: Graph, name: str, table: ModelTable) -> bool:
    """Tell whether a module that is in no table is a part of models that load others: it takes the function for that
    from elsewhere. (The module that has the function names it, too.)"""
    unit = _prepared(graph, name)
    if unit is None or unit.facts is None or name == table.module:
        return False
    asked = frozenset(table.reopens)
    return any(not asked.isdisjoint(each.names) for scope in unit.facts.scopes for each in scope.imports)


def _strings_below(graph: Graph, packages: Collection[str]) -> set[str]:
    return {text for each in packages for name in _with_below(graph, each) for text in _strings(graph, name)}


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


def _entries(table: ModelTable, unit: Unit, facts: FactSource) -> _Entries:
    """Return architecture -> modules, of the dict literals ``{"Arch": ("module", "Class")}``; nothing where one of the
    tables is made otherwise, or changed behind its literal. ``{**TABLE, ...}`` and comprehensions over tables hold what
    those hold."""
    module = parsed(facts.text(unit.path or b"") or b"")
    if module is None:
        return {}

    def is_table(node: ast.AST | None) -> bool:
        return isinstance(node, ast.Name) and any(fnmatch.fnmatchcase(node.id, each) for each in table.tables)

    entries: dict[str, set[str]] = {}
    made: set[ast.AST] = set()
    for statement in module.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        value = getattr(statement, "value", None)
        if target is None or not is_table(target):
            continue
        if not isinstance(value, ast.Dict):
            return {}
        made.add(target)
        for key, item in zip(value.keys, value.values, strict=True):
            if key is None and not (is_table(item) or _of_tables(item, is_table)):
                return {}
            if key is None:
                continue
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                return {}
            first = item.elts[0] if isinstance(item, ast.Tuple | ast.List) and item.elts else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                entries.setdefault(key.value, set()).add(first.value)
            elif not isinstance(item, ast.Constant):  # a version, an address: no module
                return {}
    return {} if any(_changes(node, is_table, made) for node in ast.walk(module)) else entries


def _of_tables(node: ast.expr, is_table: Callable[[ast.AST | None], bool]) -> bool:
    """Tell whether an expression is ``{k: v for k, v in TABLE.items() ...}``, names and tuples of names alone."""
    if not (isinstance(node, ast.DictComp) and len(node.generators) == 1):
        return False
    of = node.generators[0].iter
    if not (isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr == "items"):
        return False
    plain = all(isinstance(each, ast.Name | ast.Tuple | ast.expr_context) for each in ast.walk(node.value))
    return isinstance(node.key, ast.Name) and plain and is_table(of.func.value)


def _changes(node: ast.AST, is_table: Callable[[ast.AST | None], bool], made: Collection[ast.AST]) -> bool:
    """Tell whether a piece of code can put something into a table, but for the statements that make the tables."""
    if isinstance(node, ast.Name):
        return is_table(node) and not isinstance(node.ctx, ast.Load) and node not in made
    if isinstance(node, ast.Subscript):
        return is_table(node.value) and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Attribute):
        return is_table(node.value) and node.attr not in _READING
    if isinstance(node, ast.Call):
        reads = isinstance(node.func, ast.Name) and node.func.id in _TAKING
        return not reads and any(is_table(each) for each in (*node.args, *(word.value for word in node.keywords)))
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        return is_table(node.value)  # another name for it
    return False


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
