"""Lines of a module that do not run under an assumption: branches on conditions that it decides.

Only whole statements, on lines that no other statement has a part of, and only where the condition is a call that is
known (``current_platform.is_rocm()``), or ``not``, ``and``, ``or`` of such calls. What stands behind a branch that is
taken for sure and ends in ``return``, ``raise``, ``continue`` or ``break`` does not run either.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

_ANY = "*"  # a star import binds what its module has
Truth = Mapping[str, bool]  # method of the object -> what it returns


def dead_lines(module: ast.Module, name: str, truth: Truth, is_it: Callable[[ast.ImportFrom], bool]) -> frozenset[int]:
    """Return the lines that do not run.

    ``name`` is the object's in the module that has it, ``is_it`` tells whether a from-import is of that module. Empty
    where some name that stands for the object is bound otherwise, too.
    """
    names = _names_of(module, name, is_it)
    if not names or not _bound_once(module, name, names, is_it):
        return frozenset()
    walk = _Walk(names, truth)
    walk.block(module.body)
    dead = {line for statement in walk.dead for line in _lines(statement)}
    return frozenset(dead - walk.live)


def import_lines(module: ast.Module) -> frozenset[int]:
    """Return the lines at which import statements begin."""
    return frozenset(node.lineno for node in ast.walk(module) if isinstance(node, ast.Import | ast.ImportFrom))


def _names_of(module: ast.Module, name: str, is_it: Callable[[ast.ImportFrom], bool]) -> set[str]:
    return {
        alias.asname or alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and is_it(node)
        for alias in node.names
        if alias.name == name
    }


def _bound_once(module: ast.Module, name: str, names: Collection[str], is_it: Callable[[ast.ImportFrom], bool]) -> bool:
    """Tell whether nothing but those imports binds the names."""
    return not any(bound in names or bound == _ANY for node in ast.walk(module) for bound in _binds(node, name, is_it))


def _binds(node: ast.AST, name: str, is_it: Callable[[ast.ImportFrom], bool]) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        own = isinstance(node, ast.ImportFrom) and is_it(node)
        for alias in node.names:
            if alias.name == "*":
                yield _ANY
            elif not (own and alias.name == name):
                yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


class _Walk:
    """Goes through what runs, and keeps what does not."""

    def __init__(self, names: Collection[str], truth: Truth) -> None:
        self._names, self._truth = names, truth
        self.dead: list[ast.stmt] = []
        self.live: set[int] = set()

    def block(self, body: Sequence[ast.stmt]) -> bool:
        """Go through statements; True where what follows them in their block does not run, by the assumption or in
        any case."""
        for position, statement in enumerate(body):
            if self._statement(statement):
                self.dead += body[position + 1 :]
                return True
        return False

    def _statement(self, statement: ast.stmt) -> bool:
        self.live.update(_header(statement))
        if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return True
        if isinstance(statement, ast.If):
            known = self._value(statement.test)
            if known is not None:
                taken, other = (statement.body, statement.orelse) if known else (statement.orelse, statement.body)
                self.dead += other
                return self.block(taken)
            ends = [self.block(statement.body), self.block(statement.orelse)]
            return all(ends)
        for inner in _blocks(statement):
            self.block(inner)
        return False

    def _value(self, test: ast.expr) -> bool | None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._value(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            values = [self._value(each) for each in test.values]
            decides = isinstance(test.op, ast.Or)
            if decides in values:
                return decides
            return None if None in values else not decides
        if isinstance(test, ast.Call) and not test.args and not test.keywords and isinstance(test.func, ast.Attribute):
            holder = test.func.value
            if isinstance(holder, ast.Name) and holder.id in self._names:
                return self._truth.get(test.func.attr)
        return None


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        inner = getattr(statement, field, None)
        if isinstance(inner, list):
            yield inner
    for each in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield each.body


def _header(statement: ast.stmt) -> Iterator[int]:
    """The lines of a statement, what stands inside its blocks left out."""
    inside = [body for body in _blocks(statement) if body]
    if not inside:
        yield from _lines(statement)
        return
    if isinstance(statement, ast.If):
        yield from range(statement.lineno, (statement.test.end_lineno or statement.lineno) + 1)
        return
    covered = {line for body in inside for each in body for line in _lines(each)}
    yield from (line for line in _lines(statement) if line not in covered or line == statement.lineno)


def _lines(statement: ast.stmt) -> range:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(each.lineno for each in decorators)])
    return range(first, (statement.end_lineno or statement.lineno) + 1)
