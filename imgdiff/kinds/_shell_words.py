"""A reader of POSIX sh and bash: from a script's text to its commands, each a list of words with their expansions.

It follows XCU "Shell Command Language" in what makes a word and where a command ends, and knows bash's additions
(``[[``, ``((``, ``$'...'``, ``<<<``, ``<(...)``, arrays, ``function``). It over-reads rather than refuses: what is no
valid script gives the commands up to there and whatever the rest looks like.
"""

from __future__ import annotations

import bisect
import re

import msgspec

from imgdiff.kinds._shell_nouns import Command, Literal, Part, Substitution, Unknown, Variable, Word

MAX_NESTING = 25
"""Substitutions in substitutions that are followed; below them everything is unknown text."""


UNKNOWN = Unknown()
_HOME = re.compile(r"~(?=[/:;&|)\s]|\Z)")  # not that of another user
_DIRECTORY = "%/*}"  # ends ${name%/*}

_PLAIN = re.compile(r"[^\s'\"\\$`;&|()<>#*?\[\]{}~=]+")
_DOUBLE = re.compile(r"[^\"\\$`]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]\n]{0,200}\])?\+?=")
_PARAMETER = re.compile(r"[!#]?(?:[A-Za-z_][A-Za-z0-9_]*|\d+|[@*#?$!-])")
_BLANK = re.compile(r"(?:[ \t\r\f\v]|\\\n)+")
_BRACES = re.compile(r"\{[^\s{}'\"]{1,500}\}")
_BRACKETS = re.compile(r"\[[^\s\]/'\"]{0,200}\]")
_HEREDOC = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]*)'|\"([^\"\n]*)\"|\\?([^\s;&|<>()'\"]+))")
_REDIRECT = re.compile(r"\d*(?:&>>|&>|>>|>\||>&|<&|<>|<<<|<|>)")
_OPENING = frozenset({"if", "while", "until", "for", "select", "case", "{", "function"})
_CLOSING = frozenset({"fi", "done", "esac", "}"})
_SKIPPED = frozenset(
    {"then", "else", "elif", "do", "!", "time", "if", "while", "until", "{", "}", "fi", "done", "esac"}
)
_ANSI_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "e": "\x1b"}


def read(text: str, first_line: int = 1, nesting: int = 0) -> tuple[Command, ...]:
    """Return the commands of a script in the order of their text; ``first_line`` is the number of its first line."""
    return tuple(_Reader(text, first_line, nesting).commands(""))


class _Reader:
    """A position in a text. Every method moves it forward."""

    def __init__(self, text: str, first_line: int, nesting: int) -> None:
        self.text = text
        self.at = 0
        self.nesting = nesting
        self._first = first_line
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._heredocs: list[tuple[str, bool, bool, list[Word]]] = []

    def _line(self) -> int:
        return self._first + bisect.bisect_left(self._newlines, self.at)

    def commands(self, end: str) -> list[Command]:
        """Read commands up to the unquoted character ``end`` (consumed), or to the end of the text."""
        return _Commands(self, end).read()

    # Words ----------------------------------------------------------------------------------------------------

    def word(self) -> Word:
        """Read one word from here; empty if none begins here."""
        parts: list[Part] = []
        start = self.at
        while self.at < len(self.text):
            match = _PLAIN.match(self.text, self.at)
            if match:
                parts.append(Literal(match[0]))
                self.at = match.end()
                continue
            char = self.text[self.at]
            if char.isspace() or char in ";&|()<>":
                break
            self._special(char, parts, start)
        return _joined(parts)

    def _special(self, char: str, parts: list[Part], start: int) -> None:
        if char == "'":
            end = self.text.find("'", self.at + 1)
            end = len(self.text) if end < 0 else end
            parts.append(Literal(self.text[self.at + 1 : end]))
            self.at = end + 1
        elif char == '"':
            self.at += 1
            parts += self._double('"') or [Literal("")]
        elif char == "\\":
            if self.text[self.at + 1 : self.at + 2] != "\n":
                parts.append(Literal(self.text[self.at + 1 : self.at + 2]))
            self.at += 2
        elif char in "$`":
            self._expansion(parts)
        elif char in "{[":
            match = (_BRACES if char == "{" else _BRACKETS).match(self.text, self.at)
            unknown = match is not None and ("," in match[0] or ".." in match[0] if char == "{" else self.at > start)
            parts.append(UNKNOWN if unknown else Literal(char))
            self.at = match.end() if match is not None and unknown else self.at + 1
        else:
            unknown = char in "*?" or (char == "~" and self.at == start and not _HOME.match(self.text, self.at))
            parts.append(UNKNOWN if unknown else Literal(char))
            self.at += 1

    def _double(self, end: str) -> list[Part]:
        """Read what stands between double quotes, the opening one consumed; ``end`` may be "" for a here-document."""
        parts: list[Part] = []
        while self.at < len(self.text):
            match = _DOUBLE.match(self.text, self.at)
            if match:
                parts.append(Literal(match[0]))
                self.at = match.end()
                continue
            char = self.text[self.at]
            if char == end:
                self.at += 1
                break
            if char == "\\":
                follower = self.text[self.at + 1 : self.at + 2]
                if follower != "\n":
                    parts.append(Literal(follower if follower in '$`"\\' else char + follower))
                self.at += 2
            elif char in "$`":
                self._expansion(parts)
            else:
                parts.append(Literal(char))
                self.at += 1
        return parts

    # Expansions -----------------------------------------------------------------------------------------------

    def _expansion(self, parts: list[Part]) -> None:
        text = self.text
        if text[self.at] == "`":
            parts.append(self._backquotes())
            return
        follower = text[self.at + 1 : self.at + 2]
        if text.startswith("$((", self.at):
            self.at += 3
            self._balanced("(", ")", 2)
            parts.append(UNKNOWN)
        elif follower == "(":
            self.at += 2
            parts.append(self._nested())
        elif follower == "{":
            self.at += 2
            parts.append(self._braced())
        elif follower == "'":
            self.at += 2
            parts.append(Literal(self._ansi()))
        elif follower == '"':
            self.at += 1
        else:
            match = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\d|[@*#?$!-]").match(text, self.at + 1)
            parts.append(Variable(match[0]) if match else Literal("$"))
            self.at = match.end() if match else self.at + 1

    def _nested(self) -> Part:
        if self.nesting >= MAX_NESTING:
            self._balanced("(", ")", 1)
            return UNKNOWN
        self.nesting += 1
        commands = self.commands(")")
        self.nesting -= 1
        return Substitution(tuple(commands))

    def _backquotes(self) -> Part:
        match = re.compile(r"`((?:[^`\\]|\\.)*)`?", re.DOTALL).match(self.text, self.at)
        assert match is not None
        line = self._line()
        self.at = match.end()
        if self.nesting >= MAX_NESTING:
            return UNKNOWN
        return Substitution(read(re.sub(r"\\([`$\\])", r"\1", match[1]), line, self.nesting + 1))

    def _braced(self) -> Part:
        """Read a parameter expansion from behind its ``${``."""
        match = _PARAMETER.match(self.text, self.at)
        if not match:
            self._balanced("{", "}", 1)
            return UNKNOWN
        name, self.at = match[0], match.end()
        array = self.text.startswith(("[@]", "[*]"), self.at)
        if self.text.startswith("[", self.at):
            end = self.text.find("]", self.at)
            self.at = len(self.text) if end < 0 else end + 1
        if self.text.startswith("}", self.at):
            self.at += 1
            return Variable(name, plain=name[0] not in "!#" or len(name) == 1, array=array)
        if self.text.startswith(_DIRECTORY, self.at):
            self.at += len(_DIRECTORY)
            return Variable(name, plain=name[0] not in "!#", array=array, directory=True)
        operator = re.compile(r":?[-=+]").match(self.text, self.at)
        if self.nesting >= MAX_NESTING:
            self._balanced("{", "}", 1)
            return Variable(name, plain=False)
        self.nesting += 1
        self.at = operator.end() if operator else self.at
        parts = self._until_brace()
        self.nesting -= 1
        return Variable(name, tuple(parts), plain=True) if operator else Variable(name, plain=False)

    def _until_brace(self) -> list[Part]:
        parts: list[Part] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "}":
                self.at += 1
                break
            if char in "'\"\\$`":
                self._special(char, parts, self.at)
                continue
            match = re.compile(r"[^}'\"\\$`]+").match(self.text, self.at)
            assert match is not None
            parts.append(Literal(match[0]))
            self.at = match.end()
        return list(_joined(parts))

    def _ansi(self) -> str:
        match = re.compile(r"((?:[^'\\]|\\.)*)'?", re.DOTALL).match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return re.sub(r"\\(.)", lambda escape: _ANSI_ESCAPES.get(escape[1], escape[0]), match[1], flags=re.DOTALL)

    def _balanced(self, opening: str, closing: str, depth: int) -> None:
        """Skip to behind the bracket that closes ``depth`` open ones; quotes are not looked at."""
        for match in re.compile(f"[{re.escape(opening + closing)}]").finditer(self.text, self.at):
            depth += 1 if match[0] == opening else -1
            if not depth:
                self.at = match.end()
                return
        self.at = len(self.text)

    # Between words --------------------------------------------------------------------------------------------

    def blanks(self) -> None:
        """Skip blanks and a comment, but no newline."""
        match = _BLANK.match(self.text, self.at)
        if match:
            self.at = match.end()
        if self.text.startswith("#", self.at):
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    def newline(self) -> None:
        """Read over a newline, and the bodies of the here-documents that wait for it."""
        self.at += 1
        for delimiter, tabs, quoted, redirects in self._heredocs:
            strip = r"\t*" if tabs else ""
            match = re.compile(rf"^{strip}{re.escape(delimiter)}$", re.MULTILINE).search(self.text, self.at)
            body = self.text[self.at : match.start() if match else len(self.text)]
            line = self._line()
            self.at = min(match.end() + 1, len(self.text)) if match else len(self.text)
            if quoted or self.nesting >= MAX_NESTING:
                redirects.append((Literal(body),))
            else:
                redirects.append(tuple(_Reader(body, line, self.nesting + 1)._double("")))  # noqa: SLF001 - its own class
        self._heredocs.clear()

    def redirection(self, redirects: list[Word]) -> bool:
        """Read a redirection if one stands here."""
        heredoc = None if self.text.startswith("<<<", self.at) else _HEREDOC.match(self.text, self.at)
        if heredoc:
            quoted = heredoc[4] is None or "\\" in heredoc[0]
            delimiter = next(group for group in (heredoc[2], heredoc[3], heredoc[4]) if group is not None)
            self._heredocs.append((delimiter, bool(heredoc[1]), quoted, redirects))
            self.at = heredoc.end()
            return True
        if self.text.startswith(("<(", ">("), self.at):
            return False
        match = _REDIRECT.match(self.text, self.at)
        if not match:
            return False
        self.at = match.end()
        self.blanks()
        word = self.word()
        if word:
            redirects.append(word)
        return True


class _Commands:
    """The loop over the commands of one list: what has been read of the current one, and how deep it stands."""

    def __init__(self, reader: _Reader, end: str) -> None:
        self.reader, self.end = reader, end
        self.found: list[Command] = []
        self.depth = reader.nesting
        self.chained = False
        self.cases: list[bool] = []  # of each open case: does a pattern come next?
        self.parentheses = 0
        self._begin()

    def _begin(self) -> None:
        self.words: list[Word] = []
        self.assigns: list[tuple[str, Word]] = []
        self.redirects: list[Word] = []
        self.line = 0

    def _finish(self) -> None:
        if self.words or self.assigns or self.redirects:
            certain = not self.depth and not self.chained and not self.parentheses
            # here-documents are still to come: the list itself is filled until the end of the line
            self.found.append(Command(tuple(self.words), tuple(self.assigns), (), self.line, certain))
            self._waiting.append((len(self.found) - 1, self.redirects))
        self._begin()

    def read(self) -> list[Command]:
        self._waiting: list[tuple[int, list[Word]]] = []
        reader = self.reader
        while reader.at < len(reader.text):
            reader.blanks()
            if reader.at >= len(reader.text):
                break
            char = reader.text[reader.at]
            if self.cases and self.cases[-1] and not self.words and char not in "\n;":
                self._pattern()
            elif char in "\n;&|()" and not (char == "&" and reader.text.startswith("&>", reader.at)):
                if self._operator(char):
                    break
            elif not reader.redirection(self.redirects):
                self._word()
        self._finish()
        return [
            msgspec.structs.replace(self.found[at], redirects=tuple(redirects)) if redirects else self.found[at]
            for at, redirects in self._waiting
        ]

    def _operator(self, char: str) -> bool:
        """Read what separates commands; tell whether it is the end of this list."""
        reader = self.reader
        if char == "(" and self._array_or_function():
            return False
        if char == "(" and reader.text.startswith("((", reader.at) and not self.words:
            reader.at += 2
            reader._balanced("(", ")", 2)  # noqa: SLF001 - the two classes are one reader
            return False
        self._finish()
        if char == "\n":
            reader.newline()
            self.chained = False
            return False
        if char == ")":
            reader.at += 1
            if self.end == ")" and not self.parentheses:
                return True
            self.parentheses = max(0, self.parentheses - 1)
            return False
        if char == "(":
            self.parentheses += 1
        double = reader.text[reader.at : reader.at + 2]
        reader.at += 2 if double in {"&&", "||", ";;", ";&", "|&"} else 1
        self.chained = double in {"&&", "||"} or (char in "|&" and self.chained)
        if double in {";;", ";&"} and self.cases:
            self.cases[-1] = True
        return False

    def _array_or_function(self) -> bool:
        reader = self.reader
        if self.assigns and not self.words and self.assigns[-1][1] == () and reader.text[reader.at - 1] == "=":
            name = self.assigns.pop()[0]
            reader.at += 1
            while reader.at < len(reader.text) and reader.text[reader.at] != ")":
                reader.blanks()
                before = reader.at
                word = reader.word()
                if word:
                    self.assigns.append((name, word))
                if reader.at == before and not reader.text.startswith(")", reader.at):
                    reader.at += 1
            reader.at += 1
            return True
        match = re.compile(r"\([ \t]*\)").match(reader.text, reader.at)
        if match and len(self.words) == 1:  # name() { ... }: the name runs nothing by itself
            reader.at = match.end()
            self._begin()
            return True
        return False

    def _pattern(self) -> None:
        """Read the pattern of a case up to its ``)``; ``esac`` ends the case."""
        reader = self.reader
        if re.compile(r"esac\b").match(reader.text, reader.at):
            reader.at += 4
            self.cases.pop()
            self.depth = max(0, self.depth - 1)
            return
        while reader.at < len(reader.text) and reader.text[reader.at] != ")":
            before = reader.at
            reader.blanks()
            reader.word()
            if reader.at == before:
                reader.at += 1
        reader.at += 1
        self.cases[-1] = False

    def _word(self) -> None:
        reader = self.reader
        text = reader.text
        if text.startswith(("<(", ">("), reader.at):
            reader.at += 2
            self.words.append((reader._nested(),))  # noqa: SLF001 - the two classes are one reader
            return
        self.line = self.line or reader._line()  # noqa: SLF001
        declares = bool(self.words) and self.words[0] in _DECLARING
        assign = _ASSIGN.match(text, reader.at) if not self.words or declares else None
        if assign:
            reader.at = assign.end()
            self.assigns.append((assign[1], reader.word()))
            return
        before = reader.at
        word = reader.word()
        if reader.at == before:  # nothing that begins a word, such as a lone bracket
            reader.at += 1
            return
        if self.words or not self._reserved(word):
            self.words.append(word)
        self._case_or_loop()

    def _reserved(self, word: Word) -> bool:
        """Note the depth that a reserved word opens or closes; tell whether it is no command of its own."""
        if len(word) != 1 or not isinstance(word[0], Literal):
            return False
        text = word[0].text
        if text in _OPENING:
            self.depth += 1
        elif text in _CLOSING:
            self.depth = max(0, self.depth - 1)
            if text == "esac" and self.cases:
                self.cases.pop()
        return text in _SKIPPED

    def _case_or_loop(self) -> None:
        """Turn ``case word in`` and ``for name in words`` into what they do once their words are read."""
        if len(self.words) == 3 and self.words[0] == (Literal("case"),) and self.words[2] == (Literal("in"),):
            self.words = [(Literal(":"),), self.words[1]]
            self._finish()
            self.cases.append(True)
        elif len(self.words) == 2 and self.words[0] == (Literal("function"),):
            self._begin()


_DECLARING = frozenset(
    (Literal(word),) for word in ("export", "declare", "local", "readonly", "typeset", "alias", "env", "sudo")
)


def _joined(parts: list[Part]) -> Word:
    """Join neighbouring literals; an empty quoted word stays one empty literal."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, Literal) and joined and isinstance(joined[-1], Literal):
            joined[-1] = Literal(joined[-1].text + part.text)
        else:
            joined.append(part)
    return tuple(joined)
