"""What ``umoci unpack`` makes of layers, as an oracle for flattening."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from imgdiff.model import FileType, Tree
from tests.support.images import Member, tar_bytes, write_layout

UMOCI = shutil.which("umoci")
needs_umoci = pytest.mark.skipif(UMOCI is None, reason="umoci, the oracle for flattening, is not installed")
ROOT = os.geteuid() == 0

Layers = Sequence[Sequence[Member]]


class Seen(NamedTuple):
    """What both sides of a comparison know of one name. Owners are compared only where root unpacked."""

    type: FileType
    mode: int | None
    owner: tuple[int, int] | None
    content: bytes | None
    group: tuple[bytes, ...]


def unpack(directory: Path, layers: Layers) -> Path | None:
    """Let umoci unpack these layers and return the root file system, or None if it refuses to."""
    assert UMOCI is not None
    layout = directory / "layout"
    write_layout(layout, [tar_bytes(layer) for layer in layers], {}, "gzip", "t")
    bundle = directory / "bundle"
    command = [UMOCI, "unpack", *([] if ROOT else ["--rootless"]), "--image", f"{layout}:t", str(bundle)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, umask=0o022)
    return bundle / "rootfs" if done.returncode == 0 else None


def seen_on_disk(root: Path, attributes: bool = True) -> dict[bytes, Seen]:
    """Return every name below a directory."""
    found: dict[bytes, tuple[os.stat_result, Path]] = {}
    for top, directories, files in os.walk(root):
        for member in (*directories, *files):
            path = Path(top, member)
            found[os.fsencode(path.relative_to(root))] = (path.lstat(), path)
    groups: dict[int, list[bytes]] = {}
    for name, (status, _) in found.items():
        if not stat.S_ISDIR(status.st_mode):
            groups.setdefault(status.st_ino, []).append(name)
    seen = {}
    for name, (status, path) in found.items():
        kind = _kind(status.st_mode)
        content = None
        if kind == "file":
            content = hashlib.sha256(path.read_bytes()).digest()
        elif kind == "symlink":
            content = os.readlink(os.fsencode(path))  # noqa: PTH115  a Path would lose a trailing slash
        group = sorted(groups.get(status.st_ino, [])) if kind != "dir" else []
        seen[name] = Seen(
            kind,
            stat.S_IMODE(status.st_mode) if attributes and kind != "symlink" else None,
            (status.st_uid, status.st_gid) if attributes and ROOT else None,
            content,
            tuple(group) if len(group) > 1 else (),
        )
    return seen


def seen_in_tree(tree: Tree, attributes: bool = True) -> dict[bytes, Seen]:
    """Return every name of a tree."""
    groups: dict[bytes, list[bytes]] = {}
    for name, first in tree.hardlinks.items():
        groups.setdefault(first, []).append(name)
    return {
        path: Seen(
            entry.type,
            entry.mode if attributes and entry.type != "symlink" else None,
            (entry.uid, entry.gid) if attributes and ROOT else None,
            entry.digest if entry.type == "file" else entry.link_target,
            tuple(sorted(groups[tree.hardlinks[path]])) if path in tree.hardlinks else (),
        )
        for path, entry in tree.entries.items()
    }


def _kind(mode: int) -> FileType:
    kinds: dict[int, FileType] = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "dir",
        stat.S_IFLNK: "symlink",
        stat.S_IFCHR: "char",
        stat.S_IFBLK: "block",
        stat.S_IFIFO: "fifo",
    }
    return kinds[stat.S_IFMT(mode)]
