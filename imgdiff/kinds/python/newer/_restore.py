"""Puts what was rewritten back into the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from imgdiff.kinds.python._nodes import TypeAlias, TypeParameter
from imgdiff.kinds.python.newer._rewrite import Found, Parameter, Part, Shape
from imgdiff.kinds.python.newer._tokens import MisfitError


def restore(tree: ast.Module, found: Found) -> None:
    """Put back f-strings, type parameters and type aliases. Raises MisfitError where one has no place in the tree."""
    if found.strings or found.definitions or found.aliases:
        _Restorer(found).run(tree)


class _Restorer:
    """Walks one tree."""

    def __init__(self, found: Found) -> None:
        self.strings = dict(found.strings)
        self.definitions = dict(found.definitions)
        self.aliases = dict(found.aliases)

    def run(self, tree: ast.AST) -> None:
        """Restore all; nothing may be left over."""
        self.walk(tree)
        lines = [strings.line for strings in self.strings.values()]
        lines += [line for line, _ in (*self.definitions, *self.aliases)]
        if lines:
            raise MisfitError(min(lines))

    def walk(self, root: ast.AST) -> None:
        """Restore all below a node."""
        stack = [root]
        while stack:
            node = stack.pop()
            for field, value in ast.iter_fields(node):
                if isinstance(value, ast.AST):
                    if isinstance(value, ast.Call):
                        value = self.string(value)
                        setattr(node, field, value)
                    stack.append(value)
                elif isinstance(value, list):
                    for index, item in enumerate(value):
                        if isinstance(item, ast.AST):
                            value[index] = item = self.item(item)
                            stack.append(item)

    def item(self, node: ast.AST) -> ast.AST:
        """Return what stands for a node of a list."""
        if isinstance(node, ast.Call):
            return self.string(node)
        if isinstance(node, ast.Assign):
            return self.alias(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            parameters = self.definitions.pop((node.lineno, node.col_offset), None)
            if parameters is not None:
                vars(node)["type_params"] = self.parameters(parameters)  # a field of its class from Python 3.12 on
        return node

    def string(self, node: ast.expr) -> ast.expr:
        """Return the f-string that a placeholder stands for."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            return node
        strings = self.strings.pop(node.func.id, None)
        return node if strings is None else _joined(iter(node.args), strings.shape, node)

    def alias(self, node: ast.Assign) -> ast.stmt:
        """Return the type alias that an assignment stands for."""
        parameters = self.aliases.get((node.lineno, node.col_offset))
        if parameters is None or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return node
        del self.aliases[node.lineno, node.col_offset]
        made = _made(TypeAlias, name=node.targets[0], type_params=self.parameters(parameters), value=node.value)
        assert isinstance(made, ast.stmt)
        return ast.copy_location(made, node)

    def parameters(self, parameters: Sequence[Parameter]) -> list[ast.AST]:
        """Return type parameters."""
        return [
            _made(TypeParameter, name=each.name, bound=self.part(each.bound), default_value=self.part(each.default))
            for each in parameters
        ]

    def part(self, part: Part | None) -> ast.expr | None:
        """Return an expression that was kept as text."""
        if part is None:
            return None
        starred = part.text.lstrip().startswith("*")
        text = f"({part.text}\n,)" if starred else f"({part.text}\n)"
        try:
            tree = ast.parse(text, mode="eval")
        except SyntaxError:
            raise MisfitError(part.line) from None
        ast.increment_lineno(tree, part.line - 1)
        self.walk(tree)
        value = tree.body
        return value.elts[0] if starred and isinstance(value, ast.Tuple) else value


def _made(kind: type[ast.AST], **fields: Any) -> ast.AST:
    """Return a node, of whose fields the host's stubs may know nothing."""
    return kind(**fields)


def _joined(arguments: Iterator[ast.expr], shape: Shape, place: ast.expr) -> ast.JoinedStr:
    """Return an f-string from the arguments of a placeholder; texts that meet are one."""
    values: list[ast.expr] = []
    texts: list[str] = []

    def flush() -> None:
        text = "".join(texts)
        texts.clear()
        if text:
            values.append(ast.copy_location(ast.Constant(text), place))

    for item in shape:
        argument = next(arguments)
        if item is None:
            if not (isinstance(argument, ast.Constant) and type(argument.value) is str):
                raise MisfitError(argument.lineno)
            texts.append(argument.value)
            continue
        flush()
        spec = None if item.spec is None else _joined(arguments, item.spec, place)
        values.append(ast.copy_location(ast.FormattedValue(argument, item.conversion, spec), place))
    flush()
    return ast.copy_location(ast.JoinedStr(values), place)
