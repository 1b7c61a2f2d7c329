"""Sparse members: which parts of a file an archive holds (GNU tar manual, "Storing Sparse Files")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from imgdiff.layer._header import BLOCK, TarError, number
from imgdiff.layer._pax import MAP, SPARSE, Records, decimal
from imgdiff.layer._tape import Tape

Parts = list[tuple[int, int]]  # (offset, length) of each stretch that is in the archive

MAX_PARTS: Final = 1 << 20
MAX_HOLES: Final = 1 << 36  # bytes: 64 GiB of zeros take a minute to hash; a hostile header can claim a thousand years
_ZEROS: Final = memoryview(bytes(1 << 20))


def old_gnu(tape: Tape, block: bytes) -> tuple[int, Parts]:
    """Read the map of an old GNU sparse member (type S), in its header and the blocks behind it.

    Returns the file's real size and its parts. Raises TarError.
    """
    parts: Parts = []
    table, more = block[386:482], block[482]
    while True:
        for at in range(0, len(table) - 23, 24):
            if not table[at]:
                break
            parts.append((number(table[at : at + 12]), number(table[at + 12 : at + 24])))
        if not more:
            return number(block[483:495]), parts
        if len(parts) > MAX_PARTS:
            raise TarError("has a sparse map of more than a million parts")
        extension = tape.block()
        if len(extension) < BLOCK:
            raise TarError("ends in the middle of a sparse map")
        table, more = extension[:504], extension[504]


def pax(tape: Tape, records: Records, size: int) -> tuple[int, int, Parts, bytes] | None:
    """Read the map of a PAX sparse member (formats 0.0, 0.1 and 1.0), or return None where it is none.

    ``size`` is the member's size in the archive. Returns the file's real size, the bytes of its parts that are still
    on the tape, the parts, and the name ("" where the header has it). Raises TarError.
    """
    version = records.get(SPARSE + b"major", b""), records.get(SPARSE + b"minor", b"")
    if version not in ((b"", b""), (b"0", b"0"), (b"0", b"1"), (b"1", b"0")):
        raise TarError("holds a sparse file of an unknown format")
    if version == (b"", b"") and not records.get(MAP):
        return None
    real = records.get(SPARSE + b"size") or records.get(SPARSE + b"realsize")
    name = records.get(SPARSE + b"name", b"")
    if version == (b"1", b"0"):
        parts, taken = _map_in_data(tape, size)
    else:
        numbers = [decimal(item) for item in records[MAP].split(b",")] if records.get(MAP) else []
        if len(numbers) % 2:
            raise TarError("has a broken PAX sparse map")
        parts, taken = list(zip(numbers[::2], numbers[1::2], strict=True)), 0
    return (size if real is None else decimal(real)), size - taken, parts, name


def _map_in_data(tape: Tape, size: int) -> tuple[Parts, int]:
    """Read the map that stands in front of the data: a count, then offsets and lengths, one decimal a line, padded."""
    taken = 0
    text = b""
    lines: list[bytes] = []
    wanted = 1
    while len(lines) < wanted:
        if taken + BLOCK > size:
            raise TarError("has a broken PAX sparse map")
        text += tape.block()
        taken += BLOCK
        *complete, text = text.split(b"\n")
        if not lines and complete:
            count = decimal(complete[0])
            if not 0 <= count <= MAX_PARTS:
                raise TarError("has a sparse map of more than a million parts")
            wanted = 1 + 2 * count
        if len(text) > BLOCK:
            raise TarError("has a broken PAX sparse map")
        lines += complete
    numbers = [decimal(line) for line in lines[1:wanted]]
    return list(zip(numbers[::2], numbers[1::2], strict=True)), taken


def check(parts: Parts, real: int, stored: int) -> None:
    """Raise TarError unless the parts follow each other inside the file and are as long as what is stored."""
    end = 0
    for offset, length in parts:
        if offset < end or length < 0:
            raise TarError("has a sparse map whose parts overlap")
        end = offset + length
    if end > real or sum(length for _, length in parts) != stored:
        raise TarError("has a sparse map that does not fit its file")


def expand(data: Iterator[memoryview], parts: Parts, real: int) -> Iterator[memoryview]:
    """Yield a sparse file's whole content in pieces: the parts from ``data``, zeros between and behind them."""
    at = 0
    piece = _ZEROS[:0]
    for offset, length in parts:
        yield from _zeros(offset - at)
        left = length
        while left:
            if not piece:
                piece = next(data)
            yield piece[:left]
            taken = min(left, len(piece))
            piece = piece[taken:]
            left -= taken
        at = offset + length
    for _ in data:  # lets the padding pass
        pass
    yield from _zeros(real - at)


def _zeros(count: int) -> Iterator[memoryview]:
    while count:
        yield _ZEROS[:count]
        count -= min(count, len(_ZEROS))
