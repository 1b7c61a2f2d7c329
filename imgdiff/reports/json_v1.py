"""The JSON report, version 1: a frozen wire format of its own, apart from the inner types.

The schema in docs/report-v1.schema.json is made from these structs (``schema()``); a test holds the two together.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

from imgdiff.model import (
    Bears,
    Confidence,
    ConfigField,
    Edge,
    Effect,
    Evidence,
    FileEntry,
    How,
    ImageSummary,
    IntegrityCode,
    JudgedChange,
    Level,
    Outcome,
    OwnerKind,
    OwnerRow,
    Report,
    Resolved,
    Side,
    Status,
)

T = TypeVar("T")


class Both(msgspec.Struct, Generic[T], frozen=True):
    """A value on each side."""

    a: T
    b: T


class Tool(msgspec.Struct, frozen=True):
    """What made the report."""

    version: str
    argv: list[str]
    pythons: list[str]


class WireContents(msgspec.Struct, frozen=True):
    """A layer's table of contents that was believed (``--trust-toc``), by the digest that the manifest states.

    ``hashed`` counts regular files whose content imgdiff hashed, ``unhashed`` those whose digest is the table's word
    alone."""

    digest: str
    hashed: int
    unhashed: int


class WireLayer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One layer; ``digest`` is of the blob as stored, ``size`` its bytes. ``table_of_contents`` is there where it was
    believed: the layer was not held against ``diff_id`` and ``digest`` then."""

    diff_id: str
    digest: str | None
    size: int
    media_type: str
    table_of_contents: WireContents | None = None


class WireTransfer(msgspec.Struct, frozen=True):
    """What this run moved over a network for one image, in bytes: ``fetched`` is all that came, ``saved`` what the
    layers have that were not needed, since the cache or the other image had them."""

    fetched: int
    saved: int


class WireImage(msgspec.Struct, frozen=True):
    """One image; ``files`` counts regular files and symlinks, ``bytes`` each inode once. ``transfer`` is null where
    nothing comes over a network."""

    reference: str
    source: str
    manifest_digest: str | None
    config_digest: str | None
    platform: str
    layers: list[WireLayer]
    files: int
    bytes: int
    transfer: WireTransfer | None


class WireRole(msgspec.Struct, frozen=True):
    """One role of the profile."""

    roots: list[str]
    evidence: Confidence


class WireEngine(msgspec.Struct, frozen=True):
    """The profile and its roles."""

    profile: str | None
    roles: dict[str, WireRole]


class WireRoleVerdict(msgspec.Struct, frozen=True):
    """The verdict for one role."""

    outcome: Outcome
    confidence: Confidence
    reasons: list[str]


class WireVerdict(msgspec.Struct, frozen=True):
    """The verdict for the claim."""

    outcome: Outcome
    confidence: Confidence
    reasons: list[str]
    caveats: list[str]
    roles: dict[str, WireRoleVerdict]
    headline: str
    claim: list[str]
    settle: list[str]


class WireOwner(msgspec.Struct, frozen=True):
    """One owner and its counts; ``root`` is recomputed by the shell line in docs/json-report.md."""

    name: str
    kind: OwnerKind
    version: Both[str | None]
    files: Both[int]
    identical: int
    modified: int
    added: int
    removed: int
    retyped: int
    moved: int
    attributes: int
    loaded: int
    root: Both[str | None]


class WireHop(msgspec.Struct, frozen=True):
    """One step of a chain."""

    module: str | None
    path: str
    line: int | None
    function: str | None
    edge: Edge


class WireLoad(msgspec.Struct, frozen=True):
    """Evidence of one role."""

    level: Level
    how: How | None
    chain: list[WireHop]


class WireChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One differing file. ``escaped`` is there and true where a path had bytes that are no UTF-8."""

    path: Both[str | None]
    owners: Both[list[str]]
    status: Status
    digest: Both[str | None]
    size: Both[int | None]
    effect: Effect | None
    reason: str | None
    detail: dict[str, Any]
    load: dict[str, WireLoad]
    escaped: bool = False


class WireResolved(msgspec.Struct, frozen=True):
    """What a name leads to."""

    path: str
    digest: str | None


class WireResolution(msgspec.Struct, frozen=True):
    """A name that leads to different files."""

    kind: Literal["module", "library", "distribution"]
    name: str
    role: str
    level: Level
    a: WireResolved | None
    b: WireResolved | None


class WireConfig(msgspec.Struct, frozen=True):
    """A difference of the configs. ``name`` is the ENV name or the label's key."""

    field: ConfigField
    name: str | None
    a: str | None
    b: str | None
    bears: Bears
    reason: str
    redacted: bool


class WireIntegrity(msgspec.Struct, frozen=True):
    """Something that does not fit inside one image."""

    image: Side
    code: IntegrityCode
    owner: str | None
    path: str | None
    message: str


class WireBlindspot(msgspec.Struct, frozen=True):
    """Something that could not be told, and the roles that it blocks."""

    image: Side | None
    path: str | None
    what: str
    reason: str
    roles: list[str]


class WireUnresolved(msgspec.Struct, frozen=True):
    """A place in reached code that imports a module by a name, or runs a file by a path, that only a run can tell.
    ``name`` is what is known of it, a star stands for what is not."""

    images: list[Side]
    path: str
    line: int
    function: str | None
    what: Literal["module", "file"]
    name: str
    roles: list[str]


class WireReport(msgspec.Struct, frozen=True):
    """The whole report."""

    schema: Literal["imgdiff/report/v1"]
    imgdiff: Tool
    images: Both[WireImage]
    engine: WireEngine
    verdict: WireVerdict
    owners: list[WireOwner]
    changes: list[WireChange]
    resolution: list[WireResolution]
    config: list[WireConfig]
    integrity: list[WireIntegrity]
    blindspots: list[WireBlindspot]
    unresolved_imports: list[WireUnresolved]
    assumed: list[str]


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the report."""
    made = msgspec.json.schema(WireReport)
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["title"] = "imgdiff report, version 1"
    return made


def render(report: Report) -> str:
    """Return the report as JSON text, indented, with a newline at its end; the same bytes for the same report."""
    return msgspec.json.format(msgspec.json.encode(wire(report)), indent=2).decode() + "\n"


def wire(report: Report) -> WireReport:
    """Return the wire form of a report."""
    verdict = report.verdict
    return WireReport(
        schema="imgdiff/report/v1",
        imgdiff=Tool(report.version, list(report.argv), list(report.pythons)),
        images=Both(_image(report.image_a), _image(report.image_b)),
        engine=WireEngine(
            report.profile, {name: WireRole(list(info.roots), info.evidence) for name, info in report.roles.items()}
        ),
        verdict=WireVerdict(
            verdict.outcome,
            verdict.confidence,
            list(verdict.reasons),
            list(verdict.caveats),
            {
                name: WireRoleVerdict(role.outcome, role.confidence, list(role.reasons))
                for name, role in verdict.roles.items()
            },
            verdict.headline,
            list(verdict.claim),
            list(verdict.settle),
        ),
        owners=[_owner(row) for row in report.owners],
        changes=[_change(judged) for judged in report.changes],
        resolution=[
            WireResolution(item.kind, item.name, item.role, item.level, _resolved(item.a), _resolved(item.b))
            for item in report.resolution
        ],
        config=[
            WireConfig(item.field, item.name, item.a, item.b, item.bears, item.reason, item.redacted)
            for item in report.config
        ],
        integrity=[
            WireIntegrity(
                item.image, item.code, item.owner, None if item.path is None else path_text(item.path), item.message
            )
            for item in report.integrity
        ],
        blindspots=[
            WireBlindspot(
                item.image,
                None if item.path is None else path_text(item.path),
                item.what,
                item.reason,
                list(item.roles),
            )
            for item in report.blindspots
        ],
        unresolved_imports=[
            WireUnresolved(
                list(item.images),
                path_text(item.path),
                item.line,
                item.function,
                item.what,
                item.name,
                list(item.roles),
            )
            for item in report.unresolved_imports
        ],
        assumed=list(report.assumed),
    )


def path_text(path: bytes) -> str:
    """Return an absolute path; bytes that are no UTF-8 are written ``\\xNN``."""
    return "/" + path.decode("utf-8", "backslashreplace")


def _escaped(*paths: bytes | None) -> bool:
    for path in paths:
        if path is not None:
            try:
                path.decode()
            except UnicodeDecodeError:
                return True
    return False


def digest_text(digest: bytes | None) -> str | None:
    """Return a file's digest as ``sha256:HEX``."""
    return None if digest is None else "sha256:" + digest.hex()


def _image(image: ImageSummary) -> WireImage:
    return WireImage(
        image.reference,
        image.source,
        image.manifest_digest,
        image.config_digest,
        image.platform,
        [
            WireLayer(*layer, None if said is None else WireContents(*said))
            for layer, said in zip(image.layers, image.believed or (None,) * len(image.layers), strict=True)
        ],
        image.files,
        image.bytes,
        None if image.transfer is None else WireTransfer(*image.transfer),
    )


def _owner(row: OwnerRow) -> WireOwner:
    tally = row.tally
    return WireOwner(
        name=row.name,
        kind=row.kind,
        version=Both(None if tally.a is None else tally.a.version, None if tally.b is None else tally.b.version),
        files=Both(tally.files_a, tally.files_b),
        identical=tally.identical,
        modified=tally.modified,
        added=tally.added,
        removed=tally.removed,
        retyped=tally.retyped,
        moved=tally.moved,
        attributes=tally.attributes,
        loaded=row.loaded,
        root=Both(tally.root_a or None, tally.root_b or None),
    )


def _change(judged: JudgedChange) -> WireChange:
    change = judged.change
    effect = change.delta.effect if change.delta is not None and change.status not in ("moved", "attributes") else None
    return WireChange(
        path=Both(
            None if change.path_a is None else path_text(change.path_a),
            None if change.path_b is None else path_text(change.path_b),
        ),
        owners=Both(list(judged.owner_names_a), list(judged.owner_names_b)),
        status=change.status,
        digest=Both(_digest(change.a), _digest(change.b)),
        size=Both(_size(change.a), _size(change.b)),
        effect=effect,
        reason=None if change.delta is None else change.delta.reason,
        detail={**({} if change.delta is None else change.delta.detail), **_recordings(judged)},
        load={role: _load(evidence) for role, evidence in judged.load.items()},
        escaped=_escaped(change.path_a, change.path_b),
    )


def _recordings(judged: JudgedChange) -> dict[str, Any]:
    """What recordings say by not showing a file, for each role of which they do."""
    said = {
        role: "settled" if evidence.settled is not None else "disputed"
        for role, evidence in judged.load.items()
        if evidence.settled is not None or evidence.disputed is not None
    }
    return {"recordings": said} if said else {}


def _digest(entry: FileEntry | None) -> str | None:
    return None if entry is None else digest_text(entry.digest)


def _size(entry: FileEntry | None) -> int | None:
    return entry.size if entry is not None and entry.type == "file" else None


def _load(evidence: Evidence) -> WireLoad:
    return WireLoad(
        evidence.level,
        evidence.how,
        [WireHop(hop.module, path_text(hop.path), hop.line, hop.function, hop.edge) for hop in evidence.chain],
    )


def _resolved(resolved: Resolved | None) -> WireResolved | None:
    return None if resolved is None else WireResolved(path_text(resolved.path), digest_text(resolved.digest))
