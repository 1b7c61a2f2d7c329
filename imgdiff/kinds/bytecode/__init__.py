"""Bytecode: what a ``.pyc`` refers to, when Python runs it, and what in a changed one differs."""

from __future__ import annotations

from imgdiff.kinds.bytecode._header import HEADER_SIZE, Header, HeaderError, minor_of, read_header
from imgdiff.kinds.bytecode.marshal_reader import Code, Container, MarshalError
from imgdiff.kinds.bytecode.marshal_reader import load as load_body

__all__ = ["Code", "Container", "Header", "HeaderError", "MarshalError", "load", "load_body", "minor_of", "read_header"]


def load(data: bytes) -> Code:
    """Read the code object of a whole ``.pyc``. Raises :class:`HeaderError` or :class:`MarshalError`."""
    return load_body(data[HEADER_SIZE:], read_header(data).minor)
