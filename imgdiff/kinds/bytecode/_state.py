"""The state of a run over one code object: its stack, labels, strings and names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from imgdiff.kinds import _fold
from imgdiff.kinds._facts import ModuleBuilder, ScopeBuilder, remembered
from imgdiff.kinds._fold import Dotted, Value
from imgdiff.kinds.bytecode._lines import line_starts
from imgdiff.kinds.bytecode._semantics import Isa
from imgdiff.kinds.bytecode.marshal_reader import Code, Container

MAX_WORK = 20_000_000
"""Values copied and searched for one module, beyond which its bytecode is refused: compilers stay far below."""
MAX_STACK = 100_000


class Marker:
    """A value that only jumps and calls know."""

    __slots__ = ()


MAIN = Marker()  # __name__ == "__main__"
OTHER = Marker()  # __name__ != "__main__"
BUILD_CLASS = Marker()
LENGTH = Marker()  # of what a pattern is matched with
NULL = Marker()  # what PUSH_NULL pushes


class Function:
    """A function that was just made."""

    __slots__ = ("code", "decorators", "scope")

    def __init__(self, code: Code, scope: ScopeBuilder | None) -> None:
        self.code = code
        self.scope = scope
        self.decorators: list[str] = []


class Frame:
    """The names of one code object: ``kind`` is module, class, function or inline (a lambda or comprehension)."""

    __slots__ = ("counts", "env", "kind", "own", "parent", "volatile")

    def __init__(self, kind: str, parent: Frame | None = None) -> None:
        self.kind = kind
        self.parent = parent
        self.env: dict[str, Value] = {}
        self.own: frozenset[str] = frozenset()
        self.counts: dict[str, int] = {}
        self.volatile: list[str] = []  # bound by a handler, and forgotten behind it

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

    def bind(self, name: str, value: Value, handler: bool) -> None:
        """Bind a local variable; ``handler``: in an except block."""
        frame: Frame | None = self
        while frame is not None and frame.kind == "inline":
            if name in frame.own:
                return
            frame = frame.parent
        if frame is not None and frame.kind == "function" and frame.counts.get(name, 0) == 1:
            kept = remembered(value)
            if kept is not None:
                frame.env[name] = kept
                if handler:
                    frame.volatile.append(name)


# An event: its offset in the code that is run, whether it may not happen there, and what to do about it.
Event = tuple[int, bool, Callable[[bool], None]]


class _Unknown(dict[str, Dotted]):
    """The values of local variables that do not fold."""

    def __missing__(self, name: str) -> Dotted:
        value = self[name] = Dotted("?" + name)
        return value


class _Unbound(dict[str, Value]):
    """The values of global names that nothing in the module binds."""

    def __missing__(self, name: str) -> Value:
        value = self[name] = _fold.name(name)
        return value


class Shared:
    """What the runs over all code objects of one module share."""

    def __init__(self, isa: Isa, builder: ModuleBuilder) -> None:
        self.isa = isa
        self.builder = builder
        self.loaded: dict[int, dict[str, int]] = {}
        self.queue: list[Function] = []
        self.done = 0  # see MAX_WORK
        self.unknown = _Unknown()
        self.unbound = _Unbound()
        self.depth = 0

    def counts(self, scope: ScopeBuilder) -> dict[str, int]:
        """Return how often a scope loads each string (what turns out to be none is taken away again)."""
        return self.loaded.setdefault(id(scope), {})

    def finish(self, scope: ScopeBuilder) -> None:
        """Hand the strings over to the scope."""
        scope.strings.update([text for text, count in self.loaded.pop(id(scope), {}).items() if count > 0])


class State:
    """The state of one run."""

    def __init__(self, shared: Shared, code: Code, scope: ScopeBuilder, frame: Frame) -> None:
        self.shared = shared
        self.isa = shared.isa
        self.builder = shared.builder
        self.code = code
        self.home = scope
        self.scope = scope
        self.strings = shared.counts(scope)
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
        self.fromlist = False  # the last import was a from-import
        self.import_name = 0  # where in the names what it took stands
        self.kwnames: tuple[Any, ...] = ()
        self.dead = False
        self.returned: Value = None
        self.lines: list[tuple[int, int]] | None = None
        # Fast variables; cells and free variables follow them from 3.11 on, and have a table of their own before.
        self.variables = code.varnames
        if self.isa.modern and (code.cellvars or code.freevars):
            self.variables += tuple([name for name in code.cellvars if name not in code.varnames]) + code.freevars
        self.stored: frozenset[str] = frozenset()

    def is_dead(self, offset: int) -> bool:
        """Tell whether an instruction was skipped."""
        self.work(len(self.dead_spans))
        return any(start <= offset < end for start, end in self.dead_spans)

    def arrive(self, offset: int) -> None:
        """Come to a label: take over its state, or join it with the one we have."""
        recorded, main, handler = self.labels[offset]
        self.offset = offset
        if self.dead:
            self.stack[:] = recorded
            self.dead = False
            self.enter(main)
            self.handle(handler)
        else:
            self.stack[:] = _merge(self.stack, recorded)
            self.enter(main and self.main)
            self.handle(handler and self.handler)

    def work(self, amount: int) -> None:
        """Count work that hostile bytecode could make much of. Raises ValueError beyond a bound."""
        self.shared.done += amount
        if self.shared.done > MAX_WORK:
            raise ValueError("it takes too much work")

    def handle(self, handler: bool) -> None:
        """Go on inside or outside of except blocks."""
        self.handler = handler
        if not handler and self.frame.volatile:
            for name in self.frame.volatile:
                self.frame.env.pop(name, None)
            self.frame.volatile.clear()

    def enter(self, main: bool) -> None:
        """Go on in the scope of what runs only in a main module, or out of it."""
        if main != self.main:
            self.main = main
            self.scope = self.builder.main_scope(self.line(self.offset)) if main else self.home
            self.strings = self.shared.counts(self.scope)

    def label(self, target: int, stack: list[Value], main: bool, handler: bool) -> None:
        """Note the state in which control comes to an instruction."""
        self.work(len(stack))
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
            self.label(
                target, self.stack.copy() if stack is None else stack, self.main if main is None else main, self.handler
            )
            if span and not self.handler:
                self.spans.append((offset, target))
        else:
            if not self.handler or (target in self.labels and self.labels[target][2]):
                self.spans.append((target, offset + 1))
            if self.is_dead(target) and target not in self.labels:
                self.label(target, self.stack.copy() if stack is None else stack, self.main, self.handler)
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

    def constant(self, value: Any) -> None:
        """Load a tuple or another container."""
        self.add_strings(value)
        self.stack.append(value if type(value) is tuple or value.kind in ("set", "frozenset") else None)

    def add_strings(self, value: Any) -> None:
        """Count the strings in a constant."""
        self.work(1)
        strings = self.strings
        pending = [value]
        while pending:
            item = pending.pop()
            self.shared.done += 1
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

    def push_unknown(self, count: int) -> None:
        """Push values that are not known."""
        if count + len(self.stack) > MAX_STACK:
            raise ValueError("the stack grows too large")
        self.stack.extend([None] * count)

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

    def load_name(self, name: str, raw: bytes) -> None:
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


def _merge(left: list[Value], right: list[Value]) -> list[Value]:
    """Join two stacks."""
    if len(left) != len(right):
        raise ValueError("branches join with different stacks")
    return [a if _fold.same(a, b) else None for a, b in zip(left, right, strict=True)]
