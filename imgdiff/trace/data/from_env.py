"""Names of entry points that only ENV can give: proven from the syntax of the function that asks.

``entry_points(group="g", name=n)`` with ``n = environ.get("KEY", "default")``, or a word of it. What ENV gives when a
container is started is a caveat, as for every name (see ``given``); all other ways to such a name stand in the image.
Nothing is proven where any way could lead elsewhere: a parameter, a variable of the module, a list that code adds to,
a variable of ENV with a computed name, or a module that does more with that name than to read ENV by it.
"""

from __future__ import annotations

import ast
import base64
import codecs
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from imgdiff.trace.graph.calls import SELECT

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Each gives a piece of the text, in other letters at most.
_PIECE = frozenset({"strip", "lstrip", "rstrip", "lower", "upper", "casefold", "removeprefix", "removesuffix"})
_PIECES = frozenset({"split", "rsplit", "splitlines"})
_GETTERS = frozenset({"environ", "getenv"})
MIN_PIECE = 2  # letters of a string that a name is put together of
_MIN_ENCODED = 4  # letters of a name that is looked for in other letters
_TELLS = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "log", "print"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_INNER = (*_DEFINITIONS, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# They can set a variable, or what a name of the module stands for, without saying so.
_DYNAMIC = frozenset(
    {"exec", "eval", "globals", "locals", "vars", "setattr", "__dict__", "_getframe", "f_locals", "__setattr__"}
)


class Told(NamedTuple):
    """What ENV alone tells: the texts that the code has where ENV says nothing, and the variables that it asks ENV
    for, as texts (``keys``) or as names that stand for such (``names``)."""

    texts: frozenset[str]
    keys: frozenset[str]
    names: frozenset[str]


def told_by_env(module: ast.Module, selects: Callable[[ast.Call], bool]) -> dict[int, Told]:
    """Return by line (as the facts have it) the calls for one entry point whose name ENV alone gives. A line with
    another call for entry points is none of them. ``selects`` tells whether a call selects entry points by just the
    name that it is given."""
    names = {each.id for each in ast.walk(module) if isinstance(each, ast.Name)}
    attributes = {each.attr for each in ast.walk(module) if isinstance(each, ast.Attribute)}
    if not _DYNAMIC.isdisjoint(names | attributes):
        return {}
    environ = _Environ(module)
    found: dict[int, Told | None] = {}
    proven: dict[ast.Call, Told] = {}
    for scope in (module, *(each for each in ast.walk(module) if isinstance(each, Function))):
        for node in _own(scope):
            if isinstance(node, ast.Call) and _selects(node) and selects(node):
                told = _Proof(environ, scope).of(node)
                if told is not None:
                    proven[node] = told
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _selects(node):
            line, told = line_of(node), proven.get(node)
            found[line] = None if line in found else told
    return {line: told for line, told in found.items() if told is not None}


def only_reads(module: ast.Module, told: Told) -> bool:
    """Tell whether a module does nothing with the names of these variables of ENV but to read ENV by them, to bind a
    text to one (``KEY = "KEY"``), and to tell them to people: in docstrings, and in sentences that are logged, printed
    or raised."""
    fine = _readings(module)
    bound = [statement for statement in module.body if (found := _bound_text(statement)) and found[0] in told.names]
    if len(bound) > len(told.names):
        return False
    for statement in bound:
        fine.update(ast.walk(statement))
    keys = frozenset(each.casefold() for each in (*told.keys, *told.names))
    rest = [node for node in ast.walk(module) if node not in fine]
    texts = {text.casefold() for node in rest if (text := _text_in(node)) is not None}
    encoded = {form.casefold() for each in (*told.keys, *told.names) for form in encodings(each)}
    if any(made_of(key, texts) for key in keys) or any(form in text for form in encoded for text in texts):
        return False
    return not any(_says(node, told, keys) for node in rest)


def encodings(text: str) -> tuple[str, ...]:
    """Return a text read backwards, and in the ways in which code hides one."""
    raw = text.encode()
    found = (text[::-1], codecs.encode(text, "rot13"), raw.hex(), base64.b64encode(raw).decode().rstrip("="))
    return tuple(each for each in found if len(text) >= _MIN_ENCODED and each.casefold() != text.casefold())


def made_of(text: str, pieces: Collection[str]) -> bool:
    """Tell whether a text can be put together of pieces of two or more letters, whatever else there is."""
    fitting = [each for each in pieces if len(each) >= MIN_PIECE and each in text]
    ends = {0}
    for at in range(len(text)):
        if at in ends:
            ends.update(at + len(each) for each in fitting if text.startswith(each, at))
    return len(text) in ends


def _readings(module: ast.Module) -> set[ast.AST]:
    """What ENV is read by, and texts that nothing is done with."""
    environ = _Environ(module)
    found: set[ast.AST] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and environ.asks(node):
            found.update(node.args[:1])
            found.update(each.value for each in node.keywords if each.arg == "key")
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            if environ.is_getter(node.value, "environ"):
                found.add(node.slice)
        elif isinstance(node, ast.Expr):
            found.add(node.value)
            found.update(_sentences(node.value) if isinstance(node.value, ast.Call) else ())
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found.update(_sentences(node.exc))
    return found


def _sentences(call: ast.Call) -> Iterator[ast.AST]:
    """Yield the texts of several words that a call tells people, which nothing comes back from."""
    name = last(call.func)
    if name in _TELLS or name.endswith(("Error", "Exception", "Warning")):
        for argument in call.args:
            for each in argument.values if isinstance(argument, ast.JoinedStr) else (argument,):
                if isinstance(each, ast.Constant) and isinstance(each.value, str) and " " in each.value.strip():
                    yield each


def _says(node: ast.AST, told: Told, keys: frozenset[str]) -> bool:
    """Tell whether a node has a variable's name, as a text, a name, or a name that it binds."""
    names = told.names | told.keys
    text = _text_in(node)
    if text is not None:
        return any(key in text.casefold() for key in keys)
    if isinstance(node, ast.keyword):
        return node.arg in names
    if isinstance(node, ast.Attribute):
        return node.attr in names
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.ImportFrom):
        return any(each.name in names and each.asname not in (None, each.name) for each in node.names)
    return not keys.isdisjoint(each.casefold() for each in bound_by(node))


def _text_in(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value if isinstance(node.value, str) else node.value.decode("latin-1")
    return None


def text_of(module: ast.Module, name: str) -> str | None:
    """Return the text that a module binds to a name, once and nowhere else; None where it does otherwise."""
    texts = [found[1] for statement in module.body if (found := _bound_text(statement)) and found[0] == name]
    stores = [each for each in ast.walk(module) if isinstance(each, ast.Name) and each.id == name and _stored(each)]
    others = any(name in bound_by(each) or "*" in bound_by(each) for each in ast.walk(module))
    return texts[0] if len(texts) == len(stores) == 1 and not others else None


def _bound_text(statement: ast.stmt) -> tuple[str, str] | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign):
        target = statement.target
    else:
        return None
    value = statement.value
    if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
        return target.id, value.value
    return None


def line_of(node: ast.Call) -> int:
    """The line of a call as the facts have it."""
    return (node.func.end_lineno if isinstance(node.func, ast.Attribute) else None) or node.lineno


def last(node: ast.expr) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _selects(node: ast.Call) -> bool:
    return last(node.func) in SELECT


def _own(scope: ast.Module | Function) -> Iterator[ast.AST]:
    """Yield what runs in a scope itself, without what has names of its own."""
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*_INNER, *_COMPREHENSIONS)):
            waiting += ast.iter_child_nodes(node)


def bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds, but for those of ``ast.Name``."""
    if isinstance(node, ast.Import):
        yield from ((each.asname or each.name.partition(".")[0]) for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (each.asname or each.name for each in node.names)
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif isinstance(node, ast.MatchMapping):
        yield node.rest or ""
    elif isinstance(node, (*_DEFINITIONS, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        yield node.name or ""


class _Environ:
    """What stands for ``os``, ``os.environ`` and ``os.getenv`` in one module, and for nothing else."""

    def __init__(self, module: ast.Module) -> None:
        ours: dict[str, set[str]] = {}
        taken: set[str] = set()
        for node in ast.walk(module):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                taken.add(node.id)
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and node.attr in _GETTERS:
                taken |= {"os", "*"}
            pairs = _os_names(node)
            for name, what in pairs:
                ours.setdefault(name, set()).add(what)
            if not pairs or len(pairs) < sum(1 for _ in bound_by(node)):
                rest = list(bound_by(node))
                for name, _ in pairs:
                    rest.remove(name)
                taken.update(rest)
        self._ours = {name: next(iter(what)) for name, what in ours.items() if len(what) == 1}
        if "*" in taken:  # a star import, or another object in its place
            self._ours = {}
        for name in taken:
            self._ours.pop(name, None)

    def asks(self, node: ast.Call) -> bool:
        """Tell whether a call is ``os.environ.get`` or ``os.getenv``."""
        return self.is_getter(node.func, "getenv") or (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and self.is_getter(node.func.value, "environ")
        )

    def is_getter(self, node: ast.expr, what: str) -> bool:
        """Tell whether an expression is ``os.environ`` or ``os.getenv``."""
        if isinstance(node, ast.Name):
            return self._ours.get(node.id) == what
        return (
            isinstance(node, ast.Attribute)
            and node.attr == what
            and isinstance(node.value, ast.Name)
            and self._ours.get(node.value.id) == "os"
        )


def _os_names(node: ast.AST) -> list[tuple[str, str]]:
    if isinstance(node, ast.Import):
        return [(each.asname or "os", "os") for each in node.names if each.name == "os"]
    if isinstance(node, ast.ImportFrom) and node.module == "os" and not node.level:
        return [(each.asname or each.name, each.name) for each in node.names if each.name in _GETTERS]
    return []


class _Elsewhere(Exception):  # noqa: N818 -- no error: the proof ends
    """A name can come from elsewhere."""


class _Proof:
    """That the name of one call comes from ENV alone, and what texts the code has for it."""

    def __init__(self, environ: _Environ, scope: ast.Module | Function) -> None:
        self._environ = environ
        self._scope = scope
        self._texts: set[str] = set()
        self._empty: dict[str, bool] = {}  # whether a variable can be None, said of one that is still looked at too
        self._keys: set[str] = set()
        self._names: set[str] = set()

    def of(self, call: ast.Call) -> Told | None:
        given = [each.value for each in call.keywords if each.arg == "name"]
        if len(given) != 1 or any(each.arg is None for each in call.keywords):
            return None
        try:
            if self._text(given[0]):  # None could ask for all of them, where the function is a wrapper
                return None
        except _Elsewhere:
            return None
        if not self._keys and not self._names:
            return None
        return Told(frozenset(self._texts), frozenset(self._keys), frozenset(self._names))

    def _key(self, node: ast.expr) -> None:
        """Note the variable that ENV is asked for."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._keys.add(node.value)
        elif isinstance(node, ast.Name):
            self._names.add(node.id)
        else:
            raise _Elsewhere

    def _text(self, node: ast.expr) -> bool:
        """Follow a text, and tell whether it can be None."""
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str)):
            self._texts.add(node.value or "")
            return node.value is None
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return [self._text(each) for each in node.values][-1]
        if isinstance(node, ast.Subscript) and self._environ.is_getter(node.value, "environ"):
            self._key(node.slice)
            return False
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Name):
            return self._variable(node.id)
        raise _Elsewhere

    def _call(self, node: ast.Call) -> bool:
        if self._environ.asks(node):
            named = [each.value for each in node.keywords if each.arg == "default"]
            defaults = [*node.args[1:], *named]
            if any(isinstance(each, ast.Starred) for each in node.args) or len(defaults) > 1:
                raise _Elsewhere
            if any(each.arg not in ("key", "default") for each in node.keywords):
                raise _Elsewhere
            keys = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "key")]
            if len(keys) != 1:
                raise _Elsewhere
            self._key(keys[0])
            return self._text(defaults[0]) if defaults else True
        if isinstance(node.func, ast.Attribute) and node.func.attr in _PIECE:
            self._text(node.func.value)
            return False  # None has no such method
        raise _Elsewhere

    def _pieces(self, node: ast.expr) -> None:
        """Follow what a loop goes through: the words of a text, or its letters."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PIECES:
            node = node.func.value
        self._text(node)

    def _variable(self, name: str) -> bool:
        """Follow every assignment to a variable of the function; others' can be set from anywhere."""
        if name in self._empty:
            return self._empty[name]
        self._empty[name] = True
        if isinstance(self._scope, ast.Module):
            raise _Elsewhere
        nodes = list(_own(self._scope))
        inner = [each for node in ast.walk(self._scope) for each in _rebinds(node)]
        arguments = [node for node in ast.walk(self._scope.args) if isinstance(node, ast.arg)]
        if name in inner or any(name in bound_by(node) for node in (*nodes, *arguments)):
            raise _Elsewhere
        stores = {node for node in nodes if isinstance(node, ast.Name) and node.id == name and _stored(node)}
        if not stores:
            raise _Elsewhere
        empty = False
        for node in nodes:
            if isinstance(node, ast.Assign) and any(each in stores for each in node.targets):
                stores.difference_update(each for each in node.targets if isinstance(each, ast.Name))
                empty |= self._text(node.value)
            elif isinstance(node, ast.AnnAssign) and node.target in stores and node.value is not None:
                stores.discard(node.target)
                empty |= self._text(node.value)
            elif isinstance(node, ast.For) and node.target in stores:
                stores.discard(node.target)
                self._pieces(node.iter)
        if stores:
            raise _Elsewhere  # bound otherwise: several at once, with, :=, +=, del
        self._empty[name] = empty
        return empty


def _rebinds(node: ast.AST) -> Iterator[str]:
    """Yield the names of an outer scope that a node can bind."""
    if isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id


def _stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)
