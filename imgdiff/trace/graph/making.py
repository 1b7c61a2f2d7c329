"""The edges of a block: what its code refers to, worked out once."""

from __future__ import annotations

from collections.abc import Iterable

from imgdiff.model import HOLE, HOLE_NAME, HOLE_PACKAGE, Call, Edge, Import, Pattern, Scope
from imgdiff.trace.graph import calls
from imgdiff.trace.graph.blocks import DOTTED, OBJECT, Block, LazyUse, Target, Unit, fill
from imgdiff.trace.graph.calls import Use
from imgdiff.trace.graph.children import computed_module
from imgdiff.trace.graph.graph import Graph

_NOTHING: frozenset[str] = frozenset()  # one for all blocks: see ``blocks``
_NO_LINES: frozenset[int] = frozenset()


def make(block: Block, graph: Graph) -> None:
    """Work out the edges of a block, once."""
    if not block.made:
        block.made = True
        block.bare = _only_names(block)
        if not block.bare:
            _Making(block, graph).run()


def remake(block: Block, graph: Graph) -> None:
    """Work out the edges again: a package that they lead to has become wider."""
    block.made = False
    make(block, graph)


def _only_names(block: Block) -> bool:
    """Take the names alone where the code says nothing else, as half of all blocks."""
    for scope in block.scopes:
        if scope.strings or scope.calls or scope.imports or scope.patterns or calls.holds_importer(scope):
            return False
    if len(block.scopes) == 1:
        block.refs = block.scopes[0].names
    else:
        block.refs = _NOTHING.union(*[scope.names for scope in block.scopes])
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
        self.calls: list[Use] = []
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
                    if "." in text or OBJECT.fullmatch(text):
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

    def _used(self, use: Use | None) -> None:
        while use is not None:
            self.calls.append(use)
            self._call(use)
            use = computed_module(use)

    def _call(self, use: Use) -> None:
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
