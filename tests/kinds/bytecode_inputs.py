"""Bytecode for tests: recordings of each minor, code of this Python, and other interpreters where there are any."""

from __future__ import annotations

import json
import marshal
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from imgdiff.kinds.bytecode import Code, Container

FIXTURES = Path(__file__).parents[2] / "fixtures" / "bytecode"
MINORS = [(3, minor) for minor in range(8, 15)]
THIS_MINOR: tuple[int, int] = (sys.version_info[0], sys.version_info[1])


def recording(minor: tuple[int, int]) -> tuple[bytes, dict[str, Any]]:
    """The .pyc that a minor made of sample.py, and what it said of the code objects."""
    stem = f"sample.cpython-{minor[0]}{minor[1]}"
    return (FIXTURES / f"{stem}.pyc").read_bytes(), json.loads((FIXTURES / f"{stem}.json").read_text())


def interpreters() -> list[str]:
    """Interpreters that tests may start: IMGDIFF_TEST_PYTHONS (colon separated), then PATH."""
    named = [path for path in os.environ.get("IMGDIFF_TEST_PYTHONS", "").split(":") if path]
    found = [shutil.which(f"python3.{minor}") for _, minor in MINORS]
    candidates = dict.fromkeys([*named, *(path for path in found if path)])
    # a shim on PATH may stand for no interpreter at all
    return [path for path in candidates if not subprocess.run([path, "-c", ""], capture_output=True).returncode]


def compiled(source: str, filename: str = "m.py") -> bytes:
    """The body of a .pyc of this Python."""
    return marshal.dumps(compile(source, filename, "exec", dont_inherit=True))


def describe(value: Any) -> Any:
    """A value of our reader in the words of fixtures/bytecode/record.py."""
    if isinstance(value, Code):
        return {
            "argcount": value.argcount,
            "posonlyargcount": value.posonlyargcount,
            "kwonlyargcount": value.kwonlyargcount,
            "stacksize": value.stacksize,
            "flags": value.flags,
            "code": value.code.hex(),
            "consts": [describe(item) for item in value.consts],
            "names": list(value.names),
            "varnames": list(value.varnames),
            "cellvars": list(value.cellvars),
            "freevars": list(value.freevars),
            "filename": value.filename,
            "name": value.name,
            "qualname": value.qualname,
            "firstlineno": value.firstlineno,
            "linetable": value.linetable.hex(),
            "exceptiontable": value.exceptiontable.hex(),
        }
    if isinstance(value, Container):
        items = [describe(item) for item in value.items]
        return [value.kind, *(sorted(items, key=repr) if value.kind == "frozenset" else items)]
    return describe_plain(value, describe)


def describe_plain(value: Any, inner: Any) -> Any:
    if isinstance(value, tuple):
        return ["tuple", *(inner(item) for item in value)]
    if isinstance(value, float):
        return ["float", struct.pack("<d", value).hex()]
    if isinstance(value, complex):
        return ["complex", struct.pack("<dd", value.real, value.imag).hex()]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, str):
        return ["str", value.encode("utf-8", "surrogatepass").hex()]
    return [type(value).__name__, f"{int(value):x}" if type(value) is int else repr(value)]
