"""A reader of marshal data of our own, for every CPython from 3.8 to 3.14, whatever Python runs imgdiff.

``marshal.loads`` is no choice: it crashes on hostile data, reads only the layout of the running minor, and what it
returns compares by rules that change with the minor. The format is that of CPython's ``Python/marshal.c``.

Nothing is hashed while reading and nothing recurses, so hostile data costs no more than its length: sets and dicts
become :class:`Container`, references to unfinished objects are refused (there are no cycles), and the size of what a
walk over the result would visit is bounded too, since references can nest (``(r, r)`` in ``(r, r)`` ...).
"""

from __future__ import annotations

import re
import struct
from typing import Any, Literal

import msgspec

MAX_SIZE = 16 * 1024 * 1024
"""Bytes of marshal data that are read at most."""
MAX_DEPTH = 200
"""Levels that objects may nest (CPython stops at 2000): walkers of the result may recurse safely."""
MAX_SHARED = 1_000_000
"""Elements that references may add to what a walk visits, beyond four for each byte of data."""

OLDEST = (3, 8)
NEWEST = (3, 14)


class MarshalError(ValueError):
    """The data is no marshalled code object of that Python: truncated, malformed, too deep, or too large."""


ContainerKind = Literal["frozenset", "set", "list", "dict", "slice"]


class Container(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A constant that is no tuple: ``items`` in stored order; for a dict key, value, key, value; for a slice its
    start, stop and step."""

    kind: ContainerKind
    items: tuple[Any, ...]


class Code(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One code object, the same for every minor. Compared and hashed by identity: see ``equality`` for values.

    ``consts`` holds None, bool, int, float, complex, str, bytes, Ellipsis, StopIteration, tuple, :class:`Container`
    and :class:`Code`. ``varnames`` are the local variables, arguments first (an argument that is a cell is in
    ``cellvars`` too, as in CPython's ``co_cellvars``). ``localspluskinds`` is the raw table of 3.11 and newer, and
    empty before. ``qualname`` is stored from 3.11 on and derived from nesting before. ``exceptiontable`` is empty
    before 3.11.
    """

    argcount: int
    posonlyargcount: int
    kwonlyargcount: int
    stacksize: int
    flags: int
    code: bytes
    consts: tuple[Any, ...]
    names: tuple[str, ...]
    varnames: tuple[str, ...]
    cellvars: tuple[str, ...]
    freevars: tuple[str, ...]
    filename: str
    name: str
    qualname: str
    firstlineno: int
    linetable: bytes
    exceptiontable: bytes
    localspluskinds: bytes = b""


_FLAG_REF = 0x80
_CO_OPTIMIZED = 0x01
_CO_FAST_LOCAL, _CO_FAST_CELL, _CO_FAST_FREE = 0x20, 0x40, 0x80

_FLOAT = re.compile(rb"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf|nan)\Z")

_int32 = struct.Struct("<i").unpack_from
_code_311 = struct.Struct("<5i").unpack_from
_code_38 = struct.Struct("<6i").unpack_from
_float64 = struct.Struct("<d").unpack_from
_complex128 = struct.Struct("<dd").unpack_from

# What an open container waits for. A code object is open twice: before its first line number and after it.
_TUPLE, _CODE_HEAD, _CODE_TAIL, _OTHER, _DICT = range(5)
_MISSING: Any = object()  # a reference slot whose object is still being read
_END: Any = object()  # TYPE_NULL, which ends a dict and stands nowhere else


def load(data: bytes, version: tuple[int, int]) -> Code:
    """Read the code object that is marshalled in ``data`` (a ``.pyc`` without its 16 bytes of header).

    ``version`` is the minor that wrote it, such as ``(3, 12)``. Raises :class:`MarshalError` for anything that is
    not exactly one code object of that minor.
    """
    if not OLDEST <= version <= NEWEST:
        raise MarshalError(f"bytecode of Python {version[0]}.{version[1]} is not known")
    if len(data) > MAX_SIZE:
        raise MarshalError(f"larger than {MAX_SIZE} bytes")
    try:
        value, end = _read(data, version)
    except (IndexError, struct.error):
        raise MarshalError("truncated") from None
    except UnicodeDecodeError:
        raise MarshalError("a string is no UTF-8") from None
    if end != len(data):
        raise MarshalError(f"{len(data) - end} bytes behind the end")
    if type(value) is not Code:
        raise MarshalError(f"holds {_kind(value)}, not a code object")
    if version < (3, 11):
        _derive_qualnames(value)
    return value


def _read(data: bytes, version: tuple[int, int]) -> tuple[Any, int]:  # noqa: C901 - one loop over local variables is three times as fast as a function a type
    """Read one object; return it and the position behind it."""
    size = len(data)
    modern = version >= (3, 11)
    slices = version >= (3, 14)
    tail = 2 if modern else 1  # objects behind the first line's number
    position = 0
    refs: list[Any] = []
    weights: dict[int, int] = {}  # of finished containers by reference: how many elements a walk would visit
    weight = 0
    budget = MAX_SHARED + 4 * size
    # The open container: what kind, its items, how many are missing, its reference slot, the weight at its start.
    # The outermost is a box for the one object.
    kind, need, slot, before = _TUPLE, 1, -1, 0
    items: list[Any] = []
    head: Any = ()  # of a code object: its leading integers; of others: their kind
    stack: list[tuple[int, list[Any], int, int, int, Any]] = []
    value: Any
    length: int

    while True:
        byte = data[position]
        position += 1
        code = byte & 0x7F
        if code == 0x72:  # r: a reference
            (length,) = _int32(data, position)
            position += 4
            if not 0 <= length < len(refs):
                raise MarshalError("a reference to nothing")
            value = refs[length]
            if value is _MISSING:
                raise MarshalError("a reference to an unfinished object")
            if length in weights:
                weight += weights[length]
                if weight > budget:
                    raise MarshalError("references nest into too large a value")
        elif code == 0x5A or code == 0x7A:  # Z, z: short ASCII
            length = data[position]
            position += 1
            end = position + length
            if end > size:
                raise MarshalError("truncated")
            value = data[position:end].decode("latin-1")
            position = end
            if byte >= 0x80:
                refs.append(value)
        elif code == 0x73:  # s: bytes
            (length,) = _int32(data, position)
            position += 4
            end = position + length
            if length < 0 or end > size:
                raise MarshalError("truncated")
            value = data[position:end]
            position = end
            if byte >= 0x80:
                refs.append(value)
        elif code == 0x29 or code == 0x28:  # ), (: tuple
            if code == 0x29:
                length = data[position]
                position += 1
            else:
                (length,) = _int32(data, position)
                position += 4
                if not 0 <= length <= size - position:
                    raise MarshalError("truncated")
            if length:
                if len(stack) >= MAX_DEPTH:
                    raise MarshalError(f"nested deeper than {MAX_DEPTH} levels")
                stack.append((kind, items, need, slot, before, head))
                kind, items, need, before = _TUPLE, [], length, weight
                weight += length
                if byte >= 0x80:
                    slot = len(refs)
                    refs.append(_MISSING)
                else:
                    slot = -1
                continue
            value = ()
            if byte >= 0x80:
                refs.append(value)
        elif code == 0x4E:  # N
            value = None
        elif code == 0x69:  # i: int of 32 bits
            (value,) = _int32(data, position)
            position += 4
            if byte >= 0x80:
                refs.append(value)
        elif code == 0x63:  # c: code
            if len(stack) >= MAX_DEPTH:
                raise MarshalError(f"nested deeper than {MAX_DEPTH} levels")
            stack.append((kind, items, need, slot, before, head))
            if modern:
                head = _code_311(data, position)
                position += 20
                kind, items, need, before = _CODE_HEAD, [], 8, weight
            else:
                argcount, posonly, kwonly, _, stacksize, flags = _code_38(data, position)
                head = (argcount, posonly, kwonly, stacksize, flags)
                position += 24
                kind, items, need, before = _CODE_HEAD, [], 8, weight
            if byte >= 0x80:
                slot = len(refs)
                refs.append(_MISSING)
            else:
                slot = -1
            continue
        elif code == 0x61 or code == 0x41:  # a, A: ASCII
            (length,) = _int32(data, position)
            position += 4
            end = position + length
            if length < 0 or end > size:
                raise MarshalError("truncated")
            value = data[position:end].decode("latin-1")
            position = end
            if byte >= 0x80:
                refs.append(value)
        elif code == 0x54:  # T
            value = True
        elif code == 0x46:  # F
            value = False
        elif code == 0x75 or code == 0x74:  # u, t: UTF-8
            (length,) = _int32(data, position)
            position += 4
            end = position + length
            if length < 0 or end > size:
                raise MarshalError("truncated")
            value = data[position:end].decode("utf-8", "surrogatepass")
            position = end
            if byte >= 0x80:
                refs.append(value)
        elif code == 0x67:  # g: float
            (value,) = _float64(data, position)
            position += 8
            if byte >= 0x80:
                refs.append(value)
        elif code == 0x2E:  # .
            value = Ellipsis
        elif code in _CONTAINERS and (code != 0x3A or slices):
            # > frozenset, < set, [ list, { dict, : slice
            if code == 0x7B:
                length = -1  # until TYPE_NULL
            elif code == 0x3A:
                length = 3
            else:
                (length,) = _int32(data, position)
                position += 4
                if not 0 <= length <= size - position:
                    raise MarshalError("truncated")
            if length:
                if len(stack) >= MAX_DEPTH:
                    raise MarshalError(f"nested deeper than {MAX_DEPTH} levels")
                stack.append((kind, items, need, slot, before, head))
                kind = _DICT if length < 0 else _OTHER
                head, items, need, before = _CONTAINERS[code], [], length, weight
                weight += max(length, 0)
                if byte >= 0x80:
                    slot = len(refs)
                    refs.append(_MISSING)
                else:
                    slot = -1
                continue
            value = Container(_CONTAINERS[code], ())
            if byte >= 0x80:
                refs.append(value)
        elif code == 0x30 and kind == _DICT and not len(items) % 2:  # 0: the end of a dict
            need = 0
            value = _END
        else:
            value, position = _rare(data, position, code)
            if byte >= 0x80 and value is not StopIteration:
                refs.append(value)

        if value is not _END:
            items.append(value)
            need -= 1
        while not need:  # the open container is full: close it, and it is the next item of the one around it
            if kind == _TUPLE:
                value = tuple(items)
            elif kind == _CODE_HEAD:
                (length,) = _int32(data, position)  # the first line's number stands between the objects
                position += 4
                items.append(length)
                kind, need = _CODE_TAIL, tail
                break
            elif kind == _CODE_TAIL:
                value = _code(head, items, modern)
            else:
                weight += len(items) if kind == _DICT else 0
                value = Container(head, tuple(items))
            if not stack:
                return value[0], position
            if slot >= 0:
                refs[slot] = value
                weights[slot] = weight - before
            kind, items, need, slot, before, head = stack.pop()
            items.append(value)
            need -= 1


_CONTAINERS: dict[int, ContainerKind] = {0x3E: "frozenset", 0x3C: "set", 0x5B: "list", 0x7B: "dict", 0x3A: "slice"}


def _rare(data: bytes, position: int, code: int) -> tuple[Any, int]:
    """Read what hardly ever stands in a ``.pyc``: long integers, complex numbers, floats as text."""
    if code == 0x6C:  # l
        return _long(data, position)
    if code == 0x79:  # y: complex
        real, imaginary = _complex128(data, position)
        return complex(real, imaginary), position + 16
    if code == 0x66:  # f
        return _text_float(data, position)
    if code == 0x78:  # x
        real, position = _text_float(data, position)
        imaginary, position = _text_float(data, position)
        return complex(real, imaginary), position
    if code == 0x53:  # S
        return StopIteration, position
    raise MarshalError(f"unknown type code 0x{code:02x} at byte {position - 1}")


def _text_float(data: bytes, position: int) -> tuple[float, int]:
    end = position + 1 + data[position]
    text = data[position + 1 : end]
    if end > len(data):
        raise MarshalError("truncated")
    if not _FLOAT.match(text):
        raise MarshalError("a float that is none")
    return float(text), end


def _long(data: bytes, position: int) -> tuple[int, int]:
    """Read an integer of digits of 15 bits, the least significant first; the count's sign is the number's."""
    (count,) = _int32(data, position)
    position += 4
    end = position + 2 * abs(count)
    if end > len(data):
        raise MarshalError("truncated")
    digits: list[int] = list(struct.unpack_from(f"<{abs(count)}H", data, position))
    if digits and (max(digits) > 0x7FFF or not digits[-1]):
        raise MarshalError("an integer with digits out of range")
    bits = 15
    while len(digits) > 1:  # joining neighbours keeps this far from quadratic
        if len(digits) % 2:
            digits.append(0)
        digits = [low | high << bits for low, high in zip(digits[::2], digits[1::2], strict=True)]
        bits *= 2
    value = digits[0] if digits else 0
    return (-value if count < 0 else value), end


def _code(head: tuple[int, int, int, int, int], items: list[Any], modern: bool) -> Code:
    """Build a code object from its integers and its objects, in the order in which they are stored."""
    if modern:
        code, consts, names, local, kinds, filename, name, qualname, line, linetable, exceptiontable = items
        if not _are_names(local) or type(kinds) is not bytes or len(kinds) != len(local):
            raise MarshalError("a code object's table of variables is malformed")
        varnames = tuple([n for n, k in zip(local, kinds, strict=True) if k & _CO_FAST_LOCAL])
        cellvars = tuple([n for n, k in zip(local, kinds, strict=True) if k & _CO_FAST_CELL])
        freevars = tuple([n for n, k in zip(local, kinds, strict=True) if k & _CO_FAST_FREE])
    else:
        code, consts, names, varnames, freevars, cellvars, filename, name, line, linetable = items
        kinds, qualname, exceptiontable = b"", name, b""
        if not (_are_names(varnames) and _are_names(freevars) and _are_names(cellvars)):
            raise MarshalError("a code object's table of variables is malformed")
    if not (
        type(code) is type(linetable) is type(exceptiontable) is bytes
        and type(filename) is type(name) is type(qualname) is str
        and type(consts) is tuple
        and _are_names(names)
        and min(head) >= 0
    ):
        raise MarshalError("a code object's fields have wrong types")
    return Code(
        *head, code, consts, names, varnames, cellvars, freevars, filename, name, qualname, line, linetable,
        exceptiontable, kinds,
    )  # fmt: skip


def _are_names(value: Any) -> bool:
    return type(value) is tuple and set(map(type, value)) <= _STRINGS


_STRINGS = {str}


def _derive_qualnames(root: Code) -> None:
    """Set the qualified names that bytecode before 3.11 stores only as constants beside a function's code."""
    pending = [(root, "")]
    while pending:
        code, prefix = pending.pop()
        for const in code.consts:
            if type(const) is Code:
                qualname = prefix + const.name
                msgspec.structs.force_setattr(const, "qualname", qualname)
                pending.append((const, f"{qualname}.<locals>." if const.flags & _CO_OPTIMIZED else f"{qualname}."))


def _kind(value: Any) -> str:
    return value.kind if type(value) is Container else "None" if value is None else type(value).__name__
