"""Units of code: one module, cut into the blocks that are reached together."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from imgdiff.engines import common
from imgdiff.model import (
    HOLE,
    HOLE_DIR,
    HOLE_FILE,
    HOLE_NAME,
    HOLE_PACKAGE,
    Edge,
    ModuleFacts,
    Pattern,
    Scope,
)
from imgdiff.trace.finder.resolver import Found, FoundKind
from imgdiff.trace.graph import calls

BlockKind = Literal["body", "main", "always", "gated"]
# The object in a module may be called, as servers let a factory be named ("app.main:create_app()").
DOTTED = re.compile(r"(\.*)([^\W\d]\w*(?:\.[^\W\d]\w*)*)(?:\s*:\s*[\w.]*(?:\(.*\))?)?", re.DOTALL)
OBJECT = re.compile(r"[^\W\d]\w*:[^\W\d][\w.]*(?:\(.*\))?", re.DOTALL)  # of a module that lies in no package
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


class Block:
    """Code of one unit that is reached together. ``gate`` is the name that a gated one waits for."""

    __slots__ = (
        "asked",
        "bare",
        "calls",
        "edges",
        "files",
        "gate",
        "imports",
        "kind",
        "lazy_uses",
        "made",
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
        self.made = False
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
