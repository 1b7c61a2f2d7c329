"""Runs code objects on abstract values: what they load, import, call and bind, without running anything.

One pass in the order of the instructions; where branches join, values that differ become unknown. Loops are entered
once. What no path reaches (a branch under ``TYPE_CHECKING``) is skipped.
"""

from __future__ import annotations

from bisect import bisect_right

from imgdiff.kinds._facts import ScopeBuilder
from imgdiff.kinds._fold import attribute
from imgdiff.kinds.bytecode._calls import Calls
from imgdiff.kinds.bytecode._lines import exception_ranges
from imgdiff.kinds.bytecode._semantics import (
    ATTR,
    CALL,
    CONST,
    EXTENDED,
    FAST,
    GLOBAL,
    METHOD,
    NAME,
    NOTHING,
    RARE,
    SIMPLE,
    STORE,
)  # fmt: skip
from imgdiff.kinds.bytecode._state import MAX_STACK, NULL, Event, Frame, Function, Shared
from imgdiff.kinds.bytecode.marshal_reader import Code, Container

_STOP_ITERATION = 3  # the argument of CALL_INTRINSIC_1 that ends a generator


def execute(shared: Shared, code: Code, scope: ScopeBuilder, frame: Frame) -> None:
    """Run a scope of its own."""
    for _, conditional, act in Run(shared, code, scope, frame).run():
        act(conditional)


class Run(Calls):
    """One run over one code object."""

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
        return self._settled()

    def _settled(self) -> list[Event]:
        """Return the events, conditional where a jump, loop or block spans them."""
        if not (self.spans and self.events):
            return self.events
        starts: list[int] = []
        ends: list[int] = []
        for start, end in sorted(self.spans):
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
        settled: list[Event] = []
        for offset, conditional, act in self.events:
            index = bisect_right(starts, offset) - 1
            settled.append((offset, conditional or (index >= 0 and offset < ends[index]), act))
        return settled

    def _exceptions(self) -> dict[int, list[tuple[int, int]]]:
        starts: dict[int, list[tuple[int, int]]] = {}
        raw = self.code.code
        if self.code.exceptiontable:
            for start, end, target, depth, lasti in exception_ranges(self.code.exceptiontable):
                if depth > MAX_STACK:
                    raise ValueError("the stack grows too large")
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
        local_names, module_names = frame.env, self.builder.env
        unknown, unbound = self.shared.unknown, self.shared.unbound
        plain = frame.kind != "function"
        modern, method_bit, null_first = self.isa.modern, self.isa.method_bit, self.isa.null_first
        rare, opnames = self.isa.rare, self.isa.names
        dead = self.dead = again
        dead_start = -1
        extended = 0
        while offset < size:
            if offset in labels:
                self.arrive(offset)
                dead = False
                names, strings = self.scope.names, self.strings
                if dead_start >= 0:
                    if not again:
                        self.dead_spans.append((dead_start, offset))
                    dead_start = -1
                elif again and not self.is_dead(offset):
                    return
            elif dead:
                if dead_start < 0:
                    dead_start = offset
                offset += 2 + caches[raw[offset]]
                extended = 0
                continue
            elif again and not self.is_dead(offset):
                return
            if starts and offset in starts:
                for target, depth in starts[offset]:
                    self.label(target, [None] * depth, self.main, True)
            op = raw[offset]
            arg = raw[offset + 1] | extended
            extended = 0
            kind = kinds[op]
            following = offset + 2 + caches[op]
            if kind == FAST:
                name = varnames[arg]
                if plain:
                    stack.append(frame.local(name))
                else:
                    stack.append(local_names[name] if name in local_names else unknown[name])
            elif kind == CONST:
                value = consts[arg]
                type_ = type(value)
                if type_ is str:
                    strings[value] = strings.get(value, 0) + 1
                    stack.append(value)
                elif value is None:
                    stack.append(None)
                elif type_ is tuple or type_ is Container:
                    self.constant(value)
                elif type_ is int or type_ is bool or type_ is Code or type_ is float:
                    stack.append(value)
                else:
                    stack.append(None)
                self.last = "const"
                offset = following
                continue
            elif kind == RARE:
                self.offset = offset
                self.next = following
                rare[op](self, arg)
                self.last = opnames[op]
                offset = following
                names, strings = self.scope.names, self.strings
                dead = self.dead
                continue
            elif kind == ATTR:
                method = 0
                if method_bit:
                    method, arg = arg & 1, arg >> 1
                name = codenames[arg]
                names.add(name)
                value = attribute(self.scope.patterns, stack.pop(), name)
                if not method:
                    stack.append(value)
                elif null_first:
                    stack.append(None)
                    stack.append(value)
                else:
                    stack.append(value)
                    stack.append(None)
            elif kind == NOTHING:
                offset = following
                continue
            elif kind == CALL:
                self.offset = offset
                self._call(arg)
                names, strings = self.scope.names, self.strings
            elif kind == GLOBAL:
                null = 0
                if modern:
                    null, arg = arg & 1, arg >> 1
                name = codenames[arg]
                names.add(name)
                value = module_names[name] if name in module_names else unbound[name]
                if not null:
                    stack.append(value)
                elif null_first:
                    stack.append(None)
                    stack.append(value)
                else:
                    stack.append(value)
                    stack.append(None)
            elif kind == STORE:
                value = stack.pop()
                if value is not None:
                    frame.bind(varnames[arg], value, self.handler)
            elif kind == SIMPLE:
                pops, pushes = effects[op]
                if pops:
                    if pops > len(stack):
                        raise IndexError("the stack underflows")
                    del stack[-pops:]
                if pushes:
                    stack.extend([None] * pushes)
            elif kind == METHOD:
                name = codenames[arg]
                names.add(name)
                value = attribute(self.scope.patterns, stack.pop(), name)
                stack.append(None)
                stack.append(value)
            elif kind == NAME:
                self.offset = offset
                self.load_name(codenames[arg], raw)
            elif kind == EXTENDED:
                extended = arg << 8
                if extended > 0xFFFFFFFF:
                    raise ValueError("an argument of more than 32 bits")
                offset += 2
                continue
            else:
                raise ValueError(f"unknown instruction {op}")
            self.last = ""
            offset = following
        if dead and dead_start >= 0 and not again:
            self.dead_spans.append((dead_start, offset))

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
        elif count == 0 and type(second) is Function and first is not NULL:
            function, values = first, [second]
        stack.append(self.call(function, values, keywords))
