"""Short line diffs of the small texts that bear: what a person would look up first."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

import msgspec

from imgdiff import config as configs
from imgdiff.model import FileEntry, JudgedChange, Texts

MOST_FILES = 50
"""Differences that get a diff, in the order of the report."""
MOST_LINES = 30
"""Lines of one diff, its header apart."""
MOST_CHARACTERS = 200
"""Characters of one line."""
_MOST_BYTES = 200_000  # of a text that is compared by lines
_MOST_TEXT_LINES = 5_000
_CONTEXT = 2


def with_diffs(judged: Sequence[JudgedChange], texts_a: Texts, texts_b: Texts) -> list[JudgedChange]:
    """Return the changes, the first of those that bear on a role with ``detail.diff``: the lines of a unified diff, and
    how many more there are. Only where both texts were kept and are UTF-8, and not of data without an owner. What
    looks like a secret is hidden as it is in a command line."""
    found: list[JudgedChange] = []
    given = 0
    for each in judged:
        change = each.change
        diff = None
        bears = change.delta is not None and any(weight != "none" for weight in each.bears.values())
        if bears and given < MOST_FILES and change.status == "modified" and not _may_be_private(each):
            a, b = _text(change.a, texts_a), _text(change.b, texts_b)
            diff = None if a is None or b is None or a == b else _diff(a, b)
        if diff is None or change.delta is None:
            found.append(each)
            continue
        given += 1
        delta = msgspec.structs.replace(change.delta, detail={**change.delta.detail, "diff": diff})
        found.append(msgspec.structs.replace(each, change=msgspec.structs.replace(change, delta=delta)))
    return found


def _may_be_private(judged: JudgedChange) -> bool:
    """Tell whether a file is data of nobody: what a user put there can hold anything, and no package published it."""
    owners = (*judged.change.owners_a, *judged.change.owners_b)
    kind = None if judged.change.delta is None else judged.change.delta.detail.get("kind")
    return kind not in ("python", "shell") and all(owner.kind == "unowned" for owner in owners)


def _text(entry: FileEntry | None, texts: Texts) -> list[str] | None:
    if entry is None or entry.type != "file" or entry.digest is None or entry.size > _MOST_BYTES:
        return None
    content = texts.get(entry.digest)
    if content is None or b"\0" in content:
        return None
    try:
        lines = content.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        return None
    return lines if len(lines) <= _MOST_TEXT_LINES else None


def _diff(a: list[str], b: list[str]) -> dict[str, object] | None:
    lines = list(_shown(difflib.unified_diff(a, b, n=_CONTEXT, lineterm="")))
    if not lines:  # the last newline alone
        return None
    left_out = max(0, len(lines) - MOST_LINES)
    return {"lines": lines[:MOST_LINES], "left_out": left_out}


def _shown(lines: Iterator[str]) -> Iterator[str]:
    for position, line in enumerate(lines):
        if position > 1:  # behind the two names
            shown = line[:1] + " ".join(configs.redact_argv(line[1:].split(" "))) if line[:1] != "@" else line
            yield shown if len(shown) <= MOST_CHARACTERS else shown[: MOST_CHARACTERS - 4] + " ..."
