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
from collections.abc import Iterable
from typing import IO

MAX_SOURCE = 4 * 1024 * 1024
"""Bytes of source that are compiled or parsed at most."""


class CompileError(ValueError):
    """The source can't be compiled by that Python; the sentence says why."""


_MAGIC = int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")

# What the child runs: requests are lines "optimize length\n" and the source; answers "status length\n" and the body.
_CHILD = """
import importlib.util, marshal, sys, warnings
warnings.simplefilter("ignore")
out, inp = sys.stdout.buffer, sys.stdin.buffer
out.write(b"%d 0\\n" % int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")); out.flush()
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

    ``interpreters`` are paths of executables. One that does not start is left out. Close it, or use it in a ``with``.
    """

    def __init__(self, interpreters: Iterable[str] = ()) -> None:
        self._waiting = list(interpreters)
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._paths: dict[int, str] = {}

    @classmethod
    def at_hand(cls) -> Compilers:
        """Take every ``python3.N`` that PATH finds, for the minors that we can read, but for the running one."""
        names = [f"python3.{minor}" for minor in range(8, 15) if minor != sys.version_info.minor]
        return cls([path for name in names if (path := shutil.which(name))])

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child processes."""
        for child in self._children.values():
            _end(child)
        self._children.clear()

    @property
    def magics(self) -> frozenset[int]:
        """The magic numbers that can be compiled for."""
        self._start()
        return frozenset({_MAGIC, *self._children})

    def compile(self, source: bytes, magic: int, optimize: int) -> bytes | None:
        """Return the marshalled code object of a source under the Python with this magic number.

        None where no such Python is at hand. Raises :class:`CompileError` where it refuses the source.
        """
        if len(source) > MAX_SOURCE:
            raise CompileError(f"is larger than {MAX_SOURCE} bytes")
        if magic == _MAGIC:
            return _compile_here(source, optimize)
        self._start()
        child = self._children.get(magic)
        if child is None:
            return None
        try:
            return _ask(child, source, optimize)
        except (OSError, EOFError):
            # The compiler crashed on this source; the next one gets a fresh process.
            _end(self._children.pop(magic))
            started = _spawn(self._paths[magic])
            if started is not None:
                self._children[magic] = started[1]
            raise CompileError("ended the interpreter that compiled it") from None

    def _start(self) -> None:
        for path in self._waiting:
            started = _spawn(path)
            if started is None:
                continue
            magic, child = started
            if magic in self._children or magic == _MAGIC:
                _end(child)
            else:
                self._children[magic] = child
                self._paths[magic] = path
        self._waiting = []


def _spawn(path: str) -> tuple[int, subprocess.Popen[bytes]] | None:
    """Start an interpreter; return its magic number and the process, or None if it is none that runs here."""
    environment = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
    command = [path, "-I", "-S", "-c", _CHILD]
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
    except OSError:
        return None
    try:
        return _answer(child)[0], child
    except (OSError, EOFError):
        _end(child)
        return None


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
