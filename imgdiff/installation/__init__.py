"""A wheel installed in an image, on paper: the image as it would be, had an installer put just this wheel there.

Pure. The rest of the image stays as it is, so that whatever the image is asked for (who loads a file, what a name leads
to) can be asked of the installed wheel too: nothing but the distribution's own files differs between the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping

import msgspec

from imgdiff.installation import _made as made
from imgdiff.installation._fit import misfit
from imgdiff.installation._places import Place, canonical, find_places, located
from imgdiff.installation._record import check_record, write_record
from imgdiff.installation._scope import Installed, once
from imgdiff.model import Attribution, FileEntry, PycStamp, Side, Texts, Tree, Wheel
from imgdiff.owners import read_entry_points

__all__ = ["Installed", "install", "once"]

_PLAIN, _EXECUTABLE = 0o644, 0o755
_GROUP_WRITES = 0o022  # what an umask may leave
_CAPABILITY = b"security.capability"
_HEADER = 16  # bytes in front of a .pyc's body (PEP 552)


class _Overlay:
    """Texts with a few more."""

    def __init__(self, texts: Texts, more: Mapping[bytes, bytes]) -> None:
        self._texts, self._more = texts, more

    def get(self, digest: bytes) -> bytes | None:
        """Return the content with this SHA-256, or None."""
        found = self._more.get(digest)
        return self._texts.get(digest) if found is None else found


def install(
    wheel: Wheel,
    files: Tree,
    tree: Tree,
    attribution: Attribution,
    texts: Texts,
    side: Side,
    image: str,
    platform: str,
) -> Installed:
    """Return the image with the wheel's files in each place where it has the wheel's distribution.

    ``files`` is what the wheel's layer holds, ``texts`` the contents that were kept of both, ``side`` the wheel's,
    ``image`` what the other side is called in a sentence, ``platform`` what it is for. What an installer makes
    (bytecode, launchers, INSTALLER, ...) is taken from the image where it is proven to be an installer's. Raises
    UnknownReferenceError where the image does not have the distribution.
    """
    places = find_places(wheel, files, tree, attribution, image)
    installing = _Installing(wheel, files, tree, attribution, texts)
    try:
        for place in places:
            installing.put(place)
    finally:
        installing.close()
    notes, caveats = check_record(wheel, files, texts, side)
    result = installing.result()
    return Installed(
        wheel=wheel,
        tree=result,
        paths=frozenset(installing.paths),
        sites=tuple(place.site for place in places),
        versions=tuple(dict.fromkeys(copy.version or "no version" for place in places for copy in place.copies)),
        texts=_Overlay(texts, installing.texts),
        made=installing.made,
        notes=notes,
        caveats=(*misfit(wheel, files, texts, platform, "b" if side == "a" else "a"), *caveats),
        unchanged=result.entries == tree.entries,
    )


class _Installing:
    """The tree in the making."""

    def __init__(self, wheel: Wheel, files: Tree, tree: Tree, attribution: Attribution, texts: Texts) -> None:
        self._wheel, self._files, self._tree = wheel, files, tree
        self._attribution, self._texts = attribution, texts
        self._entries = dict(tree.entries)
        self._bytecode = made.Bytecode(tree, texts)
        self.paths: set[bytes] = set()
        self.texts: dict[bytes, bytes] = {}
        self.made: dict[str, int] = {}
        self._points = self._read_points()
        self._stamps: dict[bytes, PycStamp] = {**files.stamps, **tree.stamps}

    def close(self) -> None:
        self._bytecode.close()

    def put(self, place: Place) -> None:
        """Install the wheel in one place."""
        packed = {
            located(place, entry.path, self._tree): entry
            for entry in self._files.entries.values()
            if entry.type == "file"
        }
        record = place.site + b"/" + self._wheel.info + b"/RECORD"
        packed.pop(record)
        held = self._held(place, packed)
        for path in held:
            self._entries.pop(path, None)
        self.paths |= held
        interpreters = made.interpreters(self._attribution, place.site, self._tree)
        for path, entry in packed.items():
            self._clear(path)
            self._entries[path] = self._entry(path, entry, place, interpreters)
        self.paths |= packed.keys()
        before = set(self._entries)
        self._take_made(place, packed, held, interpreters)
        taken = {path for path in self._entries if path not in before}
        self._record(place, record, packed, taken)
        self.paths.add(record)
        self._prune(place, held, packed)
        for path in (*packed, *taken, record):
            self._make_parents(path)

    # What the image has of it -----------------------------------------------------------------------------------------

    def _held(self, place: Place, packed: Collection[bytes]) -> set[bytes]:
        """Return the files and links of the image that are this distribution's, or stand where they would be taken
        for it: what it lists or has bytecode of, what lies in its packages and its info, what has an import name of
        it. What another distribution lists is not among them, unless the wheel has it as well."""
        claims = self._attribution.claims
        held = {path for path, owners in claims.items() if any(claim.owner == place.owner for claim in owners)}
        roots = {copy.info for copy in place.copies}
        names = {
            name.partition(".")[0].encode("utf-8", "surrogateescape") for each in place.copies for name in each.packages
        }
        inside = place.site + b"/"
        for path in packed:
            if path.startswith(inside) and path.endswith((b".py", b".so", b".pyc")):
                first, slash, _ = path[len(inside) :].partition(b"/")
                names.add(first if slash else first.partition(b".")[0])
        for name in self._tree.children(place.site):
            stem, _, ending = name.partition(b".")
            if stem in names and (not ending or ending.endswith((b"py", b"pyc", b"so"))):
                roots.add(inside + name)
        for root in roots:
            held |= {path for path in self._below(root) if self._is_own(path, place.owner)}
        listed = {path for path in held if self._is_listed_by_others(path, place.owner)}
        return held - (listed - set(packed))

    def _below(self, root: bytes) -> Iterator[bytes]:
        entry = self._tree.get(root)
        if entry is not None and entry.type != "dir":
            yield root
        for each in self._tree.walk(root):
            if each.type != "dir":
                yield each.path

    def _is_own(self, path: bytes, owner: int) -> bool:
        """Tell whether no other Python distribution has a claim to a file."""
        owners = self._attribution.owners
        return all(
            claim.owner == owner or owners[claim.owner].kind not in ("wheel", "egg", "editable")
            for claim in self._attribution.claims.get(path, ())
        )

    def _is_listed_by_others(self, path: bytes, owner: int) -> bool:
        return any(claim.basis == "record" and claim.owner != owner for claim in self._attribution.claims.get(path, ()))

    # What the wheel puts there ----------------------------------------------------------------------------------------

    def _entry(self, path: bytes, packed: FileEntry, place: Place, interpreters: frozenset[bytes]) -> FileEntry:
        """Return a file as it would be installed: the image's own where that is what an installer makes of it."""
        mode = _EXECUTABLE if packed.mode & 0o111 else _PLAIN
        there = self._tree.get(path)
        if there is None or there.type != "file":
            site = self._tree.entries[place.site]
            return FileEntry(path, "file", mode, site.uid, site.gid, packed.mtime, packed.size, packed.digest)
        same = there.digest is not None and there.digest == packed.digest
        if not same and made.is_rewritten(self._text(there), self._text(packed), interpreters, self._tree):
            self._count("rewritten script")
            same = True
        xattrs = tuple(pair for pair in there.xattrs if pair[0] != _CAPABILITY)
        modes = {mode, _EXECUTABLE} if packed.path.startswith(b"bin/") else {mode}  # uv makes scripts executable
        if there.mode & ~_GROUP_WRITES in {each & ~_GROUP_WRITES for each in modes}:
            mode = there.mode
        if same and mode == there.mode and xattrs == there.xattrs:
            return there
        content = there if same else packed
        return FileEntry(
            path, "file", mode, there.uid, there.gid, content.mtime, content.size, content.digest, None, xattrs
        )

    def _text(self, entry: FileEntry) -> bytes | None:
        return None if entry.digest is None else self._texts.get(entry.digest)

    def _clear(self, path: bytes) -> None:
        """Take away what can't be there when this file is: what lies below its name, and anything but a directory
        above it."""
        there = self._entries.get(path)
        if there is not None and there.type == "dir":
            for entry in list(self._tree.walk(path)):
                if self._entries.pop(entry.path, None) is not None:
                    self.paths.add(entry.path)
        parent = path.rpartition(b"/")[0]
        while parent:
            above = self._entries.get(parent)
            if above is not None and above.type != "dir":
                del self._entries[parent]
                self.paths.add(parent)
            parent = parent.rpartition(b"/")[0]

    def _make_parents(self, path: bytes) -> None:
        parent = path.rpartition(b"/")[0]
        while parent and parent not in self._entries:
            self._entries[parent] = self._tree.get(parent) or FileEntry(parent, "dir", 0o755, 0, 0, 0, 0)
            if self._entries[parent].type != "dir":
                self._entries[parent] = FileEntry(parent, "dir", 0o755, 0, 0, 0, 0)
            self.paths.add(parent)
            parent = parent.rpartition(b"/")[0]

    # What an installer makes ------------------------------------------------------------------------------------------

    def _take_made(
        self, place: Place, packed: Mapping[bytes, FileEntry], held: Collection[bytes], interpreters: frozenset[bytes]
    ) -> None:
        """Take from the image what an installer makes: where it is proven, it is no difference."""
        for copy in place.copies:
            for name in made.INSTALLERS_FILES:
                there = self._tree.get(copy.info + b"/" + name)
                if there is None or there.type != "file":
                    continue
                path = place.site + b"/" + self._wheel.info + b"/" + name
                self._entries[path] = there if path == there.path else msgspec.structs.replace(there, path=path)
                self.paths.add(path)
                self._count(name.decode())
        bins = {canonical(self._tree, place.bases["bin"]), *interpreters}
        for path in sorted(held):
            there = self._tree.get(path)
            if there is None or there.type != "file":
                continue
            source = made.source_of(path)
            if source is not None:
                self._take_bytecode(there, source, packed)
            elif path not in packed and path.rpartition(b"/")[0] in bins:
                name = path.rpartition(b"/")[2]
                if made.is_launcher(self._text(there), name, self._points, interpreters, self._tree):
                    self._entries[path] = there
                    self._count("launcher")

    def _take_bytecode(self, pyc: FileEntry, source: bytes, packed: Mapping[bytes, FileEntry]) -> None:
        """Take a ``.pyc`` of a source of the wheel from the image where it is proven to be what that compiles to, else
        have what it compiles to. (A wheel may bring some, which installers make again.)"""
        own = packed.get(pyc.path)
        if source not in packed or (own is not None and own.digest == pyc.digest):
            return
        beside = self._tree.get(source)
        if beside is not None and self._bytecode.is_made_of(pyc, beside, packed[source]):
            self._entries[pyc.path] = pyc
            self._count("bytecode")
            return
        content = None if own is not None else self._bytecode.compiled(pyc, self._entries[source])
        if content is not None:
            digest = self._keep(content)
            self._stamps[digest] = PycStamp(content[:_HEADER], hashlib.sha256(content[_HEADER:]).digest())
            self._entries[pyc.path] = msgspec.structs.replace(pyc, size=len(content), digest=digest)

    def _keep(self, content: bytes) -> bytes:
        digest = hashlib.sha256(content).digest()
        self.texts[digest] = content
        return digest

    def _read_points(self) -> dict[str, str]:
        """Return the wheel's own entry points that become programs, by name."""
        entry = self._files.get(b"site-packages/" + self._wheel.info + b"/entry_points.txt")
        text = None if entry is None else self._text(entry)
        return made.scripts(read_entry_points(text or b""))

    def _count(self, what: str) -> None:
        self.made[what] = self.made.get(what, 0) + 1

    # RECORD -----------------------------------------------------------------------------------------------------------

    def _record(self, place: Place, path: bytes, packed: Collection[bytes], taken: Collection[bytes]) -> None:
        """Put RECORD there as an installer writes it: the image's own, if it lists just what was installed."""
        there = self._tree.get(path)
        rows = {row: digest for copy in place.copies for row, _, digest in copy.recorded}
        if there is not None and there.type == "file" and self._lists(rows, {*packed, *taken, path}, packed):
            self._entries[path] = there
            self._count("RECORD")
            return
        text = write_record(place.site, path, {name: self._entries[name] for name in (*packed, *taken)})
        digest = self._keep(text)
        like = there if there is not None else self._tree.entries[place.site]
        self._entries[path] = FileEntry(path, "file", _PLAIN, like.uid, like.gid, like.mtime, len(text), digest)

    def _lists(self, rows: Mapping[bytes, bytes | None], present: Collection[bytes], packed: Collection[bytes]) -> bool:
        for path in packed:
            if path not in rows or rows[path] not in (None, self._entries[path].digest):
                return False
        return all(
            path in present
            or path.endswith(b".pyc")
            or path not in self._tree
            or made.is_called(path.rpartition(b"/")[2], self._points)
            for path in rows
        )

    # Directories ------------------------------------------------------------------------------------------------------

    def _prune(self, place: Place, held: Collection[bytes], packed: Collection[bytes]) -> None:
        """Take away directories of the distribution that would not be there: those that hold nothing any more, and
        empty ones in directories that are all its own."""
        filled: set[bytes] = set()
        foreign: set[bytes] = set()
        own = {*held, *packed}
        for path, entry in self._entries.items():
            if entry.type != "dir":
                filled.update(_above(path, filled))
                if path not in own and path not in self.paths:
                    foreign.update(_above(path, foreign))
        emptied = {directory for path in held for directory in _above(path, ())} - filled
        inside = place.site + b"/"
        own_directories = {
            directory
            for path in own
            if path.startswith(inside)
            for directory in _above(path, ())
            if directory.startswith(inside) and directory not in foreign
        }
        empty = set()
        for directory in own_directories:
            for entry in self._tree.walk(directory):
                if entry.type == "dir" and entry.path not in filled and not entry.path.endswith(b"/__pycache__"):
                    empty.add(entry.path)
        for directory in emptied | empty:
            if directory != place.site and self._entries.pop(directory, None) is not None:
                self.paths.add(directory)

    def result(self) -> Tree:
        """Return the tree."""
        tree = self._tree
        entries = dict(sorted(self._entries.items()))
        groups: dict[bytes, list[bytes]] = {}
        for path, first in tree.hardlinks.items():
            if entries.get(path) is tree.entries.get(path):
                groups.setdefault(first, []).append(path)
        hardlinks = {path: min(group) for group in groups.values() if len(group) > 1 for path in group}
        return Tree(entries, {}, hardlinks, self._stamps, (*tree.blindspots, *self._files.blindspots))


def _above(path: bytes, known: Collection[bytes]) -> list[bytes]:
    """Return the directories above a path, nearest first, up to one that is known (whose own are known then, too)."""
    found = []
    while (path := path.rpartition(b"/")[0]) and path not in known:
        found.append(path)
    return found
