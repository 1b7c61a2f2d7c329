"""ELF files for tests: made by rule, by gcc where there is one, and those of the machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imgdiff.kinds.elf import Scanner
from imgdiff.model import ElfFacts, Unreadable
from tests.support.elf import Elf, elf_bytes

SMALL = Elf(
    soname="libsmall.so.1",
    needed=("libc.so.6", "libdl.so.2"),
    runpath="$ORIGIN/../lib",
    exports=("small_run", "small_stop"),
    imports=("dlopen", "PyImport_ImportModule"),
    strings=("/usr/share/small/table.bin", "libplugin_%s.so", "numpy", "no separator here", "a/b"),
    build_id=bytes(range(20)),
    files=("tmpxft_00001f2b_00000000-6_kernel.cudafe1.cpp",),
)


def scan(data: bytes, chunk: int = 1 << 16, head: int = 4096) -> ElfFacts | Unreadable | None:
    """Feed a whole file to a Scanner in chunks."""
    scanner = Scanner(data[:head], len(data))
    view = memoryview(data)
    for at in range(0, len(data), chunk):
        scanner.feed(view[at : at + chunk])
    return scanner.finish()


def small(**changes: Any) -> bytes:
    """Return the small library with some of its parts changed."""
    return elf_bytes(Elf(**{**{name: getattr(SMALL, name) for name in SMALL.__dataclass_fields__}, **changes}))


SOURCE = r"""
#include <stdio.h>
#include <dlfcn.h>
const char *const table[] = {"/opt/engine/kernels.bin", "libplugin_one.so.2"};
char writable[64] = "/var/lib/engine/state.json";
int run(int x) { printf("value %d from /usr/share/engine/%s.txt\n", x, table[x & 1]); return x + 1; }
void *load(const char *name) { return dlopen(name, RTLD_NOW); }
"""


def tool(name: str) -> str:
    """Return the path of a program, or skip the test."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def compile_c(directory: Path, name: str, source: str = SOURCE, *options: str, shared: bool = True) -> Path:
    """Compile C to a shared object (or a program) with gcc, or skip the test."""
    gcc = tool("gcc")
    text = directory / "source.c"
    text.write_text(source)
    target = directory / name
    kind = ["-shared", "-fPIC"] if shared else []
    subprocess.run([gcc, *kind, "-o", str(target), str(text), *options], check=True, capture_output=True, cwd=directory)
    return target


def machine_files(limit: int, smallest: int = 0) -> Iterator[Path]:
    """Yield ELF files of this machine's library directory, evenly spread over their names."""
    places = [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"), Path("/usr/bin")]
    found = [
        path
        for place in places
        if place.is_dir()
        for path in sorted(place.iterdir())
        if path.is_file() and not path.is_symlink() and smallest <= path.stat().st_size < 3_000_000
        if _magic(path) == b"\x7fELF"
    ]
    if not found:
        pytest.skip("no ELF files are in this machine's library directories")
    yield from found[:: max(1, len(found) // limit)]


def _magic(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4)
    except OSError:
        return b""
