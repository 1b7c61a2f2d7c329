"""Where a shell script starts, sources or enters what it only knows when it runs: read from a file, printed by a
program, matched by a glob. What its own arguments or ENV hold is no such thing: those are given at start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from imgdiff.interpreters import is_python
from imgdiff.kinds._shell_nouns import Command, Literal, Substitution, Unknown, Variable, Word
from imgdiff.model import HOLE, Computed, ComputedKind, Pattern

_BEFORE = frozenset({"exec", "command", "builtin", "nohup", "time", "setsid"})  # run what stands behind their options
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_LISTS = frozenset({"find", "ls", "run-parts", "sort", "echo", "printf"})
_ENTERS = frozenset({"cd", "pushd"})
_USERS = frozenset({"gosu", "su-exec", "s6-setuidgid"})  # take a user's name before the command
_PRINTS_SETTINGS = frozenset({"lesspipe", "lesspipe.sh", "dircolors", "ssh-agent", "resize", "tput"})
_READS = frozenset({"read", "mapfile", "readarray"})
_MAX_PLACES = 20


class Made(msgspec.Struct, frozen=True):
    """How a variable comes to its value. ``opaque``: its text is read or printed, so that no pattern tells it; the
    names come from ``places``, as far as commands that list directories tell."""

    opaque: bool
    places: tuple[str, ...] = ()


class Computing:
    """What is known of the variables of one script on the way through it. ``fold`` tells what a word can be;
    ``wrappers`` are programs that run the command behind their options."""

    def __init__(self, fold: Callable[[Word], tuple[Pattern, ...]], wrappers: frozenset[str]) -> None:
        self._fold, self._wrappers = fold, wrappers
        self._made: dict[str, Made] = {}
        self._listed: dict[str, None] = {}  # directories that commands of the script list

    def note(self, command: Command) -> None:
        """Take in how one command makes variables, and which directories it lists."""
        first = _literal(command.words[0]) if command.words else None
        if first in _LISTS:
            self._listed.update(dict.fromkeys(_places([command], self._fold)))
        for name, value in command.assigns:
            made = self.of(value)
            if made is not None:
                self._made[name] = made
        if first in ("for", "select") and len(command.words) > 3:
            variable = _literal(command.words[1])
            made = next(filter(None, map(self.of, command.words[3:])), None)
            if variable and made is not None:
                self._made[variable] = made
        elif first in _READS or (first == "printf" and "-v" in map(_literal, command.words[:2])):
            for word in command.words[1:]:
                target = _literal(word)
                if target and re.fullmatch(r"[A-Za-z_]\w*", target):
                    self._made[target] = Made(opaque=True, places=() if first == "printf" else tuple(self._listed))

    def of(self, word: Word) -> Made | None:
        """Tell how a word is computed; None where it is text, or what arguments and ENV give."""
        for part in word:
            made: Made | None = None
            if isinstance(part, Substitution):
                if all(HOLE in value for value in self._fold((part,))):
                    made = Made(opaque=True, places=tuple(dict.fromkeys(_places(part.commands, self._fold))))
            elif isinstance(part, Variable):
                made = self._made.get(part.name.lstrip("!#"))
                if not part.plain and not part.directory and not part.name.isdigit():
                    made = Made(opaque=True, places=made.places if made is not None else ())
                if made is None and part.default is not None:
                    made = self.of(part.default)
            elif isinstance(part, Unknown):
                made = Made(opaque=False)
            if made is not None:
                return made
        return None

    def found(self, command: Command) -> Iterator[Computed]:
        """Yield what a command starts, sources or enters by a computed name."""
        words = list(command.words)
        while words and _literal(words[0]) in _BEFORE:
            words.pop(0)
            while words and (_literal(words[0]) or "").startswith("-"):
                words = words[2 if _literal(words[0]) == "-a" else 1 :]
        if not words:
            return
        first = _literal(words[0])
        if first == "run-parts" and not {"--list", "--test"} & {_literal(word) for word in words}:
            places = tuple(dict.fromkeys(_places([command], self._fold)))
            yield Computed("program", HOLE, command.line, places[:_MAX_PLACES])
            return
        kind, asked = _asked(first, words, self._wrappers)
        for word in asked:
            made = self.of(word)
            if made is not None:
                yield from self._computed(kind, word, made, command.line)
                return

    def _computed(self, kind: ComputedKind, word: Word, made: Made, line: int) -> Iterator[Computed]:
        if made.opaque:
            yield Computed(kind, HOLE, line, made.places[:_MAX_PLACES])
            return
        patterns = [pattern for pattern in self._fold(word) if HOLE in pattern and pattern.strip(HOLE)]
        for pattern in patterns or [HOLE]:
            yield Computed(kind, pattern, line)


def _asked(first: str | None, words: Sequence[Word], wrappers: frozenset[str]) -> tuple[ComputedKind, Sequence[Word]]:
    """Return which words of a command decide what runs, and what they are."""
    if first is None:
        return "program", words[:1]
    if first in ("source", "."):
        return "source", words[1:2]
    if first in _ENTERS:
        return "directory", [word for word in words[1:] if not (_literal(word) or "").startswith("-")][:1]
    if first == "eval":
        return "code", [word for word in words[1:] if not _harmless(word)]
    if first == "set" and "--" in map(_literal, words):
        return "program", words[[*map(_literal, words)].index("--") + 1 :][:1]
    if is_python(first) or first.rpartition("/")[2] in _SHELLS:
        return _interpreted(first, words[1:])
    name = first.rpartition("/")[2]
    if name in wrappers:
        behind = list(words[1:])
        if name in _USERS:
            behind = behind[1:]
        while behind and re.match(r"-|[A-Za-z_]\w*=|\d+(?:\.\d+)?[smhd]?\Z", _start(behind[0])):
            behind.pop(0)
        if behind:
            return _asked(_literal(behind[0]), behind, wrappers)
    return "program", ()


def _interpreted(first: str, words: Sequence[Word]) -> tuple[ComputedKind, Sequence[Word]]:
    """The word that an interpreter runs: the first that is no option, or stands behind ``-c`` or ``-m``."""
    python = is_python(first)
    skip = False
    for at, word in enumerate(words):
        text = _literal(word)
        if skip:
            skip = False
        elif text is None or not text.startswith("-") or text == "-":
            return "argument", [word]
        elif re.fullmatch(r"-[a-zA-Z]*c" if not python else r"-[a-zA-Z]*[cm]", text):
            return "code" if text.endswith("c") else "argument", words[at + 1 : at + 2]
        elif text in ("-o", "-O", "-X", "-W", "--rcfile", "--init-file"):
            skip = True
    return "argument", ()


def _places(commands: Sequence[Command], fold: Callable[[Word], tuple[Pattern, ...]]) -> Iterator[str]:
    """Yield the absolute names that commands which list directories are given."""
    for command in commands:
        if command.words and _literal(command.words[0]) in _LISTS:
            for word in command.words[1:]:
                for pattern in fold(word):
                    if pattern.startswith("/"):
                        yield pattern


def _harmless(word: Word) -> bool:
    """Tell whether a word is what a program prints that sets colours and the like alone."""
    parts = [part for part in word if isinstance(part, Substitution)]
    programs = {_literal(command.words[0]) for part in parts for command in part.commands if command.words}
    return len(parts) == len(word) and bool(programs) and programs <= _PRINTS_SETTINGS


def _start(word: Word) -> str:
    return word[0].text if word and isinstance(word[0], Literal) else ""


def _literal(word: Word) -> str | None:
    return word[0].text if len(word) == 1 and isinstance(word[0], Literal) else None
