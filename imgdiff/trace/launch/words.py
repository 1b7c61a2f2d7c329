"""Words of a command line: that of ``--entry``, and what wrappers (``env``, ``su``, ``flock``) do with theirs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from imgdiff.model import ImageConfig, Tree
from imgdiff.trace.launch.places import at_homes

_STARTS = frozenset({"-x", "--exec", "-a", "--startas"})


def split_entry(entry: str) -> list[str]:
    """Return the command line of ``--entry``: a bare module name means ``python -m``."""
    words = shlex.split(entry)
    if words and words[0] == "-m":
        return ["python", *words]
    if len(words) >= 1 and re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", words[0]) and "/" not in words[0]:
        return ["python", "-m", *words]
    return words


def environment_of(config: ImageConfig | None) -> dict[str, str]:
    """Return the ENV of an image as a mapping; the last of two equal names wins."""
    env: dict[str, str] = {}
    for line in config.env if config is not None else ():
        name, _, value = line.partition("=")
        env[name] = value
    return env


def started_by(words: Sequence[str], index: int) -> str | None:
    """Return the program of ``start-stop-daemon --exec PROGRAM -- ARGUMENTS``, if a word names it."""
    name, equals, value = words[index].partition("=")
    if equals and name in _STARTS:
        return value
    return words[index] if index and words[index - 1] in _STARTS else None


def shell_code(word: str, after: Sequence[str]) -> str | None:
    """Return the shell code that an option of a wrapper gives (``su -c``, ``flock FILE -c``, ``script -c``)."""
    name, equals, value = word.partition("=")
    if name not in ("-c", "--command", "--session-command", "-qc", "-ec"):
        return None
    return value if equals else next(iter(after), None)


def words_of(text: str) -> list[str]:
    """Return the words of a text as a shell would split it, roughly where it is none."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def expanded(word: str, env: Mapping[str, str], tree: Tree) -> str:
    """Return a word of ``env -S`` with its ``${NAME}`` filled in; a name that ENV lacks is left as it is."""
    known = {"HOME": at_homes("~", env, tree)[0], **env}
    return re.sub(r"\$\{(\w+)\}", lambda name: known.get(name[1], name[0]), word)
