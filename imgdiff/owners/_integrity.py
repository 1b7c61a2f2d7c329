"""What does not fit inside one image: files against the image's own RECORDs, distributions against each other."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations, pairwise

from imgdiff.model import Distribution, FileEntry
from imgdiff.owners._ledger import Ledger, counted, join, shown
from imgdiff.owners._metadata import is_module
from imgdiff.owners._missing import note_missing

_MANY = (
    50  # distributions that list one file: beyond it only neighbours are compared, or a hostile image takes for ever
)
# Of what several rows of RECORDs list, by path: (index of the distribution, digest in its RECORD).
Claimants = dict[bytes, list[tuple[int, bytes | None]]]


def check(ledger: Ledger) -> None:
    """Note what RECORDs say and the image does not hold, and distributions that are in each other's way."""
    claimants = _claimants(ledger)
    for distribution in ledger.distributions:
        _against_record(ledger, distribution, claimants)
    _duplicates(ledger)
    _overlaps(ledger, claimants)
    _empty_directories(ledger)


def _claimants(ledger: Ledger) -> Claimants:
    once: set[bytes] = set()
    claimants: Claimants = {}
    for distribution in ledger.distributions:
        for path, _, _ in distribution.recorded:
            if path in once:
                claimants[path] = []
            else:
                once.add(path)
    if claimants:  # few of all, and nearly always none
        for index, distribution in enumerate(ledger.distributions):
            for path, _, digest in distribution.recorded:
                if path in claimants:
                    claimants[path].append((index, digest))
    return claimants


# --------------------------------------------------------------------------------------------------------------------
# One distribution
# --------------------------------------------------------------------------------------------------------------------


def _against_record(ledger: Ledger, distribution: Distribution, claimants: Claimants) -> None:
    entries = ledger.tree.entries
    inside = distribution.info + b"/"
    missing: list[bytes] = []
    modules = 0
    present = False
    for path, _, digest in distribution.recorded:
        entry = entries.get(path)
        if not present and is_module(path) and not path.startswith(inside):
            modules += 1
            present = entry is not None
        if path.endswith(b".pyc"):
            continue  # installers and first runs make and remake these, also where RECORD has a hash
        if entry is None:
            missing.append(path)
        elif digest is not None and entry.digest != digest and not _fits(ledger, entry, digest):
            actual = _digest(ledger, entry)
            if not any(other is not None and other == actual for _, other in claimants.get(path, ())):
                _note_mismatch(ledger, distribution, entry)
    name = distribution.name
    if modules and not present and distribution.editable is None:
        ledger.note(
            "orphan-dist-info",
            name,
            distribution.info,
            f"{shown(distribution.info)} describes {name} {distribution.version or ''}".rstrip()
            + f", and {'the module' if modules == 1 else f'all {modules:,} modules'} that its RECORD lists "
            f"{'is' if modules == 1 else 'are'} gone.",
        )
        return
    note_missing(ledger, "record-missing", name, missing, f"RECORD of {name}")


def _digest(ledger: Ledger, entry: FileEntry) -> bytes | None:
    """The digest of what a reader of this path gets."""
    target = ledger.tree.lookup(entry.path) if entry.type == "symlink" else entry
    return None if target is None else target.digest


def _fits(ledger: Ledger, entry: FileEntry, digest: bytes) -> bool:
    if entry.type == "file":
        # Content that could not be read is a blindspot of the comparison, no edit.
        return entry.digest is None or entry.digest == digest
    return _digest(ledger, entry) == digest


def _note_mismatch(ledger: Ledger, distribution: Distribution, entry: FileEntry) -> None:
    name = distribution.name
    if entry.type == "file":
        message = f"{shown(entry.path)} differs from RECORD of {name}: it was changed after the install."
    else:
        what = "a symlink to other content" if entry.type == "symlink" else "no regular file"
        message = f"{shown(entry.path)} is {what}, where RECORD of {name} has a file."
    ledger.note("record-mismatch", name, entry.path, message)


# --------------------------------------------------------------------------------------------------------------------
# Distributions against each other
# --------------------------------------------------------------------------------------------------------------------


def _duplicates(ledger: Ledger) -> None:
    groups: dict[tuple[bytes, str], list[Distribution]] = defaultdict(list)
    for distribution in ledger.distributions:
        groups[distribution.info.rpartition(b"/")[0], distribution.name].append(distribution)
    for (site, name), group in sorted(groups.items()):
        if len(group) > 1:
            versions = " and ".join(each.version or "no version" for each in group)
            ledger.note(
                "duplicate-distribution",
                name,
                group[0].info,
                f"{shown(site)} holds {len(group)} distributions called {name}: {versions}; which one Python finds "
                "depends on the order of the directory.",
            )


def _overlaps(ledger: Ledger, claimants: Claimants) -> None:
    """Two distributions that list the same files. An ``__init__.py`` that both list with the same hash is how
    namespace packages are shared, and no conflict."""
    shared: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    for path, claims in claimants.items():
        if len(claims) < 2 or path.endswith(b".pyc") or path not in ledger.tree.entries:
            continue
        claims = sorted(claims, key=lambda claim: claim[0])
        pairs = combinations(claims, 2) if len(claims) <= _MANY else pairwise(claims)
        for (left, left_digest), (right, right_digest) in pairs:
            same = left_digest is not None and left_digest == right_digest
            if not (same and path.endswith(b"/__init__.py")):
                shared[left, right].append(path)
    for (left, right), paths in sorted(shared.items()):
        a, b = ledger.distributions[left], ledger.distributions[right]
        if a.name == b.name:
            continue
        first = min(paths)
        ledger.note(
            "two-distributions",
            a.name,
            first,
            f"{a.name} and {b.name} both list {counted(len(paths), 'same file', 'of the same files')}: {shown(first)}"
            f"{' and others' if len(paths) > 1 else ''}.",
        )


# --------------------------------------------------------------------------------------------------------------------
# Empty directories
# --------------------------------------------------------------------------------------------------------------------


def _empty_directories(ledger: Ledger) -> None:
    """Empty directories in the packages of distributions: wheels have none, so something took their files."""
    expected: dict[bytes, tuple[str, int]] = {}
    tops: dict[bytes, str] = {}
    for distribution in ledger.distributions:
        for path, _, _ in distribution.recorded:
            if path not in ledger.tree.entries:
                parent = path.rpartition(b"/")[0]
                name, number = expected.get(parent, (distribution.name, 0))
                expected[parent] = (name, number + 1)
        base = distribution.site if distribution.editable is None else distribution.editable
        for package in distribution.packages:
            tops.setdefault(join(base, package.encode("utf-8", "surrogateescape")), distribution.name)
    for path in ledger.survey.directories:
        if path.endswith(b"__pycache__") or ledger.tree.children(path):
            continue
        if path in expected:
            name, number = expected[path]
            reason = f"RECORD of {name} lists {counted(number, 'file')} in it"
        else:
            name = _owner_of(path, tops)
            reason = f"it lies in a package of {name}"
        if name:
            ledger.note("empty-directory", name, path, f"{shown(path)} is empty, and {reason}.")


def _owner_of(path: bytes, tops: dict[bytes, str]) -> str:
    while path:
        if path in tops:
            return tops[path]
        path = path.rpartition(b"/")[0]
    return ""
