"""Where two stretches of bytes differ: how many bytes in how many runs, and where the first runs lie."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imgdiff.kinds.elf.layout import Access

BLOCK = 1 << 16
CHUNK = 1 << 20
MAX_SPANS = 4096  # runs whose place is kept

_MARK = bytes(1 if byte else 0 for byte in range(256))
_RUN = re.compile(rb"\x01+")


class Tally:
    """Differing bytes and runs of one stretch. ``spans`` are the first runs as (start, end), from its start on."""

    __slots__ = ("_touching", "bytes", "runs", "spans")

    def __init__(self) -> None:
        self.bytes = 0
        self.runs = 0
        self.spans: list[tuple[int, int]] = []
        self._touching = -1

    def add(self, at: int, marks: bytes) -> None:
        """Count a block that starts at ``at``: a byte of ``marks`` is 1 where the two differ, else 0."""
        self.bytes += marks.count(1)
        self.runs += marks.count(b"\0\1") + marks[0]
        if marks[0] and self._touching == at:
            self.runs -= 1
        self._touching = at + len(marks) if marks[-1] else -1
        if len(self.spans) >= MAX_SPANS:
            return
        for run in _RUN.finditer(marks):
            start, end = at + run.start(), at + run.end()
            if self.spans and self.spans[-1][1] == start:
                self.spans[-1] = (self.spans[-1][0], end)
            elif len(self.spans) < MAX_SPANS:
                self.spans.append((start, end))
            else:
                return


def blocks(read_a: Access, read_b: Access, start_a: int, start_b: int, length: int) -> Iterator[tuple[int, bytes]]:
    """Yield (place, marks) of each block that differs; ``place`` counts from the start of the stretch."""
    for chunk in range(0, length, CHUNK):
        size = min(CHUNK, length - chunk)
        a, b = read_a(start_a + chunk, size), read_b(start_b + chunk, size)
        if a == b:
            continue
        for at in range(0, size, BLOCK):
            one, other = a[at : at + BLOCK], b[at : at + BLOCK]
            if one != other:
                yield chunk + at, _marks(one, other)


def tally(read_a: Access, read_b: Access, start_a: int, start_b: int, length: int) -> Tally:
    """Count what differs between two stretches of ``length`` bytes."""
    found = Tally()
    for at, marks in blocks(read_a, read_b, start_a, start_b, length):
        found.add(at, marks)
    return found


def equal_but_for(read_a: Access, read_b: Access, start: int, length: int, exempt: tuple[tuple[int, int], ...]) -> bool:
    """Tell whether two files hold the same bytes in a range, the ranges of ``exempt`` (start, end) apart."""
    for at, marks in blocks(read_a, read_b, start, start, length):
        place = start + at
        left = bytearray(marks)
        for a, b in exempt:
            low, high = max(a, place) - place, min(b, place + len(left)) - place
            if low < high:
                left[low:high] = bytes(high - low)
        if any(left):
            return False
    return True


def _marks(a: bytes, b: bytes) -> bytes:
    if len(a) != len(b):  # a file that is shorter than it says
        size = max(len(a), len(b))
        a, b = a.ljust(size, b"\0"), b.ljust(size, b"\xff")
    mixed = int.from_bytes(a, "little") ^ int.from_bytes(b, "little")
    return mixed.to_bytes(len(a), "little").translate(_MARK)
