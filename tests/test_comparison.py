"""Comparing trees: laws, pairing by owner, links in the way, attributes that bear."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgdiff.attributes import attributes_bear
from imgdiff.comparison import compare
from imgdiff.model import Attribution, Change, Claim, Comparison, FileEntry, FileType, Owner, Status, Tree

DIGESTS = {text: hashlib.sha256(text.encode()).digest() for text in ("one", "two", "three")}
MIRROR: dict[Status, Status] = {
    "added": "removed",
    "removed": "added",
    "modified": "modified",
    "retyped": "retyped",
    "moved": "moved",
    "attributes": "attributes",
}


def entry(path: str, content: str | None = "one", **fields: Any) -> FileEntry:
    kind: FileType = fields.pop("type", "file")
    known: dict[str, Any] = {"mode": 0o644 if kind == "file" else 0o755, "uid": 0, "gid": 0, "mtime": 0}
    size = len(content or "") if kind == "file" else 0
    digest = DIGESTS[content] if kind == "file" and content else None
    return FileEntry(path.encode(), kind, size=size, digest=digest, **{**known, **fields})


def link(path: str, target: str) -> FileEntry:
    return entry(path, type="symlink", link_target=target.encode())


def directory(path: str, **fields: Any) -> FileEntry:
    return entry(path, type="dir", **fields)


def tree(*entries: FileEntry) -> Tree:
    found: dict[bytes, FileEntry] = {}
    for item in entries:
        parent = item.path.rpartition(b"/")[0]
        while parent and parent not in found:
            found[parent] = directory(parent.decode())
            parent = parent.rpartition(b"/")[0]
        found[item.path] = item
    return Tree(found)


def nobody(of: Tree) -> Attribution:
    owner = Owner("unowned", "unowned:/", None, b"")
    claims: dict[bytes, tuple[Claim, ...]] = {
        path: (Claim(0, "top", path),) for path, item in of.entries.items() if item.type != "dir"
    }
    return Attribution((owner,), claims, (), ())


def owned(of: Tree, root: str, name: str = "torch", version: str = "1") -> Attribution:
    owner = Owner("wheel", name, version, root.encode())
    prefix = root.encode() + b"/"
    claims: dict[bytes, tuple[Claim, ...]] = {
        path: (Claim(0, "record", path.removeprefix(prefix)),)
        for path, item in of.entries.items()
        if item.type != "dir"
    }
    return Attribution((owner,), claims, (), ())


def run(a: Tree, b: Tree) -> Comparison:
    return compare(a, nobody(a), b, nobody(b))


def statuses(comparison: Comparison) -> dict[bytes, Status]:
    return {change.path: change.status for change in comparison.changes}


NAMES = st.sampled_from(["x", "y", "lib/x", "lib/y", "usr/lib/x", "usr/lib/z"])
ENTRIES = st.builds(
    lambda path, content, mode, mtime: entry(path, content, mode=mode, mtime=mtime),
    NAMES,
    st.sampled_from(sorted(DIGESTS)),
    st.sampled_from([0o644, 0o755, 0o600]),
    st.integers(0, 3),
)
LINKS = st.builds(link, st.sampled_from(["lib", "y", "usr/lib/z"]), st.sampled_from(["usr/lib", "x", "nowhere", "lib"]))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    found = tree(*draw(st.lists(ENTRIES, max_size=6)))
    for item in draw(st.lists(LINKS, max_size=2)):
        if item.path not in found.entries and (b"/" not in item.path or item.path.rpartition(b"/")[0] in found.entries):
            found = Tree({**found.entries, item.path: item})
    return found


@given(trees())
def test_a_tree_against_itself_differs_in_nothing(of: Tree) -> None:
    comparison = run(of, Tree(dict(of.entries)))
    assert comparison.changes == ()
    assert comparison.mtime_only == 0


@given(trees(), trees())
def test_swapping_the_images_mirrors_every_change(a: Tree, b: Tree) -> None:
    def key(change: Change) -> tuple[bytes, bytes, Status]:
        return change.path_a or b"", change.path_b or b"", change.status

    there = sorted((y, x, MIRROR[status]) for x, y, status in map(key, run(a, b).changes))
    assert sorted(map(key, run(b, a).changes)) == there


@given(trees(), trees())
def test_every_entry_is_in_one_counter_and_no_file_is_forgotten(a: Tree, b: Tree) -> None:
    comparison = run(a, b)
    (tally,) = comparison.tallies
    counted = (tally.modified, tally.added, tally.removed, tally.retyped, tally.moved, tally.attributes)
    assert sum(counted) == sum(
        any(side is not None and side.type != "dir" for side in (change.a, change.b)) for change in comparison.changes
    )
    both = {path for path in a.entries.keys() & b.entries.keys() if a.entries[path] != b.entries[path]}
    unseen = both - {change.path_a for change in comparison.changes} - {change.path_b for change in comparison.changes}
    assert all(a.entries[path].type == "dir" or a.entries[path].digest == b.entries[path].digest for path in unseen)


def test_an_unread_file_is_never_equal() -> None:
    a, b = tree(entry("x", None)), tree(entry("x", None))
    comparison = run(a, b)
    assert statuses(comparison) == {b"x": "modified"}
    assert {spot.image for spot in comparison.blindspots} == {"a", "b"}


def test_same_size_and_mtime_hide_nothing() -> None:
    assert statuses(run(tree(entry("x", "one")), tree(entry("x", "two")))) == {b"x": "modified"}


def test_a_directory_that_became_a_link_to_its_content_is_one_entry() -> None:
    a = tree(entry("lib/x", "one"), entry("lib/y", "two"))
    b = tree(entry("usr/lib/x", "one"), entry("usr/lib/y", "two"), link("lib", "usr/lib"))
    assert statuses(run(a, b)) == {b"lib": "retyped"}
    assert statuses(run(b, a)) == {b"lib": "retyped"}


def test_other_bytes_behind_a_new_directory_link_pair_as_modified() -> None:
    a = tree(entry("lib/x", "one"))
    b = tree(entry("usr/lib/x", "two"), link("lib", "usr/lib"))
    changes = {(change.path_a, change.path_b): change.status for change in run(a, b).changes}
    assert changes == {(b"lib", b"lib"): "retyped", (b"lib/x", b"usr/lib/x"): "modified"}


def test_a_moved_environment_reads_as_moved() -> None:
    a = tree(entry("usr/lib/torch/a.py", "one"), entry("usr/lib/torch/b.py", "two"))
    b = tree(entry("opt/venv/torch/a.py", "one"), entry("opt/venv/torch/b.py", "three"))
    comparison = compare(a, owned(a, "usr/lib"), b, owned(b, "opt/venv", version="2"))
    found = {(change.path_a, change.path_b): change.status for change in comparison.changes}
    assert found == {
        (b"usr/lib/torch/a.py", b"opt/venv/torch/a.py"): "moved",
        (b"usr/lib/torch/b.py", b"opt/venv/torch/b.py"): "modified",
    }
    (tally,) = comparison.tallies
    assert (tally.moved, tally.modified, tally.added, tally.removed) == (1, 1, 0, 0)


def test_files_without_an_owner_never_pair() -> None:
    a, b = tree(entry("old/x", "one")), tree(entry("new/x", "one"))
    assert statuses(run(a, b)) == {b"new/x": "added", b"old/x": "removed"}


def test_only_empty_directories_come_and_go() -> None:
    a, b = tree(entry("x")), tree(entry("x"), directory("empty"), entry("full/y"))
    assert statuses(run(a, b)) == {b"empty": "added", b"full/y": "added"}


def test_mtimes_are_counted_and_not_listed() -> None:
    comparison = run(tree(entry("x")), tree(entry("x", mtime=5)))
    assert (comparison.changes, comparison.mtime_only) == ((), 1)


def test_attributes_of_a_file_are_listed_and_those_of_directories_where_they_bear() -> None:
    a = tree(directory("d"), directory("e"), entry("x"), entry("y"))
    b = tree(directory("d", mode=0o700), directory("e", uid=5), entry("x", mode=0o664), entry("y", uid=3))
    assert statuses(run(a, b)) == {b"d": "attributes", b"x": "attributes", b"y": "attributes"}


def test_what_bears_in_attributes() -> None:
    plain = entry("x")
    assert not attributes_bear(plain, entry("x", mode=0o664))  # a write bit more
    assert attributes_bear(plain, entry("x", mode=0o600))  # no longer everybody's to read
    assert attributes_bear(plain, entry("x", mode=0o755))
    assert attributes_bear(plain, entry("x", mode=0o4644))
    assert not attributes_bear(plain, entry("x", uid=1000))  # everybody may read it still
    assert attributes_bear(entry("x", mode=0o600), entry("x", mode=0o600, uid=1000))
    assert attributes_bear(plain, entry("x", xattrs=((b"security.capability", b"\x01"),)))
    assert not attributes_bear(plain, entry("x", xattrs=((b"user.note", b"\x01"),)))


@pytest.mark.parametrize(
    ("a", "b", "felt"),
    [
        (entry("db", uid=1000), entry("db"), True),  # a COPY without --chown
        (entry("db", mode=0o664, gid=44), entry("db", mode=0o664), True),
        (entry("db", mode=0o664, gid=44), entry("db", mode=0o644, gid=44), True),
        (entry("db"), entry("db", mode=0o646), True),
        (entry("db", mode=0o646, uid=7), entry("db", mode=0o646), False),
        (entry("db", mode=0o666), entry("db", mode=0o646), False),
        (directory("cache", uid=1000), directory("cache"), True),
        (directory("cache", mode=0o777, uid=1000), directory("cache", mode=0o777), False),
    ],
)
def test_who_is_not_root_feels_what_it_may_write(a: FileEntry, b: FileEntry, felt: bool) -> None:
    for first, second in ((a, b), (b, a)):
        assert not attributes_bear(first, second)
        assert attributes_bear(first, second, as_root=False) is felt
        trees = (tree(first), tree(second))
        found = compare(trees[0], nobody(trees[0]), trees[1], nobody(trees[1]), as_root=False).changes
        assert bool(found) is (felt or a.type == "file")


def test_another_owner_of_what_runs_as_its_owner_bears() -> None:
    assert attributes_bear(entry("bin/su", mode=0o4755), entry("bin/su", mode=0o4755, uid=7))


def test_a_node_of_another_device_differs() -> None:
    a, b = (tree(entry("dev/x", type="char", device=(1, minor))) for minor in (3, 5))
    assert statuses(run(a, b)) == {b"dev/x": "modified"}


def test_a_bit_that_was_lost_on_a_move_is_no_mere_move() -> None:
    a = tree(entry("old/bin/tool", mode=0o755))
    b = tree(entry("new/bin/tool", mode=0o644))
    comparison = compare(a, owned(a, "old"), b, owned(b, "new"))
    assert statuses(comparison) == {b"new/bin/tool": "attributes"}
    kept = tree(entry("new/bin/tool", mode=0o755))
    assert statuses(compare(a, owned(a, "old"), kept, owned(kept, "new"))) == {b"new/bin/tool": "moved"}


@pytest.mark.parametrize("swap", [False, True])
def test_a_bit_that_was_lost_behind_a_new_directory_link_is_listed(swap: bool) -> None:
    a = tree(entry("lib/x", mode=0o755), entry("usr/lib/y"))
    b = tree(entry("usr/lib/x", mode=0o644), entry("usr/lib/y"), link("lib", "usr/lib"))
    comparison = run(b, a) if swap else run(a, b)
    assert {change.status for change in comparison.changes} == {"retyped", "attributes"}


def test_an_equal_file_counts_as_identical_for_whoever_has_it_on_either_side() -> None:
    one, same = entry("opt/x.so"), entry("opt/x.so", mtime=5)
    for b in (same, one):  # another layer's file, or the very entry of a shared layer
        left, right = tree(one), tree(b)
        found = compare(left, owned(left, "opt", "torch"), right, owned(right, "opt", "copied"))
        counts = [(row.files_a, row.files_b, row.identical) for row in found.tallies]
        assert sorted(counts) == [(0, 1, 1), (1, 0, 1)]
        assert found.changes == ()
        assert found.mtime_only == (b is same)
