"""Programs that start another in an environment which they choose: ``uv run``, ``poetry run``, ``conda run -n NAME``.

Which one it is, their own configuration and ENV say; each that the image has counts, unless an option names one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from imgdiff.model import Environment
from imgdiff.starting import DEFAULT_PATH

RUNNERS = frozenset(b"uv uvx pipx conda mamba micromamba poetry pdm pipenv hatch rye pixi tox nox".split())
_NAMES = ("-n", "--name", "-p", "--prefix")  # of conda and its kin
_DIRECTORIES = ("--directory", "--project", "-C", "-p", "--cwd")
_MAX_ENVIRONMENTS = 8
_SYSTEM = (b"", b"usr", b"usr/local")


def chosen(words: Sequence[str], environments: Sequence[Environment]) -> list[bytes]:
    """Return the prefixes of the environments in which the command behind a runner's options can be started."""
    prefixes = dict.fromkeys(each.prefix for each in environments if each.prefix not in _SYSTEM)
    asked = {words[at + 1] for at, word in enumerate(words[:-1]) if word in _NAMES}
    asked |= {word.partition("=")[2] for word in words if word.startswith(("--name=", "--prefix="))}
    named = {word.rstrip("/").rpartition("/")[2].encode("utf-8", "surrogateescape") for word in asked}
    fitting = [prefix for prefix in prefixes if prefix.rpartition(b"/")[2] in named]
    return (fitting or list(prefixes))[:_MAX_ENVIRONMENTS]


def inside(env: Mapping[str, str], prefix: bytes) -> Mapping[str, str]:
    """Return the ENV of a command in an environment: its programs are found first."""
    programs = "/" + (prefix + b"/bin").decode("utf-8", "surrogateescape")
    return {**env, "PATH": f"{programs}:{env.get('PATH', DEFAULT_PATH)}"}


def directories(words: Sequence[str]) -> Iterator[str]:
    """Yield the directories that a runner's options name: it can start the command there."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in _DIRECTORIES and (equals or at + 1 < len(words)):
            yield value if equals else words[at + 1]


def commands(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the command lines that can stand behind a runner's options: which word begins it is open."""
    for at, word in enumerate(words):
        if word in ("-m", "--module") and at + 1 < len(words):
            yield ["python", "-m", *words[at + 1 :]]
        elif word.endswith(".py"):
            yield ["python", *words[at:]]
        elif not word.startswith("-") and "=" not in word:
            yield [*words[at:]]
