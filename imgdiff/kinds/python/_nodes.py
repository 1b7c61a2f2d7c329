"""Nodes of syntax trees that the Python that runs imgdiff may not know yet."""

from __future__ import annotations

import ast
import sys

if sys.version_info >= (3, 12):
    TypeAlias = ast.TypeAlias
else:

    class TypeAlias(ast.stmt):
        """``type name[type_params] = value`` (PEP 695)."""

        _fields = ("name", "type_params", "value")


class TypeParameter(ast.AST):
    """A type parameter of any sort (PEP 695, 696); ``bound`` and ``default_value`` may be None."""

    _fields = ("name", "bound", "default_value")
