"""Visits the statements of a source that bind names without steering where control goes."""

from __future__ import annotations

import ast
from typing import Any

from imgdiff.kinds import _fold
from imgdiff.kinds._facts import SET_BY_COMPILER, identifiers, is_search_path
from imgdiff.kinds._fold import STAR, Dotted, Value
from imgdiff.kinds.python._expressions import Expressions


class Assignments(Expressions):
    """Visits imports, assignments, annotations and patterns."""

    def s_import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.scope.add_import(self.mangle(alias.name), (), 0, node.lineno, self.maybe())
            if alias.asname is not None:
                self.store(alias.asname, Dotted(alias.name), node.lineno)
            else:
                top = alias.name.partition(".")[0]
                self.store(top, Dotted(top), node.lineno)

    def s_import_from(self, node: ast.ImportFrom) -> None:
        names = tuple([alias.name for alias in node.names])
        level = node.level or 0
        self.scope.add_import(node.module or "", names, level, node.lineno, self.maybe())
        origin = "." * level + (node.module or "")
        for alias in node.names:
            if alias.name != "*":
                text = f"{origin}.{alias.name}" if node.module else f"{origin}{alias.name}"
                self.store(alias.asname or alias.name, Dotted(text), node.lineno, imported=alias.name)

    def defaults(self, arguments: ast.arguments) -> None:
        """Visit the default values of parameters."""
        for default in arguments.defaults:
            self.expr(default)
        for keyword_default in arguments.kw_defaults:
            if keyword_default is not None:
                self.expr(keyword_default)

    def type_parameters(self, node: ast.AST) -> frozenset[str]:
        """Visit bounds and defaults of type parameters (PEP 695); return their names, which are no global ones."""
        parameters = getattr(node, "type_params", ())
        names = frozenset([parameter.name for parameter in parameters])
        hidden = self.frame.hidden
        self.frame.hidden = hidden | names
        for parameter in parameters:
            for field in ("bound", "default_value"):
                value = getattr(parameter, field, None)
                if value is not None:
                    self.expr(value)
        self.frame.hidden = hidden
        return names

    def annotations(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Visit a function's annotations."""
        arguments = node.args
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ):
            if argument is not None and argument.annotation is not None:
                self.annotation(argument.annotation)
        if node.returns is not None:
            self.annotation(node.returns)

    def annotation(self, node: ast.expr) -> None:
        """Note the names of an annotation: of its text where it is one, or where it is never evaluated."""
        if self.future:
            self.scope.names.update(_annotation_names(node))
        elif isinstance(node, ast.Constant) and type(node.value) is str:
            self.scope.names.update(identifiers(node.value))
        else:
            self.expr(node.value if isinstance(node, ast.Starred) else node)

    def s_assign(self, node: ast.Assign) -> None:
        value = node.value
        if (
            isinstance(value, ast.Constant)
            and not self.frame.function
            and all(isinstance(target, ast.Name) and target.id in SET_BY_COMPILER for target in node.targets)
        ):
            folded: Value = value.value
        else:
            folded = self.fold(value)
            self.expr(value)
        for target in node.targets:
            self.assign(target, folded)

    def s_augmented(self, node: ast.AugAssign) -> None:
        target = node.target
        value = self.fold(node.value)
        self.expr(node.value)
        if isinstance(target, ast.Name):
            self.load_name(target.id)
            left = self.name_value(target.id)
            if target.id == "__all__" and self.is_module():
                self.builder.export(value)
            result = self.operate(node.op, left, value)
            self.store(target.id, result if target.id != "__all__" else None, target.lineno)
        else:
            if isinstance(target, ast.Attribute):
                self.scope.names.add(self.mangle(target.attr))
                left = _fold.attribute(self.scope.patterns, self.fold(target.value), self.mangle(target.attr))
            else:
                left = None
            result = self.operate(node.op, left, value)
            if isinstance(target, ast.Subscript):
                self.entry(target, result)
            self.search_path(target, result)
            self.target(target)

    def s_annotated(self, node: ast.AnnAssign) -> None:
        folded: Value = None
        if node.value is not None:
            folded = self.fold(node.value)
            self.expr(node.value)
        if not self.frame.function:
            if node.simple:
                self.annotation(node.annotation)
            elif not self.future and not isinstance(node.annotation, ast.Constant):
                self.expr(node.annotation)
        if node.value is not None:
            self.assign(node.target, folded)
        else:
            if not isinstance(node.target, ast.Name):
                self.target(node.target)

    def s_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self.target(target)

    def assign(self, target: ast.expr, value: Value) -> None:
        """Bind a target to a folded value."""
        if isinstance(target, ast.Name):
            self.store(target.id, value, target.lineno)
            return
        stack: list[tuple[ast.expr, Value]] = [(target, value)]
        while stack:
            target, value = stack.pop()
            if isinstance(target, ast.Name):
                self.store(target.id, value, target.lineno)
            elif isinstance(target, (ast.Tuple, ast.List)):
                known = (
                    isinstance(value, (tuple, list))
                    and len(value) == len(target.elts)
                    and STAR not in value
                    and not any(isinstance(element, ast.Starred) for element in target.elts)
                )
                for index, element in enumerate(target.elts):
                    stack.append((element, value[index] if known else None))
            elif isinstance(target, ast.Starred):
                stack.append((target.value, None))
            else:
                if isinstance(target, ast.Subscript):
                    self.entry(target, value)
                self.search_path(target, value)
                self.scope.hand(value)
                self.target(target)

    def search_path(self, target: ast.expr, value: Value) -> None:
        """Note what is assigned to sys.path or a part of it."""
        if isinstance(target, ast.Subscript):
            target = target.value
            if not (isinstance(target, ast.Name) or (isinstance(target, ast.Attribute) and target.attr == "path")):
                return
        elif not (isinstance(target, ast.Attribute) and target.attr == "path"):
            return
        if is_search_path(self.fold(target)):
            self.scope.add_call("path.assign", [value], (), target.lineno, self.maybe())

    def entry(self, target: ast.Subscript, value: Value) -> None:
        """Note an item that the module's body sets, which a table of lazy names may be made of."""
        if self.is_module() and self.scope is self.builder.module:
            key = self.fold(target.slice)
            if type(key) is str:
                self.builder.entry(key, value)

    def target(self, target: ast.expr) -> None:
        """Visit what a target loads."""
        if isinstance(target, ast.Attribute):
            self.expr(target.value)
        elif isinstance(target, ast.Subscript):
            self.expr(target.value)
            self.expr(target.slice)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self.target(element)

    def pattern(self, root: ast.pattern) -> None:
        """Visit the values and classes of a match pattern."""
        stack: list[ast.AST] = [root]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.MatchValue):
                self.expr(node.value)
                self.compared(node.value)
            elif isinstance(node, ast.MatchClass):
                self.expr(node.cls)
                self.scope.names.update(node.kwd_attrs)
                stack.extend(node.patterns)
                stack.extend(node.kwd_patterns)
            elif isinstance(node, ast.MatchMapping):
                for key in node.keys:
                    self.expr(key)
                stack.extend(node.patterns)
                if node.rest is not None:
                    self.store(node.rest, None, node.lineno)
            else:
                if isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name is not None:
                    self.store(node.name, None, node.lineno)
                stack.extend(ast.iter_child_nodes(node))

    def s_type_alias(self, node: Any) -> None:
        hidden = self.frame.hidden
        self.frame.hidden = hidden | self.type_parameters(node)
        self.expr(node.value)
        self.frame.hidden = hidden
        self.store(node.name.id, None, node.lineno)


def _annotation_names(root: ast.expr) -> set[str]:
    """Return the names in an annotation that is kept as text (PEP 563)."""
    names: set[str] = set()
    stack: list[ast.AST] = [root]
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind is ast.Name:
            names.add(node.id)  # type: ignore[attr-defined] # the kind was just asked
        elif kind is ast.Attribute:
            names.add(node.attr)  # type: ignore[attr-defined] # as above
            stack.append(node.value)  # type: ignore[attr-defined] # as above
        elif kind is ast.Constant:
            if type(node.value) in (str, bytes):  # type: ignore[attr-defined] # as above
                names |= identifiers(repr(node.value))  # type: ignore[attr-defined] # as above
        elif kind in (ast.Subscript, ast.Tuple, ast.List, ast.BinOp, ast.Starred):
            stack.extend(ast.iter_child_nodes(node))
        elif not isinstance(node, (ast.expr_context, ast.operator)):
            try:
                names |= identifiers(ast.unparse(node))
            except RecursionError:
                names |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names - {"None", "True", "False"}
