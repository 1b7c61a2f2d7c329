"""What differs between two trees, and what in a file does."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from imgdiff.model.blindspots import Blindspot
from imgdiff.model.layers import FileEntry
from imgdiff.model.owners import Owner

Status = Literal["modified", "added", "removed", "retyped", "moved", "attributes"]
Effect = Literal["code", "data", "metadata", "noise"]


class Delta(msgspec.Struct, frozen=True):
    """What in a changed file differs: its effect, the sentence that proves it, and details for the report (JSON
    values only; keys are stable words). ``settle`` says what would settle an open question, if there is one."""

    effect: Effect
    reason: str
    detail: dict[str, Any] = {}
    settle: str | None = None


class Change(msgspec.Struct, frozen=True):
    """One differing file or symlink (or a directory that matters). A side that lacks it is None."""

    path_a: bytes | None
    path_b: bytes | None
    status: Status
    a: FileEntry | None
    b: FileEntry | None
    owners_a: tuple[Owner, ...] = ()
    owners_b: tuple[Owner, ...] = ()
    delta: Delta | None = None

    @property
    def path(self) -> bytes:
        """The path that sorts and names it: b's, else a's."""
        path = self.path_b if self.path_b is not None else self.path_a
        assert path is not None
        return path


class OwnerTally(msgspec.Struct, frozen=True):
    """Counts of one owner over both images. ``a`` and ``b`` are the owner in each (None where it is absent)."""

    a: Owner | None
    b: Owner | None
    files_a: int
    files_b: int
    identical: int
    modified: int
    added: int
    removed: int
    retyped: int
    moved: int
    attributes: int
    root_a: str
    root_b: str


class Comparison(msgspec.Struct, frozen=True):
    """Two trees held against each other. ``mtime_only`` counts files that differ in nothing but mtime; ``touched`` are
    the (a, b) paths of the Python sources among them."""

    changes: tuple[Change, ...]
    tallies: tuple[OwnerTally, ...]
    mtime_only: int
    blindspots: tuple[Blindspot, ...] = ()
    touched: tuple[tuple[bytes, bytes], ...] = ()
