"""The command lines that code starts, as far as they fold."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imgdiff.interpreters import is_python
from imgdiff.model import HOLE
from imgdiff.trace.graph.calls import Use

_OF_A_SHELL = frozenset(
    {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell", "subprocess_shell"}
)
_SEPARATOR = re.compile(r"[\s;|&]")
_LISTED = {"execl": 1, "execle": 1, "execlp": 1, "execlpe": 1, "spawnl": 2, "spawnle": 2, "spawnlp": 2, "spawnlpe": 2}
_MODULE = re.compile(rf"(?:python|pypy|{HOLE})\S*(?:\s+-\S+)*?\s+-\w*m\s*(\S+)")
_PACKED = re.compile(r"exec(?:v|ve|vp|vpe)|spawn(?:v|ve|vp|vpe)|posix_spawnp?")
_ANY = "${_}"  # a variable of which a script says nothing: what does not fold


def command_line(use: Use, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command line of a call that starts a program, as a shell would get it where one does; empty where its
    program is known at run time only. What else does not fold is a HOLE. ``words`` are the call's, filled in."""
    words = words[_LISTED.get(use.callee, 0) :]
    if not words or not words[0].strip(HOLE):
        return ()
    if use.callee in _OF_A_SHELL or (len(words) == 1 and _SEPARATOR.search(words[0])):
        return ("sh", "-c", words[0].replace(HOLE, _ANY))
    return () if HOLE in words[0] else words


def computed_module(use: Use) -> Use | None:
    """Return the import that a call means which starts ``python -m`` with a module that does not fold."""
    module = child_module(use.argv) if use.kind == "program" else None
    if module is None and use.kind == "program" and use.argv:
        match = _MODULE.match(use.argv[0])
        module = match[1] if match is not None else None
    if module is None or HOLE not in module:
        return None
    return Use("import", use.line, use.function, use.callee, module)


def child_module(argv: Sequence[str]) -> str | None:
    """Return the module of a command line ``python ... -m MODULE``; None if it is none."""
    if "-m" not in argv:
        return None
    index = argv.index("-m")
    if index + 1 < len(argv) and index > 0 and (HOLE in argv[0] or is_python(argv[0])):
        return argv[index + 1]
    return None


def takes_a_list(use: Use) -> bool:
    """Tell whether a call has its program apart from the list of its arguments, which is not known."""
    return _PACKED.fullmatch(use.callee) is not None
