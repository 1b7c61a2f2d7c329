"""Stores and loads that are not plain, imports, functions and calls."""

from __future__ import annotations

from imgdiff.kinds import _fold
from imgdiff.kinds._fold import STAR, Dotted, Map, Value
from imgdiff.kinds.bytecode._calls import Calls as Run
from imgdiff.kinds.bytecode._handlers import on
from imgdiff.kinds.bytecode._state import BUILD_CLASS, Function


@on("STORE_NAME")
def _store_name(run: Run, arg: int) -> None:
    run.store_name(run.code.names[arg], always_global=False)


@on("STORE_GLOBAL")
def _store_global(run: Run, arg: int) -> None:
    run.store_name(run.code.names[arg], always_global=True)


@on("STORE_DEREF")
def _store_deref(run: Run, arg: int) -> None:
    run.frame.bind(run.deref(arg), run.stack.pop(), run.handler)


@on("LOAD_DEREF")
def _load_deref(run: Run, arg: int) -> None:
    run.stack.append(run.frame.local(run.deref(arg)))


@on("LOAD_CLASSDEREF")
def _load_class_deref(run: Run, arg: int) -> None:
    run.stack.append(Dotted("?" + run.deref(arg)))


@on("LOAD_FROM_DICT_OR_DEREF")
def _load_dict_deref(run: Run, arg: int) -> None:
    run.stack[-1] = Dotted("?" + run.deref(arg))


@on("LOAD_FROM_DICT_OR_GLOBALS")
def _load_dict_global(run: Run, arg: int) -> None:
    name = run.code.names[arg]
    run.scope.names.add(name)
    run.stack[-1] = run.builder.load(name)


@on("LOAD_SUPER_ATTR")
def _load_super(run: Run, arg: int) -> None:
    name = run.code.names[arg >> 2]
    run.scope.names.add(name)
    run.pop_many(3)
    value = Dotted(f"?.{name}")
    run.stack.extend(([None, value] if run.isa.null_first else [value, None]) if arg & 1 else [value])


@on("LOAD_BUILD_CLASS")
def _build_class(run: Run, _: int) -> None:
    run.stack.append(BUILD_CLASS)


@on("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
def _load_two(run: Run, arg: int) -> None:
    names = run.variables
    run.stack += [run.frame.local(names[arg >> 4]), run.frame.local(names[arg & 15])]


@on("STORE_FAST_LOAD_FAST")
def _store_load(run: Run, arg: int) -> None:
    names = run.variables
    run.frame.bind(names[arg >> 4], run.stack.pop(), run.handler)
    run.stack.append(run.frame.local(names[arg & 15]))


@on("STORE_FAST_STORE_FAST")
def _store_two(run: Run, arg: int) -> None:
    names = run.variables
    run.frame.bind(names[arg >> 4], run.stack.pop(), run.handler)
    run.frame.bind(names[arg & 15], run.stack.pop(), run.handler)


@on("IMPORT_NAME")
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


@on("IMPORT_FROM")
def _import_from(run: Run, arg: int) -> None:
    name = run.code.names[arg]
    origin = run.stack[-1]
    run.import_name = arg
    text = origin.text if type(origin) is Dotted else "?"
    run.stack.append(Dotted(text + name if not text.strip(".") else f"{text}.{name}"))


@on("MATCH_CLASS")
def _match_class(run: Run, _: int) -> None:
    names = run.pop_many(3)[2]
    run.drop(names)
    if type(names) is tuple:
        run.scope.names.update([name for name in names if type(name) is str])
    run.stack.extend([None] * (1 if run.isa.modern else 2))


@on("MATCH_KEYS")
def _match_keys(run: Run, _: int) -> None:
    run.stack.extend([None] * (1 if run.isa.modern else 2))


@on("MAKE_FUNCTION")
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


@on("SET_FUNCTION_ATTRIBUTE")
def _set_function_attribute(run: Run, arg: int) -> None:
    function = run.stack.pop()
    value = run.stack.pop()
    if arg == 4:
        run.annotations(value)
    elif arg == 2:
        _keyword_defaults(run, value)
    run.stack.append(function)


@on("KW_NAMES")
def _kw_names(run: Run, arg: int) -> None:
    names = run.code.consts[arg]
    run.kwnames = names if type(names) is tuple else ()


@on("CALL_KW")
def _call_kw(run: Run, arg: int) -> None:
    names = run.stack.pop()
    run.drop(names)
    values = run.pop_many(arg)
    function = run.pop_many(2)[0]
    run.stack.append(run.call(function, values, names if type(names) is tuple else ()))


@on("CALL_FUNCTION")
def _call_function(run: Run, arg: int) -> None:
    values = run.pop_many(arg)
    run.stack.append(run.call(run.stack.pop(), values, ()))


@on("CALL_METHOD")
def _call_method(run: Run, arg: int) -> None:
    values = run.pop_many(arg)
    run.stack.append(run.call(run.pop_many(2)[1], values, ()))


@on("CALL_FUNCTION_KW")
def _call_function_kw(run: Run, arg: int) -> None:
    names = run.stack.pop()
    run.drop(names)
    values = run.pop_many(arg)
    run.stack.append(run.call(run.stack.pop(), values, names if type(names) is tuple else ()))


@on("CALL_FUNCTION_EX")
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
    last = run.hand(function, [*values, *[value for _, value in pairs]])
    if function is BUILD_CLASS:
        if len(values) > 1:
            run.drop(values[1])
            run.bases([value for value in values if value is not STAR])
        run.stack.append(None)
    elif type(function) is Dotted or type(function) is _fold.Bound:
        run.stack.append(run.finish_call(function, last, values, pairs))
    else:
        run.stack.append(None)


@on("CALL_INTRINSIC_1")
def _intrinsic_1(run: Run, arg: int) -> None:
    value = run.stack.pop()
    if arg == 6 and isinstance(value, (tuple, list)):  # LIST_TO_TUPLE
        run.stack.append(tuple(value))
        return
    _type_parameter(run, value)
    run.stack.append(None)


@on("CALL_INTRINSIC_2")
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
