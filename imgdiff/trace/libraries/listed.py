"""Libraries of directories that many files share (``/usr/lib64``), where code opens what it finds there.

A string that holds such a directory names nothing below it: too many do. But a module that opens libraries and says
such a directory can list it, or put it before a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from imgdiff.engines import common
from imgdiff.model import HOLE, Tree
from imgdiff.trace.closure.reach import Reach
from imgdiff.trace.graph.blocks import Block, Unit
from imgdiff.trace.paths import is_shared_object

_OPENERS = frozenset({"CDLL", "PyDLL", "cdll", "pydll", "LoadLibrary", "dlopen", "load_library"})
_DEEP = frozenset({"walk", "fwalk", "rglob"})
_LISTS = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH")  # of ENV: what stands there names nothing below it, either


def libraries_listed(reach: Reach, tree: Tree, env: Mapping[str, str]) -> Iterator[tuple[str, Unit]]:
    """Yield the shared objects that reached code can find in a directory and open, by absolute name, with the module
    that does."""
    shared = frozenset(common().common_directories) | {part for name in _LISTS for part in env.get(name, "").split(":")}
    opening: dict[Unit, list[Block]] = {}
    for block in reach.done:
        if not _OPENERS.isdisjoint(block.refs) and block.unit.top not in reach.standard:
            opening.setdefault(block.unit, [])
    for block in reach.done:
        if block.unit in opening:
            opening[block.unit].append(block)
    for unit, blocks in sorted(opening.items(), key=lambda item: (item[0].name, item[0].place)):
        texts = {text for block in blocks for text in (*block.files, *block.texts, *block.patterns)}
        deep = any("**" in text for text in texts) or any(not _DEEP.isdisjoint(block.refs) for block in blocks)
        for directory in sorted({_directory(text) for text in texts if text.startswith("/")} & shared):
            found = tree.resolve(directory.encode("utf-8", "surrogateescape"))
            if found and tree.is_dir(found):
                for path in _files(tree, found, deep):
                    if is_shared_object(path):
                        yield "/" + path.decode("utf-8", "surrogateescape"), unit


def _directory(text: str) -> str:
    """Return the directory that a text names, or that it fixes before a name which it leaves open."""
    known = text.partition(HOLE)[0].partition("*")[0]
    return (known if known == text else known.rpartition("/")[0]).rstrip("/")


def _files(tree: Tree, directory: bytes, deep: bool) -> Iterator[bytes]:
    if deep:
        return (entry.path for entry in tree.walk(directory))
    return (directory + b"/" + name for name in tree.children(directory))
