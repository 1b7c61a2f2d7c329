"""Stretches of a file that were kept while it streamed by, read by file offset."""

from __future__ import annotations

from imgdiff.kinds.elf.layout import MissingError


class Kept:
    """Keeps the bytes of chosen ranges, memory bounded by the ranges' size.

    Feed consecutive chunks with :meth:`see`; ranges may be added as long as their bytes lie ahead.
    """

    def __init__(self) -> None:
        self._ahead: list[tuple[int, int]] = []
        self._parts: list[tuple[int, bytearray]] = []

    def want(self, start: int, end: int) -> None:
        """Keep the bytes from ``start`` to ``end`` when they come by."""
        if end > start:
            self._ahead.append((start, end))

    def see(self, view: memoryview, at: int) -> None:
        """Look at a chunk that lies at this file offset."""
        stop = at + len(view)
        for start, end in self._ahead:
            if start < stop and end > at:
                self.add(view[max(start - at, 0) : end - at], max(start, at))
        if any(end <= stop for _, end in self._ahead):
            self._ahead = [(start, end) for start, end in self._ahead if end > stop]

    def add(self, data: memoryview | bytes, at: int) -> None:
        """Keep these bytes, which lie at this file offset."""
        for start, part in self._parts:
            if start + len(part) == at:
                part += data
                return
        self._parts.append((at, bytearray(data)))

    def part(self, offset: int) -> bytearray:
        """Return what was kept in one piece from ``offset`` on, uncopied; empty if nothing."""
        return next((part for start, part in self._parts if start == offset), bytearray())

    def end_from(self, offset: int) -> int:
        """Return up to which file offset bytes were kept without a gap from ``offset`` on."""
        end = offset
        for start, part in sorted(self._parts, key=lambda item: item[0]):
            if start <= end < start + len(part):
                end = start + len(part)
        return end

    def read(self, offset: int, size: int) -> bytes:
        """Return kept bytes. Raises MissingError where one of them was not kept."""
        for start, part in self._parts:
            if start <= offset and offset + size <= start + len(part):
                return bytes(memoryview(part)[offset - start : offset - start + size])
        raise MissingError
