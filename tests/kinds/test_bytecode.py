"""Bytecode: headers, whether a .pyc fits its source, equality of code objects, and deltas."""

from __future__ import annotations

import base64
import importlib.util
import json
import marshal
import os
import py_compile
import struct
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgdiff.kinds.bytecode import (
    Compilers,
    Header,
    HeaderError,
    UnknownMagicError,
    against_source,
    delta,
    differences,
    equal,
    fits,
    load_body,
    minor_of,
    read_header,
    source_hash,
)
from imgdiff.kinds.bytecode._header import FINAL_MAGIC
from imgdiff.kinds.bytecode.compilers import MAX_SOURCE, CompileError
from tests.kinds.bytecode_inputs import FIXTURES, MINORS, THIS_MINOR, compiled, interpreters, recording

MAGIC = importlib.util.MAGIC_NUMBER
THIS_MAGIC = int.from_bytes(MAGIC[:2], "little")


def header(mtime: int = 0, size: int = 0, magic: bytes = MAGIC) -> bytes:
    return magic + struct.pack("<III", 0, mtime, size)


# Headers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", MINORS)
def test_magic_number_of_each_minor(minor: tuple[int, int]) -> None:
    pyc, seen = recording(minor)
    found = read_header(pyc)
    assert (found.minor, found.magic, found.final) == (minor, FINAL_MAGIC[minor], True)
    assert found.check == "unchecked-hash"
    assert found.hash.hex() == seen["source_hash"]


def test_magic_numbers_of_pre_releases_have_their_minor() -> None:
    assert minor_of(3400) == (3, 8)
    assert minor_of(3494) == (3, 11)
    assert minor_of(3650) == (3, 15)
    assert minor_of(3394) is None  # 3.7
    assert not read_header(header(magic=struct.pack("<H", 3500) + b"\r\n")).final


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", HeaderError),
        (header()[:15], HeaderError),
        (MAGIC + b"\x04\0\0\0" + bytes(8), HeaderError),
        (b"\x42\x0d\r\n" + bytes(12), UnknownMagicError),
        (MAGIC[:2] + b"\n\n" + bytes(12), UnknownMagicError),
    ],
)
def test_headers_that_no_python_accepts(data: bytes, error: type[HeaderError]) -> None:
    with pytest.raises(HeaderError) as caught:
        read_header(data)
    assert type(caught.value) is error


# Fits ------------------------------------------------------------------------------------------------------------


def test_timestamp_fits_by_whole_seconds_and_size() -> None:
    second = 1_700_000_000
    assert fits(header(second, 10), second * 10**9, 10, None) is True
    assert fits(header(second, 10), second * 10**9 + 999_000_000, 10, None) is True
    assert fits(header(second, 10), (second + 1) * 10**9, 10, None) is False
    assert fits(header(second, 10), second * 10**9, 11, None) is False
    assert fits(header(second & 0xFFFFFFFF, 10), (second + 2**32) * 10**9, 10 + 2**32, None) is True


def test_the_check_bit_without_a_hash_is_a_timestamp() -> None:
    data = MAGIC + struct.pack("<III", 2, 5, 6)
    assert fits(data, 5 * 10**9, 6, None) is True


def test_unknown_magic_can_not_be_told() -> None:
    assert fits(header(magic=b"\x50\x01\r\n"), 0, 0, b"") is None
    assert fits(b"short", 0, 0, b"") is False


@pytest.mark.parametrize("nanoseconds", [0, 1, 999_999_000, 999_999_999, 123_456_789])
def test_agrees_with_importlib_on_real_files(nanoseconds: int, tmp_path: Path) -> None:
    source = tmp_path / "m.py"
    source.write_text("x = 1\n")
    os.utime(source, ns=(0, 1_700_000_000 * 10**9 + nanoseconds))
    pyc = py_compile.compile(str(source), doraise=True)
    status = source.stat()
    assert pyc is not None
    assert fits(Path(pyc).read_bytes()[:16], status.st_mtime_ns, status.st_size, None) is True


def test_hashes(tmp_path: Path) -> None:
    source = tmp_path / "m.py"
    source.write_bytes(b"x = 1\n")
    for mode, checked in (("checked-hash", True), ("unchecked-hash", False)):
        pyc = py_compile.compile(
            str(source), doraise=True, invalidation_mode=py_compile.PycInvalidationMode(2 if checked else 3)
        )
        assert pyc is not None
        head = Path(pyc).read_bytes()[:16]
        assert read_header(head).check == mode
        assert fits(head, 0, 0, b"x = 1\n") is True
        assert fits(head, 0, 0, b"x = 2\n") is (not checked)
        assert fits(head, 0, 0, None) is (None if checked else True)


@given(st.binary(max_size=100))
def test_source_hash_is_importlibs(data: bytes) -> None:
    assert source_hash(data, Header(THIS_MAGIC, THIS_MINOR, "checked-hash")) == importlib.util.source_hash(data)


@pytest.mark.parametrize("minor", MINORS)
def test_source_hash_of_each_minor(minor: tuple[int, int]) -> None:
    _, seen = recording(minor)
    source = (FIXTURES / "sample.py").read_bytes()
    assert source_hash(source, Header(FINAL_MAGIC[minor], minor, "checked-hash")).hex() == seen["source_hash"]


# Equality --------------------------------------------------------------------------------------------------------


def same(a: bytes, b: bytes, minor: tuple[int, int] = THIS_MINOR) -> bool:
    return equal(load_body(a, minor), load_body(b, minor), minor)


SOURCE = "import a\n\ndef f(x, *, y=1):\n    return x + y + 1000\n\nclass C:\n    def g(self):\n        return 'text'\n"


def test_positions_and_file_names_do_not_count() -> None:
    assert same(compiled(SOURCE, "a.py"), compiled(SOURCE, "/other/b.py"))
    moved = SOURCE.replace("import a", "# comment\nimport a").replace("return x", "return  x")
    assert same(compiled(SOURCE), compiled(moved))


@pytest.mark.parametrize(
    ("old", "new", "qualname", "field"),
    [
        ("1000", "1001", "f", "constants"),
        ("1000", "1000.0", "f", "constants"),
        ("x + y", "x - y", "f", "instructions"),
        ("'text'", "b'text'", "C.g", "constants"),
        ("import a", "import b as a", "<module>", "names"),
        ("def f(x, *", "def f(x, z, *", "f", "arguments"),
        ("return x", "q = 1; return x", "f", "variables"),
        ("    def g", "    async def g", "C.g", "flags"),
    ],
)
def test_what_counts_and_where(old: str, new: str, qualname: str, field: str) -> None:
    a, b = load_body(compiled(SOURCE), THIS_MINOR), load_body(compiled(SOURCE.replace(old, new)), THIS_MINOR)
    found = differences(a, b, THIS_MINOR)
    assert field in {word for difference in found if difference.qualname == qualname for word in difference.fields}
    assert not equal(b, a, THIS_MINOR)


def test_added_and_removed_functions() -> None:
    a, b = (load_body(compiled(text), THIS_MINOR) for text in (SOURCE, SOURCE.replace("def g", "def h")))
    found = {(difference.qualname, difference.status) for difference in differences(a, b, THIS_MINOR)}
    assert {("C.g", "removed"), ("C.h", "added"), ("C", "changed")} <= found


def code_of(consts: tuple[Any, ...]) -> bytes:
    return marshal.dumps(compile("", "m", "exec").replace(co_consts=consts), 2)


DISTINCT = [
    (1,),
    (1.0,),
    (True,),
    (1 + 0j,),
    (0,),
    (0.0,),
    (-0.0,),
    (False,),
    (0j,),
    (complex(0.0, -0.0),),
    (complex(-0.0, 0.0),),
    ("1",),
    (b"1",),
    (None,),
    (...,),
    ((),),
    (frozenset(),),
    ((1,),),
    ((1.0,),),
    ((True,),),
    (frozenset({1}),),
    (frozenset({1.0}),),
    (frozenset({True}),),
    (frozenset({(1,)}),),
    (frozenset({(True,)}),),
    ((0.0,),),
    ((-0.0,),),
    (float("nan"),),
    (struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0],),
    (-struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0],),
    (1, 1),
    ("",),
    (b"",),
]


def test_constants_count_by_type_and_value() -> None:
    bodies = [code_of(consts) for consts in DISTINCT]
    for at, one in enumerate(bodies):
        for other_at, other in enumerate(bodies):
            assert same(one, other) is (at == other_at), (DISTINCT[at], DISTINCT[other_at])


def test_the_order_of_a_set_does_not_count() -> None:
    # written by hand, since this process has one order for it
    one, other = (code_of(("MARK",)) for _ in "ab")
    mark = marshal.dumps("MARK", 2)
    forward = b">\x02\0\0\0z\x01az\x01b"
    backward = b">\x02\0\0\0z\x01bz\x01a"
    assert mark in one
    assert same(one.replace(mark, forward), other.replace(mark, backward))
    assert not same(one.replace(mark, forward.replace(b">", b"(")), one.replace(mark, backward.replace(b">", b"(")))
    assert not same(one.replace(mark, forward), one.replace(mark, forward.replace(b"\x01b", b"\x01c")))


def test_shared_and_unshared_references_are_equal() -> None:
    code = compile(SOURCE, "m", "exec")
    assert marshal.dumps(code, 2) != marshal.dumps(code, 4)
    assert same(marshal.dumps(code, 2), marshal.dumps(code, 4))


def test_a_minus_and_a_tilde_differ_under_every_reader() -> None:
    # FACTS: these two compare equal when another minor's marshal reads them
    assert not same(compiled("def f(x): return -x"), compiled("def f(x): return ~x"))


def test_the_exception_table_counts() -> None:
    code = compile("try:\n    f()\nexcept E:\n    g()\n", "m", "exec")
    other = code.replace(co_exceptiontable=b"\x81\x01\x02\x00")
    assert not same(marshal.dumps(code), marshal.dumps(other))


def test_the_stack_size_does_not_count() -> None:
    code = compile(SOURCE, "m", "exec")
    assert same(marshal.dumps(code), marshal.dumps(code.replace(co_stacksize=code.co_stacksize + 5)))


@pytest.mark.parametrize("minor", [(3, 13), (3, 14)])
def test_the_first_line_that_a_class_stores_is_a_position(minor: tuple[int, int]) -> None:
    lines = json.loads((FIXTURES / f"lines-{minor[0]}{minor[1]}.json").read_text())
    bodies = {name: base64.b64decode(body) for name, body in lines.items()}
    assert same(bodies["plain"], bodies["comment"], minor)
    assert same(bodies["line 300"], bodies["line 400"], minor)
    assert not same(bodies["plain"], bodies["value"], minor)
    assert not same(bodies["own"], bodies["own 2"], minor)
    assert not same(bodies["plain"], bodies["own"], minor)


def test_a_line_number_that_is_another_constant_too_is_left_in() -> None:
    lines = json.loads((FIXTURES / "lines-313.json").read_text())
    bodies = {name: base64.b64decode(body) for name, body in lines.items()}
    # the class begins in line 7 and binds 7: one constant for both
    assert not same(bodies["plain"], bodies["line 7"], (3, 13))


# Deltas ----------------------------------------------------------------------------------------------------------


def test_delta_of_the_header_alone_is_noise() -> None:
    body = compiled(SOURCE)
    found = delta(header(1) + body, header(2) + body)
    assert found.effect == "noise"
    assert "Only the header" in found.reason


def test_delta_of_equal_code_is_noise() -> None:
    found = delta(header() + compiled(SOURCE), header() + compiled(SOURCE, "/other.py"))
    assert found.effect == "noise"


def test_delta_of_code_names_the_functions() -> None:
    found = delta(header() + compiled(SOURCE), header() + compiled(SOURCE.replace("1000", "1001")))
    assert found.effect == "code"
    assert found.detail["functions"]["changed"] == ["f"]
    assert "f (constants)" in found.reason


@pytest.mark.parametrize(
    ("a", "words"),
    [
        (b"", "too short"),
        (header(magic=b"\x50\x01\r\n"), "magic number"),
        (header(), "can't be read"),
        (header() + compiled(SOURCE)[:-1], "truncated"),
        (recording((3, 8))[0], "different Pythons"),
        (struct.pack("<H", THIS_MAGIC - 1) + b"\r\n" + bytes(12), "different Pythons"),
    ],
)
def test_what_can_not_be_compared_is_code(a: bytes, words: str) -> None:
    for found in (delta(a, header() + compiled(SOURCE)), delta(header() + compiled(SOURCE), a)):
        assert found.effect == "code"
        assert words in found.reason


def test_equal_names_are_bounded_in_the_detail() -> None:
    many = "\n".join(f"def f{n}(): return {n}.5" for n in range(200))
    found = delta(header() + compiled(many), header() + compiled(many.replace(".5", ".25")))
    assert len(found.detail["functions"]["changed"]) == 50
    assert found.detail["functions"]["changed_count"] == 200


# Against a source --------------------------------------------------------------------------------------------------


@pytest.fixture
def here() -> Compilers:
    return Compilers([])


def test_a_source_that_gives_equal_code(here: Compilers) -> None:
    found = against_source(header() + compiled(SOURCE), SOURCE.encode(), 0, here, "a")
    assert (found.effect, found.settle) == ("noise", None)
    assert "bytecode in a and the source in b" in found.reason


def test_a_source_that_gives_other_code(here: Compilers) -> None:
    found = against_source(header() + compiled(SOURCE), SOURCE.replace("1000", "1").encode(), 0, here, "b")
    assert (found.effect, found.settle) == ("code", None)
    assert "bytecode in b and the source in a" in found.reason


def test_optimized_bytecode_is_compared_with_an_optimized_source(here: Compilers) -> None:
    source = '"""Text."""\nassert x\n'
    body = marshal.dumps(compile(source, "m", "exec", dont_inherit=True, optimize=2))
    found = against_source(header() + body, source.encode(), 2, here, "a")
    assert found.effect == "noise", found
    assert against_source(header() + body, source.encode(), 0, here, "a").effect == "code"


def test_another_minor_leaves_it_open(here: Compilers) -> None:
    pyc, _ = recording((3, 14) if THIS_MINOR != (3, 14) else (3, 12))
    found = against_source(pyc, (FIXTURES / "sample.py").read_bytes(), 0, here, "a")
    assert found.effect == "code"
    assert found.settle is not None
    assert read_header(pyc).python in found.settle


@pytest.mark.parametrize(
    "source", [b"def", b"x = \0", b"\xff", b"x = " + b"(" * 500, b"-" * 100_000 + b"1", b"x" * (MAX_SOURCE + 1)]
)
def test_a_source_that_does_not_compile_is_code(source: bytes, here: Compilers) -> None:
    found = against_source(header() + compiled(SOURCE), source, 0, here, "a")
    assert (found.effect, found.settle) == ("code", None)


def test_compiling_runs_nothing(here: Compilers, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    here.compile(f"open({str(mark)!r}, 'w')".encode(), THIS_MAGIC, 0)
    assert not mark.exists()


def test_warnings_of_a_source_are_no_errors(here: Compilers) -> None:
    assert here.compile(b"x = 1 is 1\ny = '\\d'\n", THIS_MAGIC, 0)


def test_other_interpreters_compile_too() -> None:
    pythons = interpreters()
    if not pythons:
        pytest.skip("no other interpreter; name some in IMGDIFF_TEST_PYTHONS")
    source = (FIXTURES / "sample.py").read_bytes()
    with Compilers(pythons) as compilers:
        assert THIS_MINOR in compilers.minors()
        for minor in compilers.minors():
            found = against_source(recording(minor)[0], source, 0, compilers, "a")
            assert found.effect == "noise", (minor, found)
            with pytest.raises(CompileError):
                compilers.compile(b"def", FINAL_MAGIC[minor], 0)
            assert compilers.compile(b"x = 1", FINAL_MAGIC[minor], 0)


def test_a_program_that_is_no_python_is_left_out(tmp_path: Path) -> None:
    fake = tmp_path / "python3.12"
    fake.write_text("#!/bin/sh\necho 3531\nexit 3\n")
    fake.chmod(0o755)
    with Compilers([str(fake), str(tmp_path / "missing")]) as compilers:
        assert compilers.minors() == tuple({THIS_MINOR} & set(FINAL_MAGIC))


def test_a_compiler_that_dies_is_an_error_and_no_hang(tmp_path: Path) -> None:
    other = next(minor for minor in MINORS if minor != THIS_MINOR)
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\ncase "$4" in *marshal*) exit 9;; *) echo {FINAL_MAGIC[other]};; esac\n')
    fake.chmod(0o755)
    with Compilers([str(fake)]) as compilers:
        for _ in range(2):
            with pytest.raises(CompileError, match="ended the interpreter"):
                compilers.compile(b"x = 1", FINAL_MAGIC[other], 0)


def test_this_python_compiles_as_its_own_child() -> None:
    # the same source in another process, under another hash seed
    code = "import sys, marshal; sys.stdout.buffer.write(marshal.dumps(compile(sys.argv[1], 'm', 'exec')))"
    source = "def f(x):\n    return x in {'a', 'b', 'c', 'd'}\n"
    bodies = {
        subprocess.run(
            [sys.executable, "-c", code, source], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert all(same(body, compiled(source)) for body in bodies)


def test_code_type_has_no_field_that_we_forget() -> None:
    known = {
        *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_stacksize", "co_flags", "co_code", "co_consts"),
        *("co_names", "co_varnames", "co_cellvars", "co_freevars", "co_filename", "co_name", "co_qualname"),
        *("co_firstlineno", "co_linetable", "co_exceptiontable", "co_nlocals", "co_lnotab", "co_lines"),
        *("co_positions", "co_branches"),
    }
    assert {name for name in dir(CodeType) if name.startswith("co_")} <= known
