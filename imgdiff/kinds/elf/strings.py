"""Printable runs in mapped data: the paths, file names and patterns that a program can hold.

A run is a maximal stretch of printable ASCII, tabs and well-formed UTF-8. It is kept if it holds a ``/``, a ``.`` or
a ``%`` and is long enough. Rust and Go strings have no NUL behind them and lie end to end, so a run can be many strings
in one: look for a name *inside* of runs, not among them. What a compiler folded into instructions is in no run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

MIN_CLOSED = 3  # bytes of a run with a NUL behind it: "a/b"
MIN_OPEN = 5  # bytes of a run without one; shorter ones are nearly always numbers and code

_SEPARATORS = b"/.%"
# Bytes as classes: "/" for a separator, "a" for what can be printed else, NUL for all other bytes.
_CLASSED = bytes(0x2F if c in _SEPARATORS else 0x61 if 0x20 <= c < 0x7F or c == 9 else 0 for c in range(256))
# A run of three or more from its first separator on, in such classes. A single literal in front lets the regex engine
# skip at memory speed; a class there is ten times slower. The lookbehinds span the separator, too.
_HIT = re.compile(rb"/(?:[a/]{2,}|(?<=[a/]/)[a/]|(?<=[a/]{2}/))")
_WIDE = bytes(0x61 if 0x20 <= c < 0x7F or c == 9 or c >= 0x80 else 0 for c in range(256))
_LAST_WIDE = re.compile(rb"(?:[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})\Z")
_TEXT = re.compile(rb"(?:[\t\x20-\x7e]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})+")
_WORD = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
_CLASSES = bytes(0x61 if c in _WORD else c and (0x21 if (c >= 0x20 and c != 0x7F) or c == 9 else 1) for c in range(256))
# Two literals in front again: NULs are what such data is full of.
_IDENTIFIER = re.compile(rb"aa(?<![a!]aa)a*+(?=\0)")


class Run(NamedTuple):
    """A printable run: file offset, its bytes, and whether a NUL byte stands right behind it."""

    offset: int
    text: bytes
    closed: bool


_run = tuple.__new__  # half of what a named tuple's own takes

Finder: TypeAlias = Callable[..., Iterable[Run]]


def worth_keeping(text: bytes, closed: bool) -> bool:
    """Tell whether a run of these bytes can name a file: it has a separator and is long enough."""
    if len(text) < (MIN_CLOSED if closed else MIN_OPEN):
        return False
    return b"/" in text or b"." in text or b"%" in text


def last_break(data: bytes | bytearray) -> int:
    """Return the index behind the last byte that no run can hold; what follows may go on in the next chunk."""
    window = 256
    while True:
        start = max(0, len(data) - window)
        found = data[start:].translate(_WIDE).rfind(b"\0")
        if found >= 0:
            return start + found + 1
        if start == 0:
            return 0
        window *= 8


def runs(data: bytes, base: int, end: int | None = None) -> list[Run]:
    """Return the runs worth keeping in ``data[:end]``, in no order; ``base`` is the file offset of ``data[0]``.

    A run never reaches beyond ``end``; the byte there only tells whether a NUL follows.
    """
    size = len(data)
    stop = size if end is None else end
    classes = data.translate(_CLASSED)
    rfind = classes.rfind
    found: list[Run] = []
    keep = found.append
    seen: set[int] = set()  # where runs start that hold bytes above ASCII: there are several hits in them
    for hit in _HIT.finditer(classes, 0, stop):
        place, at = hit.span()
        start = rfind(b"\0", 0, place) + 1
        after = data[at] if at < size else 1
        # what can begin a character of several bytes behind the run, or end one in front of it
        if (0xC2 <= after <= 0xF4 and at < stop) or (start and 0x80 <= data[start - 1] < 0xC0):
            start, at = _extend(data, classes, start, place, stop)
            if start in seen:
                continue
            seen.add(start)
            after = data[at] if at < size else 1
        if at - start >= MIN_OPEN or (not after and at - start >= MIN_CLOSED):
            keep(_run(Run, (base + start, data[start:at], not after)))
    return found


def identifiers(data: bytes, base: int, end: int | None = None) -> Iterator[Run]:
    """Yield the NUL-terminated strings in ``data[:end]`` that are ASCII identifiers of two characters or more, in no
    order. A string starts behind a byte that can't be printed."""
    stop = len(data) if end is None else min(end + 1, len(data))
    classes = data[:stop].translate(_CLASSES)
    for found in _IDENTIFIER.finditer(classes):
        start, after = found.span()
        if not 0x30 <= data[start] <= 0x39:
            yield _run(Run, (base + start, data[start:after], True))


def _extend(data: bytes, classes: bytes, start: int, place: int, stop: int) -> tuple[int, int]:
    """Widen a run of ASCII around ``place`` by the well-formed UTF-8 on both sides; return its start and end."""
    forward = _TEXT.match(data, place, stop)
    assert forward is not None
    while start and data[start - 1] >= 0x80 and (wide := _LAST_WIDE.search(data[max(0, start - 4) : start])):
        start -= len(wide.group())
        start = classes.rfind(b"\0", 0, start) + 1
    return start, forward.end()
