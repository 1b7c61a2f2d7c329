"""Ctrl-C, SIGTERM and a terminal that is closed (SIGHUP): all three end what runs, and it cleans up behind itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INSISTS: Final = 3  # of them, where one is held back: then what hangs is left as it is


class EndedError(KeyboardInterrupt):
    """SIGTERM or SIGHUP came: what Ctrl-C would clean up is cleaned up."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.signum = signum


def listen() -> None:
    """Let SIGTERM and SIGHUP raise EndedError, as Ctrl-C raises KeyboardInterrupt; ``nohup`` is left as it is."""
    signal.signal(signal.SIGTERM, _end)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _end)


def signal_of(error: BaseException) -> int:
    """Return the signal that raised an interrupt."""
    return error.signum if isinstance(error, EndedError) else signal.SIGINT


@contextmanager
def held_back() -> Iterator[None]:
    """Hold interrupts back until the block is done, and let the first one through then: for what must be done whole,
    such as making a container and keeping its ID. The third ends the block all the same.

    What the block made must be known to a ``finally`` around it: the interrupt comes as it is left. In another thread
    than the main one no interrupt arrives anyway.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(signum: int, frame: FrameType | None) -> None:
        held.append(signum)
        handler = before[signal.Signals(signum)]
        if len(held) >= _INSISTS and callable(handler):
            handler(signum, frame)

    before = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) is not None}
    for number in before:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


def _end(signum: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001  as the signal module calls it
    raise EndedError(signum)
