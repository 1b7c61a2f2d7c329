"""Tokens of a source, f-strings with what is in them (PEP 701). What they mean is left to the parser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

MAX_BRACKETS = 200
"""Levels of brackets, as CPython's own tokenizer has it."""
MAX_STRINGS = 20
"""Levels of f-strings in each other (CPython: 150): each is looked at again on every level around it."""

Kind = Literal["space", "line", "name", "number", "string", "format", "op"]

_QUOTED = (  # in atomic groups: a group with "*+" takes too much before CPython 3.11.5 (gh-106052)
    r'"""(?>(?:[^"\\]|\\.|"(?!""))*)"""',
    r"'''(?>(?:[^'\\]|\\.|'(?!''))*)'''",
    r'"(?!"")(?>(?:[^"\\\n]|\\.)*)"',
    r"'(?!'')(?>(?:[^'\\\n]|\\.)*)'",
)
_TOKEN = re.compile(
    rf"""
    (?P<space>(?:[ \t\f]|\\\n|\#[^\n]*)+)
    |(?P<line>\n)
    |(?P<string>(?:[bB][rR]?|[rR][bB]?|[uU])?(?:{"|".join(_QUOTED)}))
    |(?P<format>(?:[fFtT][rR]?|[rR][fFtT])(?:\"\"\"|'''|"|'))
    |(?P<name>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)
    |(?P<number>\.?[0-9][0-9A-Za-z_.]*)
    |(?P<op>(?:\*\*|//|>>|<<)=?|[-+*/%@&|^<>=!:]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(r"[^{}\\\n'\"]+")
_NAMED = re.compile(r"\\N\{[^{}\n'\"]*\}")
_BLANK = re.compile(r"(?:[ \t\f\n]|\\\n|#[^\n]*)*")
_COMMENT = re.compile(r"#[^\n]*")
_CONVERSION = re.compile(r"!([sra])(?![A-Za-z0-9_\x80-\U0010ffff])")
_OPEN = {"(": ")", "[": "]", "{": "}"}


class MisfitError(Exception):
    """The source fits no grammar that is known."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class Text(NamedTuple):
    """Literal text of an f-string, as the body of a plain literal in three double quotes."""

    body: str


class Field(NamedTuple):
    """A replacement field: ``shown`` is the text that ``{x=}`` shows; ``spec`` is None where there is none."""

    tokens: Sequence[Token]
    shown: str | None
    conversion: int
    spec: Sequence[Text | Field] | None


class Token(NamedTuple):
    """A token with its text as it stands in the source; ``parts`` are an f-string's."""

    kind: Kind
    text: str
    parts: Sequence[Text | Field] = ()


def tokens(text: str) -> list[Token]:
    """Return the tokens of a source, spaces and comments too: joined they are the source. Raises MisfitError.

    A line's end inside brackets is a space.
    """
    scanner = _Scanner(text)
    found, _ = scanner.code(field=False)
    return found


class _Scanner:
    """Goes once over a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.level = 0  # of f-strings

    def misfit(self, at: int | None = None) -> MisfitError:
        """Say where nothing fits."""
        return MisfitError(self.text.count("\n", 0, self.at if at is None else at) + 1)

    def code(self, *, field: bool) -> tuple[list[Token], str]:
        """Return tokens up to the text's end or what ends the expression of a field, and that (one of ``}:!=``)."""
        text, end = self.text, len(self.text)
        found: list[Token] = []
        closers: list[str] = []
        while self.at < end:
            match = _TOKEN.match(text, self.at)
            if match is None:
                raise self.misfit()
            kind: Kind = match.lastgroup  # type: ignore[assignment] # the groups are the kinds
            word = match[0]
            if kind == "format":
                found.append(self.format(word))
                continue
            if kind == "op":
                if field and not closers and (ends := self.ends(word)):
                    return found, ends
                self.bracket(word, closers)
            elif kind == "line" and (closers or field):
                kind = "space"
            self.at += len(word)
            found.append(Token(kind, word))
        if field or closers:
            raise self.misfit()
        return found, ""

    def bracket(self, word: str, closers: list[str]) -> None:
        """Follow brackets, which must match."""
        if word in _OPEN:
            closers.append(_OPEN[word])
            if len(closers) > MAX_BRACKETS:
                raise RecursionError
        elif word in (")", "]", "}"):
            if not closers or closers.pop() != word:
                raise self.misfit()
        elif word in ('"', "'"):  # of a string that does not end
            raise self.misfit()

    def ends(self, word: str) -> str:
        """Return what ends the expression of a field here, if something does."""
        if word[0] in ":}":
            return word[0]
        if word == "!":
            return "!"
        if word == "=":
            blank = _BLANK.match(self.text, self.at + 1)
            after = self.text[blank.end() : blank.end() + 2] if blank else ""
            return "=" if after[:1] in (":", "}", "!") and after != "!=" else ""
        return ""

    def format(self, start: str) -> Token:
        """Return an f-string or a template string."""
        self.level += 1
        if self.level > MAX_STRINGS:
            raise RecursionError
        first = self.at
        self.at += len(start)
        quote = start.lstrip("fFtTrR")
        parts = self.parts(quote, raw="r" in start.lower(), spec=False)
        self.level -= 1
        return Token("format", self.text[first : self.at], parts)

    def parts(self, quote: str, *, raw: bool, spec: bool) -> list[Text | Field]:
        """Return text and fields up to the closing quotes or, in a format specifier, the closing brace."""
        text = self.text
        found: list[Text | Field] = []
        body: list[str] = []
        while True:
            plain = _PLAIN.match(text, self.at)
            if plain:
                body.append(plain[0])
                self.at = plain.end()
            char = text[self.at : self.at + 1]
            if text.startswith(quote, self.at) or not char:
                if spec or not char:
                    raise self.misfit()
                self.at += len(quote)
                break
            if char == "\\":
                body.append(self.escape(raw))
            elif char == "\n" and len(quote) == 1:
                if not spec:
                    raise self.misfit()
                self.close()
                break
            elif char not in "{}":
                body.append('\\"' if char == '"' else char)
                self.at += 1
            elif not spec and text[self.at + 1 : self.at + 2] == char:
                body.append(char)
                self.at += 2
            elif char == "{":
                if body:
                    found.append(Text("".join(body)))
                    body = []
                found.append(self.field(quote, raw))
            elif spec:
                self.at += 1
                break
            else:
                raise self.misfit()
        if body:
            found.append(Text("".join(body)))
        return found

    def escape(self, raw: bool) -> str:
        """Return a backslash and what belongs to it as it is written in a plain literal."""
        text, first = self.text, self.at
        after = text[first + 1 : first + 2]
        if not after:
            raise self.misfit()
        if after in "{}":  # the backslash stands for itself
            self.at += 1
            return "\\\\"
        named = None if raw else _NAMED.match(text, first)
        self.at = named.end() if named else first + 2
        if not raw:
            return text[first : self.at]
        return "\\\\" + {"\\": "\\\\", '"': '\\"'}.get(after, after)

    def blank(self) -> None:
        """Step over spaces, lines' ends and comments."""
        match = _BLANK.match(self.text, self.at)
        if match:
            self.at = match.end()

    def close(self) -> None:
        """Step to behind the brace that closes a field."""
        self.blank()
        if not self.text.startswith("}", self.at):
            raise self.misfit()
        self.at += 1

    def field(self, quote: str, raw: bool) -> Field:
        """Return a replacement field."""
        self.at += 1
        first = self.at
        inner, end = self.code(field=True)
        if all(token.kind == "space" for token in inner):
            raise self.misfit(first)
        shown: str | None = None
        if end == "=":
            self.at += 1
            self.blank()
            shown = self.shown(first, inner)
            end = self.text[self.at]
        conversion = -1
        if end == "!":
            match = _CONVERSION.match(self.text, self.at)
            if match is None:
                raise self.misfit()
            conversion = ord(match[1])
            self.at = match.end()
            self.blank()
            end = self.text[self.at : self.at + 1]
        if end == "}":
            self.at += 1
            if shown is not None and conversion == -1:
                conversion = ord("r")
            return Field(inner, shown, conversion, None)
        if end != ":":
            raise self.misfit()
        self.at += 1
        return Field(inner, shown, conversion, self.parts(quote, raw=raw, spec=True))

    def shown(self, first: int, inner: Sequence[Token]) -> str:
        """Return the text of a field that shows itself, without comments."""
        before = "".join([_COMMENT.sub("", token.text) if token.kind == "space" else token.text for token in inner])
        behind = self.text[first + sum(len(token.text) for token in inner) : self.at]
        return before + _COMMENT.sub("", behind)
