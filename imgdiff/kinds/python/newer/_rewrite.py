"""Writes what is newer in a source in the words of Python 3.11, line for line, and keeps what those can't say."""

from __future__ import annotations

import ast
import keyword
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from imgdiff.kinds.python.newer._tokens import Field, MisfitError, Text, Token

_MAX_CAUGHT = 100  # tokens behind an `except` that are looked at


class Value(NamedTuple):
    """A replacement field in a placeholder: one argument, and those of its format specifier."""

    conversion: int
    spec: Shape | None


Shape = list[Value | None]
"""What the arguments of a placeholder are: a text (None) or a replacement field."""


class Strings(NamedTuple):
    """Adjacent strings that a placeholder stands for, and the line that they start in."""

    shape: Shape
    line: int


class Part(NamedTuple):
    """An expression that has no place in the older words: its text, and the line that it starts in."""

    text: str
    line: int


class Parameter(NamedTuple):
    """A type parameter."""

    name: str
    bound: Part | None
    default: Part | None


class Found(NamedTuple):
    """What was rewritten. Places are the (line, column in bytes) of nodes in the text that was written."""

    strings: dict[str, Strings]  # by the name of the placeholder
    definitions: dict[tuple[int, int], list[Parameter]]
    aliases: dict[tuple[int, int], list[Parameter]]


class Rewriter:
    """Rewrites the tokens of one source. ``every``: f-strings that the host could parse as well."""

    def __init__(self, text: str, *, every: bool = False) -> None:
        self.every = every
        self.found = Found({}, {}, {})
        self.prefix = _unused(text)
        self.out: list[str] = []
        self.line = 1
        self.column = 0

    def run(self, tokens: Sequence[Token]) -> str:
        """Return the rewritten source. Raises MisfitError where what looks newer fits no grammar."""
        self.rewrite(tokens)
        return "".join(self.out)

    def emit(self, text: str) -> None:
        """Write text."""
        self.out.append(text)
        lines = text.count("\n")
        if lines:
            self.line += lines
            text = text[text.rindex("\n") + 1 :]
            self.column = 0
        self.column += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    def misfit(self) -> MisfitError:
        """Say where nothing fits."""
        return MisfitError(self.line)

    def rewrite(self, tokens: Sequence[Token]) -> None:
        """Write tokens: a source's, or those of an expression in it."""
        index, size = 0, len(tokens)
        depth = 0
        starts = True  # a statement may start here
        asynchronous: tuple[int, int] | None = None  # where the `async` before this stands
        ahead: dict[int, str] = {}  # what to write before a token
        while index < size:
            token = tokens[index]
            if index in ahead:
                self.emit(ahead.pop(index))
            place, before = (self.line, self.column), asynchronous
            if token.kind == "space":
                self.emit(token.text)
                index += 1
                continue
            asynchronous = None
            if token.kind in ("string", "format"):
                index = self.strings(tokens, index)
                starts = False
                continue
            if token.kind == "name":
                word = token.text
                if word in ("def", "class"):
                    index = self.definition(tokens, index, before or place)
                    starts = False
                    continue
                if word == "async":
                    asynchronous = place
                elif starts and word == "except":
                    ahead |= _parentheses(tokens, index)
                elif starts and word == "type" and _is_alias(tokens, index):
                    index = self.alias(tokens, index)
                    starts = False
                    continue
                elif starts and word == "lazy" and _word(tokens, index + 1) in ("import", "from"):
                    word_at = _next(tokens, index + 1)  # imported in any case: whether it is used is not asked
                    self.emit(tokens[word_at].text)
                    self.emit(_lines(tokens[index:word_at]))
                    index, starts = word_at + 1, False
                    continue
            self.emit(token.text)
            index += 1
            if token.kind == "op":
                if token.text in ("(", "[", "{"):
                    depth += 1
                    index = self.unpacking(tokens, index)
                elif token.text in (")", "]", "}"):
                    depth -= 1
            starts = token.kind == "line" or (depth == 0 and token.text in (":", ";"))

    def unpacking(self, tokens: Sequence[Token], index: int) -> int:
        """Leave the star of ``[*x for ...]`` out; return where to go on behind the bracket."""
        star = _next(tokens, index)
        if star == len(tokens) or tokens[star].text not in ("*", "**") or not _is_comprehension(tokens, star):
            return index
        for token in tokens[index:star]:
            self.emit(token.text)
        return star + 1

    def strings(self, tokens: Sequence[Token], index: int) -> int:
        """Write adjacent strings; return where to go on."""
        last = index
        after = _next(tokens, index + 1)
        while after < len(tokens) and tokens[after].kind in ("string", "format"):
            last = after
            after = _next(tokens, after + 1)
        chosen = tokens[index : last + 1]
        text = "".join([token.text for token in chosen])
        if all(token.kind != "format" for token in chosen) or (not self.every and _is_known(text)):
            self.emit(text)
            return last + 1
        name = f"{self.prefix}{len(self.found.strings)}"
        shape: Shape = []
        self.found.strings[name] = Strings(shape, self.line)
        until = self.line + text.count("\n")
        self.emit(f"{name}(")
        for token in chosen:
            if token.kind == "string":
                shape.append(None)
                self.emit(f"{token.text},")
            elif token.kind == "format":
                self.parts(token.parts, shape)
        self.emit("\n" * (until - self.line) + ")")
        return last + 1

    def parts(self, parts: Sequence[Text | Field], shape: Shape) -> None:
        """Write the parts of an f-string as arguments."""
        for part in parts:
            if isinstance(part, Text):
                shape.append(None)
                self.emit(f'"""{part.body}""",')
                continue
            if part.shown is not None:
                shape.append(None)
                self.emit(f"{part.shown!r},")
            spec: Shape | None = None if part.spec is None else []
            shape.append(Value(part.conversion, spec))
            self.emit("(")
            self.rewrite(part.tokens)
            self.emit("),")
            if part.spec is not None and spec is not None:
                self.parts(part.spec, spec)

    def definition(self, tokens: Sequence[Token], index: int, place: tuple[int, int]) -> int:
        """Write ``def name`` or ``class name`` without its type parameters; return where to go on."""
        name = _next(tokens, index + 1)
        if name == len(tokens) or tokens[name].kind != "name":
            self.emit(tokens[index].text)
            return index + 1
        for token in tokens[index : name + 1]:
            self.emit(token.text)
        bracket = _next(tokens, name + 1)
        if bracket == len(tokens) or tokens[bracket].text != "[":
            return name + 1
        parameters, end = self.parameters(tokens, name + 1, bracket)
        self.found.definitions[place] = parameters
        return end

    def alias(self, tokens: Sequence[Token], index: int) -> int:
        """Write ``type name[...] = value`` as an assignment; return where to go on."""
        name = _next(tokens, index + 1)
        self.found.aliases[self.line, self.column] = []
        place = (self.line, self.column)
        self.emit(tokens[name].text)
        self.emit(_lines(tokens[index:name]))
        bracket = _next(tokens, name + 1)
        if bracket == len(tokens) or tokens[bracket].text != "[":
            return name + 1
        self.found.aliases[place], end = self.parameters(tokens, name + 1, bracket)
        return end

    def parameters(self, tokens: Sequence[Token], first: int, bracket: int) -> tuple[list[Parameter], int]:
        """Return type parameters and where to go on behind them; only the ends of lines in them are written."""
        end = _closing(tokens, bracket)
        self.emit(_lines(tokens[first:bracket]))
        found: list[Parameter] = []
        start = depth = 0
        inner = tokens[bracket + 1 : end]
        for index, token in enumerate(inner):
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
            if token.text == "," and not depth:
                found.append(self.parameter(inner[start:index]))
                start = index + 1
        if any(token.kind != "space" for token in inner[start:]):
            found.append(self.parameter(inner[start:]))
        else:
            self.emit(_lines(inner[start:]))
        if not found:
            raise self.misfit()
        return found, end + 1

    def parameter(self, tokens: Sequence[Token]) -> Parameter:
        """Return one type parameter."""
        name = _next(tokens, 0)
        if name < len(tokens) and tokens[name].text in ("*", "**"):
            name = _next(tokens, name + 1)
        if name == len(tokens) or tokens[name].kind != "name" or keyword.iskeyword(tokens[name].text):
            raise self.misfit()
        places = [len(tokens), len(tokens)]  # of what begins the bound and the default
        depth = 0
        for index in range(name + 1, len(tokens)):
            text = tokens[index].text
            depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
            if not depth and text == "=":
                places[1] = index
                break
            if not depth and text == ":" and places[0] == len(tokens):
                places[0] = index
        if _next(tokens, name + 1) != min(*places, len(tokens)):
            raise self.misfit()
        self.emit(_lines(tokens[: min(places)]))
        bound = self.part(tokens[places[0] : places[1]])
        return Parameter(tokens[name].text, bound, self.part(tokens[places[1] :]))

    def part(self, tokens: Sequence[Token]) -> Part | None:
        """Return the expression behind a colon or equals sign; only the ends of its lines are written."""
        if not tokens:
            return None
        if _next(tokens, 1) == len(tokens):
            raise self.misfit()
        line, column, out = self.line, self.column, self.out
        self.out = []
        self.rewrite(tokens[1:])
        text = "".join(self.out)
        self.line, self.column, self.out = line, column, out
        self.emit("\\\n" * text.count("\n"))
        return Part(text, line)


def _unused(text: str) -> str:
    """Return how the names of placeholders begin: as no name of the source does, however its letters are spelled."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    used = {int(number) for number in re.findall(r"_format([0-9]{1,9})_", plain)}
    return f"_format{next(number for number in range(len(used) + 1) if number not in used)}_"


def _lines(tokens: Sequence[Token]) -> str:
    """Return the ends of lines in tokens that are left out, as continued lines."""
    return "\\\n" * sum(token.text.count("\n") for token in tokens)


def _next(tokens: Sequence[Token], index: int) -> int:
    """Return where the first token from here on stands that is no space."""
    while index < len(tokens) and tokens[index].kind == "space":
        index += 1
    return index


def _word(tokens: Sequence[Token], index: int) -> str:
    index = _next(tokens, index)
    return tokens[index].text if index < len(tokens) else ""


def _is_alias(tokens: Sequence[Token], index: int) -> bool:
    index = _next(tokens, index + 1)
    return index < len(tokens) and tokens[index].kind == "name" and not keyword.iskeyword(tokens[index].text)


def _closing(tokens: Sequence[Token], index: int) -> int:
    """Return where the bracket that opens here is closed; the tokens are known to match."""
    depth = 0
    while True:
        text = tokens[index].text
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        if not depth:
            return index
        index += 1


def _is_comprehension(tokens: Sequence[Token], index: int) -> bool:
    """Tell whether the bracket around this token has a ``for`` of its own."""
    depth = 0
    while index < len(tokens):
        text = tokens[index].text
        if text in ("(", "[", "{"):
            depth += 1
        elif text in (")", "]", "}"):
            depth -= 1
            if depth < 0:
                break
        elif not depth and text == "for":
            return True
        index += 1
    return False


def _parentheses(tokens: Sequence[Token], index: int) -> dict[int, str]:
    """Return the parentheses that ``except A, B:`` lacks, by the token that they stand before."""
    first = _next(tokens, index + 1)
    if first < len(tokens) and tokens[first].text == "*":
        first = _next(tokens, first + 1)
    depth = lambdas = 0
    several = False
    for at in range(first, min(len(tokens), first + _MAX_CAUGHT)):
        token = tokens[at]
        text = token.text
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        if depth or token.kind in ("space", "number", "string"):
            continue
        if token.kind == "line" or text in ("as", ";"):
            return {}
        if text == "lambda":
            lambdas += 1
        elif text == ":" and lambdas:
            lambdas -= 1
        elif text == ":":
            return {first: "(", at: ")"} if several and first < at else {}
        elif text == ",":
            several = True
    return {}


def _is_known(text: str) -> bool:
    """Tell whether the host can parse these strings."""
    try:
        ast.parse(f"({text}\n)", mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True
