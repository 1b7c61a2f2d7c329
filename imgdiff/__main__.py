"""``python -m imgdiff`` is the command."""

from __future__ import annotations

from imgdiff.cli import main

if __name__ == "__main__":
    main()
