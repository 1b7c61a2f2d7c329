"""What an engine itself puts into every container, taken out before a container is compared. Pure.

docker (daemon/initlayer) makes ten names in each container before it starts, over whatever the image has there, and
mounts its own over most of them; podman's runtime makes the places that it mounts over. What the image had at these
names can't be seen in a container, and what a process sees there comes from the engine, whichever image it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from imgdiff.model import Blindspot, FileEntry, Image, RoleTrace, Side, Tree

_EMPTY_FILES: Final = frozenset(
    (b".dockerenv", b"dev/console", b"etc/hostname", b"etc/hosts", b"etc/resolv.conf", b"run/.containerenv")
)
_EMPTY_DIRS: Final = frozenset((b"dev/mqueue", b"dev/pts", b"dev/shm", b"proc", b"sys"))
_LINKS: Final = {b"etc/mtab": b"/proc/mounts"}
_NAMES: Final = (*sorted(_EMPTY_FILES), *sorted(_EMPTY_DIRS), *_LINKS)
MOUNT: Final = "mount"  # what a blindspot for one is called
_ELSEWHERE: Final = ("unreached", "outside")


def seen_alike(images: Sequence[Image], trees: tuple[Tree, Tree]) -> tuple[tuple[Tree, Tree], list[str]]:
    """Return both trees without what an engine made in the one that is a container's, and caveats that say so.

    A name is taken out, of both, only where the container has exactly what the engine makes there: an empty file, an
    empty directory, docker's link. Anything else at such a name is a file of the container and stays. Where a
    mount lies over an empty place that the other image lacks, the engine made the place.
    """
    kept = list(trees)
    caveats: list[str] = []
    sides: tuple[Side, Side] = ("a", "b")
    for position, side in enumerate(sides):
        if not images[position].contained:
            continue
        own, other = kept[position], kept[1 - position]
        names = [name for name in _NAMES if _made(own, name)]
        places = [
            mount.path
            for mount in images[position].mounts
            if mount.path not in names and mount.path not in other and _is_empty(own, mount.path)
        ]
        hidden = [name for name in names if (entry := other.get(name)) is not None and not _same(own.get(name), entry)]
        if hidden:
            listed = ", ".join("/" + name.decode() for name in hidden)
            caveats.append(
                f"the engine makes {listed} in every container, {side} too: what an image has there is not compared."
            )
        kept[position] = _without(own, {*names, *places}, other)
        kept[1 - position] = _without(other, set(names), None)
    return (kept[0], kept[1]), caveats


def _made(tree: Tree, name: bytes) -> bool:
    """Tell whether a name is as an engine makes it."""
    entry = tree.get(name)
    if entry is None:
        return False
    if name in _LINKS:
        return entry.type == "symlink" and entry.link_target == _LINKS[name]
    if name in _EMPTY_FILES:
        return entry.type == "file" and entry.size == 0
    return _is_empty(tree, name)


def _is_empty(tree: Tree, name: bytes) -> bool:
    entry = tree.get(name)
    if entry is None:
        return False
    return (entry.type == "file" and entry.size == 0) or (entry.type == "dir" and not tree.children(name))


def _same(first: FileEntry | None, second: FileEntry) -> bool:
    return first is not None and (first.type, first.digest, first.link_target) == (
        second.type,
        second.digest,
        second.link_target,
    )


def _without(tree: Tree, names: set[bytes], other: Tree | None) -> Tree:
    """Return the tree without these names, and without directories that then are empty and that ``other`` lacks."""
    entries = {path: entry for path, entry in tree.entries.items() if path not in names}
    if other is not None:
        parents = {parent for name in names for parent in _above(name)}
        for parent in sorted(parents, key=len, reverse=True):
            prefix = parent + b"/"
            if parent in entries and parent not in other and not any(path.startswith(prefix) for path in entries):
                del entries[parent]
    if len(entries) == len(tree.entries):
        return tree
    return Tree(entries, tree.layers, tree.hardlinks, tree.stamps, tree.blindspots, tree.origins)


def _above(name: bytes) -> Iterable[bytes]:
    while name := name.rpartition(b"/")[0]:
        yield name


def mounted(side: Side, image: Image, tree: Tree, roles: Mapping[str, RoleTrace]) -> list[Blindspot]:
    """Return a blindspot for each mount of a container that hides something a role may load: a file at or below it, or,
    where nothing lies there, one beside it (what is mounted could be found in its stead). Others are caveats alone."""
    spots = []
    for mount in image.mounts:
        below = [entry.path for entry in tree.walk(mount.path)] if tree.is_dir(mount.path) else []
        near = [path for path in (mount.path, *below) if (entry := tree.get(path)) is not None and entry.type != "dir"]
        if not near and b"/" in mount.path:
            parent = mount.path.rpartition(b"/")[0]
            children = (parent + b"/" + name for name in tree.children(parent))
            near = [path for path in children if (entry := tree.get(path)) is not None and entry.type != "dir"]
        blocked = tuple(
            role for role, found in roles.items() if any(found.evidence(path).level not in _ELSEWHERE for path in near)
        )
        if blocked:
            reason = f"Something else is mounted there ({mount.what}), and what it holds can't be seen."
            spots.append(Blindspot(MOUNT, reason, mount.path, side, blocked))
    return spots
