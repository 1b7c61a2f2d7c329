"""Which names a function, class body or module binds, and how often: Python's own rules of scope, from the syntax."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from imgdiff.kinds.python._nodes import TypeAlias

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Bindings:
    """``counts`` says how often each name is bound (twice in a ``finally``, which compilers copy); ``global_`` and
    ``nonlocal_`` are the names so declared."""

    __slots__ = ("counts", "global_", "nonlocal_")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.global_: set[str] = set()
        self.nonlocal_: set[str] = set()

    def add(self, name: str, times: int = 1) -> None:
        """Count a binding."""
        self.counts[name] = self.counts.get(name, 0) + times

    def locals(self) -> set[str]:
        """Return the names that are the scope's own."""
        return self.counts.keys() - self.global_ - self.nonlocal_


class Lines:
    """The numbers of the source lines that hold some token (or a text that looks like it)."""

    __slots__ = ("numbers",)

    def __init__(self, source: bytes, token: bytes) -> None:
        self.numbers: list[int] = []
        if token in source:
            self.numbers = [number for number, line in enumerate(source.splitlines(), 1) if token in line]

    def touch(self, node: ast.stmt | ast.expr) -> bool:
        """Tell whether one of the lines is a node's."""
        index = bisect_left(self.numbers, node.lineno)
        return index < len(self.numbers) and self.numbers[index] <= (node.end_lineno or node.lineno)


def global_bindings(body: Sequence[ast.stmt], lines: Lines, walrus: Lines) -> list[str]:
    """Return the names that functions and classes bind in their module by declaring them global."""
    names: list[str] = []
    stack: list[Any] = list(body) if lines.numbers else []
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt) and not lines.touch(node):
            continue
        if isinstance(node, _FUNCTIONS):
            found = bindings(node.body, walrus)
            names += found.global_ & found.counts.keys()
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            stack.extend(getattr(node, field, ()))
    return names


_SKIPPED = frozenset(
    {"ctx", "op", "ops", "type_comment", "kind", "name", "id", "attr", "arg", "asname", "module", "level"}
)
_FIELDS: dict[type, tuple[str, ...]] = {}


def children(node: ast.AST) -> list[ast.AST]:
    """Return a node's children but for contexts and operators (``ast.iter_child_nodes`` costs four times as much)."""
    kind = type(node)
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = tuple([field for field in kind._fields if field not in _SKIPPED])
    found: list[ast.AST] = []
    for field in fields:
        value = getattr(node, field, None)
        if type(value) is list:
            found.extend([item for item in value if isinstance(item, ast.AST)])
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def parameters(arguments: ast.arguments) -> list[str]:
    """Return the names of a function's parameters."""
    names = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if arguments.vararg is not None:
        names.append(arguments.vararg.arg)
    if arguments.kwarg is not None:
        names.append(arguments.kwarg.arg)
    return names


def bindings(body: Sequence[ast.stmt], walrus: Lines) -> Bindings:
    """Return what the statements bind in their own scope. ``walrus``: where the source has assignment expressions."""
    found = Bindings()
    stack: list[tuple[ast.AST, int]] = [(statement, 1) for statement in body]
    while stack:
        node, times = stack.pop()
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            handler(found, node, times, stack)
    for statement in body if walrus.numbers else ():
        if walrus.touch(statement):
            _walrus(found, [statement])
    return found


def _targets(found: Bindings, targets: Iterable[ast.expr], times: int) -> None:
    stack = list(targets)
    while stack:
        target = stack.pop()
        if isinstance(target, ast.Name):
            found.add(target.id, times)
        elif isinstance(target, (ast.Tuple, ast.List)):
            stack.extend(target.elts)
        elif isinstance(target, ast.Starred):
            stack.append(target.value)


def _nest(stack: list[tuple[ast.AST, int]], statements: Iterable[ast.AST], times: int) -> None:
    stack.extend([(statement, times) for statement in statements])


def _assign(found: Bindings, node: ast.Assign, times: int, _: object) -> None:
    _targets(found, node.targets, times)


def _augmented(found: Bindings, node: ast.AugAssign | ast.AnnAssign, times: int, _: object) -> None:
    if isinstance(node, ast.AnnAssign) and node.value is None:
        times = 0  # declares a local name without binding it
    _targets(found, [node.target], times)


def _definition(found: Bindings, node: ast.FunctionDef, times: int, _: object) -> None:
    found.add(node.name, times)


def _import(found: Bindings, node: ast.Import | ast.ImportFrom, times: int, _: object) -> None:
    plain = isinstance(node, ast.Import)
    for alias in node.names:
        if alias.asname is not None:
            found.add(alias.asname, times)
        elif alias.name != "*":
            found.add(alias.name.partition(".")[0] if plain else alias.name, times)


def _branch(_: Bindings, node: ast.If | ast.While, times: int, stack: list[tuple[ast.AST, int]]) -> None:
    taken = otherwise = times
    if isinstance(node.test, ast.Constant):  # what can't run binds nothing, but its names are local all the same
        taken, otherwise = (times, 0) if node.test.value else (0, times)
    _nest(stack, node.body, taken)
    _nest(stack, node.orelse, otherwise)


def _loop(found: Bindings, node: ast.For, times: int, stack: list[tuple[ast.AST, int]]) -> None:
    _targets(found, [node.target], times)
    _nest(stack, node.body, times)
    _nest(stack, node.orelse, times)


def _with(found: Bindings, node: ast.With, times: int, stack: list[tuple[ast.AST, int]]) -> None:
    _targets(found, [item.optional_vars for item in node.items if item.optional_vars is not None], times)
    _nest(stack, node.body, times)


def _try(_: Bindings, node: ast.Try, times: int, stack: list[tuple[ast.AST, int]]) -> None:
    _nest(stack, node.body, times)
    _nest(stack, node.orelse, times)
    _nest(stack, node.handlers, times)
    _nest(stack, node.finalbody, 2 * times)


def _except(found: Bindings, node: ast.ExceptHandler, times: int, stack: list[tuple[ast.AST, int]]) -> None:
    if node.name is not None:
        found.add(node.name, 2 * times)
    _nest(stack, node.body, times)


def _match(found: Bindings, node: ast.Match, times: int, stack: list[tuple[ast.AST, int]]) -> None:
    for case in node.cases:
        for part in ast.walk(case.pattern):
            if isinstance(part, (ast.MatchAs, ast.MatchStar)) and part.name is not None:
                found.add(part.name, 2 * times)
            elif isinstance(part, ast.MatchMapping) and part.rest is not None:
                found.add(part.rest, 2 * times)
        _nest(stack, case.body, times)


def _global(found: Bindings, node: ast.Global, *_: object) -> None:
    found.global_.update(node.names)


def _nonlocal(found: Bindings, node: ast.Nonlocal, *_: object) -> None:
    found.nonlocal_.update(node.names)


def _delete(found: Bindings, node: ast.Delete, times: int, _: object) -> None:
    _targets(found, node.targets, times)


def _type_alias(found: Bindings, node: ast.AST, times: int, _: object) -> None:
    name = getattr(node, "name", None)
    if isinstance(name, ast.Name):
        found.add(name.id, times)


_HANDLERS: dict[type, Callable[[Bindings, Any, int, list[tuple[ast.AST, int]]], None]] = {
    ast.Assign: _assign,
    ast.AugAssign: lambda f, n, t, s: _augmented(f, n, 2 * t, s),
    ast.AnnAssign: _augmented,
    ast.FunctionDef: _definition,
    ast.AsyncFunctionDef: _definition,
    ast.ClassDef: _definition,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.If: _branch,
    ast.While: _branch,
    ast.For: _loop,
    ast.AsyncFor: _loop,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.ExceptHandler: _except,
    ast.Match: _match,
    ast.Global: _global,
    ast.Nonlocal: _nonlocal,
    ast.Delete: _delete,
    TypeAlias: _type_alias,
}
if hasattr(ast, "TryStar"):
    _HANDLERS[ast.TryStar] = _try


def _walrus(found: Bindings, body: Iterable[ast.stmt]) -> None:
    """Find assignment expressions: they bind in the scope that holds the comprehensions around them."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.NamedExpr):
            found.add(node.target.id)
            stack.append(node.value)
        elif isinstance(node, ast.Lambda):
            stack.extend(node.args.defaults)
            stack.extend([default for default in node.args.kw_defaults if default is not None])
        elif isinstance(node, _FUNCTIONS):
            stack.extend(node.decorator_list)
            if isinstance(node, ast.ClassDef):
                stack.extend(node.bases)
                stack.extend(node.keywords)
            else:
                stack.extend(node.args.defaults)
                stack.extend([default for default in node.args.kw_defaults if default is not None])
        else:
            stack.extend(children(node))
