"""Where things lie in an ELF file (System V gABI, chapters 4 and 5): header, segments, sections, notes.

Everything here reads through an :data:`Access` and never believes a number: an offset or a count that leads out of the
file gives an :class:`ElfError`, or is left out where the loader would not have looked at it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

MAGIC = b"\x7fELF"
ET_REL, ET_EXEC, ET_DYN, ET_CORE = 1, 2, 3, 4
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE = 1, 2, 3, 4
PF_X, PF_W = 1, 2
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 1, 2, 3, 7, 8, 11
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
EM_X86_64 = 62

MAX_SEGMENTS = 4096  # Linux maps at most 64 KB of program headers: 1,170 of them
MAX_SECTIONS = 1 << 20
MAX_NAMES = 16 << 20  # bytes of a section name table
MAX_NOTES = 1 << 16  # bytes of one note segment

Access = Callable[[int, int], bytes]
"""Read ``size`` bytes at ``offset``, fewer only where the file ends. Raises MissingError where they are not at hand."""


class ElfError(ValueError):
    """The bytes are no ELF file that can be taken apart; the text says why, as the end of a sentence."""


class MissingError(Exception):
    """Bytes that are needed were not kept on the way through the file."""


class Header(NamedTuple):
    """The ELF header. ``order`` is struct's sign of the byte order, ``size`` the file's size in bytes."""

    bits: int
    order: str
    type: int
    machine: int
    phoff: int
    phentsize: int
    phnum: int
    shoff: int
    shentsize: int
    shnum: int
    shstrndx: int
    size: int


class Segment(NamedTuple):
    """One program header; offsets and sizes in bytes."""

    type: int
    flags: int
    offset: int
    vaddr: int
    filesz: int
    memsz: int
    align: int

    @property
    def end(self) -> int:
        """File offset behind its last byte."""
        return self.offset + self.filesz


class Section(NamedTuple):
    """One section header; ``size`` counts bytes in the file (0 for NOBITS), ``entsize`` bytes of one entry."""

    number: int
    name: str
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    entsize: int

    @property
    def end(self) -> int:
        """File offset behind its last byte."""
        return self.offset + self.size


def reader(file: BinaryIO) -> tuple[Access, int]:
    """Return an access to a seekable file, and its size in bytes. An offset behind the end reads nothing."""
    size = file.seek(0, 2)

    def read(offset: int, length: int) -> bytes:
        if offset >= size:
            return b""
        file.seek(offset)
        return file.read(min(length, size - offset))

    return read, size


def header(read: Access, size: int) -> Header:
    """Read the ELF header of a file of ``size`` bytes (gABI "ELF Header"). Raises ElfError if it is none."""
    ident = read(0, 64)
    if ident[:4] != MAGIC:
        raise ElfError("it does not start with the ELF magic")
    if len(ident) < 52 or ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise ElfError("its ELF header is cut short or of an unknown class or byte order")
    bits, order = 32 * ident[4], "<>"[ident[5] - 1]
    if bits == 64 and len(ident) < 64:
        raise ElfError("its ELF header is cut short")
    form = order + ("HHIQQQIHHHHHH" if bits == 64 else "HHIIIIIHHHHHH")
    kind, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, shstrndx = struct.unpack_from(
        form, ident, 16
    )
    return Header(bits, order, kind, machine, phoff, phentsize, phnum, shoff, shentsize, shnum, shstrndx, size)


def segments(read: Access, head: Header) -> tuple[Segment, ...]:
    """Read the program headers (gABI "Program Header"). Raises ElfError where they lead out of the file."""
    if not head.phoff or not head.phnum:
        return ()
    wide = head.bits == 64
    entry = struct.Struct(head.order + ("IIQQQQQQ" if wide else "IIIIIIII"))
    if head.phentsize != entry.size or head.phnum > MAX_SEGMENTS:
        raise ElfError("its program headers have an impossible size or number")
    table = read(head.phoff, entry.size * head.phnum)
    if len(table) != entry.size * head.phnum:
        raise ElfError("its program headers lie outside the file")
    found = []
    for row in entry.iter_unpack(table):
        if wide:
            kind, flags, offset, vaddr, _, filesz, memsz, align = row
        else:
            kind, offset, vaddr, _, filesz, memsz, flags, align = row
        if kind in (PT_LOAD, PT_DYNAMIC, PT_INTERP) and offset + filesz > head.size:
            raise ElfError("a program header leads out of the file")
        found.append(Segment(kind, flags, offset, vaddr, filesz, memsz, align))
    return tuple(found)


def section_table(read: Access, head: Header) -> tuple[int, int]:
    """Return offset and number of the section headers, (0, 0) if there are none (gABI "Sections", extended numbering).

    Raises ElfError where they lead out of the file.
    """
    if not head.shoff:
        return 0, 0
    entry = _section_entry(head)
    number = head.shnum
    if head.shentsize != entry.size:
        raise ElfError("its section headers have an impossible size")
    if number == 0:
        first = read(head.shoff, entry.size)
        if len(first) != entry.size:
            raise ElfError("its section headers lie outside the file")
        number = entry.unpack(first)[5]
    if number > MAX_SECTIONS or head.shoff + number * entry.size > head.size:
        raise ElfError("its section headers lie outside the file")
    return head.shoff, number


def sections(read: Access, head: Header) -> tuple[Section, ...]:
    """Read the section headers with their names; empty where there are none.

    A section that leads out of the file raises ElfError, as does a name table that does.
    """
    offset, number = section_table(read, head)
    if not number:
        return ()
    entry = _section_entry(head)
    rows = list(entry.iter_unpack(read(offset, number * entry.size)))
    if len(rows) != number:
        raise ElfError("its section headers lie outside the file")
    index = rows[0][6] if head.shstrndx == 0xFFFF else head.shstrndx
    names = b""
    if 0 < index < number:
        start, length = rows[index][4], rows[index][5]
        if length > MAX_NAMES or start + length > head.size:
            raise ElfError("its section name table lies outside the file")
        names = read(start, length)
    found = []
    for place, (name, kind, flags, addr, start, length, link, _, _, entsize) in enumerate(rows):
        stored = 0 if kind in (0, SHT_NOBITS) else length
        if start + stored > head.size and stored:
            raise ElfError("a section leads out of the file")
        text = cstring(names, name).decode("utf-8", "backslashreplace")
        found.append(Section(place, text, kind, flags, addr, start, stored, link, entsize))
    return tuple(found)


def _section_entry(head: Header) -> struct.Struct:
    return struct.Struct(head.order + ("IIQQQQIIQQ" if head.bits == 64 else "IIIIIIIIII"))


def cstring(table: bytes, offset: int) -> bytes:
    """Return the NUL-terminated bytes at an offset of a string table; empty where it leads out of the table."""
    if not 0 <= offset < len(table):
        return b""
    end = table.find(b"\0", offset)
    return table[offset : end if end >= 0 else len(table)]


def notes(data: bytes, order: str, align: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield (name, type, descriptor offset, descriptor size) of each note (gABI "Note Section"); stop at rubbish."""
    step = 8 if align == 8 else 4
    at = 0
    while at + 12 <= len(data):
        namesz, descsz, kind = struct.unpack_from(order + "III", data, at)
        start = at + 12
        desc = start + namesz + (-namesz % 4 if step == 4 else -(12 + namesz) % 8)
        if desc + descsz > len(data):
            return
        yield data[start : start + namesz], kind, desc, descsz
        at = desc + descsz + (-descsz % step)


def build_id_range(read: Access, head: Header, table: tuple[Segment, ...]) -> tuple[int, int] | None:
    """Return file offset and size in bytes of the GNU build-id's descriptor (type 3, "GNU"), None if it has none."""
    for segment in table:
        if segment.type != PT_NOTE or segment.offset + segment.filesz > head.size:
            continue
        data = read(segment.offset, min(segment.filesz, MAX_NOTES))
        for name, kind, desc, size in notes(data, head.order, segment.align):
            if name == b"GNU\0" and kind == 3:
                return segment.offset + desc, size
    return None


def file_offset(table: tuple[Segment, ...], address: int) -> int | None:
    """Return where in the file the byte mapped at a virtual address lies, None if no segment's file part maps it."""
    for segment in table:
        if segment.type == PT_LOAD and segment.vaddr <= address < segment.vaddr + segment.filesz:
            return segment.offset + address - segment.vaddr
    return None
