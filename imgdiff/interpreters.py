"""What programs are called that run Python."""

from __future__ import annotations

import re

# python3.13t, python3-dbg, RHEL's platform-python, .python-wrapped of Nix; python3-config and its kin run none.
_PYTHON = re.compile(rb"(?:.*/)?\.?(?:(?:platform-)?python|pypy|graalpy)(?![^/\s]*config\Z)[^/\s]*", re.DOTALL)


def is_python(program: str | bytes) -> bool:
    """Tell by its name, with its directory or without, whether a program is a Python interpreter."""
    name = program.encode("utf-8", "surrogateescape") if isinstance(program, str) else program
    return _PYTHON.fullmatch(name) is not None
