"""A trace as bytes, and back: all that its roles can be asked, without the code that it was made from.

What the answers take from the code (``reached.Further``) is worked out when a trace is frozen, but for who asks for a
distribution's version: that is kept for those that were asked for. For others the trace is made again.
"""

from __future__ import annotations

from imgdiff.trace.kept.freezing import freeze
from imgdiff.trace.kept.thawing import thaw, turned

__all__ = ["freeze", "thaw", "turned"]
