"""What two ELF files say of themselves (build-id, compilers, libraries), and the symbols that differences fall in."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from imgdiff.kinds.elf import layout
from imgdiff.kinds.elf.facts import Layout, dynamic_names, read_dynamic, symbol_count
from imgdiff.kinds.elf.layout import Access, ElfError, Section

MAX_NAMES = 20
MAX_COMMENT = 1 << 16
MAX_TABLE = 256 << 20  # bytes of a symbol table, and of its names
_FUNC, _OBJECT, _IFUNC = 2, 1, 10


def describe(read_a: Access, a: Layout, read_b: Access, b: Layout) -> dict[str, Any]:
    """Return the details on build-id, ``.comment``, and dynamic section; see :mod:`imgdiff.kinds.elf.delta`."""
    found: dict[str, Any] = {}
    ids = [_build_id(read_a, a), _build_id(read_b, b)]
    if any(ids):
        found["build_id"] = {"a": ids[0], "b": ids[1], "same": ids[0] == ids[1]}
    comments = [_comment(read_a, a), _comment(read_b, b)]
    if comments[0] != comments[1]:
        found["comment"] = {"a": comments[0], "b": comments[1]}
    names = [_names(read_a, a), _names(read_b, b)]
    for key in ("soname", "rpath", "runpath", "interpreter"):
        values = [side[key] for side in names]
        if values[0] != values[1]:
            found[key] = {"a": values[0], "b": values[1]}
    needed = [side["needed"] for side in names]
    if needed[0] != needed[1]:
        added = [name for name in needed[1] if name not in needed[0]]
        removed = [name for name in needed[0] if name not in needed[1]]
        found["needed"] = {"added": added[:MAX_NAMES], "removed": removed[:MAX_NAMES]}
    return found


def _build_id(read: Access, parts: Layout) -> str | None:
    place = layout.build_id_range(read, parts.head, parts.segments)
    return read(*place).hex() if place else None


def _comment(read: Access, parts: Layout) -> str | None:
    for section in parts.sections:
        if section.name == ".comment":
            texts = read(section.offset, min(section.size, MAX_COMMENT)).split(b"\0")
            return "; ".join(sorted({text.decode("utf-8", "backslashreplace") for text in texts if text}))
    return None


def _names(read: Access, parts: Layout) -> dict[str, Any]:
    try:
        dynamic = read_dynamic(read, parts)
        return dynamic_names(read, parts, dynamic, read(*dynamic.strtab) if dynamic.strtab[1] else b"")
    except ElfError:
        return {"needed": (), "soname": None, "rpath": None, "runpath": None, "interpreter": None}


def symbols_at(read: Access, parts: Layout, spans: list[tuple[int, int]]) -> dict[str, int]:
    """Return the functions and objects that ranges of the file fall in, with the number of their bytes in the ranges.

    ``spans`` are (start, end) file offsets, sorted and disjoint.
    """
    table = next((s for s in parts.sections if s.type == layout.SHT_SYMTAB and s.size), None)
    table = table or next((s for s in parts.sections if s.type == layout.SHT_DYNSYM and s.size), None)
    if table is None:
        return {}
    ends = [end for _, end in spans]
    found: dict[str, int] = {}
    names = _strings_of(read, parts, table)
    for name, kind, section, value, size in _rows(read, parts, table.offset, table.size):
        if kind not in (_FUNC, _OBJECT, _IFUNC) or not size or not section:
            continue
        start = layout.file_offset(parts.segments, value)
        if start is None:
            continue
        at = bisect_left(ends, start + 1)
        inside = 0
        while at < len(spans) and spans[at][0] < start + size:
            inside += min(spans[at][1], start + size) - max(spans[at][0], start)
            at += 1
        if inside:
            text = layout.cstring(names, name).decode("utf-8", "backslashreplace")
            found[text] = max(found.get(text, 0), inside)
    return found


def exports(read_a: Access, a: Layout, read_b: Access, b: Layout) -> dict[str, Any]:
    """Return the detail on defined dynamic symbols that only one of the two has; empty if there are none."""
    sides = [_exported(read_a, a), _exported(read_b, b)]
    added, removed = sorted(sides[1] - sides[0]), sorted(sides[0] - sides[1])
    if not added and not removed:
        return {}
    shown = [f"+{name}" for name in _texts(added[:MAX_NAMES])] + [f"-{name}" for name in _texts(removed[:MAX_NAMES])]
    return {"exports": {"added": len(added), "removed": len(removed), "shown": shown}}


def _texts(names: list[bytes]) -> list[str]:
    return [name.decode("utf-8", "backslashreplace")[:400] for name in names]


def _exported(read: Access, parts: Layout) -> set[bytes]:
    try:
        dynamic = read_dynamic(read, parts)
        strtab = read(*dynamic.strtab) if dynamic.strtab[1] else b""
        place = symbol_count(read, parts, dynamic)
    except ElfError:
        return set()
    if place is None:
        return set()
    offset, number = place
    size = 24 if parts.head.bits == 64 else 16
    return {
        layout.cstring(strtab, name)
        for name, _, section, _, _ in _rows(read, parts, offset, min(number * size, MAX_TABLE))
        if section and name
    }


def _strings_of(read: Access, parts: Layout, table: Section) -> bytes:
    if not 0 < table.link < len(parts.sections):
        return b""
    strings = parts.sections[table.link]
    return read(strings.offset, min(strings.size, MAX_TABLE))


def _rows(read: Access, parts: Layout, offset: int, size: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (name, type, section, value, size) of each symbol (gABI "Symbol Table")."""
    wide = parts.head.bits == 64
    entry = struct.Struct(parts.head.order + ("IBBHQQ" if wide else "IIIBBH"))
    step = entry.size * 65536
    size = min(size, MAX_TABLE) // entry.size * entry.size
    for at in range(0, size, step):
        data = read(offset + at, min(step, size - at))
        for row in entry.iter_unpack(data[: len(data) // entry.size * entry.size]):
            if wide:
                name, info, _, section, value, length = row
            else:
                name, value, length, info, _, section = row
            yield name, info & 15, section, value, length
