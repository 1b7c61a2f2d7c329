"""Compression told by magic, and every byte of blob and archive held against what the manifest and config say."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import tracemalloc
from typing import BinaryIO, cast

import pytest
from backports import zstd

from imgdiff.errors import BlobError, ImgdiffError
from imgdiff.layer import index_layers
from imgdiff.layer._content import RULES
from imgdiff.model import Descriptor, Layer
from imgdiff.store import Store
from tests.layer.make import END, files, gz, header, index, layer, padded, sha256, zst

PLAIN = files(a=b"alpha", b=os.urandom(3_000_000), c=b"gamma")
SKIPPABLE = b"\x5a\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"


def _gzip_members() -> bytes:
    return gz(PLAIN[:1000]) + gz(b"") + gz(PLAIN[1000:])


BLOBS = {
    "plain": PLAIN,
    "gzip": gz(PLAIN),
    "gzip members": _gzip_members(),
    "gzip, zero padding": gz(PLAIN) + bytes(700),
    "zstd": zst(PLAIN),
    "zstd frames": zst(PLAIN[:1000]) + zst(b"") + zst(PLAIN[1000:]),
    "zstd with skippable frames": SKIPPABLE + zst(PLAIN[:7]) + SKIPPABLE + zst(PLAIN[7:]) + SKIPPABLE,
}


@pytest.mark.parametrize("name", BLOBS)
def test_magic_decides_and_the_index_is_the_same(name: str) -> None:
    expected = index(PLAIN)
    assert [entry.path for entry in expected.entries] == [b"a", b"b", b"c"]
    lying = layer(PLAIN, BLOBS[name], media_type="application/vnd.oci.image.layer.v1.tar+gzip")
    with Store.temporary() as store:
        assert index_layers([lying], store) == [expected]


@pytest.mark.parametrize("name", BLOBS)
def test_a_truncated_blob_is_an_error(name: str) -> None:
    whole = layer(PLAIN, BLOBS[name])
    for length in (0, 1, 3, 100, 1000, len(BLOBS[name]) // 2, len(BLOBS[name]) - 1):
        short = Layer(whole.descriptor, whole.diff_id, lambda n=length: io.BytesIO(BLOBS[name][:n]))  # type: ignore[misc]  # mypy can't infer a default's type
        with Store.temporary() as store, pytest.raises(BlobError, match=f"ends after {length} of") as caught:
            index_layers([short], store)
        assert caught.value.hint
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["gzip", "gzip members", "zstd", "zstd frames"])
def test_a_stream_that_ends_early_is_an_error_although_its_digest_is_right(name: str) -> None:
    blob = BLOBS[name][:-5]
    with pytest.raises(BlobError, match=r"ends in the middle of its (gzip|zstd) stream"):
        index(PLAIN, blob)


@pytest.mark.parametrize(
    "blob", [gz(PLAIN) + b"xx", gz(PLAIN) + b"x" * 600, zst(PLAIN) + b"xx", zst(PLAIN) + bytes(600)], ids=range(4)
)
def test_garbage_behind_a_stream_is_an_error(blob: bytes) -> None:
    with pytest.raises(BlobError, match=r"is damaged|ends in the middle"):
        index(PLAIN, blob)


@pytest.mark.parametrize("name", BLOBS)
def test_a_flipped_bit_is_an_error(name: str) -> None:
    blob = BLOBS[name]
    good = layer(PLAIN, blob)
    for at in (0, 9, 40, len(blob) // 2, len(blob) - 1):
        bad = bytearray(blob)
        bad[at] ^= 4
        flipped = Layer(good.descriptor, good.diff_id, lambda b=bytes(bad): io.BytesIO(b))  # type: ignore[misc]  # as above
        with Store.temporary() as store, pytest.raises(BlobError, match="does not match its digest"):
            index_layers([flipped], store)


def test_a_blob_longer_than_its_descriptor_is_an_error() -> None:
    blob = gz(PLAIN)
    good = layer(PLAIN, blob)
    longer = Layer(good.descriptor, good.diff_id, lambda: cast("BinaryIO", io.BytesIO(blob + bytes(3))))
    with Store.temporary() as store, pytest.raises(BlobError, match="is longer than the"):
        index_layers([longer], store)


def test_an_unknown_size_is_not_held_against_the_blob() -> None:
    blob = gz(PLAIN)
    unsized = Layer(Descriptor("x", sha256(blob), -1), sha256(PLAIN), lambda: cast("BinaryIO", io.BytesIO(blob)))
    with Store.temporary() as store:
        assert len(index_layers([unsized], store)[0].entries) == 3


@pytest.mark.parametrize("stated", [sha256(b"other"), "sha512:" + "0" * 128])
def test_a_wrong_diff_id_is_an_error_and_nothing_is_cached(stated: str) -> None:
    blob = gz(PLAIN)
    wrong = Layer(Descriptor("x", sha256(blob), len(blob)), stated, lambda: cast("BinaryIO", io.BytesIO(blob)))
    with Store.temporary() as store:
        with pytest.raises(BlobError, match="does not match its diffID"):
            index_layers([wrong], store)
        assert store.info()["layers"] == 0
        assert store.load_index(stated) is None


def test_a_wrong_diff_id_of_a_plain_layer_is_an_error() -> None:
    wrong = Layer(Descriptor("x", sha256(PLAIN), -1), sha256(b""), lambda: cast("BinaryIO", io.BytesIO(PLAIN)))
    with Store.temporary() as store, pytest.raises(BlobError, match="does not match its diffID"):
        index_layers([wrong], store)


@pytest.mark.parametrize(
    "digest", ["md5:" + "0" * 32, "sha256:abc", "sha256:" + "G" * 64, "sha256", "sha512:" + "0" * 64]
)
def test_a_digest_that_cannot_be_checked_is_an_error(digest: str) -> None:
    bad = Layer(Descriptor("x", digest, -1), None, lambda: cast("BinaryIO", io.BytesIO(PLAIN)))
    with Store.temporary() as store, pytest.raises(BlobError, match="no digest that imgdiff can check"):
        index_layers([bad], store)


def test_sha512_is_checked() -> None:
    digest = "sha512:" + hashlib.sha512(PLAIN).hexdigest()
    good = Layer(Descriptor("x", digest, len(PLAIN)), digest, lambda: cast("BinaryIO", io.BytesIO(PLAIN)))
    with Store.temporary() as store:
        assert index_layers([good], store)[0].diff_id == digest
        assert store.load_index(digest, RULES) is not None


def test_bytes_behind_the_end_of_the_archive_belong_to_the_diff_id() -> None:
    for count in (0, 1, 511, 9 * 1024, 3_000_000):
        plain = PLAIN + bytes(count)
        assert index(plain, gz(plain)).size == len(plain)


def test_bytes_behind_the_end_that_are_not_zero_are_an_error() -> None:
    plain = PLAIN + bytes(2_000_000) + b"x"
    with pytest.raises(BlobError, match="bytes behind its end"):
        index(plain, gz(plain))


def test_a_window_over_the_cap_is_one_clear_sentence() -> None:
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 29}
    compressor = zstd.ZstdCompressor(options=options)
    blob = compressor.compress(PLAIN) + compressor.flush()
    tracemalloc.start()
    try:
        with pytest.raises(BlobError, match="a window of more than 128 MiB"):
            index(PLAIN, blob)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


def test_a_window_at_the_cap_is_read() -> None:
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    assert len(index(PLAIN, compressor.compress(PLAIN) + compressor.flush()).entries) == 3


@pytest.mark.parametrize(
    ("garbage", "sentence"),
    [
        (b"not a tar at all" * 100, "is no tar"),
        (b"BZh91AY&SY" + bytes(range(256)) * 8, "looks like bzip2"),
        (b"\xfd7zXZ\0" + bytes(range(256)) * 8, "looks like xz"),
        (b"x", "ends in the middle of a header"),
        (b"\0" * 512 + b"x" * 512, "a lone block of zeros"),
        (padded(header(b"a", size=5000)), "ends .* bytes before the end of a file"),
        (header(b"a", size=5) + padded(b"12345") + b"\1" * 512 + END, "no valid header at byte 1024"),
    ],
)
def test_garbage_is_one_clear_sentence(garbage: bytes, sentence: str) -> None:
    for blob in (garbage, gz(garbage), zst(garbage)):
        with pytest.raises(BlobError, match=sentence) as caught:
            index(garbage, blob)
        assert str(caught.value).count(". ") == 0


def test_compressed_twice_is_said() -> None:
    inner = gz(PLAIN)
    with pytest.raises(BlobError, match="is compressed twice"):
        index(inner, gz(inner))


def test_an_archive_without_an_end_mark_must_be_vouched_for() -> None:
    plain = files(a=b"1")[: 2 * 512]
    assert [entry.path for entry in index(plain).entries] == [b"a"]
    with pytest.raises(BlobError, match="has no end mark"):
        index(plain, stated=False)
    assert index(plain + END, stated=False).diff_id == sha256(plain + END)


def test_an_empty_archive_is_an_empty_layer() -> None:
    assert index(END).entries == ()
    assert index(b"").entries == ()


def test_the_last_padding_may_be_missing_but_no_byte_of_a_file() -> None:
    whole = header(b"a", size=600) + b"x" * 600
    assert index(whole).entries[0].size == 600
    with pytest.raises(BlobError, match="ends 1 bytes before"):
        index(whole[:-1])


def test_errors_of_the_source_pass_or_become_a_sentence() -> None:
    class Broken(io.RawIOBase):
        def readinto(self, buffer: object, /) -> int:
            raise OSError(5, "Input/output error")

    def missing() -> BinaryIO:
        raise FileNotFoundError(2, "No such file or directory")

    def refused() -> BinaryIO:
        raise ImgdiffError("the registry said no")

    for opener, sentence in (
        (lambda: cast("BinaryIO", Broken()), "can't be read: Input/output error"),
        (missing, "can't be opened: No such file"),
        (refused, "the registry said no"),
    ):
        with Store.temporary() as store, pytest.raises(ImgdiffError, match=sentence):
            index_layers([Layer(None, None, opener)], store)


def test_a_source_that_only_reads_is_enough() -> None:
    class OnlyRead:
        def __init__(self) -> None:
            self._file = io.BytesIO(gz(PLAIN))

        def read(self, size: int) -> bytes:
            return self._file.read(min(size, 777))

        def __enter__(self) -> OnlyRead:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    good = layer(PLAIN, gz(PLAIN))
    reading = Layer(good.descriptor, good.diff_id, lambda: cast("BinaryIO", OnlyRead()))
    with Store.temporary() as store:
        assert len(index_layers([reading], store)[0].entries) == 3
