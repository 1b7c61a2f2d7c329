"""The facts of an ELF file from one pass over its bytes, front to back.

A file of up to 8 MB is buffered and read as :func:`imgdiff.kinds.elf.facts.facts` reads it. Of a larger one these are
kept: what lies before its code (symbols and names are there), writable segments, the dynamic section, notes and section
headers; the rest is looked through for strings as it comes. Code is passed over: a segment of its own as a whole, and
in a segment that mixes code with data each 128 KB that samples like x86-64 code or unwind tables. Device code is
passed over where its container says how long it is. All these are guesses that save time. At the end the section
headers tell where strings can lie, and where a guess passed over such a byte the answer is :class:`Unreadable`, with
``SECOND_READ`` as its reason: then the caller reads the file once more with random access. So both ways give the same
facts, or none.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Literal, NamedTuple

from imgdiff.kinds.elf import layout, strings
from imgdiff.kinds.elf.facts import Range, assemble, facts, scan
from imgdiff.kinds.elf.kept import Kept
from imgdiff.kinds.elf.layout import EM_X86_64, ElfError, Header, MissingError, Segment
from imgdiff.kinds.elf.strings import Run
from imgdiff.model import ElfFacts, Unreadable

SECOND_READ = "the ELF file needs a second read: bytes that turned out to be needed had gone by"

WHOLE = 8 << 20  # a file up to this size (bytes) is buffered
FRONT = 24 << 20  # at most so much is kept of what lies before the code
WRITABLE = 8 << 20  # of a writable segment
NAMES = 1 << 16  # kept before the section headers: their names lie there
HEADERS = 8 << 20  # of section headers
FIRST = 1 << 16  # bytes in which the program headers must lie
MAX_CARRY = 16 << 20  # a printable run that is longer than this ends the guessing
PIECE = 1 << 17
SAMPLE = 1 << 10
SMALL_DATA = 1 << 18  # looked through in any case before the unwind tables: a small .rodata lies there
CODE_SHARE = 0.13  # share of the bytes below: over it in 99.4% of 8,800 samples of x86-64 code, in 0.4% of .rodata
UNWIND_SHARE = 0.07  # the same for .eh_frame, which gold puts before its index: over it in 80% of 656 samples
_UNWIND_BYTES = b"\x0e\x0c\x86\x8c\x83\x8d\x8e\x8f"
_CODE_BYTES = b"\x48\x8b\x89\xc5\x62\x4c\x41\x0f\xe8\x24\x44\x83\x8d\xc4\x85"
_OFFSET, _RUN_TEXT = itemgetter(0), itemgetter(1)
_PT_GNU_EH_FRAME = 0x6474E550
# As PYTHON, from its letters: that begins with a NUL, and symbol tables are full of them.
_PYTHON = re.compile(rb"Py(?:(?<=\0Py)|(?<=\0_Py))[A-Z_][A-Za-z_]{2}")
_LIBRARY = re.compile(rb"\.so[.0-9]*\0")
_FATBIN = b"\x50\xed\x55\xba\x01\x00\x10\x00"
_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_ARCHIVE = b"!<arch>\n"

Mode = Literal["front", "keep", "look", "code", "skip", "gap"]


class Span(NamedTuple):
    """What to do with the bytes from ``start`` to ``end``."""

    start: int
    end: int
    mode: Mode


class Scanner:
    """Facts from one pass. ``head`` is the file's beginning (4 bytes or more), ``size`` its length in bytes.

    Feed consecutive chunks of the whole file from offset 0 on, then call :meth:`finish`. Feeding a file that is no
    ELF file costs nothing. Memory is bounded: 8 MB for a small file, for a large one what its front and writable data
    take (at most 24 MB and 8 MB a segment), and its strings.
    """

    def __init__(self, head: bytes, size: int) -> None:
        self._size = size
        self._at = 0
        self._elf = head[:4] == layout.MAGIC
        self._parts: list[bytes] = []  # of a small file all, of a large one what holds the program headers
        self._held = 0  # bytes in them
        self._pass: _Pass | None = None
        self._failed: str | None = None

    def feed(self, view: memoryview) -> None:
        """Take the next chunk, of any length; it is not held on to."""
        if not self._elf or self._failed is not None:
            return
        if self._pass is not None:
            self._step(view)
            return
        self._parts.append(bytes(view))
        self._held += len(view)
        if self._size > WHOLE and self._held >= FIRST:
            first = b"".join(self._parts)
            self._parts.clear()
            try:
                self._pass = _Pass(first, self._size)
            except MissingError:
                self._failed = SECOND_READ
            except ElfError as error:
                self._failed = f"the ELF file can't be taken apart: {error}"
            else:
                self._step(memoryview(first))

    def finish(self) -> ElfFacts | Unreadable | None:
        """Return the facts; None for a file that is no ELF file; Unreadable with the reason, also ``SECOND_READ``."""
        if not self._elf:
            return None
        if self._failed is not None:
            return Unreadable(self._failed)
        if self._pass is None:
            return facts(b"".join(self._parts))  # one part is not copied
        if self._at != self._size:
            return Unreadable("the ELF file is shorter or longer than it was said to be")
        try:
            return assemble(self._pass.kept.read, self._size, self._pass)
        except MissingError:
            return Unreadable(SECOND_READ)
        except ElfError as error:
            return Unreadable(f"the ELF file can't be taken apart: {error}")

    def _step(self, view: memoryview) -> None:
        assert self._pass is not None
        try:
            self._pass.see(view, self._at)
        except MissingError:
            self._failed, self._pass = SECOND_READ, None
        self._at += len(view)


class _Pass:
    """One pass over a large file. It is the StringSource of the facts afterwards."""

    def __init__(self, first: bytes, size: int) -> None:
        def read(offset: int, length: int) -> bytes:
            if offset + length > len(first):
                raise MissingError
            return first[offset : offset + length]

        head = layout.header(read, size)
        segments = layout.segments(read, head)
        self.kept = Kept()
        # the first segment holds code beside data, of a machine whose code we know
        self._mixed = head.machine == EM_X86_64 and any(
            s.type == layout.PT_LOAD and not s.offset and s.flags & layout.PF_X for s in segments
        )
        self._plan = _plan(head, segments, self.kept)
        self._next = 0  # index of the first span that is not behind us
        self._code = False  # the last piece before it looked like code
        self._front = 0  # where keeping what lies before the code ended
        self._looked: list[tuple[int, int]] = []  # ranges whose runs are in _runs
        self._runs: list[Run] = []
        self._identifiers: list[Run] | None = None
        self._text = 0
        self._carry = b""
        self._hop = 0  # no byte before this offset is looked at: device code
        self._markers: tuple[bytes, ...] = ()
        # the last piece that was taken for code, and where; a view is good until the chunk ends
        self._passed: tuple[int, memoryview | bytes] | None = None
        self._in_data = True
        self._size = size
        self._hunt = False

    # --- the pass ---------------------------------------------------------------------------------------------------

    def see(self, view: memoryview, at: int) -> None:
        """Look at the next chunk. Raises MissingError where going on makes no sense."""
        self.kept.see(view, at)
        stop = at + len(view)
        while self._next < len(self._plan):
            span = self._plan[self._next]
            if span.start >= stop:
                break
            start, end = max(at, span.start), min(stop, span.end)
            if start < end:
                self._span(span, view[start - at : end - at], start)
            if span.end > stop:
                if self._passed is not None:
                    self._passed = (self._passed[0], bytes(self._passed[1]))
                break
            self._end_span(span, bytes(view[span.end - at : span.end - at + 1]))

    def _end_span(self, span: Span, peek: bytes) -> None:
        if self._passed is not None:  # data may begin inside
            start, data = self._passed
            self._passed = None
            self._look(memoryview(data), start)
        self._next += 1
        following = self._plan[self._next] if self._next < len(self._plan) else None
        if following is None or following.start != span.end or following.mode not in ("look", "code"):
            self._flush(peek)

    def _span(self, span: Span, view: memoryview, at: int) -> None:
        if span.mode == "front":
            at, view = self._keep_front(span, view, at)
        elif span.mode == "look" and at == span.start and _ARCHIVE in (bytes(view[:8]), bytes(view[8:16])):
            # a segment of its own with an archive of device code
            self._plan[self._next] = Span(span.start, span.end, "skip")
            return
        if span.mode == "gap":
            self._hunt_names(view, at, at == span.start)
        if not view or span.mode in ("keep", "skip", "gap"):
            return
        if span.mode == "look":
            self._look(view, at)
        else:
            for start in range(0, len(view), PIECE):
                self._classify(view[start : start + PIECE], at + start)

    def _keep_front(self, span: Span, view: memoryview, at: int) -> tuple[int, memoryview]:
        """Keep pieces up to the second in a row that looks like code; return the rest with its place."""
        start = 0
        while start < len(view) and at + start - span.start < FRONT:
            piece = view[start : start + PIECE]
            before, self._code = self._code, self._mixed and _kind(piece) == "code"
            if before and self._code:
                break
            self.kept.add(piece, at + start)
            start += len(piece)
        else:
            if start >= len(view) and at + start < span.end:
                return at, view[:0]
        self._front = at + start
        front = self.kept.part(span.start)
        self._markers = tuple(marker for marker, hint in ((_FATBIN, b"cuda"), (_BUNDLE, b"hip")) if hint in front)
        # patchelf moves names to the end of the file: none here leaves open whether they ask for Python
        if _PYTHON.search(front) or not _LIBRARY.search(front):
            self._identifiers = []
        self._carry = bytes(front[strings.last_break(front) :])
        self._plan[self._next] = Span(self._front, span.end, "code")
        return self._front, view[start:]

    def _classify(self, piece: memoryview, at: int) -> None:
        if at < self._hop or not self._mixed or _kind(piece) == "data":
            if self._passed is not None:
                start, data = self._passed
                self._passed = None
                self._look(memoryview(data), start)
            self._in_data = True
            self._look(piece, at)
        elif self._in_data:  # the code may begin inside
            self._in_data = False
            self._look(piece, at)
        else:
            self._flush(bytes(piece[:1]))
            self._passed = (at, piece)

    def _look(self, view: memoryview, at: int) -> None:
        """Collect the runs of a stretch of data."""
        while view:
            if at < self._hop:
                skipped = min(self._hop - at, len(view))
                view, at = view[skipped:], at + skipped
                continue
            data = bytes(view)
            device, behind = self._device(data, at)
            self._take(data[:device], at)
            if device < len(data):
                self._flush(data[device : device + 1])
                self._hop = at + behind
            view, at = view[device:], at + device

    def _device(self, data: bytes, at: int) -> tuple[int, int]:
        """Return where in ``data`` device code starts, and where it ends (both from the start of ``data``)."""
        for marker in self._markers:
            start = data.find(marker)
            if start < 0 or len(data) - start < 16:
                continue
            length = 16 + struct.unpack_from("<Q", data, start + 8)[0] if marker == _FATBIN else 0
            if marker == _BUNDLE:
                length = _bundle_size(data[start : start + 8192])
            if length > 16 and at + start + length <= self._size:
                return start, start + length
        return len(data), len(data)

    def _take(self, data: bytes, at: int) -> None:
        if not data:
            return
        start = at
        if self._carry:
            data = self._carry + data
            start -= len(self._carry)
        cut = strings.last_break(data)
        self._find(data, start, cut)
        self._carry = data[cut:]
        if len(self._carry) > MAX_CARRY:
            raise MissingError
        if self._looked and self._looked[-1][1] == at:
            self._looked[-1] = (self._looked[-1][0], start + len(data))
        else:
            self._looked.append((at, start + len(data)))

    def _flush(self, peek: bytes) -> None:
        """End the run at the border: what follows is not looked at; ``peek`` is the byte behind it, or empty."""
        if self._carry:
            end = self._looked[-1][1] if self._looked else self._front
            data, self._carry = self._carry, b""
            self._find(data + peek, end - len(data), len(data))

    def _find(self, data: bytes, at: int, end: int) -> None:
        found = strings.runs(data, at, end)
        self._text += sum(map(len, map(_RUN_TEXT, found)))
        if self._text > 2 * FRONT:
            raise MissingError
        self._runs += found
        if self._identifiers is not None:
            self._identifiers += strings.identifiers(data, at, end)

    def _hunt_names(self, view: memoryview, at: int, first: bool) -> None:
        """Outside of segments: lld puts the section names before the symbols' names, far from the section headers."""
        if first:
            self._hunt = self._hunt or b"LLD" in bytes(view[:FIRST])  # in .comment, which comes first
        if not self._hunt:
            return
        data = bytes(view)
        found = data.find(b".shstrtab\0")
        if found >= 0:
            start = max(0, found - NAMES)
            self.kept.add(data[start : found + NAMES], at + start)
            self._hunt = False

    # --- afterwards -------------------------------------------------------------------------------------------------

    def runs(self, wanted: Sequence[Range]) -> Iterable[Run]:
        """Return the runs in the ranges. Raises MissingError where one was passed over."""
        self._runs.sort(key=_OFFSET)
        for piece in wanted:
            yield from self._in(piece, self._runs, strings.runs)

    def identifiers(self, wanted: Sequence[Range]) -> Iterable[Run]:
        """Return the identifiers in the ranges. Raises MissingError where none were looked for."""
        if self._identifiers is not None:
            self._identifiers.sort(key=_OFFSET)
        for piece in wanted:
            yield from self._in(piece, self._identifiers, strings.identifiers)

    def _in(self, piece: Range, found: list[Run] | None, finder: strings.Finder) -> Iterable[Run]:
        end = min(self.kept.end_from(piece.start), piece.end)
        if end > piece.start:
            for run in scan(
                self.kept.read, piece._replace(end=end, limit=min(piece.limit, self._readable(end))), finder
            ):
                if end == piece.end or run.offset + len(run.text) < end:
                    yield run
        if end == piece.end:
            return
        if found is None or not any(start <= end and piece.end <= stop for start, stop in self._looked):
            raise MissingError
        yield from _clip(found, piece, finder is strings.identifiers)

    def _readable(self, end: int) -> int:
        try:
            self.kept.read(end, 1)
        except MissingError:
            return end
        return end + 1


def _kind(piece: memoryview) -> Literal["code", "unwind", "data"]:
    """Guess from two samples what a piece is full of: x86-64 code, unwind tables, or anything else."""
    if len(piece) < SAMPLE:
        return "data"
    kinds: set[Literal["code", "unwind"]] = set()
    for quarter in (1, 3):
        middle = len(piece) * quarter // 4
        sample = bytes(piece[max(0, middle - SAMPLE // 2) : middle + SAMPLE // 2])
        if len(sample.translate(None, _CODE_BYTES)) <= (1 - CODE_SHARE) * len(sample):
            kinds.add("code")
        elif len(sample.translate(None, _UNWIND_BYTES)) <= (1 - UNWIND_SHARE) * len(sample):
            kinds.add("unwind")
        else:
            return "data"
    return kinds.pop() if len(kinds) == 1 else "data"


def _clip(found: list[Run], piece: Range, whole: bool) -> Iterable[Run]:
    """Yield the part of each run that lies in the range and is still worth keeping; only whole ones if asked."""
    at = bisect_left(found, piece.start, key=lambda run: run.offset + len(run.text))
    for run in found[at:]:
        if run.offset >= piece.end:
            return
        end = run.offset + len(run.text)
        if run.offset >= piece.start and end < piece.end:
            yield run
            continue
        start, stop = max(run.offset, piece.start), min(end, piece.end)
        closed = run.closed and stop == end and stop < piece.limit
        text = run.text[start - run.offset : stop - run.offset]
        if whole:
            if closed and start == run.offset:
                yield run
        elif strings.worth_keeping(text, closed):
            yield Run(start, text, closed)


def _bundle_size(data: bytes) -> int:
    """Return the length of a clang offload bundle in bytes, 0 where its header makes no sense."""
    at, end = len(_BUNDLE) + 8, 0
    if len(data) < at:
        return 0
    for _ in range(min(struct.unpack_from("<Q", data, at - 8)[0], 64)):
        if at + 24 > len(data):
            return 0
        offset, size, name = struct.unpack_from("<QQQ", data, at)
        end = max(end, offset + size)
        at += 24 + name
    return end


def _plan(head: Header, segments: tuple[Segment, ...], kept: Kept) -> list[Span]:
    """Decide what to do with each stretch of the file. Raises MissingError where the layout is an unusual one."""
    names, size = head.shoff, head.size
    if not head.shoff or size - head.shoff > HEADERS:
        raise MissingError
    kept.want(max(0, names - NAMES), size)
    for segment in segments:
        if segment.type in (layout.PT_DYNAMIC, layout.PT_INTERP, layout.PT_NOTE):
            kept.want(segment.offset, min(segment.end, segment.offset + WRITABLE, size))
    loads = sorted((s for s in segments if s.type == layout.PT_LOAD and s.filesz), key=lambda s: s.offset)
    unwind = next((s.offset for s in segments if s.type == _PT_GNU_EH_FRAME), size)
    spans: list[Span] = []
    for load in loads:
        if spans and load.offset < spans[-1].end:
            raise MissingError
        spans += _spans(load, unwind)
    for span in spans:
        if span.mode == "keep":
            kept.want(span.start, span.end)
    borders = [0, *(span.end for span in spans)], [*(span.start for span in spans), size]
    gaps = [Span(start, end, "gap") for start, end in zip(*borders, strict=True) if end > start]
    return sorted(spans + gaps)


def _spans(load: Segment, unwind: int) -> list[Span]:
    start, end = load.offset, load.end
    if load.flags & layout.PF_W:
        return [Span(start, end, "keep" if load.filesz <= WRITABLE else "look")]
    if start and load.flags & layout.PF_X:
        return [Span(start, end, "skip")]
    mode: Mode = "look" if start else "front"
    if not start <= unwind < end:
        return [Span(start, end, mode)]
    # Linkers put nothing but unwind tables behind the first of them, or nothing but data before.
    near = max(start, unwind - SMALL_DATA)
    if not start and near < FIRST:
        near = unwind
    spans = [Span(start, near, mode), Span(near, unwind, "look"), Span(unwind, end, "skip")]
    return [span for span in spans if span.end > span.start]
