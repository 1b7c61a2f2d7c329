"""Where shell code surely changes its directory, so that no command behind that runs where the code began."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imgdiff.model import HOLE

_CHANGES = frozenset({"cd", "pushd", "popd"})
_RUNS_CODE = frozenset({"eval", "source", ".", "alias"})  # what it reads can change the directory back
# What runs on one line and changes nothing of how the next one is read: no branch, no quote that goes on, no function.
_PLAIN = re.compile(
    rb"\s*(?:#.*|set(?:\s+[-+]?\w+)+"
    rb"|(?:export\s+)?\w+=(?:[\w./:,@%+~-]*|\"[\w ./:,@%+~${}-]*\"|'[\w ./:,@%+~-]*'))?\s*;?\s*"
)
# Behind the command itself: nothing, what runs only where it succeeds or just goes on, or the end where it fails.
_CHANGE = re.compile(
    rb"cd\s+(?:--\s+)?(?:[\w./@%+~-]+|\"[\w ./@%+~-]+\"|'[\w ./@%+~-]+')\s*"
    rb"(?:#.*|;.*|(?P<list>&&.*)|\|\|\s*exit(?:\s+\d+)?\s*(?:;.*)?)?"
)
# Others are looked for in CDPATH, or are a home directory, which depends on who runs it.
_FIXED = re.compile(r"\.{0,2}/.*|\.{1,2}", re.DOTALL)
# A list that goes on in the background is a process of its own, and so is the ``cd`` at its beginning.
_BACKGROUND = re.compile(rb"(?<![&<>])&(?![&>])")
_ELSEWHERE = ("-C", "--chdir", "--directory", "-D")  # options by which a program starts another in another directory


def surely_entered(code: bytes | None, commands: Sequence[tuple[Sequence[str], int]]) -> int | None:
    """Return the line of a ``cd`` that runs in any case, before every command on its line and behind it, and that
    nothing takes back; None where there is none for sure.

    ``commands`` are all that the code, and what it sources, runs, with their lines. The directory must be there: then
    the command succeeds.
    """
    changes = [(words, line) for words, line in commands if words and words[0] in _CHANGES]
    if code is None or len(changes) != 1 or any(words[0] in _RUNS_CODE for words, _ in commands if words):
        return None
    (words, line), lines = changes[0], code.split(b"\n")
    if words[0] != "cd" or not _FIXED.fullmatch(words[-1]) or not 0 < line <= len(lines):
        return None
    if any(word.startswith(_ELSEWHERE) for other, _ in commands for word in other):
        return None
    ran = {at for other, at in commands if other and other[0] == "exec"}
    if any(HOLE in other[0] and at not in ran for other, at in commands if other):  # it can be another ``cd``
        return None
    if not all(_PLAIN.fullmatch(each) for each in lines[: line - 1]):
        return None
    change = _CHANGE.fullmatch(lines[line - 1].strip())
    return line if change is not None and not (change["list"] and _BACKGROUND.search(code)) else None
