"""Compile a source as the Python of an image would, to hold a ``.pyc`` against it.

Compiling executes nothing of the source. The Python that runs imgdiff does it in this process where its magic number
is the one asked for; other minors are asked through interpreters of this machine, one child process each.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import shutil
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterable
from functools import cache
from typing import IO

from imgdiff.kinds.bytecode._header import FINAL_MAGIC

MAX_SOURCE = 4 * 1024 * 1024
"""Bytes of source that are compiled or parsed at most."""


class CompileError(ValueError):
    """The source can't be compiled by that Python; the sentence says why."""


_MAGIC = int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")

# What the child runs: requests are lines "optimize length\n" and the source; answers "status length\n" and the body.
_CHILD = """
import marshal, sys, warnings
warnings.simplefilter("ignore")
out, inp = sys.stdout.buffer, sys.stdin.buffer
while True:
    line = inp.readline()
    if not line:
        break
    optimize, length = map(int, line.split())
    source = inp.read(length)
    try:
        status, body = 0, marshal.dumps(compile(source, "<source>", "exec", dont_inherit=True, optimize=optimize))
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        status, body = 1, type(error).__name__.encode()
    out.write(b"%d %d\\n" % (status, len(body))); out.write(body); out.flush()
"""


class Compilers:
    """Compilers by magic number: this process's own, and those of other interpreters on this machine.

    ``interpreters`` are paths of executables; None takes every ``python3.N`` on PATH whose minor we can read. One
    that does not start is left out. A child starts with the first question to it: close them, or use ``with``.
    """

    def __init__(self, interpreters: Iterable[str] | None = None) -> None:
        self._interpreters = _on_path() if interpreters is None else tuple(interpreters)
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._known: dict[int, str] | None = None
        self._ending = weakref.finalize(self, _end_all, self._children)

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child processes (also done when the object goes)."""
        _end_all(self._children)

    def minors(self) -> tuple[tuple[int, int], ...]:
        """Return the minors whose final releases can be compiled for, sorted."""
        magics = {_MAGIC, *self._paths()}
        return tuple(sorted(minor for minor, magic in FINAL_MAGIC.items() if magic in magics))

    def _paths(self) -> dict[int, str]:
        if self._known is None:
            self._known = {}
            for path in self._interpreters:
                magic = _probe(path)
                if magic is not None and magic != _MAGIC:
                    self._known.setdefault(magic, path)
        return self._known

    def compile(self, source: bytes, magic: int, optimize: int) -> bytes | None:
        """Return the marshalled code object of a source under the Python with this magic number.

        None where no such Python is at hand. Raises :class:`CompileError` where it refuses the source.
        """
        if len(source) > MAX_SOURCE:
            raise CompileError(f"is larger than {MAX_SOURCE} bytes")
        if magic == _MAGIC:
            return _compile_here(source, optimize)
        path = self._paths().get(magic)
        if path is None:
            return None
        try:
            child = self._children.get(magic)
            if child is None:
                child = self._children[magic] = _spawn(path)
            return _ask(child, source, optimize)
        except (OSError, EOFError):
            # The compiler crashed on this source; the next one gets a fresh process.
            if magic in self._children:
                _end(self._children.pop(magic))
            raise CompileError("ended the interpreter that compiled it") from None


def _on_path() -> tuple[str, ...]:
    names = [f"python{major}.{minor}" for major, minor in FINAL_MAGIC if minor != sys.version_info.minor]
    return tuple(path for name in names if (path := shutil.which(name)))


@cache
def _probe(path: str) -> int | None:
    """Return the magic number of an interpreter; None if it is none that runs here."""
    code = "import importlib.util; print(int.from_bytes(importlib.util.MAGIC_NUMBER[:2], 'little'))"
    try:
        done = subprocess.run(
            [path, "-I", "-S", "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            check=True,
        )
        return int(done.stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def _environment() -> dict[str, str]:
    return {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}


def _spawn(path: str) -> subprocess.Popen[bytes]:
    command = [path, "-I", "-S", "-c", _CHILD]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    )


def _end_all(children: dict[int, subprocess.Popen[bytes]]) -> None:
    for child in children.values():
        _end(child)
    children.clear()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()


def _compile_here(source: bytes, optimize: int) -> bytes:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return marshal.dumps(compile(source, "<source>", "exec", dont_inherit=True, optimize=optimize))
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise CompileError(f"does not compile ({type(error).__name__})") from None


def _ask(child: subprocess.Popen[bytes], source: bytes, optimize: int) -> bytes:
    stdin = _pipe(child.stdin)
    stdin.write(b"%d %d\n" % (optimize, len(source)))
    stdin.write(source)
    stdin.flush()
    status, body = _answer(child)
    if status:
        raise CompileError(f"does not compile ({body.decode('ascii', 'replace')})")
    return body


def _answer(child: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    stdout = _pipe(child.stdout)
    words = stdout.readline().split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        raise EOFError
    body = stdout.read(int(words[1]))
    if len(body) != int(words[1]):
        raise EOFError
    return int(words[0]), body


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
