"""The command, as ``imgdiff`` and as ``python -m imgdiff``."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. While its parts are imported there is nothing to clean up: Ctrl-C then just ends it."""
    interrupts = signal.getsignal(signal.SIGINT)
    if interrupts is signal.default_int_handler:  # a shell may have asked to ignore them
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from imgdiff.cli import main as run

    signal.signal(signal.SIGINT, interrupts)
    run()


if __name__ == "__main__":
    main()
