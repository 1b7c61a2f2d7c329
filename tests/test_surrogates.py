"""Lone surrogates, which Python and JSON can write and no encoding holds, end in a report like all other text."""

from __future__ import annotations

import importlib.util
import json
import marshal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgdiff.kinds import bytecode, python
from imgdiff.model import HOLE, Delta, ModuleFacts
from imgdiff.surrogates import encodable
from tests.support.command import Shell, layout

SOURCE = r"""
__version__ = "1.0\udcff"
__all__ = ["a\ud812"]
TABLE = {"k\udc80": "pkg.mod\udc80"}
def f(x):
    getattr(x, "n\udc88")
    open("/opt/caf\udce9/data.bin")
    return f"a/b\udc80{x}"
"""
MAIN = b"import app.odd\napp.odd.f(1)\nopen('/etc/app/x.json')\n"
anything = st.text(st.characters(codec=None, exclude_categories=()))


def compiled(source: str) -> bytes:
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(source, "x", "exec", dont_inherit=True))


def test_facts_of_both_kinds_are_equal_and_hold_a_hole_for_each() -> None:
    found = python.facts(SOURCE.encode())
    assert found == bytecode.facts(compiled(SOURCE))
    assert isinstance(found, ModuleFacts)
    assert f"/opt/caf{HOLE}/data.bin" in found.scopes[1].patterns


@pytest.mark.parametrize("with_pyc", [False, True])
def test_a_run_over_such_files_ends_in_reports(tmp_path: Path, with_pyc: bool) -> None:
    shell = Shell(tmp_path)
    for name, version, value in (("a", "1.0", r"\ud800"), ("b", "1.1", r"\ud801")):
        source = SOURCE.replace("1.0", version)
        files = {
            "srv/app/__main__.py": MAIN,
            "srv/app/odd.py": source.encode(),
            "etc/app/x.json": f'{{"k{value}": "{value}"}}'.encode(),
        }
        if with_pyc:
            files["srv/app/odd.pyc"] = compiled(source)
            del files["srv/app/odd.py"]
        layout(tmp_path / name, files)
    ran = shell.fork("a", "b", "--no-cache", "-o", "r.json", "-o", "r.md")
    assert ran.code in (1, 3), ran
    report = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert "/etc/app/x.json" in [change["path"]["b"] for change in report["changes"]]
    assert r"\ud801" in str(report["changes"]).replace("\\\\", "\\")


def test_a_file_whose_name_is_no_utf8_is_named_by_such_a_string(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for name, data in (("a", b"1"), ("b", b"2")):
        files = {"srv/app/__main__.py": MAIN, "srv/app/odd.py": SOURCE.encode(), "opt/caf\udce9/data.bin": data}
        layout(tmp_path / name, files)
    ran = shell.fork("a", "b", "--no-cache", "--format", "json")
    (change,) = json.loads(ran.out)["changes"]
    assert change["path"]["b"] == r"/opt/caf\xe9/data.bin"
    assert change["load"]["main"]["level"] == "unknown"
    assert ran.code == 3


@given(anything, st.dictionaries(anything, anything))
def test_what_can_be_encoded_is_as_it_was_and_the_rest_becomes_so(text: str, detail: dict[str, str]) -> None:
    delta = Delta("data", text, dict(detail))
    found = encodable(delta)
    msgspec.json.encode(found)
    try:
        msgspec.msgpack.encode(delta)
    except UnicodeEncodeError:
        assert found != delta
    else:
        assert found is delta
