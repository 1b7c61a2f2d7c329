"""Names: cleaned as umoci cleans them, and what they say of lower layers."""

from __future__ import annotations

import posixpath
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgdiff.layer._names import clean
from tests.layer.make import END, header, index, info, pax, tar

CASES = [
    (b"a", b"a", False),
    (b"./a", b"a", False),
    (b"/a", b"a", False),
    (b"a/", b"a", False),
    (b"a//b", b"a/b", False),
    (b"././a/./b/.", b"a/b", False),
    (b".", b"", False),
    (b"./", b"", False),
    (b"/", b"", False),
    (b"", b"", False),
    (b".hidden", b".hidden", False),
    (b"a/.hidden", b"a/.hidden", False),
    (b"..a/b..", b"..a/b..", False),
    (b"a/../b", b"b", False),
    (b"../etc/passwd", b"etc/passwd", True),
    (b"/../../etc", b"etc", True),
    (b"a/../../b", b"b", True),
    (b"..", b"", True),
    (b"a/..", b"", False),
    (b"a\nb\x1b[31m", b"a\nb\x1b[31m", False),
    (b"\xff\xfe/\x80", b"\xff\xfe/\x80", False),
]


@pytest.mark.parametrize(("name", "path", "escaped"), CASES)
def test_names_are_cleaned(name: bytes, path: bytes, escaped: bool) -> None:
    assert clean(name) == (path, escaped)


@given(st.lists(st.sampled_from([b"", b".", b"..", b"a", b".b", b"...", b"c d"]), max_size=9).map(b"/".join))
def test_cleaning_is_lexical_inside_the_root(name: bytes) -> None:
    path, escaped = clean(name)
    assert b"/" + path == posixpath.normpath(b"/" + name.lstrip(b"/"))
    assert escaped == (posixpath.normpath(b"r/" + name.lstrip(b"/")).split(b"/")[0] != b"r")
    assert clean(path) == (path, False)


def test_a_name_that_leads_out_is_kept_inside_and_a_blindspot() -> None:
    data = tar([(info("../../etc/passwd"), b"x"), (info("h", tarfile.LNKTYPE, "../etc/passwd"), b"")])
    found = index(data)
    assert [entry.path for entry in found.entries] == [b"etc/passwd", b"h"]
    assert found.entries[1].link_target == b"etc/passwd"
    assert [spot.path for spot in found.blindspots] == [b"etc/passwd", b"h"]


def test_symlink_texts_are_left_alone() -> None:
    data = header(b"l", b"2", link=b"../..//x/./") + END
    assert index(data).entries[0].link_target == b"../..//x/./"


def test_the_root_is_an_entry_if_it_is_a_directory() -> None:
    found = index(tar([(info("./", tarfile.DIRTYPE, mode=0o700), b""), (info("./a"), b"1")]))
    assert [(entry.path, entry.type, entry.mode) for entry in found.entries] == [
        (b"", "dir", 0o700),
        (b"a", "file", 0o644),
    ]


@pytest.mark.parametrize("kind", [b"0", b"1", b"2", b"3", b"6"])
def test_a_root_of_another_type_is_a_blindspot(kind: bytes) -> None:
    found = index(header(b".", kind, link=b"x") + header(b"a") + END)
    assert [entry.path for entry in found.entries] == [b"a"]
    assert "root directory" in found.blindspots[0].reason


def test_whiteouts() -> None:
    names = [
        "a/.wh.gone",
        "./.wh.top",
        "d/.wh..wh..opq",
        ".wh..wh..opq",
        "e/.wh..wh..opqX",
        ".wh..wh.plnk",
        "x.wh.y",
        "dir.wh.z/file",
        ".wh.d/inside",
        "a/.wh.gone",
    ]
    found = index(tar([(info(name), b"") for name in names]))
    assert found.whiteouts == (b"a/gone", b"top", b"e/.wh..opqX", b".wh.plnk")
    assert found.opaques == (b"d", b"")
    assert [entry.path for entry in found.entries] == [b"x.wh.y", b"dir.wh.z/file", b".wh.d/inside"]
    assert found.blindspots == ()


def test_whiteouts_of_any_type_and_with_content() -> None:
    items = [(info(".wh.a"), b"content"), (info(".wh.b", tarfile.DIRTYPE), b""), (info("c"), b"x")]
    found = index(tar(items))
    assert found.whiteouts == (b"a", b"b")
    assert [entry.path for entry in found.entries] == [b"c"]


@pytest.mark.parametrize("name", ["a/.wh.", "a/.wh..", "a/.wh...", ".wh."])
def test_whiteouts_without_a_name_are_blindspots(name: str) -> None:
    found = index(tar([(info(name), b"")]))
    assert (found.whiteouts, found.opaques, found.entries) == ((), (), ())
    assert found.blindspots[0].what == "whiteout"


def test_ten_thousand_nested_directories() -> None:
    deep = b"/".join([b"d"] * 10_000)
    assert index(pax((b"path", deep)) + header(b"x") + END).entries[0].path == deep
