"""What a ``.pyc`` refers to: its facts, the same as those of its source, whatever Python compiled it."""

from __future__ import annotations

from functools import cache

from imgdiff.kinds._facts import VERSION, ModuleBuilder
from imgdiff.kinds.bytecode import _flow, _names, _values  # noqa: F401 - they register their instructions
from imgdiff.kinds.bytecode._handlers import HANDLERS
from imgdiff.kinds.bytecode._header import HEADER_SIZE, HeaderError, read_header
from imgdiff.kinds.bytecode._machine import execute
from imgdiff.kinds.bytecode._opcodes import NUMBERS
from imgdiff.kinds.bytecode._semantics import Isa, words
from imgdiff.kinds.bytecode._state import Frame, Shared
from imgdiff.kinds.bytecode.marshal_reader import Code, MarshalError, load
from imgdiff.model import ModuleFacts, Unreadable

__all__ = ["VERSION", "facts"]


@cache
def _isa(minor: tuple[int, int]) -> Isa:
    return Isa(minor, HANDLERS)


def facts(pyc: bytes) -> ModuleFacts | Unreadable:
    """Return what a module refers to, from its bytecode (a whole ``.pyc``); Unreadable where it is malformed."""
    try:
        header = read_header(pyc)
        if header.minor not in NUMBERS:
            return Unreadable(f"The instructions of Python {header.minor[0]}.{header.minor[1]} are not known.")
        return code_facts(load(pyc[HEADER_SIZE:], header.minor), header.minor)
    except (HeaderError, MarshalError) as error:
        return Unreadable(f"The bytecode can't be read: {error}.")
    except (IndexError, ValueError, TypeError, AttributeError, KeyError) as error:
        return Unreadable(f"The bytecode is malformed: {error}.")


def code_facts(code: Code, minor: tuple[int, int]) -> ModuleFacts:
    """Return the facts of a module's code object."""
    builder = ModuleBuilder()
    instructions = _isa(minor)
    shared = Shared(instructions, builder)
    builder.counts = _global_counts(code, instructions)
    execute(shared, code, builder.module, Frame("module"))
    shared.finish(builder.module)
    while shared.queue:
        function = shared.queue.pop()
        scope = function.scope
        if scope is None:
            continue
        frame = Frame("function")
        frame.counts = _local_counts(function.code, instructions)
        execute(shared, function.code, scope, frame)
        shared.finish(scope)
        scope.decorators = function.decorators
        builder.scopes.append(scope)
    if builder.main is not None:
        shared.finish(builder.main)
    builder.binds_only = _binds_only(code, instructions)
    return builder.build()


def _global_counts(module: Code, instructions: Isa) -> dict[str, int]:
    """Count how often the module's body binds each name; a function that binds it counts twice."""
    counts: dict[str, int] = {}
    for name in instructions.stored_names(module):
        counts[name] = counts.get(name, 0) + 1
    pending = [module]
    while pending:
        code = pending.pop()
        for name in instructions.stored_globals(code):
            counts[name] = counts.get(name, 0) + 2
        pending.extend([const for const in code.consts if type(const) is Code])
    return counts


def _local_counts(function: Code, instructions: Isa) -> dict[str, int]:
    """Count how often a function binds each of its variables; a parameter is bound already."""
    arguments = function.argcount + function.kwonlyargcount
    arguments += bool(function.flags & 4) + bool(function.flags & 8)
    counts = dict.fromkeys(function.varnames[:arguments], 2)
    for name in instructions.stored_locals(function):
        counts[name] = counts.get(name, 0) + 1
    pending = [const for const in function.consts if type(const) is Code]
    while pending:
        code = pending.pop()
        for name in instructions.stored_locals(code):
            if name in code.freevars:
                counts[name] = counts.get(name, 0) + 2
        pending.extend([const for const in code.consts if type(const) is Code])
    return counts


_BINDING = frozenset(
    words(
        """
        CACHE NOP RESUME PRECALL PUSH_NULL EXTENDED_ARG LOAD_CONST LOAD_NAME STORE_NAME IMPORT_NAME
        IMPORT_FROM POP_TOP RETURN_VALUE RETURN_CONST MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE
        LOAD_BUILD_CLASS CALL CALL_FUNCTION BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP
        BUILD_CONST_KEY_MAP LIST_EXTEND SET_UPDATE DICT_UPDATE LIST_APPEND SET_ADD MAP_ADD DUP_TOP
        COPY ROT_TWO SWAP MAKE_CELL LOAD_CLOSURE LOAD_FAST STORE_FAST STORE_GLOBAL LOAD_GLOBAL
        LOAD_SMALL_INT LOAD_FAST_BORROW
        COPY_FREE_VARS LOAD_LOCALS STORE_DEREF
        """
    )
)


def _binds_only(module: Code, instructions: Isa) -> bool:
    """Tell whether a module's body does nothing but bind names: see :class:`imgdiff.model.ModuleFacts`."""
    allowed = {number for name, number in instructions.numbers.items() if name in _BINDING} | (
        {0} if instructions.modern else set()
    )
    pending = [module]
    while pending:
        code = pending.pop()
        operations = code.code[::2]
        if not set(operations) <= allowed:
            return False
        calls = instructions.find(code, "CALL", "CALL_FUNCTION")
        if len(calls) != operations.count(instructions.numbers["LOAD_BUILD_CLASS"]) or any(
            arg != 2 for _, arg in calls
        ):
            return False
        pending.extend([const for const in code.consts if type(const) is Code and not const.flags & 1])
    return True
