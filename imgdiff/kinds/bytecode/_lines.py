"""Which source line an instruction belongs to: the line tables of every minor (CPython's ``Objects/lnotab_notes.txt``,
``InternalDocs/code_objects.md``)."""

from __future__ import annotations

import re

from imgdiff.kinds.bytecode.marshal_reader import Code


def line_starts(code: Code, minor: tuple[int, int]) -> list[tuple[int, int]]:
    """Return (offset, line) where the line changes, by offset; a malformed table gives what can be read of it."""
    if minor >= (3, 11):
        return _locations(code)
    if minor >= (3, 10):
        return _linetable(code)
    return _lnotab(code)


def _lnotab(code: Code) -> list[tuple[int, int]]:
    table = code.linetable
    offset, line = 0, code.firstlineno
    result = [(0, line)]
    for index in range(0, len(table) - 1, 2):
        offset += table[index]
        delta = table[index + 1]
        line += delta - 256 if delta >= 0x80 else delta
        result.append((offset, line))
    return result


def _linetable(code: Code) -> list[tuple[int, int]]:
    table = code.linetable
    offset, line = 0, code.firstlineno
    result: list[tuple[int, int]] = []
    for index in range(0, len(table) - 1, 2):
        delta = table[index + 1]
        if delta != 0x80:
            line += delta - 256 if delta >= 0x80 else delta
            result.append((offset, line))
        offset += table[index]
    return result


_ENTRY = re.compile(rb"[\x80-\xff][\x00-\x7f]*")


def _locations(code: Code) -> list[tuple[int, int]]:
    offset = 0
    line = code.firstlineno
    result: list[tuple[int, int]] = []
    for entry in _ENTRY.findall(code.linetable):
        first = entry[0]
        kind = (first >> 3) & 15
        if kind >= 13:
            if kind == 15:  # no location
                offset += ((first & 7) + 1) * 2
                continue
            value = shift = 0  # a signed difference of lines, as a varint
            for byte in entry[1:]:
                value |= (byte & 63) << shift
                shift += 6
                if not byte & 64:
                    break
            line += -(value >> 1) if value & 1 else value >> 1
        elif kind >= 10:
            line += kind - 10
        if not result or result[-1][1] != line:
            result.append((offset, line))
        offset += ((first & 7) + 1) * 2
    return result


def exception_ranges(table: bytes) -> list[tuple[int, int, int, int, bool]]:
    """Return the ranges of an exception table (3.11 and newer): start, end, target in bytes, depth, pushes lasti.

    Raises IndexError where the table is cut short.
    """
    position = 0
    result: list[tuple[int, int, int, int, bool]] = []
    while position < len(table):
        values: list[int] = []
        for _ in range(4):
            byte = table[position]
            position += 1
            value = byte & 63
            while byte & 64:
                byte = table[position]
                position += 1
                value = value << 6 | byte & 63
            values.append(value)
        start, length, target, depth = values
        result.append((start * 2, (start + length) * 2, target * 2, depth >> 1, bool(depth & 1)))
    return result
