"""What in each changed file differs: its effect, and the sentence that proves it.

Content comes from what the indexing pass kept; ELF files are read again, just the layers that hold them, and what
was found is cached by both digests.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO

import msgspec

from imgdiff import kinds
from imgdiff.attributes import attributes_bear
from imgdiff.kinds import bytecode, elf
from imgdiff.model import (
    Attribution,
    Blindspot,
    Change,
    Comparison,
    Delta,
    Effect,
    FactSource,
    FileEntry,
    Side,
    Texts,
    Tree,
)
from imgdiff.store import Store
from imgdiff.surrogates import encodable

Read = Callable[[Collection[bytes]], Iterator[tuple[bytes, BinaryIO]]]

PAIRS_AT_ONCE = 100  # ELF pairs held open as temporary files
_CACHED_PYC = re.compile(rb"(?P<directory>(?:.*/)?)__pycache__/(?P<stem>[^/]+?)\.(?P<tag>[^/.]+)(?:\.opt-[12])?\.pyc\Z")
_CODE_KINDS = frozenset(kind.name for kind in kinds.KINDS if kind.effect == "code")
_NO_BYTES = "holds no bytes of it, so what in it differs can't be told"
_SETTLE = "Compare with the image itself, in place of its snapshot, to tell what in the changed files differs."
_SETTLE_SOURCE = "Compare with the image itself, or with a snapshot of it that was made with --texts."
_ELSEWHERE = (b"dev", b"proc", b"sys", b"run")  # what a container runtime mounts over


class OneSide(msgspec.Struct, frozen=True):  # holds live objects: never serialised
    """What explaining needs of one image. ``read`` gives whole contents again by their digests, each open until the
    next is asked for; ``volumes`` are declared mount points; ``lost`` are the digests that ``read`` can't give, since
    the image is a snapshot; ``as_root``: its processes have root's rights."""

    tree: Tree
    attribution: Attribution
    facts: FactSource
    texts: Texts
    read: Read
    volumes: tuple[bytes, ...] = ()
    lost: Collection[bytes] = frozenset()
    as_root: bool = True


class Switched(msgspec.Struct, frozen=True):
    """A module whose unchanged ``.pyc`` runs in one image only, and what differs between it and the source that runs
    in the other. ``runs`` are the paths of what Python executes in a and in b."""

    source: tuple[bytes, bytes]
    runs: tuple[bytes, bytes]
    delta: Delta


class Explained(msgspec.Struct, frozen=True):
    """Changes with their deltas, modules of which another file runs under an unchanged ``.pyc``, and blindspots."""

    changes: tuple[Change, ...]
    switched: tuple[Switched, ...] = ()
    blindspots: tuple[Blindspot, ...] = ()


def explain(comparison: Comparison, a: OneSide, b: OneSide, store: Store) -> Explained:
    """Return the comparison's changes with their deltas."""
    return _Explaining(a, b, store).run(comparison)


class _KnownDeltas:
    """Deltas of modules in the cache: read one by one, written together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._new: dict[kinds.KindName, dict[tuple[bytes, bytes], Delta]] = {}

    def get(self, kind: kinds.KindName, a: bytes, b: bytes) -> Delta | None:
        found = self._new.get(kind, {}).get((a, b))
        if found is None:
            encoded = self._store.delta(kind, kinds.VERSIONS[kind], a, b)
            found = None if encoded is None else msgspec.msgpack.decode(encoded, type=Delta)
        return found

    def put(self, kind: kinds.KindName, a: bytes, b: bytes, delta: Delta) -> None:
        self._new.setdefault(kind, {})[a, b] = encodable(delta)

    def flush(self) -> None:
        for kind, deltas in self._new.items():
            rows = {pair: msgspec.msgpack.encode(delta) for pair, delta in deltas.items()}
            self._store.put_deltas(kind, kinds.VERSIONS[kind], rows)


class _Explaining:
    def __init__(self, a: OneSide, b: OneSide, store: Store) -> None:
        self._a, self._b, self._store = a, b, store
        self._as_root = a.as_root and b.as_root
        self._compilers = bytecode.Compilers()
        self._known = _KnownDeltas(store)
        self._second: dict[int, dict[bytes, bytes]] = {}
        self._blindspots: list[Blindspot] = []
        self._modules: dict[tuple[bytes | None, bytes | None], kinds.ModuleDelta] = {}
        self._both_infos = _paired_infos(a.attribution, b.attribution)

    def run(self, comparison: Comparison) -> Explained:
        changes = comparison.changes
        pairs = {change.path_a: change.path_b for change in changes if change.path_a is not None}
        self._other = pairs
        self._other_b = {b: a for a, b in pairs.items() if b is not None}
        natives = self._natives(changes)
        explained = tuple(
            msgspec.structs.replace(change, delta=self._named(change, self._delta(change, natives)))
            for change in changes
        )
        sources = [
            (change.path_a, change.path_b)
            for change in changes
            if change.path_a is not None and change.path_b is not None and change.path_b.endswith(b".py")
        ]
        switched = tuple(self._switched([*comparison.touched, *sources]))
        self._known.flush()
        return Explained(explained, switched, tuple(self._blindspots))

    def _switched(self, sources: Iterable[tuple[bytes, bytes]]) -> Iterator[Switched]:
        """Yield the modules whose ``.pyc`` is the same in both images and fits its source in one of them only."""
        tags = {match["tag"] for path in self._a.tree.entries if (match := _CACHED_PYC.match(path)) is not None}
        for source_a, source_b in sources:
            for tag in sorted(tags):
                pyc_a, pyc_b = _pyc_of(source_a, tag), _pyc_of(source_b, tag)
                entry_a, entry_b = self._a.tree.get(pyc_a), self._b.tree.get(pyc_b)
                if entry_a is None or entry_b is None or entry_a.digest is None or entry_a.digest != entry_b.digest:
                    continue
                module = self._module_delta(source_a, pyc_a, source_b, pyc_b)
                if module.bytecode is not None and module.bytecode.effect != "noise":
                    ran = (
                        pyc_a if module.runs_a == "bytecode" else source_a,
                        pyc_b if module.runs_b == "bytecode" else source_b,
                    )
                    yield Switched((source_a, source_b), ran, module.bytecode)

    def _named(self, change: Change, delta: Delta | None) -> Delta | None:
        """Say of a name that came or went which other one its file has: they weigh by themselves."""
        if delta is None or (change.path_a is not None and change.path_b is not None):
            return delta
        side = self._b if change.path_a is None else self._a
        first = side.tree.hardlinks.get(change.path)
        if first is None:
            return delta
        other = _text(first if first != change.path else self._seconds(side)[first])
        reason = f"{delta.reason} It is a hard link: /{other} is the same file, and each name weighs by its own path."
        return msgspec.structs.replace(delta, reason=reason)

    def _seconds(self, side: OneSide) -> dict[bytes, bytes]:
        """Return the second name (by bytes) of each file with several, by its first."""
        known = self._second.get(id(side))
        if known is None:
            known = self._second[id(side)] = {}
            for name, first in sorted(side.tree.hardlinks.items()):
                if name != first:
                    known.setdefault(first, name)
        return known

    def _delta(self, change: Change, natives: dict[Change, Delta]) -> Delta | None:
        if change.status == "moved":
            return None
        if change.status == "attributes":
            assert change.a is not None
            assert change.b is not None
            return _attributes(change.a, change.b, self._as_root)
        if change in natives:
            return natives[change]
        types = {entry.type for entry in (change.a, change.b) if entry is not None}
        if types == {"file"}:
            return self._file(change)
        if "symlink" in types or change.status == "retyped":
            return self._ends(change)
        if types == {"dir"}:
            return self._directory(change)
        if change.a is not None and change.b is not None:
            return Delta("data", f"The {types.pop()} node stands for another device.")
        return Delta("data", f"A {types.pop()} node is in {_only(change)} only.")

    # ----------------------------------------------------------------------------------------------------------------
    # Regular files
    # ----------------------------------------------------------------------------------------------------------------

    def _kind(self, side: OneSide, path: bytes, entry: FileEntry) -> str:
        head = b"" if entry.digest is None else (side.texts.get(entry.digest) or b"")[: kinds.HEAD_SIZE]
        if not head and side.facts.elf(path) is not None:
            return "elf"
        return kinds.kind_of(path, head)

    def _file(self, change: Change) -> Delta:
        present = [
            (s, p, e) for s, p, e in ((self._a, change.path_a, change.a), (self._b, change.path_b, change.b)) if e
        ]
        if any(entry.digest is None for _, _, entry in present):
            return Delta("code", "Its content could not be read, so what differs is not known.")
        names = {self._kind(side, path, entry) for side, path, entry in present if path is not None}
        if "elf" in names:  # two ELF files were compared already
            what = "It became another kind of file" if len(names) > 1 else f"It is in {_only(change)} only"
            return Delta("code", f"{what}.", {"kind": "elf"})
        if names <= {"python", "bytecode"} and len(names) == 1:
            kind = names.pop()
            return _with_kind(self._module(change, kind), kind)
        streams = [
            None if content is None else io.BytesIO(content)
            for content in (self._content(self._a, change.a), self._content(self._b, change.b))
        ]
        return kinds.explain(change.path_a, change.path_b, streams[0], streams[1], both_infos=self._both_infos(change))

    @staticmethod
    def _content(side: OneSide, entry: FileEntry | None) -> bytes | None:
        return None if entry is None or entry.digest is None else side.texts.get(entry.digest)

    # ----------------------------------------------------------------------------------------------------------------
    # Modules: a source and its bytecode together
    # ----------------------------------------------------------------------------------------------------------------

    def _module(self, change: Change, kind: str) -> Delta:
        path_a, path_b = change.path_a, change.path_b
        if kind == "bytecode":
            cached_a, cached_b = self._paths(path_a, path_b, _source_of)
            delta = self._module_delta(cached_a, path_a, cached_b, path_b).bytecode
        elif change.path.endswith(b".py"):
            delta = self._module_delta(path_a, None, path_b, None).source
        else:  # a script: it has no bytecode
            delta = self._module_delta(path_a, None, path_b, None).source
        return delta or Delta("noise", "The module is the same in both images.")

    def _paths(
        self, path_a: bytes | None, path_b: bytes | None, find: Callable[[bytes], bytes]
    ) -> tuple[bytes | None, bytes | None]:
        """The sources of a ``.pyc`` in both images; a side without it has its source where the other pairs."""
        source_a = None if path_a is None else find(path_a)
        source_b = None if path_b is None else find(path_b)
        if source_a is None and source_b is not None:
            source_a = self._other_b.get(source_b, source_b)
        if source_b is None and source_a is not None:
            source_b = self._other.get(source_a, source_a)
        return source_a, source_b

    def _module_delta(
        self, source_a: bytes | None, pyc_a: bytes | None, source_b: bytes | None, pyc_b: bytes | None
    ) -> kinds.ModuleDelta:
        a, b = _module_side(self._a, source_a, pyc_a), _module_side(self._b, source_b, pyc_b)
        delta = kinds.module_delta(a, b, self._compilers, self._known)
        if not self._a.lost and not self._b.lost:
            return delta
        without = self._without(
            (entry, side)
            for ends, side in ((a, self._a), (b, self._b))
            for entry in (ends.source, ends.pyc)
            if entry is not None and entry.digest is not None and side.texts.get(entry.digest) is None
        )
        if without is None:
            return delta
        source, compiled = (self._unknown(each, without) for each in (delta.source, delta.bytecode))
        return msgspec.structs.replace(delta, source=source, bytecode=compiled)

    # ----------------------------------------------------------------------------------------------------------------
    # What a snapshot has no bytes of
    # ----------------------------------------------------------------------------------------------------------------

    def _without(self, entries: Iterable[tuple[FileEntry | None, OneSide]]) -> tuple[Side, FileEntry] | None:
        """Return the first of some files of which its image, a snapshot, has no bytes."""
        for entry, side in entries:
            if entry is not None and entry.digest in side.lost:
                return ("a" if side is self._a else "b"), entry
        return None

    def _told_nothing(self, without: tuple[Side, FileEntry]) -> Delta:
        """A changed ELF file of which one image has no bytes: any of it may differ."""
        name, entry = without
        self._unseen(name, entry)
        reason = f"The ELF files differ; the snapshot of {name} {_NO_BYTES}."
        return Delta("code", reason, {"kind": "elf"}, _SETTLE)

    def _unknown(self, delta: Delta | None, without: tuple[Side, FileEntry]) -> Delta | None:
        """Leave it open what differs in a module's file that could not be compared."""
        if delta is None or kinds.NOT_KEPT not in delta.reason:
            return delta
        name, entry = without
        self._unseen(name, entry)
        reason = delta.reason.replace(kinds.NOT_KEPT, f"the snapshot of {name} {_NO_BYTES}")
        return msgspec.structs.replace(delta, reason=reason, settle=_SETTLE_SOURCE)

    def _unseen(self, name: Side, entry: FileEntry) -> None:
        self._blindspots.append(Blindspot("changed file", f"the snapshot {_NO_BYTES}", entry.path, name))

    # ----------------------------------------------------------------------------------------------------------------
    # ELF files, read again
    # ----------------------------------------------------------------------------------------------------------------

    def _natives(self, changes: Sequence[Change]) -> dict[Change, Delta]:
        found: dict[Change, Delta] = {}
        waiting: list[Change] = []
        for change in changes:
            if not _both_files(change) or change.status == "moved" or change.status == "attributes":
                continue
            assert change.path_a is not None
            assert change.path_b is not None
            if self._a.facts.elf(change.path_a) is None or self._b.facts.elf(change.path_b) is None:
                continue
            without = self._without(((change.a, self._a), (change.b, self._b)))
            cached = self._cached(change) if without is None else self._told_nothing(without)
            if cached is None:
                waiting.append(change)
            else:
                found[change] = cached
        unique: dict[tuple[bytes, bytes], list[Change]] = {}
        for change in waiting:
            unique.setdefault(_digests(change), []).append(change)
        groups = list(unique.values())
        for start in range(0, len(groups), PAIRS_AT_ONCE):
            for group, delta in self._read_pairs(groups[start : start + PAIRS_AT_ONCE]):
                for change in group:
                    found[change] = delta
        return found

    def _cached(self, change: Change) -> Delta | None:
        encoded = self._store.delta("elf", elf.VERSION, *_digests(change))
        return None if encoded is None else msgspec.msgpack.decode(encoded, type=Delta)

    def _read_pairs(self, groups: Sequence[list[Change]]) -> Iterator[tuple[list[Change], Delta]]:
        """Read each pair of contents once, a's first, and compare; equal copies share the result."""
        pairs = [_digests(group[0]) for group in groups]
        with ExitStack() as stack:
            lefts: dict[bytes, BinaryIO] = {}
            for digest, stream in self._a.read({a for a, _ in pairs}):
                lefts[digest] = stack.enter_context(os.fdopen(os.dup(stream.fileno()), "rb"))
            by_right: dict[bytes, list[int]] = {}
            for position, (_, b) in enumerate(pairs):
                by_right.setdefault(b, []).append(position)
            for digest, right in self._b.read(by_right):
                for position in by_right[digest]:
                    left = lefts[pairs[position][0]]
                    for stream in (left, right):
                        stream.seek(0)
                    delta = _with_kind(elf.delta(left, right), "elf")
                    self._store.put_delta("elf", elf.VERSION, *pairs[position], msgspec.msgpack.encode(delta))
                    yield groups[position], delta

    # ----------------------------------------------------------------------------------------------------------------
    # Links, directories, types
    # ----------------------------------------------------------------------------------------------------------------

    def _ends(self, change: Change) -> Delta:
        """A link, or a path of another type: the effect is that of the contents at its two ends."""
        detail: dict[str, Any] = {
            "type": {side: None if entry is None else entry.type for side, entry in (("a", change.a), ("b", change.b))}
        }
        targets = {
            side: _text(entry.link_target)
            for side, entry in (("a", change.a), ("b", change.b))
            if entry is not None and entry.link_target is not None
        }
        if targets:
            detail["target"] = targets
        for name, side, path, entry in (
            ("a", self._a, change.path_a, change.a),
            ("b", self._b, change.path_b, change.b),
        ):
            if entry is not None and entry.type == "symlink" and path is not None:
                self._dangling("a" if name == "a" else "b", side, path)
        if change.a is None or change.b is None:
            return self._lone_link(change, detail)
        end_a = self._a.tree.resolve(change.path_a or b"")
        end_b = self._b.tree.resolve(change.path_b or b"")
        if end_a is None or end_b is None:
            return Delta("code", "It leads to nothing in one of the images.", detail)
        different, first = self._unequal(end_a, end_b)
        if different is None:
            return Delta("noise", "The contents at both ends are equal.", detail)
        shown = f": {_text(first)}" if first else ""
        return Delta(different, f"The contents at the two ends differ{shown}.", detail)

    def _lone_link(self, change: Change, detail: dict[str, Any]) -> Delta:
        side, path, name = (self._b, change.path_b, "b") if change.a is None else (self._a, change.path_a, "a")
        end = side.tree.lookup(path or b"")
        kind = "data"
        if end is not None and end.type == "file":
            kind = self._kind(side, end.path, end)
        effect: Effect = "code" if kind in _CODE_KINDS or end is None or end.type == "dir" else "data"
        return Delta(effect, f"The link is in {name} only.", detail)

    def _dangling(self, name: Side, side: OneSide, path: bytes) -> None:
        end = side.tree.resolve(path)
        entry = side.tree.get(path)
        target = b"" if entry is None or entry.link_target is None else entry.link_target
        mounted = [*_ELSEWHERE, *side.volumes]
        if end is None:
            reason = "the link leads to nothing in the image, so what a process finds there is not known"
        elif any(end == place or end.startswith(place + b"/") for place in mounted):
            reason = "the link leads to where a runtime mounts something else"
        else:
            return
        self._blindspots.append(Blindspot("changed link", f"{reason} (-> {_text(target)})", path, name))

    def _unequal(self, end_a: bytes, end_b: bytes) -> tuple[Effect | None, bytes]:
        """Compare what two canonical paths hold: (None, b"") where equal, else the effect and the first difference."""
        for path_a, path_b in _walk_both(self._a.tree, end_a, self._b.tree, end_b):
            a, b = self._a.tree.get(path_a), self._b.tree.get(path_b)
            if a is None or b is None:
                if path_a == path_b == b"":
                    continue
                return "code", path_b
            if a.type != b.type or a.digest != b.digest or a.link_target != b.link_target:
                kind_a = self._kind(self._a, path_a, a) if a.type == "file" else "text"
                kind_b = self._kind(self._b, path_b, b) if b.type == "file" else "text"
                code = bool({kind_a, kind_b} & _CODE_KINDS) or a.type != b.type
                return ("code" if code or path_a != end_a else "data"), path_b
            if a.type == "file" and a.digest is None:
                return "code", path_b
            if a.type in ("file", "dir") and attributes_bear(a, b, as_root=self._as_root):
                return "code", path_b
        return None, b""

    def _directory(self, change: Change) -> Delta:
        """An empty directory that comes or goes is importable as a namespace package under an import root."""
        side = self._b if change.a is None else self._a
        name = "b" if change.a is None else "a"
        roots = {site for environment in side.attribution.environments for site in environment.sites}
        roots |= {environment.stdlib for environment in side.attribution.environments if environment.stdlib}
        imported = any(change.path.startswith(root + b"/") for root in roots)
        what = "an empty directory under an import root, which can be imported" if imported else "an empty directory"
        detail = {"type": "directory"}
        return Delta("code" if imported else "data", f"In {name} only: {what}.", detail)


# --------------------------------------------------------------------------------------------------------------------
# Helpers
# --------------------------------------------------------------------------------------------------------------------


def _with_kind(delta: Delta, kind: str) -> Delta:
    return msgspec.structs.replace(delta, detail={"kind": kind, **delta.detail})


def _only(change: Change) -> str:
    return "b" if change.a is None else "a"


def _both_files(change: Change) -> bool:
    return change.a is not None and change.b is not None and change.a.type == change.b.type == "file"


def _digests(change: Change) -> tuple[bytes, bytes]:
    assert change.a is not None
    assert change.b is not None
    return change.a.digest or b"", change.b.digest or b""


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _source_of(path: bytes) -> bytes:
    """Return where the source of a ``.pyc`` stands (PEP 3147)."""
    match = _CACHED_PYC.match(path)
    if match is None:
        return path[:-1]  # x.pyc beside x.py
    return match["directory"] + match["stem"] + b".py"


def _pyc_of(source: bytes, tag: bytes) -> bytes:
    directory, _, name = source.rpartition(b"/")
    return _join(_join(directory, b"__pycache__"), name[: -len(b".py")] + b"." + tag + b".pyc")


def _module_side(side: OneSide, source: bytes | None, pyc: bytes | None) -> kinds.ModuleSide:
    source_entry = None if source is None else side.tree.lookup(source)
    pyc_entry = None if pyc is None else side.tree.get(pyc)
    stamp = None
    if pyc_entry is not None and pyc_entry.digest is not None:
        stamp = side.tree.stamps.get(pyc_entry.digest)
    if source_entry is not None and source_entry.type != "file":
        source_entry = None
    return kinds.ModuleSide(source_entry, pyc_entry, stamp, side.texts)


def _paired_infos(a: Attribution, b: Attribution) -> Callable[[Change], bool]:
    """Return a function that tells whether both images have the dist-info that a changed file lies in."""
    infos_a = {distribution.info: distribution.name for distribution in a.distributions}
    infos_b = {distribution.info: distribution.name for distribution in b.distributions}
    names = {*infos_a.values()} & {*infos_b.values()}

    def both(change: Change) -> bool:
        for path, infos in ((change.path_a, infos_a), (change.path_b, infos_b)):
            if path is not None and infos.get(path.rpartition(b"/")[0]) in names:
                return True
        return False

    return both


def _attributes(a: FileEntry, b: FileEntry, as_root: bool) -> Delta:
    detail: dict[str, Any] = {}
    words: list[str] = []
    if a.mode != b.mode:
        detail["mode"] = {"a": f"{a.mode:04o}", "b": f"{b.mode:04o}"}
        words.append(f"mode {a.mode:04o} and {b.mode:04o}")
    if (a.uid, a.gid) != (b.uid, b.gid):
        detail["owner"] = {"a": f"{a.uid}:{a.gid}", "b": f"{b.uid}:{b.gid}"}
        words.append(f"owner {a.uid}:{a.gid} and {b.uid}:{b.gid}")
    names = sorted(key for key, _ in {*a.xattrs} ^ {*b.xattrs})
    if names:
        detail["xattrs"] = sorted({_text(name) for name in names})
        words.append(f"xattrs {', '.join(detail['xattrs'])}")
    if a.type == "dir":
        detail["type"] = "directory"
    detail["bears"] = attributes_bear(a, b, as_root=as_root)
    felt = "a process can feel that" if detail["bears"] else "no process can feel that"
    return Delta("data", f"The attributes differ ({'; '.join(words)}): {felt}.", detail)


def _walk_both(tree_a: Tree, end_a: bytes, tree_b: Tree, end_b: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the paths of two subtrees side by side, in the order of bytes; each name of either is yielded once."""
    stack = [(end_a, end_b)]
    while stack:
        path_a, path_b = stack.pop()
        yield path_a, path_b
        names: Iterable[bytes] = sorted({*tree_a.children(path_a), *tree_b.children(path_b)}, reverse=True)
        stack.extend((_join(path_a, name), _join(path_b, name)) for name in names)


def _join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name
