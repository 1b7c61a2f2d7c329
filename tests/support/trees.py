"""Trees for tests: walked from a directory on disk, or written down by hand."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from imgdiff.model import FileEntry, FileType, Tree
from imgdiff.owners import KEPT_PATTERNS

Keep = Callable[[bytes], bool]

_KEPT = [re.compile(pattern, re.DOTALL) for pattern in KEPT_PATTERNS]


class Link(msgspec.Struct, frozen=True):
    """A symlink in a hand-made tree."""

    target: bytes


class Dir(msgspec.Struct, frozen=True):
    """A directory in a hand-made tree; directories above a name are made by themselves."""


class TextsOf(dict[bytes, bytes]):
    """Contents by SHA-256, as the indexing pass would have kept them (`model.Texts`)."""


def kept_for_owners(path: bytes) -> bool:
    """Keep what the finders of owners say they need, and nothing else: so that tests hold their list to it."""
    return any(pattern.fullmatch(path) for pattern in _KEPT)


def keep_all(path: bytes) -> bool:
    return True


def made(
    files: Mapping[str | bytes, bytes | str | Link | Dir],
    keep: Keep = kept_for_owners,
    mtime: int = 1_700_000_000_000_000_000,
) -> tuple[Tree, TextsOf]:
    """Return the tree with these files (content as bytes or text), links and directories, and the kept contents."""
    entries: dict[bytes, FileEntry] = {}
    texts = TextsOf()
    for name, content in files.items():
        path = (name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")).strip(b"/")
        parent = path.rpartition(b"/")[0]
        while parent and parent not in entries:
            entries[parent] = FileEntry(parent, "dir", 0o755, 0, 0, mtime, 0)
            parent = parent.rpartition(b"/")[0]
        if isinstance(content, Link):
            entries[path] = FileEntry(path, "symlink", 0o777, 0, 0, mtime, 0, None, content.target)
        elif isinstance(content, Dir):
            entries[path] = FileEntry(path, "dir", 0o755, 0, 0, mtime, 0)
        else:
            data = content.encode() if isinstance(content, str) else content
            digest = hashlib.sha256(data).digest()
            entries[path] = FileEntry(path, "file", 0o644, 0, 0, mtime, len(data), digest)
            if keep(path):
                texts[digest] = data
    return Tree(entries), texts


def walked(root: Path, at: bytes = b"", keep: Keep = kept_for_owners) -> tuple[Tree, TextsOf]:
    """Return the tree that stands below ``root`` on disk, moved to ``at`` in the image, and the kept contents."""
    entries: dict[bytes, FileEntry] = {}
    texts = TextsOf()
    parent = at
    while parent:
        entries[parent] = FileEntry(parent, "dir", 0o755, 0, 0, 0, 0)
        parent = parent.rpartition(b"/")[0]
    top = os.fsencode(root)
    for directory, directories, names in os.walk(top):
        for name in (*directories, *names):
            full = os.path.join(directory, name)  # noqa: PTH118 - names are bytes, which pathlib doesn't take
            relative = os.path.relpath(full, top)
            path = at + b"/" + relative if at else relative
            entries[path] = _entry(path, full, texts, keep)
    return Tree(entries), texts


def _entry(path: bytes, full: bytes, texts: TextsOf, keep: Keep) -> FileEntry:
    status = os.lstat(full)
    mode, common = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid, status.st_mtime_ns)
    kinds: tuple[tuple[Callable[[int], bool], FileType], ...] = (
        (stat.S_ISDIR, "dir"),
        (stat.S_ISFIFO, "fifo"),
        (stat.S_ISCHR, "char"),
        (stat.S_ISBLK, "block"),
    )
    if stat.S_ISLNK(status.st_mode):
        return FileEntry(path, "symlink", mode, *common, 0, None, os.readlink(full))  # noqa: PTH115 - the name is bytes
    for matches, kind in kinds:
        if matches(status.st_mode):
            return FileEntry(path, kind, mode, *common, 0)
    with open(full, "rb") as file:  # noqa: PTH123 - the name is bytes
        data = file.read()
    digest = hashlib.sha256(data).digest()
    if keep(path):
        texts[digest] = data
    return FileEntry(path, "file", mode, *common, len(data), digest)
