"""Flattening: the layers of one image, whiteouts and opaques applied, as one merged file system. Pure.

A left fold, layer by layer from the base, by the OCI image spec ("Applying Changesets", "Whiteouts") and, where the
spec is silent, as ``umoci unpack`` does it:

- A layer's whiteouts and opaque markers hide what lower layers put there, wherever in the archive they stand; never
  what their own layer puts there.
- Members are applied in archive order. A directory over a directory keeps what is in it and takes the new attributes;
  anything else replaces what stands at its path with all that is below, a directory over a link to a directory too.
- The parents of a name are resolved through the links that stand at that moment, inside the root; the last part never
  is. Parents that are missing are made, owned by root with mode 0755.
- A hard link shares its target's inode as it is at that moment: what later replaces one of the names leaves the
  others alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from imgdiff.model import Blindspot, FileEntry, LayerIndex, PycStamp, Tree

_MAX_LINKS = 255  # in one name, as umoci's SecureJoin; beyond it no unpacker gets
_MAX_PATH = 4096  # bytes of a directory that is made because it is missing: PATH_MAX, where unpackers end
_IMPLICIT_MODE = 0o755
_NOTHING: Mapping[bytes, FileEntry] = {}

_replace = msgspec.structs.replace


def flatten(indexes: Sequence[LayerIndex]) -> Tree:
    """Return the merged file system of these layers, base first.

    Every name in the tree has an entry of its own under its canonical path, sorted by the bytes of the path; the
    root is none. No entry has type ``hardlink``: a further name of a file carries its inode's content and attributes,
    and ``Tree.hardlinks`` says which names belong together. What no unpacker could apply (a hard link to nothing, a
    name below a loop of links) is left out and is a blindspot; so is what was one in a layer. Names in ``indexes``
    must be clean (no ``.``, ``..`` or empty parts). Raises nothing.
    """
    fold = _Fold()
    for number, index in enumerate(indexes):
        fold.apply(number, index)
    return fold.tree()


def flatten_both(a: Sequence[LayerIndex], b: Sequence[LayerIndex]) -> tuple[Tree, Tree]:
    """Return :func:`flatten` of two images; the layers that both begin with are merged once."""
    shared = 0
    while shared < min(len(a), len(b)) and a[shared] is b[shared]:
        shared += 1
    base = _Fold()
    for number, index in enumerate(a[:shared]):
        base.apply(number, index)
    folds = base.copy(), base
    for fold, indexes in zip(folds, (a, b), strict=True):
        for number, index in enumerate(indexes[shared:], shared):
            fold.apply(number, index)
    return folds[0].tree(), folds[1].tree()


class _LoopError(Exception):
    """A name leads through a loop of links. Never leaves this module."""


class _Held(msgspec.Struct):
    """A file that its own layer hides, kept for the hard links to it."""

    entry: FileEntry
    origin: tuple[int, bytes]
    inode: int | None


class _Fold:
    """The merged file system so far.

    ``children`` has every real directory, the root included, with the paths in it; a path that was removed may still
    stand in it, and twice where it came again. ``inodes`` numbers the names that share a file. ``origins`` says where
    content lies that is not in its path's own layer under its own name. ``located`` remembers what a directory's name
    resolves to, as long as no link and no directory goes or changes.
    """

    __slots__ = (
        "blindspots",
        "children",
        "entries",
        "hidden",
        "inodes",
        "layers",
        "located",
        "next_inode",
        "number",
        "origins",
        "stamps",
    )

    def __init__(self) -> None:
        self.entries: dict[bytes, FileEntry] = {}
        self.layers: dict[bytes, int] = {}
        self.children: dict[bytes, list[bytes]] = {b"": []}
        self.inodes: dict[bytes, int] = {}
        self.origins: dict[bytes, tuple[int, bytes]] = {}
        self.located: dict[bytes, bytes | None] = {}
        self.stamps: dict[bytes, PycStamp] = {}
        self.blindspots: dict[Blindspot, None] = {}
        self.number = 0
        self.hidden: dict[bytes, _Held] = {}
        self.next_inode = 0

    def copy(self) -> _Fold:
        """Return another fold that stands where this one does, between two layers."""
        other = _Fold()
        for name in ("entries", "layers", "inodes", "origins", "located", "stamps", "blindspots"):
            setattr(other, name, getattr(self, name).copy())
        other.children = {path: inside.copy() for path, inside in self.children.items()}
        other.next_inode = self.next_inode
        return other

    def apply(self, number: int, index: LayerIndex) -> None:
        """Put one layer on top."""
        self.number = number
        self.stamps.update(index.stamps)
        self.blindspots.update(dict.fromkeys(index.blindspots))
        self.hidden = {}
        if self.entries and (index.whiteouts or index.opaques):
            self._hide(index)
        entries, layers, children, inodes, origins = (
            self.entries,
            self.layers,
            self.children,
            self.inodes,
            self.origins,
        )
        for entry in index.entries:
            path = entry.path
            kind = entry.type
            cut = path.rfind(b"/")
            siblings = children.get(path[: cut if cut > 0 else 0])
            old = entries.get(path)
            # The short way, for all but a few: the parent is a real directory, and a file comes new or over a file, a
            # directory new or over a directory. (Checked name by name: it runs some 300,000 times.)
            if siblings is not None and (kind == "file" or kind == "dir") and path:
                if old is None:
                    siblings.append(path)
                    if kind == "dir":
                        children[path] = []
                elif old.type != kind:
                    self._place(entry)
                    continue
                elif kind == "file" and inodes:
                    inodes.pop(path, None)
                entries[path] = entry
                layers[path] = number
                if origins:
                    origins.pop(path, None)
            else:
                self._place(entry)

    # ----------------------------------------------------------------------------------------------------------------
    # Whiteouts
    # ----------------------------------------------------------------------------------------------------------------

    def _hide(self, index: LayerIndex) -> None:
        """Remove from the lower layers what this one hides, before its own members come.

        An index does not say whether a member or a whiteout came first. Parents come before what is in them in every
        archive that a builder makes, so a directory that the layer itself puts in a link's place is taken to be there
        already. A hard link to a file that its own layer hides can only have come before the whiteout, or nothing
        could unpack it: ``hidden`` keeps such files until the layer is done.
        """
        own = {self._name_of(entry): entry for entry in index.entries}
        keep = any(entry.type == "hardlink" for entry in index.entries)
        for path in index.whiteouts:
            if not path:
                self._empty(b"", keep)
                continue
            parent, _, name = path.rpartition(b"/")
            directory = self._lower(parent, own, path)
            if directory is not None:
                self._remove(_join(directory, name), keep)
        for path in index.opaques:
            directory = self._lower(path, own, path)
            if directory is not None:
                self._empty(directory, keep)

    def _lower(self, directory: bytes, own: Mapping[bytes, FileEntry], hidden: bytes) -> bytes | None:
        try:
            return self._locate(directory, own)
        except _LoopError:
            self.blindspots[Blindspot("whiteout", "it lies below a loop of symbolic links", hidden)] = None
            return None

    def _empty(self, directory: bytes, keep: bool) -> None:
        inside = self.children.get(directory)
        if inside is not None:
            self.children[directory] = []
            for path in inside:
                self._remove(path, keep)

    def _remove(self, path: bytes, keep: bool = False) -> None:
        """Remove what stands at this path, with all that is below. Nothing there: nothing to do."""
        stack = [path]
        while stack:
            here = stack.pop()
            entry = self.entries.pop(here, None)
            if entry is None:
                continue
            origin = self.origins.pop(here, (self.layers.pop(here), here))
            inode = self.inodes.pop(here, None)
            if entry.type == "dir":
                stack.extend(self.children.pop(here))
            elif keep:
                self.hidden[here] = _Held(entry, origin, inode)
            if entry.type in ("dir", "symlink"):
                self.located.clear()

    # ----------------------------------------------------------------------------------------------------------------
    # Members
    # ----------------------------------------------------------------------------------------------------------------

    def _place(self, entry: FileEntry) -> None:
        """Apply any member, the long way."""
        if not entry.path:
            if entry.type != "dir":
                self._blind(entry, "it would replace the root directory by something else")
            return
        parent, _, name = entry.path.rpartition(b"/")
        directory = self._located(parent)
        if directory is None:
            self._blind(entry, "its parent directory is a loop of symbolic links")
            return
        if directory not in self.children:
            if len(directory) > _MAX_PATH:
                self._blind(entry, f"its missing parent directories make a path of more than {_MAX_PATH:,} bytes")
                return
            self._make_parents(directory, entry)
        path = _join(directory, name)
        old = self.entries.get(path)
        if old is not None and not (old.type == "dir" and entry.type == "dir"):
            self._remove(path)
            old = None
        if entry.type == "hardlink":
            self._link(path, entry)
            return
        if old is None:
            self.children[directory].append(path)
            if entry.type == "dir":
                self.children[path] = []
            elif entry.type == "symlink":
                self.located.clear()
        self._set(path, entry, (self.number, entry.path))

    def _set(self, path: bytes, entry: FileEntry, origin: tuple[int, bytes]) -> None:
        self.entries[path] = entry if entry.path == path else _replace(entry, path=path)
        self.layers[path] = self.number
        if origin == (self.number, path):
            self.origins.pop(path, None)
        else:
            self.origins[path] = origin

    def _link(self, path: bytes, link: FileEntry) -> None:
        """Give a file one more name. What stood at that name is gone already, as with umoci."""
        parent, _, name = (link.link_target or b"").rpartition(b"/")
        directory = self._located(parent)
        target = None if directory is None or not name else _join(directory, name)
        held = None if target is None else self._held(target)
        if target is None or held is None:
            self._blind(link, "it is a hard link to a path that the image does not hold at that point")
            return
        if held.entry.type == "dir":
            self._blind(link, "it is a hard link to a directory")
            return
        if held.inode is None:
            held.inode = self.next_inode
            self.next_inode += 1
            if target in self.entries:
                self.inodes[target] = held.inode
        self.inodes[path] = held.inode
        self.children[path.rpartition(b"/")[0]].append(path)
        self._set(path, held.entry, held.origin)
        if held.entry.type == "symlink":
            self.located.clear()

    def _held(self, target: bytes) -> _Held | None:
        entry = self.entries.get(target)
        if entry is None:
            return self.hidden.get(target)
        return _Held(entry, self.origins.get(target, (self.layers[target], target)), self.inodes.get(target))

    def _make_parents(self, directory: bytes, entry: FileEntry) -> None:
        missing = []
        here = directory
        while here not in self.children:
            missing.append(here)
            here = here.rpartition(b"/")[0]
        for path in reversed(missing):
            if path in self.entries:
                # No unpacker makes a directory here; over a lower layer mounted as one, the upper name would win.
                self._blind(entry, "it lies below a path that is no directory")
                self._remove(path)
            self.children[path.rpartition(b"/")[0]].append(path)
            self.children[path] = []
            implicit = FileEntry(path=path, type="dir", mode=_IMPLICIT_MODE, uid=0, gid=0, mtime=0, size=0)
            self._set(path, implicit, (self.number, path))

    def _blind(self, entry: FileEntry, reason: str) -> None:
        content = f" (content sha256:{entry.digest.hex()})" if entry.digest is not None else ""
        self.blindspots[Blindspot("layer member", f"{reason}{content}", entry.path)] = None

    # ----------------------------------------------------------------------------------------------------------------
    # Names
    # ----------------------------------------------------------------------------------------------------------------

    def _located(self, directory: bytes) -> bytes | None:
        if directory in self.children:
            return directory
        if directory not in self.located:
            try:
                self.located[directory] = self._locate(directory, _NOTHING)
            except _LoopError:
                self.located[directory] = None
        return self.located[directory]

    def _name_of(self, entry: FileEntry) -> bytes:
        """Return the canonical path of a member that is not applied yet; its own spelling below a loop of links."""
        parent, _, name = entry.path.rpartition(b"/")
        directory = self._located(parent)
        return entry.path if directory is None else _join(directory, name)

    def _locate(self, directory: bytes, own: Mapping[bytes, FileEntry]) -> bytes | None:
        """Return the canonical path of a directory, links followed inside the root; parts that are missing stay as
        they are. Raises _LoopError for a loop of links.

        ``own`` are the members of a layer that is not applied yet. They stand before what lies below; where they put
        something new, nothing of the lower layers is below, and the answer is None.
        """
        here = b""
        todo = directory.split(b"/")[::-1]
        budget = _MAX_LINKS
        while todo:
            name = todo.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                here = here.rpartition(b"/")[0]
                continue
            path = _join(here, name)
            entry = own.get(path)
            if entry is None:
                entry = self.entries.get(path)
            elif entry.type != "symlink" and not (entry.type == "dir" and path in self.children):
                return None
            if entry is None or entry.type != "symlink":
                here = path
                continue
            budget -= 1
            if budget < 0 or not entry.link_target:
                raise _LoopError
            if entry.link_target.startswith(b"/"):
                here = b""
            todo.extend(entry.link_target.split(b"/")[::-1])
        return here

    # ----------------------------------------------------------------------------------------------------------------
    # The result
    # ----------------------------------------------------------------------------------------------------------------

    def tree(self) -> Tree:
        """Return what the layers so far come to."""
        entries = dict(sorted(self.entries.items(), key=_path_of))
        groups: dict[int, list[bytes]] = {}
        for path, inode in self.inodes.items():
            groups.setdefault(inode, []).append(path)
        hardlinks = {path: min(group) for group in groups.values() if len(group) > 1 for path in sorted(group)}
        return Tree(entries, self.layers, hardlinks, self.stamps, tuple(self.blindspots), self.origins)


def _path_of(item: tuple[bytes, FileEntry]) -> bytes:
    return item[0]


def _join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name
