"""A module is its source and its ``.pyc`` together: which of them Python runs in a and in b, and what that changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

from imgdiff.kinds import bytecode
from imgdiff.kinds._routing import KindName
from imgdiff.kinds.bytecode import Compilers
from imgdiff.kinds.python.delta import delta as source_delta
from imgdiff.model import Delta, FileEntry, PycStamp, Texts

Runs = Literal["source", "bytecode", "nothing"]

NOT_KEPT = "its content was not kept by the indexing pass"
_OPTIMIZED = re.compile(rb"\.opt-([12])\.pyc\Z")


class ModuleSide(msgspec.Struct, frozen=True):
    """One module in one image: its source and one ``.pyc`` of it, None where the image lacks it.

    ``stamp`` is the ``.pyc``'s, from the index; ``texts`` has the content of both.
    """

    source: FileEntry | None
    pyc: FileEntry | None
    stamp: PycStamp | None
    texts: Texts


class ModuleDelta(msgspec.Struct, frozen=True):
    """What differs in a module. ``source`` and ``bytecode`` are the deltas of the two files, None where that file is
    the same in both images or in neither; ``bytecode`` is also set where the file is the same and runs in one image
    only. ``runs_a`` and ``runs_b`` are what Python executes."""

    source: Delta | None
    bytecode: Delta | None
    runs_a: Runs
    runs_b: Runs


class KnownDeltas(Protocol):
    """Deltas of contents that were compared before, by kind and digests."""

    def get(self, kind: KindName, a: bytes, b: bytes) -> Delta | None:
        """Return the delta of two contents, or None."""

    def put(self, kind: KindName, a: bytes, b: bytes, delta: Delta) -> None:
        """Keep the delta of two contents."""


def module_delta(a: ModuleSide, b: ModuleSide, compilers: Compilers, known: KnownDeltas | None = None) -> ModuleDelta:
    """Compare one module of two images; contents that are ``known`` are not compared again.

    A source is judged by its own text, whichever runs, since Triton, torch.jit and others compile it. A ``.pyc`` is
    noise where Python runs it in neither image, or where what runs instead of it is proven equal; else it is code,
    with ``settle`` set where only a Python that is not at hand could tell.
    """
    runs_a, runs_b = runs(a), runs(b)
    source = _source(a, b, known)
    compiled = _bytecode(a, b, (runs_a, runs_b), compilers, known)
    if compiled is not None and compiled.effect == "code" and source is not None and source.effect == "metadata":
        compiled = _versions(a, b, source, compiled) if runs_a == runs_b == "bytecode" else compiled
    detail = {"runs_a": runs_a, "runs_b": runs_b}
    return ModuleDelta(_with(source, detail), _with(compiled, detail), runs_a, runs_b)


def _with(delta: Delta | None, detail: Mapping[str, Runs]) -> Delta | None:
    return None if delta is None else msgspec.structs.replace(delta, detail={**delta.detail, **detail})


def runs(side: ModuleSide) -> Runs:
    """Tell what Python executes for a module: its ``.pyc`` where that fits, or stands without a source outside of
    ``__pycache__``. Where it can't be told whether a ``.pyc`` fits, it counts as run."""
    if side.source is None:
        return "bytecode" if side.pyc is not None and not _cached(side.pyc) else "nothing"
    if side.pyc is None or not _cached(side.pyc):
        return "source"  # a .pyc beside its source is never looked at
    header = side.stamp.header if side.stamp is not None else (_content(side.pyc, side) or b"")[:16]
    fits = bytecode.fits(header, side.source.mtime, side.source.size, None)
    if fits is None:
        fits = bytecode.fits(header, side.source.mtime, side.source.size, _content(side.source, side))
    return "source" if fits is False else "bytecode"


def _cached(pyc: FileEntry) -> bool:
    return b"/__pycache__/" in b"/" + pyc.path


def _content(entry: FileEntry | None, side: ModuleSide) -> bytes | None:
    return None if entry is None or entry.digest is None else side.texts.get(entry.digest)


def _source(a: ModuleSide, b: ModuleSide, known: KnownDeltas | None) -> Delta | None:
    if a.source is None and b.source is None:
        return None
    if a.source is None or b.source is None:
        return Delta("code", f"The source is in {'b' if a.source is None else 'a'} only.")
    if a.source.digest is not None and a.source.digest == b.source.digest:
        return None
    contents = _content(a.source, a), _content(b.source, b)
    if contents[0] is None or contents[1] is None:
        return Delta("code", f"The source can't be compared: {NOT_KEPT}.")
    return _compared("python", (a.source, b.source), (contents[0], contents[1]), source_delta, known)


def _bytecode(
    a: ModuleSide, b: ModuleSide, runs: tuple[Runs, Runs], compilers: Compilers, known: KnownDeltas | None
) -> Delta | None:
    if a.pyc is None and b.pyc is None:
        return None
    same = a.pyc is not None and b.pyc is not None and a.pyc.digest is not None and a.pyc.digest == b.pyc.digest
    ran = [side for side, what in zip("ab", runs, strict=True) if what == "bytecode"]
    if same and len(ran) != 1:
        return None
    if not ran:
        return Delta("noise", _ignored(a, b))
    if len(ran) == 2:
        return _both(a, b, known)
    runner, other, name = (a, b, "a") if ran == ["a"] else (b, a, "b")
    if "nothing" in runs:
        return Delta(
            "code", f"Python runs the bytecode in {name} and finds no such module in {'b' if name == 'a' else 'a'}."
        )
    pyc, source = _content(runner.pyc, runner), _content(other.source, other)
    if pyc is None or source is None or runner.pyc is None:
        return Delta("code", f"Python runs the bytecode in {name} only, and it can't be compared: {NOT_KEPT}.")
    optimized = _OPTIMIZED.search(runner.pyc.path)
    return bytecode.against_source(pyc, source, int(optimized[1]) if optimized else 0, compilers, name)


def _ignored(a: ModuleSide, b: ModuleSide) -> str:
    reasons = []
    for name, side in (("a", a), ("b", b)):
        if side.pyc is None:
            reasons.append(f"{name} lacks it")
        elif side.source is None:
            reasons.append(f"in {name} it has no source")
        elif not _cached(side.pyc):
            reasons.append(f"in {name} the source beside it comes first")
        else:
            reasons.append(f"in {name} its header does not fit its source")
    return f"Python runs this bytecode in neither image: {', '.join(reasons)}."


def _compared(
    kind: KindName,
    entries: tuple[FileEntry | None, FileEntry | None],
    contents: tuple[bytes, bytes],
    compare: Callable[[bytes, bytes], Delta],
    known: KnownDeltas | None,
) -> Delta:
    digests = [entry.digest for entry in entries if entry is not None and entry.digest is not None]
    if known is None or len(digests) != 2:
        return compare(*contents)
    found = known.get(kind, digests[0], digests[1])
    if found is None:
        found = compare(*contents)
        known.put(kind, digests[0], digests[1], found)
    return found


def _both(a: ModuleSide, b: ModuleSide, known: KnownDeltas | None) -> Delta:
    """Compare two ``.pyc`` that both run; by what the index knows where that is enough."""
    # equal bodies prove nothing where the magic numbers differ, or where the header can't be read
    if (
        a.stamp is not None
        and b.stamp is not None
        and a.stamp.body == b.stamp.body
        and a.stamp.header[:4] == b.stamp.header[:4]
        and _readable(a.stamp.header)
        and _readable(b.stamp.header)
    ):
        return Delta("noise", bytecode.SAME_BODY)
    contents = _content(a.pyc, a), _content(b.pyc, b)
    if contents[0] is None or contents[1] is None:
        return Delta("code", f"The bytecode can't be compared: {NOT_KEPT}.")
    return _compared("bytecode", (a.pyc, b.pyc), (contents[0], contents[1]), bytecode.delta, known)


def _versions(a: ModuleSide, b: ModuleSide, source: Delta, compiled: Delta) -> Delta:
    """Take bytecode as metadata where it differs in just the version literals in which its source differs."""
    literals = {(item["a"], item["b"]) for item in source.detail["versions"]}
    contents = _content(a.pyc, a), _content(b.pyc, b)
    if contents[0] is None or contents[1] is None:
        return compiled
    minor = bytecode.read_header(contents[1]).minor
    pairs = bytecode.changed_constants(bytecode.load(contents[0]), bytecode.load(contents[1]), minor)
    if not pairs or any((_literal(x), _literal(y)) not in literals for x, y in pairs):
        return compiled
    reason = "Only the version literals differ in which the source differs."
    return Delta("metadata", reason, {"versions": source.detail["versions"]})


def _literal(value: object) -> str:
    """Write a constant as ``kinds.python.delta`` writes version literals."""
    return (value if isinstance(value, str) else repr(value))[:100]


def _readable(header: bytes) -> bool:
    try:
        bytecode.read_header(header)
    except bytecode.HeaderError:
        return False
    return True
