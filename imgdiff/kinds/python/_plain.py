"""Whether a module's body does nothing but bind names, so that running it again changes nothing."""

from __future__ import annotations

import ast
from collections.abc import Sequence


def binds_only(body: Sequence[ast.stmt], *, future: bool) -> bool:
    """Tell whether statements do nothing but bind names: imports, functions, classes without bases, constants.

    ``future``: annotations are not evaluated (PEP 563).
    """
    stack = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.ClassDef):
            if node.bases or node.keywords or node.decorator_list or getattr(node, "type_params", None):
                return False
            stack.extend(node.body)
        elif isinstance(node, (ast.If, ast.While)) and _is_constant(node.test):
            if isinstance(node, ast.While) and _truth(node.test):
                return False
            stack.extend(node.body if _truth(node.test) else node.orelse)
        elif not _plain_statement(node, future):
            return False
    return True


def _plain_statement(node: ast.stmt, future: bool) -> bool:
    if isinstance(node, (ast.Import, ast.Pass)):
        return True
    if isinstance(node, ast.ImportFrom):
        return all(alias.name != "*" for alias in node.names)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return _plain_function(node, future)
    if isinstance(node, ast.Assign):
        return _plain_value(node.value) and all(isinstance(target, ast.Name) for target in node.targets)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id == "__debug__")


def _truth(node: ast.expr) -> bool:
    return bool(node.value) if isinstance(node, ast.Constant) else True


def _plain_function(node: ast.FunctionDef | ast.AsyncFunctionDef, future: bool) -> bool:
    arguments = node.args
    if node.decorator_list or getattr(node, "type_params", None):
        return False
    evaluated: list[ast.expr | None] = [*arguments.defaults, *arguments.kw_defaults]
    if not future:
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        evaluated += [argument.annotation for argument in every if argument is not None]
        evaluated.append(node.returns)
    return all(value is None or _plain_value(value) for value in evaluated)


def _plain_value(root: ast.expr) -> bool:
    """Tell whether evaluating an expression does nothing but load names and constants."""
    stack: list[ast.AST] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
            stack.extend(ast.iter_child_nodes(node))
        elif isinstance(node, ast.Lambda):
            stack.extend([default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None])
        elif isinstance(node, ast.UnaryOp):
            if not _is_number(node.operand):
                return False
        elif isinstance(node, ast.BinOp):
            if not _plain_arithmetic(node):
                return False
        elif not isinstance(node, (ast.Name, ast.Constant, ast.expr_context)):
            return False
    return True


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _plain_arithmetic(node: ast.BinOp) -> bool:
    """Tell whether the compiler computes this: two numbers, and no error."""
    if not (_is_number(node.left) and _is_number(node.right)):
        return False
    divides = isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant) and node.right.value != 0
    return divides or isinstance(node.op, (ast.Add, ast.Sub, ast.Mult))
