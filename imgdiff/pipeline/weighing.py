"""Compare, trace and judge: from two indexed images to differences that bear on roles, or don't."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from imgdiff import attribution as attributing
from imgdiff import config as configs
from imgdiff import engines, explanation, resolution, verdict
from imgdiff.comparison import compare
from imgdiff.kinds import ld_cache
from imgdiff.model import (
    ENTRY,
    Change,
    Comparison,
    ConfigChange,
    Delta,
    Evidence,
    JudgedChange,
    Level,
    Profile,
    Recording,
    ResolutionChange,
    Resolved,
    RoleTrace,
    Trace,
)
from imgdiff.pipeline.images import Indexed
from imgdiff.pipeline.options import Options
from imgdiff.starting import is_root, keeps_root
from imgdiff.trace.recorded import Joined, Traced
from imgdiff.tracing import Traceable, Traces

_LOADER_CACHE = b"etc/ld.so.cache"


def joined_with(
    a: Indexed,
    trace_a: Trace,
    b: Indexed,
    trace_b: Trace,
    runs: Sequence[Recording],
    profile: Profile,
    options: Options,
) -> Joined:
    """Hold the recordings against both images."""
    runs = [
        msgspec.structs.replace(
            run,
            processes=tuple(
                msgspec.structs.replace(each, argv=tuple(configs.redact_argv(each.argv))) for each in run.processes
            ),
        )
        for run in runs
    ]
    images = (
        Traced(a.side, a.image, a.tree, a.facts, trace_a),
        Traced(b.side, b.image, b.tree, b.facts, trace_b),
    )
    return Joined(runs, images, profile, any_image=options.any_image)


def traces_of(a: Indexed, b: Indexed, traces: Traces) -> tuple[Trace, Trace]:
    """Trace both images; once where a wheel on one side changes nothing."""
    keys = traces.keys((a.image, b.image), (a.indexes, b.indexes))

    def one(x: Indexed, key: bytes | None) -> Trace:
        own = key if x.own is None else None  # an image with a wheel in it has no layers of its own
        return traces.of(Traceable(x.tree, x.attribution, x.facts, x.image.config, x.side, own))

    if a.installed is not None and a.installed.unchanged:  # they are one image
        both = one(a, keys[0]) if a.own is None else one(b, keys[1])
        return both, both
    return one(a, keys[0]), one(b, keys[1])


def compared(a: Indexed, b: Indexed) -> Comparison:
    """Return what differs; where one side is a wheel, only its own files have owners, and are counted."""
    installed = a.installed
    attributions = [x.attribution if installed is None else installed.narrowed(x.attribution) for x in (a, b)]
    known: attributing.Roots = {}
    roots = [attributing.owner_roots(own, x.tree, known) for own, x in zip(attributions, (a, b), strict=True)]
    as_root = _as_root(a) and _as_root(b)
    found = compare(a.tree, attributions[0], b.tree, attributions[1], roots[0], roots[1], as_root=as_root)
    if installed is None:
        return found
    return msgspec.structs.replace(
        found,
        tallies=tuple(tally for tally in found.tallies if tally.files_a or tally.files_b),
    )


def one_side(indexed: Indexed) -> explanation.OneSide:
    """Return of an image what explaining a change asks for."""
    config = indexed.image.config
    declared = (config.raw.get("config") or {}).get("Volumes") if config is not None else None
    volumes = tuple(str(path).strip("/").encode() for path in declared or ())
    return explanation.OneSide(
        indexed.tree,
        indexed.attribution,
        indexed.facts,
        indexed.texts,
        indexed.read,
        volumes,
        indexed.lost,
        _as_root(indexed),
    )


def _as_root(indexed: Indexed) -> bool:
    return keeps_root(indexed.image.config, indexed.tree, indexed.texts)


def configs_of(a: Indexed, b: Indexed, profile: Profile) -> tuple[ConfigChange, ...]:
    """Return what differs in the configs of both images."""
    both_root = all(x.image.config is not None and is_root(x.image.config, x.tree, x.texts) for x in (a, b))
    return configs.compare_configs(a.image.config, b.image.config, profile, engines.common().env, both_root=both_root)


def resolved_otherwise(
    a: Indexed,
    trace_a: Trace,
    b: Indexed,
    trace_b: Trace,
    changes: Sequence[Change],
    switched: Sequence[explanation.Switched],
) -> tuple[ResolutionChange, ...]:
    """Return what is found elsewhere in b than in a: modules, libraries, distributions, and which of two forms runs."""
    paired = [(x.path_a, x.path_b) for x in changes if x.path_a is not None and x.path_b is not None]

    def stays(path: bytes) -> bool:
        left, right = a.tree.get(path), b.tree.get(path)
        return left is not None and right is not None and left.type == right.type and left.digest == right.digest

    return (
        *resolution.compare_resolution(trace_a, trace_b, paired, stays),
        *resolution.compare_distributions(a.attribution, a.tree, trace_a, b.attribution, b.tree, trace_b),
        *_switched(a, trace_a, b, trace_b, switched),
    )


def _switched(
    a: Indexed, trace_a: Trace, b: Indexed, trace_b: Trace, switched: Sequence[explanation.Switched]
) -> Iterator[ResolutionChange]:
    """Modules of which a source runs in one image and an unchanged ``.pyc`` in the other, with other code."""
    for item in switched:
        for role in trace_a.roles:
            left = trace_a.roles[role].evidence(item.source[0])
            level = verdict.stronger(left, trace_b.roles[role].evidence(item.source[1])).level
            if item.delta.settle is not None and level in ("recorded", "eager"):
                level = "deferred"  # whether the code differs at all is open
            ends = [
                Resolved(path, entry.digest)
                for path, entry in ((item.runs[0], a.tree.get(item.runs[0])), (item.runs[1], b.tree.get(item.runs[1])))
                if entry is not None
            ]
            name = "/" + item.source[1].decode("utf-8", "backslashreplace")
            yield ResolutionChange("module", name, role, level, ends[0], ends[1])


def weigh_loader_cache(change: Change, *sides: tuple[Indexed, Trace]) -> Change:
    """Take a changed ld.so.cache as noise where no role needs or could name a SONAME that it resolves differently."""
    if not change.path_a == change.path_b == _LOADER_CACHE or change.delta is None or change.delta.effect != "code":
        return change
    tables: list[dict[bytes, list[ld_cache.CacheEntry]]] = []
    for indexed, _ in sides:
        try:
            entries = ld_cache.read(indexed.facts.text(_LOADER_CACHE) or b"")
        except ld_cache.CacheFormatError:
            return change
        table: dict[bytes, list[ld_cache.CacheEntry]] = {}
        for entry in entries:
            table.setdefault(entry.soname, []).append(entry)
        tables.append(table)
    names = sorted(name for name in {*tables[0], *tables[1]} if tables[0].get(name) != tables[1].get(name))
    paths = {entry.path.strip(b"/") for table in tables for name in names for entry in table.get(name, ())}
    for indexed, found in sides:
        for role in found.roles.values():
            if any(name.decode("utf-8", "surrogateescape") in role.libraries for name in names):
                return change
            for path in paths:
                ends = {path, indexed.tree.resolve(path) or path}
                present = [end for end in ends if indexed.tree.get(end) is not None]
                if any(role.evidence(end).level not in ("unreached", "outside") for end in present):
                    return change
    shown = ", ".join(name.decode("utf-8", "backslashreplace") for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    reason = f"It resolves every SONAME that a role needs or could name the same; others differ: {shown}{more}."
    return msgspec.structs.replace(change, delta=Delta("noise", reason, change.delta.detail))


def judge_changes(
    changes: Sequence[Change],
    trace_a: Trace,
    trace_b: Trace,
    profile: Profile,
    accepted: frozenset[Level],
    joined: Joined,
) -> list[JudgedChange]:
    """Return each change with its evidence in each role, and whether it bears there."""
    judged = []
    astray = {
        role for found in (trace_a, trace_b) for spot in found.blindspots if spot.what == ENTRY for role in spot.roles
    }
    for change in changes:
        load: dict[str, Evidence] = {}
        placed: dict[str, Evidence] = {}
        for role in (role.name for role in profile.roles):
            in_a, in_b = trace_a.roles[role], trace_b.roles[role]
            if change.path_a is None or change.path_b is None:  # another name of the file weighs by itself
                side, path = (in_b, change.path_b) if change.path_a is None else (in_a, change.path_a)
                present = [] if path is None else [side.by_name(path)]
            else:
                present = [in_a.evidence(change.path_a), in_b.evidence(change.path_b)]
            if change.path_a is None and change.b is not None and change.path_b is not None:
                present.append(in_a.absent(change.path_b, change.b))
            if change.path_b is None and change.a is not None and change.path_a is not None:
                present.append(in_b.absent(change.path_a, change.a))
            naming = _names_place(change, in_a, in_b)
            if naming is not None:
                placed[role] = naming
                present.append(naming)
            evidence = present[0]
            for other in present[1:]:
                evidence = verdict.stronger(evidence, other)
            if evidence.level == "unreached" and role in astray:
                evidence = Evidence("unknown")  # nothing is known not to be loaded by a program that is not known
            if verdict.bears(change, evidence, accepted, placed=role in placed) != "none":
                evidence = joined.settle(change, role, evidence)
            load[role] = evidence
        bears = {
            role: verdict.bears(change, evidence, accepted, placed=role in placed) for role, evidence in load.items()
        }
        judged.append(JudgedChange(change, load, bears))
    return judged


def _names_place(change: Change, in_a: RoleTrace, in_b: RoleTrace) -> Evidence | None:
    """A file that moved: does b still name the place that it left, or did a name the one that it came to?"""
    if change.path_a is None or change.path_b is None or change.path_a == change.path_b:
        return None
    return in_b.placed(change.path_a, change.path_b) or in_a.placed(change.path_b, change.path_a)
