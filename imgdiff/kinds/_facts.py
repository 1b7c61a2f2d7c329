"""What the extractors of Python facts share: collecting a scope's and a module's facts, from folded values."""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Collection, Iterable, Sequence

from imgdiff.kinds import _callees as callees
from imgdiff.kinds._fold import (
    STAR,
    Bound,
    Dotted,
    Known,
    Map,
    Patterns,
    Value,
    has_hole,
    is_text,
    literal,
    name,
    text_of,
)
from imgdiff.model import HOLE, HOLE_NAME, Call, Import, ModuleFacts, Pattern, Scope

VERSION = 5
"""Of the meaning of facts: they are cached by digest and this number."""

LONG = 1000
"""Characters from which on a string is kept as the tokens in it."""
MAX_TOKEN = 4096  # PATH_MAX: nothing longer names a file or module
MAX_ARGUMENTS = 256
MAX_NUMBER = 1_000_000_000  # dates and build numbers are less
MAX_PARTS = 6  # of a version in numbers

# Nothing asks for these by name; compilers load some of them on their own.
UNNAMED = frozenset({"__annotations__", "__conditional_annotations__", "AssertionError"})
# Module and class variables that compilers set; a constant assigned to one is no string of the scope.
SET_BY_COMPILER = frozenset({"__doc__", "__qualname__", "__static_attributes__", "__firstlineno__"})
UNBOUND = frozenset({"__annotations__", "__conditional_annotations__", "__doc__", "__annotate__", "__annotate_func__"})

_OWN = frozenset({"?self", "?cls"})  # by convention, the object or class that a method belongs to
_READS = frozenset({"getattr", "attrgetter", "methodcaller", "__getattribute__"})
_TOKEN = re.compile(r"[\w./+:@%~-]{2,}")
_WORD = re.compile(r"\w")
_SURROGATE = re.compile("[\ud800-\udfff]")
_IDENTIFIER = re.compile(r"(?<!\w)[^\W\d]\w*")
_KEYWORDS = frozenset(keyword.kwlist)
_DECIMAL = re.compile(r"\d{1,9}\.\d{1,9}")


def identifiers(text: str) -> set[str]:
    """Return the names in the text of an annotation."""
    return set(_IDENTIFIER.findall(text)) - _KEYWORDS


class ScopeBuilder:
    """Collects what one scope refers to. ``strings`` is filled by the extractor, which knows what is none."""

    __slots__ = (
        "calls",
        "code",
        "decorators",
        "handed",
        "imports",
        "line",
        "names",
        "numbers",
        "patterns",
        "qualname",
        "strings",
    )

    def __init__(self, qualname: str, line: int) -> None:
        self.qualname = qualname
        self.line = line
        self.imports: dict[tuple[str, tuple[str, ...], int, int], bool] = {}
        self.names: set[str] = set()
        self.strings: set[str] = set()
        self.numbers: set[tuple[int, ...]] = set()
        self.patterns = Patterns()
        self.calls: dict[tuple[str, tuple[str, ...], int, tuple[tuple[str, str], ...], tuple[str, ...]], bool] = {}
        self.code: list[tuple[str, int]] = []
        self.decorators: list[str] = []
        self.handed: set[str] = set()

    def hand(self, value: Value) -> None:
        """Note that a dotted name is handed on as it is."""
        if type(value) is Dotted:
            if not value.text.startswith("?"):
                self.handed.add(value.text)
        elif isinstance(value, (tuple, list)):
            for item in value[:MAX_ARGUMENTS]:
                if type(item) is Dotted and not item.text.startswith("?"):
                    self.handed.add(item.text)
        elif type(value) is Map:
            for pair in value.pairs[:MAX_ARGUMENTS]:
                self.hand(pair)

    def imported(self) -> set[str]:
        """Return the dotted names that the imports of this scope bind or could bind."""
        found: set[str] = set()
        for module, names, level, _ in self.imports:
            base = "." * level + module
            if names:
                found.update([base + name if not module else f"{base}.{name}" for name in names])
            while not names and base:
                found.add(base)
                base = base.rpartition(".")[0]
        return found

    def add_import(self, module: str, names: tuple[str, ...], level: int, line: int, conditional: bool) -> None:
        """Add an import; one that a compiler wrote out twice (``finally``) is conditional."""
        key = (module, names, level, line)
        self.imports[key] = conditional or self.imports.get(key, False)
        if names != ("*",):
            self.names.update(names)

    def add_call(
        self, callee: str, values: Sequence[Value], keywords: Sequence[tuple[str, Value]], line: int, conditional: bool
    ) -> None:
        """Add a call of an interesting callee with its folded arguments."""
        arguments: list[str] = []
        for value in values[:MAX_ARGUMENTS]:
            if value is STAR:
                arguments.append(HOLE)
                break
            arguments.append(text_of(value))
        named = tuple([(key, text_of(value)) for key, value in keywords[:MAX_ARGUMENTS]])
        sequence: tuple[str, ...] = ()
        first = values[0] if values else dict(keywords).get("args")
        if isinstance(first, (tuple, list)):
            sequence = tuple([text_of(item) for item in first[:MAX_ARGUMENTS]])
        key = (callee, tuple(arguments), line, named, sequence)
        self.calls[key] = conditional or self.calls.get(key, False)
        if callee in callees.CODE_EATERS and arguments and not has_hole(arguments[0]):
            self.code.append((arguments[0], line))
        if "-c" in sequence:
            after = sequence[sequence.index("-c") + 1 :]
            if after and not has_hole(after[0]):
                self.code.append((after[0], line))

    def compare(self, value: Value) -> None:
        """Note a number, or numbers in order, that something is compared with."""
        kind = type(value)
        if kind is int:
            if 0 <= value < MAX_NUMBER:
                self.numbers.add((value,))
        elif kind is float:
            text = repr(value)
            if _DECIMAL.fullmatch(text):
                whole, _, rest = text.partition(".")
                self.numbers.add((int(whole), int(rest)))
        elif (
            (kind is tuple or kind is list)
            and 0 < len(value) <= MAX_PARTS
            and all(type(item) is int and 0 <= item < MAX_NUMBER for item in value)
        ):
            self.numbers.add(tuple(value))

    def among(self, value: Value) -> None:
        """Note the numbers in a sequence in which something is looked for."""
        if type(value) is tuple or type(value) is list:
            for item in value[:MAX_ARGUMENTS]:
                self.compare(item)

    def build(self, imported: Collection[str] = ()) -> Scope:
        """Return the scope. Strings of code that it executes are read too. ``imported`` are the dotted names that the
        module imports."""
        for text, line in self.code:
            self._add_code(text, line)
        strings, broken = _sound(frozenset(_kept(self.strings)))
        return Scope(
            self.qualname,
            self.line,
            tuple(
                [
                    Import(*key, conditional)
                    for key, conditional in sorted(self.imports.items(), key=lambda item: (item[0][3], item[0]))
                ]
            ),
            frozenset(self.names - UNNAMED),
            strings,
            self.patterns.result() | broken,
            tuple(
                [
                    Call(callee, arguments, line, conditional, keywords, sequence)
                    for (callee, arguments, line, keywords, sequence), conditional in sorted(
                        self.calls.items(), key=lambda item: (item[0][2], item[0])
                    )
                ]
            ),
            tuple(self.decorators),
            frozenset(self.numbers),
            tuple(sorted({text if text[0] != "?" or text in _OWN else "?" for text in self.patterns.reflects})),
            tuple(sorted([name for name in self.handed if name in imported])),
        )

    def _add_code(self, text: str, line: int) -> None:
        tree = parse(text)
        if tree is None:
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.add_import(alias.name, (), 0, line, True)
            elif isinstance(node, ast.ImportFrom):
                self.add_import(node.module or "", tuple([alias.name for alias in node.names]), node.level, line, True)
            elif isinstance(node, ast.Call) and (name := _imported_by(node)):
                self.add_import(name, (), 0, line, True)
            elif isinstance(node, ast.Name):
                self.names.add(node.id)
            elif isinstance(node, ast.Attribute):
                self.names.add(node.attr)
            elif isinstance(node, ast.Constant) and type(node.value) is str:
                self.strings.add(node.value)


def _imported_by(node: ast.Call) -> str | None:
    """The module that ``__import__("x")`` or ``import_module("x")`` imports."""
    callee = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    first = node.args[0] if callee in ("__import__", "import_module") and node.args else None
    value = first.value if isinstance(first, ast.Constant) else None
    return value if isinstance(value, str) and not value.startswith(".") else None


def parse(source: str | bytes) -> ast.Module | None:
    """Parse a source; None if this Python can't. Never warns, never raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError, LookupError, OverflowError):
            return None


def _kept(strings: Iterable[str]) -> Iterable[str]:
    for text in strings:
        if len(text) > LONG:
            for match in _TOKEN.finditer(text):
                if len(match[0]) <= MAX_TOKEN and _WORD.search(match[0]):
                    yield match[0]
        elif _WORD.search(text):
            yield text


def _sound(strings: frozenset[str]) -> tuple[frozenset[str], frozenset[Pattern]]:
    """Part off the strings with lone surrogates, which no encoding holds: as patterns, each with a hole there."""
    try:
        "\n".join(strings).encode()
    except UnicodeEncodeError:
        broken = frozenset(text for text in strings if _SURROGATE.search(text))
        return strings - broken, frozenset(_SURROGATE.sub(HOLE, text) for text in broken)
    return strings, frozenset()


def record(
    scope: ScopeBuilder,
    function: Value,
    values: Sequence[Value],
    keywords: Sequence[tuple[str, Value]],
    line: int,
    conditional: bool,
) -> None:
    """Record a call if its callee is one that matters (see ``_callees``)."""
    if type(function) is Dotted:
        base, _, last = function.text.rpartition(".")
        if last not in callees.INTERESTING:
            return
        receiver: Value = None
    elif type(function) is Bound:
        base, last, receiver = "?", function.name, function.text
        if last not in callees.INTERESTING:
            return
    else:
        return
    if last in callees.PATHS:
        if receiver is not None:
            values = [receiver, *values]
        if any(isinstance(value, str) and literal(value) for value in values):
            scope.add_call(last, values, keywords, line, conditional)
    elif last in callees.ATTRIBUTES:
        _attributes(scope, last, values, keywords, line, conditional)
    elif last in callees.REFLECTORS:
        if base.rpartition(".")[2] in callees.REFLECTORS[last]:
            _reflect(scope, last, values)
    else:
        callee = _callee(base, last, values, keywords)
        if callee is not None:
            scope.add_call(callee, values, keywords, line, conditional)


def is_search_path(value: Value) -> bool:
    """Tell whether a value is ``sys.path``."""
    return type(value) is Dotted and (value.text == "sys.path" or value.text.endswith(".sys.path"))


def _callee(base: str, last: str, values: Sequence[Value], keywords: Sequence[tuple[str, Value]]) -> str | None:
    """Return the name under which a call is recorded; None if it does not matter."""
    if last in callees.LOADERS or last in callees.PROGRAMS:
        return last
    if last in callees.SYS_PATH:
        return f"path.{last}" if base == "sys.path" or base.endswith(".sys.path") else None
    if last == callees.SELECT:
        return last if any(key == "group" for key, _ in keywords) else None
    if last == "load" and not values and not keywords:
        return last
    if base.rpartition(".")[2] not in callees.BASES[last]:
        return None
    return "cpp_extension.load" if last == "load" else last


def _attributes(
    scope: ScopeBuilder,
    last: str,
    values: Sequence[Value],
    keywords: Sequence[tuple[str, Value]],
    line: int,
    conditional: bool,
) -> None:
    """A constant name is a reference to that name; a pattern is kept as a call."""
    named = values[:MAX_ARGUMENTS] if last in ("attrgetter", "methodcaller") else values[1:2]
    if last in _READS and not all(isinstance(value, str) and literal(value) for value in named[:1]):
        _reflect(scope, last, values if last == "getattr" else [None])
    for value in named:
        if not isinstance(value, str):
            continue
        if has_hole(value):
            if literal(value):
                scope.add_call(last, values, keywords, line, conditional)
                return
        else:
            scope.names.update(part for part in value.split(".") if part.isidentifier())


def _reflect(scope: ScopeBuilder, last: str, values: Sequence[Value]) -> None:
    """Note what is looked through by names that do not fold: a module or class by its dotted name."""
    if last in ("globals", "locals") or not values:
        if last == "globals" or scope.qualname in ("", "<main>"):
            scope.patterns.reflects.add(HOLE_NAME)
        return
    value = values[0]
    if type(value) is Dotted:
        if last != "vars" or value.text != "?self":
            scope.patterns.reflects.add(value.text)
    elif value is not STAR and not is_text(value):
        scope.patterns.reflects.add("?")


class ModuleBuilder:
    """Collects what a module's body binds, and the values of names that are bound once."""

    __slots__ = (
        "aliases",
        "bases",
        "binds",
        "binds_only",
        "checking",
        "counts",
        "env",
        "exports",
        "lazy",
        "main",
        "module",
        "scopes",
        "versions",
    )

    def __init__(self, line: int = 1) -> None:
        self.module = ScopeBuilder("", line)
        self.main: ScopeBuilder | None = None
        self.scopes: list[ScopeBuilder] = []
        self.binds: set[str] = set()
        self.exports: dict[str, None] = {}
        self.aliases: dict[tuple[str, str], None] = {}
        self.lazy: dict[tuple[str, str], None] = {}
        self.bases: set[tuple[str, str]] = set()
        self.versions: dict[tuple[str, str, int], None] = {}
        self.binds_only = False
        self.checking = True  # TYPE_CHECKING is what typing says
        self.counts: dict[str, int] = {}  # how often the module's body and `global` statements bind a name
        self.env: dict[str, Value] = {}

    def main_scope(self, line: int) -> ScopeBuilder:
        """Return the scope of the ``if __name__ == "__main__"`` blocks."""
        if self.main is None:
            self.main = ScopeBuilder("<main>", line)
        return self.main

    def load(self, text: str) -> Value:
        """Return what a global name folds to."""
        if text in self.env:
            return self.env[text]
        return name(text)

    def base(self, class_: str, value: Value) -> None:
        """Note what a class is made of."""
        if type(value) is Dotted and not value.text.startswith("?"):
            self.bases.add((class_, value.text))

    def is_checking(self, value: Value) -> bool:
        """Tell whether a value is ``TYPE_CHECKING``, which is false when a program runs."""
        if type(value) is not Dotted or not self.checking:
            return False
        base, _, last = value.text.rpartition(".")
        return last == "TYPE_CHECKING" and not base.startswith("?")

    def bind(self, text: str, value: Value, line: int, *, handler: bool, imported: str | None = None) -> None:
        """Note that the module's body binds a name to a folded value; ``imported`` is its name where it came from."""
        if text in UNBOUND:
            return
        self.binds.add(text)
        if isinstance(value, (tuple, list)) or type(value) is Map:
            self.module.hand(value)
        if text == "TYPE_CHECKING" and value is not False and imported is None:
            self.checking = False
        if not handler and self.counts.get(text, 0) == 1:
            kept = remembered(value)
            if kept is not None:
                self.env[text] = kept
        if type(value) is Dotted:
            if imported != text and value.text != text and not value.text.startswith("?"):
                self.aliases[text, value.text] = None
        elif text == "__all__":
            self.export(value)
        elif text in callees.VERSION_NAMES:
            shown = _version(value)
            if shown is not None:
                self.versions[text, shown, line] = None
        elif type(value) is Map:
            self.table(value)

    def export(self, value: Value) -> None:
        """Note strings of ``__all__``."""
        if isinstance(value, (tuple, list)):
            for item in value:
                if type(item) is str:
                    self.exports[item] = None

    def table(self, value: Map) -> None:
        """Note what a literal table could say of lazy names: name -> module, or module -> names."""
        for key, item in value.pairs:
            if type(key) is str:
                self.entry(key, item)

    def entry(self, key: str, item: Value) -> None:
        """Note one entry of such a table."""
        if isinstance(item, str):
            if not has_hole(item):
                self.lazy[key, str(item)] = None
        elif isinstance(item, tuple) and item and type(item[0]) is str:
            self.lazy[key, item[0]] = None
            for part in item:
                if type(part) is str:
                    self.lazy[part, key] = None
        elif isinstance(item, list):
            for part in item:
                if type(part) is str:
                    self.lazy[part, key] = None
        elif type(item) is Map:
            self.table(item)

    def build(self) -> ModuleFacts:
        """Return the facts."""
        builders = [self.module, *self.scopes, *([self.main] if self.main is not None else [])]
        imported = frozenset[str]().union(*[scope.imported() for scope in builders])
        first = self.module.build(imported)
        main = [self.main.build(imported)] if self.main is not None else []
        rest = sorted(_distinct(self.scopes, imported), key=lambda s: (s.line, s.qualname))
        lazy = self.lazy if "__getattr__" in self.binds or first.names & callees.LAZY_MAKERS else {}
        return ModuleFacts(
            (first, *main, *rest),
            frozenset(self.binds),
            tuple(self.exports),
            tuple(sorted(self.aliases)),
            tuple(sorted(lazy)),
            tuple(sorted(self.versions)),
            self.binds_only,
            tuple(sorted(self.bases)),
        )


def _distinct(scopes: Sequence[ScopeBuilder], imported: Collection[str]) -> list[Scope]:
    """Build the scopes; copies that a compiler made (of a ``finally`` body) count once."""
    return list(dict.fromkeys([scope.build(imported) for scope in scopes]))


def remembered(value: Value) -> Value:
    """Return what a name that is bound once to this value folds to; None if nothing."""
    if isinstance(value, str):
        return Known(text_of(value))
    if type(value) is Dotted:
        return value if not value.text.startswith("?") else None
    if type(value) is tuple or type(value) is int or type(value) is float:
        return value
    if type(value) is list:
        return [*value, STAR]  # it can grow
    return None


def _version(value: Value) -> str | None:
    if type(value) is str:
        return value
    if type(value) is tuple and value and all(type(item) in (str, int) for item in value):
        return repr(value)
    return None
