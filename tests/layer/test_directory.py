"""A plain root file system as one layer."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from imgdiff.errors import ImageError
from imgdiff.layer import index_layers
from imgdiff.model import Layer, LayerIndex
from imgdiff.store import Store
from tests.layer.make import entries


def at(root: Path) -> Layer:
    return Layer(None, None, lambda: io.BytesIO(), root)


def index(root: Path) -> LayerIndex:
    with Store.temporary() as store:
        return index_layers([at(root)], store)[0]


def test_every_name_with_its_attributes(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir(mode=0o750)
    (tmp_path / "dir" / "f").write_bytes(b"content")
    (tmp_path / "dir" / "f").chmod(0o4711)
    os.utime(tmp_path / "dir" / "f", ns=(0, 1_600_000_000_123_456_789))
    (tmp_path / "dir.x").write_bytes(b"")
    (tmp_path / "l").symlink_to("../../outside")
    os.mkfifo(tmp_path / "p", 0o600)
    (tmp_path / "z").hardlink_to(tmp_path / "dir" / "f")
    (tmp_path / os.fsdecode(b"\xff\xfe")).write_bytes(b"odd")
    found = index(tmp_path)
    assert found.diff_id == ""
    assert [(entry.path, entry.type) for entry in found.entries] == [
        (b"", "dir"),
        (b"dir", "dir"),
        (b"dir.x", "file"),
        (b"dir/f", "file"),
        (b"l", "symlink"),
        (b"p", "fifo"),
        (b"z", "hardlink"),
        (b"\xff\xfe", "file"),
    ]
    by_path = {entry.path: entry for entry in found.entries}
    file = by_path[b"dir/f"]
    assert (file.mode, file.mtime, file.size) == (0o4711, 1_600_000_000_123_456_789, 7)
    assert file.digest == hashlib.sha256(b"content").digest()
    assert (file.uid, file.gid) == (os.getuid(), os.getgid())
    assert by_path[b"l"].link_target == b"../../outside"
    assert by_path[b"z"].link_target == b"dir/f"
    assert by_path[b"dir"].size == 0
    assert found.size == 10
    assert found.blindspots == ()


def test_a_directory_and_its_tar_have_the_same_entries(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "x.py").write_bytes(b"import os\n")
    (root / "a" / "b" / "y").write_bytes(os.urandom(1_100_000))
    (root / "l").symlink_to("a")
    archive = tmp_path / "t.tar"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as out:
        out.add(root, ".")
    subprocess.run(["tar", "--format=pax", "-cf", archive, "-C", root, "."], check=True)
    from_tar = entries(archive.read_bytes())
    assert {entry.path: entry for entry in index(root).entries} == from_tar


def test_texts_of_a_directory_live_as_long_as_the_store(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "m.py").write_bytes(b"import os\n")
    with Store.open(tmp_path / "cache") as store:
        indexes = index_layers([at(root), at(root)], store)
        assert store.texts(indexes).get(hashlib.sha256(b"import os\n").digest()) == b"import os\n"
        assert store.info()["layers"] == 0
    assert sorted(path.name for path in (tmp_path / "cache").rglob("*") if "pack" in path.name) == []


def test_sockets_are_blindspots(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        found = index(tmp_path)
    assert [entry.path for entry in found.entries] == [b""]
    assert [spot.path for spot in found.blindspots] == [b"s"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_a_blindspot(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0)
    found = index(tmp_path)
    assert found.entries[1].digest is None
    assert [spot.path for spot in found.blindspots] == [b"secret"]


def test_read_errors_are_blindspots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"y")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "hidden").touch()
    real_open, real_scan = os.open, os.scandir

    def refuse(path: object, *more: Any, **named: Any) -> Any:
        if isinstance(path, bytes) and path.endswith(b"/a"):
            raise PermissionError(13, "Permission denied")
        return real_open(path, *more, **named)  # type: ignore[arg-type]  # whatever it was called with

    def refuse_scan(path: object) -> Any:
        if isinstance(path, bytes) and path.endswith(b"/d"):
            raise PermissionError(13, "Permission denied")
        return real_scan(path)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "scandir", refuse_scan)
    found = index(tmp_path)
    assert [(entry.path, entry.digest is None) for entry in found.entries if entry.type == "file"] == [
        (b"a", True),
        (b"b", False),
    ]
    assert [(spot.path, "Permission denied" in spot.reason) for spot in found.blindspots] == [
        (b"a", True),
        (b"d", True),
    ]


def test_a_file_that_changes_while_it_is_read_is_a_blindspot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "log"
    target.write_bytes(b"x" * 100)
    real = os.open

    def grow(path: object, *more: Any, **named: Any) -> Any:
        if isinstance(path, bytes) and path.endswith(b"/log"):
            with target.open("ab") as file:
                file.write(b"more")
        return real(path, *more, **named)  # type: ignore[arg-type]  # as above

    monkeypatch.setattr(os, "open", grow)
    found = index(tmp_path)
    assert found.entries[1].digest is None
    assert "changed while" in found.blindspots[0].reason


def test_a_path_too_long_to_open_is_a_blindspot(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(40):
            os.mkdir("d" * 200, dir_fd=here)
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    found = index(tmp_path)
    assert "too long" in found.blindspots[0].reason
    assert len(found.entries) > 15
    subprocess.run(["rm", "-rf", tmp_path / ("d" * 200)], check=True)


def test_a_root_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="can't be read: No such file"):
        index(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(ImageError, match="can't be read: Not a directory"):
        index(tmp_path / "file")


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes here")
def test_extended_attributes(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    try:
        os.setxattr(tmp_path / "f", "user.b", b"\0\xff")
        os.setxattr(tmp_path / "f", "user.a", b"1")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    assert index(tmp_path).entries[1].xattrs == ((b"user.a", b"1"), (b"user.b", b"\0\xff"))
