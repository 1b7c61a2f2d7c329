"""Jumps, returns, loops and blocks."""

from __future__ import annotations

from collections.abc import Callable

from imgdiff.kinds._fold import Map, Value
from imgdiff.kinds.bytecode._calls import Calls as Run
from imgdiff.kinds.bytecode._handlers import HANDLERS, Handler, on
from imgdiff.kinds.bytecode._state import MAIN, OTHER


def _absolute(run: Run, arg: int) -> int:
    return arg * 2 if run.isa.minor >= (3, 10) else arg


def _relative(run: Run, arg: int) -> int:
    return run.next + (arg * 2 if run.isa.minor >= (3, 10) else arg)


@on("JUMP_FORWARD")
def _jump_forward(run: Run, arg: int) -> None:
    run.jump(_relative(run, arg), branch=False)


@on("JUMP_ABSOLUTE")
def _jump_absolute(run: Run, arg: int) -> None:
    run.jump(_absolute(run, arg), branch=False)


@on("JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def _jump_backward(run: Run, arg: int) -> None:
    run.jump(run.next - arg * 2, branch=False)


def _test(run: Run, target: int, value: Value, jumps_if: bool) -> None:
    """A conditional jump on a value that was popped."""
    truth: bool | None = None
    if run.builder.is_checking(value):
        truth = False
    elif run.last == "const":
        truth = bool(value) if value is not None else None
    if truth is not None:
        if truth is jumps_if:
            run.jump(target, branch=False)
        return
    if (value is MAIN or value is OTHER) and not _asserts(run):
        if (value is MAIN) is jumps_if:
            run.jump(target, branch=True, span=False, main=True)
        else:
            run.jump(target, branch=True, span=False)
            run.enter(True)
        return
    run.jump(target, branch=True)


def _asserts(run: Run) -> bool:
    """Tell whether a test is that of an ``assert``, which ``-O`` leaves out."""
    raw, names = run.code.code, run.isa.names
    at = run.next
    if at < len(raw) and names[raw[at]] == "NOT_TAKEN":
        at += 2
    if at + 1 >= len(raw):
        return False
    name, arg = names[raw[at]], raw[at + 1]
    if name == "LOAD_GLOBAL":  # 3.8
        return arg < len(run.code.names) and run.code.names[arg] == "AssertionError"
    return name == "LOAD_ASSERTION_ERROR" or (name == "LOAD_COMMON_CONSTANT" and arg == 0)


def _conditional(jumps_if: bool, where: Callable[[Run, int], int]) -> Handler:
    def handler(run: Run, arg: int) -> None:
        _test(run, where(run, arg), run.stack.pop(), jumps_if)

    return handler


def _pop_jump(run: Run, arg: int) -> int:
    return _absolute(run, arg) if run.isa.minor < (3, 11) else run.next + arg * 2


def _backward(run: Run, arg: int) -> int:
    return run.next - arg * 2


HANDLERS["POP_JUMP_IF_FALSE"] = _conditional(False, _pop_jump)
HANDLERS["POP_JUMP_IF_TRUE"] = _conditional(True, _pop_jump)
HANDLERS["POP_JUMP_FORWARD_IF_FALSE"] = _conditional(False, _relative)
HANDLERS["POP_JUMP_FORWARD_IF_TRUE"] = _conditional(True, _relative)
HANDLERS["POP_JUMP_BACKWARD_IF_FALSE"] = _conditional(False, _backward)
HANDLERS["POP_JUMP_BACKWARD_IF_TRUE"] = _conditional(True, _backward)


@on("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE")
def _jump_none(run: Run, arg: int) -> None:
    run.stack.pop()
    run.jump(_relative(run, arg), branch=True)


@on("POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE")
def _jump_back_none(run: Run, arg: int) -> None:
    run.stack.pop()
    run.jump(_backward(run, arg), branch=True)


def _or_pop(jumps_if: bool) -> Handler:
    def handler(run: Run, arg: int) -> None:
        target = _absolute(run, arg) if run.isa.minor < (3, 11) else _relative(run, arg)
        value = run.stack[-1]
        if run.builder.is_checking(value):
            if not jumps_if:
                run.jump(target, branch=False)
                return
        else:
            run.jump(target, branch=True)
        run.stack.pop()

    return handler


HANDLERS["JUMP_IF_FALSE_OR_POP"] = _or_pop(False)
HANDLERS["JUMP_IF_TRUE_OR_POP"] = _or_pop(True)


@on("JUMP_IF_NOT_EXC_MATCH")
def _jump_no_match(run: Run, arg: int) -> None:
    run.pop_many(2)
    run.jump(_absolute(run, arg), branch=True)


@on("FOR_ITER")
def _for_iter(run: Run, arg: int) -> None:
    stack = run.stack
    if len(stack) > 1 and isinstance(stack[-2], (list, Map)):
        stack[-2] = None  # the result of a comprehension that is compiled in place
    after = [*stack, None] if run.isa.minor >= (3, 12) else stack[:-1]
    run.jump(_relative(run, arg), after, branch=True)
    stack.append(None)


@on("END_FOR")
def _end_for(run: Run, _: int) -> None:
    run.pop_many(2 if run.isa.minor == (3, 12) else 1)


@on("SEND")
def _send(run: Run, arg: int) -> None:
    stack = run.stack
    after = [*stack[:-1], None] if run.isa.minor >= (3, 12) else [*stack[:-2], None]
    run.jump(_relative(run, arg), after, branch=True, span=False)
    stack[-1] = None


@on("RETURN_VALUE")
def _return(run: Run, _: int) -> None:
    value = run.returned = run.stack.pop()
    if value is not None and run.frame.kind == "function":
        run.scope.hand(value)
    run.leave()


@on("GET_ITER")
def _go_through(run: Run, _: int) -> None:
    value = run.stack[-1]
    if value is not None:
        run.scope.hand(value)
        run.stack[-1] = None


@on("RETURN_CONST")
def _return_const(run: Run, arg: int) -> None:
    run.add_strings(run.code.consts[arg])
    run.leave()


@on("RAISE_VARARGS", "RERAISE")
def _raise(run: Run, _: int) -> None:
    run.leave()


def _handler(run: Run, target: int, stack: list[Value]) -> None:
    run.label(target, [*stack, *[None] * 6], run.main, True)
    if target > run.offset:
        run.spans.append((run.offset, target))


@on("SETUP_FINALLY")
def _setup_finally(run: Run, arg: int) -> None:
    _handler(run, _relative(run, arg), run.stack)


@on("SETUP_WITH")
def _setup_with(run: Run, arg: int) -> None:
    run.stack[-1] = None
    _handler(run, _relative(run, arg), run.stack)
    run.stack.append(None)


@on("SETUP_ASYNC_WITH")
def _setup_async_with(run: Run, arg: int) -> None:
    _handler(run, _relative(run, arg), run.stack[:-1])


# 3.8 shares the code of a ``finally`` between normal flow, which pushes one value, and exceptions, which push six:
# here it is six always.


@on("BEGIN_FINALLY")
def _begin_finally(run: Run, _: int) -> None:
    run.stack += [None] * 6
    run.finallies += 1


@on("END_FINALLY")
def _end_finally(run: Run, _: int) -> None:
    run.pop_many(6)
    if run.finallies:
        run.finallies -= 1


@on("CALL_FINALLY")
def _call_finally(run: Run, arg: int) -> None:
    """The block is a label since its SETUP_FINALLY; a value that is about to be returned may lie below, so the stack
    of this call is not joined with that one."""


@on("POP_FINALLY")
def _pop_finally(run: Run, arg: int) -> None:
    top = run.stack.pop() if arg else None
    run.pop_many(6)
    if arg:
        run.stack.append(top)


@on("WITH_CLEANUP_START")
def _with_cleanup(run: Run, _: int) -> None:
    del run.stack[-7]
    run.stack += [None, None]


@on("POP_EXCEPT")
def _pop_except(run: Run, _: int) -> None:
    run.pop_many(1 if run.isa.modern else 3)


@on("END_ASYNC_FOR")
def _end_async_for(run: Run, _: int) -> None:
    run.pop_many(2 if run.isa.modern else 7)
    run.handle(False)
