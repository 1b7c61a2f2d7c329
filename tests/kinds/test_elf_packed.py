"""String tables of Cython modules: plain and packed in each way that Cython knows."""

from __future__ import annotations

import base64
import bz2
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgdiff.kinds import elf
from imgdiff.kinds.elf import packed
from imgdiff.model import ElfFacts
from tests.support.elf import Elf, elf_bytes

# As Cython 3.3.1 joins them: what is no identifier, identifiers in order, byte strings.
STRINGS = (
    "Note that Cython is deliberately stricter than PEP-484 and rejects subclasses of builtin types.",
    *(".", "?", "add_note", "asyncio.coroutines", "cline_in_traceback", "far.helpers.inner", "__init__", "__main__"),
    *("__module__", "__name__", "__qualname__", "__spec__", "__test__", "hidden_one", "loads", "_is_coroutine"),
    *("parse_it", "values", "zeta"),
)  # fmt: skip
TEXT = "".join(STRINGS)
TABLE = TEXT.encode() + bytes(range(0x80, 0xA0)) + b"\xf0\x01\x02" * 5
# Made of TABLE by Cython.LZSS.lzss_compress of Cython 3.3.1.
LZSS = base64.b64decode(
    "/05vdGUgdGhh/3QgQ3l0aG9u/yBpcyBkZWxp/2JlcmF0ZWx5/yBzdHJpY3Rl/XIhAW4gUEVQLf80ODQgYW5kIP9yZWplY3RzIP9zdWJjbGFzc/9l"
    "cyBvZiBidf9pbHRpbiB0ef9wZXMuLj9hZPdkX25iAGFzeW7/Y2lvLmNvcm/9dR4AZXNjbGlu/2VfaW5fdHJh/2NlYmFja2Zh/3IuaGVscGVy/3Mu"
    "aW5uZXJf/hwAaXRfX19fbflhJgAEAW9kdWxl7g4BbmFtAwJxdWG9bAQFc3BlYyoBdPtlczMAaGlkZGX/bl9vbmVsb2G/ZHNfaXNfdQZw92Fyc3oA"
    "dHZhbP91ZXN6ZXRhgP+BgoOEhYaHiP+JiouMjY6PkP+RkpOUlZaXmP+ZmpucnZ6f8AMBAgAAAAMJAA=="
)
ERROR = "LZSS string data decompression failed"


def facts(*strings: str | bytes, python: bool = True) -> ElfFacts:
    """The facts of a module of Cython with these strings in its read-only data."""
    imports = ["PyImport_ImportModule"] if python else []
    found = elf.facts(elf_bytes(Elf(imports=imports, strings=["cython_runtime", "filler here", *strings])))
    assert isinstance(found, ElfFacts)
    return found


@pytest.mark.parametrize(
    "strings",
    [
        (TEXT + "\x80",),
        (zlib.compress(TABLE, 9),),
        (bz2.compress(TABLE),),
        (ERROR, b"\0\0\0" + LZSS + b"\xffwhat follows it" * 9),
        (LZSS + bytes(64), "%.200s", ERROR),
    ],
    ids=["plain", "zlib", "bz2", "lzss", "lzss first"],
)
def test_a_table_is_read(strings: tuple[str | bytes, ...]) -> None:
    assert any(TEXT in text and len(text) < len(TEXT) + 40 for text in facts(*strings).strings)


def test_what_python_does_not_load_is_not_unpacked() -> None:
    assert not any(TEXT in text for text in facts(zlib.compress(TABLE, 9), python=False).strings)


def test_what_names_no_cython_is_not_unpacked() -> None:
    found = elf.facts(elf_bytes(Elf(imports=["PyImport_ImportModule"], strings=[zlib.compress(TABLE, 9)])))
    assert isinstance(found, ElfFacts)
    assert not any(TEXT in text for text in found.strings)


def test_a_table_that_is_cut_short_is_none() -> None:
    assert not any(TEXT in text for text in facts(zlib.compress(TABLE, 9)[:-20]).strings)


def test_other_packed_data_is_no_table() -> None:
    assert not any("only a message" in text for text in facts(zlib.compress(b"only a message " * 20)).strings)


def test_lzss_is_looked_for_only_where_its_error_stands() -> None:
    assert not any(TEXT in text for text in facts(LZSS + bytes(64)).strings)


def test_control_characters_of_a_table_are_line_breaks() -> None:
    found = facts(zlib.compress(b"\0first\x01second" + TABLE, 9)).strings
    assert any("\nfirst\nsecond" + TEXT in text for text in found)


def test_one_pass_gives_the_same() -> None:
    content = elf_bytes(Elf(imports=["PyImport_ImportModule"], strings=["cython_runtime", zlib.compress(TABLE, 9)]))
    scanner = elf.Scanner(content, len(content))
    scanner.feed(memoryview(content))
    assert scanner.finish() == elf.facts(content)


def test_what_would_unpack_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MAX_WORK", 1000)
    bombs = [zlib.compress(bytes(600)) for _ in range(3)]
    assert not any(TEXT in text for text in facts(*bombs, zlib.compress(TABLE, 9)).strings)
    eights = b"\xffabcdefgh" * 100 + b"\xff\xff\xff\xff"
    assert not any(TEXT in text for text in facts(ERROR, eights, LZSS + bytes(64)).strings)


@given(st.binary(max_size=300), st.integers(0, 20))
def test_any_bytes_are_unpacked_to_an_end(data: bytes, at: int) -> None:
    assert len(packed.lzss(data, at)) <= 300 * 130
    assert all("\0" not in text for text in packed.tables([data, ERROR.encode() + data]))
