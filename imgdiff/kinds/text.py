"""Text that is no script of a known language, and scripts of languages that we don't read."""

from __future__ import annotations

from imgdiff.kinds._lines import count_lines
from imgdiff.model import Delta, Effect

VERSION = 1


def delta(a: bytes, b: bytes, effect: Effect = "data") -> Delta:
    """Compare two texts: data, or code for a script; never noise, since anything could read it."""
    lines = count_lines(a, b)
    if not any(lines.values()):
        reason = "The text differs in the order of lines or in line ends."
    else:
        reason = f"The text differs: {lines['added']} lines added, {lines['removed']} removed."
    return Delta(effect, reason, {"lines": lines})
