"""What lies in the import package of a distribution without being in its RECORD: made at run time, or copied in."""

from __future__ import annotations

from collections.abc import Iterable

from imgdiff.model import Distribution
from imgdiff.owners._installed import versionless_path
from imgdiff.owners._ledger import Ledger, below, join

Holders = frozenset[tuple[int, bytes, bytes]]  # (owner, site, folder of the info)


def find_named(ledger: Ledger) -> None:
    """Claim the top-level packages and modules of distributions that have no RECORD, whoever else owns them, but for
    what another distribution's RECORD lists."""
    for distribution in ledger.distributions:
        if not distribution.recorded and distribution.editable is None:
            _claim_names(ledger, distribution)


def find(ledger: Ledger) -> None:
    """Claim what nobody has claimed and lies in a package of a distribution.

    A file in a directory that several distributions share goes to those with files right in that directory, else to
    all with files below it.
    """
    directly, beneath = _directories(ledger)
    known: dict[bytes, Holders | None] = {}
    for path, entry in ledger.tree.entries.items():
        if path in ledger.claims or entry.type not in ("file", "symlink"):
            continue
        for owner, site, folder in sorted(_holders(path.rpartition(b"/")[0], directly, beneath, known) or ()):
            relative = path[len(site) + 1 :] if site else path
            ledger.claim(path, owner, "enclosing", versionless_path(relative, folder))


def _claim_names(ledger: Ledger, distribution: Distribution) -> None:
    """Claim the packages and modules of a distribution that lists no files, and its info."""
    site, folder = distribution.site, distribution.info.rpartition(b"/")[2]
    wanted = {name.partition(".")[0].encode("utf-8", "surrogateescape") for name in distribution.packages}
    starts = [
        join(site, child)
        for child in ledger.tree.children(site)
        if child in wanted or (child.partition(b".")[0] in wanted and child.endswith((b".py", b".pyc", b".so")))
    ]
    starts.append(distribution.info)
    if folder == b"EGG-INFO":
        starts = [site]
    cut = len(site) + 1 if site else 0
    for start in starts:
        files: Iterable[bytes] = below(ledger.tree, start)
        if ledger.tree.entries[start].type != "dir":
            files = (start,)
        for path in files:
            if not any(claim.basis == "record" for claim in ledger.claims.get(path, ())):
                ledger.claim(path, distribution.owner, "enclosing", versionless_path(path[cut:], folder))


def _directories(ledger: Ledger) -> tuple[dict[bytes, Holders], dict[bytes, Holders]]:
    """Who has files right in each directory of a site, and who has some at any depth below it."""
    directly: dict[bytes, set[tuple[int, bytes, bytes]]] = {}
    beneath: dict[bytes, set[tuple[int, bytes, bytes]]] = {}
    for distribution in ledger.distributions:
        site = distribution.site
        inside = site + b"/" if site else b""
        holder = (distribution.owner, site, distribution.info.rpartition(b"/")[2])
        parents = {path.rpartition(b"/")[0] for path, _, _ in distribution.recorded}
        parents.add(distribution.info)
        done: set[bytes] = set()
        for parent in parents:
            if parent == site or not parent.startswith(inside) or parent.endswith(b"__pycache__"):
                continue
            directly.setdefault(parent, set()).add(holder)
            while parent not in done and len(parent) > len(site):
                done.add(parent)
                beneath.setdefault(parent, set()).add(holder)
                parent = parent.rpartition(b"/")[0]
    freeze = {key: frozenset(value) for key, value in directly.items()}
    return freeze, {key: frozenset(value) for key, value in beneath.items()}


def _holders(
    directory: bytes, directly: dict[bytes, Holders], beneath: dict[bytes, Holders], known: dict[bytes, Holders | None]
) -> Holders | None:
    pending: list[bytes] = []
    found: Holders | None = None
    here = directory
    while here:
        if here in known:
            found = known[here]
            break
        found = directly.get(here) or beneath.get(here)
        if found is not None:
            break
        pending.append(here)
        here = here.rpartition(b"/")[0]
    for step in pending:
        known[step] = found
    return found
