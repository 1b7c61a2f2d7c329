"""A module in two images: each combination of sources and .pyc, which of them runs, and what that makes of a change."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import marshal
import struct

import pytest

from imgdiff.kinds import KindName, ModuleDelta, ModuleSide, Runs, module_delta, runs
from imgdiff.kinds.bytecode import Compilers
from imgdiff.model import Delta, FileEntry, PycStamp
from tests.kinds.bytecode_inputs import THIS_MINOR, recording

OLD = b"def f():\n    return 1\n"
NEW = b"def f():\n    return 2\n"
COMMENT = b"# only a comment\ndef f():\n    return 1\n"
MTIME = 1_700_000_000
CACHED = b"site/__pycache__/m.cpython-311.pyc"


class Kept:
    """Texts by digest."""

    def __init__(self) -> None:
        self.contents: dict[bytes, bytes] = {}

    def get(self, digest: bytes) -> bytes | None:
        return self.contents.get(digest)

    def entry(self, path: bytes, content: bytes, mtime: int = MTIME) -> FileEntry:
        digest = hashlib.sha256(content).digest()
        self.contents[digest] = content
        return FileEntry(path, "file", 0o644, 0, 0, mtime * 10**9, len(content), digest)


def pyc(source: bytes, *, of: bytes | None = None, mtime: int = MTIME, size: int | None = None) -> bytes:
    """A .pyc with the code of ``source`` whose header is that of ``of`` (default: the same)."""
    checked = source if of is None else of
    head = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, mtime, len(checked) if size is None else size)
    return head + marshal.dumps(compile(source, "m.py", "exec", dont_inherit=True))


def unchecked(source: bytes) -> bytes:
    return importlib.util.MAGIC_NUMBER + struct.pack("<I", 1) + bytes(8) + pyc(source)[16:]


def side(source: bytes | None, compiled: bytes | None, *, path: bytes = CACHED, mtime: int = MTIME) -> ModuleSide:
    texts = Kept()
    stamp = None if compiled is None else PycStamp(compiled[:16], hashlib.sha256(compiled[16:]).digest())
    return ModuleSide(
        None if source is None else texts.entry(b"site/m.py", source, mtime),
        None if compiled is None else texts.entry(path, compiled),
        stamp,
        texts,
    )


def judge(a: ModuleSide, b: ModuleSide) -> ModuleDelta:
    return module_delta(a, b, Compilers([]))


def effects(found: ModuleDelta) -> tuple[str | None, str | None]:
    source = None if found.source is None else found.source.effect
    return source, None if found.bytecode is None else found.bytecode.effect


STALE = pyc(NEW, mtime=1)

# source and .pyc in a, in b; what runs in each; the effects of the source's and the .pyc's change
CASES: dict[str, tuple[ModuleSide, ModuleSide, Runs, Runs, str | None, str | None]] = {
    "installed twice: another mtime in the header and on the source": (
        side(OLD, pyc(OLD)), side(OLD, pyc(OLD, mtime=5), mtime=5), "bytecode", "bytecode", None, "noise"),
    "a comment, and both fit": (
        side(OLD, pyc(OLD)), side(COMMENT, pyc(COMMENT)), "bytecode", "bytecode", "noise", "noise"),
    "a new source, and both fit": (
        side(OLD, pyc(OLD)), side(NEW, pyc(NEW)), "bytecode", "bytecode", "code", "code"),
    "a .pyc of other code under an identical source, by its stamp": (
        side(OLD, pyc(OLD)), side(OLD, pyc(NEW, of=OLD)), "bytecode", "bytecode", None, "code"),
    "an unchecked hash of other code under an identical source": (
        side(OLD, pyc(OLD)), side(OLD, unchecked(NEW)), "bytecode", "bytecode", None, "code"),
    "a source that changed below an unchecked hash that did not": (
        side(OLD, unchecked(OLD)), side(NEW, unchecked(OLD)), "bytecode", "bytecode", "code", None),
    "stale in both": (
        side(OLD, STALE), side(OLD, pyc(OLD, mtime=2)), "source", "source", None, "noise"),
    "stale in both, and the source changed": (
        side(OLD, STALE), side(NEW, pyc(OLD, mtime=2)), "source", "source", "code", "noise"),
    "stale in a, and it fits in b with the same code": (
        side(OLD, STALE), side(OLD, pyc(OLD)), "source", "bytecode", None, "noise"),
    "stale in a, and it fits in b with other code": (
        side(OLD, STALE), side(OLD, pyc(NEW, of=OLD)), "source", "bytecode", None, "code"),
    "it fits in a with other code, and is stale in b": (
        side(OLD, pyc(NEW, of=OLD)), side(OLD, STALE), "bytecode", "source", None, "code"),
    "an mtime alone makes it stale; the source gives the same": (
        side(OLD, pyc(OLD)), side(OLD, pyc(OLD), mtime=5), "bytecode", "source", None, "noise"),
    "an mtime alone makes it stale; the source gives other code": (
        side(OLD, pyc(NEW, of=OLD)), side(OLD, pyc(NEW, of=OLD), mtime=5), "bytecode", "source", None, "code"),
    "in b only, and it fits with equal code": (
        side(OLD, None), side(OLD, pyc(OLD)), "source", "bytecode", None, "noise"),
    "in b only, and it fits with other code": (
        side(OLD, None), side(OLD, unchecked(NEW)), "source", "bytecode", None, "code"),
    "in a only, and it fits with equal code": (
        side(OLD, pyc(OLD)), side(OLD, None), "bytecode", "source", None, "noise"),
    "in a only, the source changed too": (
        side(OLD, pyc(OLD)), side(NEW, None), "bytecode", "source", "code", "code"),
    "in b only, and stale": (
        side(OLD, None), side(OLD, STALE), "source", "source", None, "noise"),
    "in __pycache__ without a source in either image": (
        side(None, pyc(OLD)), side(None, pyc(NEW)), "nothing", "nothing", None, "noise"),
    "the source went, its .pyc in __pycache__ stayed": (
        side(OLD, pyc(OLD)), side(None, pyc(OLD)), "bytecode", "nothing", "code", "code"),
    "source and .pyc went": (
        side(OLD, pyc(OLD)), side(None, None), "bytecode", "nothing", "code", "code"),
    "sourceless, and other code": (
        side(None, pyc(OLD), path=b"site/m.pyc"), side(None, pyc(NEW), path=b"site/m.pyc"),
        "bytecode", "bytecode", None, "code"),
    "sourceless, and another header": (
        side(None, pyc(OLD), path=b"site/m.pyc"), side(None, pyc(OLD, mtime=9), path=b"site/m.pyc"),
        "bytecode", "bytecode", None, "noise"),
    "sourceless in a, with a source of equal code in b": (
        side(None, pyc(OLD), path=b"site/m.pyc"), side(OLD, None), "bytecode", "source", "code", "noise"),
    "beside its source in both": (
        side(OLD, pyc(OLD), path=b"site/m.pyc"), side(OLD, pyc(NEW), path=b"site/m.pyc"),
        "source", "source", None, "noise"),
    "unreadable in b, where it fits": (
        side(OLD, pyc(OLD)), side(OLD, pyc(OLD)[:-3]), "bytecode", "bytecode", None, "code"),
    "of a Python that we don't know": (
        side(OLD, pyc(OLD)), side(OLD, b"\x50\x01\r\n" + pyc(OLD)[4:]), "bytecode", "bytecode", None, "code"),
    "equal bodies under two magic numbers": (
        side(OLD, pyc(OLD)), side(OLD, recording((3, 8))[0][:4] + pyc(OLD)[4:]), "bytecode", "bytecode", None, "code"),
    "cut within the header in both": (
        side(OLD, b"\x01"), side(OLD, b"\x02"), "source", "source", None, "noise"),
    "a source only, and a comment": (
        side(OLD, None), side(COMMENT, None), "source", "source", "noise", None),
    "nothing differs": (
        side(OLD, pyc(OLD)), side(OLD, pyc(OLD)), "bytecode", "bytecode", None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_combination(name: str) -> None:
    a, b, runs_a, runs_b, source, compiled = CASES[name]
    found = judge(a, b)
    assert (found.runs_a, found.runs_b) == (runs_a, runs_b)
    assert effects(found) == (source, compiled), found
    for delta in (found.source, found.bytecode):
        if delta is not None:
            assert (delta.detail["runs_a"], delta.detail["runs_b"]) == (runs_a, runs_b)
            assert delta.settle is None


@pytest.mark.parametrize("name", CASES)
def test_the_other_way_round(name: str) -> None:
    a, b, runs_a, runs_b, source, compiled = CASES[name]
    found = judge(b, a)
    assert (found.runs_a, found.runs_b) == (runs_b, runs_a)
    assert effects(found) == (source, compiled)


def test_noise_always_means_that_equal_code_runs() -> None:
    """Every pair of sides: where both deltas are noise or absent, what runs is equal code."""
    sources = [None, OLD, NEW, COMMENT]
    compiled = [None, pyc(OLD), pyc(NEW), pyc(COMMENT), unchecked(OLD), unchecked(NEW), STALE, pyc(NEW, of=OLD)]
    sides = [side(s, c) for s, c in itertools.product(sources, compiled)]

    def executed(of: ModuleSide) -> str | None:
        what = runs(of)
        if what == "nothing":
            return None
        entry = of.source if what == "source" else of.pyc
        assert entry is not None
        assert entry.digest is not None
        content = of.texts.get(entry.digest)
        assert content is not None
        code = compile(content, "m", "exec") if what == "source" else marshal.loads(content[16:])
        return repr([const for const in code.co_consts[0].co_consts if const is not None])

    for a, b in itertools.product(sides, sides):
        found = judge(a, b)
        if set(effects(found)) <= {"noise", None}:
            assert executed(a) == executed(b), (a, b, found)


def test_another_minor_leaves_it_open_with_a_hint() -> None:
    minor = (3, 14) if THIS_MINOR != (3, 14) else (3, 12)
    other = recording(minor)[0]
    found = judge(side(OLD, other), side(OLD, None)).bytecode
    assert found is not None
    assert found.effect == "code"
    assert found.settle is not None
    assert f"{minor[0]}.{minor[1]}" in found.settle


def test_optimized_bytecode_is_held_against_an_optimized_source() -> None:
    source = b'"""Text."""\nassert f()\n'
    body = marshal.dumps(compile(source, "m", "exec", dont_inherit=True, optimize=2))
    head = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, MTIME, len(source))
    path = b"site/__pycache__/m.cpython-311.opt-2.pyc"
    found = judge(side(source, head + body, path=path), side(source, None)).bytecode
    assert found is not None
    assert found.effect == "noise"


def test_content_that_was_not_kept_is_never_noise() -> None:
    a, b = side(OLD, pyc(OLD)), side(COMMENT, pyc(COMMENT))
    b = ModuleSide(b.source, b.pyc, b.stamp, Kept())
    found = judge(a, b)
    assert effects(found) == ("code", "code")
    assert found.source is not None
    assert "not kept" in found.source.reason


def test_equal_bodies_need_no_content() -> None:
    a, b = side(OLD, pyc(OLD)), side(OLD, pyc(OLD, mtime=5), mtime=5)
    empty = Kept()
    found = judge(ModuleSide(a.source, a.pyc, a.stamp, empty), ModuleSide(b.source, b.pyc, b.stamp, empty))
    assert effects(found) == (None, "noise")


def test_a_checked_hash_is_checked() -> None:
    head = importlib.util.MAGIC_NUMBER + struct.pack("<I", 3) + importlib.util.source_hash(OLD)
    assert runs(side(OLD, head + pyc(OLD)[16:])) == "bytecode"
    assert runs(side(NEW, head + pyc(OLD)[16:])) == "source"


class Known:
    """Deltas by kind and digests, and how often one was asked for in vain."""

    def __init__(self) -> None:
        self.deltas: dict[tuple[str, bytes, bytes], Delta] = {}
        self.missed = 0

    def get(self, kind: KindName, a: bytes, b: bytes) -> Delta | None:
        found = self.deltas.get((kind, a, b))
        self.missed += found is None
        return found

    def put(self, kind: KindName, a: bytes, b: bytes, delta: Delta) -> None:
        self.deltas[kind, a, b] = delta


@pytest.mark.parametrize("name", CASES)
def test_contents_that_are_known_give_the_same_and_are_compared_once(name: str) -> None:
    a, b, *_ = CASES[name]
    known = Known()
    fresh = module_delta(a, b, Compilers([]))
    assert module_delta(a, b, Compilers([]), known) == fresh
    missed = known.missed
    assert missed == len(known.deltas)
    assert module_delta(a, b, Compilers([]), known) == fresh
    assert known.missed == missed
