"""Laws of flattening, over generated layers; the same layers go to umoci, which must agree or refuse."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.model import FileEntry, LayerIndex, Tree
from imgdiff.tree import flatten, flatten_both
from tests.support.images import Member, tar_bytes
from tests.support.indexes import index_of
from tests.tree.unpacked import needs_umoci, seen_in_tree, seen_on_disk, unpack

NAMES = ("a", "b", "l")
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
CONTENTS = st.sampled_from((b"1", b"2", b"3"))
MODES = st.sampled_from((0o755, 0o700, 0o711))
FILES = st.builds(Member, PATHS, CONTENTS, mode=MODES)
FOLDERS = st.builds(Member, PATHS, type=st.just("dir"), mode=MODES)
SYMLINKS = st.builds(
    Member, PATHS, type=st.just("symlink"), target=st.sampled_from(("a", "/b", "../l", "a/b", "l", "b/"))
)
HARDLINKS = st.builds(Member, PATHS, type=st.just("hardlink"), target=PATHS)


def hiding(path: str, opaque: bool) -> Member:
    parent, slash, name = path.rpartition("/")
    return Member(f"{path}/.wh..wh..opq" if opaque else f"{parent}{slash}.wh.{name}")


@st.composite
def hiding_layer(draw: st.DrawFn) -> list[Member]:
    """A layer with whiteouts as builders write it: each behind its layer's own parents and before its neighbours."""
    unique = {str(member.path): member for member in draw(st.lists(st.one_of(FILES, FOLDERS), max_size=4))}
    members = [unique[path] for path in sorted(unique)]
    # A whiteout before all opaque markers: an index does not keep the order between them.
    hidden = sorted(draw(st.lists(st.tuples(st.booleans(), PATHS), min_size=1, max_size=3)), reverse=True)
    for opaque, path in hidden:
        prefixes = ancestors(path) | ({path} if opaque else set())
        place = max((at + 1 for at, member in enumerate(members) if member.path in prefixes), default=0)
        members.insert(place, hiding(path, opaque))
    return members


def ancestors(path: str) -> set[str]:
    parts = path.split("/")
    return {"/".join(parts[:count]) for count in range(1, len(parts))}


LAYER = st.one_of(st.lists(st.one_of(FILES, FOLDERS, SYMLINKS, HARDLINKS), max_size=7), hiding_layer())
LAYERS = st.lists(LAYER, min_size=1, max_size=4)


def indexed(layers: list[list[Member]]) -> list[LayerIndex]:
    return [index_of(tar_bytes(layer)) for layer in layers]


def squash(tree: Tree) -> LayerIndex:
    """Return one layer that holds a whole tree."""
    entries: list[FileEntry] = []
    links: list[FileEntry] = []
    for path, entry in tree.entries.items():
        first = tree.hardlinks.get(path, path)
        if first == path:
            entries.append(entry)
        else:
            links.append(msgspec.structs.replace(entry, type="hardlink", digest=None, size=0, link_target=first))
    return LayerIndex("sha256:squashed", (*entries, *links))


def same(one: Tree, other: Tree) -> None:
    assert one.entries == other.entries
    assert dict(one.hardlinks) == dict(other.hardlinks)


@needs_umoci
@settings(max_examples=100, deadline=None)
@given(LAYERS)
def test_umoci_agrees_or_refuses(layers: list[list[Member]]) -> None:
    tree = flatten(indexed(layers))
    with tempfile.TemporaryDirectory() as directory:
        root = unpack(Path(directory), layers)
        if root is None:
            assert tree.blindspots
        else:
            assert not tree.blindspots
            assert seen_in_tree(tree) == seen_on_disk(root)


@settings(max_examples=150, deadline=None)
@given(LAYERS, st.data())
def test_a_squashed_bottom_gives_the_same_tree(layers: list[list[Member]], data: st.DataObject) -> None:
    indexes = indexed(layers)
    cut = data.draw(st.integers(0, len(indexes)))
    whole = flatten(indexes)
    same(whole, flatten([squash(flatten(indexes[:cut])), *indexes[cut:]]))
    same(whole, flatten([squash(whole)]))


@settings(max_examples=100, deadline=None)
@given(LAYERS, LAYERS, LAYERS)
def test_two_images_that_begin_alike_are_merged_as_each_alone(
    shared: list[list[Member]], rest_a: list[list[Member]], rest_b: list[list[Member]]
) -> None:
    begin = indexed(shared)
    for more_a, more_b in ((rest_a, rest_b), (rest_a, []), ([], [])):
        a, b = [*begin, *indexed(more_a)], [*begin, *indexed(more_b)]
        for alone, together in zip((flatten(a), flatten(b)), flatten_both(a, b), strict=True):
            same(alone, together)
            assert list(alone.entries) == list(together.entries)
            assert alone.layers == together.layers
            assert alone.origins == together.origins
            assert alone.stamps == together.stamps
            assert alone.blindspots == together.blindspots


@settings(max_examples=100, deadline=None)
@given(LAYERS)
def test_a_layer_twice_is_that_layer_and_an_empty_one_is_none(layers: list[list[Member]]) -> None:
    whole = flatten(indexed(layers))
    layer = squash(whole)
    same(whole, flatten([layer, layer]))
    same(whole, flatten([LayerIndex("sha256:empty", ()), layer, LayerIndex("sha256:empty", ())]))
    everything = LayerIndex("sha256:hides", (), opaques=(b"",))
    same(flatten([]), flatten([layer, everything]))


@settings(max_examples=100, deadline=None)
@given(LAYERS, st.randoms(use_true_random=False))
def test_the_order_of_distinct_members_is_of_no_matter(layers: list[list[Member]], random: Random) -> None:
    layer = squash(flatten(indexed(layers)))
    entries = [entry for entry in layer.entries if entry.type != "hardlink"]
    shuffled = list(entries)
    random.shuffle(shuffled)
    same(
        flatten([LayerIndex("sha256:1", tuple(entries))]),
        flatten([LayerIndex("sha256:2", tuple(shuffled))]),
    )


@settings(max_examples=150, deadline=None)
@given(LAYERS)
def test_a_tree_is_sound(layers: list[list[Member]]) -> None:
    indexes = indexed(layers)
    tree = flatten(indexes)
    for path, entry in tree.entries.items():
        assert entry.path == path
        assert entry.type != "hardlink"
        parent = path.rpartition(b"/")[0]
        assert not parent or tree.entries[parent].type == "dir"
        number, member = tree.origin(path)
        if entry.type == "file":
            digests = {item.digest for item in indexes[number].entries if item.path == member}
            assert entry.digest in digests
    for name, first in tree.hardlinks.items():
        assert msgspec.structs.replace(tree.entries[name], path=b"") == msgspec.structs.replace(
            tree.entries[first], path=b""
        )
        assert first <= name
        assert tree.hardlinks[first] == first
