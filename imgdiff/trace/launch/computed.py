"""What shell code can start, source or enter where it computes the name: the files that a glob matches, or that lie in
the directories which it lists. Where nothing bounds the name, only a run can tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from imgdiff.model import HOLE, Computed, Tree
from imgdiff.trace.launch.places import BROAD, at_homes, own_place

MAX_FILES = 400
"""Files that one name is followed to; where it can be more, it can be any."""

_SAYS: Mapping[str, str] = {
    "program": "starts a program by a name that it computes",
    "source": "sources a file by a name that it computes",
    "directory": "changes to a directory that it computes, and starts Python there",
    "code": "runs code that it computes",
    "argument": "gives an interpreter a name that it computes",
}


def candidates(
    found: Computed, tree: Tree, cwd: bytes, script: bytes | None, env: Mapping[str, str]
) -> list[bytes] | None:
    """Return the canonical paths of what a computed name can be (files, or directories where one is entered), in order;
    None if it can be anything."""
    if found.kind == "code":
        return None
    paths: dict[bytes, None] = {}
    if found.pattern.strip(HOLE):
        for name in at_homes(own_place(found.pattern, script), env, tree):
            matched = _matching(name, tree, cwd, directories=found.kind == "directory")
            if matched is None:
                return None
            paths.update(dict.fromkeys(matched))
    elif not found.places or found.kind == "directory":
        return None
    for place in found.places:
        directory = None if HOLE in place else tree.resolve(place.encode("utf-8", "surrogateescape"), cwd)
        if directory is None or not tree.is_dir(directory):
            continue  # an option's value, a name that is not there
        if directory in BROAD or not directory:
            return None
        paths.update(dict.fromkeys(_files(tree, directory)))
    return list(paths) if len(paths) <= MAX_FILES else None


def sentence(found: Computed, script: bytes | None) -> str:
    """Say which place it is that only a run can tell."""
    where = (
        "the command line" if script is None else f"/{script.decode('utf-8', 'backslashreplace')}, line {found.line},"
    )
    return f"{where} {_SAYS[found.kind]}: what that loads is not known"


def _matching(name: str, tree: Tree, cwd: bytes, *, directories: bool) -> list[bytes] | None:
    """Return what a pattern matches: a hole stands for a part of a name, or for several names."""
    fixed = name.partition(HOLE)[0].rpartition("/")[0]
    base = tree.resolve((fixed or ("/" if name.startswith("/") else ".")).encode("utf-8", "surrogateescape"), cwd)
    if base is None:
        return []
    if not base or (base in BROAD and not directories and "/" not in name[len(fixed) + 1 :]):
        return None
    rest = name[len(fixed) :].lstrip("/").encode("utf-8", "surrogateescape")
    pattern = re.compile(b".*".join(re.escape(part) for part in rest.split(HOLE.encode())), re.DOTALL)
    if directories:
        matched = [
            base + b"/" + child
            for child in tree.children(base)
            if pattern.fullmatch(child) and tree.is_dir(base + b"/" + child)
        ]
        return matched if b"/" not in rest else None
    return [path for path in _files(tree, base) if pattern.fullmatch(path[len(base) + 1 :])]


def _files(tree: Tree, directory: bytes) -> Iterator[bytes]:
    """Yield the files in and below a directory, links followed to files."""
    for entry in tree.walk(directory):
        found = entry.path if entry.type == "file" else tree.resolve(entry.path) if entry.type == "symlink" else None
        target = None if found is None else tree.get(found)
        if found is not None and target is not None and target.type == "file":
            yield found
