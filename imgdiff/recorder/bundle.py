"""The files of a recorder: the Python ones, and what traces system calls, with what it is linked with."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from imgdiff.errors import UsageError
from imgdiff.recorder.settings import LOADER, OURS, Tracer

MOUNTED: Final = Path(__file__).parent / "mounted"
SOURCE: Final = Path(__file__).parent / "tracer.c"
EXPORTED: Final = "imgdiff-recorder"  # the directory that is meant where none is named
_LIBRARY: Final = re.compile(r"\s*(?:(?P<name>\S+) => )?(?P<path>/\S+)(?: \(0x[0-9a-f]+\))?\s*")
_STATIC: Final = re.compile(r"not a dynamic executable|statically linked|not a valid dynamic program", re.IGNORECASE)
_EVERYONE: Final = 0o777  # a container's user can be anyone
_COMPILERS: Final = ("cc", "gcc", "clang")
_PATIENCE: Final = 60.0  # seconds for a compiler


class Part(msgspec.Struct, frozen=True):
    """A directory (``data`` is None) or file of a recorder, by its path below the recorder's root."""

    name: str
    data: bytes | None
    mode: int


def parts(*, syscalls: bool) -> list[Part]:
    """Return everything that lies below ``/imgdiff`` in a container that is recorded, directories first.

    Raises UsageError where system calls are wanted and there is no tracer.
    """
    found = [Part("python", None, 0o755)]
    found += [Part(f"python/{path.name}", path.read_bytes(), 0o644) for path in sorted(MOUNTED.glob("*.py"))]
    if syscalls:
        found += _tracer()
    return [*found, Part("out", None, _EVERYONE)]


def tracer(files: Sequence[Part]) -> Tracer:
    """Tell which tracer is among the parts of a recorder that has one."""
    names = {part.name for part in files}
    return Tracer(OURS if f"strace/{OURS}" in names else "strace", f"strace/{LOADER}" in names)


def export(directory: Path, *, syscalls: bool) -> None:
    """Write a recorder to a directory that is not there, or empty. Raises UsageError where that can't be done."""
    files = parts(syscalls=syscalls)
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise UsageError(f"{str(directory)!r} is there already, and is no empty directory", "name another one")
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)  # who runs in the container is anyone
        for part in files:
            path = directory / part.name
            if part.data is None:
                path.mkdir()
            else:
                path.write_bytes(part.data)
            path.chmod(part.mode)
    except OSError as error:
        raise UsageError(f"{str(directory)!r} can't be written: {error.strerror}", "name another directory") from error


def exported(directory: Path, *, syscalls: bool) -> bool:
    """Tell whether a recorder of this version was exported to a directory (and this tracer, where one is wanted)."""
    wanted = [part for part in parts(syscalls=False) if part.data is not None]
    try:
        same = all((directory / part.name).read_bytes() == part.data for part in wanted)
    except OSError:
        return False
    if not same or not (directory / "out").is_dir():
        return False
    names = [part.name for part in parts(syscalls=True) if part.name.startswith("strace/")] if syscalls else []
    return all((directory / name).is_file() for name in names)


def _tracer() -> list[Part]:
    """Return what traces system calls: the strace that the user names; ours, which costs far less, where it can be
    built; else this machine's strace. Raises UsageError where there is none."""
    named = os.environ.get("IMGDIFF_STRACE")
    ours = None if named else _built()
    if ours is not None:
        return [Part("strace", None, 0o755), *ours]
    program = named or shutil.which("strace")
    if program is None:
        raise UsageError(
            "--syscalls needs a C compiler (on x86-64) or strace, and there is neither",
            "install one, or name a strace in IMGDIFF_STRACE",
        )
    return [Part("strace", None, 0o755), *_linked(program, "strace")]


@functools.cache
def _built() -> tuple[Part, ...] | None:
    """Build our tracer with this machine's C compiler; None where there is none, or it can't.

    A static one where the C library can be linked so, else one that brings its loader and libraries.
    """
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None or platform.machine() != "x86_64":
        return None
    with tempfile.TemporaryDirectory(prefix="imgdiff-") as directory:
        program = Path(directory) / OURS
        for static in (("-static",), ()):
            command = [compiler, "-O2", "-w", *static, "-o", str(program), str(SOURCE)]
            try:
                done = subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE)
            except (OSError, subprocess.TimeoutExpired):
                return None
            if done.returncode == 0 and program.is_file():
                return tuple(_linked(str(program), OURS))
    return None


def _linked(program: str, called: str) -> list[Part]:
    """Return a program and what it is linked with, so that it runs in any image of its architecture."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    said = listed.stdout + listed.stderr
    libraries: dict[str, str] = {}
    if not _STATIC.search(said):
        for line in listed.stdout.splitlines():
            match = _LIBRARY.fullmatch(line)
            if match is not None:
                name = match["name"] or match["path"]
                libraries[LOADER if name.startswith("/") else name] = match["path"]
            elif "not found" in line:
                raise UsageError(f"{called} can't be used: {line.strip()}", "install it anew")
        if listed.returncode or LOADER not in libraries:
            raise UsageError(f"{program!r} can't be used as {called}: {said.strip()}", "name another in IMGDIFF_STRACE")
    try:
        found = [Part(f"strace/{called}", Path(program).read_bytes(), 0o755)]
        for name, place in sorted(libraries.items()):
            found.append(Part(f"strace/{name}", Path(place).read_bytes(), 0o755))
    except OSError as error:
        raise UsageError(f"{called} can't be read: {error.strerror}", "name another in IMGDIFF_STRACE") from error
    return found
