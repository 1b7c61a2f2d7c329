"""What a fixture case is expected to report: key facts of ``expected.toml``, held against a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from imgdiff.model import Bears, Confidence, Effect, Evidence, JudgedChange, Level, Outcome, Report, Status


class ExpectedChange(msgspec.Struct, forbid_unknown_fields=True):
    """One differing file, by b's path, else a's. What is not stated is not compared. ``chain`` are the modules (else
    paths) of a role's chain, root first."""

    path: str
    status: Status | None = None
    effect: Effect | None = None
    owners: list[str] | None = None
    load: dict[str, Level] = {}
    bears: dict[str, Bears] = {}
    chain: dict[str, list[str]] = {}


class Run(msgspec.Struct, forbid_unknown_fields=True):
    """One run over a case. ``more``: there may be more changes than are listed. ``same`` are owners of whose files not
    one differs. ``config`` are the names (else fields) that differ, with what they bear. ``resolution`` are names that
    resolve elsewhere in some role. ``trace`` are recordings beside the file. ``blindspots`` are paths (else what) of those that block a role."""

    outcome: Outcome
    exit: int
    roles: dict[str, Outcome]
    changes: list[ExpectedChange]
    about: str = ""
    accept: list[str] = []
    entry: str | None = None
    profile: str | None = None
    trace: list[str] = []
    claim: list[str] | None = None
    confidence: Confidence | None = None
    more: bool = False
    same: list[str] = []
    config: dict[str, Bears] = {}
    resolution: list[str] | None = None
    integrity: list[str] | None = None
    blindspots: list[str] = []
    says: list[str] = []


class Expected(msgspec.Struct, forbid_unknown_fields=True):
    """All runs over a case."""

    run: list[Run]


EXITS: dict[Outcome, int] = {"identical": 0, "killed": 0, "stands": 1, "undecided": 3}


def read_expected(folder: Path) -> Expected:
    """Return what a case's ``expected.toml`` says."""
    return msgspec.toml.decode((folder / "expected.toml").read_bytes(), type=Expected)


def differences(run: Run, report: Report) -> list[str]:
    """Return a sentence for each key fact of the report that is not as expected; none: all is."""
    return [*_verdict(run, report), *_changes(run, report), *_rest(run, report)]


def _differ(what: str, expected: object, found: object) -> Iterator[str]:
    if expected != found:
        yield f"{what}: expected {expected!r}, found {found!r}"


def _verdict(run: Run, report: Report) -> Iterator[str]:
    verdict = report.verdict
    yield from _differ("outcome", run.outcome, verdict.outcome)
    yield from _differ("exit code", run.exit, EXITS[verdict.outcome])
    outcomes = {role: judged.outcome for role, judged in verdict.roles.items()}
    yield from _differ("roles", run.roles, {role: outcomes.get(role) for role in run.roles})
    if run.claim is not None:
        yield from _differ("claim", run.claim, list(verdict.claim))
    if run.confidence is not None:
        yield from _differ("confidence", run.confidence, verdict.confidence)
    text = "\n".join((verdict.headline, *verdict.reasons, *verdict.caveats, *verdict.settle))
    text += "\n".join(reason for judged in verdict.roles.values() for reason in judged.reasons)
    for words in run.says:
        if words not in text:
            yield f"nothing in the verdict says {words!r}"


def _name(path: bytes) -> str:
    return "/" + path.decode("utf-8", "backslashreplace")


def _changes(run: Run, report: Report) -> Iterator[str]:
    found = {_name(judged.change.path): judged for judged in report.changes}
    listed = [change.path for change in run.changes]
    if not run.more:
        for path in sorted(found.keys() - set(listed)):
            judged = found[path]
            levels = ", ".join(f"{role} {evidence.level}" for role, evidence in judged.load.items())
            effect = judged.change.delta.effect if judged.change.delta is not None else None
            yield f"{path}: not expected: {judged.change.status}, {effect}, {levels}"
    for change in run.changes:
        if change.path not in found:
            yield f"{change.path}: no difference is reported"
        else:
            yield from _change(change, found[change.path])


def _change(expected: ExpectedChange, judged: JudgedChange) -> Iterator[str]:
    path, change = expected.path, judged.change
    if expected.status is not None:
        yield from _differ(f"{path}: status", expected.status, change.status)
    if expected.effect is not None:
        yield from _differ(
            f"{path}: effect", expected.effect, change.delta.effect if change.delta is not None else None
        )
    if expected.owners is not None:
        yield from _differ(f"{path}: owners", expected.owners, list(judged.owner_names_b or judged.owner_names_a))
    for role, level in expected.load.items():
        yield from _differ(f"{path}: level in {role}", level, judged.load[role].level)
    for role, bears in expected.bears.items():
        yield from _differ(f"{path}: bears on {role}", bears, judged.bears[role])
    for role, chain in expected.chain.items():
        yield from _differ(f"{path}: chain in {role}", chain, chain_of(judged.load[role]))


def chain_of(evidence: Evidence) -> list[str]:
    """Return a chain as its modules, else paths, with the function that leads on where there is one."""
    return [
        (hop.module or _name(hop.path)) + (f" ~{hop.function}~" if hop.function and hop.edge != "root" else "")
        for hop in evidence.chain
    ]


def _rest(run: Run, report: Report) -> Iterator[str]:
    rows = {row.name: row.tally for row in report.owners}
    for name in run.same:
        if name not in rows:
            yield f"owner {name}: not in the report"
            continue
        tally = rows[name]
        counted = tally.modified + tally.added + tally.removed + tally.retyped
        yield from _differ(f"owner {name}: differing files", 0, counted)
        yield from _differ(f"owner {name}: root", tally.root_a, tally.root_b)
        yield from _differ(f"owner {name}: files in a and b", tally.files_a, tally.files_b)
    yield from _differ("config", run.config, {change.name or change.field: change.bears for change in report.config})
    if run.resolution is not None:
        yield from _differ("resolution", run.resolution, sorted({change.name for change in report.resolution}))
    if run.integrity is not None:
        found = [f"{item.image} {item.code} {_name(item.path or b'')}" for item in report.integrity]
        yield from _differ("integrity", sorted(run.integrity), sorted(found))
    spots = [_name(spot.path) if spot.path is not None else spot.what for spot in report.blindspots if spot.roles]
    yield from _differ("blindspots", sorted(run.blindspots), sorted(spots))
