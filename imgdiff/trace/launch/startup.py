"""What a shell sources by itself before the code that it is given (bash(1) INVOCATION, dash(1), POSIX sh)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from imgdiff.model import Tree
from imgdiff.trace.launch.places import at_homes

_BASH_LOGIN = ("~/.bash_profile", "~/.bash_login", "~/.profile")


def read_at_start(name: str, options: Sequence[str], env: Mapping[str, str], tree: Tree) -> list[bytes]:
    """Return the files that a shell called ``name`` (``bash``, ``-sh``) sources first, as canonical paths in order.
    Each home directory that is possible counts."""
    short = "".join(option[1:] for option in options if option.startswith("-") and not option.startswith("--"))
    login = name.startswith("-") or "l" in short or "--login" in options
    program = name.rpartition("/")[2].lstrip("-")
    found: list[str] = []
    if login:
        found += ["/etc/profile", *(_BASH_LOGIN if program == "bash" else ("~/.profile",))]
    if "i" in short and not (login and program == "bash"):
        asked = [options[at + 1] for at, word in enumerate(options[:-1]) if word in ("--rcfile", "--init-file")]
        found += ["/etc/bash.bashrc", "/etc/bashrc", *(asked or ["~/.bashrc"])] if program == "bash" else []
    value = env.get("BASH_ENV" if program == "bash" else "ENV", "")
    if value and (program == "bash" or "i" in short):
        found.append(value.replace("${HOME}", "~").replace("$HOME", "~"))
    return list(dict.fromkeys(_files(found, env, tree)))


def _files(names: Iterable[str], env: Mapping[str, str], tree: Tree) -> Iterable[bytes]:
    for name in names:
        for each in at_homes(name, env, tree):
            path = tree.resolve(each.encode("utf-8", "surrogateescape"))
            entry = None if path is None else tree.get(path)
            if path is not None and entry is not None and entry.type == "file":
                yield path
