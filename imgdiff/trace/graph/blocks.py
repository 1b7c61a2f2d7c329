"""Units of code: one module, cut into the blocks that are reached together."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from imgdiff.engines import common
from imgdiff.model import (
    HOLE,
    HOLE_DIR,
    HOLE_FILE,
    HOLE_NAME,
    HOLE_PACKAGE,
    Call,
    Edge,
    Import,
    ModuleFacts,
    Pattern,
    Scope,
)
from imgdiff.trace.finder.resolver import Found, FoundKind
from imgdiff.trace.graph import calls
from imgdiff.trace.graph.children import computed_module

if TYPE_CHECKING:
    from imgdiff.trace.graph.graph import Graph

BlockKind = Literal["body", "main", "always", "gated"]
DOTTED = re.compile(r"(\.*)([^\W\d]\w*(?:\.[^\W\d]\w*)*)(?:\s*:\s*[\w.]*)?")
_HOLES = re.compile(f"[{HOLE}{HOLE_NAME}{HOLE_PACKAGE}{HOLE_FILE}{HOLE_DIR}]")


COMMAND_LINE = b"proc/self/cmdline"  # where the code of python -c stands, as its process sees it


@functools.cache
def harmless(decorator: str) -> bool:
    """Tell whether a decorator is on the list of those that put a function into no registry."""
    decorator = decorator.removesuffix("()")
    patterns = common().harmless_decorators
    last = decorator.rpartition(".")[2]
    return any(
        fnmatch.fnmatchcase(decorator, pattern) or ("." not in pattern and last == pattern) for pattern in patterns
    )


class Unit:
    """One module: ``name`` as imported, ``path`` of the file that runs (None for a namespace package)."""

    __slots__ = (
        "always",
        "body",
        "facts",
        "found",
        "gated",
        "kind",
        "lazy",
        "main",
        "name",
        "package",
        "parent",
        "path",
        "prepared",
        "problem",
        "top",
    )

    def __init__(self, name: str, found: Found, parent: Unit | None) -> None:
        self.name, self.found, self.parent = name, found, parent
        self.path: bytes | None = found.path
        self.kind: FoundKind = found.kind
        self.package = name if found.portions else name.rpartition(".")[0]
        self.top = name.partition(".")[0]
        self.prepared = False
        self.facts: ModuleFacts | None = None
        self.problem: str | None = None
        self.body: Block | None = None
        self.main: Block | None = None
        self.always: Block | None = None
        self.gated: list[Block] = []
        self.lazy: dict[str, tuple[str, ...]] = {}

    @property
    def place(self) -> bytes:
        """Where it lies, for people: its file, a namespace package's first directory, or the command line."""
        return self.path or next(iter(self.found.portions), COMMAND_LINE)

    def __repr__(self) -> str:
        return f"<Unit {self.name} {self.path!r}>"

    def blocks(self) -> Iterator[Block]:
        """Yield every block, the body first."""
        for block in (self.body, self.main, self.always):
            if block is not None:
                yield block
        yield from self.gated


Target = tuple[Unit, Edge, int | None, str | None]  # to, how, the line and function that lead there
LazyUse = tuple[Unit, tuple[str, ...], int | None, str | None]  # of, which attributes, line and function
_NOTHING: frozenset[str] = frozenset()  # one for all: CPython makes each empty frozenset anew, in 216 bytes
_NO_LINES: frozenset[int] = frozenset()


class Block:
    """Code of one unit that is reached together. ``gate`` is the name that a gated one waits for."""

    __slots__ = (
        "_made",
        "asked",
        "bare",
        "calls",
        "edges",
        "files",
        "gate",
        "imports",
        "kind",
        "lazy_uses",
        "missing",
        "named",
        "patterns",
        "refs",
        "scopes",
        "texts",
        "unit",
        "words",
    )

    def __init__(self, unit: Unit, kind: BlockKind, scopes: list[Scope], gate: str = "") -> None:
        self.unit, self.kind, self.scopes, self.gate = unit, kind, scopes, gate
        self._made = False
        self.bare = False  # made, and it refers to names and does nothing else
        self.refs: frozenset[str] | set[str] = _NOTHING  # names that it refers to, by code or by string
        # What follows is empty until the block is made. The empty ones are shared: most blocks stay small.
        self.words: set[str] | frozenset[str] = _NOTHING  # identifier-like strings
        self.named: frozenset[str] = _NOTHING  # strings that could be module names, whole or in part
        self.texts: set[str] | frozenset[str] = _NOTHING  # other strings
        self.patterns: set[Pattern] | frozenset[Pattern] = _NOTHING  # with the module's own name and place filled in
        self.files: tuple[str, ...] = ()  # strings and patterns that could name files
        self.imports: Sequence[Target] = ()
        self.lazy_uses: Sequence[LazyUse] = ()
        self.edges: Sequence[Target] = ()  # strings and dynamic imports that fold
        self.calls: Sequence[calls.Use] = ()
        self.missing: Sequence[str] = ()  # module names that it imports and that resolve to nothing
        self.asked: Sequence[str] = ()  # the same, asked for by a call

    def remake(self, graph: Graph) -> None:
        """Work out the edges again: a package that they lead to has become wider."""
        self._made = False
        self.make(graph)

    def make(self, graph: Graph) -> None:
        """Work out the edges, once."""
        if not self._made:
            self._made = True
            self.bare = self._only_names()
            if not self.bare:
                _Making(self, graph).run()

    def _only_names(self) -> bool:
        """Take the names alone where the code says nothing else, as half of all blocks."""
        for scope in self.scopes:
            if scope.strings or scope.calls or scope.imports or scope.patterns or calls.holds_importer(scope):
                return False
        if len(self.scopes) == 1:
            self.refs = self.scopes[0].names
        else:
            self.refs = _NOTHING.union(*[scope.names for scope in self.scopes])
        return True


class _Making:
    """Works out one block."""

    def __init__(self, block: Block, graph: Graph) -> None:
        self.block, self.unit, self.graph = block, block.unit, graph
        self.words: set[str] = set()
        self.texts: set[str] = set()
        self.patterns: set[Pattern] = set()
        self.imports: list[Target] = []
        self.lazy_uses: list[LazyUse] = []
        self.edges: list[Target] = []
        self.calls: list[calls.Use] = []
        self.missing: list[str] = []
        self.asked: list[str] = []

    def run(self) -> None:
        block = self.block
        names: set[str] = set()
        exports = frozenset(self.unit.facts.exports) if block.kind == "body" and self.unit.facts else frozenset()
        dead = self._dead()
        for scope in block.scopes:
            names |= scope.names
            for each in scope.imports:
                if each.line not in dead:
                    self._import(each, scope.qualname or None)
        block.imports = self.imports  # a package walk looks at them
        for scope in block.scopes:
            for text in scope.strings - exports if exports else scope.strings:
                if text.isidentifier():
                    self.words.add(text)
                elif len(text) < calls.MAX_TEXT:
                    self.texts.add(text)
                    if "." in text:
                        self._string(text, scope)
            for pattern in scope.patterns:
                self._pattern(pattern, scope)
            for call in scope.calls:
                if call.line in dead:
                    continue
                self._used(calls.use_of(call, scope.qualname or None))
                self._arguments(call)
            if self.unit.facts is not None and calls.holds_importer(scope):
                self.calls += calls.held_importers(scope, self.unit.facts.scopes)
        self._keep(names)

    def _dead(self) -> frozenset[int]:
        """The lines of the module that do not run by the user's word."""
        narrowing, facts = self.graph.narrowing, self.unit.facts
        if narrowing is None or narrowing.dead is None or facts is None:
            return _NO_LINES
        return narrowing.dead(self.unit.name, self.unit.path, _NOTHING.union(*(each.names for each in facts.scopes)))

    def _keep(self, names: set[str]) -> None:
        block = self.block
        block.refs = names | self.words
        block.words = self.words or _NOTHING
        block.texts = self.texts or _NOTHING
        block.patterns = self.patterns or _NOTHING
        if self.texts:
            block.named = frozenset(self.words.union(text for text in self.texts if DOTTED.fullmatch(text)))
        elif self.words:
            block.named = frozenset(self.words)
        if self.texts or self.patterns:
            block.files = tuple(sorted(text for text in self.texts | self.patterns if "/" in text or "." in text))
        block.lazy_uses = self.lazy_uses or ()
        narrowing = self.graph.narrowing
        if narrowing:
            self.edges = [each for each in self.edges if not narrowing.edge(self.unit.name, each[0].name)]
        block.edges = tuple(dict.fromkeys(self.edges))
        block.calls = self.calls or ()
        block.missing, block.asked = self.missing or (), self.asked or ()

    def _import(self, each: Import, function: str | None) -> None:
        graph = self.graph
        base = graph.absolute(self.unit, each.module, each.level)
        if base is None:
            return
        unit, alias = graph.nearest(base, self.unit)
        if unit is None or (unit.name != base and not alias):
            self.missing.append(base)
        if unit is None:
            return
        kept = self.edges if alias else self.imports
        how: Edge = "dynamic" if alias else "import"
        kept.append((unit, how, each.line, function))
        if unit.name != base and not alias:
            return
        attributes: list[str] = []
        for name in each.names:
            child = graph.unit(f"{unit.name}.{name}") if unit.found.portions and name != "*" else None
            if child is not None:
                kept.append((child, how, each.line, function))
            else:
                attributes.append(name)
        if attributes:
            self.lazy_uses.append((unit, tuple(attributes), each.line, function))

    def _string(self, text: str, scope: Scope) -> None:
        for unit in self.graph.by_string(text, self.unit.package):
            self.edges.append((unit, "string", scope.line, scope.qualname or None))

    def _pattern(self, pattern: Pattern, scope: Scope) -> None:
        own = HOLE_NAME in pattern or HOLE_PACKAGE in pattern
        filled = fill(pattern, self.unit)
        if HOLE not in filled:
            self.texts.add(filled)
            self._string(filled, scope)
            return
        self.patterns.add(filled)
        for unit in self.graph.by_pattern(filled, loose=own):
            self.edges.append((unit, "dynamic", scope.line, scope.qualname or None))

    def _arguments(self, call: Call) -> None:
        """Paths that are put together for a call (``open(join(expanduser("~"), "x"))``) stand in no string."""
        for text in (*call.arguments, *call.sequence, *(value for _, value in call.keywords)):
            if "/" in text and len(text) < calls.MAX_TEXT:
                filled = fill(text, self.unit)
                (self.patterns if HOLE in filled else self.texts).add(filled)

    def _used(self, use: calls.Use | None) -> None:
        while use is not None:
            self.calls.append(use)
            self._call(use)
            use = computed_module(use)

    def _call(self, use: calls.Use) -> None:
        found: Iterable[Unit] = ()
        if use.kind == "import":
            found = self.graph.by_import_call(use, self.unit)
            if not found and use.name is not None and HOLE not in use.name:
                self.asked.append(self.graph.called_name(use, self.unit) or use.name)
        elif use.kind == "walk":
            children = (self.graph.unit(name) for name in self.graph.walked(use, self.block))
            found = [child for child in children if child is not None]
        elif use.kind == "load-path":
            found = self.graph.by_path_call(use, self.unit)
        for unit in found:
            self.edges.append((unit, "dynamic", use.line, use.function))


def fill(pattern: Pattern, unit: Unit) -> Pattern:
    """Return the pattern with the module's own name, package and place filled in."""
    if not _HOLES.search(pattern):
        return pattern
    path = "/" + (unit.path or b"").decode("utf-8", "surrogateescape")
    return (
        pattern.replace(HOLE_NAME, unit.name)
        .replace(HOLE_PACKAGE, unit.package)
        .replace(HOLE_FILE, path)
        .replace(HOLE_DIR, path.rpartition("/")[0])
    )
