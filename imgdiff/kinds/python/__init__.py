"""Python sources: what one refers to, and what in a changed one differs."""

from __future__ import annotations

from imgdiff.kinds.python import newer
from imgdiff.kinds.python.delta import delta
from imgdiff.kinds.python.facts import VERSION as _EXTRACTOR
from imgdiff.kinds.python.facts import facts

__all__ = ["VERSION", "delta", "facts"]

VERSION = 100 * _EXTRACTOR + newer.VERSION
"""Of the facts of sources: of the extractor, and of the grammars that are known."""
