"""Files that a list names and the image lacks: one note for a directory that is gone, not one for each file."""

from __future__ import annotations

from collections.abc import Iterable

from imgdiff.model import IntegrityCode
from imgdiff.owners._ledger import Ledger, shown


def note_missing(ledger: Ledger, code: IntegrityCode, owner: str, missing: Iterable[bytes], by: str) -> None:
    """Note the missing files: each where its directory stands, else once for the topmost directory that is gone."""
    groups: dict[bytes, int] = {}
    for path in missing:
        gone = path
        parent = path.rpartition(b"/")[0]
        while parent and parent not in ledger.tree.entries:
            gone, parent = parent, parent.rpartition(b"/")[0]
        groups[gone] = groups.get(gone, 0) + 1
    for gone in sorted(groups):
        number = groups[gone]
        if number == 1:
            message = f"{by} lists a file that the image lacks: {shown(gone)}."
        else:
            message = f"{by} lists {number:,} files below {shown(gone)}, and the image has no such directory."
        ledger.note(code, owner, gone, message)
