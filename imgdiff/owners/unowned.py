"""What nobody claims, grouped by its top directory."""

from __future__ import annotations

from collections import defaultdict

from imgdiff.model import Claim
from imgdiff.owners._ledger import Ledger


def find(ledger: Ledger) -> None:
    """Give every file and symlink without an owner to ``unowned:/<top directory>``, ``unowned:/`` in the root."""
    groups: dict[bytes, list[bytes]] = defaultdict(list)
    for path, entry in ledger.tree.entries.items():
        if path not in ledger.claims and entry.type in ("file", "symlink"):
            top, slash, _ = path.partition(b"/")
            groups[top if slash else b""].append(path)
    for top in sorted(groups):
        name = "unowned:/" + top.decode("utf-8", "backslashreplace")
        owner = ledger.owner("unowned", name, None, top)
        for path in groups[top]:
            # Not through claim(): the files of package databases end here, and it refuses them.
            ledger.claims[path] = (Claim(owner, "top", path),)
