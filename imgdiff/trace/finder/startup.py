"""What every interpreter imports before the first line of a program (CPython's Lib/site.py, Python/pylifecycle.c)."""

from __future__ import annotations

STARTUP = (
    "encodings", "encodings.aliases", "encodings.utf_8", "encodings.ascii", "encodings.latin_1", "codecs", "io", "abc",
    "site", "os", "stat", "posixpath", "genericpath", "_collections_abc", "_sitebuiltins", "_weakrefset", "zipimport",
    "importlib._bootstrap", "importlib._bootstrap_external", "sitecustomize", "usercustomize",
)  # fmt: skip
MODULE_STARTUP = ("runpy", "pkgutil", "importlib.util", "importlib.machinery", "importlib.abc")
SPAWN_STARTUP = ("multiprocessing.spawn", "multiprocessing.resource_tracker", "multiprocessing.popen_spawn_posix")
FORKSERVER_STARTUP = ("multiprocessing.forkserver", "multiprocessing.popen_forkserver")
