"""What a Python source refers to: its facts, from its syntax tree.

The bytecode extractor gives the same facts; ``_fold`` and ``_facts`` are what the two share. What a compiler does to
the text is done here too: constant tests fold, ``a`` + ``b`` of constants is one constant, a docstring is none.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Literal

from imgdiff.kinds import _fold
from imgdiff.kinds._callees import INTERESTING, LAZY_MAKERS
from imgdiff.kinds._facts import (
    SET_BY_COMPILER,
    VERSION,
    ModuleBuilder,
    ScopeBuilder,
    identifiers,
    parse,
    record,
    remembered,
)
from imgdiff.kinds._fold import STAR, Bound, Dotted, Made, Map, Value
from imgdiff.kinds.python._bindings import Bindings, bindings, parameters
from imgdiff.model import HOLE, ModuleFacts, Unreadable

__all__ = ["VERSION", "facts"]

MAX_SIZE = 16 * 1024 * 1024
"""Bytes of a source that are parsed at most."""
MAX_DEPTH = 60
"""Levels of an expression that folding looks into."""
_MAX_FOLDED = 4096  # characters of a constant that the compiler makes by repetition

Side = Literal["main", "other"] | None
_EMPTY: frozenset[str] = frozenset()


def facts(source: bytes) -> ModuleFacts | Unreadable:
    """Return what a module refers to, from its source (PEP 263 encodings); Unreadable where this Python can't parse."""
    if len(source) > MAX_SIZE:
        return Unreadable(f"The source is larger than {MAX_SIZE} bytes.")
    tree = parse(source)
    if tree is None:
        return Unreadable("The Python that runs imgdiff can't parse this source.")
    try:
        return _Module(tree, source).run()
    except RecursionError:
        return Unreadable("The source nests too deeply.")


class _Frame:
    """Where we are: a scope's rules for names, and its folded local variables."""

    __slots__ = ("bound", "class_", "counts", "env", "function", "globals", "hidden", "outer", "prefix", "shadow")

    def __init__(self, function: bool, hidden: frozenset[str], prefix: str, class_: str | None) -> None:
        self.function = function  # a function's locals are no names; a class's and the module's are
        self.hidden = hidden  # local variables of this function and those around it
        self.outer: frozenset[str] = _EMPTY  # what a function nested here must not count
        self.shadow: frozenset[str] = _EMPTY  # variables of the comprehensions and lambdas that we are in
        self.prefix = prefix  # of qualified names
        self.class_ = class_  # for private names
        self.bound: set[str] | frozenset[str] = _EMPTY  # a class body's own names
        self.globals: set[str] | frozenset[str] = _EMPTY
        self.counts: dict[str, int] = {}
        self.env: dict[str, Value] = {}


class _Module:
    """One run over one tree."""

    def __init__(self, tree: ast.Module, source: bytes) -> None:
        self.tree = tree
        self.walrus = b":=" in source
        self.globals = b"global" in source
        self.builder = ModuleBuilder()
        self.scope = self.builder.module
        self.frame = _Frame(False, _EMPTY, "", None)
        self.future = False
        self.folded: dict[int, Value] = {}
        self.queue: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ScopeBuilder, _Frame]] = []
        self.depth = 0  # of conditional statements
        self.handler = 0  # of except blocks
        self.exited = False
        self.in_function = False
        self.todo: list[tuple[ast.AST, bool, frozenset[str]]] = []  # node, conditional, shadow
        self.conditional = False

    # --- flow --------------------------------------------------------------------------------------------------------

    def run(self) -> ModuleFacts:
        """Return the facts."""
        body = self.tree.body
        found = bindings(body, self.walrus)
        self.builder.counts = found.counts
        if self.globals:
            self._count_globals()
        self.future = any(
            isinstance(statement, ast.ImportFrom)
            and statement.module == "__future__"
            and any(alias.name == "annotations" for alias in statement.names)
            for statement in body
        )
        self.body(_without_docstring(body))
        self.builder.binds_only = _binds_only(body, self)
        while self.queue:
            node, scope, outer = self.queue.pop()
            self._function(node, scope, outer)
        return self.builder.build()

    def _count_globals(self) -> None:
        """A function or class that declares a name global can bind it: such names don't fold."""
        counts = self.builder.counts
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found = bindings(node.body, self.walrus)
                for name in found.global_ & found.counts.keys():
                    counts[name] = counts.get(name, 0) + 2

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: ScopeBuilder, outer: _Frame) -> None:
        found = bindings(node.body, self.walrus)
        for name in parameters(node.args):
            found.add(name, 2)
        own = found.locals()
        hidden = (outer.outer - found.global_) | own
        frame = _Frame(True, hidden, f"{scope.qualname}.<locals>.", outer.class_)
        frame.outer = hidden
        frame.counts = found.counts
        frame.globals = found.global_
        self.frame, self.scope = frame, scope
        self.depth = self.handler = 0
        self.exited, self.in_function = False, True
        self.body(_without_docstring(node.body))

    def body(self, statements: Sequence[ast.stmt]) -> bool:
        """Visit statements up to the first that ends them; tell whether control reaches their end."""
        for statement in statements:
            handler = _STATEMENTS.get(type(statement))
            if handler is None:
                self._others(statement)
            elif handler(self, statement) is False:
                return False
        return True

    def _others(self, statement: ast.stmt) -> None:
        for child in ast.iter_child_nodes(statement):
            self.expr(child)

    def nested(self, statements: Sequence[ast.stmt]) -> bool:
        """Visit statements that may not run."""
        self.depth += 1
        falls = self.body(statements)
        self.depth -= 1
        return falls

    # --- statements --------------------------------------------------------------------------------------------------

    def s_import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.scope.add_import(alias.name, (), 0, node.lineno, self.maybe())
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

    def maybe(self) -> bool:
        """Tell whether this statement may not run."""
        return self.depth > 0 or self.exited

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
        self.type_parameters(node)
        self.annotations(node)
        self.builder.scopes.append(scope)
        self.queue.append((node, scope, frame))
        self.store(node.name, None, node.lineno)

    def defaults(self, arguments: ast.arguments) -> None:
        """Visit the default values of parameters."""
        for default in arguments.defaults:
            self.expr(default)
        for keyword_default in arguments.kw_defaults:
            if keyword_default is not None:
                self.expr(keyword_default)

    def type_parameters(self, node: ast.AST) -> None:
        """Visit bounds and defaults of type parameters (PEP 695)."""
        for parameter in getattr(node, "type_params", ()):
            for field in ("bound", "default_value"):
                value = getattr(parameter, field, None)
                if value is not None:
                    self.expr(value)

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

    def s_class(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.expr(decorator)
        for base in node.bases:
            self.expr(base)
        for keyword in node.keywords:
            self.expr(keyword.value)
        self.type_parameters(node)
        outer = self.frame
        found = bindings(node.body, self.walrus)
        prefix = f"{node.name}." if node.name in outer.globals else f"{outer.prefix}{node.name}."
        frame = _Frame(
            False, (outer.outer - found.global_ - found.locals()) if outer.outer else _EMPTY, prefix, node.name
        )
        frame.outer = outer.outer | {"__class__"}
        frame.bound = found.locals()
        frame.globals = found.global_
        self.frame = frame
        in_function, self.in_function = self.in_function, False
        self.body(_without_docstring(node.body))
        self.in_function = in_function
        self.frame = outer
        self.store(node.name, None, node.lineno)

    def s_return(self, node: ast.Return) -> bool:
        if node.value is not None:
            self.expr(node.value)
        return self.leave()

    def leave(self) -> bool:
        """Note that the scope can end here."""
        if not self.handler:
            self.exited = True
        return False

    def s_raise(self, node: ast.Raise) -> bool:
        for part in (node.exc, node.cause):
            if part is not None:
                self.expr(part)
        return self.leave()

    def s_break(self, node: ast.Break) -> bool:
        return False

    def s_continue(self, node: ast.Continue) -> bool:
        return False

    def s_global(self, node: ast.Global) -> None:
        pass

    def s_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.expr(node.value)

    def s_assert(self, node: ast.Assert) -> bool:
        truth, _ = self.test(node.test)
        if truth is True:
            return True
        if node.msg is not None:
            self.expr(node.msg, truth is None)
        self.leave()
        return truth is None

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
            self.operate(node.op, left, value)
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

    def s_for(self, node: ast.For | ast.AsyncFor) -> None:
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

    def s_while(self, node: ast.While) -> bool | None:
        self.depth += 1
        truth, _ = self.test(node.test)
        if truth is not False:
            self.body(node.body)
        self.depth -= 1
        if truth is True:
            return None if _breaks(node.body) else False
        self.loop_else(node)
        return None

    def s_if(self, node: ast.If) -> bool:
        falls = False
        depth = self.depth
        scope = self.scope
        while True:
            truth, side = self.test(node.test)
            if truth is None and side is None:
                self.depth += 1
            if truth is not False:
                if side == "main":
                    self.enter_main(node)
                if self.body(node.body):
                    falls = True
                    if side == "main":
                        self.depth += 1
                self.scope = scope
            if truth is True:
                break
            orelse = node.orelse
            if side == "other":
                self.enter_main(node)
            if len(orelse) == 1 and isinstance(orelse[0], ast.If):
                node = orelse[0]
                continue
            if self.body(orelse):
                falls = True
            break
        self.depth = depth
        self.scope = scope
        return falls

    def enter_main(self, node: ast.AST) -> None:
        """Go on in the scope of what runs only in a main module."""
        self.scope = self.builder.main_scope(getattr(node, "lineno", 1))

    def s_with(self, node: ast.With | ast.AsyncWith) -> None:
        depth = self.depth
        for item in node.items:
            self.expr(item.context_expr)
            self.depth += 1
            if item.optional_vars is not None:
                self.assign(item.optional_vars, None)
        self.body(node.body)
        self.depth = depth

    def s_try(self, node: ast.Try) -> bool:
        falls = self.nested(node.body)
        self.depth += 1
        self.handler += 1
        handled = False
        for handler in node.handlers:
            if handler.type is not None:
                self.expr(handler.type)
            if handler.name is not None:
                self.store(handler.name, None, handler.lineno)
            if self.body(handler.body):
                handled = True
        self.handler -= 1
        self.depth -= 1
        if falls:
            falls = self.body(node.orelse)
        ends = self.nested(node.finalbody)
        return (falls or handled) and ends

    def s_match(self, node: Any) -> bool | None:
        self.expr(node.subject)
        self.depth += 1
        irrefutable = falls = False
        for case in node.cases:
            self.pattern(case.pattern)
            if case.guard is not None:
                self.expr(case.guard)
            if self.body(case.body):
                falls = True
            if case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                irrefutable = True
        self.depth -= 1
        return falls or not irrefutable

    def pattern(self, root: ast.pattern) -> None:
        """Visit the values and classes of a match pattern."""
        stack: list[ast.AST] = [root]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.MatchValue):
                self.expr(node.value)
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
        self.type_parameters(node)
        self.expr(node.value)
        self.store(node.name.id, None, node.lineno)

    # --- names -------------------------------------------------------------------------------------------------------

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

    def load_name(self, name: str) -> None:
        """Note that a name is loaded."""
        if name not in self.frame.hidden and name != "__debug__":
            self.scope.names.add(self.mangle(name) if name[:2] == "__" else name)

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

    def store(self, name: str, value: Value, line: int, imported: str | None = None) -> None:
        """Bind a name to a folded value."""
        frame = self.frame
        if frame.function:
            if name in frame.globals:
                return
            if not self.handler and frame.counts.get(name, 0) == 1:
                kept = remembered(value)
                if kept is not None:
                    frame.env[name] = kept
        elif (frame.prefix == "" or name in frame.globals) and self.scope is self.builder.module:
            self.builder.bind(name, value, line, handler=self.handler > 0, imported=imported)

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
                if isinstance(target, ast.Subscript) and self.is_module() and self.scope is self.builder.module:
                    key = self.fold(target.slice)
                    if type(key) is str:
                        self.builder.entry(key, value)
                self.target(target)

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

    # --- expressions -------------------------------------------------------------------------------------------------

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
                    if name == "parent" or type(value) is ast.Name:
                        if name == "parent":
                            self.fold(node)  # type: ignore[arg-type] # as above
                        elif value.id == "cdll":
                            pass
                    stack.append(value)
                elif kind is ast.Constant:
                    if type(node.value) is str:  # type: ignore[attr-defined] # as above
                        strings.add(node.value)  # type: ignore[attr-defined] # as above
                else:
                    handler = _EXPRESSIONS.get(kind)
                    if handler is not None:
                        handler(self, node, stack)
                    else:
                        stack.extend(ast.iter_child_nodes(node))
            if not todo:
                break
            node, self.conditional, frame.shadow = todo.pop()
            stack.append(node)
        frame.shadow = _EMPTY

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
                last = value.text.rpartition(".")[2] if type(value) is Dotted else value.name
                if self.scope is self.builder.module and last in LAZY_MAKERS:
                    for item in [*values, *[value for _, value in keywords]]:
                        if type(item) is Map:
                            self.builder.table(item)
        stack.append(function)
        stack.extend(node.args)
        for keyword in node.keywords:
            value = keyword.value
            if keyword.arg is None and isinstance(value, ast.Dict):  # its keys are names of keywords
                stack.extend([key for key in value.keys if key is not None and not isinstance(key, ast.Constant)])
                stack.extend(value.values)
            else:
                stack.append(value)

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
            constant = _constant_text(operands[-1])
            if constant is not None:
                operands.pop()
                while operands:
                    more = _constant_text(operands[-1])
                    if more is None:
                        break
                    constant += more
                    operands.pop()
                self.scope.strings.add(constant)
            stack.extend(operands)
            return
        if kind is ast.Mod:
            template = _constant_text(node.left)
            self.fold(node)
            if template is not None:
                self.scope.strings.update(_fold.pieces(template))
                stack.append(node.right)
                return
        elif kind is ast.Div:
            self.fold(node)
        elif kind is ast.Mult:
            constant = _constant_text(node)
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
            if type(value) in (ast.Name, ast.Attribute) and self.truth(value) is decides:
                break

    def e_compare(self, node: ast.Compare, stack: list[ast.AST]) -> None:
        stack.append(node.left)
        stack.append(node.comparators[0])
        for value in node.comparators[1:]:
            self.later(value, stack)

    def e_lambda(self, node: ast.Lambda, stack: list[ast.AST]) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                stack.append(default)
        own = set(parameters(node.args))
        if self.walrus:
            own |= bindings([ast.Expr(node.body)], True).locals()
        self.todo.append((node.body, True, self.frame.shadow | own))

    def e_comprehension(self, node: Any, stack: list[ast.AST]) -> None:
        generators: list[ast.comprehension] = node.generators
        own: set[str] = set()
        for generator in generators:
            for part in ast.walk(generator.target):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    own.add(part.id)
        shadow = self.frame.shadow | own
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
        self.store(node.target.id, self.fold(node.value), node.lineno)
        stack.append(node.value)

    def e_subscript(self, node: ast.Subscript, stack: list[ast.AST]) -> None:
        if type(node.value) is ast.Attribute and node.value.attr == "parents":
            self.fold(node)
        stack.append(node.value)
        stack.append(node.slice)

    # --- tests -------------------------------------------------------------------------------------------------------

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
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and self.is_module():
            if {HOLE_NAME, "__main__"} == {_plain(self.fold(node.left)), _plain(self.fold(node.comparators[0]))}:
                if isinstance(node.ops[0], ast.Eq):
                    return None, "main"
                if isinstance(node.ops[0], ast.NotEq):
                    return None, "other"
        return None, None

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

    # --- folding -----------------------------------------------------------------------------------------------------

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
            return value if type(value) in (str, int, bool) else None
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
        value = self.fold(node.left, depth + 1)
        while chain:
            node = chain.pop()
            constant = _constant_text(node)
            if constant is not None and len(constant) <= _fold.MAX_TEXT:
                value = constant
            else:
                value = self.operate(node.op, value, self.fold(node.right, depth + 1))
            self.folded[id(node)] = value
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

    def f_joined(self, node: ast.JoinedStr, depth: int) -> Value:
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
        return Map(
            [
                (self.fold(key, depth + 1), self.fold(value, depth + 1))
                for key, value in zip(node.keys, node.values, strict=True)
                if key is not None
            ]
        )

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
        if type(node.slice) is not ast.Constant:
            return None
        return _fold.subscript(self.scope.patterns, self.fold(node.value, depth + 1), self.fold(node.slice))

    def f_unary(self, node: ast.UnaryOp, depth: int) -> Value:
        value = self.fold(node.operand, depth + 1)
        return -value if type(value) is int and isinstance(node.op, ast.USub) else None


HOLE_NAME = _fold.HOLE_NAME


def _plain(value: Value) -> str:
    return str(value) if isinstance(value, str) else ""


def _constant_text(node: ast.expr) -> str | None:
    """Return the string that the compiler makes of an expression of string constants."""
    if type(node) is ast.Constant:
        return node.value if type(node.value) is str else None
    if type(node) is not ast.BinOp:
        return None
    parts: list[str] = []
    size = 0
    while type(node) is ast.BinOp and type(node.op) is ast.Add:
        right = node.right if type(node.right) is not ast.BinOp else None
        text = right.value if type(right) is ast.Constant else _constant_text(node.right) if right is None else None
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


def _binds_only(body: Sequence[ast.stmt], module: _Module) -> bool:
    """Tell whether statements do nothing but bind names: imports, functions, classes without bases, constants."""
    stack = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Import, ast.Pass)):
            continue
        if isinstance(node, ast.ImportFrom):
            if any(alias.name == "*" for alias in node.names):
                return False
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            parts = [
                *node.decorator_list[:1],
                *arguments.defaults,
                *[d for d in arguments.kw_defaults if d is not None],
            ]
            if node.decorator_list or getattr(node, "type_params", None) or not all(map(_plain_value, parts)):
                return False
            if not module.future:
                every = (
                    *arguments.posonlyargs,
                    *arguments.args,
                    *arguments.kwonlyargs,
                    arguments.vararg,
                    arguments.kwarg,
                )
                annotations = [arg.annotation for arg in every if arg is not None] + [node.returns]
                if not all(annotation is None or _plain_value(annotation) for annotation in annotations):
                    return False
        elif isinstance(node, ast.ClassDef):
            if node.bases or node.keywords or node.decorator_list or getattr(node, "type_params", None):
                return False
            stack.extend(node.body)
        elif isinstance(node, ast.Assign):
            if not (_plain_value(node.value) and all(isinstance(target, ast.Name) for target in node.targets)):
                return False
        elif isinstance(node, ast.Expr):
            if not isinstance(node.value, ast.Constant):
                return False
        elif not (
            isinstance(node, ast.If)
            and not node.orelse
            and module.truth(node.test) is False
            and isinstance(node.test, ast.Constant)
        ):
            return False
    return True


def _plain_value(root: ast.expr) -> bool:
    """Tell whether evaluating an expression does nothing but load names and constants."""
    stack: list[ast.AST] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
            stack.extend(ast.iter_child_nodes(node))
        elif isinstance(node, ast.UnaryOp):
            if not (isinstance(node.operand, ast.Constant) and type(node.operand.value) in (int, float)):
                return False
        elif isinstance(node, ast.BinOp):
            if not _plain_arithmetic(node):
                return False
        elif not isinstance(node, (ast.Name, ast.Constant, ast.expr_context)):
            return False
    return True


def _plain_arithmetic(node: ast.BinOp) -> bool:
    """Tell whether the compiler computes this: two numbers, and no error."""
    left, right = node.left, node.right
    if not (isinstance(left, ast.Constant) and isinstance(right, ast.Constant)):
        return False
    if not (type(left.value) in (int, float) and type(right.value) in (int, float)):
        return False
    return isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)) or (isinstance(node.op, ast.Div) and right.value != 0)


_Handler = Callable[[_Module, Any], bool | None]
_STATEMENTS: dict[type, _Handler] = {
    ast.Import: _Module.s_import,
    ast.ImportFrom: _Module.s_import_from,
    ast.FunctionDef: _Module.s_function,
    ast.AsyncFunctionDef: _Module.s_function,
    ast.ClassDef: _Module.s_class,
    ast.Return: _Module.s_return,
    ast.Raise: _Module.s_raise,
    ast.Break: _Module.s_break,
    ast.Continue: _Module.s_continue,
    ast.Global: _Module.s_global,
    ast.Nonlocal: _Module.s_global,
    ast.Pass: _Module.s_global,
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
}
if hasattr(ast, "TypeAlias"):
    _STATEMENTS[ast.TypeAlias] = _Module.s_type_alias

_EXPRESSIONS: dict[type, Callable[[_Module, Any, list[ast.AST]], None]] = {
    ast.Call: _Module.e_call,
    ast.keyword: _Module.e_keyword,
    ast.BinOp: _Module.e_binary,
    ast.JoinedStr: _Module.e_joined,
    ast.FormattedValue: _Module.e_formatted,
    ast.IfExp: _Module.e_choice,
    ast.BoolOp: _Module.e_bool,
    ast.Compare: _Module.e_compare,
    ast.Lambda: _Module.e_lambda,
    ast.ListComp: _Module.e_comprehension,
    ast.SetComp: _Module.e_comprehension,
    ast.DictComp: _Module.e_comprehension,
    ast.GeneratorExp: _Module.e_comprehension,
    ast.NamedExpr: _Module.e_walrus,
    ast.Subscript: _Module.e_subscript,
}
_FOLDS: dict[type, Callable[[_Module, Any, int], Value]] = {
    ast.Attribute: _Module.f_attribute,
    ast.Call: _Module.f_call,
    ast.BinOp: _Module.f_binary,
    ast.JoinedStr: _Module.f_joined,
    ast.Tuple: _Module.f_sequence,
    ast.List: _Module.f_sequence,
    ast.Dict: _Module.f_dict,
    ast.IfExp: _Module.f_choice,
    ast.BoolOp: _Module.f_bool,
    ast.NamedExpr: _Module.f_walrus,
    ast.Subscript: _Module.f_subscript,
    ast.UnaryOp: _Module.f_unary,
}
