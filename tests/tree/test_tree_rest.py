"""What no unpacker applies, what is carried along, and where content lies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from imgdiff.model import Blindspot, FileEntry, LayerIndex, PycStamp, Tree
from imgdiff.tree import flatten
from tests.support.images import Member, tar_bytes
from tests.support.indexes import index_of
from tests.tree.unpacked import needs_umoci, unpack

Layers = Sequence[Sequence[Member]]

REFUSED: dict[str, tuple[Layers, bytes, str]] = {
    "a hard link to nothing": (
        [[Member("x", type="hardlink", target="nothing")]],
        b"x",
        "a hard link to a path that the image does not hold",
    ),
    "a hard link before its target": (
        [[Member("x", type="hardlink", target="y"), Member("y", b"1")]],
        b"x",
        "a hard link to a path that the image does not hold",
    ),
    "a hard link to itself": (
        [[Member("x", b"1"), Member("x", type="hardlink", target="x")]],
        b"x",
        "a hard link to a path that the image does not hold",
    ),
    "a hard link to a directory": (
        [[Member("d", type="dir"), Member("x", type="hardlink", target="d")]],
        b"x",
        "a hard link to a directory",
    ),
    "a hard link to the root": ([[Member("x", type="hardlink", target="/")]], b"x", "a hard link to a path"),
    "a hard link to a file that a lower layer's whiteout took": (
        [[Member("y", b"1")], [Member(".wh.y")], [Member("x", type="hardlink", target="y")]],
        b"x",
        "a hard link to a path that the image does not hold",
    ),
    "a hard link to a directory that its own layer hides": (
        [[Member("d", type="dir")], [Member(".wh.d"), Member("x", type="hardlink", target="d")]],
        b"x",
        "a hard link to a path that the image does not hold",
    ),
    "a member below a loop of links": (
        [
            [Member("l", type="symlink", target="m"), Member("m", type="symlink", target="l")],
            [Member("l/x", b"1")],
        ],
        b"l/x",
        "a loop of symbolic links (content sha256:6b86b273",
    ),
    "a whiteout below a loop of links": (
        [[Member("l", type="symlink", target="l"), Member("x", b"1")], [Member("l/.wh.x")]],
        b"l/x",
        "a loop of symbolic links",
    ),
    "an opaque marker below a loop of links": (
        [[Member("l", type="symlink", target="l"), Member("x", b"1")], [Member("l/.wh..wh..opq")]],
        b"l",
        "a loop of symbolic links",
    ),
    "a member below a file": (
        [[Member("f", b"1")], [Member("f/x/y", b"2")]],
        b"f/x/y",
        "below a path that is no directory (content sha256:d4735e3a",
    ),
    "a file in the root's place": ([[Member("./", b"1")]], b"", "the root directory"),
}


def flat(layers: Layers) -> Tree:
    return flatten([index_of(tar_bytes(layer)) for layer in layers])


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_unpacker_applies_is_a_blindspot(name: str) -> None:
    layers, path, reason = REFUSED[name]
    (spot,) = flat(layers).blindspots
    assert spot.path == path
    assert reason in spot.reason


@needs_umoci
@pytest.mark.parametrize("name", REFUSED)
def test_umoci_refuses_it(name: str, tmp_path: Path) -> None:
    assert unpack(tmp_path, REFUSED[name][0]) is None


def test_a_refused_hard_link_leaves_nothing_at_its_name() -> None:
    tree = flat([[Member("x", b"1")], [Member("x", type="hardlink", target="nothing")]])
    assert b"x" not in tree


def test_a_long_chain_of_links_is_followed_and_a_longer_one_is_not() -> None:
    def chain(length: int) -> Layers:
        links = [Member(f"l{number}", type="symlink", target=f"l{number + 1}") for number in range(length)]
        return [[*links, Member(f"l{length}", type="dir"), Member("l0/x", b"1")]]

    assert b"l255/x" in flat(chain(255))
    assert flat(chain(256)).blindspots


def test_a_hard_link_before_the_whiteout_of_its_target_and_behind_it_come_to_the_same() -> None:
    base = [Member("x", b"1")]
    link, whiteout = Member("y", type="hardlink", target="x"), Member(".wh.x")
    before, behind = flat([base, [link, whiteout]]), flat([base, [whiteout, link]])
    assert before.entries == behind.entries
    assert set(before.entries) == {b"y"}
    assert before.origin(b"y") == (0, b"x")


def test_layers_say_who_put_a_name_there_and_origins_where_its_content_lies() -> None:
    tree = flat(
        [
            [Member("usr/lib/x", b"1"), Member("lib", type="symlink", target="usr/lib"), Member("y", b"2")],
            [Member("lib/x", b"3"), Member("z", type="hardlink", target="y"), Member("usr/new/w", b"4")],
            [Member("v", type="hardlink", target="z"), Member("u", type="hardlink", target="lib/x")],
        ]
    )
    assert tree.layers[b"usr/lib/x"] == 1
    assert tree.origin(b"usr/lib/x") == (1, b"lib/x")
    assert tree.layers[b"z"] == 1
    assert tree.origin(b"z") == tree.origin(b"v") == tree.origin(b"y") == (0, b"y")
    assert tree.origin(b"u") == (1, b"lib/x")
    assert tree.layers[b"usr/new"] == 1
    assert dict(tree.hardlinks) == {
        b"u": b"u",
        b"usr/lib/x": b"u",
        b"v": b"v",
        b"y": b"v",
        b"z": b"v",
    }


def test_a_name_that_is_written_again_forgets_its_links() -> None:
    tree = flat(
        [
            [Member("x", b"1"), Member("y", type="hardlink", target="x")],
            [Member("y", b"1")],
        ]
    )
    assert dict(tree.hardlinks) == {}
    assert tree.origin(b"y") == (1, b"y")


def test_attributes_of_the_last_writer_hold() -> None:
    tree = flat(
        [
            [Member("d", type="dir", mode=0o700, uid=5, xattrs={"user.a": b"1"}), Member("d/x", b"1")],
            [Member("d", type="dir", mode=0o1777, gid=7, mtime=12.5, xattrs={"user.b": b"2"})],
        ]
    )
    assert tree.entries[b"d"] == FileEntry(b"d", "dir", 0o1777, 0, 7, 12_500_000_000, 0, xattrs=((b"user.b", b"2"),))
    assert b"d/x" in tree


def test_missing_parents_belong_to_root_and_are_open() -> None:
    entry = flat([[Member("a/x", b"1", mode=0o600, uid=5)]]).entries[b"a"]
    assert (entry.type, entry.mode, entry.uid, entry.gid) == ("dir", 0o755, 0, 0)


def test_stamps_and_blindspots_of_all_layers_are_carried_once() -> None:
    spots = [Blindspot("member", f"reason {number}", b"x") for number in range(2)]
    stamps = [PycStamp(bytes([number]) * 16, bytes([number]) * 32) for number in range(2)]
    one = LayerIndex("sha256:1", (), stamps={b"1": stamps[0]}, blindspots=(spots[0],))
    two = LayerIndex("sha256:2", (), stamps={b"2": stamps[1]}, blindspots=(spots[1],))
    tree = flatten([one, two, one])
    assert dict(tree.stamps) == {b"1": stamps[0], b"2": stamps[1]}
    assert tree.blindspots == (spots[0], spots[1])


def test_no_layers_are_an_empty_tree() -> None:
    tree = flatten([])
    assert len(tree) == 0
    assert b"" in tree


def nested(count: int) -> LayerIndex:
    leaf = FileEntry(b"d/" * count + b"x", "file", 0o644, 0, 0, 0, 0, b"0" * 32)
    return LayerIndex("sha256:1", (leaf,))


def test_deep_directories_are_made_as_far_as_a_path_can_go() -> None:
    assert len(flatten([nested(2_000)])) == 2_001
    assert len(flatten([nested(2_000), LayerIndex("sha256:2", (), (b"d/d",))])) == 1
    tree = flatten([nested(10_000)])
    assert len(tree) == 0
    assert "more than 4,096 bytes" in tree.blindspots[0].reason


def test_ten_thousand_directories_that_a_layer_lists_are_there() -> None:
    folders = [FileEntry(b"d/" * count + b"d", "dir", 0o755, 0, 0, 0, 0) for count in range(10_000)]
    tree = flatten([LayerIndex("sha256:1", tuple(folders))])
    assert len(tree) == 10_000
    assert tree.blindspots == ()
