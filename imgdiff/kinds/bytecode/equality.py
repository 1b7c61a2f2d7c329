"""Are two code objects equal in all that runs?

Compared by type and value, recursively: code bytes, constants, names, variable names, flags, argument counts,
exception table, name and qualified name. Not compared, since they hold positions or follow from the rest: file name,
line tables, the first line's number (and the constant of it that a class body of 3.13 and newer stores in
``__firstlineno__``), stack size.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from typing import Any

import msgspec

from imgdiff.kinds.bytecode.marshal_reader import Code, Container

_FIELDS = (
    ("argcount", "arguments"),
    ("posonlyargcount", "arguments"),
    ("kwonlyargcount", "arguments"),
    ("flags", "flags"),
    ("code", "instructions"),
    ("names", "names"),
    ("varnames", "variables"),
    ("cellvars", "variables"),
    ("freevars", "variables"),
    ("localspluskinds", "variables"),
    ("name", "name"),
    ("qualname", "name"),
    ("exceptiontable", "exception table"),
)
MODULE = "<module>"


class CodeDifference(msgspec.Struct, frozen=True):
    """One code object that differs: its qualified name (``<module>`` for the module's body), whether it is in both
    (``changed``), in b only (``added``) or in a only (``removed``), and which of its fields differ."""

    qualname: str
    status: str
    fields: tuple[str, ...] = ()


def equal(a: Code, b: Code, minor: tuple[int, int]) -> bool:
    """Tell whether two code objects of one minor do the same by the rules of this module."""
    return not differences(a, b, minor)


def differences(a: Code, b: Code, minor: tuple[int, int]) -> tuple[CodeDifference, ...]:
    """Return every code object in which two modules of one minor differ, outermost first; empty if they are equal."""
    found: list[CodeDifference] = []
    pending = [(a, b)]
    seen: set[tuple[int, int]] = set()
    while pending:
        x, y = pending.pop()
        if (id(x), id(y)) in seen:
            continue
        seen.add((id(x), id(y)))
        children_x = [const for const in x.consts if type(const) is Code]
        children_y = [const for const in y.consts if type(const) is Code]
        fields = _differing(x, y, minor)
        if fields:
            found.append(CodeDifference(_name(y), "changed", fields))
        paired, removed, added = _pair(children_x, children_y)
        found += [CodeDifference(_name(child), "removed") for child in removed]
        found += [CodeDifference(_name(child), "added") for child in added]
        pending.extend(reversed(paired))
    return tuple(found)


def changed_constants(a: Code, b: Code, minor: tuple[int, int]) -> list[tuple[Any, Any]] | None:
    """Return the pairs of constants that differ, where two modules differ in nothing but constants of their bodies;
    else None."""
    found = differences(a, b, minor)
    if (
        len(found) != 1
        or found[0] != CodeDifference(_name(b), "changed", ("constants",))
        or len(a.consts) != len(b.consts)
    ):
        return None
    memo: dict[int, bytes] = {}
    pairs = zip(a.consts, b.consts, strict=True)
    return [(x, y) for x, y in pairs if not (type(x) is type(y) is Code or _same(x, y, memo))]


def _name(code: Code) -> str:
    return code.qualname or code.name


def _pair(a: list[Code], b: list[Code]) -> tuple[list[tuple[Code, Code]], list[Code], list[Code]]:
    """Pair the code objects inside two others by qualified name, the n-th of a name with the n-th of that name."""
    if [code.qualname for code in a] == [code.qualname for code in b]:
        return list(zip(a, b, strict=True)), [], []
    by_name: dict[tuple[str, int], Code] = {}
    count: Counter[str] = Counter()
    for code in a:
        by_name[code.qualname, count[code.qualname]] = code
        count[code.qualname] += 1
    count.clear()
    pairs, added = [], []
    for code in b:
        twin = by_name.pop((code.qualname, count[code.qualname]), None)
        count[code.qualname] += 1
        if twin is None:
            added.append(code)
        else:
            pairs.append((twin, code))
    return pairs, list(by_name.values()), added


def _differing(a: Code, b: Code, minor: tuple[int, int]) -> tuple[str, ...]:
    """Return the words for the fields in which two code objects differ, the code objects inside them apart."""
    fields = {word for field, word in _FIELDS if getattr(a, field) != getattr(b, field)}
    if not _same_shape(a.consts, b.consts):
        fields.add("constants")
    if fields and fields <= {"constants", "instructions"} and minor >= (3, 13):
        masked_a, masked_b = _without_line(a, minor), _without_line(b, minor)
        if masked_a is not None and masked_b is not None:
            same = masked_a[0] == masked_b[0] and _same_shape(masked_a[1], masked_b[1])
            fields = set() if same else fields
    return tuple(word for word in dict.fromkeys(word for _, word in (*_FIELDS, ("", "constants"))) if word in fields)


def _same_shape(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Tell whether constants are equal one by one; a code object equals any other here, since they are paired."""
    if len(a) != len(b):
        return False
    memo: dict[int, bytes] = {}
    return all(
        (type(y) is Code and x.qualname == y.qualname) if type(x) is Code else _same(x, y, memo)
        for x, y in zip(a, b, strict=True)
    )


_PLAIN = frozenset({str, bytes, int, bool, type(None), type(Ellipsis)})


def _same(x: Any, y: Any, memo: dict[int, bytes]) -> bool:
    if type(x) is not type(y):
        return False
    if type(x) in _PLAIN:
        return bool(x == y)
    return _digest(x, memo) == _digest(y, memo)


def _digest(value: Any, memo: dict[int, bytes]) -> bytes:
    """Return a digest that is equal for two constants if and only if they have equal types and values.

    NaNs count by their bits, the items of sets in any order. ``memo`` keeps digests by identity, so that shared
    values cost nothing again.
    """
    known = memo.get(id(value))
    if known is not None:
        return known
    digest = hashlib.sha256(_encode(value, memo)).digest()
    memo[id(value)] = digest
    return digest


def _encode(value: Any, memo: dict[int, bytes]) -> bytes:
    if isinstance(value, str):
        return b"str:" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return b"bytes:" + value
    if isinstance(value, int):  # bool too: the type's name tells them apart
        return f"{type(value).__name__}:{int(value):x}".encode()
    if isinstance(value, float):
        return b"float:" + struct.pack("<d", value)
    if isinstance(value, complex):
        return b"complex:" + struct.pack("<dd", value.real, value.imag)
    if isinstance(value, tuple):
        return b"tuple:" + b"".join([_digest(item, memo) for item in value])
    if isinstance(value, Container):
        items = [_digest(item, memo) for item in value.items]
        if value.kind in {"set", "frozenset"}:
            items.sort()
        return value.kind.encode() + b":" + b"".join(items)
    if isinstance(value, Code):
        fields = [getattr(value, field) for field, _ in _FIELDS]
        return b"code:" + b"".join([_digest(field, memo) for field in (*fields, value.consts)])
    return repr(value).encode()  # None, Ellipsis, StopIteration


# Opcodes of the final releases that store a class's first line: LOAD_CONST or LOAD_SMALL_INT, then STORE_NAME.
_STORE_NAME = {(3, 13): 114, (3, 14): 116}
_LOAD_CONST = {(3, 13): 83, (3, 14): 82}
_LOAD_SMALL_INT = {(3, 14): 94}
_USES_CONST = {(3, 13): frozenset({83, 103}), (3, 14): frozenset({82})}  # dis.hasconst, the instrumented apart
_EXTENDED_ARG = {(3, 13): 71, (3, 14): 69}
_CO_OPTIMIZED = 0x01
_LINE = "\ud800the first line's number"  # no constant of a module holds a lone surrogate and this text


def _without_line(code: Code, minor: tuple[int, int]) -> tuple[bytes, tuple[Any, ...]] | None:
    """Return a class body's instructions and constants without the number that it stores in ``__firstlineno__``.

    Where the number's constant is used by another instruction too, or anything else is not as the compiler writes
    it, nothing is taken out; None where there is no such number at all.
    """
    if code.flags & _CO_OPTIMIZED or "__firstlineno__" not in code.names or minor not in _STORE_NAME:
        return None
    index = code.names.index("__firstlineno__")
    pairs = list(zip(code.code[::2], code.code[1::2], strict=True)) if len(code.code) % 2 == 0 else []
    places = [at for at, pair in enumerate(pairs) if pair == (_STORE_NAME[minor], index)]
    if len(places) != 1 or places[0] < 2 or pairs[places[0] - 2][0] == _EXTENDED_ARG[minor]:
        return None
    load = places[0] - 1
    opcode, argument = pairs[load]
    if opcode == _LOAD_SMALL_INT.get(minor):
        at = 2 * load + 1
        return code.code[:at] + b"\0" + code.code[at + 1 :], code.consts
    uses = [at for at, pair in enumerate(pairs) if pair[0] in _USES_CONST[minor] and pair[1] == argument]
    known = argument < len(code.consts) and type(code.consts[argument]) is int
    if opcode != _LOAD_CONST[minor] or uses != [load] or not known:
        return None
    return code.code, (*code.consts[:argument], _LINE, *code.consts[argument + 1 :])
