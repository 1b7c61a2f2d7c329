"""Members of archives, with tarfile as the oracle and headers by hand where tarfile writes none."""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.errors import BlobError, ImgdiffError
from imgdiff.model import FileEntry
from tests.layer.make import END, entries, gz, header, index, info, padded, pax, tar

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
TYPES = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.GNUTYPE_SPARSE: "file",
    tarfile.LNKTYPE: "hardlink",
    tarfile.SYMTYPE: "symlink",
    tarfile.CHRTYPE: "char",
    tarfile.BLKTYPE: "block",
    tarfile.DIRTYPE: "dir",
    tarfile.FIFOTYPE: "fifo",
}


def oracle(data: bytes) -> list[FileEntry]:
    """What tarfile says of an archive, in our words."""
    found = []
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
        for member in archive:
            kind = TYPES[member.type]
            digest = None
            if kind == "file":
                content = archive.extractfile(member)
                assert content is not None
                digest = hashlib.sha256(content.read()).digest()
            link = member.linkname.encode("utf-8", "surrogateescape")
            found.append(
                FileEntry(
                    member.name.strip("/").encode("utf-8", "surrogateescape"),
                    kind,  # type: ignore[arg-type]  # the table holds nothing else
                    member.mode,
                    member.uid,
                    member.gid,
                    round(member.mtime * 1_000_000_000),
                    member.size if kind == "file" else 0,
                    digest,
                    link.strip(b"/") if kind == "hardlink" else link if kind == "symlink" else None,
                    (),
                    (member.devmajor, member.devminor) if kind in ("char", "block") else None,
                )
            )
    return found


NAME = st.text(st.sampled_from("abcXYZ09_- ü€."), min_size=1, max_size=60).filter(lambda name: name.strip(".") != "")
PATH = st.lists(NAME, min_size=1, max_size=6).map("/".join).filter(lambda path: ".wh." not in path)


@st.composite
def member(draw: st.DrawFn) -> tuple[tarfile.TarInfo, bytes]:
    kind = draw(st.sampled_from(sorted(TYPES.keys() - {tarfile.GNUTYPE_SPARSE, tarfile.AREGTYPE})))
    one = info(draw(PATH), kind, mode=draw(st.integers(0, 0o7777)))
    one.uid = draw(st.integers(0, 0o7777777))
    one.gid = draw(st.integers(0, 0o7777777))
    one.mtime = draw(st.integers(0, 0o77777777777))
    if kind in (tarfile.LNKTYPE, tarfile.SYMTYPE):
        one.linkname = draw(PATH)
    if kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
        one.devmajor, one.devminor = draw(st.integers(0, 0o7777777)), draw(st.integers(0, 0o7777777))
    content = draw(st.binary(max_size=1500)) if TYPES[kind] == "file" else b""
    return one, content


@settings(max_examples=60, deadline=None)
@given(st.lists(member(), max_size=8), st.sampled_from(["gnu", "pax"]))
def test_every_member_is_as_tarfile_says(items: list[tuple[tarfile.TarInfo, bytes]], fmt: str) -> None:
    data = tar(items, FORMATS[fmt])
    assert list(index(data, gz(data)).entries) == oracle(data)


@pytest.mark.parametrize("fmt", FORMATS)
def test_prefixes_and_long_names(fmt: str) -> None:
    long = "d" * 60 + "/" + "e" * 80 + "/f"
    items = [(info(long), b"x"), (info("link", tarfile.SYMTYPE, "t" * 99), b"")]
    if fmt != "ustar":
        items += [(info("n" * 300), b"y"), (info("long link", tarfile.SYMTYPE, "t" * 300), b"")]
        items += [(info("hard", tarfile.LNKTYPE, "n" * 300), b"")]
    data = tar(items, FORMATS[fmt])
    assert list(index(data).entries) == oracle(data)


@pytest.mark.parametrize("fmt", ["gnu", "pax"])
def test_numbers_beyond_octal(fmt: str) -> None:
    one = info("big owner")
    one.uid, one.gid, one.mtime = 3_000_000_000, 4_000_000_000, -5
    data = tar([(one, b"z")], FORMATS[fmt])
    assert list(index(data).entries) == oracle(data)
    entry = index(data).entries[0]
    assert (entry.uid, entry.gid, entry.mtime) == (3_000_000_000, 4_000_000_000, -5_000_000_000)


def test_a_size_in_base_256() -> None:
    data = header(b"big", fields={124: b"\x80" + (700).to_bytes(11, "big")}) + padded(b"x" * 700) + END
    assert index(data).entries[0].size == 700


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (124, b"\xff" * 12),
        (124, b"9999999999 \0"),
        (124, b"0o17\0\0\0\0\0\0\0\0"),
        (124, b"1_0\0\0\0\0\0\0\0\0\0"),
        (136, b"\x80" + b"\xff" * 11),
        (108, b"-1\0\0\0\0\0\0"),
    ],
)
def test_numbers_that_are_none(field: int, value: bytes) -> None:
    with pytest.raises(BlobError, match=r"number|negative size"):
        index(header(b"a", fields={field: value}) + END)


def test_a_size_of_exabytes_is_an_early_end() -> None:
    with pytest.raises(BlobError, match="before the end of a file"):
        index(header(b"a", fields={124: b"\x80" + (1 << 62).to_bytes(11, "big")}) + END)


def test_checksums_over_signed_bytes_count() -> None:
    block = bytearray(header("ü".encode("latin-1") * 20))
    signed = sum(byte - 256 if byte > 127 else byte for byte in block[:148] + block[156:]) + 8 * 32
    block[148:156] = b"%06o\0 " % signed
    assert index(bytes(block) + END).entries[0].path == b"\xfc" * 20
    block[148:156] = b"%06o\0 " % (signed + 1)
    with pytest.raises(BlobError, match="is no tar"):
        index(bytes(block) + END)


def test_a_header_before_ustar() -> None:
    old = header(b"dir/", b"\0", magic=b"", fields={345: b"no prefix"})
    data = old + header(b"dir/file", b"\0", 3, magic=b"") + padded(b"abc") + END
    assert [(entry.path, entry.type) for entry in index(data).entries] == [(b"dir", "dir"), (b"dir/file", "file")]


def test_a_gnu_header_has_times_where_ustar_has_its_prefix() -> None:
    times = header(b"name", magic=b"ustar  \0", fields={345: b"14000000000\0", 357: b"14000000000\0"})
    assert index(times + END).entries[0].path == b"name"


def test_old_go_wrote_a_prefix_into_gnu_headers() -> None:
    block = header(b"name", magic=b"ustar  \0", fields={345: b"usr/share"})
    assert index(block + END).entries[0].path == b"usr/share/name"


def test_a_star_header_has_a_shorter_prefix() -> None:
    block = header(b"name", fields={345: b"usr", 476: b"00000000000\0", 508: b"tar\0"})
    assert index(block + END).entries[0].path == b"usr/name"


# PAX -----------------------------------------------------------------------------------------------------------------


def test_pax_overrides() -> None:
    records = pax(
        (b"path", b"new/\xff\xfename"),
        (b"size", b"3"),
        (b"mtime", b"1700000000.123456789123"),
        (b"uid", b"12345678901"),
        (b"gid", b"7"),
        (b"comment", b"= and \n inside"),
        (b"SCHILY.xattr.user.b", b"\0\n=\xff"),
        (b"SCHILY.xattr.security.capability", b"\x01\0\0\x02"),
        (b"LIBARCHIVE.xattr.user.c", b"eHg"),
    )
    data = records + header(b"old", size=999) + padded(b"abc") + header(b"next") + END
    first, second = index(data).entries
    assert (first.path, first.size, first.uid, first.gid) == (b"new/\xff\xfename", 3, 12345678901, 7)
    assert first.mtime == 1_700_000_000_123_456_789
    assert first.xattrs == ((b"security.capability", b"\x01\0\0\x02"), (b"user.b", b"\0\n=\xff"))
    assert second.path == b"next"
    assert second.xattrs == ()


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        (b"1", 1_000_000_000),
        (b"1.", 1_000_000_000),
        (b"1.5", 1_500_000_000),
        (b"-1.5", -1_500_000_000),
        (b"-0.25", -250_000_000),
        (b"0.0000000019", 1),
    ],
)
def test_times_with_fractions(text: bytes, nanoseconds: int) -> None:
    assert index(pax((b"mtime", text)) + header(b"a") + END).entries[0].mtime == nanoseconds


@pytest.mark.parametrize("text", [b"x", b"1.x", b".", b"-", b"1e3", b"1_0", b"9" * 30])
def test_times_that_are_none(text: bytes) -> None:
    with pytest.raises(BlobError, match="PAX header"):
        index(pax((b"mtime", text)) + header(b"a") + END)


@pytest.mark.parametrize("kind", [b"x", b"X"])
def test_pax_link_paths(kind: bytes) -> None:
    data = pax((b"linkpath", b"target"), (b"path", b""), kind=kind) + header(b"a", b"2", link=b"old") + END
    entry = index(data).entries[0]
    assert (entry.path, entry.link_target) == (b"a", b"target")


@pytest.mark.parametrize(
    "body",
    [b"5 a=b\n", b"6 a=b", b"x a=b\n", b"99 a=b\n", b"4 =\n", b"5 ab\n", b"12 path=a\0b\n\n", b"0 a=b\n", b"6a=bcd\n"],
)
def test_broken_pax_headers(body: bytes) -> None:
    with pytest.raises(BlobError, match="PAX header"):
        index(header(b"x", b"x", len(body)) + padded(body) + header(b"a") + END)


@pytest.mark.parametrize("kind", [b"x", b"L", b"K", b"g"])
def test_an_extended_header_of_gigabytes_is_refused(kind: bytes) -> None:
    with pytest.raises(BlobError, match="extended header of"):
        index(header(b"x", kind, 1 << 32) + END)


def test_global_headers_are_ignored_as_engines_do_and_said() -> None:
    harmless = index(pax((b"comment", b"5f0e"), kind=b"g") + header(b"a") + END)
    assert harmless.blindspots == ()
    telling = index(pax((b"path", b"evil"), (b"uid", b"5"), kind=b"g") + header(b"a") + END)
    assert [(entry.path, entry.uid) for entry in telling.entries] == [(b"a", 0)]
    assert "path, uid" in telling.blindspots[0].reason


# Sparse --------------------------------------------------------------------------------------------------------------

SPARSE = b"begin" + bytes(100_000) + b"middle" + bytes(2_500_000) + b"end" + bytes(70_000)


@pytest.mark.parametrize(
    "options", [["--format=gnu"], *(["--format=pax", f"--sparse-version={v}"] for v in ("0.0", "0.1", "1.0"))]
)
def test_sparse_files_are_expanded(options: list[str], tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        for part in (b"begin", 100_000, b"middle", 2_500_000, b"end"):
            if isinstance(part, int):
                file.seek(part, 1)
            else:
                file.write(part)
        file.truncate(len(SPARSE))
    with (tmp_path / "many").open("wb") as file:
        for number in range(60):
            file.seek(number * 16384)
            file.write(b"%d" % number)
        file.truncate(60 * 16384)
    (tmp_path / "after").write_bytes(b"ordinary")
    (tmp_path / "hole").touch()
    with (tmp_path / "hole").open("r+b") as file:
        file.truncate(300_000)
    names = ["sparse", "many", "hole", "after"]
    archive = tmp_path / "a.tar"
    subprocess.run(["tar", "-S", *options, "-cf", archive, "-C", tmp_path, *names], check=True)
    data = archive.read_bytes()
    assert len(data) < 1_500_000
    found = {entry.path: entry for entry in index(data, gz(data)).entries}
    for name in names:
        content = (tmp_path / name).read_bytes()
        assert found[name.encode()].digest == hashlib.sha256(content).digest()
        assert found[name.encode()].size == len(content)


def test_a_file_of_exabytes_of_holes_is_a_blindspot() -> None:
    records = pax((b"GNU.sparse.map", b"0,3"), (b"GNU.sparse.size", b"%d" % (1 << 62)))
    found = index(records + header(b"huge", size=3) + padded(b"abc") + header(b"next") + END)
    assert [(entry.path, entry.digest is None) for entry in found.entries] == [(b"huge", True), (b"next", False)]
    assert found.blindspots[0].path == b"huge"


@pytest.mark.parametrize(
    "records",
    [
        [(b"GNU.sparse.map", b"0,3,1,1"), (b"GNU.sparse.size", b"10")],
        [(b"GNU.sparse.map", b"0,4"), (b"GNU.sparse.size", b"10")],
        [(b"GNU.sparse.map", b"0,3"), (b"GNU.sparse.size", b"2")],
        [(b"GNU.sparse.map", b"0,3,5"), (b"GNU.sparse.size", b"10")],
        [(b"GNU.sparse.map", b"0,x"), (b"GNU.sparse.size", b"10")],
        [(b"GNU.sparse.map", b"-1,3"), (b"GNU.sparse.size", b"10")],
        [(b"GNU.sparse.numbytes", b"3"), (b"GNU.sparse.offset", b"0")],
        [(b"GNU.sparse.major", b"2"), (b"GNU.sparse.minor", b"0")],
        [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"9")],
    ],
)
def test_broken_sparse_maps(records: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(BlobError, match=r"sparse|number"):
        index(pax(*records) + header(b"a", size=3) + padded(b"abc") + END)


# Odd members ---------------------------------------------------------------------------------------------------------


def test_a_hard_link_with_a_size_and_no_content() -> None:
    data = header(b"a", size=3) + padded(b"abc") + header(b"b", b"1", 3, link=b"a") + header(b"c") + END
    assert [entry.path for entry in index(data).entries] == [b"a", b"b", b"c"]
    assert index(data).blindspots == ()
    assert [entry.path for entry in index(data[: -1024 - 512]).entries] == [b"a", b"b"]


@pytest.mark.parametrize("size", [3, 512, 3000, 2_000_000])
def test_a_hard_link_with_content_of_its_own(size: int) -> None:
    content = b"abc" * (size // 3 + 1)
    data = header(b"b", b"1", size, link=b"a") + padded(content[:size]) + header(b"c", size=1) + padded(b"c") + END
    found = index(data)
    assert [(entry.path, entry.type) for entry in found.entries] == [(b"b", "hardlink"), (b"c", "file")]
    assert found.blindspots[0].path == b"b"


def test_a_peek_may_cross_chunks() -> None:
    big = b"x" * ((1 << 20) - 1024)
    data = header(b"a", size=len(big)) + big + header(b"b", b"1", 9, link=b"a") + header(b"c") + END
    assert [entry.path for entry in index(data).entries] == [b"a", b"b", b"c"]


def test_contiguous_files_are_files_and_unknown_types_blindspots() -> None:
    data = header(b"a", b"7", 3) + padded(b"abc") + header(b"b", b"V", 600) + padded(b"v" * 600) + header(b"c") + END
    found = index(data)
    assert [(entry.path, entry.type, entry.size) for entry in found.entries] == [(b"a", "file", 3), (b"c", "file", 0)]
    assert [(spot.path, "unknown type" in spot.reason) for spot in found.blindspots] == [(b"b", True)]


def test_devices_keep_their_numbers() -> None:
    one = info("dev/null", tarfile.CHRTYPE)
    one.devmajor, one.devminor = 1, 3
    assert entries(tar([(one, b"")]))[b"dev/null"].device == (1, 3)


def test_duplicates_stay_in_order() -> None:
    data = tar([(info("a"), b"1"), (info("l", tarfile.LNKTYPE, "a"), b""), (info("a"), b"2")])
    assert [(entry.path, entry.type) for entry in index(data).entries] == [
        (b"a", "file"),
        (b"l", "hardlink"),
        (b"a", "file"),
    ]


def test_files_of_all_sizes_around_the_chunks() -> None:
    sizes = [0, 1, 511, 512, 513, 4095, 4096, 4097, (1 << 20) - 512, 1 << 20, (1 << 20) + 1, 3 << 20, 700]
    rng = random.Random(4)
    items = [(info(f"f{number}"), rng.randbytes(size)) for number, size in enumerate(sizes)]
    found = entries(tar(items))
    for member_info, content in items:
        entry = found[member_info.name.encode()]
        assert (entry.size, entry.digest) == (len(content), hashlib.sha256(content).digest())


# Fuzz ----------------------------------------------------------------------------------------------------------------

_SEED = tar(
    [
        (info("d", tarfile.DIRTYPE), b""),
        (info("d/" + "n" * 150), b"content" * 100),
        (info("d/l", tarfile.SYMTYPE, "/x/y"), b""),
        (info("d/h", tarfile.LNKTYPE, "d/l"), b""),
        (info("d/.wh.gone"), b""),
        (info("é" * 60), b"z"),
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_is_an_error_or_an_index_but_never_a_traceback(data: st.DataObject) -> None:
    damaged = bytearray(_SEED)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 6000))
        damaged[at] = data.draw(st.integers(0, 255))
        start = at - at % 512
        block = damaged[start : start + 512]
        if data.draw(st.booleans()) and any(block):  # with a checksum that fits again
            block[148:156] = b" " * 8
            damaged[start + 148 : start + 156] = b"%06o\0 " % sum(block)
    cut = data.draw(st.integers(0, len(damaged)))
    with contextlib.suppress(ImgdiffError):
        index(bytes(damaged[:cut]))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=2000), st.booleans())
def test_garbage_is_never_a_traceback(garbage: bytes, stated: bool) -> None:
    for magic in (b"", b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd"):
        with contextlib.suppress(ImgdiffError):
            index(magic + garbage, stated=stated)
