"""Interpreters: the standard library of each, with the interpreter itself and its shared library."""

from __future__ import annotations

import posixpath
import re

from imgdiff.owners._ledger import Ledger, below, join

_LIBRARY = re.compile(rb"libpython3[\w.]*\.so[\w.]*\Z|libpypy3[\w.-]*\.so[\w.]*\Z")
_BINARY = re.compile(rb"(?:python|pypy)(?:3(?:\.\d+t?)?)?\Z")


def find(ledger: Ledger) -> None:
    """Claim each interpreter's standard library, whoever else owns it; its site directories are not part of it.

    Relative paths start at the library's directory, the binary's and the shared library's lead out of it.
    """
    seen: set[bytes] = set()
    for environment in ledger.environments:
        stdlib = environment.stdlib
        if stdlib is None or stdlib in seen or environment.prefix != environment.base:
            continue
        seen.add(stdlib)
        implementation = "pypy" if stdlib.rpartition(b"/")[2].startswith(b"pypy") else "cpython"
        owner = ledger.owner("stdlib", f"{implementation}-{environment.version}", None, stdlib)
        apart = frozenset(join(stdlib, name) for name in (b"site-packages", b"dist-packages"))
        cut = len(stdlib) + 1
        for path in below(ledger.tree, stdlib, apart):
            ledger.claim(path, owner, "stdlib", path[cut:])
        for path in _around(ledger, environment.prefix, environment.version.encode()):
            ledger.claim(path, owner, "stdlib", posixpath.relpath(b"/" + path, b"/" + stdlib))


def _around(ledger: Ledger, prefix: bytes, minor: bytes) -> list[bytes]:
    """The interpreter's binary and the links to it, and libpython beside the standard library."""
    found = []
    bin_directory = join(prefix, b"bin")
    for name in ledger.tree.children(bin_directory):
        if _BINARY.match(name):
            target = ledger.tree.resolve(name, bin_directory)
            if target is not None and target.startswith(bin_directory) and target.rstrip(b"t").endswith(minor):
                found.append(join(bin_directory, name))
    for libdir in (b"lib", b"lib64"):
        directory = join(prefix, libdir)
        found += [
            join(directory, name)
            for name in ledger.tree.children(directory)
            if _LIBRARY.match(name) and (minor in name or name == b"libpython3.so")
        ]
    return found
