"""Rules -> verdict. Pure: what differs, who loads it, what could not be told, and what follows from that.

A claim can be killed or left standing, never proven. Where a rule and a doubt meet, the answer is undecided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from imgdiff.model import (
    LEVELS,
    Bears,
    Blindspot,
    Change,
    ConfigChange,
    Evidence,
    JudgedChange,
    Level,
    Outcome,
    Profile,
    ResolutionChange,
    RoleVerdict,
    Verdict,
)

Judgeable = Literal["dormant"]  # levels that a user may accept as not loaded
_WORST: tuple[Outcome, ...] = ("stands", "undecided", "killed", "identical")
_STRENGTH = {level: position for position, level in enumerate(LEVELS)}
_SHOWN = 3  # examples in a sentence


def stronger(a: Evidence, b: Evidence) -> Evidence:
    """Return the stronger of two levels of evidence; the one with a chain where they are equal."""
    if _STRENGTH[a.level] != _STRENGTH[b.level]:
        return min(a, b, key=lambda evidence: _STRENGTH[evidence.level])
    return b if len(b.chain) and (not a.chain or len(b.chain) < len(a.chain)) else a


def bears(change: Change, evidence: Evidence, accepted: Collection[Level] = (), *, placed: bool = False) -> Bears:
    """Return what one change does to one role: ``stands``, ``undecided`` or ``none``.

    ``placed``: the role names the absolute place that a moved file left, or the one that it came to.
    """
    if evidence.level in ("unreached", "outside") or evidence.level in accepted:
        return "none"
    delta = change.delta
    if change.status == "moved":
        return "undecided" if placed else "none"
    if change.status == "attributes" and not placed:
        return "undecided" if delta is not None and delta.detail.get("bears") else "none"
    if delta is None or change.status == "attributes":
        return "undecided"
    open_question = delta.settle is not None
    if delta.effect in ("noise", "metadata") and not open_question:
        return "none"
    if open_question or delta.detail.get("bears") == "undecided":
        return "undecided"
    if evidence.level == "recorded" and evidence.how == "opened" and delta.detail.get("kind") == "python":
        return "undecided"  # a source that was only read as text did not run
    return "stands" if evidence.level in ("recorded", "eager") else "undecided"


def resolution_bears(change: ResolutionChange, accepted: Collection[Level] = ()) -> Bears:
    """Return what a name that leads elsewhere does to its role."""
    if change.level in ("unreached", "outside") or change.level in accepted:
        return "none"
    return "stands" if change.level in ("recorded", "eager") else "undecided"


class Findings(msgspec.Struct, frozen=True):
    """All that a verdict is made of."""

    changes: Sequence[JudgedChange]
    resolution: Sequence[ResolutionChange]
    config: Sequence[ConfigChange]
    blindspots: Sequence[Blindspot]
    caveats: Sequence[str]
    unread: bool = False  # some content could not be read, so that equality itself is open


def judge(findings: Findings, profile: Profile, roles: Sequence[str], accepted: Collection[Level] = ()) -> Verdict:
    """Return the verdict per role and for the claim over ``roles`` (the profile's engine roles, or those named)."""
    verdicts = {role.name: _judge_role(findings, role.name, accepted) for role in profile.roles}
    claimed = [verdicts[role] for role in roles]
    outcome = min((verdict.outcome for verdict in claimed), key=_WORST.index)
    confidence = "static" if any(verdict.confidence == "static" for verdict in claimed) else "recorded"
    reasons = tuple(dict.fromkeys(reason for verdict in claimed for reason in verdict.reasons))
    caveats = list(findings.caveats)
    if accepted:
        levels = ", ".join(sorted(accepted))
        caveats.insert(
            0, f"Files that are only {levels} were accepted as not loaded because --accept {levels} was given."
        )
    return Verdict(
        outcome,
        "static" if confidence == "static" else "recorded",
        _headline(outcome, roles, verdicts, profile),
        reasons,
        tuple(caveats),
        tuple(roles),
        verdicts,
        tuple(_settle(findings, roles, outcome)),
    )


def _judge_role(findings: Findings, role: str, accepted: Collection[Level]) -> RoleVerdict:
    standing = [change for change in findings.changes if change.bears[role] == "stands"]
    open_ = [change for change in findings.changes if change.bears[role] == "undecided"]
    resolution = [(change, resolution_bears(change, accepted)) for change in findings.resolution if change.role == role]
    blocking = [spot for spot in findings.blindspots if role in spot.roles]
    reasons: list[str] = []
    reasons += _stands(standing, [change for change, weight in resolution if weight == "stands"], findings.config, role)
    stands = bool(reasons)
    possible = [change for change, weight in resolution if weight == "undecided"]
    undecided = list(_undecided(open_, possible, findings.config, blocking, role))
    reasons += undecided
    outcome: Outcome
    if stands:
        outcome = "stands"
    elif not _differs(findings):
        outcome = "undecided" if findings.unread else "identical"
        reasons = [_identical(findings)]
    elif undecided:
        outcome = "undecided"
    else:
        outcome = "killed"
        reasons = [_killed(findings, role)]
    return RoleVerdict(outcome, _confidence(findings, role), tuple(reasons))


def _differs(findings: Findings) -> bool:
    """Moves and bytes differ; attributes, labels and the like that don't bear do not."""
    return (
        any(
            change.change.status != "attributes" or any(weight != "none" for weight in change.bears.values())
            for change in findings.changes
        )
        or bool(findings.resolution)
        or any(change.bears != "none" for change in findings.config)
    )


def _confidence(findings: Findings, role: str) -> Literal["recorded", "static"]:
    bearing = [change.load[role] for change in findings.changes if change.bears[role] != "none"]
    return "recorded" if bearing and all(evidence.level == "recorded" for evidence in bearing) else "static"


# --------------------------------------------------------------------------------------------------------------------
# Sentences
# --------------------------------------------------------------------------------------------------------------------


def show(path: bytes) -> str:
    """Return a path as a container sees it, with bytes that are no UTF-8 written ``\\xNN``."""
    return "/" + path.decode("utf-8", "backslashreplace")


def _files(changes: Sequence[JudgedChange]) -> str:
    names = [show(change.change.path) for change in changes[:_SHOWN]]
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return ", ".join(names) + more


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _stands(
    changes: Sequence[JudgedChange], resolution: Sequence[ResolutionChange], config: Sequence[ConfigChange], role: str
) -> Iterator[str]:
    if changes:
        verb = "is" if len(changes) == 1 else "are"
        yield f"{role}: {_count(len(changes), 'differing file')} {verb} loaded when it starts: {_files(changes)}."
    if resolution:
        names = ", ".join(f"{change.kind} {change.name}" for change in resolution[:_SHOWN])
        more = f" and {len(resolution) - _SHOWN} more" if len(resolution) > _SHOWN else ""
        yield f"{role}: {_count(len(resolution), 'name')} that it loads resolve differently: {names}{more}."
    steering = [change for change in config if change.bears == "stands"]
    if steering:
        names = ", ".join(f"{change.field} {change.name}" if change.name else change.field for change in steering)
        yield f"The image configs steer differently: {names}."


def _undecided(
    changes: Sequence[JudgedChange],
    resolution: Sequence[ResolutionChange],
    config: Sequence[ConfigChange],
    blocking: Sequence[Blindspot],
    role: str,
) -> Iterator[str]:
    for level in LEVELS:
        group = [change for change in changes if change.load[role].level == level]
        if group:
            yield f"{role}: {_count(len(group), 'differing file')} {_open_because(level, len(group))}: {_files(group)}."
    if resolution:
        names = ", ".join(f"{change.kind} {change.name} ({change.level})" for change in resolution[:_SHOWN])
        more = f" and {len(resolution) - _SHOWN} more" if len(resolution) > _SHOWN else ""
        yield f"{role}: {_count(len(resolution), 'name')} may resolve differently: {names}{more}."
    open_config = [change for change in config if change.bears == "undecided"]
    if open_config:
        names = ", ".join(f"{change.field} {change.name}" if change.name else change.field for change in open_config)
        yield f"The image configs differ in what may steer: {names}."
    if blocking:
        spots = "; ".join(_spot(spot) for spot in blocking[:_SHOWN])
        more = f" and {len(blocking) - _SHOWN} more" if len(blocking) > _SHOWN else ""
        yield f"{role}: {_count(len(blocking), 'blindspot')} on its way: {spots}{more}."


def _spot(spot: Blindspot) -> str:
    place = f" {show(spot.path)}" if spot.path is not None else ""
    return f"{spot.what}{place} ({spot.reason})"


def _open_because(level: Level, number: int) -> str:
    plural = number != 1
    words: Mapping[Level, str] = {
        "recorded": "was loaded, and what differs could not be proven to matter or not",
        "eager": "is loaded when it starts, and what differs could not be proven to matter or not",
        "deferred": "can be loaded later, by code that it reaches",
        "unknown": "may be read, and the trace can't tell",
        "dormant": "could be loaded only by functions that nothing reached refers to",
        "unreached": "is not reached",
        "outside": "is read by no engine",
    }
    text = words[level]
    return text.replace("was ", "were ", 1).replace("is loaded", "are loaded", 1) if plural else text


def _killed(findings: Findings, role: str) -> str:
    total = len(findings.changes)
    counts: dict[str, int] = {}
    for judged in findings.changes:
        counts[_harmless_because(judged, role)] = counts.get(_harmless_because(judged, role), 0) + 1
    parts = ", ".join(
        f"{number:,} {reason}" for reason, number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    if not total:
        return f"{role}: no file differs, and nothing else that it could notice."
    verb = "reaches" if total == 1 else "reach"
    return f"{role}: none of {_count(total, 'differing file')} {verb} it with an effect: {parts}."


def _harmless_because(judged: JudgedChange, role: str) -> str:
    level = judged.load[role].level
    if level == "unreached":
        return "never reached"
    if level == "outside":
        return "read by no engine"
    if judged.change.status == "moved":
        return "moved without a change"
    if judged.change.status == "attributes":
        return "harmless in attributes"
    if judged.change.delta is not None and judged.change.delta.effect in ("noise", "metadata"):
        return "proven noise" if judged.change.delta.effect == "noise" else "metadata alone"
    return f"accepted as {level}"


def _identical(findings: Findings) -> str:
    if findings.unread:
        return "No difference was found, but some content could not be read, so equality is not proven."
    return "Both file systems hold the same bytes under the same names, and the configs steer the same."


def _headline(outcome: Outcome, roles: Sequence[str], verdicts: Mapping[str, RoleVerdict], profile: Profile) -> str:
    head = f"{outcome} for {_and(roles)}"
    does = {role.name: role.does for role in profile.roles}
    others = [
        f"{name}: {verdict.outcome} (it {does[name]})" if does[name] else f"{name}: {verdict.outcome}"
        for name, verdict in verdicts.items()
        if name not in roles and verdict.outcome not in ("killed", "identical")
    ]
    return "; ".join((head, *others))


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _settle(findings: Findings, roles: Sequence[str], outcome: Outcome) -> Iterator[str]:
    if outcome != "undecided":
        return
    open_ = [change for change in findings.changes if any(change.bears[role] == "undecided" for role in roles)]
    yield from dict.fromkeys(
        change.change.delta.settle for change in open_ if change.change.delta is not None and change.change.delta.settle
    )
    levels = {change.load[role].level for change in open_ for role in roles if change.bears[role] == "undecided"}
    if levels & {"deferred", "unknown", "dormant"}:
        yield (
            "What the failing process really loaded (its /proc/PID/maps, a Python audit log, strace) settles whether "
            "these files are read."
        )
    if "dormant" in levels:
        yield (
            "--accept dormant takes files that only unreferenced functions could load as not loaded; the verdict then "
            "says so."
        )
    if any(change.bears == "undecided" for change in findings.config):
        yield "Run both images with the same ENV, user and working directory given on the command line."
    if any(set(spot.roles) & set(roles) for spot in findings.blindspots):
        yield "Make what the blindspots name readable; each says why it was not."


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst outcome: ``stands`` before ``undecided`` before ``killed`` before ``identical``."""
    return min(outcomes, key=_WORST.index)
