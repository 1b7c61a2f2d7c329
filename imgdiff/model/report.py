"""What is written out."""

from __future__ import annotations

import msgspec

from imgdiff.model.blindspots import Blindspot
from imgdiff.model.changes import Change, OwnerTally
from imgdiff.model.evidence import Evidence, ResolutionChange, UnresolvedImport
from imgdiff.model.owners import Integrity, OwnerKind
from imgdiff.model.profiles import Bears
from imgdiff.model.recordings import RecordedRun
from imgdiff.model.verdict import Confidence, ConfigChange, Verdict


class JudgedChange(msgspec.Struct, frozen=True):
    """A change with its evidence per role, and the outcome that it bears for each role (none: it does not bear)."""

    change: Change
    load: dict[str, Evidence]
    bears: dict[str, Bears]
    owner_names_a: tuple[str, ...] = ()
    owner_names_b: tuple[str, ...] = ()


class OwnerRow(msgspec.Struct, frozen=True):
    """One line of the table by owner. ``loaded`` counts its differing files that a claim's role loads (recorded, eager
    or deferred)."""

    name: str
    kind: OwnerKind
    tally: OwnerTally
    loaded: int


class ImageSummary(msgspec.Struct, frozen=True):
    """One image as the report names it: ``files`` counts regular files and symlinks, ``bytes`` each inode once.
    ``layers`` are (diff_id, blob digest, stored size in bytes, media type), ``transfer`` the bytes (fetched, saved) of
    an image that came over a network. ``believed`` has, for each layer, (digest, hashed, unhashed) of the table of
    contents that was believed, or None; it is empty where none was."""

    reference: str
    source: str
    manifest_digest: str | None
    config_digest: str | None
    platform: str
    layers: tuple[tuple[str, str | None, int, str], ...]
    files: int
    bytes: int
    transfer: tuple[int, int] | None = None
    believed: tuple[tuple[str, int, int] | None, ...] = ()


class RoleInfo(msgspec.Struct, frozen=True):
    """One role as the report names it."""

    roots: tuple[str, ...]
    evidence: Confidence


class Report(msgspec.Struct, frozen=True):
    """Everything that a formatter may know."""

    version: str
    argv: tuple[str, ...]
    pythons: tuple[str, ...]
    image_a: ImageSummary
    image_b: ImageSummary
    profile: str | None
    roles: dict[str, RoleInfo]
    verdict: Verdict
    owners: tuple[OwnerRow, ...]
    changes: tuple[JudgedChange, ...]
    resolution: tuple[ResolutionChange, ...]
    config: tuple[ConfigChange, ...]
    integrity: tuple[Integrity, ...]
    blindspots: tuple[Blindspot, ...]
    mtime_only: int
    recordings: tuple[RecordedRun, ...] = ()
    unresolved_imports: tuple[UnresolvedImport, ...] = ()
    assumed: tuple[str, ...] = ()
