"""One distribution as it is installed, before anybody owns it."""

from __future__ import annotations

import msgspec

from imgdiff.owners._record import Rows


class Project(msgspec.Struct, frozen=True):
    """The project of an editable install. ``directory`` is canonical where it exists. ``search`` are the directories
    that the install puts on sys.path, ``mapping`` the (import name, path) pairs of its finder."""

    directory: bytes
    search: tuple[bytes, ...] = ()
    mapping: tuple[tuple[str, bytes], ...] = ()


class Place(msgspec.Struct, frozen=True):
    """One installed distribution: where its info lies, and what its RECORD says (None if it has none)."""

    info: bytes
    site: bytes
    name: str
    version: str | None
    rows: Rows | None
    project: Project | None
