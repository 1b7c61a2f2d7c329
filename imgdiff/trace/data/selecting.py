"""Whether a call selects entry points by the name that it is given, and by nothing else.

``importlib.metadata.entry_points`` does, and so does a function that hands on all that it is given
(``def entry_points(**params): return cached().select(**params)``), where what it selects from is made by
``importlib.metadata``, too. Any other function of that name could look the name up in a table of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from imgdiff.trace.data.from_env import bound_by, text_of
from imgdiff.trace.graph.blocks import Unit
from imgdiff.trace.graph.graph import Graph

_HONEST = frozenset({"importlib.metadata.entry_points", "importlib_metadata.entry_points"})
_COLLECTIONS = frozenset({"importlib.metadata.EntryPoints", "importlib_metadata.EntryPoints"})
_CACHES = frozenset({"functools.cache", "functools.lru_cache"})
_DEPTH = 4  # functions that hand on to one another
_Parsed = Callable[[Unit], ast.Module | None]


class Names:
    """What the names of one module stand for: what it imports, and its own functions."""

    def __init__(self, graph: Graph, unit: Unit, module: ast.Module, parsed: _Parsed) -> None:
        self._graph, self.unit, self._module, self._parsed = graph, unit, module, parsed
        self._imported: dict[str, set[str]] = {}
        self._functions: dict[str, ast.FunctionDef] = {}
        bound: dict[str, int] = {}
        for node in ast.walk(module):
            for name in _binds(node):
                bound[name] = bound.get(name, 0) + 1
            for name, origin in self._origins(node):
                bound[name] -= 1
                self._imported.setdefault(name, set()).add(origin)
        for statement in module.body:
            if isinstance(statement, ast.FunctionDef) and bound.get(statement.name) == 1:
                self._functions[statement.name] = statement
                bound[statement.name] = 0
        self._taken = {name for name, count in bound.items() if count}

    def _origins(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.Import):
            for each in node.names:
                yield (each.asname, each.name) if each.asname else (each.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            base = self._graph.absolute(self.unit, node.module or "", node.level)
            for each in node.names:
                if base is not None and each.name != "*":
                    yield each.asname or each.name, f"{base}.{each.name}"

    def origin(self, node: ast.expr) -> str | None:
        """Return the dotted name that an expression has where it comes from, if it is imported and nothing else."""
        if isinstance(node, ast.Attribute):
            base = self.origin(node.value)
            return None if base is None else f"{base}.{node.attr}"
        if not isinstance(node, ast.Name) or node.id in self._taken or "*" in self._taken:
            return None
        found = self._imported.get(node.id, set())
        return next(iter(found)) if len(found) == 1 and node.id not in self._functions else None

    def text(self, name: str) -> tuple[str, Unit] | None:
        """Return the text that a name stands for, and the module that binds it."""
        origin = self.origin(ast.Name(name, ast.Load()))
        if origin is None:
            own = None if self._imported.get(name) else text_of(self._module, name)
            return None if own is None else (own, self.unit)
        home = self._graph.unit(origin.rpartition(".")[0])
        module = None if home is None else self._parsed(home)
        found = None if module is None else text_of(module, origin.rpartition(".")[2])
        return None if home is None or found is None else (found, home)

    # Functions ------------------------------------------------------------------------------------------------------

    def selects(self, call: ast.Call, depth: int = _DEPTH) -> bool:
        """Tell whether a call selects entry points by what it is given alone."""
        if call.args or depth == 0:
            return False
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "select" and isinstance(func.value, ast.Call):
            return self.is_collection(func.value, {}, depth)
        return self._hands_on(func, depth)

    def _hands_on(self, func: ast.expr, depth: int) -> bool:
        """Tell whether a function is importlib's, or hands on all that it is given."""
        found = self._function(func)
        if isinstance(found, str):
            return found in _HONEST
        if found is None:
            return False
        names, function = found
        arguments = function.args
        plain = arguments.posonlyargs or arguments.args or arguments.kwonlyargs or arguments.vararg
        body = _without_docstring(function.body)
        if plain or arguments.kwarg is None or function.decorator_list or len(body) != 1:
            return False
        returned = body[0].value if isinstance(body[0], ast.Return) else None
        if not isinstance(returned, ast.Call) or len(returned.keywords) != 1:
            return False
        given = returned.keywords[0]
        whole = given.arg is None and isinstance(given.value, ast.Name) and given.value.id == arguments.kwarg.arg
        return whole and names.selects(returned, depth - 1)

    def _function(self, func: ast.expr) -> tuple[Names, ast.FunctionDef] | str | None:
        """Return the function that an expression stands for, with the names of its module; else its dotted name."""
        if isinstance(func, ast.Name) and func.id in self._functions and func.id not in self._taken:
            return (self, self._functions[func.id]) if not self._imported.get(func.id) else None
        origin = self.origin(func)
        if origin is None or origin in _HONEST or origin in _COLLECTIONS:
            return origin
        home = self._graph.unit(origin.rpartition(".")[0])
        module = None if home is None else self._parsed(home)
        if home is None or module is None:
            return origin
        there = Names(self._graph, home, module, self._parsed)
        return there._function(ast.Name(origin.rpartition(".")[2], ast.Load()))

    def is_collection(self, node: ast.expr, honest: dict[str, bool], depth: int) -> bool:
        """Tell whether an expression is a collection of entry points that importlib makes."""
        if isinstance(node, ast.Name):
            return honest.get(node.id, False)
        if not isinstance(node, ast.Call) or depth == 0:
            return False
        found = self._function(node.func)
        if isinstance(found, str):
            return found in _COLLECTIONS or (found in _HONEST and not node.args and not node.keywords)
        if found is None:
            return False
        names, function = found
        arguments = function.args
        if node.keywords or arguments.kwonlyargs or arguments.vararg or arguments.kwarg or arguments.defaults:
            return False
        if any(names.origin(each) not in _CACHES for each in function.decorator_list):
            return False
        parameters = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        if len(parameters) != len(node.args):
            return False
        given = {
            name: self.is_collection(value, honest, depth - 1)
            for name, value in zip(parameters, node.args, strict=True)
        }
        inner = [each for statement in function.body for each in ast.walk(statement)]
        for each in inner:
            if any(name in given for name in _binds(each)) or isinstance(each, ast.Yield | ast.YieldFrom | ast.Lambda):
                return False
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                return False
        returns = [each.value for each in inner if isinstance(each, ast.Return)]
        return bool(returns) and all(
            value is not None and names.is_collection(value, given, depth - 1) for value in returns
        )


def _binds(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    yield from bound_by(node)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if is_text else body
