"""What differs between two ELF files, and whether what is loaded is the same.

The rule for ``noise`` (all of it must hold; everything else is ``code``):

- the ELF headers are equal but for e_shoff, e_shnum and e_shstrndx, which say where the section headers are. Neither
  the kernel nor ld.so reads these three; they differ whenever symbols or debug data are stripped;
- the program headers are equal, and so are all bytes that a PT_LOAD segment maps from the file, those three fields and
  the descriptor of the GNU build-id apart;
- every other section is ``.symtab``, ``.strtab``, ``.shstrtab``, ``.comment``, ``.debug_*``, ``.zdebug_*``,
  ``.gnu_debuglink`` or ``.gnu_debugaltlink``, or there is one of its name with the same bytes in the other file;
- what lies in no segment, section or table is zero or the same in both, and nothing is appended to either.

Detail (JSON values; keys that don't apply are left out):

- ``size``: {a, b} in bytes; ``bytes`` and ``runs``: differing bytes and runs over the paired stretches of equal length;
- ``layout``: "same" where both have the same sections at the same places, else "moved";
- ``sections``: list of {name, mapped, bytes, runs} and, where the sizes differ or one side lacks it, {name, mapped,
  size: {a, b}} (null for a missing one); ``device`` is true for code of a GPU. Mapped ones first, then by size, at
  most 40; ``sections_count`` counts all. Names in parentheses are no sections: (ELF header), (program headers),
  (section headers), (between sections), (appended), (segment N);
- ``symbols``: {count, shown: [{name, bytes}]}: those that the first 4,096 differing runs of a same layout fall in;
- ``exports``: {added, removed, shown: [names with + or -]}: dynamic symbols, for a moved layout;
- ``build_id``: {a, b, same}; ``comment``: {a, b}, the compilers, where they differ;
- ``needed``: {added, removed}; ``soname``, ``rpath``, ``runpath``, ``interpreter``: {a, b}, where they differ;
- ``temporary_names``: {tool, count, a, b}: differing names in ``.strtab`` that are a compiler's temporary files, with
  the first pair.
"""

from __future__ import annotations

import re
from io import BytesIO
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

from imgdiff.kinds.elf import layout
from imgdiff.kinds.elf.describe import describe, exports, symbols_at
from imgdiff.kinds.elf.differing import Tally, equal_but_for, tally
from imgdiff.kinds.elf.facts import Layout, is_device_section, read_layout
from imgdiff.kinds.elf.layout import ElfError
from imgdiff.model import Delta

MAX_SECTIONS = 40
MAX_SYMBOLS = 20
MAX_BUILD_ID = 64  # bytes

_HARMLESS = re.compile(r"\.(symtab|strtab|shstrtab|comment|z?debug_.*|gnu_debuglink|gnu_debugaltlink)")
_TEMPORARY = (
    ("nvcc", re.compile(rb"tmpxft_[0-9a-f]{8}_[0-9a-f]{8}")),
    ("gcc", re.compile(rb"(?:^|/)cc[A-Za-z0-9]{6}\.(?:o|s|c|ltrans\d*)\b")),
)
_NOWHERE = "(between sections)"
_APPENDED = "(appended)"


class Region(NamedTuple):
    """A named stretch of a file: a section, a table, or what lies between. ``mapped``: a PT_LOAD segment has it."""

    name: str
    start: int
    end: int
    mapped: bool


class File:
    """One of the two files, with its layout and regions. Raises ElfError where it can't be taken apart."""

    def __init__(self, file: BinaryIO | bytes) -> None:
        self.read, self.size = layout.reader(BytesIO(file) if isinstance(file, bytes) else file)
        self.parts: Layout = read_layout(self.read, self.size)
        self.loads = [(s.offset, s.end) for s in self.parts.segments if s.type == layout.PT_LOAD and s.filesz]
        self.regions = _regions(self)


def delta(a: BinaryIO | bytes, b: BinaryIO | bytes) -> Delta:
    """Return what differs between two ELF files (seekable). Never raises for what they hold: a file that can't be
    taken apart makes the difference ``code``."""
    try:
        one, other = File(a), File(b)
    except ElfError as error:
        return Delta("code", f"One of the two can't be taken apart as an ELF file: {error}.", {})
    detail: dict[str, Any] = {"size": {"a": one.size, "b": other.size}}
    rows, bytes_, runs = _compare(one, other, detail)
    if not rows and detail["layout"] == "same":  # the regions cover every byte
        return Delta("noise", "The bytes are equal.", detail)
    detail.update(bytes=bytes_, runs=runs, sections_count=len(rows), sections=rows[:MAX_SECTIONS])
    detail.update(describe(one.read, one.parts, other.read, other.parts))
    obstacle = _obstacle(one, other)
    where = _where(rows)
    if obstacle is not None:
        return Delta("code", f"{obstacle} {where}", detail)
    return Delta("noise", " ".join(_proof(one, other, detail, where)), detail)


def _proof(one: File, other: File, detail: dict[str, Any], where: str) -> list[str]:
    mapped = sum(end - start for start, end in one.loads)
    exempt = []
    build_ids = _build_id(one), _build_id(other)
    if build_ids[0] and one.read(*build_ids[0]) != other.read(*build_ids[0]):
        exempt.append("the build-id")
    if _section_fields(one) != _section_fields(other):
        exempt.append("the header's e_shoff, e_shnum and e_shstrndx, which no loader reads")
    said = [
        f"The program headers and all {mapped:,} bytes that PT_LOAD segments map are equal"
        + (f" but for {' and '.join(exempt)}." if exempt else "."),
        where,
    ]
    names = detail.get("temporary_names")
    if names:
        said.append(f"They are {names['tool']}'s temporary file names.")
    return said


# --- the rule -------------------------------------------------------------------------------------------------------


def _obstacle(one: File, other: File) -> str | None:
    """Return the first thing that stands against ``noise``, as a sentence; None if nothing does."""
    head = one.parts.head
    for file in (one, other):
        if file.parts.head.type not in (layout.ET_EXEC, layout.ET_DYN) or not file.loads:
            return "A file that is no program or shared object has no segments to prove anything with."
        if file.parts.head.shoff >= file.size:  # strip leaves no such header: it was cut off, by accident perhaps
            return "The section headers of one of the two would lie behind its end: it is cut short."
    if _blank_header(one) != _blank_header(other):
        return "The ELF headers differ."
    table = head.phoff, head.phentsize * head.phnum
    if one.read(*table) != other.read(*table):
        return "The program headers differ."
    exempt = list(_field_ranges(head.bits))
    build_ids = _build_id(one), _build_id(other)
    if build_ids[0] is not None and build_ids[0] == build_ids[1]:
        start, size = build_ids[0]
        exempt.append((start, start + size))
    for start, end in one.loads:
        if not equal_but_for(one.read, other.read, start, end - start, tuple(exempt)):
            return "Bytes that are mapped at run time differ."
    return _unmapped_obstacle(one, other)


def _unmapped_obstacle(one: File, other: File) -> str | None:
    left = [_questionable(file) for file in (one, other)]
    for name in dict.fromkeys([*left[0], *left[1]]):
        pieces = [side.get(name, []) for side in left]
        lengths = [[end - start for start, end in side] for side in pieces]
        same = lengths[0] == lengths[1] and not any(
            tally(one.read, other.read, a[0], b[0], a[1] - a[0]).bytes for a, b in zip(*pieces, strict=True)
        )
        if not same:
            what = "Bytes" if name in {_NOWHERE, _APPENDED} else "The section"
            place = f"{what} {name}" if name != _NOWHERE else "Bytes in no section"
            return f"{place}, not mapped but not known to be harmless, differ{'s' if what != 'Bytes' else ''}."
    return None


def _questionable(file: File) -> dict[str, list[tuple[int, int]]]:
    """Return the unmapped stretches that must be the same in both: unknown sections, non-zero gaps, appended bytes."""
    found: dict[str, list[tuple[int, int]]] = {}
    for section in file.parts.sections:
        harmless = _HARMLESS.fullmatch(section.name) and not section.flags & layout.SHF_ALLOC
        if not harmless and section.size:
            for start, end in _unmapped(file, section.offset, section.end):
                found.setdefault(section.name, []).append((start, end))
    for region in file.regions:
        if region.name == _APPENDED or (region.name == _NOWHERE and not region.mapped and not _is_zero(file, region)):
            found.setdefault(region.name, []).append((region.start, region.end))
    return found


def _unmapped(file: File, start: int, end: int) -> list[tuple[int, int]]:
    return [(a, b) for a, b, mapped in _cut(file, start, end) if not mapped]


def _cut(file: File, start: int, end: int) -> list[tuple[int, int, bool]]:
    """Cut a range at the borders of the PT_LOAD segments; True for the parts that one of them maps."""
    borders = {start, end} | {border for load in file.loads for border in load if start < border < end}
    ordered = sorted(borders)
    return [(a, b, any(x <= a and b <= y for x, y in file.loads)) for a, b in pairwise(ordered)]


def _is_zero(file: File, region: Region) -> bool:
    step = 1 << 20
    return not any(
        file.read(at, min(step, region.end - at)).strip(b"\0") for at in range(region.start, region.end, step)
    )


def _field_ranges(bits: int) -> tuple[tuple[int, int], ...]:
    """Return where e_shoff, e_shnum and e_shstrndx lie (gABI "ELF Header")."""
    return ((0x28, 0x30), (0x3C, 0x40)) if bits == 64 else ((0x20, 0x24), (0x30, 0x34))


def _blank_header(file: File) -> bytes:
    bits = file.parts.head.bits
    head = bytearray(file.read(0, 64 if bits == 64 else 52))
    for start, end in _field_ranges(bits):
        head[start:end] = bytes(end - start)
    return bytes(head)


def _section_fields(file: File) -> tuple[int, int, int]:
    head = file.parts.head
    return head.shoff, head.shnum, head.shstrndx


def _build_id(file: File) -> tuple[int, int] | None:
    """Return offset and size of the build-id's descriptor if it is small and in a section of its own."""
    found = layout.build_id_range(file.read, file.parts.head, file.parts.segments)
    if found is None or not 0 < found[1] <= MAX_BUILD_ID:
        return None
    start, end = found[0], sum(found)
    for section in file.parts.sections:
        if section.type == layout.SHT_NOTE and section.offset <= start and end <= section.end:
            return found if section.size <= MAX_BUILD_ID + 32 and section.name == ".note.gnu.build-id" else None
    return None


# --- what lies where ------------------------------------------------------------------------------------------------


def _regions(file: File) -> list[Region]:
    """Cut the whole file into named stretches, in order. Where sections overlap, the first by offset has the bytes."""
    head = file.parts.head
    spans = [(0, 64 if head.bits == 64 else 52, "(ELF header)")]
    if head.phoff and head.phnum:
        spans.append((head.phoff, head.phoff + head.phentsize * head.phnum, "(program headers)"))
    if file.parts.sections:
        spans.append((head.shoff, head.shoff + head.shentsize * len(file.parts.sections), "(section headers)"))
        spans += [(s.offset, s.end, s.name) for s in file.parts.sections if s.size]
    else:
        spans += [(start, end, f"(segment {n})") for n, (start, end) in enumerate(file.loads)]
    found: list[Region] = []
    at = 0
    for start, end, name in sorted(spans):
        if start > at:
            found += _named(file, _NOWHERE, at, start)
        if end > max(at, start):
            found += _named(file, name, max(at, start), end)
        at = max(at, end)
    if file.size > at:
        found += _named(file, _APPENDED, at, file.size)
    return found


def _named(file: File, name: str, start: int, end: int) -> list[Region]:
    return [Region(name, a, b, mapped) for a, b, mapped in _cut(file, start, end)]


def _compare(one: File, other: File, detail: dict[str, Any]) -> tuple[list[dict[str, Any]], int, int]:
    """Compare region by region; return a row for each that differs, largest first, and differing bytes and runs."""
    same = [tuple(r) for r in one.regions] == [tuple(r) for r in other.regions]
    detail["layout"] = "same" if same else "moved"
    rows: dict[str, dict[str, Any]] = {}
    spans: list[tuple[int, int]] = []
    total = runs = 0
    for a, b in _pairs(one.regions, other.regions):
        region = a or b
        assert region is not None
        name, mapped = region.name, any(side is not None and side.mapped for side in (a, b))
        sizes = [None if side is None else side.end - side.start for side in (a, b)]
        if a is None or b is None or sizes[0] != sizes[1]:
            row = rows.setdefault(name, _row(name, mapped))
            row.setdefault("size", {"a": None, "b": None})
            for side, size in zip(("a", "b"), sizes, strict=True):
                if size is not None:
                    row["size"][side] = (row["size"][side] or 0) + size
            continue
        found = tally(one.read, other.read, a.start, b.start, a.end - a.start)
        if found.bytes:
            row = rows.setdefault(name, _row(name, mapped))
            row["bytes"] = row.get("bytes", 0) + found.bytes
            row["runs"] = row.get("runs", 0) + found.runs
            total, runs = total + found.bytes, runs + found.runs
            if same and mapped:
                spans += [(a.start + start, a.start + end) for start, end in found.spans]
            if name == ".strtab":
                _temporary_names(one, other, a, b, found, detail)
    if same and spans:
        symbols = symbols_at(one.read, one.parts, spans)
        if symbols:
            shown = sorted(symbols.items(), key=lambda item: (-item[1], item[0]))[:MAX_SYMBOLS]
            detail["symbols"] = {
                "count": len(symbols), "shown": [{"name": name, "bytes": size} for name, size in shown],
            }  # fmt: skip
    elif not same:
        detail.update(exports(one.read, one.parts, other.read, other.parts))
    return sorted(rows.values(), key=_weight), total, runs


def _row(name: str, mapped: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "mapped": mapped}
    if is_device_section(name):
        row["device"] = True
    return row


def _weight(row: dict[str, Any]) -> tuple[bool, int, str]:
    size = row.get("size") or {"a": 0, "b": 0}
    return not row["mapped"], -max(row.get("bytes", 0), size["a"] or 0, size["b"] or 0), row["name"]


def _pairs(a: list[Region], b: list[Region]) -> list[tuple[Region | None, Region | None]]:
    """Pair regions by name, the first of a name with the first of that name, and so on."""
    waiting: dict[str, list[Region]] = {}
    for region in b:
        waiting.setdefault(region.name, []).append(region)
    for queue in waiting.values():
        queue.reverse()
    pairs: list[tuple[Region | None, Region | None]] = []
    for region in a:
        queue = waiting.get(region.name, [])
        pairs.append((region, queue.pop() if queue else None))
    pairs += [(None, region) for queue in waiting.values() for region in reversed(queue)]
    return pairs


def _where(rows: list[dict[str, Any]]) -> str:
    """Say in a sentence where the differences lie."""
    if not rows:
        return "Every section is the same; only their places in the file differ."
    said = []
    for row in rows[:5]:
        if "size" in row:
            sizes = ["absent" if size is None else f"{size:,}" for size in (row["size"]["a"], row["size"]["b"])]
            text = f"{row['name']} ({sizes[0]} -> {sizes[1]} bytes)"
        else:
            text = f"{row['name']} ({_count(row['bytes'], 'byte')} in {_count(row['runs'], 'run')})"
        said.append(("device code in " if row.get("device") else "") + text)
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    return f"Differing: {', '.join(said)}{more}."


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _temporary_names(one: File, other: File, a: Region, b: Region, found: Tally, detail: dict[str, Any]) -> None:
    """Note names that a compiler made up, if all differing names are such."""
    if found.runs > len(found.spans):
        return
    pairs: dict[tuple[bytes, bytes], None] = {}
    for start, _ in found.spans:
        pairs[_string_at(one, a, start), _string_at(other, b, start)] = None
    for tool, pattern in _TEMPORARY:
        if pairs and all(pattern.search(text) for pair in pairs for text in pair):
            shown = [text.decode("utf-8", "backslashreplace")[:200] for text in next(iter(pairs))]
            detail["temporary_names"] = {"tool": tool, "count": len(pairs), "a": shown[0], "b": shown[1]}


def _string_at(file: File, region: Region, place: int) -> bytes:
    at = region.start + place
    start = max(region.start, at - 4096)
    before = file.read(start, at - start).rpartition(b"\0")[2]
    return before + file.read(at, min(4096, region.end - at)).partition(b"\0")[0]
