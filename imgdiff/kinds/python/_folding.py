"""What the expressions of a source fold to."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from imgdiff.kinds import _fold
from imgdiff.kinds._facts import ModuleBuilder, ScopeBuilder
from imgdiff.kinds._fold import STAR, Bound, Dotted, Made, Map, Value
from imgdiff.kinds.python._bindings import Lines
from imgdiff.model import HOLE

MAX_DEPTH = 60
"""Levels of an expression that folding looks into."""
_MAX_FOLDED = 4096  # characters of a constant that the compiler makes by repetition

EMPTY: frozenset[str] = frozenset()


class Frame:
    """Where we are: a scope's rules for names, and its folded local variables."""

    __slots__ = (
        "bound",
        "class_",
        "counts",
        "env",
        "function",
        "globals",
        "hidden",
        "outer",
        "prefix",
        "shadow",
        "volatile",
    )

    def __init__(self, function: bool, hidden: frozenset[str], prefix: str, class_: str | None) -> None:
        self.function = function  # a function's locals are no names; a class's and the module's are
        self.hidden = hidden  # local variables of this function and those around it
        self.outer: frozenset[str] = EMPTY  # what a function nested here must not count
        self.shadow: frozenset[str] = EMPTY  # variables of the comprehensions and lambdas that we are in
        self.prefix = prefix  # of qualified names
        self.class_ = class_  # for private names
        self.bound: set[str] | frozenset[str] = EMPTY  # a class body's own names
        self.globals: set[str] | frozenset[str] = EMPTY
        self.counts: dict[str, int] = {}
        self.env: dict[str, Value] = {}
        self.volatile: list[str] = []  # bound by an except block, and forgotten behind it


class Folding:
    """The state of a run over one tree, and folding in it."""

    def __init__(self, tree: ast.Module, source: bytes) -> None:
        self.tree = tree
        self.walrus = Lines(source, b":=")
        self.globals = Lines(source, b"global")
        self.builder = ModuleBuilder()
        self.scope = self.builder.module
        self.frame = Frame(False, EMPTY, "", None)
        self.future = False
        self.folded: dict[int, Value] = {}
        self.queue: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ScopeBuilder, Frame, frozenset[str]]] = []
        self.depth = 0  # of conditional statements
        self.handler = 0  # of except blocks
        self.exited = False
        self.todo: list[tuple[ast.AST, bool, frozenset[str]]] = []  # node, conditional, shadow
        self.conditional = False

    def is_module(self) -> bool:
        """Tell whether statements bind in the module itself."""
        return self.frame.prefix == "" and not self.frame.function

    def mangle(self, name: str) -> str:
        """Return a private name as the compiler writes it."""
        class_ = self.frame.class_
        if class_ is None or name[:2] != "__" or name[-2:] == "__" or "." in name:
            return name
        stripped = class_.lstrip("_")
        return f"_{stripped}{name}" if stripped else name

    def name_value(self, name: str) -> Value:
        """Return what a name folds to here."""
        frame = self.frame
        if name[:2] == "__":
            name = self.mangle(name)
        if name in frame.hidden or name in frame.shadow:
            return frame.env[name] if name in frame.env and name not in frame.shadow else Dotted(f"?{name}")
        if name in frame.bound:
            return Dotted(name)
        return self.builder.load(name)

    def truth(self, node: ast.expr) -> bool | None:
        """Return what a test folds to, as the compiler and ``TYPE_CHECKING`` have it."""
        if isinstance(node, ast.Constant):
            return bool(node.value)
        if isinstance(node, ast.Name):
            if node.id == "__debug__":
                return True
            return False if self.builder.is_checking(self.fold(node)) else None
        if isinstance(node, ast.Attribute):
            return False if node.attr == "TYPE_CHECKING" and self.builder.is_checking(self.fold(node)) else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand)
            return None if inner is None else not inner
        if isinstance(node, ast.Tuple) and not node.elts:
            return False
        return None

    def arguments(self, node: ast.Call, depth: int = 0) -> tuple[list[Value], list[tuple[str, Value]]]:
        """Fold a call's arguments."""
        values: list[Value] = []
        for argument in node.args:
            self._element(argument, values, depth)
        keywords = [
            (keyword.arg, self.fold(keyword.value, depth + 1)) for keyword in node.keywords if keyword.arg is not None
        ]
        return values, keywords

    def _element(self, node: ast.expr, values: list[Value], depth: int) -> None:
        if isinstance(node, ast.Starred):
            inner = self.fold(node.value, depth + 1)
            if isinstance(inner, (tuple, list)):
                values.extend(inner)
            else:
                values.append(STAR)
        else:
            values.append(self.fold(node, depth + 1))

    def fold(self, node: ast.expr, depth: int = 0) -> Value:
        """Return what an expression folds to."""
        kind = type(node)
        if kind is ast.Constant:
            value = node.value  # type: ignore[attr-defined] # the kind was just asked
            return value if type(value) in (str, int, bool, float) else None
        if kind is ast.Name:
            return self.name_value(node.id)  # type: ignore[attr-defined] # as above
        handler = _FOLDS.get(kind)
        if handler is None or depth > MAX_DEPTH:
            return None
        key = id(node)
        if key in self.folded:
            return self.folded[key]
        value = handler(self, node, depth)
        self.folded[key] = value
        return value

    def operate(self, operator: ast.operator, left: Value, right: Value) -> Value:
        """Fold an operator."""
        patterns = self.scope.patterns
        if isinstance(operator, ast.Add):
            return _fold.add(patterns, left, right)
        if isinstance(operator, ast.Div):
            return _fold.divide(patterns, left, right)
        if isinstance(operator, ast.Mod) and isinstance(left, str) and not isinstance(left, Made):
            return _fold.modulo(patterns, left, right)
        return None

    def f_attribute(self, node: ast.Attribute, depth: int) -> Value:
        return _fold.attribute(self.scope.patterns, self.fold(node.value, depth + 1), self.mangle(node.attr))

    def f_call(self, node: ast.Call, depth: int) -> Value:
        function = self.fold(node.func, depth + 1)
        if type(function) is Dotted:
            if function.text.rpartition(".")[2] not in _fold.FUNCTIONS:
                return None
        elif type(function) is not Bound:
            return None
        values, keywords = self.arguments(node, depth)
        return _fold.call(self.scope.patterns, function, values, keywords)

    def f_binary(self, node: ast.BinOp, depth: int) -> Value:
        chain = [node]
        while type(node.op) is ast.Add and type(node.left) is ast.BinOp and type(node.left.op) is ast.Add:
            node = node.left
            chain.append(node)
        if type(node.left) is ast.Constant or type(node.left) is ast.BinOp or type(node.left) is ast.UnaryOp:
            number = constant_number(chain[0])
            if number is not None:
                self.folded[id(chain[0])] = number
                return number
        value = self.fold(node.left, depth + 1)
        while chain:
            node = chain.pop()
            constant = constant_text(node)
            if constant is not None and len(constant) <= _fold.MAX_TEXT:
                value = constant
            else:
                value = self.operate(node.op, value, self.fold(node.right, depth + 1))
            self.folded[id(node)] = value
        return value

    def f_joined(self, node: ast.JoinedStr, depth: int) -> Value:
        plain_text = constant_text(node)
        if plain_text is not None:
            return plain_text
        patterns = self.scope.patterns
        parts: list[str] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                plain = part.conversion in (-1, 115) and part.format_spec is None
                if len(node.values) == 1:
                    value = self.fold(part.value, depth + 1) if plain else None
                    return value if isinstance(value, str) else None
                parts.append(patterns.take(self.fold(part.value, depth + 1)) if plain else HOLE)
            else:
                parts.append(patterns.take(self.fold(part, depth + 1)))
        return patterns.make(parts)

    def f_sequence(self, node: ast.Tuple | ast.List, depth: int) -> Value:
        values: list[Value] = []
        for element in node.elts:
            self._element(element, values, depth)
        if len(values) > _fold.MAX_ITEMS:
            return None
        return tuple(values) if type(node) is ast.Tuple else values

    def f_dict(self, node: ast.Dict, depth: int) -> Value:
        pairs: list[tuple[Value, Value]] = []
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.fold(item, depth + 1)
            if key is not None:
                pairs.append((self.fold(key, depth + 1), value))
            elif type(value) is Map:
                pairs.extend(value.pairs)
        return Map(pairs)

    def f_choice(self, node: ast.IfExp, depth: int) -> Value:
        truth = self.truth(node.test)
        body, orelse = self.fold(node.body, depth + 1), self.fold(node.orelse, depth + 1)
        if truth is not None:
            return body if truth else orelse
        return body if _fold.same(body, orelse) else None

    def f_bool(self, node: ast.BoolOp, depth: int) -> Value:
        values = [self.fold(value, depth + 1) for value in node.values]
        return values[0] if all(_fold.same(values[0], value) for value in values[1:]) else None

    def f_walrus(self, node: ast.NamedExpr, depth: int) -> Value:
        return self.fold(node.value, depth + 1)

    def f_subscript(self, node: ast.Subscript, depth: int) -> Value:
        if type(node.value) is ast.Constant:
            return constant_number(node)
        if type(node.slice) is not ast.Constant and type(node.slice) is not ast.Name:
            return None
        return _fold.subscript(self.scope.patterns, self.fold(node.value, depth + 1), self.fold(node.slice))

    def f_unary(self, node: ast.UnaryOp, _: int) -> Value:
        return constant_number(node)


_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
_SIGNS: dict[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
_MAX_BITS = 128  # of a number that the compiler makes


def constant_number(node: ast.expr, depth: int = 0) -> int | float | None:
    """Return the number that the compiler makes of an expression of numbers (CPython's ``Python/ast_opt.c``)."""
    kind = type(node)
    if kind is ast.Constant:
        value = node.value  # type: ignore[attr-defined] # the kind was just asked
        return value if type(value) is int or type(value) is float else None
    if depth > MAX_DEPTH:
        return None
    if kind is ast.UnaryOp:
        sign = _SIGNS.get(type(node.op))  # type: ignore[attr-defined] # as above
        value = constant_number(node.operand, depth + 1)  # type: ignore[attr-defined] # as above
        if sign is None or value is None or (sign is operator.invert and type(value) is float):
            return None
        signed: int | float = sign(value)
        return signed
    if kind is ast.Subscript:
        return _item(node)  # type: ignore[arg-type] # as above
    if kind is not ast.BinOp:
        return None
    right = constant_number(node.right, depth + 1)  # type: ignore[attr-defined] # as above
    left = None if right is None else constant_number(node.left, depth + 1)  # type: ignore[attr-defined] # as above
    return None if left is None or right is None else _arithmetic(type(node.op), left, right)  # type: ignore[attr-defined] # as above


def _item(node: ast.Subscript) -> int | None:
    """``b"x"[0]``: a constant to the compiler."""
    index = constant_number(node.slice)
    value = node.value.value if isinstance(node.value, ast.Constant) else None
    if type(value) is not bytes or type(index) is not int or not -len(value) <= index < len(value):
        return None
    return value[index]


def _arithmetic(kind: type, left: int | float, right: int | float) -> int | float | None:
    operate = _ARITHMETIC.get(kind)
    if operate is None or abs(left) >= 1 << _MAX_BITS or (kind in (ast.Pow, ast.LShift) and not 0 <= right < _MAX_BITS):
        return None
    try:
        value = operate(left, right)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return value if type(value) is int or type(value) is float else None


def constant_text(node: ast.expr) -> str | None:
    """Return the string that the compiler makes of an expression of string constants."""
    if type(node) is ast.Constant:
        return node.value if type(node.value) is str else None
    if type(node) is ast.JoinedStr and len(node.values) == 1:
        only = node.values[0]
        return only.value if type(only) is ast.Constant and type(only.value) is str else None
    if type(node) is not ast.BinOp:
        return None
    parts: list[str] = []
    size = 0
    while type(node) is ast.BinOp and type(node.op) is ast.Add:
        right = node.right if type(node.right) is not ast.BinOp else None
        text = right.value if type(right) is ast.Constant else constant_text(node.right) if right is None else None
        if type(text) is not str:
            return None
        parts.append(text)
        size += len(text)
        node = node.left
    if type(node) is ast.BinOp:
        if type(node.op) is not ast.Mult:
            return None
        left, right_node = node.left, node.right
        text = left.value if type(left) is ast.Constant else None
        times = right_node.value if type(right_node) is ast.Constant else None
        if type(text) is int:
            text, times = times, text
        if type(text) is not str or type(times) is not int or not 0 <= times * len(text) <= _MAX_FOLDED or times < 0:
            return None
        parts.append(text * times)
    elif type(node) is ast.Constant and type(node.value) is str:
        parts.append(node.value)
    else:
        return None
    return "".join(reversed(parts))


_FOLDS: dict[type, Callable[[Folding, Any, int], Value]] = {
    ast.Attribute: Folding.f_attribute,
    ast.Call: Folding.f_call,
    ast.BinOp: Folding.f_binary,
    ast.JoinedStr: Folding.f_joined,
    ast.Tuple: Folding.f_sequence,
    ast.List: Folding.f_sequence,
    ast.Dict: Folding.f_dict,
    ast.IfExp: Folding.f_choice,
    ast.BoolOp: Folding.f_bool,
    ast.NamedExpr: Folding.f_walrus,
    ast.Subscript: Folding.f_subscript,
    ast.UnaryOp: Folding.f_unary,
}
