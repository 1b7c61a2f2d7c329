"""Whole files of a layer, read again."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
from pathlib import Path

import pytest

from imgdiff.errors import BlobError
from imgdiff.layer import read_contents
from imgdiff.model import Layer
from tests.layer.make import gz, info, layer, tar, zst

BIG = random.Random(5).randbytes(3_000_000)
PLAIN = tar(
    [
        (info("a"), b"first"),
        (info("./dir/b"), BIG),
        (info("link", tarfile.SYMTYPE, "a"), b""),
        (info("a"), b"second"),
        (info("z"), b"end"),
    ]
)


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@pytest.mark.parametrize("blob", [PLAIN, gz(PLAIN), zst(PLAIN)], ids=["plain", "gzip", "zstd"])
def test_the_last_regular_member_of_each_path(blob: bytes) -> None:
    found = {path: file.read() for path, file in read_contents(layer(PLAIN, blob), [b"a", b"dir/b", b"link", b"none"])}
    assert found == {b"a": b"second", b"dir/b": BIG}


def test_files_are_seekable_and_closed_in_turn() -> None:
    handles = []
    for _, file in read_contents(layer(PLAIN), [b"a", b"z"]):
        file.seek(1)
        file.read()
        handles.append(file)
    assert all(file.closed for file in handles)


def test_a_digest_chooses_between_members_of_one_name() -> None:
    for content in (b"first", b"second"):
        found = [(path, file.read()) for path, file in read_contents(layer(PLAIN), {b"a": digest(content)})]
        assert found == [(b"a", content)]


def test_with_digests_no_more_is_read_than_needed() -> None:
    good = layer(PLAIN)
    cut = Layer(good.descriptor, good.diff_id, lambda: io.BytesIO(PLAIN[:4096]))
    assert [file.read() for _, file in read_contents(cut, {b"a": digest(b"first")})] == [b"first"]


def test_a_content_that_is_not_there_any_more_is_an_error() -> None:
    with pytest.raises(BlobError, match="no file 'a' with the content"):
        list(read_contents(layer(PLAIN), {b"a": digest(b"third")}))


def test_without_digests_nothing_unverified_is_given_out() -> None:
    good = layer(PLAIN)
    altered = Layer(good.descriptor, good.diff_id, lambda: io.BytesIO(PLAIN.replace(b"second", b"sEcond")))
    with pytest.raises(BlobError, match="does not match its digest"):
        next(read_contents(altered, [b"a"]))


def test_giving_up_in_the_middle_is_fine() -> None:
    reading = read_contents(layer(PLAIN), {b"a": digest(b"first"), b"z": digest(b"end")})
    next(reading)
    reading.close()  # type: ignore[attr-defined]  # it is a generator


def test_nothing_wanted_opens_nothing() -> None:
    def refuse() -> io.BytesIO:
        raise AssertionError

    assert list(read_contents(Layer(None, None, refuse), [])) == []


def test_directories(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "l").symlink_to("a")
    here = Layer(None, None, lambda: io.BytesIO(), tmp_path)
    assert [(path, file.read()) for path, file in read_contents(here, [b"a", b"l", b"none"])] == [(b"a", b"content")]
    assert [file.read() for _, file in read_contents(here, {b"a": digest(b"content")})] == [b"content"]
    with pytest.raises(BlobError, match="changed since"):
        list(read_contents(here, {b"a": digest(b"other")}))
    with pytest.raises(BlobError, match="can't be read any more"):
        list(read_contents(here, {b"none": digest(b"other")}))
