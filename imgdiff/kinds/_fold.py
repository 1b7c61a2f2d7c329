"""What an expression is known to be before it runs: the values that both extractors of Python facts fold with.

A folded value is one of: ``None`` (unknown); ``str`` (text, in which the HOLE characters stand for the unknown);
``int``; ``tuple`` or ``list`` (a sequence of values); :class:`Map`; :class:`Dotted` (a name as loaded);
:class:`Bound` (a method of a folded text). Folding never looks at a file system: "/" is the separator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from imgdiff.model import HOLE, HOLE_DIR, HOLE_FILE, HOLE_NAME, HOLE_PACKAGE

Value = Any

MAX_TEXT = 4096
"""Characters of a folded text; a longer result is unknown, as is a repetition of that length."""
MAX_ITEMS = 4096
"""Elements of a folded sequence."""

HOLES = HOLE + HOLE_NAME + HOLE_PACKAGE + HOLE_FILE + HOLE_DIR
_SURROGATES = map(chr, range(0xD800, 0xE000))  # alone they stand in no file name and no encoding
_TO_HOLE = str.maketrans(dict.fromkeys((*HOLES, *_SURROGATES), HOLE))
_STRIP = str.maketrans(dict.fromkeys(HOLES))
_TELLING = re.compile(r"[\w./]")
_CONVERSION = re.compile(r"%(?:\(([^()]*)\))?[#0\- +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?([diouxXeEfFgGcrsa%])")
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}!:]*)((?:![rsa])?)((?::(?:[^{}]|\{[^{}]*\})*)?)\}")


class Made(str):
    """A text with holes that folding has just made: whoever builds on it takes it out of the patterns again."""

    __slots__ = ()


class Known(str):
    """A text that a name is bound to once."""

    __slots__ = ()


class Dotted:
    """A name as it was loaded, "?" standing for a base that does not fold: "os.path.join", "?.load"."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return type(other) is Dotted and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class Bound:
    """A method, or ``parents``, of a folded text."""

    __slots__ = ("name", "text")

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name


class Map:
    """A dict display: pairs of values in order."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[Value, Value]]) -> None:
        self.pairs = pairs


def is_text(value: Value) -> bool:
    """Tell whether a value folded to text."""
    return isinstance(value, str)


def text_of(value: Value) -> str:
    """Return a value as a pattern: a HOLE where it is none."""
    if isinstance(value, str):
        return value.translate(_TO_HOLE) if type(value) is str and not value.isprintable() else str(value)
    return HOLE


def constant(value: str) -> str:
    """Return a string constant as folding takes it: it has no holes of its own."""
    return value if value.isprintable() else value.translate(_TO_HOLE)


def literal(pattern: str) -> str:
    """Return the literal text of a pattern."""
    return pattern if pattern.isprintable() else pattern.translate(_STRIP)


def has_hole(pattern: str) -> bool:
    """Tell whether a pattern has any hole."""
    return not pattern.isprintable() and pattern.translate(_STRIP) != pattern


class Patterns:
    """Counts patterns that are made and not built upon."""

    __slots__ = ("counts", "reflects")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.reflects: set[str] = set()  # what is looked through by names that do not fold: see Scope.reflects

    def take(self, value: Value) -> str:
        """Return a value's text; a pattern that was just made is part of a larger one now."""
        if type(value) is Made:
            self.counts[value] = self.counts.get(value, 0) - 1
            return str(value)
        return text_of(value)

    def make(self, parts: Sequence[str]) -> str | None:
        """Return the concatenation of patterns, counted if it has both a hole and text."""
        joined = "".join(parts)
        if len(joined) > MAX_TEXT:
            return None
        while HOLE + HOLE in joined:
            joined = joined.replace(HOLE + HOLE, HOLE)
        return self.note(joined)

    def note(self, joined: str) -> str | None:
        """Count a pattern that was just made."""
        if joined == HOLE:
            return None
        if not has_hole(joined):
            return Known(joined)
        if not literal(joined):
            return Known(joined)
        self.counts[joined] = self.counts.get(joined, 0) + 1
        return Made(joined)

    def result(self) -> frozenset[str]:
        """Return the patterns that stayed."""
        return frozenset([text for text, count in self.counts.items() if count > 0 and _TELLING.search(text)])


# --- names -----------------------------------------------------------------------------------------------------------

_NAMES: dict[str, str] = {
    "__name__": HOLE_NAME,
    "__spec__.name": HOLE_NAME,
    "__package__": HOLE_PACKAGE,
    "__spec__.parent": HOLE_PACKAGE,
    "__file__": HOLE_FILE,
    "__spec__.origin": HOLE_FILE,
    "os.sep": "/",
    "os.path.sep": "/",
    "os.pardir": "..",
    "os.path.pardir": "..",
    "os.curdir": ".",
}
_NAMES_KNOWN = {name: Known(text) for name, text in _NAMES.items()}
SPECIAL_PARTS = frozenset({"__name__", "__package__", "__file__"})
_SPECIAL_ATTRIBUTES = frozenset({"name", "parent", "origin", "sep", "pardir", "curdir", "__dict__"})


def name(text: str) -> Value:
    """Return what a global name folds to that nothing in the module binds."""
    return _NAMES_KNOWN[text] if text in SPECIAL_PARTS else Dotted(text)


def attribute(patterns: Patterns, value: Value, attr: str) -> Value:
    """Fold ``value.attr``."""
    if type(value) is Dotted:
        text = f"{value.text}.{attr}"
        if attr in _SPECIAL_ATTRIBUTES:
            if attr == "__dict__" and value.text != "?self":  # an object's own holds no functions of its class
                patterns.reflects.add(value.text)
            elif text in _NAMES_KNOWN:
                return _NAMES_KNOWN[text]
        return Dotted(text if text != "?self.__class__" else "?cls")
    if isinstance(value, str):
        if attr == "parent":
            return _dirname(patterns, value)
        return Bound(value, attr)
    if attr == "__dict__":
        patterns.reflects.add("?")
    return Dotted(f"?.{attr}")


# --- paths -----------------------------------------------------------------------------------------------------------


def _dirname(patterns: Patterns, value: str) -> str | None:
    text = patterns.take(value)
    if text == HOLE_FILE:
        return Known(HOLE_DIR)
    if not text or text[-1] in HOLES:
        return patterns.note(text + "/..") if text[-1:] == HOLE_DIR else None
    head, slash, _ = text.rpartition("/")
    if _ == "..":
        return patterns.note(text + "/..")
    if not slash:
        return Known("") if literal(text) == text else None
    return patterns.note(head or "/")


def _join(patterns: Patterns, values: Sequence[Value]) -> str | None:
    """Join like ``os.path.join``: an absolute part starts anew."""
    result = ""
    for value in values:
        text = patterns.take(value)
        if text.startswith(("/", HOLE_FILE, HOLE_DIR)) or not result:
            result = text
        elif result.endswith("/"):
            result += text
        else:
            result += "/" + text
    if len(result) > MAX_TEXT:
        return None
    return patterns.note(result)


def _same(patterns: Patterns, values: Sequence[Value]) -> Value:  # noqa: ARG001 - all of a table have one signature
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None


def _path(patterns: Patterns, values: Sequence[Value]) -> Value:
    if len(values) == 1:
        return _same(patterns, values)
    return _join(patterns, values) if values else None


def _dirname_call(patterns: Patterns, values: Sequence[Value]) -> Value:
    return _dirname(patterns, values[0]) if len(values) == 1 and isinstance(values[0], str) else None


def _type(_: Patterns, values: Sequence[Value]) -> Value:
    """``type(self)``: the class that a method belongs to, or one that is made of it."""
    own = len(values) == 1 and type(values[0]) is Dotted and values[0].text == "?self"
    return Dotted("?cls") if own else None


def _module(_: Patterns, values: Sequence[Value]) -> Value:
    """``import_module("x")``: the module, as if it had been imported by that name."""
    name = values[0] if values else None
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.lstrip(".").split(".")):
        return None
    if len(values) > (2 if name.startswith(".") else 1) or (name.startswith(".") and values[1:] != [HOLE_PACKAGE]):
        return None
    return Dotted(str(name))


_Fold = Callable[[Patterns, Sequence[Value]], Value]
_IDENTITY = ("str", "abspath", "realpath", "normpath", "expanduser", "expandvars", "fspath", "fsdecode", "normcase")
FUNCTIONS: dict[str, _Fold] = {
    **dict.fromkeys(_IDENTITY, _same),
    **dict.fromkeys(("Path", "PurePath", "PosixPath", "PurePosixPath"), _path),
    "dirname": _dirname_call,
    "import_module": _module,
    "type": _type,
    "join": lambda patterns, values: _join(patterns, values) if len(values) > 1 else _same(patterns, values),
}
_SAME_METHODS = frozenset({"resolve", "absolute", "expanduser", "as_posix", "__str__", "__fspath__"})
METHODS = frozenset({"format", "join", "joinpath"}) | _SAME_METHODS
CALLABLE = frozenset(FUNCTIONS) | METHODS


def _join_strings(patterns: Patterns, separator: str, values: Sequence[Value]) -> Value:
    if len(values) != 1 or not isinstance(values[0], (tuple, list)):
        return patterns.make([HOLE, patterns.take(separator), HOLE])
    parts: list[str] = []
    for value in values[0]:
        if parts:
            parts.append(separator)
        parts.append(patterns.take(value))
    return patterns.make(parts)


def _format(patterns: Patterns, template: str, values: Sequence[Value], keywords: Sequence[tuple[str, Value]]) -> Value:
    """Fold ``"...".format(...)``: plain fields by position or keyword, HOLE for all else."""
    template = constant(template)
    named = dict(keywords)
    parts: list[str] = []
    position = automatic = 0
    starred = STAR in values
    for match in _FIELD.finditer(template):
        parts.append(template[position : match.start()])
        position = match.end()
        field = match[0]
        if field in ("{{", "}}"):
            parts.append(field[0])
            continue
        key = match[1]
        if key == "":
            key, automatic = str(automatic), automatic + 1
        value: Value = None
        if not (match[2] or match[3] or starred):
            if key.isascii() and key.isdigit():
                value = values[int(key)] if len(key) < 5 and int(key) < len(values) else None
            else:
                value = named.get(key)
        parts.append(patterns.take(value))
    parts.append(template[position:])
    return patterns.make(parts)


class _Star:
    __slots__ = ()


STAR = _Star()
"""A starred argument or element: any number of unknown values."""


def call(patterns: Patterns, function: Value, values: Sequence[Value], keywords: Sequence[tuple[str, Value]]) -> Value:
    """Fold the result of a call."""
    if type(function) is Dotted:
        base, _, last = function.text.rpartition(".")
        fold = FUNCTIONS.get(last)
        if fold is None or keywords or STAR in values:
            return None
        if last == "join" and not (base.endswith("path") or base in ("", "osp")):
            return None
        return fold(patterns, values)
    if type(function) is Bound:
        method = function.name
        if method == "format":
            return _format(patterns, function.text, values, keywords) if not has_hole(function.text) else None
        if keywords and method != "resolve":
            return None
        if method in _SAME_METHODS:
            return function.text
        if method == "joinpath" and STAR not in values:
            return _join(patterns, [function.text, *values])
        if method == "join" and not has_hole(function.text):
            return _join_strings(patterns, function.text, values)
    return None


# --- operators -------------------------------------------------------------------------------------------------------


def add(patterns: Patterns, left: Value, right: Value) -> Value:
    """Fold ``left + right``."""
    if isinstance(left, str) or isinstance(right, str):
        return patterns.make([patterns.take(left), patterns.take(right)])
    if isinstance(left, (tuple, list)):
        if isinstance(right, (tuple, list)):
            return [*left, *right] if len(left) + len(right) <= MAX_ITEMS else None
        return [*left, STAR]
    if isinstance(right, (tuple, list)):
        return [STAR, *right]
    return None


def divide(patterns: Patterns, left: Value, right: Value) -> Value:
    """Fold ``left / right``, which joins paths where either is text."""
    if isinstance(left, str) or isinstance(right, str):
        return _join(patterns, [left, right])
    return None


def modulo(patterns: Patterns, template: str, values: Value) -> Value:
    """Fold ``"..." % values``."""
    template = constant(template)
    if template == "%s" and not isinstance(values, (tuple, Map)):
        return values if isinstance(values, str) else None
    if template == "%s" and isinstance(values, tuple) and len(values) == 1:
        return values[0] if isinstance(values[0], str) else None
    items = list(values) if isinstance(values, tuple) else None if isinstance(values, Map) else [values]
    named = {key: item for key, item in values.pairs if isinstance(key, str)} if isinstance(values, Map) else {}
    parts: list[str] = []
    position = index = 0
    for match in _CONVERSION.finditer(template):
        parts.append(template[position : match.start()])
        position = match.end()
        if match[2] == "%":
            parts.append("%")
            continue
        value: Value = None
        if match[1] is not None:
            value = named.get(match[1])
        elif items is not None and index < len(items):
            value = items[index]
        index += 1
        plain = match[0] == "%s" or match[0].endswith(")s")
        parts.append(patterns.take(value) if plain else HOLE)
    parts.append(template[position:])
    return patterns.make(parts)


def pieces(template: str) -> list[str]:
    """Return the literal text of a ``%`` template, split at its conversions (newer compilers keep only those)."""
    result = [""]
    position = 0
    for match in _CONVERSION.finditer(template):
        result[-1] += template[position : match.start()]
        position = match.end()
        if match[2] == "%":
            result[-1] += "%"
        else:
            result.append("")
    result[-1] += template[position:]
    return [piece for piece in result if piece]


def subscript(patterns: Patterns, value: Value, index: Value) -> Value:
    """Fold ``value[index]``: ``parents[n]`` of a path, a module of ``sys.modules``."""
    if type(value) is Dotted:
        known = value.text == "sys.modules" and isinstance(index, str) and (index == HOLE_NAME or not has_hole(index))
        return Dotted(str(index)) if known else None
    if type(index) is not int or not 0 <= index < 64:
        return None
    if type(value) is Bound and value.name == "parents":
        text: Value = value.text
        for _ in range(index + 1):
            text = _dirname(patterns, text) if isinstance(text, str) else None
        return text
    return None


def same(left: Value, right: Value) -> bool:
    """Tell whether two values that meet where branches join are one."""
    return left is right or (type(left) is type(right) and not isinstance(left, (list, Map, Bound)) and left == right)
