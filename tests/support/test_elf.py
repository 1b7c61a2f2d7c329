"""The ELF files that fixtures are made of are read by readelf, and loaded by the loader, without a complaint."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.elf import Elf, elf_bytes

LIBRARY = Elf(
    soname="libtiny.so.1",
    needed=["libc.so.6"],
    runpath="$ORIGIN/../lib",
    exports=["tiny_zero", "tiny_one"],
    imports=["dlopen"],
    strings=["/etc/tiny.conf", "libother.so.2", b"\xff\x00"],
    files=["tmpxft_00001234_00000000-6_tiny.cpp"],
    build_id=bytes(range(20)),
    sections=[("OFFLOAD_DEVICE_CODE", b"!<arch>\n")],
)
PROGRAM = Elf(interpreter="/lib64/ld-linux-x86-64.so.2", needed=["libc.so.6"], exports=["main"])
READELF = shutil.which("readelf")


@pytest.mark.skipif(READELF is None, reason="readelf, the oracle, is not installed")
@pytest.mark.parametrize("elf", [LIBRARY, PROGRAM, Elf(), Elf(soname="x", rpath="/a:/b"), Elf(build_id=b"\x01" * 7)])
def test_readelf_has_no_complaint(elf: Elf, tmp_path: Path) -> None:
    path = tmp_path / "file.so"
    path.write_bytes(elf_bytes(elf))
    assert READELF is not None
    done = subprocess.run([READELF, "-aW", str(path)], capture_output=True, check=True, text=True)
    assert done.stderr == ""
    assert "Warning" not in done.stdout
    for word in filter(
        None, [elf.soname, elf.runpath, elf.rpath, elf.interpreter, *elf.needed, *elf.exports, *elf.files]
    ):
        assert word in done.stdout
    if elf.build_id:
        assert f"Build ID: {elf.build_id.hex()}" in done.stdout


@pytest.mark.skipif(READELF is None, reason="readelf, the oracle, is not installed")
def test_strings_lie_in_read_only_data(tmp_path: Path) -> None:
    path = tmp_path / "file.so"
    path.write_bytes(elf_bytes(LIBRARY))
    assert READELF is not None
    done = subprocess.run([READELF, "-p", ".rodata", str(path)], capture_output=True, check=True, text=True)
    assert "/etc/tiny.conf" in done.stdout
    assert "libother.so.2" in done.stdout


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the files are made for Linux on x86-64"
)
def test_the_loader_maps_one_and_finds_its_functions(tmp_path: Path) -> None:
    path = tmp_path / "libtiny.so.1"
    path.write_bytes(elf_bytes(Elf(soname="libtiny.so.1", needed=["libc.so.6"], exports=["tiny_zero", "tiny_one"])))
    library = ctypes.CDLL(str(path))
    assert library.tiny_zero() == 0
    assert library.tiny_one() == 1


def test_the_same_parts_give_the_same_bytes() -> None:
    assert elf_bytes(LIBRARY) == elf_bytes(LIBRARY)
    assert len(elf_bytes(LIBRARY)) < 3_000
