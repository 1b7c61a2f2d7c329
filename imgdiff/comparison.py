"""Two merged file systems held against each other: which names differ, paired as their owners would pair them.

Pure. What in a changed file differs is a later question; here a file is its type, digest, link text and attributes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from imgdiff.attributes import attributes_bear
from imgdiff.model import (
    Attribution,
    Blindspot,
    Change,
    Claim,
    Comparison,
    FileEntry,
    Owner,
    OwnerKind,
    OwnerTally,
    Side,
    Status,
    Tree,
)

# Owners whose files have a place of their own below a root, so that a moved root pairs. A system package's files
# are where they are; nobody's files never pair.
PAIRED_BY_RELATIVE_PATH: frozenset[OwnerKind] = frozenset({"wheel", "egg", "editable", "conda", "prefix", "stdlib"})

Pair = tuple[bytes | None, bytes | None]


def compare(
    tree_a: Tree,
    attribution_a: Attribution,
    tree_b: Tree,
    attribution_b: Attribution,
    roots_a: Mapping[int, str] | None = None,
    roots_b: Mapping[int, str] | None = None,
    *,
    as_root: bool = True,
) -> Comparison:
    """Return every difference of two trees, and the counts by owner.

    Paths pair by themselves, then by the canonical path that the name leads to in the other image, then by the
    relative path of their common owner. ``roots_a`` and ``roots_b`` give each owner's root hash by its index,
    ``as_root`` says of whom attributes are asked; see :func:`attributes_bear`. Changes carry no delta yet.
    """
    owners = _OwnerPairs(attribution_a.owners, attribution_b.owners)
    pairing = _Pairing(tree_a, attribution_a, tree_b, attribution_b, owners, as_root)
    changes: list[Change] = []
    unchanged: list[Pair] = []
    touched: list[tuple[bytes, bytes]] = []
    mtime_only = 0
    entries_a, entries_b = tree_a.entries, tree_b.entries
    for path_a, path_b in pairing.pairs():
        a = None if path_a is None else entries_a[path_a]
        b = None if path_b is None else entries_b[path_b]
        if a is b:  # the same entry of a shared layer
            if a is not None and a.type != "dir":
                unchanged.append((path_a, path_b))
            continue
        status = _status(a, b, as_root)
        if status is None:
            if a is not None and a.type != "dir":
                unchanged.append((path_a, path_b))
                if b is not None and a.type == "file" and a.mtime != b.mtime:
                    mtime_only += 1
                    if b.path.endswith(b".py"):
                        touched.append((a.path, b.path))
            continue
        changes.append(
            Change(
                path_a,
                path_b,
                status,
                a,
                b,
                () if path_a is None else attribution_a.owners_of(path_a),
                () if path_b is None else attribution_b.owners_of(path_b),
            )
        )
    for path_a, path_b in pairing.explained:
        unchanged.append((path_a, path_b))
        if path_a is not None and path_b is not None and path_b.endswith(b".py"):
            touched.append((path_a, path_b))  # whichever its mtime: what runs is asked of the pair
    changes.sort(key=lambda change: (change.path, change.path_a or b""))
    tallies = _tally(owners, attribution_a, attribution_b, changes, unchanged, roots_a or {}, roots_b or {})
    blindspots = (*_unread(tree_a, "a"), *_unread(tree_b, "b"))
    return Comparison(tuple(changes), tallies, mtime_only, blindspots, tuple(sorted(touched)))


def _unread(tree: Tree, side: Side) -> Iterator[Blindspot]:
    for entry in tree.entries.values():
        if entry.type == "file" and entry.digest is None:
            yield Blindspot(
                "unread file", "its content could not be read, so it is not known to be equal", entry.path, side
            )


# --------------------------------------------------------------------------------------------------------------------
# Status of one pair
# --------------------------------------------------------------------------------------------------------------------


def _status(a: FileEntry | None, b: FileEntry | None, as_root: bool) -> Status | None:
    if a is None:
        return "added"
    if b is None:
        return "removed"
    if a.type != b.type:
        return "retyped"
    if a.type == "file" and (a.digest != b.digest or a.digest is None):
        return "modified"
    if a.type == "symlink" and a.link_target != b.link_target:
        return "modified"
    if a.device != b.device:
        return "modified"
    if a.path != b.path and a.type != "dir":
        # A bit that was lost on the way is no mere move.
        return "attributes" if attributes_bear(a, b, as_root=as_root) else "moved"
    if a.type == "symlink":
        return "attributes" if (a.uid, a.gid, a.xattrs) != (b.uid, b.gid, b.xattrs) else None
    if a.type == "dir":
        return "attributes" if attributes_bear(a, b, as_root=as_root) else None
    if (a.mode, a.uid, a.gid, a.xattrs) != (b.mode, b.uid, b.gid, b.xattrs):
        return "attributes"
    return None


# --------------------------------------------------------------------------------------------------------------------
# Pairing
# --------------------------------------------------------------------------------------------------------------------


class _OwnerPairs:
    """Owners of both images as pairs: same kind and name, same root first, then in the order of their roots."""

    def __init__(self, owners_a: tuple[Owner, ...], owners_b: tuple[Owner, ...]) -> None:
        self.pairs: list[tuple[int | None, int | None]] = []
        self.of_a: dict[int, int] = {}
        self.of_b: dict[int, int] = {}
        groups: dict[tuple[OwnerKind, str], tuple[dict[bytes, int], dict[bytes, int]]] = {}
        for side, owners in ((0, owners_a), (1, owners_b)):
            for index, owner in enumerate(owners):
                groups.setdefault((owner.kind, owner.name), ({}, {}))[side][owner.root] = index
        for key in sorted(groups):
            by_root_a, by_root_b = groups[key]
            for root in sorted(by_root_a.keys() & by_root_b.keys()):
                self._add(by_root_a.pop(root), by_root_b.pop(root))
            left, right = ([index for _, index in sorted(by_root.items())] for by_root in (by_root_a, by_root_b))
            for position in range(max(len(left), len(right))):
                self._add(
                    left[position] if position < len(left) else None, right[position] if position < len(right) else None
                )

    def _add(self, a: int | None, b: int | None) -> None:
        if a is not None:
            self.of_a[a] = len(self.pairs)
        if b is not None:
            self.of_b[b] = len(self.pairs)
        self.pairs.append((a, b))


class _Pairing:
    """Which name of a stands against which name of b."""

    def __init__(
        self,
        tree_a: Tree,
        attribution_a: Attribution,
        tree_b: Tree,
        attribution_b: Attribution,
        owners: _OwnerPairs,
        as_root: bool,
    ) -> None:
        self._a, self._b = tree_a, tree_b
        self._claims_a, self._claims_b = attribution_a, attribution_b
        self._owners, self._as_root = owners, as_root
        self.explained: list[Pair] = []  # equal content behind a directory that became a link, or stopped being one

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair of names that is to be compared; each non-directory of both trees is in exactly one, but
        for names that a retyped directory above them already explains."""
        entries_a, entries_b = self._a.entries, self._b.entries
        for path in entries_a:  # in their order, in which they lie in memory
            if path in entries_b:
                yield path, path
        only_a = {path for path in entries_a.keys() - entries_b.keys() if self._counts(self._a, path)}
        only_b = {path for path in entries_b.keys() - entries_a.keys() if self._counts(self._b, path)}
        yield from self._through_links(only_a, only_b)
        yield from self._by_owner(only_a, only_b)
        for path in only_a:
            yield path, None
        for path in only_b:
            yield None, path

    @staticmethod
    def _counts(tree: Tree, path: bytes) -> bool:
        """Directories count only where they come or go empty."""
        return tree.entries[path].type != "dir" or not tree.children(path)

    def _through_links(self, only_a: set[bytes], only_b: set[bytes]) -> Iterator[Pair]:
        """Pair names whose directory is a link in the other image: /lib/x in a, /lib -> usr/lib and /usr/lib/x in b."""
        for path in sorted(only_a):
            canonical = self._elsewhere(self._b, path)
            if canonical is None:
                continue
            if canonical in only_b:
                only_a.discard(path)
                only_b.discard(canonical)
                if self._same(path, canonical):
                    self.explained.append((path, canonical))
                else:
                    yield path, canonical
            elif self._same(path, canonical):
                only_a.discard(path)
                self.explained.append((path, None))
        for path in sorted(only_b):
            canonical = self._elsewhere(self._a, path)
            if canonical is None:
                continue
            if self._same(canonical, path):
                only_b.discard(path)
                self.explained.append((canonical if canonical in only_a else None, path))
                only_a.discard(canonical)
            elif canonical in only_a:
                only_a.discard(canonical)
                only_b.discard(path)
                yield canonical, path

    def _same(self, path_a: bytes, path_b: bytes) -> bool:
        """Tell whether two entries are the same to every process: content, and the attributes that bear."""
        a, b = self._a.entries[path_a], self._b.entries[path_b]
        if a.type != b.type or (a.type != "symlink" and attributes_bear(a, b, as_root=self._as_root)):
            return False
        if a.type == "file":
            return a.digest is not None and a.digest == b.digest
        return a.link_target == b.link_target

    @staticmethod
    def _elsewhere(tree: Tree, path: bytes) -> bytes | None:
        """The canonical path of a name whose *directory* is reached through a link; the name itself is not followed."""
        parent, _, name = path.rpartition(b"/")
        directory = tree.resolve(parent)
        if directory is None or directory == parent:
            return None
        canonical = directory + b"/" + name if directory else name
        entry = tree.entries.get(canonical)
        return canonical if entry is not None and entry.type != "dir" else None

    def _by_owner(self, only_a: set[bytes], only_b: set[bytes]) -> Iterator[Pair]:
        """Pair the rest by (owner, relative path), never one name twice."""
        waiting: dict[tuple[int, bytes], list[bytes]] = defaultdict(list)
        for path in sorted(only_b, reverse=True):
            for key in self._keys(self._claims_b, self._owners.of_b, path):
                waiting[key].append(path)
        for path in sorted(only_a):
            for key in self._keys(self._claims_a, self._owners.of_a, path):
                candidates = waiting.get(key, [])
                while candidates and candidates[-1] not in only_b:
                    candidates.pop()
                if candidates:
                    found = candidates.pop()
                    only_a.discard(path)
                    only_b.discard(found)
                    yield path, found
                    break

    @staticmethod
    def _keys(attribution: Attribution, pair_of: Mapping[int, int], path: bytes) -> Iterator[tuple[int, bytes]]:
        for claim in attribution.claims.get(path, ()):
            if attribution.owners[claim.owner].kind in PAIRED_BY_RELATIVE_PATH:
                yield pair_of[claim.owner], claim.relative


# --------------------------------------------------------------------------------------------------------------------
# Counting
# --------------------------------------------------------------------------------------------------------------------


def _tally(
    owners: _OwnerPairs,
    attribution_a: Attribution,
    attribution_b: Attribution,
    changes: Iterable[Change],
    unchanged: Iterable[Pair],
    roots_a: Mapping[int, str],
    roots_b: Mapping[int, str],
) -> tuple[OwnerTally, ...]:
    claims_a, claims_b = attribution_a.claims, attribution_b.claims
    size = len(owners.pairs)
    files_a, files_b, identical = [0] * size, [0] * size, [0] * size
    for claims, pair_of, counts in ((claims_a, owners.of_a, files_a), (claims_b, owners.of_b, files_b)):
        for path_claims in claims.values():
            if len(path_claims) == 1:
                counts[pair_of[path_claims[0].owner]] += 1
                continue
            for owner in {claim.owner for claim in path_claims}:
                counts[pair_of[owner]] += 1

    def pairs_of(path_a: bytes | None, path_b: bytes | None) -> set[int]:
        found = {owners.of_a[claim.owner] for claim in claims_a.get(path_a, ())} if path_a is not None else set()
        if path_b is not None:
            found.update(owners.of_b[claim.owner] for claim in claims_b.get(path_b, ()))
        return found

    of_a, of_b = owners.of_a, owners.of_b
    nobody: tuple[Claim, ...] = ()
    for path_a, path_b in unchanged:
        if path_a is not None and path_b is not None:
            in_a, in_b = claims_a.get(path_a, nobody), claims_b.get(path_b, nobody)
            if len(in_a) == 1 == len(in_b):  # nearly all
                pair = of_a[in_a[0].owner]
                identical[pair] += 1
                if (other := of_b[in_b[0].owner]) != pair:
                    identical[other] += 1
                continue
        for pair in pairs_of(path_a, path_b):
            identical[pair] += 1
    by_status: dict[Status, list[int]] = {
        status: [0] * size for status in ("modified", "added", "removed", "retyped", "moved", "attributes")
    }
    for change in changes:
        for pair in pairs_of(change.path_a, change.path_b):
            by_status[change.status][pair] += 1
    return tuple(
        OwnerTally(
            a=None if index_a is None else attribution_a.owners[index_a],
            b=None if index_b is None else attribution_b.owners[index_b],
            files_a=files_a[pair],
            files_b=files_b[pair],
            identical=identical[pair],
            **{status: counts[pair] for status, counts in by_status.items()},
            root_a="" if index_a is None else roots_a.get(index_a, ""),
            root_b="" if index_b is None else roots_b.get(index_b, ""),
        )
        for pair, (index_a, index_b) in enumerate(owners.pairs)
    )
