"""Who loads a file, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from imgdiff.model.blindspots import Blindspot, Side
from imgdiff.model.layers import FileEntry
from imgdiff.model.owners import Integrity
from imgdiff.model.profiles import Profile

Level = Literal["recorded", "eager", "deferred", "unknown", "dormant", "unreached", "outside"]
LEVELS: tuple[Level, ...] = ("recorded", "eager", "deferred", "unknown", "dormant", "unreached", "outside")
How = Literal["executed", "mapped", "opened"]
Edge = Literal[
    "root",  # a root of the role (profile, entry or implicit); `why` text in Hop.function
    "import",  # an import statement at module level
    "parent",  # the __init__ of a parent package
    "deferred",  # an import inside a function that reached code refers to
    "lazy",  # a lazy attribute or a string table
    "dynamic",  # importlib, runpy, exec, spec_from_file_location
    "string",  # named in a string constant
    "entry-point",
    "pth",  # a line of a .pth, sitecustomize
    "main",  # the entry's main module, imported again as __mp_main__
    "needed",  # DT_NEEDED
    "interpreter",  # PT_INTERP, a shebang
    "preload",  # LD_PRELOAD, /etc/ld.so.preload
    "dlopen",
    "program",  # started by name
    "source",  # sourced by a shell script
    "data",  # data of a reached owner, or in a directory that the profile says is read
    "named",  # named by a string, a link, ENV or argv
    "beside",  # in or below the directory of a reached library
    "dormant",  # inside a function that nothing reached refers to
    "recorded",
]


class Hop(msgspec.Struct, frozen=True):
    """One step of a chain: where we are (module or path), the line and function that lead on, and how we got here."""

    module: str | None
    path: bytes
    line: int | None
    function: str | None
    edge: Edge


class Evidence(msgspec.Struct, frozen=True):
    """How strongly one role is known to load one file. ``chain`` is the shortest proof, root first.

    ``settled`` is set where a recording shows that the role did not load it although its static level leaves that
    open, and says why; it then bears on nothing. Where ``functions_only``, that holds for what the bodies of its
    functions say alone: the file was in memory by fork, and none of its functions ran. ``disputed`` is set where a
    recording does not show what must run by static means: one of the two is wrong.
    """

    level: Level
    how: How | None = None
    chain: tuple[Hop, ...] = ()
    note: str | None = None
    settled: str | None = None
    disputed: str | None = None
    functions_only: bool = False


class Resolved(msgspec.Struct, frozen=True):
    """What a module or library name resolves to: the canonical path, its digest, and the path relative to its first
    owner with that owner's identity, so that a pure move compares as the same."""

    path: bytes
    digest: bytes | None
    owner: tuple[str, str] | None = None  # (kind, name)
    relative: bytes | None = None


class RoleTrace(Protocol):
    """What the static trace (or a recording) says of one role in one image."""

    @property
    def role(self) -> str:
        """The role's name."""

    @property
    def roots(self) -> tuple[str, ...]:
        """The modules and files that the closure starts from, for the report."""

    @property
    def modules(self) -> Mapping[str, tuple[Level, Resolved]]:
        """Every module name that is reached at ``eager`` or ``deferred``, and what it resolves to."""

    @property
    def libraries(self) -> Mapping[str, tuple[Level, Resolved]]:
        """Every library or program name that is reached at ``eager`` or ``deferred``, and what it resolves to."""

    def evidence(self, path: bytes) -> Evidence:
        """Return the strongest level that holds for a path of this image (of any type, present in the tree)."""

    def by_name(self, path: bytes) -> Evidence:
        """Return the same, whatever other names the file has (hard links): what it means that this one came or went."""

    def absent(self, path: bytes, like: FileEntry) -> Evidence:
        """Return the level that a file *would* have here if it stood at this path: used for the side that lacks it."""

    def placed(self, path: bytes, other: bytes) -> Evidence | None:
        """Return the evidence that something reached names this absolute path or a directory above it, and not
        ``other`` just as well: a file that moved from one to the other is not found as before. None if nothing
        does."""

    def misses(self, name: str) -> Level | None:
        """Return the level at which reached code asks for a module or library of this name, which nothing gives here;
        None where none does."""

    def asks_version(self, distribution: str) -> tuple[Hop, ...]:
        """Return the places in reached code (path, line) that ask for a distribution's version (importlib.metadata,
        ``__version__`` of its packages)."""

    def conditional(self, path: bytes) -> bool:
        """Tell whether a file that is ``eager`` is so over conditional imports alone (try, if, with): a run can do
        without it. False where that is not known."""


class UnresolvedImport(msgspec.Struct, frozen=True):
    """A place in reached code that imports a module by a name, or runs a file by a path, that is known at run time
    only. ``name`` is what is known of it, with a star for what is not. ``images`` are the sides that have it."""

    path: bytes
    line: int
    function: str | None
    what: Literal["module", "file"]
    name: str
    roles: tuple[str, ...]
    images: tuple[Side, ...] = ()


class Trace(msgspec.Struct, frozen=True):  # holds live RoleTrace objects: never serialised
    """The trace of one image: per role, with what it could not tell."""

    profile: Profile
    roles: Mapping[str, RoleTrace]
    blindspots: tuple[Blindspot, ...] = ()
    caveats: tuple[str, ...] = ()
    integrity: tuple[Integrity, ...] = ()
    unresolved: tuple[UnresolvedImport, ...] = ()


class ResolutionChange(msgspec.Struct, frozen=True):
    """A name that resolves differently in a and b although that is not just a move."""

    kind: Literal["module", "library", "distribution"]
    name: str
    role: str
    level: Level
    a: Resolved | None
    b: Resolved | None
    settled: str | None = None  # a recording shows that the role did not look it up
