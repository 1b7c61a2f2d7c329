"""What the instructions of each minor do to the stack, as far as facts need it (CPython's ``Python/bytecodes.c``, and
``Python/ceval.c`` before 3.12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from imgdiff.kinds.bytecode._opcodes import CACHES, NUMBERS
from imgdiff.kinds.bytecode.marshal_reader import Code


def words(text: str) -> list[str]:
    """Split a table of names."""
    return text.split()


# How the machine treats an instruction, the most frequent first.
FAST, CONST, ATTR, GLOBAL, CALL, STORE, SIMPLE, NAME, METHOD, NOTHING, RARE, EXTENDED, UNKNOWN = range(13)

_COMMON = {
    "LOAD_FAST": FAST, "LOAD_FAST_CHECK": FAST, "LOAD_FAST_AND_CLEAR": FAST, "LOAD_FAST_BORROW": FAST,
    "LOAD_CONST": CONST, "LOAD_ATTR": ATTR, "LOAD_GLOBAL": GLOBAL, "CALL": CALL, "STORE_FAST": STORE,
    "LOAD_NAME": NAME, "LOAD_METHOD": METHOD, "EXTENDED_ARG": EXTENDED,
}  # fmt: skip
_NOTHING = frozenset(
    words(
        """
        CACHE NOP RESUME PRECALL COPY_FREE_VARS MAKE_CELL SETUP_ANNOTATIONS GEN_START NOT_TAKEN
        ANNOTATIONS_PLACEHOLDER DELETE_NAME DELETE_GLOBAL DELETE_FAST DELETE_DEREF POP_BLOCK
        GET_AWAITABLE GET_AITER GET_YIELD_FROM_ITER TO_BOOL
        """
    )
)
# name: (values popped, unknown values pushed)
_SIMPLE: dict[str, tuple[int, int]] = {
    "POP_TOP": (1, 0), "LOAD_CLOSURE": (0, 1), "LOAD_ASSERTION_ERROR": (0, 1),
    "LOAD_LOCALS": (0, 1), "RETURN_GENERATOR": (0, 1), "LOAD_COMMON_CONSTANT": (0, 1),
    "UNARY_NOT": (1, 1), "UNARY_NEGATIVE": (1, 1), "UNARY_POSITIVE": (1, 1), "UNARY_INVERT": (1, 1),
    "BINARY_SLICE": (3, 1), "DELETE_SUBSCR": (2, 0), "DELETE_ATTR": (1, 0),
    "IS_OP": (2, 1), "YIELD_VALUE": (1, 1), "YIELD_FROM": (2, 1),
    "GET_ANEXT": (0, 1), "BEFORE_WITH": (1, 2), "BEFORE_ASYNC_WITH": (1, 2), "WITH_EXCEPT_START": (0, 1),
    "PUSH_EXC_INFO": (1, 2), "CHECK_EXC_MATCH": (1, 1), "CHECK_EG_MATCH": (2, 2), "PREP_RERAISE_STAR": (2, 1),
    "ASYNC_GEN_WRAP": (1, 1), "CLEANUP_THROW": (3, 2), "END_SEND": (2, 1),
    "MATCH_MAPPING": (0, 1), "MATCH_SEQUENCE": (0, 1), "COPY_DICT_WITHOUT_KEYS": (1, 1), "PRINT_EXPR": (1, 0),
    "IMPORT_STAR": (1, 0), "BEGIN_FINALLY": (0, 1), "WITH_CLEANUP_FINISH": (2, 0),
    "LOAD_SPECIAL": (1, 2), "SET_ADD": (1, 0), "SET_UPDATE": (1, 0), "POP_ITER": (1, 0), "BUILD_TEMPLATE": (2, 1),
    **dict.fromkeys(
        words(
        """
        BINARY_POWER BINARY_MULTIPLY BINARY_MATRIX_MULTIPLY BINARY_SUBTRACT BINARY_FLOOR_DIVIDE
        BINARY_LSHIFT BINARY_RSHIFT BINARY_AND BINARY_XOR BINARY_OR INPLACE_POWER INPLACE_MULTIPLY
        INPLACE_MATRIX_MULTIPLY INPLACE_SUBTRACT INPLACE_FLOOR_DIVIDE INPLACE_LSHIFT INPLACE_RSHIFT
        INPLACE_AND INPLACE_XOR INPLACE_OR
        """
    ),
        (2, 1),
    ),
}  # fmt: skip


class Isa:
    """The instruction set of one minor, as tables by opcode.

    ``rare`` has what does the rest of the instructions, by name: functions of a run, which is built on this.
    """

    def __init__(self, minor: tuple[int, int], rare: Mapping[str, Callable[[Any, int], None]]) -> None:
        self.minor = minor
        self.names: list[str] = [""] * 256
        self.kinds: list[int] = [UNKNOWN] * 256
        self.caches: list[int] = [0] * 256  # in bytes
        self.effects: list[tuple[int, int]] = [(0, 0)] * 256
        self.rare: list[Any] = [None] * 256
        self.modern = minor >= (3, 11)
        self.method_bit = minor >= (3, 12)
        self.null_first = minor < (3, 13)  # below the function, not above
        self.numbers = NUMBERS[minor]
        for name, number in self.numbers.items():
            self.names[number] = name
            self.caches[number] = 2 * CACHES[minor][name]
            if name in rare:
                self.kinds[number] = RARE
                self.rare[number] = rare[name]
            elif name in _COMMON:
                self.kinds[number] = _COMMON[name]
            elif name in _NOTHING:
                self.kinds[number] = NOTHING
            elif name in _SIMPLE:
                self.kinds[number] = SIMPLE
                self.effects[number] = self._effect(name)
        if minor >= (3, 11):
            self.names[0], self.kinds[0] = "CACHE", NOTHING

    def _effect(self, name: str) -> tuple[int, int]:
        return _SIMPLE[name]

    def find(self, code: Code, *wanted: str) -> list[tuple[str, int]]:
        """Return (name, argument) of all these instructions, without telling cache entries apart (so it may say too
        much of hostile code)."""
        found: list[tuple[str, int]] = []
        operations, arguments = code.code[::2], code.code[1::2]
        extended = self.numbers["EXTENDED_ARG"]
        for name in wanted:
            number = self.numbers.get(name)
            if number is None:
                continue
            at = operations.find(number)
            while at >= 0:
                argument = arguments[at] if at < len(arguments) else 0
                before, shift = at - 1, 8
                while before >= 0 and operations[before] == extended and shift < 32:
                    argument |= arguments[before] << shift
                    before, shift = before - 1, shift + 8
                found.append((name, argument))
                at = operations.find(number, at + 1)
        return found

    def stored_names(self, code: Code) -> list[str]:
        """Return the names that a module or class body binds, as often as it does."""
        return [code.names[arg] for _, arg in self.find(code, "STORE_NAME", "DELETE_NAME") if arg < len(code.names)]

    def stored_globals(self, code: Code) -> list[str]:
        """Return the names that a function binds in its module, as often as it does."""
        return [code.names[arg] for _, arg in self.find(code, "STORE_GLOBAL", "DELETE_GLOBAL") if arg < len(code.names)]

    def stored_locals(self, code: Code) -> list[str]:
        """Return the local variables that a function binds, as often as it does."""
        names = code.varnames
        cells = (
            names + tuple([name for name in code.cellvars if name not in names]) + code.freevars
            if self.modern
            else code.cellvars + code.freevars
        )
        found: list[str] = []
        for name, arg in self.find(
            code,
            "STORE_FAST",
            "DELETE_FAST",
            "STORE_DEREF",
            "DELETE_DEREF",
            "STORE_FAST_LOAD_FAST",
            "STORE_FAST_STORE_FAST",
        ):
            table = cells if name.endswith("DEREF") else names
            slots = (
                [arg >> 4, arg & 15]
                if name == "STORE_FAST_STORE_FAST"
                else [arg >> 4]
                if name == "STORE_FAST_LOAD_FAST"
                else [arg]
            )
            found.extend([table[slot] for slot in slots if slot < len(table)])
        return found
