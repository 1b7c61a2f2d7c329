"""Flattening, one rule at a time, by hand; each case is also unpacked by umoci and held against it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from imgdiff.model import Tree
from imgdiff.tree import flatten
from tests.support.images import Member, tar_bytes
from tests.support.indexes import index_of
from tests.tree.unpacked import ROOT, needs_umoci, seen_in_tree, seen_on_disk, unpack

Layers = Sequence[Sequence[Member]]


def file(path: str, content: str = "") -> Member:
    return Member(path, content.encode())


def folder(path: str, mode: int = 0o755) -> Member:
    return Member(path, type="dir", mode=mode)


def symlink(path: str, target: str) -> Member:
    return Member(path, type="symlink", target=target)


def hardlink(path: str, target: str) -> Member:
    return Member(path, type="hardlink", target=target)


def gone(path: str) -> Member:
    parent, slash, name = path.rpartition("/")
    return Member(f"{parent}{slash}.wh.{name}")


def opaque(path: str) -> Member:
    return Member(f"{path}/.wh..wh..opq" if path else ".wh..wh..opq")


def flat(layers: Layers) -> Tree:
    return flatten([index_of(tar_bytes(layer)) for layer in layers])


def brief(tree: Tree) -> dict[str, str]:
    """Say in a word what stands at each name: a file's content as far as the cases use it, a link's target."""
    words = {hashlib.sha256(word.encode()).digest(): word for word in ("", "1", "2", "3", "4", "5")}
    said = {}
    for path, entry in tree.entries.items():
        if entry.type == "file":
            assert entry.digest is not None
            said[path.decode()] = words[entry.digest]
        elif entry.type == "symlink":
            said[path.decode()] = f"-> {(entry.link_target or b'').decode()}"
        else:
            said[path.decode()] = entry.type
    return said


CASES: dict[str, tuple[Layers, dict[str, str]]] = {
    "a whiteout hides a file of a lower layer": (
        [[folder("d"), file("d/x", "1"), file("d/y", "2")], [folder("d"), gone("d/x")]],
        {"d": "dir", "d/y": "2"},
    ),
    "a whiteout hides a directory with all that is below": (
        [[folder("d"), folder("d/e"), file("d/e/x", "1"), file("dx", "2")], [gone("d")]],
        {"dx": "2"},
    ),
    "a whiteout of nothing is no change": ([[file("x", "1")], [gone("y"), gone("z/y"), gone("x/y")]], {"x": "1"}),
    "a whiteout in the base layer hides nothing and is no file": (
        [[gone("x"), opaque("d"), folder("d"), file("d/x", "1")]],
        {"d": "dir", "d/x": "1"},
    ),
    "a whiteout before its own layer's file leaves it": ([[file("x", "1")], [gone("x"), file("x", "2")]], {"x": "2"}),
    "a whiteout behind its own layer's file leaves it": ([[file("x", "1")], [file("x", "2"), gone("x")]], {"x": "2"}),
    "a directory that is deleted and made again in one layer holds only what is new": (
        [[folder("d"), file("d/x", "1"), file("d/y", "1")], [gone("d"), folder("d"), file("d/y", "2")]],
        {"d": "dir", "d/y": "2"},
    ),
    "the same with the whiteout at the end": (
        [[folder("d"), file("d/x", "1"), file("d/y", "1")], [folder("d"), file("d/y", "2"), gone("d")]],
        {"d": "dir", "d/y": "2"},
    ),
    "an opaque directory hides what lower layers put in": (
        [[folder("d"), file("d/x", "1"), folder("d/e"), file("d/e/y", "1")], [folder("d"), opaque("d")]],
        {"d": "dir"},
    ),
    "an opaque directory shows its own layer's files, before the marker and behind": (
        [
            [folder("d"), file("d/x", "1"), file("d/y", "1"), file("d/z", "1")],
            [folder("d"), file("d/x", "2"), opaque("d"), file("d/y", "3")],
        ],
        {"d": "dir", "d/x": "2", "d/y": "3"},
    ),
    "an opaque root hides everything": ([[folder("d"), file("d/x", "1")], [opaque(""), file("y", "2")]], {"y": "2"}),
    "an opaque marker in a lower layer hides nothing of a higher one": (
        [
            [folder("d"), file("d/x", "1")],
            [folder("d"), opaque("d"), file("d/y", "2")],
            [folder("d"), file("d/x", "3")],
        ],
        {"d": "dir", "d/x": "3", "d/y": "2"},
    ),
    "a file with a name like an opaque marker's is a whiteout of a name like a marker's": (
        [[folder("d"), file("d/x", "1")], [folder("d"), Member("d/.wh..wh..opqX")]],
        {"d": "dir", "d/x": "1"},
    ),
    "a file in a directory's place removes all that was below": (
        [[folder("d"), folder("d/e"), file("d/e/x", "1")], [file("d", "2")]],
        {"d": "2"},
    ),
    "a directory in a file's place": ([[file("d", "1")], [folder("d"), file("d/x", "2")]], {"d": "dir", "d/x": "2"}),
    "a file, a directory and a file again": (
        [[file("d", "1")], [folder("d"), file("d/x", "2")], [file("d", "3")], [folder("d")]],
        {"d": "dir"},
    ),
    "a directory over a directory keeps what is in it and takes the new mode": (
        [[folder("d", 0o700), file("d/x", "1")], [folder("d", 0o755)]],
        {"d": "dir", "d/x": "1"},
    ),
    "a directory over a link to a directory takes the link's place": (
        [[folder("real"), file("real/x", "1"), symlink("d", "real")], [folder("d"), file("d/y", "2")]],
        {"real": "dir", "real/x": "1", "d": "dir", "d/y": "2"},
    ),
    "a link in a directory's place removes all that was below": (
        [[folder("d"), file("d/x", "1"), folder("real")], [symlink("d", "real")]],
        {"d": "-> real", "real": "dir"},
    ),
    "a file over a link replaces the link and not its target": (
        [[file("real", "1"), symlink("x", "real")], [file("x", "2")]],
        {"real": "1", "x": "2"},
    ),
    "hard links share content, and overwriting one name leaves the others": (
        [[file("t2", "1"), hardlink("t1", "t2"), hardlink("t3", "t2")], [file("t1", "2")]],
        {"t1": "2", "t2": "1", "t3": "1"},
    ),
    "overwriting the name that was there first leaves the others": (
        [[file("t2", "1"), hardlink("t1", "t2"), hardlink("t3", "t2")], [file("t2", "2")]],
        {"t1": "1", "t2": "2", "t3": "1"},
    ),
    "removing the name that was there first leaves the others": (
        [[file("t2", "1"), hardlink("t1", "t2"), hardlink("t3", "t1")], [gone("t2")]],
        {"t1": "1", "t3": "1"},
    ),
    "a hard link to a file of a lower layer": ([[file("x", "1")], [hardlink("y", "x")]], {"x": "1", "y": "1"}),
    "a chain of hard links over three layers": (
        [[file("x", "1")], [hardlink("y", "x")], [hardlink("z", "y"), file("x", "2")]],
        {"x": "2", "y": "1", "z": "1"},
    ),
    "a hard link between two members of one name keeps the first": (
        [[file("x", "1"), hardlink("y", "x"), file("x", "2")]],
        {"x": "2", "y": "1"},
    ),
    "a hard link in the place of a file, a link and a directory": (
        [
            [file("t", "1"), file("f", "2"), symlink("l", "f"), folder("d"), file("d/x", "2")],
            [hardlink("f", "t"), hardlink("l", "t"), hardlink("d", "t")],
        ],
        {"t": "1", "f": "1", "l": "1", "d": "1"},
    ),
    "a hard link to a symlink is one more name of the link": (
        [[file("x", "1"), symlink("l", "x"), hardlink("m", "l")]],
        {"x": "1", "l": "-> x", "m": "-> x"},
    ),
    "a hard link that names its target with a slash": (
        [[folder("d"), file("d/x", "1"), hardlink("y", "/d/x"), hardlink("z", "./d/../d/x")]],
        {"d": "dir", "d/x": "1", "y": "1", "z": "1"},
    ),
    "a hard link whose target's parent is a link": (
        [[folder("d"), file("d/x", "1"), symlink("l", "d")], [hardlink("y", "l/x")]],
        {"d": "dir", "d/x": "1", "l": "-> d", "y": "1"},
    ),
    "a hard link to a file that its layer hides afterwards": (
        [[file("x", "1")], [hardlink("y", "x"), gone("x")]],
        {"y": "1"},
    ),
    "two hard links to a file that their layer hides, and one from before": (
        [[file("x", "1"), hardlink("w", "x")], [hardlink("y", "x"), hardlink("z", "x"), gone("x")]],
        {"w": "1", "y": "1", "z": "1"},
    ),
    "a member below a link of a lower layer lands in the link's target": (
        [[folder("usr"), folder("usr/lib"), file("usr/lib/x", "1"), symlink("lib", "usr/lib")], [file("lib/x", "2")]],
        {"usr": "dir", "usr/lib": "dir", "usr/lib/x": "2", "lib": "-> usr/lib"},
    ),
    "an absolute link starts at the image's root": (
        [[folder("usr"), symlink("lib", "/usr")], [file("lib/x", "2")]],
        {"usr": "dir", "usr/x": "2", "lib": "-> /usr"},
    ),
    "a link that climbs out of the root stays inside": (
        [[folder("a"), symlink("a/l", "../../../../b"), folder("b")], [file("a/l/x", "1")]],
        {"a": "dir", "a/l": "-> ../../../../b", "b": "dir", "b/x": "1"},
    ),
    "a link to a link to a directory, with more directories below": (
        [
            [folder("v1"), folder("v1/lib"), symlink("v", "v1"), symlink("lib", "v/lib")],
            [folder("lib/sub"), file("lib/sub/x", "1"), file("v/lib/y", "2")],
        ],
        {
            "v1": "dir",
            "v1/lib": "dir",
            "v1/lib/sub": "dir",
            "v1/lib/sub/x": "1",
            "v1/lib/y": "2",
            "v": "-> v1",
            "lib": "-> v/lib",
        },
    ),
    "a link that is turned within one layer leads its later members elsewhere": (
        [
            [folder("one"), folder("two"), symlink("l", "one")],
            [file("l/x", "1"), symlink("l", "two"), file("l/y", "2"), folder("l"), file("l/z", "3")],
        ],
        {"one": "dir", "one/x": "1", "two": "dir", "two/y": "2", "l": "dir", "l/z": "3"},
    ),
    "a member below a dangling link makes the link's target": (
        [[symlink("l", "no/where")], [file("l/x", "1")]],
        {"l": "-> no/where", "no": "dir", "no/where": "dir", "no/where/x": "1"},
    ),
    "a whiteout below a link hides in the link's target": (
        [
            [folder("usr"), file("usr/x", "1"), file("usr/y", "1"), symlink("lib", "usr")],
            [gone("lib/x")],
        ],
        {"usr": "dir", "usr/y": "1", "lib": "-> usr"},
    ),
    "an opaque marker below a link hides what is in the link's target": (
        [[folder("usr"), file("usr/x", "1"), symlink("lib", "usr")], [opaque("lib"), file("lib/y", "2")]],
        {"usr": "dir", "usr/y": "2", "lib": "-> usr"},
    ),
    "a whiteout of a link leaves its target": (
        [[folder("usr"), file("usr/x", "1"), symlink("lib", "usr")], [gone("lib")]],
        {"usr": "dir", "usr/x": "1"},
    ),
    "a directory in a link's place with a whiteout in it leaves the link's target alone": (
        [[folder("usr"), file("usr/x", "1"), symlink("lib", "usr")], [folder("lib"), gone("lib/x"), opaque("lib")]],
        {"usr": "dir", "usr/x": "1", "lib": "dir"},
    ),
    "missing parents are made": ([[file("a/b/c", "1")]], {"a": "dir", "a/b": "dir", "a/b/c": "1"}),
    "a parent that comes after what is in it keeps it": (
        [[file("a/x", "1"), folder("a", 0o700)]],
        {"a": "dir", "a/x": "1"},
    ),
    "of two members of one name the last wins": (
        [[file("x", "1"), file("x", "2"), folder("d"), file("d", "3"), file("e", "4"), folder("e")]],
        {"x": "2", "d": "3", "e": "dir"},
    ),
    "names with ./ and trailing slashes": (
        [[folder("./"), folder("./d/"), file("./d/x", "1")], [gone("./d/x"), file("d//y", "2")]],
        {"d": "dir", "d/y": "2"},
    ),
    "the root directory is no entry": ([[folder("."), file("x", "1")], [folder("/", 0o700)]], {"x": "1"}),
    "a whiteout does not hide a name that only starts like it": (
        [[folder("d"), file("d/x", "1"), folder("d-e"), file("d-e/y", "2"), file("d.f", "3")], [gone("d")]],
        {"d-e": "dir", "d-e/y": "2", "d.f": "3"},
    ),
    "the same layer twice": (
        [[folder("d"), file("d/x", "1")], [folder("d"), file("d/x", "1")]],
        {"d": "dir", "d/x": "1"},
    ),
    "a fifo comes, goes and comes back": (
        [[Member("p", type="fifo")], [file("p", "1")], [Member("p", type="fifo")]],
        {"p": "fifo"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case(name: str) -> None:
    layers, expected = CASES[name]
    tree = flat(layers)
    assert brief(tree) == expected
    assert tree.blindspots == ()
    assert list(tree.entries) == sorted(tree.entries)
    assert set(tree.layers) == set(tree.entries)


@needs_umoci
@pytest.mark.parametrize("name", CASES)
def test_umoci_unpacks_the_same(name: str, tmp_path: Path) -> None:
    layers, _ = CASES[name]
    root = unpack(tmp_path, layers)
    assert root is not None
    assert seen_in_tree(flat(layers)) == seen_on_disk(root)


@needs_umoci
@pytest.mark.skipif(not ROOT, reason="only root can make device nodes")
def test_device_nodes_as_umoci_makes_them(tmp_path: Path) -> None:
    layers = [
        [folder("dev"), Member("dev/null", type="char", device=(1, 3), mode=0o666), file("x", "1")],
        [Member("dev/sda", type="block", device=(8, 0)), Member("x", type="char", device=(1, 5)), gone("dev/null")],
    ]
    tree = flat(layers)
    assert brief(tree) == {"dev": "dir", "dev/sda": "block", "x": "char"}
    root = unpack(tmp_path, layers)
    if root is None:
        pytest.skip("this machine lets not even root make device nodes")
    assert seen_in_tree(tree) == seen_on_disk(root)
