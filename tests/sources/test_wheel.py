"""Wheels as sources: what is read of one, and how one that could fool somebody is refused in a sentence."""

from __future__ import annotations

import hashlib
import io
import os
import random
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from imgdiff.errors import BlobError, ImageError, ImgdiffError, UnknownReferenceError
from imgdiff.layer import index_layers
from imgdiff.model import LayerIndex
from imgdiff.sources import open_image
from imgdiff.store import Store
from tests.support.wheels import WHEEL, record, wheel_files, write_wheel, write_zip

FILES = {
    "thing/__init__.py": b"import sys\n",
    "thing/E=64,N=512.json": b"{}",
    ".data/scripts/run": b"#!python\n",
    ".data/data/lib/libx.so": b"so",
    ".data/headers/x.h": b"int x;\n",
    ".data/purelib/extra.py": b"X = 1\n",
    ".data/platlib/native.so": b"native",
}
INFO = "thing-1.0.dist-info"


def read(path: Path | str) -> LayerIndex:
    image = open_image(str(path))
    with Store.temporary() as store:
        return index_layers(image.layers, store)[0]


def refused(path: Path | str, error: type[ImgdiffError], words: str) -> str:
    """Open and index what can't be, and return the hint."""
    with pytest.raises(error, match=words) as caught:
        read(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    return caught.value.hint or ""


def bad(directory: Path, members: Mapping[str, bytes | None], name: str = "thing-1.0-py3-none-any.whl") -> Path:
    """Write the wheel with some members replaced, added, or left out (None)."""
    whole: dict[str, bytes | None] = {**wheel_files("thing", "1.0", FILES), **members}
    return write_zip(directory / name, {path: data for path, data in whole.items() if data is not None})


# What is read ---------------------------------------------------------------------------------------------------------


def test_a_wheel_is_one_layer_laid_out_as_it_is_installed(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "thing", "1.0", FILES, executable=[".data/platlib/native.so"])
    entries = {entry.path.decode(): entry for entry in read(wheel).entries}
    assert sorted(entries) == [
        "bin/run",
        "data/lib/libx.so",
        "include/x.h",
        "site-packages/extra.py",
        "site-packages/native.so",
        f"site-packages/{INFO}/METADATA",
        f"site-packages/{INFO}/RECORD",
        f"site-packages/{INFO}/WHEEL",
        "site-packages/thing/E=64,N=512.json",
        "site-packages/thing/__init__.py",
    ]
    assert entries["site-packages/extra.py"].digest == hashlib.sha256(b"X = 1\n").digest()
    assert {path for path, entry in entries.items() if entry.mode == 0o755} == {"site-packages/native.so"}


def test_it_says_whose_it_is_and_which_file(tmp_path: Path) -> None:
    path = write_wheel(tmp_path, "my_Thing", "1.0+cpu", FILES)
    image = open_image(f"wheel:{path}")
    assert (image.source, image.config, image.manifest_digest) == ("wheel", None, None)
    assert image.wheel is not None
    assert (image.wheel.name, image.wheel.version) == ("my-thing", "1.0+cpu")
    assert image.wheel.info == b"my_Thing-1.0+cpu.dist-info"
    assert image.wheel.digest == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert image.wheel.size == path.stat().st_size


def test_the_layer_is_a_tar_that_tarfile_reads_and_is_always_the_same(tmp_path: Path) -> None:
    name = "thing/" + "d" * 200 + "/ümläut.py"
    path = write_wheel(tmp_path, "thing", "1.0", {**FILES, name: b"1\n" * 100_000})
    layer = open_image(str(path)).layers[0]
    first, second = layer.open().read(), layer.open().read()
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        member = tar.extractfile(f"site-packages/{name}")
        assert member is not None
        assert member.read() == b"1\n" * 100_000


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_stored_and_deflated_members_are_read(tmp_path: Path, compression: int) -> None:
    path = write_zip(tmp_path / "a.whl", wheel_files("thing", "1.0", FILES), compression=compression)
    assert len(read(path).entries) == 10


def test_a_file_name_says_that_a_bare_path_is_a_wheel_and_may_be_any_name(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "download", wheel_files("thing", "1.0", FILES))
    assert open_image(f"wheel:{path}").wheel is not None
    with pytest.raises(UnknownReferenceError, match="no image archive"):
        open_image(str(path))
    path.rename(tmp_path / "Renamed.WHL")
    assert open_image(str(tmp_path / "Renamed.WHL")).wheel is not None


def test_directories_are_passed_over(tmp_path: Path) -> None:
    path = bad(tmp_path, {"thing/": b"", "../../": b""})
    assert len(read(path).entries) == 10


def test_another_version_in_a_name_is_a_caveat(tmp_path: Path) -> None:
    members = wheel_files("thing", "1.0", FILES)
    path = write_zip(tmp_path / "thing-2.0-py3-none-any.whl", members)
    (caveat,) = open_image(str(path)).caveats
    assert caveat == "METADATA of {side} states version 1.0, and the file name thing-2.0-py3-none-any.whl 2.0."
    path = write_zip(tmp_path / "thing-1.0-1_build-cp311-cp311-manylinux_2_28_x86_64.whl", members)
    assert open_image(str(path)).caveats == ()


# What is refused ------------------------------------------------------------------------------------------------------


def test_what_is_no_wheel(tmp_path: Path) -> None:
    text = tmp_path / "a.whl"
    text.write_text("<html>404</html>")
    assert "pip download" in refused(text, UnknownReferenceError, "no zip archive")
    refused(write_zip(tmp_path / "b.whl", {"a.py": b""}), UnknownReferenceError, "no .dist-info")
    refused(f"wheel:{tmp_path}", UnknownReferenceError, "is a directory")
    refused(f"wheel:{tmp_path / 'none.whl'}", UnknownReferenceError, "no such file")
    refused(tmp_path / "none.whl", UnknownReferenceError, "names no image")
    refused(f"wheel:{write_wheel(tmp_path, 'thing', '1.0', FILES)}:1.0", UnknownReferenceError, "has no tags")
    os.mkfifo(tmp_path / "c.whl")
    refused(tmp_path / "c.whl", ImageError, "no regular file")


@pytest.mark.parametrize("name", ["METADATA", "WHEEL", "RECORD"])
def test_an_incomplete_dist_info(tmp_path: Path, name: str) -> None:
    refused(bad(tmp_path, {f"{INFO}/{name}": None}), ImageError, f"has no {name}")


def test_metadata_that_says_nothing_or_something_else(tmp_path: Path) -> None:
    metadata = f"{INFO}/METADATA"
    refused(bad(tmp_path, {metadata: b"Version: 1.0\n"}), ImageError, "states no name")
    refused(bad(tmp_path, {metadata: b"Name: thing\n\nVersion: 1\n"}), ImageError, "states no version")
    other = b"Name: other\nVersion: 1.0\n"
    refused(bad(tmp_path, {metadata: other}), ImageError, "names other, and its directory thing-1.0.dist-info another")
    members = wheel_files("thing", "1.0", FILES)
    refused(write_zip(tmp_path / "other-1.0-py3-none-any.whl", members), ImageError, "and the file name other-1.0")
    refused(bad(tmp_path, {f"{INFO}/WHEEL": b"Tag: any\n"}), ImageError, "states no version of the format")
    refused(bad(tmp_path, {f"{INFO}/WHEEL": WHEEL.replace(b"1.0", b"2.0")}), ImageError, "format 2.0")


def test_two_dist_infos(tmp_path: Path) -> None:
    path = bad(tmp_path, {"other-1.dist-info/METADATA": b"Name: other\nVersion: 1\n"})
    refused(path, ImageError, "several .dist-info directories: other-1.dist-info and thing-1.0.dist-info")


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../../etc/passwd",
        "thing/../../x",
        "thing/./x",
        "thing//x",
        "thing\\x",
        "thing-1.0.data/scripts/../../x",
        "thing-1.0.data/data//etc/passwd",
    ],
)
def test_names_that_lead_out(tmp_path: Path, name: str) -> None:
    refused(bad(tmp_path, {name: b"x"}), ImageError, "a name that leads out or can be read in two ways")


def test_names_that_hide_or_stand_for_two(tmp_path: Path) -> None:
    refused(bad(tmp_path, {"thing/.wh.__init__.py": b""}), ImageError, "removes files")
    refused(bad(tmp_path, {"thing/.wh..wh..opq": b""}), ImageError, "removes files")
    refused(bad(tmp_path, {"x" * 300: b""}), ImageError, "no file can have")
    refused(bad(tmp_path, {"thing-1.0.data/etc/x": b""}), ImageError, "has data, headers, platlib, purelib, scripts")
    refused(bad(tmp_path, {"thing-1.0.data/x": b""}), ImageError, "a .data directory has")
    refused(bad(tmp_path, {"thing/__init__.py/x": b""}), ImageError, "as a file and as a directory")
    refused(bad(tmp_path, {"extra.py": b""}), ImageError, "two members that are installed as site-packages/extra.py")
    double = [*wheel_files("thing", "1.0", FILES).items(), ("thing/__init__.py", b"x")]
    with pytest.warns(UserWarning, match="Duplicate"):
        path = write_zip(tmp_path / "thing-1.0-py3-none-any.whl", double)
    refused(path, ImageError, "two members called thing/__init__.py")


def test_a_name_with_a_nul_or_that_is_no_text(tmp_path: Path) -> None:
    path = bad(tmp_path, {"thing/Xx.py": b""})
    data = path.read_bytes()
    path.write_bytes(data.replace(b"thing/Xx.py", b"thing/X\0.py"))
    refused(path, ImageError, "leads out or can be read in two ways")
    path = bad(tmp_path, {"thing/ü.py": b""})
    path.write_bytes(path.read_bytes().replace("ü".encode(), b"\xff\xff"))
    refused(path, ImageError, "damaged")


def test_encrypted_and_strangely_packed_members(tmp_path: Path) -> None:
    path = bad(tmp_path, {})
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    path.write_bytes(data)
    refused(path, ImageError, "is encrypted")
    members = wheel_files("thing", "1.0", FILES)
    path = write_zip(tmp_path / "thing-1.0-py3-none-any.whl", members, compression=zipfile.ZIP_LZMA)
    refused(path, ImageError, "in a way that installers don't read")


def test_zip_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imgdiff.sources.wheel._MAX_PLAIN", 1 << 20)
    refused(bad(tmp_path, {"thing/zeros": bytes(8 << 20)}), ImageError, "would unpack to 8,38")
    # Two names for one member's bytes, as in the zip bomb of David Fifield.
    path = bad(tmp_path, {"thing/zeros": b"0" * 1000, "thing/other": b"1" * 1000})
    data = bytearray(path.read_bytes())
    entries = [at for at in range(len(data)) if data[at : at + 4] == b"PK\x01\x02"]
    zeros, other = (next(at for at in entries if data[at + 46 :].startswith(name)) for name in (b"thing/z", b"thing/o"))
    data[other + 42 : other + 46] = data[zeros + 42 : zeros + 46]
    path.write_bytes(data)
    refused(path, ImageError, "members that overlap")


def test_damage_is_found_where_the_members_are_read(tmp_path: Path) -> None:
    path = bad(tmp_path, {"thing/long": random.Random(1).randbytes(100_000)})
    data = bytearray(path.read_bytes())
    data[data.index(b"thing/long") + 5_000] ^= 1
    path.write_bytes(data)
    assert "pip download" in refused(path, ImageError, "damaged")


def test_a_size_that_is_a_lie(tmp_path: Path) -> None:
    path = bad(tmp_path, {"thing/long": b"x" * 1000})
    data = bytearray(path.read_bytes())
    at = next(
        at
        for at in range(len(data))
        if data[at : at + 4] == b"PK\x01\x02" and data[at + 46 :].startswith(b"thing/long")
    )
    data[at + 24 : at + 28] = struct.pack("<I", 2000)
    path.write_bytes(data)
    refused(path, ImageError, "damaged|ends 1,000 bytes early")


def test_one_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = write_wheel(tmp_path, "thing", "1.0", FILES)
    image = open_image(str(path))
    write_wheel(tmp_path, "thing", "1.0", {**FILES, "thing/more.py": b""})
    with Store.temporary() as store, pytest.raises(BlobError, match="changed while it was read"):
        index_layers(image.layers, store)


def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    whole = write_wheel(tmp_path, "thing", "1.0", FILES).read_bytes()
    path = tmp_path / "x.whl"
    chance = random.Random(7)
    for _ in range(300):
        data = bytearray(whole[: chance.choice([len(whole), chance.randrange(len(whole))])])
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        try:
            read(path)
        except ImgdiffError as error:
            assert str(error).isprintable()  # noqa: PT017 - any other error fails the test


def test_record_is_written_as_here() -> None:
    assert record({"a,b": b""}, "x.dist-info").startswith(
        b'"a,b",sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n'
    )
