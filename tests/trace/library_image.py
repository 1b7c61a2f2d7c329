"""Small images of libraries, and this machine's own file system as one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from imgdiff.kinds import elf
from imgdiff.model import ElfFacts, FileEntry, FileType, ModuleFacts, ShellFacts, Tree, Unreadable
from tests.support.elf import Elf, elf_bytes

LOADER = "/lib64/ld-linux-x86-64.so.2"
Content = Elf | bytes | str  # a str is a symlink's target


class LibraryImage:
    """A tree and a FactSource over ``files``: by path without a leading slash, an ELF file, bytes, or a link."""

    def __init__(self, files: Mapping[str, Content]) -> None:
        self._contents = {
            path.encode(): elf_bytes(content) if isinstance(content, Elf) else content
            for path, content in files.items()
            if not isinstance(content, str)
        }
        entries: dict[bytes, FileEntry] = {}
        for path, content in files.items():
            for parent in list(Path(path).parents)[:-1]:
                entries.setdefault(str(parent).encode(), _entry(str(parent).encode(), "dir"))
            link = content.encode() if isinstance(content, str) else None
            entries[path.encode()] = _entry(path.encode(), "symlink" if link is not None else "file", link)
        self.tree = Tree(entries)

    def prefetch(self, paths: Iterable[bytes]) -> None:
        """Nothing to do."""

    def elf(self, path: bytes) -> ElfFacts | Unreadable | None:
        """Return the facts of a file of the image."""
        return elf.facts(self._contents.get(path, b""))

    def text(self, path: bytes) -> bytes | None:
        """Return a file's content, links followed."""
        found = self.tree.resolve(path)
        return self._contents.get(found) if found is not None else None

    def module(self, path: bytes) -> ModuleFacts | Unreadable:
        """Not asked for here."""
        raise NotImplementedError

    def shell(self, path: bytes) -> ShellFacts | Unreadable:
        """Not asked for here."""
        raise NotImplementedError

    def runs(self, path: bytes) -> Literal["source", "bytecode"]:
        """Not asked for here."""
        raise NotImplementedError


class Machine(LibraryImage):
    """The file system below ``root`` as an image, as far as ``places`` (absolute paths in it) reach."""

    def __init__(self, places: Iterable[str], root: str = "/") -> None:
        super().__init__({})
        self._root = Path(root)
        self._facts: dict[bytes, ElfFacts | Unreadable | None] = {}
        entries: dict[bytes, FileEntry] = {}
        for place in places:
            self._add(self._root / place.lstrip("/"), entries)
        self.tree = Tree(entries)

    def _add(self, path: Path, entries: dict[bytes, FileEntry]) -> None:
        key = os.fsencode(path.relative_to(self._root))
        if key == b"." or key in entries or not os.path.lexists(path):
            return
        for parent in path.relative_to(self._root).parents:
            above = os.fsencode(parent)
            if above != b"." and above not in entries:
                entries[above] = self._of(self._root / parent, above)
        entries[key] = self._of(path, key)
        if entries[key].type == "dir":
            for below in path.iterdir():
                self._add(below, entries)

    def _of(self, path: Path, key: bytes) -> FileEntry:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return _entry(key, "symlink", os.fsencode(path.readlink()))
        return _entry(key, "dir" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "char")

    def share(self, other: Machine) -> None:
        """Take the facts that another one of the same root has made already."""
        self._facts = other._facts

    def elf(self, path: bytes) -> ElfFacts | Unreadable | None:
        """Return the facts of a file of the machine."""
        if path not in self._facts:
            try:
                with (self._root / os.fsdecode(path)).open("rb") as file:
                    self._facts[path] = elf.facts(file)
            except OSError as error:
                self._facts[path] = Unreadable(str(error))
        return self._facts[path]

    def text(self, path: bytes) -> bytes | None:
        """Return a file's content, links followed."""
        found = self.tree.resolve(path)
        place = self._root / os.fsdecode(found) if found is not None else None
        return place.read_bytes() if place is not None and place.is_file() else None


def _entry(path: bytes, kind: FileType, link: bytes | None = None) -> FileEntry:
    return FileEntry(path, kind, 0o755, 0, 0, 0, 0, None, link)
