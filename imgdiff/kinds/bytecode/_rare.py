"""The instructions that facts are made of: jumps, stores, imports, functions, literals and operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from imgdiff.kinds import _fold
from imgdiff.kinds._fold import MAX_ITEMS, STAR, Dotted, Made, Map, Value
from imgdiff.kinds.bytecode._machine import BUILD_CLASS, MAIN, OTHER, Frame, Function, Run, is_main_test
from imgdiff.kinds.bytecode._semantics import Isa
from imgdiff.model import HOLE

_ADD, _REMAINDER, _DIVIDE, _SUBSCRIPT = (0, 13), (6, 19), (11, 24), 26

Handler = Callable[[Run, int], None]
RARE: dict[str, Handler] = {}


def _on(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            RARE[name] = handler
        return handler

    return register


@cache
def isa(minor: tuple[int, int]) -> Isa:
    """Return the instruction set of a minor."""
    return Isa(minor, RARE)


# --- jumps -----------------------------------------------------------------------------------------------------------


def _absolute(run: Run, arg: int) -> int:
    return arg * 2 if run.isa.minor >= (3, 10) else arg


def _relative(run: Run, arg: int) -> int:
    return run.next + (arg * 2 if run.isa.minor >= (3, 10) else arg)


@_on("JUMP_FORWARD")
def _jump_forward(run: Run, arg: int) -> None:
    run.jump(_relative(run, arg), branch=False)


@_on("JUMP_ABSOLUTE")
def _jump_absolute(run: Run, arg: int) -> None:
    run.jump(_absolute(run, arg), branch=False)


@_on("JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
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
            run.jump(target, branch=False, span=False)
        return
    if value is MAIN or value is OTHER:
        if (value is MAIN) is jumps_if:
            run.jump(target, branch=True, span=False, main=True)
        else:
            run.jump(target, branch=True, span=False)
            run._enter(True)  # noqa: SLF001 - the machine's other half
        return
    run.jump(target, branch=True)


def _conditional(jumps_if: bool, where: Callable[[Run, int], int]) -> Handler:
    def handler(run: Run, arg: int) -> None:
        _test(run, where(run, arg), run.stack.pop(), jumps_if)

    return handler


def _pop_jump(run: Run, arg: int) -> int:
    return _absolute(run, arg) if run.isa.minor < (3, 11) else run.next + arg * 2


def _backward(run: Run, arg: int) -> int:
    return run.next - arg * 2


RARE["POP_JUMP_IF_FALSE"] = _conditional(False, _pop_jump)
RARE["POP_JUMP_IF_TRUE"] = _conditional(True, _pop_jump)
RARE["POP_JUMP_FORWARD_IF_FALSE"] = _conditional(False, _relative)
RARE["POP_JUMP_FORWARD_IF_TRUE"] = _conditional(True, _relative)
RARE["POP_JUMP_BACKWARD_IF_FALSE"] = _conditional(False, _backward)
RARE["POP_JUMP_BACKWARD_IF_TRUE"] = _conditional(True, _backward)


@_on("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE")
def _jump_none(run: Run, arg: int) -> None:
    run.stack.pop()
    run.jump(_relative(run, arg), branch=True)


@_on("POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE")
def _jump_back_none(run: Run, arg: int) -> None:
    run.stack.pop()
    run.jump(_backward(run, arg), branch=True)


def _or_pop(jumps_if: bool) -> Handler:
    def handler(run: Run, arg: int) -> None:
        target = _absolute(run, arg) if run.isa.minor < (3, 11) else _relative(run, arg)
        value = run.stack[-1]
        if run.builder.is_checking(value):
            if not jumps_if:
                run.jump(target, branch=False, span=False)
                return
        else:
            run.jump(target, branch=True)
        run.stack.pop()

    return handler


RARE["JUMP_IF_FALSE_OR_POP"] = _or_pop(False)
RARE["JUMP_IF_TRUE_OR_POP"] = _or_pop(True)


@_on("JUMP_IF_NOT_EXC_MATCH")
def _jump_no_match(run: Run, arg: int) -> None:
    run.pop_many(2)
    run.jump(_absolute(run, arg), branch=True)


@_on("FOR_ITER")
def _for_iter(run: Run, arg: int) -> None:
    stack = run.stack
    if len(stack) > 1 and isinstance(stack[-2], (list, Map)):
        stack[-2] = None  # the result of a comprehension that is compiled in place
    after = [*stack, None] if run.isa.minor >= (3, 12) else stack[:-1]
    run.jump(_relative(run, arg), after, branch=True)
    stack.append(None)


@_on("END_FOR")
def _end_for(run: Run, arg: int) -> None:
    run.pop_many(2 if run.isa.minor == (3, 12) else 1)


@_on("SEND")
def _send(run: Run, arg: int) -> None:
    stack = run.stack
    after = [*stack[:-1], None] if run.isa.minor >= (3, 12) else [*stack[:-2], None]
    run.jump(_relative(run, arg), after, branch=True, span=False)
    stack[-1] = None


@_on("RETURN_VALUE")
def _return(run: Run, arg: int) -> None:
    run.returned = run.stack.pop()
    run.leave()


@_on("RETURN_CONST")
def _return_const(run: Run, arg: int) -> None:
    run.add_strings(run.code.consts[arg])
    run.leave()


@_on("RAISE_VARARGS", "RERAISE")
def _raise(run: Run, arg: int) -> None:
    run.leave()


# --- blocks ----------------------------------------------------------------------------------------------------------


def _handler(run: Run, target: int, stack: list[Value]) -> None:
    run._label(target, [*stack, *[None] * 6], run.main, True)  # noqa: SLF001 - the machine's other half
    if target > run.offset:
        run.spans.append((run.offset, target))


@_on("SETUP_FINALLY")
def _setup_finally(run: Run, arg: int) -> None:
    _handler(run, _relative(run, arg), run.stack)


@_on("SETUP_WITH")
def _setup_with(run: Run, arg: int) -> None:
    run.stack[-1] = None
    _handler(run, _relative(run, arg), run.stack)
    run.stack.append(None)


@_on("SETUP_ASYNC_WITH")
def _setup_async_with(run: Run, arg: int) -> None:
    _handler(run, _relative(run, arg), run.stack[:-1])


# 3.8 shares the code of a ``finally`` between normal flow, which pushes one value, and exceptions, which push six:
# here it is six always.


@_on("BEGIN_FINALLY")
def _begin_finally(run: Run, arg: int) -> None:
    run.stack += [None] * 6
    run.finallies += 1


@_on("END_FINALLY")
def _end_finally(run: Run, arg: int) -> None:
    run.pop_many(6)
    if run.finallies:
        run.finallies -= 1


@_on("CALL_FINALLY")
def _call_finally(run: Run, arg: int) -> None:
    """The block is a label since its SETUP_FINALLY; a value that is about to be returned may lie below, so the stack
    of this call is not joined with that one."""


@_on("POP_FINALLY")
def _pop_finally(run: Run, arg: int) -> None:
    top = run.stack.pop() if arg else None
    run.pop_many(6)
    if arg:
        run.stack.append(top)


@_on("WITH_CLEANUP_START")
def _with_cleanup(run: Run, arg: int) -> None:
    del run.stack[-7]
    run.stack += [None, None]


@_on("POP_EXCEPT")
def _pop_except(run: Run, arg: int) -> None:
    run.pop_many(1 if run.isa.modern else 3)


@_on("END_ASYNC_FOR")
def _end_async_for(run: Run, arg: int) -> None:
    run.pop_many(2 if run.isa.modern else 7)
    run.handler = False


# --- the stack -------------------------------------------------------------------------------------------------------


@_on("COPY")
def _copy(run: Run, arg: int) -> None:
    run.stack.append(run.stack[-arg])


@_on("SWAP")
def _swap(run: Run, arg: int) -> None:
    stack = run.stack
    stack[-1], stack[-arg] = stack[-arg], stack[-1]


def _rotate(run: Run, count: int) -> None:
    stack = run.stack
    if count > len(stack):
        raise IndexError("the stack underflows")
    stack.insert(len(stack) - count, stack.pop())


RARE["ROT_TWO"] = lambda run, arg: _rotate(run, 2)
RARE["ROT_THREE"] = lambda run, arg: _rotate(run, 3)
RARE["ROT_FOUR"] = lambda run, arg: _rotate(run, 4)
RARE["ROT_N"] = _rotate


@_on("DUP_TOP")
def _dup(run: Run, arg: int) -> None:
    run.stack.append(run.stack[-1])


@_on("DUP_TOP_TWO")
def _dup_two(run: Run, arg: int) -> None:
    run.stack += run.stack[-2:]


@_on("UNPACK_SEQUENCE")
def _unpack(run: Run, arg: int) -> None:
    value = run.stack.pop()
    if isinstance(value, (tuple, list)) and len(value) == arg and STAR not in value:
        run.stack.extend(reversed(value))
    else:
        run.stack.extend([None] * arg)


@_on("UNPACK_EX")
def _unpack_ex(run: Run, arg: int) -> None:
    run.stack.pop()
    run.stack.extend([None] * ((arg & 0xFF) + 1 + (arg >> 8)))


# --- names -----------------------------------------------------------------------------------------------------------


@_on("STORE_NAME")
def _store_name(run: Run, arg: int) -> None:
    run.store_name(run.code.names[arg], always_global=False)


@_on("STORE_GLOBAL")
def _store_global(run: Run, arg: int) -> None:
    run.store_name(run.code.names[arg], always_global=True)


@_on("STORE_DEREF")
def _store_deref(run: Run, arg: int) -> None:
    run.frame.bind(run.deref(arg), run.stack.pop())


@_on("LOAD_DEREF")
def _load_deref(run: Run, arg: int) -> None:
    run.stack.append(run.frame.local(run.deref(arg)))


@_on("LOAD_CLASSDEREF")
def _load_class_deref(run: Run, arg: int) -> None:
    run.stack.append(Dotted("?" + run.deref(arg)))


@_on("LOAD_FROM_DICT_OR_DEREF")
def _load_dict_deref(run: Run, arg: int) -> None:
    run.stack[-1] = Dotted("?" + run.deref(arg))


@_on("LOAD_FROM_DICT_OR_GLOBALS")
def _load_dict_global(run: Run, arg: int) -> None:
    name = run.code.names[arg]
    run.scope.names.add(name)
    run.stack[-1] = run.builder.load(name)


@_on("LOAD_SUPER_ATTR")
def _load_super(run: Run, arg: int) -> None:
    name = run.code.names[arg >> 2]
    run.scope.names.add(name)
    run.pop_many(3)
    value = Dotted(f"?.{name}")
    run.stack.extend(([None, value] if run.isa.null_first else [value, None]) if arg & 1 else [value])


@_on("LOAD_BUILD_CLASS")
def _build_class(run: Run, arg: int) -> None:
    run.stack.append(BUILD_CLASS)


@_on("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
def _load_two(run: Run, arg: int) -> None:
    names = run.variables
    run.stack += [run.frame.local(names[arg >> 4]), run.frame.local(names[arg & 15])]


@_on("STORE_FAST_LOAD_FAST")
def _store_load(run: Run, arg: int) -> None:
    names = run.variables
    run.frame.bind(names[arg >> 4], run.stack.pop())
    run.stack.append(run.frame.local(names[arg & 15]))


@_on("STORE_FAST_STORE_FAST")
def _store_two(run: Run, arg: int) -> None:
    names = run.variables
    run.frame.bind(names[arg >> 4], run.stack.pop())
    run.frame.bind(names[arg & 15], run.stack.pop())


@_on("IMPORT_NAME")
def _import_name(run: Run, arg: int) -> None:
    level, fromlist = run.pop_many(2)
    module = run.code.names[arg]
    names: tuple[str, ...] = ()
    if type(fromlist) is tuple:
        run.drop(fromlist)
        names = tuple([name for name in fromlist if type(name) is str])
    if type(level) is not int or not 0 <= level < 1000:
        level = 0
    run.fromlist = bool(names)
    scope, line = run.scope, run.line(run.offset)
    run.events.append((run.offset, run.maybe(), lambda maybe: scope.add_import(module, names, level, line, maybe)))
    run.stack.append(Dotted("." * level + module if names else module.partition(".")[0]))


@_on("IMPORT_FROM")
def _import_from(run: Run, arg: int) -> None:
    name = run.code.names[arg]
    origin = run.stack[-1]
    run.import_name = arg
    text = origin.text if type(origin) is Dotted else "?"
    run.stack.append(Dotted(text + name if not text.strip(".") else f"{text}.{name}"))


@_on("MATCH_CLASS")
def _match_class(run: Run, arg: int) -> None:
    names = run.pop_many(3)[2]
    run.drop(names)
    if type(names) is tuple:
        run.scope.names.update([name for name in names if type(name) is str])
    run.stack.extend([None] * (1 if run.isa.modern else 2))


@_on("MATCH_KEYS")
def _match_keys(run: Run, arg: int) -> None:
    run.stack.extend([None] * (1 if run.isa.modern else 2))


# --- functions and calls ---------------------------------------------------------------------------------------------


@_on("MAKE_FUNCTION")
def _make_function(run: Run, arg: int) -> None:
    stack = run.stack
    qualname: Value = None
    if not run.isa.modern:
        qualname = stack.pop()
        run.drop(qualname)
    code = stack.pop()
    if run.isa.minor < (3, 13):
        if arg & 8:
            stack.pop()
        if arg & 4:
            run.annotations(stack.pop())
        if arg & 2:
            _keyword_defaults(run, stack.pop())
        if arg & 1:
            stack.pop()
    stack.append(run.make_function(code, qualname if type(qualname) is str else None))


def _keyword_defaults(run: Run, value: Value) -> None:
    """The keys of a function's keyword defaults are names of parameters."""
    if type(value) is Map:
        for key, _ in value.pairs:
            run.drop(key)


@_on("SET_FUNCTION_ATTRIBUTE")
def _set_function_attribute(run: Run, arg: int) -> None:
    function = run.stack.pop()
    value = run.stack.pop()
    if arg == 4:
        run.annotations(value)
    elif arg == 2:
        _keyword_defaults(run, value)
    run.stack.append(function)


@_on("KW_NAMES")
def _kw_names(run: Run, arg: int) -> None:
    names = run.code.consts[arg]
    run.kwnames = names if type(names) is tuple else ()


@_on("CALL_KW")
def _call_kw(run: Run, arg: int) -> None:
    names = run.stack.pop()
    run.drop(names)
    values = run.pop_many(arg)
    function = run.pop_many(2)[0]
    run.stack.append(run.call(function, values, names if type(names) is tuple else ()))


@_on("CALL_FUNCTION")
def _call_function(run: Run, arg: int) -> None:
    values = run.pop_many(arg)
    run.stack.append(run.call(run.stack.pop(), values, ()))


@_on("CALL_METHOD")
def _call_method(run: Run, arg: int) -> None:
    values = run.pop_many(arg)
    run.stack.append(run.call(run.pop_many(2)[1], values, ()))


@_on("CALL_FUNCTION_KW")
def _call_function_kw(run: Run, arg: int) -> None:
    names = run.stack.pop()
    run.drop(names)
    values = run.pop_many(arg)
    run.stack.append(run.call(run.stack.pop(), values, names if type(names) is tuple else ()))


@_on("CALL_FUNCTION_EX")
def _call_function_ex(run: Run, arg: int) -> None:
    keywords = run.stack.pop() if arg & 1 or run.isa.minor >= (3, 14) else None
    positional = run.stack.pop()
    if not run.isa.modern:
        function = run.stack.pop()
    else:
        first, second = run.pop_many(2)
        function = second if run.isa.null_first else first
    values = list(positional) if isinstance(positional, (tuple, list)) else [STAR]
    pairs = [(key, value) for key, value in keywords.pairs if isinstance(key, str)] if type(keywords) is Map else []
    for key, _ in pairs:
        run.drop(key)
    if function is BUILD_CLASS:
        if len(values) > 1:
            run.drop(values[1])
        run.stack.append(None)
    elif type(function) is Dotted:
        run.stack.append(run.finish_call(function, function.text.rpartition(".")[2], values, pairs))
    elif type(function) is _fold.Bound:
        run.stack.append(run.finish_call(function, function.name, values, pairs))
    else:
        run.stack.append(None)


@_on("CALL_INTRINSIC_1")
def _intrinsic_1(run: Run, arg: int) -> None:
    value = run.stack.pop()
    if arg == 6 and isinstance(value, (tuple, list)):  # LIST_TO_TUPLE
        run.stack.append(tuple(value))
        return
    _type_parameter(run, value)
    run.stack.append(None)


@_on("CALL_INTRINSIC_2")
def _intrinsic_2(run: Run, arg: int) -> None:
    first, second = run.pop_many(2)
    if arg == 4:  # SET_FUNCTION_TYPE_PARAMS
        run.stack.append(first)
        return
    _type_parameter(run, first)
    _type_parameter(run, second)
    run.stack.append(None)


def _type_parameter(run: Run, value: Value) -> None:
    """The bound of a type parameter and the value of a type alias are functions that belong to their scope; their
    names are no strings."""
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if type(item) is Function and item.scope is not None:
            item.scope = None
            run.inline(item.code, "inline", False)
        elif type(item) is str:
            run.drop(item)


# --- literals --------------------------------------------------------------------------------------------------------


@_on("BUILD_TUPLE")
def _build_tuple(run: Run, arg: int) -> None:
    run.stack.append(tuple(run.pop_many(arg)))


@_on("BUILD_LIST")
def _build_list(run: Run, arg: int) -> None:
    values = run.pop_many(arg)
    run.stack.append(values if len(values) <= MAX_ITEMS else None)


@_on("BUILD_SET", "BUILD_SLICE", "BUILD_SET_UNPACK", "BUILD_INTERPOLATION")
def _build_unknown(run: Run, arg: int) -> None:
    run.pop_many(arg)
    run.stack.append(None)


@_on("BUILD_MAP")
def _build_map(run: Run, arg: int) -> None:
    values = run.pop_many(2 * arg)
    run.stack.append(Map(list(zip(values[::2], values[1::2], strict=True))))


@_on("BUILD_CONST_KEY_MAP")
def _build_const_map(run: Run, arg: int) -> None:
    keys = run.stack.pop()
    values = run.pop_many(arg)
    run.stack.append(Map(list(zip(keys, values, strict=False))) if type(keys) is tuple else None)


def _flatten(values: list[Value]) -> list[Value]:
    flat: list[Value] = []
    for value in values:
        if isinstance(value, (tuple, list)):
            flat.extend(value)
        else:
            flat.append(STAR)
    return flat


@_on("BUILD_LIST_UNPACK")
def _list_unpack(run: Run, arg: int) -> None:
    run.stack.append(_flatten(run.pop_many(arg)))


@_on("BUILD_TUPLE_UNPACK", "BUILD_TUPLE_UNPACK_WITH_CALL")
def _tuple_unpack(run: Run, arg: int) -> None:
    run.stack.append(tuple(_flatten(run.pop_many(arg))))


@_on("BUILD_MAP_UNPACK", "BUILD_MAP_UNPACK_WITH_CALL")
def _map_unpack(run: Run, arg: int) -> None:
    pairs: list[tuple[Value, Value]] = []
    for value in run.pop_many(arg):
        if type(value) is Map:
            pairs.extend(value.pairs)
    run.stack.append(Map(pairs))


@_on("LIST_APPEND")
def _list_append(run: Run, arg: int) -> None:
    value = run.stack.pop()
    target = run.stack[-arg]
    if arg == 1 and type(target) is list:
        if len(target) < MAX_ITEMS:
            target.append(value)
        else:
            run.stack[-arg] = None


@_on("LIST_EXTEND")
def _list_extend(run: Run, arg: int) -> None:
    value = run.stack.pop()
    target = run.stack[-arg]
    if type(target) is list:
        more = list(value) if isinstance(value, (tuple, list)) else [STAR]
        if len(target) + len(more) > MAX_ITEMS:
            run.stack[-arg] = None
        else:
            target.extend(more)


@_on("LIST_TO_TUPLE")
def _list_to_tuple(run: Run, arg: int) -> None:
    value = run.stack[-1]
    run.stack[-1] = tuple(value) if type(value) is list else None


@_on("MAP_ADD")
def _map_add(run: Run, arg: int) -> None:
    key, value = run.pop_many(2)
    target = run.stack[-arg]
    if type(target) is Map:
        target.pairs.append((key, value))


@_on("DICT_UPDATE", "DICT_MERGE")
def _dict_update(run: Run, arg: int) -> None:
    value = run.stack.pop()
    target = run.stack[-arg]
    if type(target) is Map and type(value) is Map:
        target.pairs.extend(value.pairs)


@_on("BUILD_STRING")
def _build_string(run: Run, arg: int) -> None:
    patterns = run.scope.patterns
    run.stack.append(patterns.make([patterns.take(value) for value in run.pop_many(arg)]))


@_on("FORMAT_VALUE")
def _format_value(run: Run, arg: int) -> None:
    if arg & 4:
        run.drop(run.stack.pop())
    value = run.stack.pop()
    run.stack.append(value if isinstance(value, str) and not arg & 4 and arg & 3 in (0, 1) else None)


@_on("FORMAT_SIMPLE")
def _format_simple(run: Run, arg: int) -> None:
    value = run.stack[-1]
    run.stack[-1] = value if isinstance(value, str) else None


@_on("FORMAT_WITH_SPEC")
def _format_spec(run: Run, arg: int) -> None:
    run.drop(run.stack.pop())
    run.stack[-1] = None


@_on("CONVERT_VALUE")
def _convert(run: Run, arg: int) -> None:
    if arg != 1:
        run.stack[-1] = None


# --- operators -------------------------------------------------------------------------------------------------------


def _add(run: Run, left: Value, right: Value) -> Value:
    return _fold.add(run.scope.patterns, left, right)


def _divide(run: Run, left: Value, right: Value) -> Value:
    return _fold.divide(run.scope.patterns, left, right)


def _modulo(run: Run, left: Value, right: Value) -> Value:
    if not isinstance(left, str) or type(left) is Made:
        return None
    if type(left) is str:
        run.drop(left)
        for piece in _fold.pieces(left):
            run.strings[piece] = run.strings.get(piece, 0) + 1
    return _fold.modulo(run.scope.patterns, left, right)


def _subscript(run: Run, left: Value, right: Value) -> Value:
    return _fold.subscript(run.scope.patterns, left, right)


def _binary(operate: Callable[[Run, Value, Value], Value]) -> Handler:
    def handler(run: Run, arg: int) -> None:
        left, right = run.pop_many(2)
        run.stack.append(operate(run, left, right))

    return handler


RARE["BINARY_ADD"] = RARE["INPLACE_ADD"] = _binary(_add)
RARE["BINARY_MODULO"] = RARE["INPLACE_MODULO"] = _binary(_modulo)
RARE["BINARY_TRUE_DIVIDE"] = RARE["INPLACE_TRUE_DIVIDE"] = _binary(_divide)
RARE["BINARY_SUBSCR"] = _binary(_subscript)


@_on("BINARY_OP")
def _binary_op(run: Run, arg: int) -> None:
    left, right = run.pop_many(2)
    result: Value = None
    if arg in _ADD:
        result = _add(run, left, right)
    elif arg in _REMAINDER:
        result = _modulo(run, left, right)
    elif arg in _DIVIDE:
        result = _divide(run, left, right)
    elif arg == _SUBSCRIPT:
        result = _subscript(run, left, right)
    run.stack.append(result)


@_on("COMPARE_OP")
def _compare(run: Run, arg: int) -> None:
    left, right = run.pop_many(2)
    minor = run.isa.minor
    operator = arg >> 5 if minor >= (3, 13) else arg >> 4 if minor >= (3, 12) else arg
    result: Value = None
    if run.frame.kind == "module" and operator in (2, 3) and is_main_test(left, right):
        result = MAIN if operator == 2 else OTHER
    run.stack.append(result)


@_on("STORE_SUBSCR")
def _store_subscript(run: Run, arg: int) -> None:
    value, container, key = run.pop_many(3)
    if type(container) is Dotted and container.text == "__annotations__":
        run.drop(key)
        run.annotation(value)
    elif type(key) is str and run.frame.kind == "module" and run.scope is run.builder.module:
        run.builder.entry(key, value)


__all__ = ["HOLE", "RARE", "Frame", "isa"]
