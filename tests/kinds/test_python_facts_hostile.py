"""Facts of sources and bytecode that somebody made to hurt, and of odd but legal ones."""

from __future__ import annotations

import codecs
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.kinds import bytecode, python
from imgdiff.kinds.bytecode.facts import code_facts
from imgdiff.kinds.bytecode.marshal_reader import Code
from imgdiff.kinds.python.facts import MAX_SIZE
from imgdiff.model import ModuleFacts, Unreadable
from tests.kinds.facts_inputs import FIXTURES, pyc_of

RECORDINGS = sorted(FIXTURES.glob("*.pyc"))


@pytest.mark.parametrize(
    "source",
    [
        b"(" * 10_000 + b")" * 10_000,
        b"x = " + b"-" * 100_000 + b"1",
        b"x" + b".a" * 100_000,
        b"x = " + b" + ".join([b"'a'"] * 100_000),
        b"x = " + b"[" * 90 + b"]" * 90,
        b"if x:\n pass\n" + b"elif y:\n pass\n" * 20_000,
        b"".join(b" " * depth + b"if x:\n" for depth in range(150)) + b" " * 150 + b"pass\n",
        b"x = 1\x00",
        b"\x00" * 1000,
        b"# coding: no-such-encoding\n",
        b"# coding: rot13\nvzcbeg bf\n",
        b"x = '\xff'\n",
        b"def f(:\n",
        b"x = 10 ** 10 ** 10",
        b"lambda: " * 5000 + b"1",
        b"f(" * 180 + b")" * 180,
        b" " * (MAX_SIZE + 1),
    ],
    ids=range(17),
)
def test_a_hostile_source_gives_facts_or_a_reason(source: bytes) -> None:
    found = python.facts(source)
    assert isinstance(found, (ModuleFacts, Unreadable))
    if isinstance(found, Unreadable):
        assert found.reason.endswith(".")


@pytest.mark.parametrize(
    "source",
    [
        "# -*- coding: latin-1 -*-\nx = 'caf\xe9'\nimport a".encode("latin-1"),
        codecs.BOM_UTF8 + "x = 'caf\xe9'\nimport a".encode(),
        "# vim: set fileencoding=cp1252 :\nx = 'caf\xe9'\nimport a".encode("cp1252"),
        "x = 'caf\xe9'\r\nimport a\r\n".encode(),
        "x = 'caf\xe9'\rimport a\r".encode(),
        "x = 'caf\xe9'\nimport a\n\x0c\n".encode(),
    ],
)
def test_encodings_of_sources(source: bytes) -> None:
    found = python.facts(source)
    assert isinstance(found, ModuleFacts)
    assert found.scopes[0].strings == {"caf\xe9"}
    assert [each.module for each in found.scopes[0].imports] == ["a"]


def test_an_empty_module() -> None:
    assert python.facts(b"") == bytecode.facts(pyc_of(b""))


@pytest.mark.parametrize("expression", ["x" + " + y" * 400, "f(" * 60 + ")" * 60, "[" * 60 + "'a'" + "]" * 60])
def test_deep_expressions_agree(expression: str) -> None:
    assert python.facts(f"v = {expression}".encode()) == bytecode.facts(pyc_of(f"v = {expression}"))


@pytest.mark.parametrize("length", [0, 4, 15, 16, 17, 40, 200, 2000])
def test_truncated_bytecode_is_unreadable(length: int) -> None:
    for path in RECORDINGS:
        assert isinstance(bytecode.facts(path.read_bytes()[:length]), Unreadable)


@settings(max_examples=200, deadline=None)
@given(
    index=st.integers(0, len(RECORDINGS) - 1),
    edits=st.lists(st.tuples(st.integers(16, 20_000), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_damaged_bytecode_gives_facts_or_a_reason(index: int, edits: list[tuple[int, int]]) -> None:
    data = bytearray(RECORDINGS[index].read_bytes())
    for at, byte in edits:
        data[min(at, len(data) - 1)] = byte
    assert isinstance(bytecode.facts(bytes(data)), (ModuleFacts, Unreadable))


def code(raw: bytes, consts: tuple[object, ...] = (None,), table: bytes = b"") -> Code:
    """A code object of 3.12 with these instructions."""
    return Code(0, 0, 0, 1, 0, raw, consts, ("n",), (), (), (), "f", "f", "f", 1, b"", table)


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=400), minor=st.sampled_from([(3, minor) for minor in range(8, 15)]))
def test_any_instructions_end(raw: bytes, minor: tuple[int, int]) -> None:
    # these are what `facts` turns into Unreadable
    with contextlib.suppress(IndexError, ValueError, TypeError, AttributeError, KeyError):
        code_facts(code(raw), minor)


def test_instructions_that_ask_for_much_are_refused() -> None:
    unpack, extended = 92, 144  # UNPACK_SEQUENCE and EXTENDED_ARG of 3.12
    huge = bytes([100, 0, extended, 255, extended, 255, extended, 255, unpack, 255])
    with pytest.raises(ValueError, match="stack grows"):
        code_facts(code(huge), (3, 12))


def test_many_jumps_over_a_deep_stack_are_refused() -> None:
    deep = bytes([100, 0]) * 10_000
    jumps = bytes([110, 0]) * 10_000  # JUMP_FORWARD to the next instruction
    with pytest.raises(ValueError, match="too much work"):
        code_facts(code(deep + jumps), (3, 12))
