"""The files of a recorder: the Python ones, and strace with its own loader and libraries where it is wanted."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import msgspec

from imgdiff.errors import UsageError
from imgdiff.recorder.settings import LOADER

MOUNTED: Final = Path(__file__).parent / "mounted"
EXPORTED: Final = "imgdiff-recorder"  # the directory that is meant where none is named
_LIBRARY: Final = re.compile(r"\s*(?:(?P<name>\S+) => )?(?P<path>/\S+)(?: \(0x[0-9a-f]+\))?\s*")
_STATIC: Final = re.compile(r"not a dynamic executable|statically linked|not a valid dynamic program", re.IGNORECASE)
_EVERYONE: Final = 0o777  # a container's user can be anyone


class Part(msgspec.Struct, frozen=True):
    """A directory (``data`` is None) or file of a recorder, by its path below the recorder's root."""

    name: str
    data: bytes | None
    mode: int


def parts(*, syscalls: bool) -> list[Part]:
    """Return everything that lies below ``/imgdiff`` in a container that is recorded, directories first.

    Raises UsageError where strace is wanted and there is none.
    """
    found = [Part("python", None, 0o755)]
    found += [Part(f"python/{path.name}", path.read_bytes(), 0o644) for path in sorted(MOUNTED.glob("*.py"))]
    if syscalls:
        found += _strace()
    return [*found, Part("out", None, _EVERYONE)]


def own_loader(files: list[Part]) -> bool:
    """Tell whether strace comes with its loader, and is not static."""
    return any(part.name == f"strace/{LOADER}" for part in files)


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
    """Tell whether a recorder of this version was exported to a directory (and strace, where it is wanted)."""
    wanted = [part for part in parts(syscalls=False) if part.data is not None]
    try:
        same = all((directory / part.name).read_bytes() == part.data for part in wanted)
    except OSError:
        return False
    return same and (directory / "out").is_dir() and (not syscalls or (directory / "strace" / "strace").is_file())


def _strace() -> list[Part]:
    """Return this machine's strace, which runs in any image of its architecture: it brings what it is linked with."""
    program = os.environ.get("IMGDIFF_STRACE") or shutil.which("strace")
    if program is None:
        raise UsageError("--syscalls needs strace, and there is none", "install it, or name one in IMGDIFF_STRACE")
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
                raise UsageError(f"strace can't be used: {line.strip()}", "install it anew")
        if listed.returncode or LOADER not in libraries:
            raise UsageError(f"{program!r} can't be used as strace: {said.strip()}", "name another in IMGDIFF_STRACE")
    try:
        found = [Part("strace", None, 0o755), Part("strace/strace", Path(program).read_bytes(), 0o755)]
        for name, place in sorted(libraries.items()):
            found.append(Part(f"strace/{name}", Path(place).read_bytes(), 0o755))
    except OSError as error:
        raise UsageError(f"strace can't be read: {error.strerror}", "name another in IMGDIFF_STRACE") from error
    return found
