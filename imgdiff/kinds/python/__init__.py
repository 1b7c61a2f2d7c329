"""Python sources: what one refers to, and what in a changed one differs."""

from __future__ import annotations

from imgdiff.kinds.python.delta import delta
from imgdiff.kinds.python.facts import VERSION, facts

__all__ = ["VERSION", "delta", "facts"]
