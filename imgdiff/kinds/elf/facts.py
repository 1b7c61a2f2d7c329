"""What one ELF file refers to (gABI "Dynamic Section"), from random access to its bytes.

Strings come from every byte that a PT_LOAD segment maps from the file, writable data too (char arrays lie there), but
for what holds no strings of the program: code, relocations, symbols and their names, hashes, notes, unwind tables and
device code (``.nv_fatbin``, ``OFFLOAD_DEVICE_CODE``, ...), which a GPU runs and no loader of files reads. Without
section headers nothing is left out but the dynamic string table. A relocatable object has no segments: its
allocated sections count. A core file has no strings.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any, BinaryIO, NamedTuple, Protocol

from imgdiff.kinds.elf import layout, packed, strings
from imgdiff.kinds.elf.layout import Access, ElfError, Header, Section, Segment
from imgdiff.kinds.elf.strings import Run
from imgdiff.model import ElfFacts, Unreadable

SYMBOLS = frozenset(
    b"dlopen dlmopen dlsym dladdr execve execv execvp execvpe execl execle execlp execveat fexecve posix_spawn "
    b"posix_spawnp system popen wordexp fopen fopen64 freopen freopen64 open open64 openat openat64 __open_2 "
    b"__open64_2 __openat_2 __openat64_2 opendir fdopendir scandir scandir64 glob glob64 ftw nftw nftw64 fts_open "
    b"mmap mmap64 memfd_create getenv secure_getenv iconv_open setlocale".split()
)
"""Undefined symbols that matter to the trace, beside those of :data:`PYTHON_SYMBOLS`."""

PYTHON_SYMBOLS = re.compile(
    rb"Py(?:Import_|Run_|Eval_|Marshal_|Code_|CodeObject|_Main|_BytesMain|_CompileString|Init_)"
)
"""Symbols of the Python C API that can load or run code (undefined ones are kept)."""

PYTHON = re.compile(rb"\0_?Py[A-Z_][A-Za-z_]{2}")
"""Sign of the Python C API in a dynamic string table: used or defined."""

DEVICE_SECTIONS = frozenset({".nv_fatbin", "__nv_relfatbin", ".hip_fatbin", "OFFLOAD_DEVICE_CODE", ".llvm.offloading"})
DEVICE_PREFIX = "__CLANG_OFFLOAD_BUNDLE__"

MAX_DYNAMIC = 1 << 20  # bytes of a dynamic section
MAX_DYNSTR = 256 << 20
MAX_DYNSYM = 256 << 20
MAX_TEXT = 64 << 20  # bytes of strings of one file
GAP = 64  # fewer bytes between two sections are taken for alignment, between two of code any number
CHUNK = 1 << 20

_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 4, 5, 6, 10, 14, 15, 29
_DT_FLAGS_1, _DT_DEPAUDIT, _DT_AUDIT, _DT_AUXILIARY, _DT_FILTER = (
    0x6FFFFFFB,
    0x6FFFFEFB,
    0x6FFFFEFC,
    0x7FFFFFFD,
    0x7FFFFFFF,
)
_DF_1_NODEFLIB = 0x800
_NO_STRINGS = re.compile(
    r"\.(eh_frame(_hdr)?|gcc_except_table.*|interp|got(\.plt)?|plt(\..*)?|gnu\.version.*|dynsym|dynstr)"
)


class Range(NamedTuple):
    """File offsets ``start`` to ``end`` in which strings count; bytes up to ``limit`` may be looked at."""

    start: int
    end: int
    limit: int


class Layout(NamedTuple):
    """Header, program headers and section headers of one file; ``sections`` is empty where there are none to trust."""

    head: Header
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...]


class Dynamic(NamedTuple):
    """The dynamic section: (tag, value) in order, and where its string table lies (offset and size in the file)."""

    entries: tuple[tuple[int, int], ...] = ()
    strtab: tuple[int, int] = (0, 0)

    def values(self, tag: int) -> list[int]:
        """Return the values of all entries with this tag."""
        return [value for key, value in self.entries if key == tag]


class StringSource(Protocol):
    """Gives the runs and identifiers in ranges of one file."""

    def runs(self, wanted: Sequence[Range]) -> Iterable[Run]:
        """Return the runs worth keeping, clipped to the ranges. Raises MissingError where bytes were passed over."""

    def identifiers(self, wanted: Sequence[Range]) -> Iterable[Run]:
        """Return the identifiers in the ranges. Raises MissingError likewise."""


def facts(file: BinaryIO | bytes) -> ElfFacts | Unreadable | None:
    """Return what an ELF file refers to, None if it is none, or why that can't be told. ``file`` must be seekable."""
    if isinstance(file, bytes):
        file = BytesIO(file)
    read, size = layout.reader(file)
    if read(0, 4) != layout.MAGIC:
        return None
    try:
        return assemble(read, size, _Reader(read))
    except ElfError as error:
        return Unreadable(f"the ELF file can't be taken apart: {error}")


def is_device_section(name: str) -> bool:
    """Tell whether a section of this name holds code for a GPU."""
    return name in DEVICE_SECTIONS or name.startswith(DEVICE_PREFIX)


def read_layout(read: Access, size: int) -> Layout:
    """Read header, program headers and section headers. Raises ElfError where the first two make no sense.

    Section headers that make no sense count as none: no loader looks at them.
    """
    head = layout.header(read, size)
    segments = layout.segments(read, head)
    try:
        sections = layout.sections(read, head)
    except ElfError:
        sections = ()
    return Layout(head, segments, sections)


def assemble(read: Access, size: int, source: StringSource) -> ElfFacts:
    """Return the facts of a file of ``size`` bytes. Raises ElfError, and MissingError as ``read`` and ``source`` do."""
    parts = read_layout(read, size)
    head = parts.head
    dynamic = read_dynamic(read, parts)
    strtab = read(*dynamic.strtab) if dynamic.strtab[1] else b""
    python = PYTHON.search(strtab) is not None
    wanted = string_ranges(parts, dynamic) if head.type != layout.ET_CORE else []
    build_id = layout.build_id_range(read, head, parts.segments)
    texts, names = _texts(source.runs(wanted)), _texts(source.identifiers(wanted)) if python else ()
    if packed.is_cython(names):
        texts += tuple(packed.tables([read(piece.start, piece.end - piece.start) for piece in wanted]))
    return ElfFacts(
        machine=head.machine,
        bits=head.bits,
        build_id=read(*build_id).hex() if build_id else None,
        strings=texts,
        identifiers=names,
        symbols=undefined_symbols(read, parts, dynamic, strtab),
        python=python,
        nodeflib=any(value & _DF_1_NODEFLIB for value in dynamic.values(_DT_FLAGS_1)),
        **dynamic_names(read, parts, dynamic, strtab),
    )


def dynamic_names(read: Access, parts: Layout, dynamic: Dynamic, strtab: bytes) -> dict[str, Any]:
    """Return ``needed`` (filters and auditors too, which the loader loads likewise), ``soname``, ``rpath``,
    ``runpath`` and ``interpreter`` as :class:`ElfFacts` names them."""

    def texts(*tags: int) -> tuple[str, ...]:
        found = (layout.cstring(strtab, value) for tag, value in dynamic.entries if tag in tags)
        return tuple(text.decode("utf-8", "backslashreplace") for text in found)

    return {
        "needed": texts(_DT_NEEDED, _DT_FILTER, _DT_AUXILIARY, _DT_AUDIT, _DT_DEPAUDIT),
        "soname": next(iter(texts(_DT_SONAME)), None),
        "rpath": next(iter(texts(_DT_RPATH)), None),
        "runpath": next(iter(texts(_DT_RUNPATH)), None),
        "interpreter": _interpreter(read, parts),
    }


def _texts(found: Iterable[Run]) -> tuple[str, ...]:
    texts = {run.text for run in found}
    if sum(map(len, texts)) > MAX_TEXT:
        raise ElfError(f"it holds more than {MAX_TEXT >> 20} MB of strings")
    return tuple(text.decode("utf-8", "replace") for text in sorted(texts))


def _interpreter(read: Access, parts: Layout) -> str | None:
    for segment in parts.segments:
        if segment.type == layout.PT_INTERP:
            return read(segment.offset, min(segment.filesz, 4096)).split(b"\0")[0].decode("utf-8", "backslashreplace")
    return None


def read_dynamic(read: Access, parts: Layout) -> Dynamic:
    """Read the dynamic section through PT_DYNAMIC, as the loader does. Raises ElfError where it has no strings."""
    place = next((segment for segment in parts.segments if segment.type == layout.PT_DYNAMIC), None)
    if place is None:
        return Dynamic()
    pair = struct.Struct(parts.head.order + ("QQ" if parts.head.bits == 64 else "II"))
    length = min(place.filesz, MAX_DYNAMIC) // pair.size * pair.size
    entries = []
    for tag, value in pair.iter_unpack(read(place.offset, length)):
        if tag == 0:
            break
        entries.append((tag, value))
    dynamic = Dynamic(tuple(entries))
    address, size = dynamic.values(_DT_STRTAB), dynamic.values(_DT_STRSZ)
    if not address:
        if dynamic.values(_DT_NEEDED):
            raise ElfError("its dynamic section has names and no string table")
        return dynamic
    offset = layout.file_offset(parts.segments, address[-1])
    if offset is None:
        raise ElfError("its dynamic string table is not mapped from the file")
    room = parts.head.size - offset
    length = min(size[-1], room) if size else room
    if length > MAX_DYNSTR:
        raise ElfError("its dynamic string table is impossibly large")
    return dynamic._replace(strtab=(offset, length))


def undefined_symbols(read: Access, parts: Layout, dynamic: Dynamic, strtab: bytes) -> tuple[str, ...]:
    """Return the names of the undefined dynamic symbols that matter, sorted (gABI "Symbol Table")."""
    place = symbol_count(read, parts, dynamic)
    if place is None:
        return ()
    offset, number = place
    # name and section index, the rest is padding
    entry = struct.Struct(parts.head.order + ("I2xH16x" if parts.head.bits == 64 else "I10xH"))
    table = read(offset, min(number * entry.size, MAX_DYNSYM))
    table = table[: len(table) // entry.size * entry.size]
    names = {layout.cstring(strtab, name) for name, section in entry.iter_unpack(table) if section == 0 and name}
    kept = sorted(name for name in names if name in SYMBOLS or PYTHON_SYMBOLS.match(name))
    return tuple(name.decode("ascii", "backslashreplace") for name in kept)


def symbol_count(read: Access, parts: Layout, dynamic: Dynamic) -> tuple[int, int] | None:
    """Return file offset and number of entries of the dynamic symbol table, None where there is none."""
    address = dynamic.values(_DT_SYMTAB)
    offset = layout.file_offset(parts.segments, address[-1]) if address else None
    if offset is None:
        return None
    size = 24 if parts.head.bits == 64 else 16
    for section in parts.sections:
        if section.type == layout.SHT_DYNSYM and section.offset == offset:
            return offset, section.size // size
    for address_of_hash in dynamic.values(_DT_HASH):
        place = layout.file_offset(parts.segments, address_of_hash)
        words = read(place, 8) if place is not None else b""
        if len(words) == 8:
            return offset, struct.unpack(parts.head.order + "II", words)[1]
    # All linkers put the names behind the symbols. A longer table than there is gives more names, never fewer.
    end = dynamic.strtab[0] if dynamic.strtab[0] > offset else parts.head.size
    return offset, (end - offset) // size


def string_ranges(parts: Layout, dynamic: Dynamic) -> list[Range]:
    """Return the ranges of the file, in order, in which strings of the program can lie."""
    taken, ranges = [], []
    if dynamic.strtab[1]:
        taken.append((dynamic.strtab[0], sum(dynamic.strtab)))
    head = parts.head
    loads = sorted((s.offset, s.end, bool(s.flags & layout.PF_X)) for s in parts.segments if s.type == layout.PT_LOAD)
    if not parts.segments:  # a relocatable object
        loads = [(s.offset, s.end, True) for s in parts.sections if s.flags & layout.SHF_ALLOC and s.size]
    code = [(start, end) for start, end, execute in loads if execute]
    for section in parts.sections:
        if not section.flags & layout.SHF_ALLOC or not section.size:
            continue
        if _holds_strings(section, code):
            ranges.append((section.offset, section.end))
        else:
            taken.append((section.offset, section.end))
    headers = 64 if head.bits == 64 else 52
    taken += [(0, headers), (head.phoff, head.phoff + head.phentsize * head.phnum)]
    instructions = [s for s in parts.sections if s.flags & layout.SHF_EXECINSTR and s.size]
    code_starts, code_ends = {s.offset for s in instructions}, {s.end for s in instructions}
    found: list[Range] = []
    for start, end, _ in loads:
        inside = [(max(start, a), min(end, b)) for a, b in ranges if a < end and b > start]
        covered = _merge(inside + [(max(start, a), min(end, b)) for a, b in taken if a < end and b > start])
        gaps = _complement(covered, start, end)
        if parts.sections:
            gaps = [(a, b) for a, b in gaps if b - a >= GAP and not (a in code_ends and b in code_starts)]
        pieces = _subtract(inside, taken) + gaps
        found += [Range(a, b, end) for a, b in pieces]
    return sorted(set(found))


def _holds_strings(section: Section, code: list[tuple[int, int]]) -> bool:
    if section.flags & layout.SHF_EXECINSTR and any(a <= section.offset and section.end <= b for a, b in code):
        return False
    if section.type != layout.SHT_PROGBITS and section.type < 0x80000000:  # above: an application's own types
        return False
    return not (is_device_section(section.name) or _NO_STRINGS.fullmatch(section.name))


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _complement(merged: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    gaps = []
    for a, b in merged:
        if a > start:
            gaps.append((start, a))
        start = max(start, b)
    if end > start:
        gaps.append((start, end))
    return gaps


def _subtract(spans: list[tuple[int, int]], taken: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged = _merge(taken)
    return [
        piece
        for start, end in spans
        for piece in _complement([(max(a, start), min(b, end)) for a, b in merged if a < end and b > start], start, end)
    ]


class _Reader:
    """Strings by reading the ranges from the file, a chunk at a time."""

    def __init__(self, read: Access) -> None:
        self._read = read

    def runs(self, wanted: Sequence[Range]) -> Iterable[Run]:
        for piece in wanted:
            yield from scan(self._read, piece, strings.runs)

    def identifiers(self, wanted: Sequence[Range]) -> Iterable[Run]:
        for piece in wanted:
            yield from scan(self._read, piece, strings.identifiers)


def scan(read: Access, piece: Range, finder: strings.Finder) -> Iterable[Run]:
    """Yield what ``finder`` finds in one range, read chunk by chunk; a run over a chunk's border stays whole."""
    carry, at = b"", piece.start
    while at < piece.end:
        data = read(at, min(CHUNK, piece.end - at))
        if not data:
            raise ElfError("a segment leads out of the file")
        at += len(data)
        data = carry + data
        base = at - len(data)
        if at < piece.end:
            cut = strings.last_break(data)
            yield from finder(data[:cut], base)
            carry = data[cut:]
        else:
            peek = read(at, 1) if at < piece.limit else b""
            yield from finder(data + peek, base, len(data))
