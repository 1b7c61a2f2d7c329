"""Calls, functions and bindings of a run over one code object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from imgdiff.kinds import _fold
from imgdiff.kinds._callees import INTERESTING, LAZY_MAKERS, LOOK_THROUGH_NOTHING, VERSION_NAMES
from imgdiff.kinds._facts import SET_BY_COMPILER, ScopeBuilder, identifiers, record
from imgdiff.kinds._fold import Bound, Dotted, Map, Value
from imgdiff.kinds.bytecode._state import BUILD_CLASS, Event, Frame, Function, Marker, State
from imgdiff.kinds.bytecode.marshal_reader import Code

_OPTIMIZED = 0x01
_INLINE = frozenset({"<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_MAX_INLINE = 60  # levels of classes, lambdas and comprehensions in one another


class Calls(State, ABC):
    """What calls and functions do."""

    @abstractmethod
    def run(self) -> list[Event]:
        """Run the code; return its events with what is known of whether they happen."""

    def call(self, function: Value, values: list[Value], keywords: tuple[Any, ...]) -> Value:
        """Call a folded function; the last values belong to the keywords."""
        kind = type(function)
        last = self.hand(function, values)
        if kind is Dotted:
            if last not in INTERESTING and last not in _fold.FUNCTIONS:
                if len(values) == 1 and type(values[0]) is Function:
                    return self._decorate(function, values[0])
                return None
        elif kind is not Bound:
            if function is BUILD_CLASS:
                if len(values) > 1:
                    self.drop(values[1])
                    self.bases(values)
            elif kind is Function and function.scope is not None:
                return function  # the scope of type parameters was run, and gives the function that it holds
            elif len(values) == 1 and type(values[0]) is Function:
                return self._decorate(function, values[0])
            return None
        pairs: list[tuple[str, Value]] = []
        if keywords:
            split = len(values) - len(keywords)
            pairs = [(str(name), value) for name, value in zip(keywords, values[split:], strict=False)]
            values = values[:split]
        return self.finish_call(function, last, values, pairs)

    def bases(self, values: Sequence[Value]) -> None:
        """Note what a class is made of: its body and name come first."""
        for base in values[2:]:
            self.builder.base(str(values[1]), base)

    def hand(self, function: Value, values: Iterable[Value]) -> str:
        """Note what a call is handed as it is; return the last part of the function's name."""
        kind = type(function)
        last: str = function.text.rpartition(".")[2] if kind is Dotted else function.name if kind is Bound else ""
        last = last.lstrip("?")
        if last not in LOOK_THROUGH_NOTHING and function is not BUILD_CLASS:
            for value in values:
                if value is not None and type(value) is not str:
                    self.scope.hand(value)
        return last

    def finish_call(self, function: Value, last: str, values: list[Value], pairs: list[tuple[str, Value]]) -> Value:
        """Record a call and return what it folds to."""
        if last in INTERESTING:
            scope, line = self.scope, self.line(self.offset)
            self.events.append(
                (self.offset, self.maybe(), lambda maybe: record(scope, function, values, pairs, line, maybe))
            )
            if last in LAZY_MAKERS and scope is self.builder.module:
                for item in [*values, *[value for _, value in pairs]]:
                    if type(item) is Map:
                        self.builder.table(item)
            if len(values) == 1 and type(values[0]) is Function:
                return self._decorate(function, values[0])
        return _fold.call(self.scope.patterns, function, values, pairs)

    def _decorate(self, decorator: Value, function: Function) -> Value:
        """A function that is called with a fresh function alone is its decorator."""
        known = type(decorator) is Dotted and not decorator.text.startswith("?")
        function.decorators.insert(0, decorator.text if known else "?")
        return function

    def inline(self, code: Code, kind: str, conditional: bool) -> Value:
        """Run a class body, lambda or comprehension as part of this scope."""
        shared = self.shared
        if shared.depth >= _MAX_INLINE:
            raise ValueError("classes, lambdas and comprehensions nest too deeply")
        shared.depth += 1
        frame = Frame(kind, self.frame)
        if kind == "inline":
            frame.own = frozenset(code.varnames) | frozenset(code.cellvars)
        run = type(self)(shared, code, self.scope, frame)
        maybe = self.maybe() or conditional
        self.events.extend([(self.offset, maybe or inner, act) for _, inner, act in run.run()])
        shared.depth -= 1
        return run.returned

    def make_function(self, code: Value, qualname: str | None) -> Function:
        """Make a function: a scope of its own unless it belongs to the one that holds it."""
        if type(code) is not Code:
            raise ValueError("a function without code")
        name = code.name
        if name in _INLINE:
            self.inline(code, "inline", True)
            return Function(code, None)
        if not code.flags & _OPTIMIZED:
            self.inline(code, "class", False)
            return Function(code, None)
        annotates = name == "__annotate__" and self.isa.minor >= (3, 14)  # a def of that name folds with them
        if annotates or name.startswith("<generic parameters of"):
            returned = self.inline(code, "inline", False)
            if annotates:  # 3.14 computes annotations where they are asked for
                self.annotations(returned)
            function = Function(code, None)
            return returned if type(returned) is Function and not annotates else function
        scope = ScopeBuilder(qualname or code.qualname, code.firstlineno)
        function = Function(code, scope)
        self.shared.queue.append(function)
        return function

    def annotations(self, value: Value) -> None:
        """Take a function's annotations: their keys are no strings, and a text gives its names only."""
        if isinstance(value, (tuple, list)):
            pairs = list(zip(value[::2], value[1::2], strict=False))
        elif type(value) is Map:
            pairs = value.pairs
        else:
            return
        for key, annotation in pairs:
            self.drop(key)
            self.annotation(annotation)

    def annotation(self, value: Value) -> None:
        """Take one annotation."""
        if type(value) is str:
            self.drop(value)
            self.scope.names.update(identifiers(value))

    def store_name(self, name: str, *, always_global: bool) -> None:
        """Bind a name of the module or a class."""
        value = self.stack.pop()
        kind = self.frame.kind
        if (kind == "module" or (kind == "class" and not always_global)) and name in SET_BY_COMPILER:
            self.drop(value)
        if (
            (kind == "module" or (always_global and kind != "function"))
            and self.home is self.builder.module
            and not self.main
        ):
            line = self.line(self.offset) if name in VERSION_NAMES else 0
            imported = self.code.names[self.import_name] if self.last == "IMPORT_FROM" and self.fromlist else None
            if isinstance(value, (Function, Marker, Code)):
                value = None
            self.builder.bind(name, value, line, handler=self.handler, imported=imported)
