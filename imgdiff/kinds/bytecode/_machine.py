"""Runs code objects on abstract values: what they load, import, call and bind, without running anything.

One pass in the order of the instructions; where branches join, values that differ become unknown. Loops are entered
once. What no path reaches (a branch under ``TYPE_CHECKING``) is skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from imgdiff.kinds import _fold
from imgdiff.kinds._callees import INTERESTING, LAZY_MAKERS, VERSION_NAMES
from imgdiff.kinds._facts import SET_BY_COMPILER, ModuleBuilder, ScopeBuilder, identifiers, record, remembered
from imgdiff.kinds._fold import STAR, Bound, Dotted, Made, Map, Value
from imgdiff.kinds.bytecode._lines import exception_ranges, line_starts
from imgdiff.kinds.bytecode._semantics import (
    CALL, CONST, EXTENDED, FAST, GLOBAL, METHOD, NAME, NOTHING, ATTR, SIMPLE, STORE, RARE, Isa,
)  # fmt: skip
from imgdiff.kinds.bytecode.marshal_reader import Code, Container
from imgdiff.model import HOLE, HOLE_NAME

_OPTIMIZED = 0x01
_INLINE = frozenset({"<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_STOP_ITERATION = 3  # the argument of CALL_INTRINSIC_1 that ends a generator
_MAX_INLINE = 200  # levels of classes, lambdas and comprehensions in one another


class _Marker:
    __slots__ = ()


MAIN = _Marker()  # __name__ == "__main__"
OTHER = _Marker()  # __name__ != "__main__"
BUILD_CLASS = _Marker()


class Function:
    """A function that was just made."""

    __slots__ = ("code", "decorators", "scope")

    def __init__(self, code: Code, scope: ScopeBuilder | None) -> None:
        self.code = code
        self.scope = scope
        self.decorators: list[str] = []


class Frame:
    """The names of one code object: ``kind`` is module, class, function or inline (a lambda or comprehension)."""

    __slots__ = ("counts", "env", "kind", "own", "parent")

    def __init__(self, kind: str, parent: Frame | None = None) -> None:
        self.kind = kind
        self.parent = parent
        self.env: dict[str, Value] = {}
        self.own: frozenset[str] = frozenset()
        self.counts: dict[str, int] = {}

    def local(self, name: str) -> Value:
        """Return what a local or free variable folds to."""
        frame: Frame | None = self
        while frame is not None and frame.kind == "inline":
            if name in frame.own:
                return Dotted("?" + name)
            frame = frame.parent
        if frame is not None and frame.kind == "function" and name in frame.env:
            return frame.env[name]
        return Dotted("?" + name)

    def bind(self, name: str, value: Value) -> None:
        """Bind a local variable."""
        frame: Frame | None = self
        while frame is not None and frame.kind == "inline":
            if name in frame.own:
                return
            frame = frame.parent
        if frame is not None and frame.kind == "function" and frame.counts.get(name, 0) == 1:
            kept = remembered(value)
            if kept is not None:
                frame.env[name] = kept


# An event: its offset in the code that is run, whether it may not happen there, and what to do about it.
Event = tuple[int, bool, Callable[[bool], None]]


class Machine:
    """What all code objects of one module share."""

    def __init__(self, isa: Isa, builder: ModuleBuilder) -> None:
        self.isa = isa
        self.builder = builder
        self.loaded: dict[int, dict[str, int]] = {}
        self.queue: list[Function] = []
        self.depth = 0

    def counts(self, scope: ScopeBuilder) -> dict[str, int]:
        """Return how often a scope loads each string (what turns out to be none is taken away again)."""
        return self.loaded.setdefault(id(scope), {})

    def execute(self, code: Code, scope: ScopeBuilder, frame: Frame) -> None:
        """Run a scope of its own."""
        run = Run(self, code, scope, frame)
        for _, conditional, act in run.run():
            act(conditional)

    def finish(self, scope: ScopeBuilder) -> None:
        """Hand the strings over to the scope."""
        scope.strings.update([text for text, count in self.loaded.pop(id(scope), {}).items() if count > 0])


class Run:
    """One run over one code object."""

    def __init__(self, machine: Machine, code: Code, scope: ScopeBuilder, frame: Frame) -> None:
        self.machine = machine
        self.isa = machine.isa
        self.builder = machine.builder
        self.code = code
        self.home = scope
        self.scope = scope
        self.strings = machine.counts(scope)
        self.frame = frame
        self.stack: list[Value] = []
        self.labels: dict[int, tuple[list[Value], bool, bool]] = {}
        self.pending: list[int] = []
        self.dead_spans: list[tuple[int, int]] = []
        self.spans: list[tuple[int, int]] = []
        self.events: list[Event] = []
        self.main = False
        self.handler = False
        self.exited = False
        self.finallies = 0
        self.offset = 0  # of this instruction
        self.next = 0  # of the one behind it
        self.last = ""  # name of the instruction before, where it matters
        self.fromlist = False
        self.kwnames: tuple[Any, ...] = ()
        self.dead = False
        self.returned: Value = None
        self.lines: list[tuple[int, int]] | None = None
        # Fast variables; cells and free variables follow them from 3.11 on, and have a table of their own before.
        self.variables = code.varnames
        if self.isa.modern and (code.cellvars or code.freevars):
            self.variables += tuple([name for name in code.cellvars if name not in code.varnames]) + code.freevars
        self.stored: frozenset[str] = frozenset()

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> list[Event]:
        """Run the code; return its events with what is known of whether they happen."""
        starts = self._exceptions()
        if self.frame.kind == "class":
            self.stored = frozenset(self.isa.stored_names(self.code))
        self._linear(0, starts)
        while self.pending:
            target = self.pending.pop()
            if target in self.labels:
                self.exited = True  # out of order: nothing is known about what comes before
                self._linear(target, starts, again=True)
        spans = self.spans
        if not spans:
            return self.events
        return [
            (offset, conditional or any(start <= offset < end for start, end in spans), act)
            for offset, conditional, act in self.events
        ]

    def _exceptions(self) -> dict[int, list[tuple[int, int]]]:
        starts: dict[int, list[tuple[int, int]]] = {}
        raw = self.code.code
        if self.code.exceptiontable:
            for start, end, target, depth, lasti in exception_ranges(self.code.exceptiontable):
                starts.setdefault(start, []).append((target, depth + lasti + 1))
                name = self.isa.names[raw[target]]
                if not (name == "CALL_INTRINSIC_1" and raw[target + 1] == _STOP_ITERATION):
                    self.spans.append((start, end))
        return starts

    def _linear(self, offset: int, starts: dict[int, list[tuple[int, int]]], again: bool = False) -> None:  # noqa: C901 - one loop over local variables is twice as fast as a method an instruction
        raw = self.code.code
        consts = self.code.consts
        codenames = self.code.names
        varnames = self.variables
        size = len(raw) - 1
        kinds, caches, effects = self.isa.kinds, self.isa.caches, self.isa.effects
        stack, labels, frame = self.stack, self.labels, self.frame
        names = self.scope.names
        strings = self.strings
        local_names = frame.env
        plain = frame.kind != "function"
        modern, method_bit, null_first = self.isa.modern, self.isa.method_bit, self.isa.null_first
        load = self.builder.load
        rare = self.isa.rare
        self.dead = True if again else False
        dead_start = -1
        extended = 0
        while offset < size:
            if offset in labels:
                self._arrive(offset)
                names, strings = self.scope.names, self.strings
                if dead_start >= 0:
                    if not again:
                        self.dead_spans.append((dead_start, offset))
                    dead_start = -1
                elif again and not self._is_dead(offset):
                    return
            elif self.dead:
                if dead_start < 0:
                    dead_start = offset
                offset += 2 + caches[raw[offset]]
                extended = 0
                continue
            elif again and not self._is_dead(offset):
                return
            if offset in starts:
                for target, depth in starts[offset]:
                    self._label(target, [None] * depth, self.main, True)
            op = raw[offset]
            arg = raw[offset + 1] | extended
            kind = kinds[op]
            if kind == EXTENDED:
                extended = arg << 8
                if extended > 0xFFFFFFFF:
                    raise ValueError("an argument of more than 32 bits")
                offset += 2
                continue
            extended = 0
            following = offset + 2 + caches[op]
            if kind == FAST:
                name = varnames[arg]
                if plain:
                    stack.append(frame.local(name))
                else:
                    stack.append(local_names[name] if name in local_names else Dotted("?" + name))
            elif kind == CONST:
                value = consts[arg]
                type_ = type(value)
                if type_ is str:
                    strings[value] = strings.get(value, 0) + 1
                    stack.append(value)
                elif type_ is tuple or type_ is Container:
                    self._constant(value)
                elif type_ is int or type_ is bool or type_ is Code:
                    stack.append(value)
                else:
                    stack.append(None)
                self.last = "const"
                offset = following
                continue
            elif kind == ATTR:
                if method_bit:
                    method, arg = arg & 1, arg >> 1
                else:
                    method = 0
                name = codenames[arg]
                names.add(name)
                value = _fold.attribute(self.scope.patterns, stack.pop(), name)
                if method:
                    if null_first:
                        stack.append(None)
                        stack.append(value)
                    else:
                        stack.append(value)
                        stack.append(None)
                else:
                    stack.append(value)
            elif kind == GLOBAL:
                null = 0
                if modern:
                    null, arg = arg & 1, arg >> 1
                name = codenames[arg]
                names.add(name)
                if null:
                    if null_first:
                        stack.append(None)
                        stack.append(load(name))
                    else:
                        stack.append(load(name))
                        stack.append(None)
                else:
                    stack.append(load(name))
            elif kind == CALL:
                self.offset = offset
                self._call(arg)
                names, strings = self.scope.names, self.strings
            elif kind == STORE:
                value = stack.pop()
                name = varnames[arg]
                if value is not None:
                    frame.bind(name, value)
            elif kind == SIMPLE:
                pops, pushes = effects[op]
                if pops:
                    if pops > len(stack):
                        raise IndexError("the stack underflows")
                    del stack[-pops:]
                if pushes == 1:
                    stack.append(None)
                elif pushes:
                    stack.extend([None] * pushes)
            elif kind == NAME:
                self.offset = offset
                self._load_name(codenames[arg], raw)
            elif kind == METHOD:
                name = codenames[arg]
                names.add(name)
                value = _fold.attribute(self.scope.patterns, stack.pop(), name)
                stack.append(None)
                stack.append(value)
            elif kind == NOTHING:
                offset = following
                continue
            elif kind == RARE:
                self.offset = offset
                self.next = following
                rare[op](self, arg)
                self.last = self.isa.names[op]
                offset = following
                names, strings = self.scope.names, self.strings
                continue
            else:
                raise ValueError(f"unknown instruction {op}")
            self.last = ""
            offset = following
        if self.dead and dead_start >= 0 and not again:
            self.dead_spans.append((dead_start, offset))

    # --- flow --------------------------------------------------------------------------------------------------------

    def _is_dead(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.dead_spans)

    def _arrive(self, offset: int) -> None:
        """Come to a label: take over its state, or join it with the one we have."""
        recorded, main, handler = self.labels[offset]
        if self.dead:
            self.stack[:] = recorded
            self.dead = False
            self._enter(main)
            self.handler = handler
        else:
            self.stack[:] = _merge(self.stack, recorded)
            self._enter(main and self.main)
            self.handler = handler and self.handler

    def _enter(self, main: bool) -> None:
        if main != self.main:
            self.main = main
            self.scope = self.builder.main_scope(self.line(self.offset)) if main else self.home
            self.strings = self.machine.counts(self.scope)

    def _label(self, target: int, stack: list[Value], main: bool, handler: bool) -> None:
        known = self.labels.get(target)
        if known is not None:
            stack = _merge(known[0], stack)
            main, handler = main and known[1], handler and known[2]
        self.labels[target] = (stack, main, handler)

    def jump(
        self,
        target: int,
        stack: list[Value] | None = None,
        *,
        branch: bool,
        span: bool = True,
        main: bool | None = None,
    ) -> None:
        """Jump: ``branch`` tells whether going on is possible too; ``span`` whether what is jumped over may not run."""
        offset = self.offset
        if target > offset:
            self._label(
                target, self.stack.copy() if stack is None else stack, self.main if main is None else main, self.handler
            )
            if span and not self.handler:
                self.spans.append((offset, target))
        else:
            if not self.handler or (target in self.labels and self.labels[target][2]):
                self.spans.append((target, offset + 1))
            if self._is_dead(target) and target not in self.labels:
                self._label(target, self.stack.copy() if stack is None else stack, self.main, self.handler)
                self.pending.append(target)
        if not branch:
            self.dead = True

    def line(self, offset: int) -> int:
        """Return the source line of an instruction."""
        if self.lines is None:
            self.lines = line_starts(self.code, self.isa.minor)
        index = bisect_right(self.lines, (offset, 1 << 60)) - 1
        return self.lines[index][1] if index >= 0 else self.code.firstlineno

    def maybe(self) -> bool:
        """Tell what is known so far of whether this instruction may not run."""
        return self.exited or self.handler or self.finallies > 0

    def leave(self) -> None:
        """End the code here."""
        if not self.handler:
            self.exited = True
        self.dead = True

    # --- strings -----------------------------------------------------------------------------------------------------

    def _constant(self, value: Any) -> None:
        """Load a tuple or another container."""
        self.add_strings(value)
        self.stack.append(value if type(value) is tuple else None)

    def add_strings(self, value: Any) -> None:
        """Count the strings in a constant."""
        strings = self.strings
        pending = [value]
        while pending:
            item = pending.pop()
            if type(item) is str:
                strings[item] = strings.get(item, 0) + 1
            elif type(item) is tuple:
                pending.extend(item)
            elif type(item) is Container:
                pending.extend(item.items)

    def drop(self, value: Value) -> None:
        """Take strings back that turned out to be none: names of keywords, imports, annotations."""
        strings = self.strings
        if type(value) is str:
            strings[value] = strings.get(value, 0) - 1
        elif type(value) is tuple:
            for item in value:
                if type(item) is str:
                    strings[item] = strings.get(item, 0) - 1

    def pop_many(self, count: int) -> list[Value]:
        """Pop values; the deepest is the first."""
        if not count:
            return []
        stack = self.stack
        if count > len(stack):
            raise IndexError("the stack underflows")
        values = stack[-count:]
        del stack[-count:]
        return values

    # --- names -------------------------------------------------------------------------------------------------------

    def _load_name(self, name: str, raw: bytes) -> None:
        kind = self.frame.kind
        if name == "__name__" and kind == "class" and self._is_preamble(raw):
            self.stack.append(None)
            return
        if name[:1] != ".":
            self.scope.names.add(name)
        if kind == "class" and name in self.stored:
            self.stack.append(Dotted(name))
        else:
            self.stack.append(self.builder.load(name))

    def _is_preamble(self, raw: bytes) -> bool:
        """Tell whether this is a class body's own ``__module__ = __name__``."""
        at = self.offset + 2
        return (
            at + 1 < len(raw)
            and self.isa.names[raw[at]] == "STORE_NAME"
            and raw[at + 1] < len(self.code.names)
            and self.code.names[raw[at + 1]] == "__module__"
        )

    def deref(self, arg: int) -> str:
        """Return the name of a cell or free variable."""
        if self.isa.modern:
            return self.variables[arg]
        cells = self.code.cellvars
        return cells[arg] if arg < len(cells) else self.code.freevars[arg - len(cells)]

    def store_name(self, name: str, *, always_global: bool) -> None:
        """Bind a name of the module or a class."""
        value = self.stack.pop()
        kind = self.frame.kind
        if kind in ("class", "module") and name in SET_BY_COMPILER and not always_global:
            self.drop(value)
        if (
            (kind == "module" or (always_global and kind != "function"))
            and self.home is self.builder.module
            and not self.main
        ):
            line = self.line(self.offset) if name in VERSION_NAMES else 0
            imported = self.code.names[self.import_name] if self.last == "IMPORT_FROM" and self.fromlist else None
            if isinstance(value, (Function, _Marker, Code)):
                value = None
            self.builder.bind(name, value, line, handler=self.handler, imported=imported)

    import_name = 0

    # --- calls -------------------------------------------------------------------------------------------------------

    def _call(self, count: int) -> None:
        """CALL of 3.11 and newer."""
        stack = self.stack
        keywords = self.kwnames
        if keywords:
            self.kwnames = ()
        values = self.pop_many(count)
        first, second = self.pop_many(2)
        function = second if self.isa.null_first else first
        if count == 0 and type(second) is Function and not self.isa.null_first:
            values = [second]
        elif count == 0 and type(second) is Function:
            function, values = first, [second]
        stack.append(self.call(function, values, keywords))

    def call(self, function: Value, values: list[Value], keywords: tuple[Any, ...]) -> Value:
        """Call a folded function; the last values belong to the keywords."""
        kind = type(function)
        if kind is Dotted:
            last = function.text.rpartition(".")[2]
            if last not in INTERESTING and last not in _fold.FUNCTIONS:
                if len(values) == 1 and type(values[0]) is Function:
                    return self._decorate(function, values[0])
                return None
        elif kind is not Bound:
            if function is BUILD_CLASS:
                if len(values) > 1:
                    self.drop(values[1])
            elif len(values) == 1 and type(values[0]) is Function:
                return self._decorate(function, values[0])
            return None
        else:
            last = function.name
        pairs: list[tuple[str, Value]] = []
        if keywords:
            split = len(values) - len(keywords)
            pairs = [(str(name), value) for name, value in zip(keywords, values[split:], strict=False)]
            values = values[:split]
        return self.finish_call(function, last, values, pairs)

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
        machine = self.machine
        if machine.depth >= _MAX_INLINE:
            raise ValueError("classes, lambdas and comprehensions nest too deeply")
        machine.depth += 1
        frame = Frame(kind, self.frame)
        if kind == "inline":
            frame.own = frozenset(code.varnames) | frozenset(code.cellvars)
        run = Run(machine, code, self.scope, frame)
        maybe = self.maybe() or conditional
        self.events.extend([(self.offset, maybe or inner, act) for _, inner, act in run.run()])
        machine.depth -= 1
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
        if name == "__annotate__" or name.startswith("<generic parameters of"):
            returned = self.inline(code, "inline", False)
            function = Function(code, None)
            return returned if type(returned) is Function and name != "__annotate__" else function
        scope = ScopeBuilder(qualname or code.qualname, code.firstlineno)
        function = Function(code, scope)
        self.machine.queue.append(function)
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


def _merge(left: list[Value], right: list[Value]) -> list[Value]:
    """Join two stacks."""
    if len(left) != len(right):
        raise ValueError("branches join with different stacks")
    return [a if _fold.same(a, b) else None for a, b in zip(left, right, strict=True)]


def is_main_test(left: Value, right: Value) -> bool:
    """Tell whether two compared values are ``__name__`` and "__main__"."""
    return isinstance(left, str) and isinstance(right, str) and {str(left), str(right)} == {HOLE_NAME, "__main__"}


__all__ = [
    "BUILD_CLASS",
    "HOLE",
    "MAIN",
    "OTHER",
    "STAR",
    "Frame",
    "Function",
    "Machine",
    "Made",
    "Run",
    "is_main_test",
]
