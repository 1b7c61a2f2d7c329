"""JSON: data, with the keys whose values differ."""

from __future__ import annotations

import json
from typing import Any

from imgdiff.kinds._lines import MAX_LISTED, MAX_TEXT, count_lines
from imgdiff.model import Delta

VERSION = 1

_MISSING = object()


def delta(a: bytes, b: bytes) -> Delta:
    """Compare two JSON files: always data, since a program may read the text itself; the detail names the keys."""
    lines = count_lines(a, b)
    try:
        value_a, value_b = json.loads(a), json.loads(b)
    except (ValueError, RecursionError) as error:
        return Delta("data", f"The text differs, and one side is no JSON ({type(error).__name__}).", {"lines": lines})
    keys = _differing(value_a, value_b)
    if not keys:
        return Delta("data", "The JSON values are equal; the text differs in layout or in the order of keys.")
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    detail: dict[str, Any] = {"keys": keys[:MAX_LISTED], "lines": lines}
    if len(keys) > MAX_LISTED:
        detail["keys_count"] = len(keys)
    return Delta("data", f"The JSON differs at {keys[0] or 'its root'}{more}.", detail)


def _differing(a: Any, b: Any) -> list[str]:
    """Return the paths (``a.b[2].c``) of the values that differ, in the order of a's text, then b's."""
    found: list[str] = []
    stack: list[tuple[str, Any, Any]] = [("", a, b)]
    while stack:
        path, x, y = stack.pop()
        if isinstance(x, dict) and isinstance(y, dict):
            keys = dict.fromkeys([*x, *y])
            below = [(_join(path, key), x.get(key, _MISSING), y.get(key, _MISSING)) for key in keys]
            stack += reversed(below)
        elif isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
            stack += [(f"{path}[{at}]"[:MAX_TEXT], x[at], y[at]) for at in reversed(range(len(x)))]
        elif type(x) is not type(y) or repr(x) != repr(y):
            found.append(path)
    return found


def _join(path: str, key: str) -> str:
    return (f"{path}.{key}" if path else key)[:MAX_TEXT]
