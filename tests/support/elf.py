"""Small ELF files made by rule: shared objects and programs for x86-64, without a compiler, always the same bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

_PAGE = 0x1000
_X86_64 = 62
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_NOTE, _PT_GNU_STACK = 1, 2, 3, 4, 0x6474E551
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT = 1, 4, 5, 6, 10, 11
_DT_SONAME, _DT_RPATH, _DT_RUNPATH = 14, 15, 29
_PROGBITS, _SYMTAB, _STRTAB, _HASH, _DYNAMIC, _NOTE, _DYNSYM = 1, 2, 3, 5, 6, 7, 11
_WRITE, _ALLOC, _EXEC, _MERGE, _STRINGS = 1, 2, 4, 0x10, 0x20


@dataclass(frozen=True)
class Elf:
    """What an ELF file is to hold (gABI names).

    ``exports`` are functions, each with 16 bytes of ``.text``; ``imports`` are undefined functions. ``strings`` go to
    ``.rodata``, each with a zero behind it. ``text`` stands behind the exports' code. ``files`` are local names that
    only ``.symtab`` and ``.strtab`` hold (sources, a compiler's temporary names). ``sections`` are further ones that
    are not mapped. A file with an ``interpreter`` is a program (a position-independent one, as compilers make them).
    """

    soname: str | None = None
    needed: Sequence[str] = ()
    runpath: str | None = None
    rpath: str | None = None
    interpreter: str | None = None
    exports: Sequence[str] = ()
    imports: Sequence[str] = ()
    strings: Sequence[str | bytes] = ()
    text: bytes = b""
    files: Sequence[str] = ()
    comment: str = "GCC: (Ubuntu 13.3.0-6ubuntu2) 13.3.0"
    build_id: bytes | None = None
    sections: Sequence[tuple[str, bytes]] = ()
    machine: int = _X86_64


@dataclass
class _Section:
    name: str
    kind: int
    flags: int
    data: bytes
    align: int = 1
    link: str = ""
    info: int = 0
    entry_size: int = 0
    offset: int = 0
    address: int = 0


class _Strings:
    """A string table: offset 0 is the empty string, equal ones are there once."""

    def __init__(self) -> None:
        self.data = b"\0"
        self._known: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._known[text]


def elf_bytes(elf: Elf) -> bytes:
    """Return the file: one read-only segment with code, one writable with ``.dynamic``, the rest is not mapped."""
    names = _Strings()
    dynamic_size = 16 * (len(elf.needed) + sum(map(bool, (elf.soname, elf.runpath, elf.rpath))) + 6)
    text = _code(elf)
    dynsym = _dynsym(elf, names, 0)
    for word in (*elf.needed, elf.soname, elf.runpath, elf.rpath):
        names.add(word or "")
    mapped = [
        *([_Section(".interp", _PROGBITS, _ALLOC, elf.interpreter.encode() + b"\0")] if elf.interpreter else []),
        *([_Section(".note.gnu.build-id", _NOTE, _ALLOC, _note(elf.build_id), 4)] if elf.build_id else []),
        _Section(".hash", _HASH, _ALLOC, _hash_table(elf), 8, ".dynsym", entry_size=4),
        _Section(".dynsym", _DYNSYM, _ALLOC, dynsym, 8, ".dynstr", 1, 24),
        _Section(".dynstr", _STRTAB, _ALLOC, names.data),
        _Section(".rodata", _PROGBITS, _ALLOC, _rodata(elf.strings), 8),
        _Section(".text", _PROGBITS, _ALLOC | _EXEC, text, 16),
    ]
    dynamic = _Section(".dynamic", _DYNAMIC, _ALLOC | _WRITE, bytes(dynamic_size), 8, ".dynstr", 0, 16)
    segments = 4 + bool(elf.interpreter) + bool(elf.build_id)
    end = _lay_out(mapped, 64 + 56 * segments)
    end = _lay_out([dynamic], end)
    dynamic.address = dynamic.offset + _PAGE
    at = {section.name: section for section in mapped}
    at[".dynsym"].data = _dynsym(elf, names, at[".text"].address)
    dynamic.data = _dynamic(elf, names, at)
    assert len(dynamic.data) == dynamic_size

    strtab = _Strings()
    symtab = _symtab(elf, strtab, at[".text"].address)
    rest = [
        _Section(".comment", _PROGBITS, _MERGE | _STRINGS, elf.comment.encode() + b"\0", entry_size=1),
        *(_Section(name, _PROGBITS, 0, data) for name, data in elf.sections),
        _Section(".symtab", _SYMTAB, 0, symtab, 8, ".strtab", 1 + len(elf.files), 24),
        _Section(".strtab", _STRTAB, 0, strtab.data),
    ]
    headers = _Strings()
    sections = [*mapped, dynamic, *rest, _Section(".shstrtab", _STRTAB, 0, b"")]
    for section in sections:
        headers.add(section.name)
    sections[-1].data = headers.data
    end = _lay_out([*rest, sections[-1]], end, mapped=False)
    table = (end + 7) // 8 * 8

    out = bytearray(table)
    out[:64] = _header(elf, segments, table, len(sections) + 1, at[".text"].address)
    out[64 : 64 + 56 * segments] = _segments(elf, mapped, dynamic)
    for section in sections:
        out[section.offset : section.offset + len(section.data)] = section.data
    return bytes(out) + _section_headers(sections, headers)


def _lay_out(sections: Sequence[_Section], start: int, mapped: bool = True) -> int:
    for section in sections:
        start = (start + section.align - 1) // section.align * section.align
        section.offset = start
        section.address = start if mapped else 0
        start += len(section.data)
    return start


def _code(elf: Elf) -> bytes:
    # mov eax, NUMBER; ret; int3...: another code for every export, and something to disassemble.
    return b"".join(
        b"\xb8" + struct.pack("<I", number) + b"\xc3" + b"\xcc" * 10 for number in range(len(elf.exports))
    ) + (elf.text or b"\xc3")


def _rodata(strings: Sequence[str | bytes]) -> bytes:
    return b"".join((text.encode() if isinstance(text, str) else text) + b"\0" for text in strings) or b"\0"


def _note(build_id: bytes) -> bytes:
    return struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id + bytes(-len(build_id) % 4)


def _symbol(name: int, info: int, section: int, value: int, size: int) -> bytes:
    return struct.pack("<IBBHQQ", name, info, 0, section, value, size)


def _text_number(elf: Elf) -> int:
    return 6 + bool(elf.interpreter) + bool(elf.build_id) - 1


def _dynsym(elf: Elf, names: _Strings, text: int) -> bytes:
    symbols = [_symbol(0, 0, 0, 0, 0)]
    symbols += [_symbol(names.add(name), 0x12, 0, 0, 0) for name in elf.imports]
    symbols += [
        _symbol(names.add(name), 0x12, _text_number(elf), text + 16 * number, 6)
        for number, name in enumerate(elf.exports)
    ]
    return b"".join(symbols)


def _symtab(elf: Elf, names: _Strings, text: int) -> bytes:
    symbols = [_symbol(0, 0, 0, 0, 0)]
    symbols += [_symbol(names.add(name), 0x04, 0xFFF1, 0, 0) for name in elf.files]  # STT_FILE, SHN_ABS
    symbols += [_symbol(names.add(name), 0x12, 0, 0, 0) for name in elf.imports]
    symbols += [
        _symbol(names.add(name), 0x12, _text_number(elf), text + 16 * number, 6)
        for number, name in enumerate(elf.exports)
    ]
    return b"".join(symbols)


def _hash_table(elf: Elf) -> bytes:
    """A hash table with one bucket (gABI, "Hash Table"): a chain through all symbols."""
    count = 1 + len(elf.imports) + len(elf.exports)
    chain = [0, *((number + 1) % count for number in range(1, count))]
    return struct.pack(f"<{3 + count}I", 1, count, 1 if count > 1 else 0, *chain)


def _dynamic(elf: Elf, names: _Strings, at: dict[str, _Section]) -> bytes:
    rows = [(_DT_NEEDED, names.add(name)) for name in elf.needed]
    rows += [
        (tag, names.add(text))
        for tag, text in ((_DT_SONAME, elf.soname), (_DT_RPATH, elf.rpath), (_DT_RUNPATH, elf.runpath))
        if text
    ]
    rows += [
        (_DT_HASH, at[".hash"].address),
        (_DT_STRTAB, at[".dynstr"].address),
        (_DT_SYMTAB, at[".dynsym"].address),
        (_DT_STRSZ, len(at[".dynstr"].data)),
        (_DT_SYMENT, 24),
        (0, 0),
    ]
    return b"".join(struct.pack("<QQ", *row) for row in rows)


def _header(elf: Elf, segments: int, table: int, sections: int, entry: int) -> bytes:
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    entry = entry if elf.interpreter else 0
    return ident + struct.pack(
        "<HHIQQQIHHHHHH", 3, elf.machine, 1, entry, 64, table, 0, 64, 56, segments, 64, sections, sections - 1
    )


def _segments(elf: Elf, mapped: Sequence[_Section], dynamic: _Section) -> bytes:
    end = mapped[-1].offset + len(mapped[-1].data)
    rows = []
    if elf.interpreter:
        interp = mapped[0]
        rows.append((_PT_INTERP, 4, interp.offset, interp.address, len(interp.data), 1))
    rows.append((_PT_LOAD, 5, 0, 0, end, _PAGE))
    rows.append((_PT_LOAD, 6, dynamic.offset, dynamic.address, len(dynamic.data), _PAGE))
    rows.append((_PT_DYNAMIC, 6, dynamic.offset, dynamic.address, len(dynamic.data), 8))
    if elf.build_id:
        note = next(section for section in mapped if section.kind == _NOTE)
        rows.append((_PT_NOTE, 4, note.offset, note.address, len(note.data), 4))
    rows.append((_PT_GNU_STACK, 6, 0, 0, 0, 16))
    return b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, size, align)
        for kind, flags, offset, address, size, align in rows
    )


def _section_headers(sections: Sequence[_Section], names: _Strings) -> bytes:
    numbers = {section.name: number for number, section in enumerate(sections, 1)}
    rows = (
        struct.pack(
            "<IIQQQQIIQQ",
            names.add(section.name),
            section.kind,
            section.flags,
            section.address,
            section.offset,
            len(section.data),
            numbers.get(section.link, 0),
            section.info,
            section.align,
            section.entry_size,
        )
        for section in sections
    )
    return bytes(64) + b"".join(rows)
