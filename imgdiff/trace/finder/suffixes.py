"""The suffixes of extension modules that an interpreter takes, in its own order (CPython's Python/dynload_shlib.c)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from imgdiff.model import Environment, Tree

_DYNLOAD = re.compile(rb"[^.]+\.cpython-\d+([a-z]*)-([\w.-]+)\.so")
_CONFIG = re.compile(rb"_sysconfigdata_([a-z]*)_(?:linux_)?([\w.-]+?)\.py")  # sysconfig._get_sysconfigdata_name
DEBUG_NAME: Final = re.compile(rb"(?:.*/)?python[\d.]*t?(?:d|-dbg)", re.DOTALL)
_ANY = rb"[\w.-]+"


def is_cpython(environment: Environment) -> bool:
    """Tell whether an interpreter is CPython, by the names of its standard library and of itself."""
    return _other(environment) is None


def _other(environment: Environment) -> bytes | None:
    """Return what an interpreter is called that is no CPython."""
    names = ((environment.stdlib or b"").rpartition(b"/")[2], (environment.executable or b"").rpartition(b"/")[2])
    return next((other for other in (b"pypy", b"graalpy") if any(name.startswith(other) for name in names)), None)


def builds(tree: Tree, environment: Environment) -> frozenset[bytes]:
    """Return the ABI flags of the builds that share a standard library: none, ``d`` for debug, ``t`` for free-threaded
    (Debian's python3-dbg lies beside python3)."""
    return frozenset(flags for flags, _ in _said(tree, environment))


class Suffixes:
    """Which extension modules one interpreter loads."""

    def __init__(self, tree: Tree, environment: Environment) -> None:
        said = list(_said(tree, environment))
        platforms = {platform for _, platform in said}
        # Python looks for no module of another platform than that of its standard library's own.
        platform = re.escape(platforms.pop()) if len(platforms) == 1 else _ANY
        known = {flags for flags, _ in said}
        free = all(b"t" in flags for flags in known) if known else _free(environment)
        debug = all(b"d" in flags for flags in known) if known else _debug(environment)
        version = tuple(map(int, environment.version.split(".")))
        tag = rb"\.cpython-" + re.escape(environment.version.replace(".", "").encode())
        release = rb"t" if free else rb"m?u?" if version < (3, 8) else rb""
        own, traced = (tag + release + flag + rb"(?:-" + platform + rb")?\.so" for flag in (b"", b"d"))
        order = [traced, own] if debug else [own]
        other = _other(environment)
        if other is not None:
            order.insert(0, rb"\." + other + rb"[\w-]*\.so")
        if not free:
            order.append(rb"\.abi3\.so")
        if version >= (3, 15) or not free:
            order.append(rb"\.abi3t\.so")
        order.append(rb"\.so")
        if not debug:
            order.append(traced)  # a build that nothing here tells of
        self._order = [re.compile(each, re.ASCII) for each in order]

    def rank(self, suffix: bytes) -> int | None:
        """Return how early a suffix is asked for, None if never."""
        return next((number for number, each in enumerate(self._order) if each.fullmatch(suffix)), None)


def _said(tree: Tree, environment: Environment) -> Iterator[tuple[bytes, bytes]]:
    """Yield the ABI flags and the platform of the standard library's extension modules, else of its configuration."""
    if environment.stdlib is None:
        return
    for directory, names in ((environment.stdlib + b"/lib-dynload", _DYNLOAD), (environment.stdlib, _CONFIG)):
        found = [match for name in tree.children(directory) if (match := names.fullmatch(name)) is not None]
        if found:
            yield from ((match[1].translate(None, b"mu"), match[2]) for match in found)
            return


def _debug(environment: Environment) -> bool:
    """Tell whether an interpreter is a debug build, by its name."""
    return DEBUG_NAME.fullmatch(environment.executable or b"") is not None


def _free(environment: Environment) -> bool:
    """Tell whether an interpreter is free-threaded, by the names of its directories."""
    sites = (site.rpartition(b"/")[0] for site in environment.sites)
    names = [each for each in (environment.stdlib, environment.executable, *sites) if each]
    return any(re.fullmatch(rb"(?:.*/)?python\d+\.\d+t[d]?", name, re.DOTALL) for name in names)
