"""What a Python source refers to: its facts, from its syntax tree.

The bytecode extractor gives the same facts; ``_fold`` and ``_facts`` are what the two share. What a compiler does to
the text is done here too: constant tests fold, ``a`` + ``b`` of constants is one constant, a docstring is none.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Sequence
from typing import Any, Literal

from imgdiff.kinds._facts import VERSION, ScopeBuilder, parse
from imgdiff.kinds._fold import Dotted
from imgdiff.kinds.python import newer
from imgdiff.kinds.python._assignments import Assignments
from imgdiff.kinds.python._bindings import bindings, global_bindings, parameters
from imgdiff.kinds.python._folding import Frame
from imgdiff.kinds.python._nodes import TypeAlias
from imgdiff.kinds.python._plain import binds_only
from imgdiff.model import ModuleFacts, Unreadable

__all__ = ["VERSION", "facts"]

MAX_SIZE = 16 * 1024 * 1024
"""Bytes of a source that are parsed at most."""

End = Literal["never", "handled"] | None  # how statements end: not at all, by except blocks only, normally


def facts(source: bytes) -> ModuleFacts | Unreadable:
    """Return what a module refers to, from its source (PEP 263 encodings); Unreadable where no grammar fits.

    A source that this Python can't parse is read by the grammars of newer ones (see ``newer``).
    """
    if len(source) > MAX_SIZE:
        return Unreadable(f"The source is larger than {MAX_SIZE} bytes.")
    collects = gc.isenabled()
    gc.disable()  # a tree has no cycles, and looking for them costs a fifth of the time
    try:
        tree = parse(source) or newer.parse(source)
        if isinstance(tree, Unreadable):
            return tree
        return _Module(tree, source).run()
    except RecursionError:
        return Unreadable("The source nests too deeply.")
    finally:
        if collects:
            gc.enable()


class _Module(Assignments):
    """Visits the statements of one tree."""

    def run(self) -> ModuleFacts:
        """Return the facts."""
        body = self.tree.body
        found = bindings(body, self.walrus)
        self.builder.counts = found.counts
        for name in global_bindings(body, self.globals, self.walrus):
            self.builder.counts[name] = self.builder.counts.get(name, 0) + 2
        self.future = any(
            isinstance(statement, ast.ImportFrom)
            and statement.module == "__future__"
            and any(alias.name == "annotations" for alias in statement.names)
            for statement in body
        )
        self.body(_without_docstring(body))
        self.builder.binds_only = binds_only(body, future=self.future)
        while self.queue:
            self._function(*self.queue.pop())
        return self.builder.build()

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: ScopeBuilder, outer: Frame, types: frozenset[str]
    ) -> None:
        found = bindings(node.body, self.walrus)
        for name in parameters(node.args):
            found.add(name, 2)
        own = found.locals()
        hidden = ((outer.outer | types) - found.global_) | own
        frame = Frame(True, hidden, f"{scope.qualname}.<locals>.", outer.class_)
        frame.outer = hidden
        frame.counts = found.counts
        frame.globals = found.global_
        self.frame, self.scope = frame, scope
        self.depth = self.handler = 0
        self.exited = False
        self.body(_without_docstring(node.body))

    def body(self, statements: Sequence[ast.stmt]) -> End:
        """Visit statements up to the first that ends them; return how control reaches their end."""
        handled = 0
        end: End = None
        for statement in statements:
            handler = _STATEMENTS.get(type(statement))
            if handler is None:
                self._others(statement)
                continue
            end = handler(self, statement)
            if end == "never":
                break
            if end == "handled" and not handled:  # what follows is the handlers' own continuation
                handled = 1
                self.handler += 1
        self._unhandle(handled)
        return "never" if end == "never" else "handled" if handled else None

    def _unhandle(self, levels: int) -> None:
        """Leave except blocks: what they bound is forgotten."""
        self.handler -= levels
        if not self.handler and self.frame.volatile:
            for name in self.frame.volatile:
                self.frame.env.pop(name, None)
            self.frame.volatile.clear()

    def _others(self, statement: ast.stmt) -> None:
        for child in ast.iter_child_nodes(statement):
            self.expr(child)

    def nested(self, statements: Sequence[ast.stmt]) -> End:
        """Visit statements that may not run."""
        self.depth += 1
        end = self.body(statements)
        self.depth -= 1
        return end

    def s_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        frame = self.frame
        line = node.decorator_list[0].lineno if node.decorator_list else node.lineno
        qualname = node.name if node.name in frame.globals else frame.prefix + node.name
        scope = ScopeBuilder(qualname, line)
        for decorator in node.decorator_list:
            value = self.fold(decorator)
            scope.decorators.append(value.text if type(value) is Dotted and not value.text.startswith("?") else "?")
            self.expr(decorator)
        self.defaults(node.args)
        parameters = self.type_parameters(node)
        hidden = frame.hidden
        frame.hidden = hidden | parameters
        self.annotations(node)
        frame.hidden = hidden
        self.builder.scopes.append(scope)
        self.queue.append((node, scope, frame, parameters))
        self.store(node.name, None, node.lineno)

    def s_class(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.expr(decorator)
        outer = self.frame
        parameters = self.type_parameters(node)
        hidden = outer.hidden
        outer.hidden = hidden | parameters
        for base in (*node.bases, *[keyword.value for keyword in node.keywords]):
            if type(base) is ast.Name or type(base) is ast.Attribute:
                self.builder.base(node.name, self.fold(base))
        for base in node.bases:
            self.expr(base)
        for keyword in node.keywords:
            self.expr(keyword.value)
        outer.hidden = hidden
        found = bindings(node.body, self.walrus)
        prefix = f"{node.name}." if node.name in outer.globals else f"{outer.prefix}{node.name}."
        around = outer.outer | parameters
        frame = Frame(False, around - found.global_ - found.locals(), prefix, node.name)
        frame.outer = around | {"__class__"}
        frame.bound = found.locals()
        frame.globals = found.global_
        self.frame = frame
        self.body(_without_docstring(node.body))
        self.frame = outer
        self.store(node.name, None, node.lineno)

    def s_return(self, node: ast.Return) -> End:
        if node.value is not None:
            self.keep(node.value)
            self.expr(node.value)
        return self.leave()

    def leave(self) -> End:
        """Note that the scope can end here."""
        if not self.handler:
            self.exited = True
        return "never"

    def s_raise(self, node: ast.Raise) -> End:
        for part in (node.exc, node.cause):
            if part is not None:
                self.expr(part)
        return self.leave()

    def s_jump(self, _: ast.Break | ast.Continue) -> End:
        return "never"

    def s_nothing(self, _: ast.Global | ast.Nonlocal | ast.Pass) -> None:
        pass

    def s_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.expr(node.value)

    def s_assert(self, node: ast.Assert) -> End:
        truth, _ = self.test(node.test)
        if truth is True:
            return None
        if node.msg is not None:
            self.expr(node.msg, truth is None)
        self.leave()
        return None if truth is None else "never"

    def s_for(self, node: ast.For | ast.AsyncFor) -> None:
        if type(node) is ast.For:
            self.keep(node.iter)
        self.expr(node.iter)
        self.depth += 1
        self.assign(node.target, None)
        self.body(node.body)
        self.depth -= 1
        self.loop_else(node)

    def loop_else(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        """Visit the else of a loop: it may not run if there is a break."""
        if node.orelse:
            if _breaks(node.body):
                self.nested(node.orelse)
            else:
                self.body(node.orelse)

    def s_while(self, node: ast.While) -> End:
        self.depth += 1
        truth, _ = self.test(node.test)
        if truth is not False:
            self.body(node.body)
        self.depth -= 1
        if truth is True:
            return None if _breaks(node.body) else "never"
        self.loop_else(node)
        return None

    def s_if(self, node: ast.If) -> End:
        ends: list[End] = []
        depth = self.depth
        scope = self.scope
        while True:
            truth, side = self.test(node.test)
            if truth is None and (side is None or isinstance(node.test, ast.BoolOp)):
                self.depth += 1
            if truth is not False:
                if side == "main":
                    self.enter_main(node)
                ends.append(self.body(node.body))
                if side == "main" and ends[-1] != "never":
                    self.depth += 1
                self.scope = scope
            if truth is True:
                break
            if side == "other":
                self.enter_main(node)
            orelse = node.orelse
            if len(orelse) == 1 and isinstance(orelse[0], ast.If):
                node = orelse[0]
                continue
            ends.append(self.body(orelse))
            break
        self.depth = depth
        self.scope = scope
        return _join(ends)

    def s_with(self, node: ast.With | ast.AsyncWith) -> None:
        depth = self.depth
        for item in node.items:
            self.expr(item.context_expr)
            self.depth += 1
            if item.optional_vars is not None:
                self.assign(item.optional_vars, None)
        self.body(node.body)
        self.depth = depth

    def s_try(self, node: ast.Try) -> End:
        inside = 1 if node.finalbody else 0  # the finally guards handlers and else too
        self.depth += inside
        end = self.nested(node.body)
        self.depth += 1
        self.handler += 1
        handled = False
        for handler in node.handlers:
            if handler.type is not None:
                self.expr(handler.type)
            if handler.name is not None:
                self.store(handler.name, None, handler.lineno)
            if self.body(handler.body) != "never":
                handled = True
        self._unhandle(1)
        self.depth -= 1
        if end != "never":
            end = self.body(node.orelse)
        if handled and end == "never":
            end = "handled"
        self.depth -= inside
        last = self.nested(node.finalbody)
        return end if last is None else last

    def s_match(self, node: ast.Match) -> End:
        self.expr(node.subject)
        self.depth += 1
        irrefutable = False
        ends: list[End] = []
        for case in node.cases:
            self.pattern(case.pattern)
            if case.guard is not None:
                self.expr(case.guard)
            ends.append(self.body(case.body))
            if case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                irrefutable = True
        self.depth -= 1
        return _join(ends) if irrefutable else None


def _join(ends: Sequence[End]) -> End:
    """Return how control goes on where branches meet."""
    if None in ends:
        return None
    return "handled" if "handled" in ends else "never"


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
        return body[1:]
    return body


def _breaks(body: Sequence[ast.stmt]) -> bool:
    """Tell whether a loop's body has a break of its own."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Break):
            return True
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            stack.extend(node.orelse)
        elif isinstance(node, (ast.If, ast.With, ast.AsyncWith)):
            stack.extend(node.body)
            stack.extend(getattr(node, "orelse", ()))
        elif isinstance(node, (ast.Try, ast.TryStar)):
            stack.extend((*node.body, *node.orelse, *node.finalbody))
            for handler in node.handlers:
                stack.extend(handler.body)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                stack.extend(case.body)
    return False


_Handler = Callable[[_Module, Any], End]
_STATEMENTS: dict[type, _Handler] = {
    ast.Import: _Module.s_import,
    ast.ImportFrom: _Module.s_import_from,
    ast.FunctionDef: _Module.s_function,
    ast.AsyncFunctionDef: _Module.s_function,
    ast.ClassDef: _Module.s_class,
    ast.Return: _Module.s_return,
    ast.Raise: _Module.s_raise,
    ast.Break: _Module.s_jump,
    ast.Continue: _Module.s_jump,
    ast.Global: _Module.s_nothing,
    ast.Nonlocal: _Module.s_nothing,
    ast.Pass: _Module.s_nothing,
    ast.Expr: _Module.s_expr,
    ast.Assert: _Module.s_assert,
    ast.Assign: _Module.s_assign,
    ast.AugAssign: _Module.s_augmented,
    ast.AnnAssign: _Module.s_annotated,
    ast.Delete: _Module.s_delete,
    ast.For: _Module.s_for,
    ast.AsyncFor: _Module.s_for,
    ast.While: _Module.s_while,
    ast.If: _Module.s_if,
    ast.With: _Module.s_with,
    ast.AsyncWith: _Module.s_with,
    ast.Try: _Module.s_try,
    ast.TryStar: _Module.s_try,
    ast.Match: _Module.s_match,
    TypeAlias: _Module.s_type_alias,
}
