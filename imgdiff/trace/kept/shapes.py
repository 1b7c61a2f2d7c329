"""What is kept of a trace: modules are numbers."""

from __future__ import annotations

import msgspec

from imgdiff.model import (
    Blindspot,
    Edge,
    Hop,
    Integrity,
    Level,
    PathRule,
    Resolved,
    Side,
    UnresolvedImport,
)
from imgdiff.trace.finder.resolver import FoundKind
from imgdiff.trace.finder.search_path import SearchPath

NONE = -1  # in place of a module
Line = int | None
Function = str | None


class KeptUnit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A module (``blocks.Unit``) without its code; ``parent`` is a number, -1 for none."""

    name: str
    path: bytes | None
    kind: FoundKind
    portions: tuple[bytes, ...]
    parent: int


class KeptSteps(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which step leads to each of ``units``: from where (-1: it is a root), how, and by which line and function."""

    units: list[int]
    origins: list[int]
    edges: list[Edge]
    lines: list[Line]
    functions: list[Function]


class KeptNames(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``named.Names``: its tokens and patterns, and for each where it stands: in a module, at a path, or what words
    say, numbered in this order."""

    tokens: list[bytes]
    token_sources: list[int]
    patterns: list[str]
    pattern_sources: list[int]
    modules: list[int]
    paths: list[bytes]
    words: list[str]


class KeptAsleep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A dormant closure, and the number of the closure that it would widen."""

    steps: KeptSteps
    closure: int


class KeptClosure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A closure (``reached.Closed``): its modules, the level of each as a byte, and those that are surely eager."""

    units: list[int]
    levels: bytes
    search: SearchPath
    unread: dict[str, bytes]
    steps: KeptSteps
    sure: list[int]


class KeptFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A file that is loaded apart from modules (``world.Loaded``); ``by`` is a module's number, or a path."""

    path: bytes
    level: int
    hop: Hop
    by: int | bytes | None
    why: str | None


class KeptRole(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that one role can be asked. What is asleep is (name or path, number in ``asleep``, module)."""

    name: str
    roots: tuple[str, ...]
    closures: list[KeptClosure]
    files: list[KeptFile]
    libraries: dict[str, tuple[Level, Resolved]]
    starts: list[tuple[int, Edge, str]]
    wanted: dict[str, int]
    rules: tuple[PathRule, ...]
    scans_entry_points: bool
    names: KeptNames
    asleep: list[KeptAsleep]
    asleep_by_path: list[tuple[bytes, int, int]]
    asleep_names: KeptNames
    asleep_needs: list[tuple[str, int, int]]
    missing: dict[str, int]
    unbounded: list[tuple[bytes, str]]
    asked: dict[str, tuple[Hop, ...]]


class KeptWorld(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What all roles of the image share."""

    library_directories: frozenset[bytes]
    listed: tuple[bytes, ...]
    working: frozenset[bytes]
    names: KeptNames | None  # what all roles name alike


class KeptTrace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A whole trace, with the side that it was made for."""

    side: Side
    units: list[KeptUnit]
    world: KeptWorld
    roles: list[KeptRole]
    blindspots: tuple[Blindspot, ...]
    caveats: tuple[str, ...]
    integrity: tuple[Integrity, ...]
    unresolved: tuple[UnresolvedImport, ...] = ()


ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(KeptTrace)


def columns(steps: KeptSteps) -> tuple[list[int], list[int], list[Edge], list[Line], list[Function]]:
    """Return the columns of steps."""
    return steps.units, steps.origins, steps.edges, steps.lines, steps.functions
