"""The stack, literals and operators."""

from __future__ import annotations

from collections.abc import Callable

from imgdiff.kinds import _fold
from imgdiff.kinds._facts import is_search_path
from imgdiff.kinds._fold import MAX_ITEMS, STAR, Dotted, Made, Map, Value
from imgdiff.kinds.bytecode._calls import Calls as Run
from imgdiff.kinds.bytecode._handlers import HANDLERS, Handler, on
from imgdiff.kinds.bytecode._state import LENGTH, MAIN, NULL, OTHER
from imgdiff.kinds.bytecode.marshal_reader import Container
from imgdiff.model import HOLE_NAME

_ADD, _REMAINDER, _DIVIDE, _SUBSCRIPT = (0, 13), (6, 19), (11, 24), 26


@on("COPY")
def _copy(run: Run, arg: int) -> None:
    run.stack.append(run.stack[-arg])


@on("SWAP")
def _swap(run: Run, arg: int) -> None:
    stack = run.stack
    stack[-1], stack[-arg] = stack[-arg], stack[-1]


def _rotate(run: Run, count: int) -> None:
    stack = run.stack
    if count > len(stack):
        raise IndexError("the stack underflows")
    stack.insert(len(stack) - count, stack.pop())


HANDLERS["ROT_TWO"] = lambda run, _: _rotate(run, 2)
HANDLERS["ROT_THREE"] = lambda run, _: _rotate(run, 3)
HANDLERS["ROT_FOUR"] = lambda run, _: _rotate(run, 4)
HANDLERS["ROT_N"] = _rotate


@on("DUP_TOP")
def _dup(run: Run, _: int) -> None:
    run.stack.append(run.stack[-1])


@on("DUP_TOP_TWO")
def _dup_two(run: Run, _: int) -> None:
    run.stack += run.stack[-2:]


@on("UNPACK_SEQUENCE")
def _unpack(run: Run, arg: int) -> None:
    value = run.stack.pop()
    if isinstance(value, (tuple, list)) and len(value) == arg and STAR not in value:
        run.stack.extend(reversed(value))
    else:
        run.push_unknown(arg)


@on("UNPACK_EX")
def _unpack_ex(run: Run, arg: int) -> None:
    run.stack.pop()
    run.push_unknown((arg & 0xFF) + 1 + (arg >> 8))


@on("BUILD_TUPLE")
def _build_tuple(run: Run, arg: int) -> None:
    run.stack.append(tuple(run.pop_many(arg)))


@on("BUILD_LIST")
def _build_list(run: Run, arg: int) -> None:
    values = run.pop_many(arg)
    run.stack.append(values if len(values) <= MAX_ITEMS else None)


@on("PUSH_NULL")
def _push_null(run: Run, _: int) -> None:
    run.stack.append(NULL)


@on("LOAD_SMALL_INT")
def _small_int(run: Run, arg: int) -> None:
    run.stack.append(arg)


@on("BUILD_INTERPOLATION")
def _build_interpolation(run: Run, arg: int) -> None:
    if arg & 1:
        run.drop(run.stack.pop())
    run.drop(run.pop_many(2)[1])  # the text of the expression
    run.stack.append(None)


@on("BUILD_SET", "BUILD_SLICE", "BUILD_SET_UNPACK")
def _build_unknown(run: Run, arg: int) -> None:
    run.pop_many(arg)
    run.stack.append(None)


@on("BUILD_MAP")
def _build_map(run: Run, arg: int) -> None:
    values = run.pop_many(2 * arg)
    run.stack.append(Map(list(zip(values[::2], values[1::2], strict=True))))


@on("BUILD_CONST_KEY_MAP")
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


@on("BUILD_LIST_UNPACK")
def _list_unpack(run: Run, arg: int) -> None:
    run.stack.append(_flatten(run.pop_many(arg)))


@on("BUILD_TUPLE_UNPACK", "BUILD_TUPLE_UNPACK_WITH_CALL")
def _tuple_unpack(run: Run, arg: int) -> None:
    run.stack.append(tuple(_flatten(run.pop_many(arg))))


@on("BUILD_MAP_UNPACK", "BUILD_MAP_UNPACK_WITH_CALL")
def _map_unpack(run: Run, arg: int) -> None:
    pairs: list[tuple[Value, Value]] = []
    for value in run.pop_many(arg):
        if type(value) is Map:
            pairs.extend(value.pairs)
    run.stack.append(Map(pairs))


@on("LIST_APPEND")
def _list_append(run: Run, arg: int) -> None:
    value = run.stack.pop()
    target = run.stack[-arg]
    if arg == 1 and type(target) is list:
        if len(target) < MAX_ITEMS:
            target.append(value)
        else:
            run.stack[-arg] = None


@on("LIST_EXTEND")
def _list_extend(run: Run, arg: int) -> None:
    value = run.stack.pop()
    target = run.stack[-arg]
    if type(target) is list:
        more = list(value) if isinstance(value, (tuple, list)) else [STAR]
        if len(target) + len(more) > MAX_ITEMS:
            run.stack[-arg] = None
        else:
            target.extend(more)


@on("LIST_TO_TUPLE")
def _list_to_tuple(run: Run, _: int) -> None:
    value = run.stack[-1]
    run.stack[-1] = tuple(value) if type(value) is list else None


@on("MAP_ADD")
def _map_add(run: Run, arg: int) -> None:
    key, value = run.pop_many(2)
    target = run.stack[-arg]
    if type(target) is Map:
        target.pairs.append((key, value))


@on("DICT_UPDATE", "DICT_MERGE")
def _dict_update(run: Run, arg: int) -> None:
    value = run.stack.pop()
    target = run.stack[-arg]
    if type(target) is Map and type(value) is Map:
        target.pairs.extend(value.pairs)


@on("BUILD_STRING")
def _build_string(run: Run, arg: int) -> None:
    patterns = run.scope.patterns
    run.stack.append(patterns.make([patterns.take(value) for value in run.pop_many(arg)]))


@on("FORMAT_VALUE")
def _format_value(run: Run, arg: int) -> None:
    if arg & 4:
        run.drop(run.stack.pop())
    value = run.stack.pop()
    run.stack.append(value if isinstance(value, str) and not arg & 4 and arg & 3 in (0, 1) else None)


@on("FORMAT_SIMPLE")
def _format_simple(run: Run, _: int) -> None:
    value = run.stack[-1]
    run.stack[-1] = value if isinstance(value, str) else None


@on("FORMAT_WITH_SPEC")
def _format_spec(run: Run, _: int) -> None:
    run.drop(run.stack.pop())
    run.stack[-1] = None


@on("CONVERT_VALUE")
def _convert(run: Run, arg: int) -> None:
    if arg != 1:
        run.stack[-1] = None


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
    def handler(run: Run, _: int) -> None:
        left, right = run.pop_many(2)
        run.stack.append(operate(run, left, right))

    return handler


HANDLERS["BINARY_ADD"] = HANDLERS["INPLACE_ADD"] = _binary(_add)
HANDLERS["BINARY_MODULO"] = HANDLERS["INPLACE_MODULO"] = _binary(_modulo)
HANDLERS["BINARY_TRUE_DIVIDE"] = HANDLERS["INPLACE_TRUE_DIVIDE"] = _binary(_divide)
HANDLERS["BINARY_SUBSCR"] = _binary(_subscript)


@on("BINARY_OP")
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


def _is_main_test(left: Value, right: Value) -> bool:
    """Tell whether two compared values are ``__name__`` and "__main__"."""
    return isinstance(left, str) and isinstance(right, str) and {str(left), str(right)} == {HOLE_NAME, "__main__"}


def _looked_for(run: Run, left: Value, right: Value) -> None:
    run.scope.compare(left)
    run.scope.among(list(right.items) if type(right) is Container else right)


def _asks_format(run: Run, value: Value) -> bool:
    """Tell whether a function that gives annotations, a bound or an alias compares the format that it is asked for
    (PEP 649)."""
    return run.frame.kind == "inline" and type(value) is Dotted and value.text in ("?format", "?.format")


@on("CONTAINS_OP")
def _contains(run: Run, _: int) -> None:
    left, right = run.pop_many(2)
    _looked_for(run, left, right)
    run.stack.append(None)


@on("GET_LEN")
def _get_length(run: Run, _: int) -> None:
    run.stack.append(LENGTH)


@on("COMPARE_OP")
def _compare(run: Run, arg: int) -> None:
    left, right = run.pop_many(2)
    minor = run.isa.minor
    if minor < (3, 9) and arg > 5:  # in, not in, is, is not, and what an exception matches
        if arg < 8:
            _looked_for(run, left, right)
    elif left is not LENGTH and not (minor >= (3, 14) and _asks_format(run, left)):
        run.scope.compare(left)
        run.scope.compare(right)
    operator = arg >> 5 if minor >= (3, 13) else arg >> 4 if minor >= (3, 12) else arg
    result: Value = None
    if run.frame.kind == "module" and operator in (2, 3) and _is_main_test(left, right):
        result = MAIN if operator == 2 else OTHER
    run.stack.append(result)


def _assign_path(run: Run, value: Value) -> None:
    """Note what is assigned to sys.path or a part of it."""
    scope, line = run.scope, run.line(run.offset)
    run.events.append((run.offset, run.maybe(), lambda maybe: scope.add_call("path.assign", [value], (), line, maybe)))


@on("STORE_SLICE")
def _store_slice(run: Run, _: int) -> None:
    value, container = run.pop_many(4)[:2]
    if is_search_path(container):
        _assign_path(run, value)


@on("STORE_ATTR")
def _store_attribute(run: Run, arg: int) -> None:
    value, target = run.pop_many(2)
    run.scope.hand(value)
    if type(target) is Dotted and run.code.names[arg] == "path" and is_search_path(Dotted(f"{target.text}.path")):
        _assign_path(run, value)


@on("STORE_SUBSCR")
def _store_subscript(run: Run, _: int) -> None:
    value, container, key = run.pop_many(3)
    if is_search_path(container):
        _assign_path(run, value)
    annotates = type(container) is Map and run.code.name == "__annotate__"
    if annotates or (type(container) is Dotted and container.text == "__annotations__"):
        run.drop(key)
        run.annotation(value)
        return
    run.scope.hand(value)
    if type(key) is str and run.frame.kind == "module" and run.scope is run.builder.module:
        run.builder.entry(key, value)
