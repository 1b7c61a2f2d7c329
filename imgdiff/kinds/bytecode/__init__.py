"""Bytecode: what a ``.pyc`` refers to, when Python runs it, and what in a changed one differs."""

from __future__ import annotations

from imgdiff.kinds.bytecode._header import (
    HEADER_SIZE,
    Header,
    HeaderError,
    UnknownMagicError,
    fits,
    minor_of,
    read_header,
    source_hash,
)
from imgdiff.kinds.bytecode.compilers import CompileError, Compilers
from imgdiff.kinds.bytecode.delta import SAME_BODY, SAME_CODE, against_source, delta
from imgdiff.kinds.bytecode.equality import CodeDifference, changed_constants, differences, equal
from imgdiff.kinds.bytecode.facts import facts
from imgdiff.kinds.bytecode.marshal_reader import Code, Container, MarshalError
from imgdiff.kinds.bytecode.marshal_reader import load as load_body

VERSION = 1
"""Version of the deltas of this kind: cached ones of another version are made anew."""

__all__ = [
    "HEADER_SIZE",
    "SAME_BODY",
    "SAME_CODE",
    "VERSION",
    "Code",
    "CodeDifference",
    "CompileError",
    "Compilers",
    "Container",
    "Header",
    "HeaderError",
    "MarshalError",
    "UnknownMagicError",
    "against_source",
    "changed_constants",
    "delta",
    "differences",
    "equal",
    "facts",
    "fits",
    "load",
    "load_body",
    "minor_of",
    "read_header",
    "source_hash",
]


def load(data: bytes) -> Code:
    """Read the code object of a whole ``.pyc``. Raises :class:`HeaderError` or :class:`MarshalError`."""
    return load_body(data[HEADER_SIZE:], read_header(data).minor)
