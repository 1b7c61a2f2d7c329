"""What a command line comes to: the interpreter that is started, and all that lay on the way to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from imgdiff.model import HOLE, Environment
from imgdiff.trace.launch.sourced import SetBy, Touched

_VALUED = frozenset("WX")  # interpreter options that take a value
Mode = Literal["module", "script", "code", "stdin"]


class PythonStart(msgspec.Struct, frozen=True):
    """An interpreter that is started: which environment, with which options, and what it runs."""

    invoked: bytes  # the path under which it was found, not canonical
    environment: Environment | None
    flags: frozenset[str]
    mode: Mode
    target: str  # module name, path of the script in the tree, or code
    arguments: tuple[str, ...]


class Launch(msgspec.Struct, frozen=True):
    """What a command line comes to. ``program`` is the canonical path of the last program, if it is in the image.
    ``set_by`` is what shell code on the way adds to the image's ENV, ``open`` says where only a run tells what shell
    code starts. ``told``: the program is a shell that standard input tells what to run. ``handed``: another program's
    arguments name the module, which may not be what they mean."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: bytes
    touched: tuple[Touched, ...] = ()
    python: PythonStart | None = None
    program: bytes | None = None
    in_shell: bool = False
    caveats: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # strings of the shell code on the way
    set_by: tuple[SetBy, ...] = ()
    open: tuple[str, ...] = ()
    told: bool = False
    handed: bool = False

    def unsure(self, name: str) -> frozenset[str]:
        """Return the parts of a path list that shell code may or may not put there."""
        sure = {each.part for each in self.set_by if each.name == name and each.sure}
        return frozenset(each.part for each in self.set_by if each.name == name) - sure


def python_start(invoked: bytes, environment: Environment | None, rest: Sequence[str]) -> PythonStart:
    """Return what an interpreter runs by the words behind it (CPython's Python/initconfig.c; `Using Python', "Command
    line")."""
    flags: set[str] = set()
    index = 0
    while index < len(rest):
        word = rest[index]
        if word.startswith("--"):
            index += 2 if word == "--check-hash-based-pycs" else 1
            continue
        if not word.startswith("-") or word == "-":
            break
        for position, letter in enumerate(word[1:], 2):
            if letter in "mc":
                value = word[position:] or (rest[index + 1] if index + 1 < len(rest) else HOLE)  # as in -c $CODE
                following = rest[index + (1 if word[position:] else 2) :]
                mode: Mode = "module" if letter == "m" else "code"
                return PythonStart(invoked, environment, frozenset(flags), mode, value, tuple(following))
            if letter in _VALUED:
                index += 0 if word[position:] else 1
                break
            flags.add(letter)
        index += 1
    if index >= len(rest) or rest[index] == "-":
        return PythonStart(invoked, environment, frozenset(flags), "stdin", "", tuple(rest[index + 1 :]))
    return PythonStart(invoked, environment, frozenset(flags), "script", rest[index], tuple(rest[index + 1 :]))
