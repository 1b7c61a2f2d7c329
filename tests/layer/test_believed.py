"""Layers whose table of contents is believed: the same index as of a layer that is read whole, and no tampering."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.compression import decompressed
from imgdiff.errors import BlobError
from imgdiff.kinds import elf
from imgdiff.layer import Trust, index_layers, read_contents
from imgdiff.layer._content import RULES
from imgdiff.layer._toc_entries import EMPTY
from imgdiff.model import Unreadable
from tests.layer.believing import (
    BIG,
    FORMATS,
    LIBRARY,
    MEMBERS,
    PYC,
    RANDOM,
    TEXT,
    Source,
    altered,
    believe,
    elf_facts,
    kept,
    plain,
    refused,
    store,
)
from tests.layer.make import sha256
from tests.support.images import Member
from tests.support.tocs import CHUNKED, ESTARGZ, Built, Edit, Format, build


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("chunk", [1 << 22, 50_000])
@pytest.mark.parametrize("together", [0, 4000])
def test_the_index_is_that_of_the_layer_read_whole(kind: Format, chunk: int, together: int) -> None:
    source = Source(build(MEMBERS, kind, chunk=chunk, together=together))
    with store() as opened, store() as other:
        index = believe(source, opened)
        (read,) = index_layers([source.layer()], other)
        assert plain(index) == plain(read)
        assert index.whiteouts == (b"etc/gone",)
        assert index.opaques == (b"opt",)
        assert kept(index, opened) == kept(read, other)
        assert elf_facts(index, opened) == elf_facts(read, other)
    assert index.believed is not None
    assert index.believed.digest == next(iter(source.built.annotations.values()))
    assert index.believed.blob == sha256(source.built.blob)
    assert source.moved < len(source.built.blob)
    files = [entry for entry in index.entries if entry.type == "file"]
    assert index.believed.hashed + index.believed.unhashed == len(files)
    assert index.believed.unhashed == 3  # the weights, of which just the beginning came, an empty file and a copy
    assert source.moved > len(source.built.blob) - len(BIG)


@pytest.mark.parametrize("kind", FORMATS)
def test_neighbours_come_in_one_request(kind: Format) -> None:
    members = [Member(f"pkg/m{number}.py", b"x = %d\n" % number) for number in range(300)]
    members.insert(150, Member("pkg/model.bin", RANDOM.randbytes(900_000)))
    source = Source(build(members, kind))
    with store() as opened:
        believe(source, opened)
    table = 2 if kind == "eStargz" else 1  # the footer and the table; the annotation has its place
    assert len(source.asked) == table + 1 + 2  # the head of the large file, and what lies on either side of it


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("chunk", [1 << 22, 50_000])
@pytest.mark.parametrize("together", [0, 4000])
def test_contents_are_read_again_by_their_places(kind: Format, chunk: int, together: int) -> None:
    source = Source(build(MEMBERS, kind, chunk=chunk, together=together))
    wanted = {m.path.encode(): m.content for m in MEMBERS if isinstance(m.path, str) and m.type == "file"}
    wanted = {path: content for path, content in wanted.items() if b".wh." not in path and b".." not in path}
    digests = {path: hashlib.sha256(content).digest() for path, content in wanted.items()}
    with store() as opened:
        index = believe(source, opened)
        found = {path: file.read() for path, file in read_contents(source.layer(), digests, index.believed)}
        assert found == wanted
        assert source.whole == 0
        other = Source(build([Member("first", b"x"), *MEMBERS], kind))  # another blob: its places are others
        again = {path: file.read() for path, file in read_contents(other.layer(), digests, index.believed)}
        assert (again == wanted, other.asked) == (True, [])
        source.refuse = True
        assert {path: file.read() for path, file in read_contents(source.layer(), digests, index.believed)} == wanted
        assert source.whole == 1


@pytest.mark.parametrize("kind", FORMATS)
def test_without_being_asked_a_layer_is_read_whole(kind: Format) -> None:
    source = Source(build(MEMBERS, kind))
    with store() as opened:
        (index,) = index_layers([source.layer()], opened)
    assert (index.believed, source.asked, source.whole) == (None, [], 1)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_was_believed_is_never_taken_for_what_was_read(kind: Format) -> None:
    source = Source(build(MEMBERS, kind))
    with store() as opened:
        first = believe(source, opened)
        moved = source.moved
        assert believe(source, opened) == first  # of the cache
        assert (source.moved, source.whole) == (moved, 0)
        assert opened.load_index(first.diff_id, RULES) is None
        (read,) = index_layers([source.layer()], opened)
        assert (read.believed, source.whole) == (None, 1)
        (again,) = index_layers([source.layer()], opened)
        assert (again, source.whole) == (read, 1)
        assert believe(source, opened) == read  # what was read is better than what is believed
        assert (source.moved, source.whole) == (moved, 1)
        names = sorted(path.name.partition("-")[0] for path in opened.layers.iterdir())
        assert names == ["believed", "believed", "sha256", "sha256"]
        for path in opened.layers.iterdir():  # a file under another's name is none
            if path.name.startswith("believed"):
                path.replace(opened.path(first.diff_id, path.suffix[1:]))
        assert opened.load_index(first.diff_id, RULES) is None


@pytest.mark.parametrize("kind", FORMATS)
def test_a_liar_is_found_out_without_the_option(kind: Format) -> None:
    """The table says that a file is another one: with the option that is believed, without it the tar is read."""

    def lie(entries: list[dict[str, Any]]) -> None:
        entry = next(entry for entry in entries if entry["name"] == "usr/lib/weights")
        entry["digest"] = sha256(b"other")

    source = Source(build(MEMBERS, kind, edit=lie))
    with store() as opened:
        believed = believe(source, opened)
        (read,) = index_layers([source.layer()], opened)
    digests = [next(e.digest for e in index.entries if e.path == b"usr/lib/weights") for index in (believed, read)]
    assert digests == [hashlib.sha256(b"other").digest(), hashlib.sha256(BIG).digest()]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ["usr/lib/ä.py", "usr/lib/long.py", "usr/bin/tool", "usr/share/odd"])
def test_another_content_behind_a_right_table_is_an_error(kind: Format, name: str) -> None:
    other = [altered(member, name) for member in MEMBERS]
    table = build(MEMBERS, kind).entries

    def as_honest(entries: list[dict[str, Any]]) -> None:
        digests = {entry["name"]: entry.get("digest") for entry in table if entry["type"] == "reg"}
        for entry in entries:
            if entry["type"] == "reg" and "digest" in entry:
                entry["digest"] = digests[entry["name"]]

    source = Source(build(other, kind, edit=as_honest))
    with store() as opened, pytest.raises(BlobError, match="is not what its table of contents says: the content of"):
        believe(source, opened)
    assert source.whole == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_damage_in_a_content_is_an_error(kind: Format) -> None:
    built = build(MEMBERS, kind)
    entry = next(entry for entry in built.entries if entry["name"] == "usr/lib/long.py")
    for at in (entry["offset"], entry["offset"] + 200):
        blob = built.blob[:at] + bytes([built.blob[at] ^ 0xFF]) + built.blob[at + 1 :]
        source = Source(dataclasses.replace(built, blob=blob))
        with store() as opened, pytest.raises(BlobError, match="is not what its table of contents says"):
            believe(source, opened)


@pytest.mark.parametrize("kind", FORMATS)
def test_another_table_than_the_manifest_vouches_for_is_an_error(kind: Format) -> None:
    built = build(MEMBERS, kind)
    key = ESTARGZ if kind == "eStargz" else f"{CHUNKED}manifest-checksum"
    source = Source(built)
    with (
        store() as opened,
        pytest.raises(BlobError, match=r"table of contents of the layer blob .* was changed"),
    ):
        believe(source, opened, annotations={**built.annotations, key: sha256(b"another")})
    assert source.whole == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_refused_ranges(kind: Format) -> None:
    source, trust = Source(build(MEMBERS, kind), refuse=True), Trust()
    with store() as opened:
        index = believe(source, opened, trust)
        assert opened.load_index(index.diff_id, RULES) == index
    assert (index.believed, source.whole) == (None, 1)
    assert list(trust.refused.values()) == ["its registry gives blobs whole only"]


@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_vouches(kind: Format) -> None:
    source, trust = Source(build(MEMBERS, kind)), Trust()
    for said in ({}, {ESTARGZ: "sha256:abc"}, {f"{CHUNKED}manifest-checksum": sha256(b"")}):
        with store() as opened:
            assert believe(source, opened, trust, annotations=said).believed is None
    assert (source.asked, source.whole, trust.refused) == ([], 3, {})


def test_the_older_names_of_the_annotations() -> None:
    source = Source(build(MEMBERS, "zstd:chunked"))
    older = {key.replace(".github", ""): value for key, value in source.built.annotations.items()}
    with store() as opened:
        assert believe(source, opened, annotations=older).believed is not None


@pytest.mark.parametrize(
    "position", ["", "1:2:3", "a:b:c:d", "8:10:10:2", "8:0:10:1", "9999999999:10:10:1", "8:200000000:10:1", "0:9:9:1"]
)
def test_a_place_of_the_table_that_is_none(position: str) -> None:
    built = build(MEMBERS, "zstd:chunked")
    source, trust = Source(built), Trust()
    annotations = {**built.annotations, f"{CHUNKED}manifest-position": position}
    with store() as opened:
        assert believe(source, opened, trust, annotations=annotations).believed is None
    assert source.whole == 1
    assert len(trust.refused) == 1


def test_duplicate_names() -> None:
    """In eStargz the last wins, as in a tar; zstd:chunked says of the order that it is not to be relied on."""
    members = [
        Member("a", b"first"),
        Member("b", b"b"),
        Member("a", b"second"),
        Member("d", type="dir"),
        Member("d/", type="dir"),
    ]
    source = Source(build(members, "eStargz"))
    with store() as opened, store() as other:
        index = believe(source, opened)
        assert index.believed is not None
        (read,) = index_layers([source.layer()], other)
        assert plain(index) == plain(read)
        digests = {path: hashlib.sha256(b"first").digest() for path in (b"a",)}
        assert [file.read() for _, file in read_contents(source.layer(), digests, index.believed)] == [b"first"]
    assert "lists a name twice" in refused(build(members, "zstd:chunked"))

    def shuffle(entries: list[dict[str, Any]]) -> None:
        entries.reverse()

    assert "lists a name twice" in refused(build(members, "eStargz", edit=shuffle))


def test_times() -> None:
    def edit(entries: list[dict[str, Any]]) -> None:
        for entry, text in zip(
            entries,
            [
                "2023-11-14T22:13:20.5Z",
                "2023-11-14T23:13:20+01:00",
                "2023-11-14T20:43:20-01:30",
                "0001-01-01T00:00:00Z",
            ],
            strict=True,
        ):
            entry["modtime"] = text

    source = Source(build([Member(name, b"x") for name in "abcd"], "zstd:chunked", edit=edit))
    with store() as opened:
        times = [entry.mtime for entry in believe(source, opened).entries]
    assert times == [1_700_000_000_500_000_000, 1_700_000_000_000_000_000, 1_700_000_000_000_000_000, 0]


@pytest.mark.parametrize("kind", FORMATS)
def test_what_another_layer_has_is_not_fetched(kind: Format) -> None:
    """The next build: one module changed. All else is known of the first one, which was read whole."""
    changed = [altered(member, "usr/lib/one.py") for member in MEMBERS]
    first, second = Source(build(MEMBERS, kind)), Source(build(changed, kind))
    with store() as opened:
        (read,) = index_layers([first.layer()], opened)
        index, same = index_layers([second.layer(), first.layer()], opened, trust=Trust())
        assert same == read
        assert index.believed is not None
        assert index.believed.hashed == 2 - (kind == "zstd:chunked")  # the module, and the table itself
        texts = kept(index, opened)
        assert elf_facts(index, opened) == elf_facts(read, opened)
    assert (first.asked, second.whole) == ([], 0)
    assert second.moved < 5000
    with store() as other:
        (whole,) = index_layers([second.layer()], other)
        assert plain(index) == plain(whole)
        assert texts == kept(whole, other)


@pytest.mark.parametrize("kind", FORMATS)
def test_two_layers_of_one_run_share_what_they_fetch(kind: Format) -> None:
    changed = [altered(member, "usr/lib/one.py") for member in MEMBERS]
    first, second = Source(build(MEMBERS, kind)), Source(build(changed, kind))
    with store() as opened:
        index_layers([first.layer(), second.layer(), first.layer()], opened, trust=Trust())
    assert second.moved < 5000 < first.moved
    assert (first.whole, second.whole) == (0, 0)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_layer_on_disk_is_read_there(kind: Format) -> None:
    """Where one image has the layer on disk, it is read whole there, and nothing is believed."""
    source, disk = Source(build(MEMBERS, kind)), Source(build(MEMBERS, kind))
    local = disk.layer(remote=False, parts=None, annotations={})
    for layers in ([source.layer(), local], [local, source.layer()]):
        with store() as opened:
            indexes = index_layers(layers, opened, trust=Trust())
        assert [index.believed for index in indexes] == [None, None]
    assert (source.asked, source.whole, disk.whole) == ([], 0, 2)


class _Twice:
    """A scanner that always wants a second read."""

    def __init__(self, head: bytes, size: int) -> None:
        del head, size

    def feed(self, view: memoryview) -> None:
        del view

    def finish(self) -> object:
        return Unreadable(elf.SECOND_READ)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_read_a_second_time_is_read_by_its_place(kind: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(build(MEMBERS, kind))
    with store() as opened, store() as other:
        expected = elf_facts(index_layers([source.layer()], other)[0], other)
        monkeypatch.setattr(elf, "Scanner", _Twice)
        monkeypatch.setattr("imgdiff.layer._content._HELD", 100)
        assert elf_facts(believe(source, opened), opened) == expected != {}
    assert source.whole == 1


RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> Built:
    """A layer made by a real tool (recorded/README.md says how)."""
    said = json.loads((RECORDED / f"{name}.json").read_text())
    blob = (RECORDED / f"{name}.blob").read_bytes()
    stream = decompressed(io.BytesIO(blob))
    tar = b"".join(iter(lambda: stream.read(1 << 20), b""))
    assert sha256(blob) == said["digest"]
    return Built(blob, tar, said["annotations"], said["mediaType"])


@pytest.mark.parametrize("name", ["ctr-remote-estargz", "ctr-remote-zstdchunked", "skopeo-zstdchunked"])
def test_layers_of_real_tools(name: str) -> None:
    source = Source(recorded(name))
    with store() as opened, store() as other:
        index = believe(source, opened)
        (read,) = index_layers([source.layer()], other)
        assert index.believed is not None
        assert (plain(index), source.whole) == (plain(read), 1)
        assert kept(index, opened) == kept(read, other)
        assert elf_facts(index, opened) == elf_facts(read, other)
        digests = {entry.path: entry.digest for entry in index.entries if entry.digest is not None}
        found = {
            path: hashlib.sha256(file.read()).digest()
            for path, file in read_contents(source.layer(), digests, index.believed)
        }
        assert found == digests


@pytest.mark.parametrize("kind", FORMATS)
def test_files_of_a_layer_that_was_read_whole_are_read_again_by_its_table(kind: Format) -> None:
    """Their digests are known, so nothing is believed: a table that is wrong is of no use, and no error."""
    source = Source(build(MEMBERS, kind))
    wanted = {b"usr/share/odd": hashlib.sha256(content(b"usr/share/odd")).digest(), b"usr/lib/empty": EMPTY}
    expected = {path: content(path) for path in wanted}

    def read(source: Source, **changed: Any) -> dict[bytes, bytes]:
        layer = source.layer(**changed)
        return {path: file.read() for path, file in read_contents(layer, wanted, None, Trust())}

    assert (read(source), source.whole) == (expected, 0)
    assert source.moved < len(source.built.blob) // 2
    edits: list[tuple[Edit, int]] = [
        (lambda entries: entries.pop(), 0),  # it lacks something that nobody wants
        (lambda entries: entries.append({"type": "none"}), 1),
        (lie_of_place, 1),
    ]
    for edit, whole in edits:
        other = Source(build(MEMBERS, kind, edit=edit))
        assert (read(other), other.whole) == (expected, whole)
    assert (read(source, annotations={}), source.whole) == (expected, 1)
    source.refuse = True
    assert (read(source), source.whole) == (expected, 2)
    assert [file.read() for _, file in read_contents(source.layer(), wanted)] == list(expected.values())


def content(path: bytes) -> bytes:
    return next(member.content for member in MEMBERS if member.path == path.decode())


def lie_of_place(entries: list[dict[str, Any]]) -> None:
    """Say of two files that each lies where the other does."""
    one, other = (next(e for e in entries if e["name"] == name) for name in ("usr/share/odd", "usr/bin/tool"))
    one["digest"], other["digest"] = other["digest"], one["digest"]
    one["size"], other["size"] = other["size"], one["size"]


NAMES = st.sampled_from(
    ["a.py", "b/c.pyc", "d", "bin/e", "l.so", "data.json", "x/.wh.y", "g/.wh..wh..opq", "./h", "/i"]
)
CONTENTS = st.sampled_from([b"", b"x", b"#!/bin/sh\n", LIBRARY, BIG[:200_000], TEXT[:90_000], PYC])
ANY = st.builds(Member, NAMES, CONTENTS, mode=st.integers(0, 0o7777), mtime=st.integers(0, 1 << 31))


@settings(max_examples=40)
@given(st.lists(ANY, max_size=8, unique_by=lambda member: member.path), st.sampled_from(FORMATS), st.data())
def test_law_the_index_is_that_of_the_layer_read_whole(
    members: list[Member], kind: Format, data: st.DataObject
) -> None:
    chunk = data.draw(st.sampled_from([1 << 22, 50_000, 7_000]))
    source = Source(build(members, kind, chunk=chunk, together=data.draw(st.sampled_from([0, 100_000]))))
    with store() as opened, store() as other:
        index = believe(source, opened)
        (read,) = index_layers([source.layer()], other)
        assert index.believed is not None
        assert (plain(index), kept(index, opened)) == (plain(read), kept(read, other))
        assert elf_facts(index, opened) == elf_facts(read, other)
