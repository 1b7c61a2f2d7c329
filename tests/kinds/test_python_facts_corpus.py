"""Facts of real modules: the standard library, from its sources and from what this and other Pythons make of them."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from imgdiff.kinds import bytecode, python
from imgdiff.model import ModuleFacts
from tests.kinds.bytecode_inputs import interpreters
from tests.kinds.facts_inputs import compile_with, disagreements, pyc_of

STDLIB = Path(sysconfig.get_path("stdlib"))
# Real modules of every sort: dynamic imports, lazy attributes, async code, deep classes, long functions.
NAMES = [
    "_pyio",
    "argparse",
    "ast",
    "asyncio/base_events",
    "asyncio/tasks",
    "codecs",
    "collections/__init__",
    "concurrent/futures/__init__",
    "configparser",
    "contextlib",
    "ctypes/util",
    "dataclasses",
    "dis",
    "email/message",
    "encodings/__init__",
    "enum",
    "functools",
    "http/server",
    "importlib/__init__",
    "importlib/_bootstrap_external",
    "importlib/metadata/__init__",
    "json/__init__",
    "logging/config",
    "mimetypes",
    "multiprocessing/context",
    "multiprocessing/spawn",
    "os",
    "pathlib",
    "pdb",
    "pickle",
    "pkgutil",
    "platform",
    "posixpath",
    "runpy",
    "shutil",
    "site",
    "socket",
    "sqlite3/__init__",
    "ssl",
    "subprocess",
    "sysconfig",
    "tarfile",
    "tempfile",
    "traceback",
    "typing",
    "unittest/loader",
    "unittest/mock",
    "urllib/request",
    "uuid",
    "warnings",
    "webbrowser",
    "xml/dom/minidom",
    "zipfile",
    "zoneinfo/__init__",
]


def modules(folder: Path) -> list[Path]:
    """The modules by these names that a Python has."""
    return [path for name in NAMES if (path := folder / f"{name}.py").exists()]


def compare(sources: dict[Path, bytes]) -> list[str]:
    """What disagrees between sources and these .pyc of them; sources that this Python can't parse are left out."""
    found: list[str] = []
    compared = 0
    for path, pyc in sources.items():
        source = python.facts(path.read_bytes())
        compiled = bytecode.facts(pyc)
        assert isinstance(compiled, ModuleFacts), (path.name, compiled)
        if isinstance(source, ModuleFacts):
            compared += 1
            found += [f"{path.name}: {each}" for each in disagreements(source, compiled)]
    assert compared > len(sources) // 2
    return found


def test_source_and_bytecode_of_this_python_agree() -> None:
    assert compare({path: pyc_of(path.read_bytes()) for path in modules(STDLIB)}) == []


@pytest.mark.parametrize("interpreter", interpreters() or ["none"])
def test_source_and_bytecode_of_other_pythons_agree(interpreter: str, tmp_path: Path) -> None:
    if interpreter == "none":
        pytest.skip("no other Python is at hand (IMGDIFF_TEST_PYTHONS names them)")
    asked = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    folder = Path(subprocess.run([interpreter, "-c", asked], check=True, capture_output=True, text=True).stdout.strip())
    assert compare(compile_with(interpreter, modules(folder), tmp_path)) == []
