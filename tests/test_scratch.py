"""Files for what is read again: written and read like any, gone when they are closed, one sentence where the disk is full."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from imgdiff import diff
from imgdiff.errors import CacheError
from imgdiff.scratch import scratch_file
from tests.support.command import layout
from tests.support.elf import Elf, elf_bytes


def test_it_holds_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    content = os.urandom(3_000_000)
    with scratch_file() as file:
        assert file.write(memoryview(content)) == len(content)
        file.write(bytearray(b"end"))
        file.seek(0)
        assert file.read(5) == content[:5]
        assert file.read() == content[5:] + b"end"
        assert os.fstat(file.fileno()).st_size == len(content) + 3
    assert list(tmp_path.iterdir()) == []


def full(*_: object, **__: object) -> object:
    return open("/dev/full", "r+b", buffering=0)  # noqa: PTH123  who asked for it closes it


def refused(*_: object, **__: object) -> object:
    raise PermissionError(13, "Permission denied")


def images(directory: Path) -> tuple[str, str]:
    """Write two layouts with a library that differs: to tell what in it, it is read again."""
    for side, code in (("a", b"\xc3"), ("b", b"\x90\xc3")):
        layout(directory / side, {"usr/lib/libx.so.1": elf_bytes(Elf(soname="libx.so.1", text=code))})
    return str(directory / "a"), str(directory / "b")


@pytest.mark.parametrize(("made", "words"), [(full, "No space left on device"), (refused, "Permission denied")])
def test_a_full_disk_is_one_sentence(
    made: Callable[..., object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = images(tmp_path)
    assert diff(a, b, cache_dir=tmp_path / "good").changes
    monkeypatch.setattr(tempfile, "TemporaryFile", made)
    with pytest.raises(CacheError, match=f"The directory for temporary files, .*, can't be used: {words}") as caught:
        diff(a, b, cache_dir=tmp_path / "cache")
    assert "TMPDIR" in str(caught.value.hint)
