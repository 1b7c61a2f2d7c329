"""What goes into a container to record it: Python files to mount, and the variables that make Python find them.

The files lie in ``mounted/`` and are run by the Pythons of images (3.8 and newer), never imported here.
"""

from __future__ import annotations

from pathlib import Path

MOUNTED = Path(__file__).parent / "mounted"
"""The directory to mount, read-only."""
