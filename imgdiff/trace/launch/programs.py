"""Where a program is found by its name, and which Python environment an interpreter belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from imgdiff.model import HOLE, Attribution, Environment, Tree
from imgdiff.starting import DEFAULT_PATH
from imgdiff.trace.launch.places import at_homes

_MAX_HOMES = 6


class Programs:
    """The programs of one image."""

    def __init__(self, tree: Tree, attribution: Attribution) -> None:
        self.tree, self.attribution = tree, attribution

    def which(self, name: str, env: Mapping[str, str], cwd: bytes) -> bytes | None:
        """Return the path (links not followed) under which a program is found, or None."""
        if not name or HOLE in name or "\n" in name:
            return None
        encoded = name.encode("utf-8", "surrogateescape")
        if b"/" in encoded:
            while encoded.startswith(b"./"):
                encoded = encoded[2:]
            candidates = [encoded]
        else:
            directories = env.get("PATH", DEFAULT_PATH).split(":")
            candidates = [directory.encode("utf-8", "surrogateescape") + b"/" + encoded for directory in directories]
        for candidate in candidates:
            full = candidate.strip(b"/") if candidate.startswith(b"/") else (cwd + b"/" + candidate).strip(b"/")
            entry = self.tree.lookup(full)
            if entry is not None and entry.type == "file" and entry.mode & 0o111:
                return full
        return None

    def environment(self, invoked: bytes) -> Environment | None:
        """Return the environment of an interpreter by the name under which it is started: ``pyvenv.cfg`` beside or
        above that name decides (PEP 405). CPython follows no link to it (Modules/getpath.py): a link to a virtual
        environment's interpreter, or to its ``bin``, starts the interpreter below."""
        environments = self.attribution.environments
        prefix = self.tree.resolve(invoked.rpartition(b"/")[0].rpartition(b"/")[0])
        for environment in environments:
            if environment.prefix == prefix and environment.prefix != environment.base:
                return environment
        binary = self.tree.resolve(invoked)
        exact = [each for each in environments if each.executable == binary and each.prefix == each.base]
        if exact:
            return exact[0]
        above = self._above(binary or invoked)
        if above is not None:
            return above
        version = re.search(rb"(\d+\.\d+)", (binary or invoked).rpartition(b"/")[2])
        same = [each for each in environments if version and each.version == version[1].decode()]
        return next(iter(same or environments), None)

    def _above(self, binary: bytes) -> Environment | None:
        """The environment of a copy of an interpreter: it looks for its standard library in ``lib`` of the directory
        above its own, and so on upwards (CPython's Modules/getpath.py)."""
        found = re.search(rb"(\d+\.\d+)", binary.rpartition(b"/")[2])
        directory = binary.rpartition(b"/")[0]
        while directory:
            directory = directory.rpartition(b"/")[0]
            here = [each for each in self.attribution.environments if each.prefix == each.base == directory]
            fitting = [each for each in here if found is None or each.version == found[1].decode()]
            if fitting:
                return fitting[0]
        return None

    def packaged(self, path: bytes) -> bool:
        """Tell whether a file belongs to a package of the image's distribution."""
        claims = self.attribution.claims.get(path, ())
        return any(self.attribution.owners[claim.owner].kind in ("dpkg", "rpm") for claim in claims)

    def homes(self, env: Mapping[str, str]) -> list[bytes]:
        """Return where a login shell can begin (``su -``, ``sudo -i``)."""
        names = at_homes("~", env, self.tree) + at_homes("~", {}, self.tree)
        found = (self.tree.resolve(name.encode("utf-8", "surrogateescape")) for name in dict.fromkeys(names))
        return [each for each in found if each is not None][:_MAX_HOMES]

    def directory_named(self, word: str, cwd: bytes) -> bytes | None:
        """Return the directory that a word of a wrapper names: ``DIR``, ``-CDIR``, ``--chdir=DIR``."""
        value = word
        if word.startswith("--"):
            value = word.partition("=")[2]
        elif word.startswith("-"):
            value = word[2:]
        path = self.tree.resolve(value.encode("utf-8", "surrogateescape"), cwd) if value and HOLE not in value else None
        return path if path is not None and self.tree.is_dir(path) else None


def python_names(attribution: Attribution, exists: Callable[[bytes], bool]) -> Iterator[str]:
    """Yield command names under which the image's interpreters are found, for entries that only say ``python``."""
    for environment in attribution.environments:
        for name in (b"python3", b"python", b"python" + environment.version.encode()):
            path = (environment.prefix + b"/" if environment.prefix else b"") + b"bin/" + name
            if exists(path):
                yield "/" + path.decode("utf-8", "surrogateescape")
