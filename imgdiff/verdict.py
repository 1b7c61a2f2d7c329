"""Rules -> verdict. Pure: what differs, who loads it, what could not be told, and what follows from that.

A claim can be killed or left standing, never proven. Where a rule and a doubt meet, the answer is undecided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from imgdiff.model import (
    ENTRY,
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
    if evidence.level in ("unreached", "outside") or evidence.level in accepted or evidence.settled is not None:
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
    if evidence.disputed is not None:
        return "undecided"  # the trace says that it runs, the recording that it does not
    return "stands" if evidence.level in ("recorded", "eager") else "undecided"


def resolution_bears(change: ResolutionChange, accepted: Collection[Level] = ()) -> Bears:
    """Return what a name that leads elsewhere does to its role."""
    if change.level in ("unreached", "outside") or change.level in accepted or change.settled is not None:
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
    equal: str | None = None  # what it means that nothing differs, where not whole images are compared


def judge(findings: Findings, profile: Profile, roles: Sequence[str], accepted: Collection[Level] = ()) -> Verdict:
    """Return the verdict per role and for the claim over ``roles`` (the profile's engine roles, or those named)."""
    verdicts = {role.name: _judge_role(findings, role.name, accepted) for role in profile.roles}
    claimed = [verdicts[role] for role in roles]
    outcome = min((verdict.outcome for verdict in claimed), key=_WORST.index)
    confidence = "static" if any(verdict.confidence == "static" for verdict in claimed) else "recorded"
    reasons = _merged({role: verdicts[role].reasons for role in roles})
    caveats = list(findings.caveats)
    if accepted:
        levels = ", ".join(sorted(accepted))
        caveats.insert(
            0, f"Files that are only {levels} were accepted as not loaded because --accept {levels} was given."
        )
    return Verdict(
        outcome,
        "static" if confidence == "static" else "recorded",
        _headline(roles, verdicts, profile),
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
    undecided = [*_undecided(open_, possible, findings.config, blocking, role)]
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
    return RoleVerdict(outcome, _confidence(findings, role, outcome), tuple(reasons))


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


def _confidence(findings: Findings, role: str, outcome: Outcome) -> Literal["recorded", "static"]:
    """A recording decided where it shows what stands, or where nothing would be killed without what it settles."""
    if outcome == "killed":
        settled = any(change.load[role].settled is not None for change in findings.changes)
        return "recorded" if settled or _settled_names(findings, role) else "static"
    bearing = [change.load[role] for change in findings.changes if change.bears[role] == outcome]
    if outcome == "stands":
        return "recorded" if any(evidence.level == "recorded" for evidence in bearing) else "static"
    return "recorded" if bearing and all(evidence.level == "recorded" for evidence in bearing) else "static"


def _settled_names(findings: Findings, role: str) -> int:
    return sum(change.role == role and change.settled is not None for change in findings.resolution)


# --------------------------------------------------------------------------------------------------------------------
# Sentences
# --------------------------------------------------------------------------------------------------------------------


def show(path: bytes) -> str:
    """Return a path as a container sees it, with bytes that are no UTF-8 written ``\\xNN``."""
    return "/" + path.decode("utf-8", "backslashreplace")


def _merged(reasons: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the sentences of several roles, each once, with all the roles that it is said of before it."""
    said: dict[str, list[str]] = {}
    for role, sentences in reasons.items():
        for sentence in sentences:
            own = sentence.startswith(f"{role}: ")
            said.setdefault(sentence.removeprefix(f"{role}: "), []).extend([role] if own else [])
    return tuple(f"{_and(roles)}: {sentence}" if roles else sentence for sentence, roles in said.items())


def _files(changes: Sequence[JudgedChange]) -> str:
    return _first([show(change.change.path) for change in changes])


def _first(names: Sequence[str], mark: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return mark.join(names[:_SHOWN]) + more


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _verb(number: int, one: str, several: str) -> str:
    return one if number == 1 else several


def _named(config: Sequence[ConfigChange]) -> str:
    return ", ".join(f"{change.field} {change.name}" if change.name else change.field for change in config)


def _stands(
    changes: Sequence[JudgedChange], resolution: Sequence[ResolutionChange], config: Sequence[ConfigChange], role: str
) -> Iterator[str]:
    started = [change for change in changes if change.load[role].level != "recorded"]
    recorded = [change for change in changes if change.load[role].level == "recorded"]
    for group, when in ((recorded, "loaded in the recorded run"), (started, "loaded at start")):
        if group:
            files, verb = _count(len(group), "differing file"), _verb(len(group), "is", "are")
            yield f"{role}: {files} {verb} {when}: {_files(group)}."
    if resolution:
        names = _first([f"{change.kind} {change.name}" for change in resolution])
        said = _verb(len(resolution), "name that is loaded resolves", "names that are loaded resolve")
        yield f"{role}: {len(resolution):,} {said} differently: {names}."
    steering = [change for change in config if change.bears == "stands"]
    if steering:
        yield f"The image configs steer differently: {_named(steering)}."


def _undecided(
    changes: Sequence[JudgedChange],
    resolution: Sequence[ResolutionChange],
    config: Sequence[ConfigChange],
    blocking: Sequence[Blindspot],
    role: str,
) -> Iterator[str]:
    disputed = [change for change in changes if change.load[role].disputed is not None]
    if disputed:
        files, verb = _count(len(disputed), "differing file"), _verb(len(disputed), "is", "are")
        yield (
            f"{role}: by static means {files} {verb} loaded at start, and the recording does not show it, so that one "
            f"of the two is wrong: {_files(disputed)}."
        )
    for level in LEVELS:
        group = [each for each in changes if each.load[role].level == level and each.load[role].disputed is None]
        if group:
            yield f"{role}: {_count(len(group), 'differing file')} {_open_because(level, len(group))}: {_files(group)}."
    if resolution:
        names = _first([f"{change.kind} {change.name} ({change.level})" for change in resolution])
        yield f"{role}: {_count(len(resolution), 'name')} may resolve differently: {names}."
    open_config = [change for change in config if change.bears == "undecided"]
    if open_config:
        yield f"The image configs differ in what may steer: {_named(open_config)}."
    if blocking:
        spots = list(dict.fromkeys(_spot(spot) for spot in blocking))  # often the same in a and in b
        verb = _verb(len(spots), "blocks", "block")
        yield f"{role}: {_count(len(spots), 'blindspot')} {verb} the way: {_first(spots, '; ')}."


def _spot(spot: Blindspot) -> str:
    place = f" {show(spot.path)}" if spot.path is not None else ""
    return f"{spot.what}{place} ({spot.reason})"


def _open_because(level: Level, number: int) -> str:
    be, was = _verb(number, "is", "are"), _verb(number, "was", "were")
    words: Mapping[Level, str] = {
        "recorded": f"{was} loaded, and whether what differs matters could not be proven",
        "eager": f"{be} loaded at start, and whether what differs matters could not be proven",
        "deferred": "can be loaded later, by code that is reached",
        "unknown": "may be read: the trace can't tell",
        "dormant": "could be loaded only by functions that nothing reached refers to",
        "unreached": f"{be} not reached, and what differs in {_verb(number, 'it', 'them')} is open",
        "outside": f"{be} read by no engine, and what differs in {_verb(number, 'it', 'them')} is open",
    }
    return words[level]


def _killed(findings: Findings, role: str) -> str:
    total = len(findings.changes)
    names = _settled_names(findings, role)
    if names:
        said = _verb(names, "name that resolves differently was", "names that resolve differently were")
        sentence = _killed_files(findings, role, total) if total else f"{role}: no file differs."
        return f"{sentence} {names:,} {said} not looked up in the recorded run."
    if not total:
        return f"{role}: no file differs, and nothing else that it could notice."
    return _killed_files(findings, role, total)


def _killed_files(findings: Findings, role: str, total: int) -> str:
    counts: dict[str, int] = {}
    for judged in findings.changes:
        counts[_harmless_because(judged, role)] = counts.get(_harmless_because(judged, role), 0) + 1
    if total == 1:
        return f"{role}: the one file that differs does not bear ({next(iter(counts))})."
    if len(counts) == 1:
        return f"{role}: none of the {total:,} differing files bears ({next(iter(counts))})."
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    parts = ", ".join(f"{number:,} {reason}" for reason, number in ranked)
    return f"{role}: none of the {total:,} differing files bears: {parts}."


def _harmless_because(judged: JudgedChange, role: str) -> str:
    level = judged.load[role].level
    settled = judged.load[role].settled
    if settled is not None:
        return settled
    if judged.change.status == "moved":
        return "moved without a change"
    if level == "outside":
        return "read by no engine"
    if level == "unreached":
        return "never reached"
    if judged.change.status == "attributes":
        return "harmless in attributes"
    if judged.change.delta is not None and judged.change.delta.effect in ("noise", "metadata"):
        return "proven noise" if judged.change.delta.effect == "noise" else "metadata alone"
    return f"accepted as {level}"


def _identical(findings: Findings) -> str:
    if findings.unread:
        return "No difference was found, but some content could not be read, so equality is not proven."
    if findings.equal is not None:
        return findings.equal
    return "Both file systems hold the same bytes under the same names, and the configs steer the same."


def _headline(roles: Sequence[str], verdicts: Mapping[str, RoleVerdict], profile: Profile) -> str:
    """Name the claim's roles, each with its own outcome, worst first; then each other role that is not killed."""
    by_outcome = {
        outcome: [role for role in roles if verdicts[role].outcome == outcome]
        for outcome in _WORST
        if any(verdicts[role].outcome == outcome for role in roles)
    }
    head = ", ".join(f"{outcome} for {_and(names)}" for outcome, names in by_outcome.items())
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
    names = {change.level for change in findings.resolution if change.role in roles}
    guessed = ("deferred", "unknown", "dormant")
    if levels.intersection(guessed) or names.intersection(guessed):
        what = "these files are read" if levels.intersection(guessed) else "these names are looked up"
        yield f"A recording of the failing run that is complete for the role (--trace) settles whether {what}."
    if "dormant" in levels | names:
        yield (
            "--accept dormant takes files that only unreferenced functions could load as not loaded; the verdict then "
            "says so."
        )
    if any(change.bears == "undecided" for change in findings.config):
        yield "Start both images with the same ENV, user and working directory, given when the container is started."
    if any(not _has_way_out(change, roles) for change in open_):
        yield "Run image b with the named files of image a: that tells whether what differs in them matters."
    blocking = [spot for spot in findings.blindspots if set(spot.roles) & set(roles)]
    if any(spot.what == ENTRY for spot in blocking):
        yield "Name the command that the containers run: --entry COMMAND (a bare module name means python -m)."
    unread = sum(spot.what != ENTRY for spot in blocking)
    if unread:
        what, why = ("the blindspot names", "it") if unread == 1 else ("the blindspots name", "each")
        yield f"Make what {what} readable; {why} says why it was not."


def _has_way_out(judged: JudgedChange, roles: Sequence[str]) -> bool:
    """Tell whether another sentence says what would settle an open change."""
    levels = {judged.load[role].level for role in roles if judged.bears[role] == "undecided"}
    delta = judged.change.delta
    return (delta is not None and delta.settle is not None) or levels <= {"deferred", "unknown", "dormant"}
