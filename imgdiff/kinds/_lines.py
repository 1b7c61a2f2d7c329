"""Small helpers that the deltas of text share."""

from __future__ import annotations

from collections import Counter

MAX_LISTED = 50
"""Entries that a list in a detail holds at most."""
MAX_TEXT = 200
"""Characters of a text from an image that a detail holds at most."""


def count_lines(a: bytes, b: bytes) -> dict[str, int]:
    """Count the lines of b that a lacks and the other way round; a line that only moved counts in neither."""
    lines_a, lines_b = Counter(a.splitlines()), Counter(b.splitlines())
    return {"added": (lines_b - lines_a).total(), "removed": (lines_a - lines_b).total()}


def text(data: bytes) -> str:
    """Return bytes from an image as text for a detail: bounded, bytes that are no UTF-8 written ``\\xNN``."""
    return data[: 4 * MAX_TEXT].decode("utf-8", "backslashreplace")[:MAX_TEXT]
