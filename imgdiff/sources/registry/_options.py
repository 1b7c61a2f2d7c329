"""What a user may say about how a registry is read."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, frozen=True):
    """``insecure``: plain HTTP and TLS that is not verified are allowed. All times are in seconds.

    ``tries``: requests in a row that may fail. ``pause``: before the second one; it doubles, up to ``longest_pause``.
    ``longest_wait``: a server that asks for more patience than this is not waited for. A timeout is for each
    connection and for each wait for further bytes, never for a whole layer.
    """

    insecure: bool = False
    tries: int = 6
    pause: float = 0.5
    longest_pause: float = 30.0
    longest_wait: float = 120.0
    connect_timeout: float = 15.0
    read_timeout: float = 60.0
