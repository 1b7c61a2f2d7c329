"""Which of the programs that a log tells of are Pythons."""

from __future__ import annotations

import re

_LIBRARY = re.compile(rb"/libpython[\d.]+[a-z]*\.so|/lib-dynload/[^/]+\.so\Z|\.(?:cpython|pypy)[\w-]*\.so\Z")


def of_python(library: bytes) -> bool:
    """Tell whether a library is one that nothing but a Python has: whatever a program that maps it calls itself."""
    return _LIBRARY.search(library) is not None
