"""What goes into a container to record it: Python files to mount, and the variables that make Python find them.

``mounted/`` is run by the Pythons of images (3.8 and newer), never imported here. In a container all lies below
``/imgdiff``, whose name no image has: ``python`` (the recorder), ``out`` (what is recorded), and if wanted
``strace`` (what traces system calls).
"""

from __future__ import annotations

from imgdiff.recorder.bundle import EXPORTED, MOUNTED, Part, export, exported, parts, tracer
from imgdiff.recorder.printed import FORMATS, Described, printed
from imgdiff.recorder.settings import OUT, ROOT, Tracer, loaders, traced, variables

__all__ = [
    "EXPORTED",
    "FORMATS",
    "MOUNTED",
    "OUT",
    "ROOT",
    "Described",
    "Part",
    "Tracer",
    "export",
    "exported",
    "loaders",
    "parts",
    "printed",
    "traced",
    "tracer",
    "variables",
]
