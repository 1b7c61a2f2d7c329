"""What programs are called that run Python."""

from __future__ import annotations

import pytest

from imgdiff.interpreters import is_python
from imgdiff.model import HOLE

PYTHONS = ["python", "python3", "python3.13t", "python3.13d", "python3-dbg", "pypy3.10", "graalpy", "pythonw"]
PYTHONS += [".python3-wrapped", "platform-python", "platform-python3.6", f"python{HOLE}"]


@pytest.mark.parametrize("name", PYTHONS)
def test_pythons(name: str) -> None:
    for program in (name, f"/usr/bin/{name}", f"{HOLE}/bin/{name}"):
        assert is_python(program)
        assert is_python(program.encode())


@pytest.mark.parametrize(
    "name",
    ["", "sh", "ipython", "python3-config", "python3.11-config", "python config", "python/x", "cpython", "py.test"],
)
def test_others(name: str) -> None:
    assert not is_python(name)
    assert not is_python(f"/usr/bin/{name}".encode())
