"""What a shell script is made of, as it stands in its text: commands of words, words of parts."""

from __future__ import annotations

import msgspec


class Literal(msgspec.Struct, frozen=True):
    """Text as it stands, quotes taken away."""

    text: str


class Variable(msgspec.Struct, frozen=True):
    """``$name`` or ``${name...}``. ``default`` is the word of ``:-``, ``-``, ``:=``, ``=``, ``:+`` or ``+``. ``plain``
    is False where an operator changes the value (``${x##*/}``). ``array``: all elements (``${x[@]}``). ``directory``:
    without its last part (``${x%/*}``)."""

    name: str
    default: tuple[Part, ...] | None = None
    plain: bool = True
    array: bool = False
    directory: bool = False


class Substitution(msgspec.Struct, frozen=True):
    """``$(...)`` or backquotes: the commands inside."""

    commands: tuple[Command, ...]


class Unknown(msgspec.Struct, frozen=True):
    """Text that only running tells: globs, ``~``, arithmetic, braces, ``$@``."""


Part = Literal | Variable | Substitution | Unknown
Word = tuple[Part, ...]


class Command(msgspec.Struct, frozen=True):
    """One simple command. ``assigns`` stand before its first word or after ``export`` and its kin; ``redirects`` are
    the words that redirections name, here-documents included. ``certain``: it stands in no branch, loop, function,
    and behind no ``&&`` or ``||``."""

    words: tuple[Word, ...]
    assigns: tuple[tuple[str, Word], ...]
    redirects: tuple[Word, ...]
    line: int
    certain: bool
