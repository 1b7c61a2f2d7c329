"""What could not be told, in which image and for which roles."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Side = Literal["a", "b"]
ENTRY: Final = "entry"  # what the blindspot is called of an entry that leads to nothing that could be traced


class Blindspot(msgspec.Struct, frozen=True):
    """Something that could not be read, parsed or resolved, and the roles that it blocks.

    ``what`` names the thing in a few words, ``reason`` says why in a sentence. ``roles`` is empty until the trace
    has said who reaches it; ``image`` is None where it concerns both.
    """

    what: str
    reason: str
    path: bytes | None = None
    image: Side | None = None
    roles: tuple[str, ...] = ()
