"""The marshal reader: against recordings of every minor, against this Python's own, and against hostile data."""

from __future__ import annotations

import json
import marshal
import struct
import subprocess
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.kinds.bytecode import Code, Container, MarshalError, load, load_body, read_header
from imgdiff.kinds.bytecode.marshal_reader import MAX_DEPTH, MAX_SIZE
from tests.kinds.bytecode_inputs import (
    FIXTURES,
    MINORS,
    THIS_MINOR,
    compiled,
    describe,
    describe_plain,
    interpreters,
    recording,
)

EMPTY = compile("", "m", "exec")


def code_with(constant: bytes) -> bytes:
    """A marshalled code object of this Python whose only constant is these bytes."""
    body = marshal.dumps(EMPTY.replace(co_consts=("MARK",)), 2)
    mark = marshal.dumps("MARK", 2)
    assert body.count(mark) == 1
    return body.replace(mark, constant)


def modern_code_with(constant: bytes) -> bytes:
    """The same in the layout of 3.11 and newer."""
    name = b"z\x01f"
    head = b"c" + bytes(20) + b"s\0\0\0\0" + b")\x01" + constant + b")\0)\0s\0\0\0\0"
    return head + name * 3 + bytes(4) + b"s\0\0\0\0" * 2


def as_recorded(described: Any, recorded: Any) -> Any:
    """Write integers as the recording does, and leave out the qualified names that a minor did not store."""
    if isinstance(described, dict):
        if recorded["qualname"] is None:
            described = {**described, "qualname": None}
        pairs = zip(described["consts"], recorded["consts"], strict=True)
        return {**described, "consts": [as_recorded(one, other) for one, other in pairs]}
    if isinstance(described, list) and described[0] == "int":
        return ["int", str(int(described[1], 16))]
    if isinstance(described, list) and described[0] in {"tuple", "slice"}:
        return [described[0], *(as_recorded(one, two) for one, two in zip(described[1:], recorded[1:], strict=True))]
    if isinstance(described, list) and described[0] == "frozenset":
        return [described[0], *sorted((as_recorded(one, one) for one in described[1:]), key=repr)]
    return described


@pytest.mark.parametrize("minor", MINORS)
def test_reads_what_each_minor_wrote(minor: tuple[int, int]) -> None:
    pyc, seen = recording(minor)
    assert read_header(pyc).minor == minor
    assert as_recorded(describe(load(pyc)), seen["module"]) == seen["module"]


def test_old_bytecode_has_derived_qualified_names() -> None:
    def names(code: Code) -> set[str]:
        return {code.qualname}.union(*[names(const) for const in code.consts if isinstance(const, Code)])

    old, new = names(load(recording((3, 10))[0])), names(load(recording((3, 11))[0]))
    assert old == new
    assert "Outer.Inner.generator" in old
    assert "many.<locals>.inner" in old


@pytest.mark.parametrize("python", interpreters() or [None])
def test_reads_the_library_of_other_pythons(python: str | None, tmp_path: Path) -> None:
    if python is None:
        pytest.skip("no other interpreter; name some in IMGDIFF_TEST_PYTHONS")
    for name in ("sample.py", "record.py"):
        (tmp_path / name).write_bytes((FIXTURES / name).read_bytes())
    subprocess.run([python, "-I", str(tmp_path / "record.py"), str(tmp_path)], check=True)
    (pyc,) = tmp_path.glob("*.pyc")
    seen = json.loads(pyc.with_suffix(".json").read_text())
    assert as_recorded(describe(load(pyc.read_bytes())), seen["module"]) == seen["module"]


CONSTANTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(), max_size=300)
    | st.binary(max_size=300)
    | st.just(...),
    lambda inner: st.lists(inner, max_size=5).map(tuple) | st.frozensets(inner, max_size=5),
    max_leaves=20,
)


def describe_native(value: Any) -> Any:
    if isinstance(value, frozenset):
        return ["frozenset", *sorted((describe_native(item) for item in value), key=repr)]
    return describe_plain(value, describe_native)


@given(st.lists(CONSTANTS, max_size=6), st.integers(2, 4))
def test_constants_come_back_with_type_and_value(consts: list[Any], version: int) -> None:
    body = marshal.dumps(EMPTY.replace(co_consts=tuple(consts)), version)
    assert [describe(const) for const in load_body(body, THIS_MINOR).consts] == [describe_native(c) for c in consts]


@given(st.dictionaries(st.text(max_size=3), st.integers()) | st.lists(st.integers()) | st.sets(st.integers()))
def test_containers_that_no_compiler_writes(value: Any) -> None:
    (const,) = load_body(code_with(marshal.dumps(value, 2)), THIS_MINOR).consts
    assert isinstance(const, Container)
    assert const.kind == type(value).__name__
    flat = [part for item in value.items() for part in item] if type(value) is dict else list(value)
    assert sorted(const.items) == sorted(value) if type(value) is set else list(const.items) == flat


def test_slices_are_read_from_3_14_on() -> None:
    body = recording((3, 14))[0][16:]
    assert b":" in body
    (const,) = load_body(modern_code_with(b":i\x01\0\0\0NN"), (3, 14)).consts
    assert (const.kind, const.items) == ("slice", (1, None, None))
    with pytest.raises(MarshalError, match="unknown type"):
        load_body(modern_code_with(b":NNN"), (3, 13))


@pytest.mark.parametrize("value", [0.5, -1e300, float("inf"), 2.5 - 1j])
def test_numbers_as_text(value: Any) -> None:
    body = marshal.dumps(EMPTY.replace(co_consts=(value,)), 1)
    assert load_body(body, THIS_MINOR).consts == (value,)


@pytest.mark.parametrize(
    ("constant", "words"),
    [
        (b"(\xff\xff\xff\x7f", "truncated"),
        (b"(\xff\xff\xff\xff", "truncated"),
        (b"s\xff\xff\xff\x7f", "truncated"),
        (b"u\x00\x00\x00\x80", "truncated"),
        (b"l\xff\xff\xff\x7f", "truncated"),
        (b"l\x00\x00\x00\x80", "truncated"),
        (b">\xff\xff\xff\x7f", "truncated"),
        (b"r\x00\x00\x00\x00", "reference"),
        (b"r\xff\xff\xff\xff", "reference"),
        (b"\xa9\x01r\x00\x00\x00\x00", "unfinished"),
        (b"l\x01\x00\x00\x00\xff\xff", "digits"),
        (b"l\x02\x00\x00\x00\x01\x00\x00\x00", "digits"),
        (b"f\x031_0", "float"),
        (b"f\x05 1.0 ", "float"),
        (b"u\x01\x00\x00\x00\xff", "UTF-8"),
        (b"0", "unknown type"),
        (b"?", "unknown type"),
        (b"\x00", "unknown type"),
        (b"{N0", "unknown type"),
        (b")\x01" * 1000 + b"N", "nested"),
        ((b"c" + bytes(20)) * 1000, "nested"),
    ],
)
def test_malformed_constants_are_refused(constant: bytes, words: str) -> None:
    with pytest.raises(MarshalError, match=words):
        load_body(code_with(constant), THIS_MINOR)


def test_depth_up_to_the_bound_is_read() -> None:
    deep = b")\x01" * (MAX_DEPTH - 2) + b"N"
    assert load_body(code_with(deep), THIS_MINOR)
    with pytest.raises(MarshalError, match="nested"):
        load_body(code_with(b")\x01" + deep), THIS_MINOR)


def test_references_that_multiply_are_refused() -> None:
    # each tuple holds the one before twice: 2 ** 60 elements in 600 bytes
    level = b"\xa9\x01N"
    for at in range(60):
        level += b"\xa9\x02r" + struct.pack("<i", at) + b"r" + struct.pack("<i", at)
    with pytest.raises(MarshalError, match="references"):
        load_body(code_with(b")\x3d" + level), THIS_MINOR)


def test_a_long_integer_costs_no_more_than_its_length() -> None:
    count = 200_000
    body = code_with(b"l" + struct.pack("<i", count) + b"\xff\x7f" * count)
    assert load_body(body, THIS_MINOR).consts == ((1 << 15 * count) - 1,)


def test_only_one_code_object_and_nothing_else() -> None:
    body = compiled("x = 1")
    with pytest.raises(MarshalError, match="behind the end"):
        load_body(body + b"\0", THIS_MINOR)
    with pytest.raises(MarshalError, match="not a code object"):
        load_body(marshal.dumps((1, 2)), THIS_MINOR)
    with pytest.raises(MarshalError, match="larger"):
        load_body(bytes(MAX_SIZE + 1), THIS_MINOR)


@pytest.mark.parametrize("minor", [(3, 7), (3, 15), (2, 7), (4, 0)])
def test_other_minors_are_refused(minor: tuple[int, int]) -> None:
    with pytest.raises(MarshalError, match="not known"):
        load_body(compiled(""), minor)


def test_every_prefix_is_truncated() -> None:
    pyc, _ = recording((3, 12))
    for end in range(16, len(pyc)):
        with pytest.raises(MarshalError):
            load(pyc[:end])


def read_or_refuse(body: bytes, minor: tuple[int, int]) -> None:
    with suppress(MarshalError):
        describe(load_body(body, minor))


@given(st.sampled_from(MINORS), st.data())
@settings(max_examples=400, deadline=None)
def test_flipped_bits_are_read_or_refused(minor: tuple[int, int], data: st.DataObject) -> None:
    body = bytearray(recording(minor)[0][16:])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] ^= 1 << data.draw(st.integers(0, 7))
    read_or_refuse(bytes(body), data.draw(st.sampled_from(MINORS)))


TYPES = st.sampled_from([bytes([code | flag]) for code in b"0NTFS.ilgfxystAaZzu)([{<>cr:?" for flag in (0, 0x80)])


@given(st.lists(TYPES | st.integers(-3, 40).map(lambda n: struct.pack("<i", n)) | st.binary(max_size=4)).map(b"".join))
@settings(max_examples=400, deadline=None)
def test_anything_is_read_or_refused(data: bytes) -> None:
    read_or_refuse(data, (3, 14))
    read_or_refuse(code_with(data), THIS_MINOR)


def test_memory_is_bounded_by_the_data() -> None:
    data = code_with(b"(" + struct.pack("<i", 100_000) + b")\x01N" * 100_000)
    tracemalloc.start()
    try:
        load_body(data, THIS_MINOR)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60 * len(data)
