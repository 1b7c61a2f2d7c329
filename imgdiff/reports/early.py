"""What differs, file by file, as lines that can be written while the trace of who loads it still runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imgdiff.model import Change
from imgdiff.reports._view import counted, path_text, safe


def lines(changes: Sequence[Change]) -> Iterator[str]:
    """Yield one line a change, in the order of their paths, and one that says how many there are.

    Effects are those of the files alone: a changed version or loader cache may weigh otherwise in the report.
    """
    for change in sorted(changes, key=lambda each: (each.path, each.path_a or b"")):
        owners = sorted({owner.name for owner in change.owners_b or change.owners_a})
        delta = change.delta
        what = change.status if delta is None else f"{change.status}, {delta.effect}"
        whose = safe(", ".join(owners)) or "nobody's"
        place = path_text(change.path)
        if change.path_a is not None and change.path_a != change.path:
            place = f"{path_text(change.path_a)} -> {place}"
        yield f"{what} ({whose}): {place}{'' if delta is None else f': {safe(delta.reason)}'}"
    files = counted(len(changes), "file")
    yield f"{files} {'differs' if len(changes) == 1 else 'differ'}; who loads what is traced now"
