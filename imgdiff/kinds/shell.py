"""Shell scripts: what one sources, runs and sets; a changed one is code."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from imgdiff.kinds._lines import count_lines
from imgdiff.kinds._routing import interpreter
from imgdiff.kinds._shell_computed import Computing
from imgdiff.kinds._shell_nouns import Command, Literal, Substitution, Variable, Word
from imgdiff.kinds._shell_words import read
from imgdiff.model import HOLE, HOLE_DIR, HOLE_FILE, Computed, Delta, Pattern, ShellFacts, Unreadable

VERSION = 5

MAX_SIZE = 2 * 1024 * 1024
"""Bytes of script that are read at most."""
MAX_ALTERNATIVES = 8
"""Values that one word is followed to."""
MAX_ELEMENTS = 100
"""Elements that an array is followed to."""
MAX_SCRIPTS = 5
"""Levels of scripts in strings (``bash -c '...'``, ``eval``, ``trap``) that are read."""
MAX_COMMANDS = 50_000

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
# Programs that run the command behind their options, and those that take words of their own before it.
_PREFIXES = frozenset({"exec", "command", "builtin", "nohup", "time", "setsid"})
_WRAPPERS = frozenset(
    {
        "env",
        "accelerate",
        "catatonit",
        "catchsegv",
        "chroot",
        "chrt",
        "dumb-init",
        "flock",
        "gosu",
        "ionice",
        "mpiexec",
        "mpirun",
        "nice",
        "numactl",
        "runuser",
        "s6-setuidgid",
        "setpriv",
        "stdbuf",
        "strace",
        "su",
        "su-exec",
        "sudo",
        "systemd-run",
        "taskset",
        "timeout",
        "tini",
        "torchrun",
        "unshare",
        "xargs",
    }
)
_ENTERS = frozenset({"cd", "pushd"})
_PLACES = frozenset({"HOME", "PWD"})  # what a shell sets itself, or whoever starts it
_HOLES = re.compile(r"[\x00-\x04]+")


def facts(data: bytes) -> ShellFacts | Unreadable:
    """Return what a script refers to. What does not fold is :data:`~imgdiff.model.HOLE`; the script's own directory,
    where it is asked through ``BASH_SOURCE`` or ``$0``, is ``HOLE_DIR``; the home directory is ``~``, the working
    directory ``.``, or what the script changes to.

    A word that can be several things (a default, a variable that is set twice) gives one command for each.
    """
    if len(data) > MAX_SIZE:
        return Unreadable(f"the script is larger than {MAX_SIZE} bytes")
    if b"\0" in data[:4096]:
        return Unreadable("the script holds a zero byte, so it is no text")
    text = _HOLES.sub("\ufffd", data.decode("utf-8", "surrogateescape"))
    script = _Script()
    script.run(read(text), 0)
    words = tuple(word.decode("utf-8", "surrogateescape") for word in interpreter(data[:4096]))
    return ShellFacts(
        interpreter=words,
        sources=tuple(dict.fromkeys(script.sources)),
        commands=tuple(dict.fromkeys(script.commands)),
        assigns=tuple(dict.fromkeys(script.assigns)),
        strings=frozenset(string for string in script.strings if string.strip()),
        assigned=tuple(script.assigned[each] for each in dict.fromkeys(script.assigns)),
        sourced=tuple(each in script.sourced for each in dict.fromkeys(script.sources)),
        computed=tuple(dict.fromkeys(script.computed)),
    )


def delta(a: bytes, b: bytes) -> Delta:
    """Compare two shell scripts: code, whatever differs."""
    lines = count_lines(a, b)
    return Delta(
        "code", f"The script differs: {lines['added']} lines added, {lines['removed']} removed.", {"lines": lines}
    )


class _Script:
    """What has been found so far, and what the variables can be."""

    def __init__(self) -> None:
        self.sources: list[tuple[Pattern, int]] = []
        self.commands: list[tuple[tuple[Pattern, ...], int]] = []
        self.assigns: list[tuple[str, Pattern]] = []
        self.strings: set[str] = set()
        self.assigned: dict[tuple[str, Pattern], tuple[int, bool]] = {}
        self.sourced: set[tuple[Pattern, int]] = set()  # in any case
        self.computed: list[Computed] = []
        self._level = 0  # of the command that is taken in
        self._computing = Computing(lambda word: self.fold(word, self._level), _WRAPPERS)
        self._inside = 0  # substitutions that are open
        self._entered: tuple[Pattern, ...] = ()  # directories that it changes to, the last one first
        self._values: dict[str, tuple[Pattern, ...]] = {}
        self._arrays: dict[str, list[tuple[Word, ...]]] = {}  # what "${name[@]}" can stand for
        self._count: dict[str, int] = {}
        self._substituted: dict[int, tuple[Substitution, tuple[Pattern, ...]]] = {}  # by identity, kept alive here

    def run(self, commands: Iterable[Command], level: int) -> None:
        """Take in the commands of a script, in order; ``level`` counts scripts in strings."""
        known = tuple(commands)
        self._note(known)
        for command in known:
            if len(self.commands) >= MAX_COMMANDS:
                return
            self._command(command, level)

    def _note(self, commands: Iterable[Command]) -> None:
        """Count who sets which variable: only one that is set once, and for certain, is known at its uses."""
        for command in commands:
            for name, _ in command.assigns:
                self._count[name] = self._count.get(name, 0) + (1 if command.certain else 2)
            words = [_literal(word) for word in command.words]
            if words[:1] and words[0] in {"for", "select", "read", "getopts", "mapfile", "unset", "local"}:
                for word_text in filter(None, words[1:]):
                    self._count[word_text] = self._count.get(word_text, 0) + 2
            for word in (*command.words, *(value for _, value in command.assigns), *command.redirects):
                for part in word:
                    if isinstance(part, Substitution):
                        self._note(part.commands)

    def _command(self, command: Command, level: int) -> None:
        self._level = level
        self._computing.note(command)
        if not self._inside:
            self.computed += self._computing.found(command)
        for name, value in command.assigns:
            values = self.fold(value, level)
            self.assigns += [(name, pattern) for pattern in values]
            for pattern in values:
                first, known = self.assigned.get((name, pattern), (command.line, False))
                self.assigned[name, pattern] = first, known or self._sure(command, level)
            earlier = self._values.get(name, ())
            self._values[name] = _bounded((*earlier, *values))
        self._note_arrays(command)
        for redirect in command.redirects:
            for pattern in self.fold(redirect, level):
                for line in pattern.split("\n"):
                    self._string(line.strip())
        if not command.words:
            return
        if _literal(command.words[0]) in {"for", "select"} and len(command.words) > 2:
            variable = _literal(command.words[1])
            found = [pattern for word in command.words[3:] for pattern in self.fold(word, level)]
            for pattern in found:
                self._string(pattern)
            if variable:
                self._values[variable] = _bounded((*self._values.get(variable, ()), *found, HOLE))
            return
        for words in self._spread(command.words):
            folded = [self.fold(word, level) for word in words]
            for turn in range(max(map(len, folded), default=0)):
                simple = tuple(values[min(turn, len(values) - 1)] for values in folded)
                if self._sure(command, level) and len(folded) > 1 and len(folded[1]) == 1:
                    self.sourced.add((simple[1], command.line))
                self._simple(simple, command.line, level)

    def _sure(self, command: Command, level: int) -> bool:
        return command.certain and level == 0 and not self._inside

    def _note_arrays(self, command: Command) -> None:
        """Keep the elements of the arrays that a command sets: alone, and behind those that they may extend."""
        elements: dict[str, list[Word]] = {}
        for name, value in command.assigns:
            elements.setdefault(name, []).append(value)
        for name, words in elements.items():
            known = self._arrays.setdefault(name, [])
            longer = [(*known[-1], *words)] if known and len(known[-1]) < MAX_ELEMENTS else []
            for one in (tuple(words), *longer):
                if len(known) < MAX_ALTERNATIVES:
                    known.append(one)

    def _spread(self, words: tuple[Word, ...]) -> list[tuple[Word, ...]]:
        """Return a command's words with each "${name[@]}" spread to its elements, one list for each that it can be."""
        arrays = [_array(word) for word in words]
        turns = max((len(self._arrays.get(name, ())) for name in arrays if name), default=0)
        if not turns:
            return [words]
        spread = []
        for turn in range(turns):
            found: list[Word] = []
            for name, word in zip(arrays, words, strict=True):
                known = self._arrays.get(name, []) if name else []
                found += known[min(turn, len(known) - 1)] if known else [word]
            spread.append(tuple(found))
        return spread

    def _simple(self, words: tuple[Pattern, ...], line: int, level: int) -> None:
        """Take in one command of which every word is folded."""
        for word in words:
            self._string(word)
        program = words[0].rpartition("/")[2]
        if program in _ENTERS and not self._inside:
            self._enter(words)
        if words[0] in {"source", "."} and len(words) > 1:
            self.sources.append((words[1], line))
            return
        if program == "set" and "--" in words:
            self._add(words[words.index("--") + 1 :], line)
            return
        self._add(words, line)
        self._scripts(program, words, line, level)
        if program in _PREFIXES:
            at = next(
                (at for at, word in enumerate(words) if at and not word.startswith("-") and "=" not in word), None
            )
            if at is not None:
                self._simple(words[at:], line, level)
        elif program in _WRAPPERS:
            self._wrapped(words, line, level)

    def _enter(self, words: tuple[Pattern, ...]) -> None:
        """Take in a change of the working directory."""
        target = next((word for word in words[1:] if not word.startswith("-")), "~")
        self._entered = _bounded((target, *self._entered))

    def _here(self) -> tuple[Pattern, ...]:
        """Return what the working directory can be."""
        return _bounded((*self._entered, "."))

    def _wrapped(self, words: tuple[Pattern, ...], line: int, level: int) -> None:
        """Take in every command that a program with options of its own could run: which word begins it is open."""
        for at, word in enumerate(words[1:9], 1):
            if not word.startswith("-") and "=" not in word and word.strip(HOLE):
                inner = words[at:]
                program = word.rpartition("/")[2]
                if program in _PREFIXES or program in _WRAPPERS:
                    self._simple(inner, line, level)  # goes on from there
                    return
                self._add(inner, line)
                self._scripts(program, inner, line, level)

    def _add(self, words: tuple[Pattern, ...], line: int) -> None:
        if words and words[0]:
            self.commands.append((words, line))

    def _scripts(self, program: str, words: tuple[Pattern, ...], line: int, level: int) -> None:
        """Read the scripts that stand in a command's arguments."""
        inner: list[str] = []
        if program in _SHELLS:
            for at, word in enumerate(words[1:-1], 1):
                if re.fullmatch(r"[-+][a-zA-Z]*c[a-zA-Z]*", word):
                    inner.append(words[at + 1])
                    break
        elif program == "eval":
            inner.append(" ".join(words[1:]))
        elif program == "trap" and len(words) > 1:
            inner.append(words[1])
        elif program == "su" and "-c" in words[:-1]:
            inner.append(words[words.index("-c") + 1])
        for text in inner:
            if level < MAX_SCRIPTS and text.strip(HOLE):
                self.run(read(text, line), level + 1)

    def _string(self, pattern: Pattern) -> None:
        """Note the literal text of a word: the whole, or its pieces between what is not known."""
        self.strings.update(piece for piece in _HOLES.split(pattern) if len(piece) > 1 or piece == pattern)

    # Folding --------------------------------------------------------------------------------------------------

    def fold(self, word: Word, level: int) -> tuple[Pattern, ...]:
        """Return what a word can be, the likeliest first."""
        results: tuple[Pattern, ...] = ("",)
        for part in word:
            if isinstance(part, Literal):
                values: tuple[Pattern, ...] = (part.text,)
            elif isinstance(part, Variable):
                values = self._variable(part, level)
            elif isinstance(part, Substitution):
                values = self._substitution(part, level)
            else:
                values = (HOLE,)
            results = _bounded([before + value for value in values for before in results])
        return tuple(re.sub("\x00{2,}", HOLE, result) for result in results)

    def _variable(self, variable: Variable, level: int) -> tuple[Pattern, ...]:
        if variable.directory:
            whole = msgspec.structs.replace(variable, directory=False)
            return _bounded([_dirname(pattern) for pattern in self._variable(whole, level)])
        if variable.name == "BASH_SOURCE":
            return (HOLE_FILE,)
        if variable.name == "0":
            return (HOLE_FILE, HOLE)  # of a sourced script it is the one that sources
        values: tuple[Pattern, ...] = (HOLE,)
        if variable.plain and variable.name in _PLACES and variable.name not in self._count:
            values = ("~",) if variable.name == "HOME" else self._here()
        if variable.plain and not variable.array and variable.name in self._values:
            known = self._values[variable.name]
            certain = self._count.get(variable.name) == 1
            values = known if certain else _bounded((*known, HOLE))
        if variable.default is not None:
            values = _bounded((*values, *self.fold(variable.default, level)))
        return values

    def _substitution(self, part: Substitution, level: int) -> tuple[Pattern, ...]:
        """Take in the commands of a substitution, once, and return what they print where that is known."""
        known = self._substituted.get(id(part))
        if known is None:
            self._inside += 1  # a process of its own: what it sets is gone with it
            for command in part.commands:
                self._command(command, level)
            self._inside -= 1
            known = self._substituted[id(part)] = (part, self._printed(part, level))
        return known[1]

    def _printed(self, part: Substitution, level: int) -> tuple[Pattern, ...]:
        """Return the output of ``dirname``, ``cd`` with ``pwd``, ``echo`` and the like."""
        commands = [[self.fold(word, level) for word in command.words] for command in part.commands if command.words]
        names = [words[0][0] for words in commands]
        arguments = [[word for word in words[1:] if not word[0].startswith("-")] for words in commands]
        if names == ["pwd"]:
            return self._here()
        if len(commands) == 1 and len(arguments[0]) == 1:
            value = arguments[0][0]
            if names[0] in {"which", "command", "type"}:
                return value  # the program of that name, which is looked for on PATH
            if names[0] == "dirname":
                return tuple(_dirname(pattern) for pattern in value)
            if names[0] in {"realpath", "readlink", "echo", "printf"}:
                return value
        if len(commands) == 2 and names == ["cd", "pwd"] and len(arguments[0]) == 1:
            return arguments[0][0]
        return (HOLE,)


def _dirname(pattern: Pattern) -> Pattern:
    if pattern in {HOLE_FILE, HOLE_DIR}:
        return HOLE_DIR if pattern == HOLE_FILE else HOLE_DIR + "/.."
    directory, slash, _ = pattern.rpartition("/")
    return directory if slash and directory else HOLE


def _bounded(values: Iterable[Pattern]) -> tuple[Pattern, ...]:
    """Return different values in order; where there are too many, the first of them and "anything"."""
    found = tuple(dict.fromkeys(value if len(value) <= 4096 else HOLE for value in values))
    return found if len(found) <= MAX_ALTERNATIVES else (*found[: MAX_ALTERNATIVES - 1], HOLE)


def _array(word: Word) -> str | None:
    variable = word[0] if len(word) == 1 else None
    return variable.name if isinstance(variable, Variable) and variable.array else None


def _literal(word: Word) -> str | None:
    return word[0].text if len(word) == 1 and isinstance(word[0], Literal) else None
