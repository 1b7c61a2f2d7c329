"""Visits the expressions of a source: the names, strings, patterns and calls in them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Literal

from imgdiff.kinds import _fold
from imgdiff.kinds._callees import INTERESTING, LAZY_MAKERS, LOOK_THROUGH_NOTHING
from imgdiff.kinds._facts import record, remembered
from imgdiff.kinds._fold import Bound, Dotted, Map, Value
from imgdiff.kinds.python._bindings import bindings, children, parameters
from imgdiff.kinds.python._folding import EMPTY, Folding, constant_text
from imgdiff.model import HOLE_NAME

Side = Literal["main", "other"] | None  # which branch of a test only a main module takes


class Expressions(Folding):
    """Visits expressions."""

    def maybe(self) -> bool:
        """Tell whether this statement may not run."""
        return self.depth > 0 or self.exited

    def store(self, name: str, value: Value, line: int, imported: str | None = None) -> None:
        """Bind a name to a folded value."""
        frame = self.frame
        if frame.function:
            if name in frame.globals:
                return
            if name not in frame.shadow and frame.counts.get(name, 0) == 1:
                kept = remembered(value)
                if kept is not None:
                    frame.env[name] = kept
                    if self.handler:
                        frame.volatile.append(name)
        elif (frame.prefix == "" or name in frame.globals) and self.scope is self.builder.module:
            self.builder.bind(name, value, line, handler=self.handler > 0, imported=imported)

    def load_name(self, name: str) -> None:
        """Note that a name is loaded."""
        if name not in self.frame.hidden and name != "__debug__":
            self.scope.names.add(self.mangle(name) if name[:2] == "__" else name)

    def enter_main(self, node: ast.AST) -> None:
        """Go on in the scope of what runs only in a main module."""
        self.scope = self.builder.main_scope(getattr(node, "lineno", 1))

    def expr(self, root: ast.AST, conditional: bool = False) -> None:
        """Visit an expression."""
        frame = self.frame
        maybe = conditional or self.depth > 0 or self.exited
        stack: list[ast.AST] = [root]
        todo = self.todo
        self.conditional = maybe
        hidden = frame.hidden
        names = self.scope.names
        strings = self.scope.strings
        private = frame.class_ is not None
        while True:
            while stack:
                node = stack.pop()
                kind = type(node)
                if kind is ast.Name:
                    name = node.id  # type: ignore[attr-defined] # the kind was just asked
                    if name not in hidden and name not in frame.shadow and name != "__debug__":
                        names.add(self.mangle(name) if private and name[:2] == "__" else name)
                elif kind is ast.Attribute:
                    name = node.attr  # type: ignore[attr-defined] # as above
                    names.add(self.mangle(name) if private and name[:2] == "__" else name)
                    value = node.value  # type: ignore[attr-defined] # as above
                    if (name == "parent" or name == "__dict__") and type(node.ctx) is ast.Load:  # type: ignore[attr-defined] # as above
                        self.fold(node)  # type: ignore[arg-type] # as above
                    stack.append(value)
                elif kind is ast.Constant:
                    if type(node.value) is str:  # type: ignore[attr-defined] # as above
                        strings.add(node.value)  # type: ignore[attr-defined] # as above
                else:
                    handler = _EXPRESSIONS.get(kind)
                    if handler is not None:
                        handler(self, node, stack)
                    else:
                        stack.extend(children(node))
            if not todo:
                break
            node, self.conditional, frame.shadow = todo.pop()
            stack.append(node)
        frame.shadow = EMPTY

    def later(self, node: ast.AST, stack: list[ast.AST]) -> None:
        """Visit a part that may not be evaluated."""
        if self.conditional:
            stack.append(node)
        else:
            self.todo.append((node, True, self.frame.shadow))

    def e_call(self, node: ast.Call, stack: list[ast.AST]) -> None:
        function = node.func
        if type(function) is ast.Name:
            last = function.id
        elif type(function) is ast.Attribute:
            last = function.attr
        else:
            last = ""
        if last in INTERESTING or last in self.builder.env or last in self.frame.env or last in _fold.CALLABLE:
            self.fold(node)
            value = self.fold(function)
            if (type(value) is Dotted and value.text.rpartition(".")[2] in INTERESTING) or type(value) is Bound:
                values, keywords = self.arguments(node)
                line = node.lineno
                if type(function) is ast.Attribute and function.end_lineno is not None:
                    line = function.end_lineno
                record(self.scope, value, values, keywords, line, self.conditional)
                last = value.name if type(value) is Bound else value.text.rpartition(".")[2]
                if self.scope is self.builder.module and last in LAZY_MAKERS:
                    for item in [*values, *[value for _, value in keywords]]:
                        if type(item) is Map:
                            self.builder.table(item)
        self._hand(node)
        stack.append(function)
        stack.extend(node.args)
        for keyword in node.keywords:
            if keyword.arg is None:
                self._keywords(keyword.value, stack)
            else:
                stack.append(keyword.value)

    def _hand(self, node: ast.Call) -> None:
        """Note what a call is handed as it is."""
        handed = [argument.value if type(argument) is ast.Starred else argument for argument in node.args]
        handed += [each.value for each in node.keywords if each.arg is not None or type(each.value) is ast.Dict]
        handed = [each for each in handed if type(each) in _HANDED]
        if not handed:
            return
        function = self.fold(node.func)
        kind = type(function)
        last = function.text.rpartition(".")[2] if kind is Dotted else function.name if kind is Bound else ""
        last = last.lstrip("?")
        if last not in LOOK_THROUGH_NOTHING:
            for each in handed:
                self.scope.hand(self.fold(each))

    def keep(self, value: ast.expr) -> None:
        """Note what code returns or goes through as it is."""
        if type(value) in _HANDED:
            self.scope.hand(self.fold(value))

    def _keywords(self, root: ast.expr, stack: list[ast.AST]) -> None:
        """Visit what ``**`` spreads in a call: the keys of dict displays are names of keywords."""
        displays = [root]
        while displays:
            value = displays.pop()
            if not isinstance(value, ast.Dict):
                stack.append(value)
                continue
            for key, item in zip(value.keys, value.values, strict=True):
                if key is None:
                    displays.append(item)
                    continue
                stack.append(item)
                if not isinstance(key, ast.Constant):
                    stack.append(key)

    def e_keyword(self, node: ast.keyword, stack: list[ast.AST]) -> None:
        stack.append(node.value)

    def e_binary(self, node: ast.BinOp, stack: list[ast.AST]) -> None:
        kind = type(node.op)
        if kind is ast.Add:
            operands: list[ast.expr] = [node.right]
            left = node.left
            while type(left) is ast.BinOp and type(left.op) is ast.Add:
                operands.append(left.right)
                left = left.left
            operands.append(left)
            if id(node) not in self.folded:
                self.fold(node)
            constant = constant_text(operands[-1])
            if constant is not None:
                operands.pop()
                while operands:
                    more = constant_text(operands[-1])
                    if more is None:
                        break
                    constant += more
                    operands.pop()
                self.scope.strings.add(constant)
            stack.extend(operands)
            return
        if kind is ast.Mod:
            template = constant_text(node.left)
            self.fold(node)
            if template is not None:
                self.scope.strings.update(_fold.pieces(template))
                stack.append(node.right)
                return
        elif kind is ast.Div:
            self.fold(node)
        elif kind is ast.Mult:
            constant = constant_text(node)
            if constant is not None:
                self.scope.strings.add(constant)
                return
        stack.append(node.left)
        stack.append(node.right)

    def e_joined(self, node: ast.JoinedStr, stack: list[ast.AST]) -> None:
        self.fold(node)
        stack.extend(node.values)

    def e_formatted(self, node: ast.FormattedValue, stack: list[ast.AST]) -> None:
        stack.append(node.value)
        spec = node.format_spec
        if isinstance(spec, ast.JoinedStr) and not all(isinstance(part, ast.Constant) for part in spec.values):
            stack.append(spec)

    def e_choice(self, node: ast.IfExp, stack: list[ast.AST]) -> None:
        truth = self.truth(node.test)
        if truth is None:
            stack.append(node.test)
            self.later(node.body, stack)
            self.later(node.orelse, stack)
        else:
            if not isinstance(node.test, ast.Constant):
                stack.append(node.test)
            stack.append(node.body if truth else node.orelse)

    def e_bool(self, node: ast.BoolOp, stack: list[ast.AST]) -> None:
        decides = isinstance(node.op, ast.Or)
        for index, value in enumerate(node.values):
            if index:
                self.later(value, stack)
            else:
                stack.append(value)
            if type(value) in (ast.Name, ast.Attribute, ast.Constant) and self.truth(value) is decides:
                break

    def e_compare(self, node: ast.Compare, stack: list[ast.AST]) -> None:
        stack.append(node.left)
        stack.append(node.comparators[0])
        for value in node.comparators[1:]:
            self.later(value, stack)
        left = node.left
        for comparison, right in zip(node.ops, node.comparators, strict=True):
            kind = type(comparison)
            if kind is ast.In or kind is ast.NotIn:
                self.compared(left)
                self.among(right)
            elif kind is not ast.Is and kind is not ast.IsNot:
                self.compared(left)
                self.compared(right)
            left = right

    def compared(self, node: ast.expr) -> None:
        """Note a number that something is compared with."""
        if type(node) in _NUMBERS:
            self.scope.compare(self.fold(node))

    def among(self, node: ast.expr) -> None:
        """Note the numbers in a display, or a name of one, in which something is looked for."""
        if type(node) is ast.Set:
            if all(type(element) is ast.Constant for element in node.elts):
                self.scope.among([self.fold(element) for element in node.elts])
        elif type(node) in _NUMBERS:
            self.scope.among(self.fold(node))

    def e_lambda(self, node: ast.Lambda, stack: list[ast.AST]) -> None:
        stack.extend(node.args.defaults)
        stack.extend([default for default in node.args.kw_defaults if default is not None])
        own = set(parameters(node.args))
        if self.walrus.touch(node):
            body = ast.copy_location(ast.Expr(node.body), node.body)
            own |= bindings([body], self.walrus).locals()
        self.todo.append((node.body, True, self.frame.shadow | own))

    def e_comprehension(self, node: Any, stack: list[ast.AST]) -> None:
        generators: list[ast.comprehension] = node.generators
        own: set[str] = set()
        for generator in generators:
            for part in ast.walk(generator.target):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    own.add(part.id)
        shadow = self.frame.shadow | own
        if not generators[0].is_async:
            self.keep(generators[0].iter)
        stack.append(generators[0].iter)
        inner: list[ast.AST] = []
        for index, generator in enumerate(generators):
            if index:
                inner.append(generator.iter)
            inner.extend(generator.ifs)
            if not isinstance(generator.target, ast.Name):
                inner.append(generator.target)
        if isinstance(node, ast.DictComp):
            inner += [node.key, node.value]
        else:
            inner.append(node.elt)
        self.todo.extend([(part, True, shadow) for part in inner])

    def e_walrus(self, node: ast.NamedExpr, stack: list[ast.AST]) -> None:
        if node.target.id not in self.frame.shadow:  # else it is a lambda's own
            self.store(node.target.id, self.fold(node.value), node.lineno)
        stack.append(node.value)

    def e_unary(self, node: ast.UnaryOp, stack: list[ast.AST]) -> None:
        if not isinstance(node.operand, ast.Constant):
            stack.append(node.operand)

    def e_subscript(self, node: ast.Subscript, stack: list[ast.AST]) -> None:
        if type(node.value) is ast.Attribute and node.value.attr == "parents":
            self.fold(node)
        stack.append(node.value)
        stack.append(node.slice)

    def test(self, node: ast.expr) -> tuple[bool | None, Side]:
        """Visit a test; return its truth where it folds, and which of its branches only a main module takes."""
        flip = False
        while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node, flip = node.operand, not flip
        truth, side = self._test(node)
        if flip:
            truth = None if truth is None else not truth
            side = None if side is None else "other" if side == "main" else "main"
        return truth, side

    def _test(self, node: ast.expr) -> tuple[bool | None, Side]:
        if isinstance(node, ast.BoolOp):
            return self._test_bool(node)
        truth = self.truth(node)
        if truth is not None:
            if not isinstance(node, ast.Constant):
                self.expr(node)
            return truth, None
        self.expr(node)
        return None, self._side(node)

    def _side(self, node: ast.expr) -> Side:
        """Tell whether a test compares ``__name__`` with "__main__"."""
        if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and self.is_module()):
            return None
        if {_plain(self.fold(node.left)), _plain(self.fold(node.comparators[0]))} != {HOLE_NAME, "__main__"}:
            return None
        return "main" if isinstance(node.ops[0], ast.Eq) else "other" if isinstance(node.ops[0], ast.NotEq) else None

    def _test_bool(self, node: ast.BoolOp) -> tuple[bool | None, Side]:
        """Visit ``and`` or ``or`` up to the value that decides."""
        decides = isinstance(node.op, ast.Or)
        scope, depth = self.scope, self.depth
        result: bool | None = not decides
        side: Side = None
        for value in node.values:
            truth, its = self.test(value)
            if its is not None and its == ("other" if decides else "main"):
                side = its
                self.enter_main(node)
            if truth is decides:
                result = decides
                break
            if truth is None:
                result = None
                self.depth = depth + 1
        self.scope, self.depth = scope, depth
        return result, side


def _plain(value: Value) -> str:
    return str(value) if isinstance(value, str) else ""


_HANDED = frozenset({ast.Name, ast.Attribute, ast.List, ast.Tuple, ast.Dict, ast.BinOp})
_NUMBERS = frozenset({ast.Constant, ast.Name, ast.Tuple, ast.List, ast.UnaryOp, ast.BinOp, ast.Subscript})
_EXPRESSIONS: dict[type, Callable[[Expressions, Any, list[ast.AST]], None]] = {
    ast.Call: Expressions.e_call,
    ast.keyword: Expressions.e_keyword,
    ast.BinOp: Expressions.e_binary,
    ast.JoinedStr: Expressions.e_joined,
    ast.FormattedValue: Expressions.e_formatted,
    ast.IfExp: Expressions.e_choice,
    ast.BoolOp: Expressions.e_bool,
    ast.Compare: Expressions.e_compare,
    ast.Lambda: Expressions.e_lambda,
    ast.ListComp: Expressions.e_comprehension,
    ast.SetComp: Expressions.e_comprehension,
    ast.DictComp: Expressions.e_comprehension,
    ast.GeneratorExp: Expressions.e_comprehension,
    ast.NamedExpr: Expressions.e_walrus,
    ast.Subscript: Expressions.e_subscript,
    ast.UnaryOp: Expressions.e_unary,
}
