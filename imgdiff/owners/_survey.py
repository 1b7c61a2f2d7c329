"""One pass over all names of a tree: where the things lie by which owners are known."""

from __future__ import annotations

import re

from imgdiff.model import FileEntry, Tree

_PYTHON = re.compile(rb"(?:python|pypy)(\d+\.\d+)t?\Z")
# Parts of a path below which packages are only stored: pip's and uv's caches, builds under way.
_CACHE_PART = re.compile(rb"(?:\.cache|(?:archive|builds|sdists|wheels)-v\d+|__pycache__)\Z")
_FILE_ENDS = (
    b"os.py",
    b"pyvenv.cfg",
    b".egg-info",
    b".egg-link",
    b".pth",
    b"CACHEDIR.TAG",
    *(str(digit).encode() for digit in range(10)),
    b"t",
)


class Survey:
    """Where the signs of owners lie. All lists are sorted by bytes.

    ``infos``: dist-info directories, egg-info directories and files, ``EGG-INFO`` directories. ``sites``: directories
    that hold distributions by their name (site-packages, dist-packages). ``stdlibs``: standard libraries with their
    minor version. ``pythons``: executables called ``pythonX.Y`` in a bin directory. ``conda``: prefixes of conda
    environments. ``venvs``: directories with a ``pyvenv.cfg``. ``directories``: all of them.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.infos: list[bytes] = []
        self.sites: list[bytes] = []
        self.stdlibs: list[tuple[bytes, str]] = []
        self.pythons: list[tuple[bytes, str]] = []
        self.conda: list[bytes] = []
        self.venvs: list[bytes] = []
        self.egg_links: list[bytes] = []
        self.pths: list[bytes] = []
        self.bytecode: list[bytes] = []
        self.directories: list[bytes] = []
        self._tags: set[bytes] = set()
        self._cached: dict[bytes, bool] = {b"": False}
        for path, entry in tree.entries.items():
            name = path[path.rfind(b"/") + 1 :]
            if entry.type == "dir":
                self._directory(path, name)
            elif name.endswith(b".pyc"):
                self.bytecode.append(path)
                if name == b"os.pyc":
                    self._stdlib(path)
            elif name.endswith(_FILE_ENDS):
                self._file(path, name, entry)
        self._tags.update(prefix + b"/pkgs" if prefix else b"pkgs" for prefix in self.conda)
        self._prefixes = {*self.conda, *self.venvs}
        for found in (
            self.infos,
            self.sites,
            self.conda,
            self.venvs,
            self.egg_links,
            self.pths,
            self.bytecode,
            self.directories,
        ):
            found.sort()
        self.infos = [path for path in self.infos if not self.in_cache(path)]
        self.sites = [path for path in self.sites if not self.in_cache(path)]
        self.conda = [path for path in self.conda if not self.in_cache(path)]
        self.venvs = [path for path in self.venvs if not self.in_cache(path)]
        self.stdlibs = sorted(
            {(path, version) for path, version in self.stdlibs if not self.in_cache(path)}, key=lambda found: found
        )
        self.pythons = sorted(found for found in self.pythons if not self.in_cache(found[0]))

    def _directory(self, path: bytes, name: bytes) -> None:
        self.directories.append(path)
        if name.endswith((b".dist-info", b".egg-info")) or name == b"EGG-INFO":
            self.infos.append(path)
        elif name in (b"site-packages", b"dist-packages"):
            self.sites.append(path)
        elif name == b"conda-meta":
            self.conda.append(path.rpartition(b"/")[0])

    def _file(self, path: bytes, name: bytes, entry: FileEntry) -> None:
        if name == b"os.py":
            self._stdlib(path)
        elif name == b"pyvenv.cfg":
            self.venvs.append(path.rpartition(b"/")[0])
        elif name.endswith(b".egg-info"):
            self.infos.append(path)
        elif name.endswith(b".egg-link"):
            self.egg_links.append(path)
        elif name.endswith(b".pth"):
            self.pths.append(path)
        elif name == b"CACHEDIR.TAG":
            self._tags.add(path.rpartition(b"/")[0])
        elif entry.type == "file" and (match := _PYTHON.match(name)):
            directory = path.rpartition(b"/")[0]
            if directory.rpartition(b"/")[2] == b"bin":
                self.pythons.append((path, match[1].decode()))

    def _stdlib(self, path: bytes) -> None:
        directory = path.rpartition(b"/")[0]
        parent, _, name = directory.rpartition(b"/")
        match = _PYTHON.match(name)
        if match and parent.rpartition(b"/")[2] in (b"lib", b"lib64"):
            self.stdlibs.append((directory, match[1].decode()))

    def in_cache(self, path: bytes) -> bool:
        """Tell whether a path lies where packages are only stored (``~/.cache``, uv's and conda's stores, anything
        with a CACHEDIR.TAG), so that no interpreter imports from there.

        An environment inside a cache is one all the same: poetry keeps them in ``~/.cache``, and uv and virtualenv
        tag every environment as a cache.
        """
        # No recursion: hostile paths can be thousands of directories deep.
        pending: list[bytes] = []
        while path not in self._cached:
            pending.append(path)
            path = path.rpartition(b"/")[0]
        result = self._cached[path]
        for step in reversed(pending):
            if step in self._prefixes:
                result = False
            elif not result:
                result = step in self._tags or bool(_CACHE_PART.match(step.rpartition(b"/")[2]))
            self._cached[step] = result
        return result
