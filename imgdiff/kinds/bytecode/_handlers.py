"""The table of instructions that have a handler of their own."""

from __future__ import annotations

from collections.abc import Callable

from imgdiff.kinds.bytecode._calls import Calls as Run

Handler = Callable[[Run, int], None]
HANDLERS: dict[str, Handler] = {}


def on(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of the instructions with these names."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register
