"""What the path of a file says: a shared object or a module by its name, whose it is, and how people read it."""

from __future__ import annotations

from imgdiff.model import Attribution, Resolved, Tree


def is_shared_object(path: bytes) -> bool:
    """Tell by its name whether a file is a shared object (``x.so``, ``x.so.1.2``)."""
    name = path.rpartition(b"/")[2]
    stem, found, version = name.rpartition(b".so")
    return bool(found and stem) and all(part.isdigit() for part in version.strip(b".").split(b".") if part)


def module_file(path: bytes) -> bytes:
    """Return the source that a ``.pyc`` belongs to, else the path itself (PEP 3147)."""
    directory, _, name = path.rpartition(b"/")
    if not name.endswith(b".pyc"):
        return path
    parent, _, last = directory.rpartition(b"/")
    prefix = directory + b"/" if directory else b""
    if last == b"__pycache__":
        prefix = parent + b"/" if parent else b""
        return prefix + name.partition(b".")[0] + b".py"
    return prefix + name[:-1]


def resolved(tree: Tree, attribution: Attribution, path: bytes) -> Resolved:
    """Return what stands at a canonical path, with its digest and its place within its first owner."""
    entry = tree.get(path)
    claims = attribution.claims.get(path, ())
    if not claims:
        return Resolved(path, None if entry is None else entry.digest)
    claim = min(claims, key=lambda each: (attribution.owners[each.owner].name, each.relative))
    owner = attribution.owners[claim.owner]
    return Resolved(path, None if entry is None else entry.digest, (owner.kind, owner.name), claim.relative)


def show(path: bytes) -> str:
    """Return a path as the container sees it, for a sentence."""
    return "/" + path.decode("utf-8", "backslashreplace")
