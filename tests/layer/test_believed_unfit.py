"""What a table of contents lacks, or says otherwise than a tar could, is no guess: the layer is read whole."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from typing import Any

import pytest
from backports import zstd

from imgdiff.layer import Trust
from tests.layer.believing import FORMATS, MEMBERS, Source, believe, refused, store
from tests.layer.make import sha256
from tests.support.tocs import CHUNKED, Built, Format, build


def entry_of(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def change(which: str, /, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    def edit(entries: list[dict[str, Any]]) -> None:
        entry = entry_of(entries, which)
        for key, value in values.items():
            if value is None:
                entry.pop(key, None)
            else:
                entry[key] = value

    return edit


def move(name: str, onto: str) -> Callable[[list[dict[str, Any]]], None]:
    def edit(entries: list[dict[str, Any]]) -> None:
        entry_of(entries, name)["offset"] = entry_of(entries, onto)["offset"]

    return edit


PY = "usr/lib/one.py"
UNFIT: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "no digest": (change(PY, digest=None), "no SHA-256"),
    "another digest": (change(PY, digest="sha512:" + "0" * 128), "no SHA-256"),
    "digest of nothing": (change(PY, digest=sha256(b"")), "do not go together"),
    "size without content": (change("usr/lib/empty", size=4), "S|do not go together"),
    "content without size": (change(PY, size=None), "do not go together"),
    "negative size": (change(PY, size=-1), "no tar holds"),
    "negative owner": (change(PY, uid=-1), "no tar holds"),
    "huge mode": (change(PY, mode=1 << 70), "no JSON|no tar holds"),
    "no offset": (change(PY, offset=None), "outside|overlap"),
    "offset behind the end": (change(PY, offset=1 << 40), "outside|overlap"),
    "negative offset": (change(PY, offset=-5), "outside|overlap"),
    "overlap": (move(PY, "usr/lib/weights"), "overlap"),
    "negative inner offset": (change(PY, innerOffset=-1), "outside|overlap"),
    "type": (change(PY, type="socket"), "type that is not known"),
    "sparse": (change(PY, type="sparse"), "type that is not known"),
    "no type": (change(PY, type=None), "type that is not known"),
    "field": (change(PY, hidden=1), "no JSON of the kind"),
    "name": (change(PY, name="a\0b"), "name that can't be told"),
    "mangled name": (change(PY, name="a\ufffdb"), "name that can't be told"),
    "half a surrogate": (change(PY, name="a\ud800"), "no JSON of the kind|no UTF-8"),
    "mangled link": (change("usr/lib/link", linkName="\ufffd"), "name that can't be told"),
    "link without target": (change("usr/lib/link", linkName=None), "link without a target"),
    "target without link": (change(PY, linkName="x"), "link without a target"),
    "link with content": (change("usr/lib/link", digest=sha256(b"x")), "something that has none"),
    "directory with size": (change("usr/", size=5), "something that has none"),
    "xattr": (change("usr/lib/cap", xattrs={"a": "no base64!"}), "no base64"),
    "mangled xattr": (change("usr/lib/cap", xattrs={"\ufffd": ""}), "name that can't be told"),
    "xattrs of a shape": (change("usr/lib/cap", xattrs=[1]), "no JSON of the kind"),
    "time": (change(PY, modtime="yesterday"), "time that is none"),
    "month": (change(PY, modtime="2023-13-01T00:00:00Z"), "time that is none"),
    "number as text": (change(PY, size="10"), "no JSON of the kind"),
    "first a chunk": (
        lambda entries: entries.insert(0, {"type": "chunk", "name": "x", "chunkOffset": 1}),
        "to no file",
    ),
    "chunk of another": (change("usr/lib/weights", type="chunk", chunkOffset=5), "to no file"),
    "end before the beginning": (change(PY, endOffset=1), "overlap"),
    "hard link to a name that is there twice": (
        lambda entries: entries.append({**entry_of(entries, "usr/lib/empty"), "name": PY}),
        "hard link to a name|lists a name twice",
    ),
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("case", UNFIT)
def test_what_a_table_lacks_is_no_guess(kind: Format, case: str) -> None:
    edit, words = UNFIT[case]
    assert re.search(words, refused(build(MEMBERS, kind, edit=edit)))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("key", "value"), [("chunkOffset", 5_000_000), ("chunkOffset", 0), ("offset", 3), ("offset", None), ("name", "b")]
)
def test_chunks_that_are_out_of_order(kind: Format, key: str, value: object) -> None:
    def edit(entries: list[dict[str, Any]]) -> None:
        chunk = [entry for entry in entries if entry["type"] == "chunk"][1]
        chunk[key] = value
        if value is None:
            del chunk[key]

    assert re.search("out of order|no file|overlap", refused(build(MEMBERS, kind, chunk=100_000, edit=edit)))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"version":2,"entries":[]}', b'{"version":1,"entries":[1]}', b"\xff"]
)
def test_tables_that_are_none(data: bytes) -> None:
    built = build(MEMBERS, "zstd:chunked")
    packed = zstd.compress(data)
    annotations = {
        f"{CHUNKED}manifest-checksum": sha256(packed),
        f"{CHUNKED}manifest-position": f"{len(built.blob) + 8}:{len(packed)}:{len(data)}:1",
    }
    frame = b"\x50\x2a\x4d\x18" + len(packed).to_bytes(4, "little") + packed
    assert refused(Built(built.blob + frame, built.plain, annotations, built.media_type))


def test_a_footer_that_is_none() -> None:
    built = build(MEMBERS, "eStargz")
    blob = built.blob[:-51] + gzip.compress(b"", mtime=0)
    assert "does not end with the footer" in refused(Built(blob, built.plain, built.annotations, built.media_type))
    short = Built(gzip.compress(b"", mtime=0), b"", built.annotations, built.media_type)
    source, trust = Source(short), Trust()
    with store() as opened:
        believe(source, opened, trust)
    assert "too short" in next(iter(trust.refused.values()))
