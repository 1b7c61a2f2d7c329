"""Which copy a name leads to, in one image (``imgdiff resolve``)."""

from __future__ import annotations

from typing import Literal

import msgspec

from imgdiff.model.evidence import Hop, Level

LookupKind = Literal["module", "library", "program"]
# How a place comes to be searched.
LookupSource = Literal[
    "interpreter",  # what is compiled or frozen into it
    "script directory",
    "working directory",
    "PYTHONPATH",
    "standard library",
    "site-packages",
    ".pth line",
    "editable finder",
    "package path",  # a directory that a package has in its __path__
    "run time",  # code adds it
    "PATH",
    "path",  # the name itself is one
    "loaded already",  # what is mapped answers for its SONAME before any search
    "RPATH",
    "LD_LIBRARY_PATH",
    "RUNPATH",
    "ld.so.cache",
    "ldconfig",  # as ldconfig would make the cache anew
    "default path",
    "musl's path",
    "musl's own",
]


class LookupCandidate(msgspec.Struct, frozen=True):
    """A file that a place has for a name. ``path`` is as it is opened there, ``file`` the canonical path (None: a
    directory without a file, a namespace package). ``wins``: the trace takes it for what is loaded. ``note`` says what
    is special about it: which CPU it is for, why it is passed over."""

    path: bytes
    file: bytes | None
    digest: bytes | None
    owners: tuple[str, ...] = ()
    wins: bool = False
    note: str | None = None


class LookupPlace(msgspec.Struct, frozen=True):
    """One place that is searched, in order. ``directory`` is as the search spells it (None: a cache, a finder);
    ``present`` is False where nothing is there. ``by`` and ``line`` are the file that says so, ``said`` whatever else
    does ("ENV of the image")."""

    source: LookupSource
    directory: bytes | None
    present: bool = True
    by: bytes | None = None
    line: int | None = None
    said: str | None = None
    candidates: tuple[LookupCandidate, ...] = ()


class LookupAnswer(msgspec.Struct, frozen=True):
    """What one name is to the processes in ``asked_by`` (in words). More than one winner: which of them is loaded
    depends on the CPU, or on whether ldconfig runs when the container starts. ``elsewhere`` are files of this name
    that no place has."""

    kind: LookupKind
    name: str
    asked_by: tuple[str, ...]
    winners: tuple[LookupCandidate, ...] = ()
    places: tuple[LookupPlace, ...] = ()
    notes: tuple[str, ...] = ()
    elsewhere: tuple[LookupCandidate, ...] = ()


class LookupLoad(msgspec.Struct, frozen=True):
    """What a role's trace takes the name for: ``label`` is the name, with a word on which of several copies it is."""

    role: str
    kind: LookupKind
    label: str
    level: Level
    file: bytes
    chain: tuple[Hop, ...] = ()


class Lookup(msgspec.Struct, frozen=True):
    """Everything that a formatter may know of one question: which copy a name leads to in one image."""

    version: str
    reference: str
    name: str
    profile: str | None
    answers: tuple[LookupAnswer, ...]
    loads: tuple[LookupLoad, ...] = ()
    roles: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
