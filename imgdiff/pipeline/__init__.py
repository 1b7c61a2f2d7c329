"""The flow: open, index, flatten, attribute, compare, explain, trace, judge. The one place that knows all stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from imgdiff import config as configs
from imgdiff import explanation, recall, recordings, runtime, verdict, versions
from imgdiff.facts import Facts
from imgdiff.layer import Progress, Trust
from imgdiff.model import Assumed, Change, Image, Level, Recording, Report
from imgdiff.pipeline.excerpts import with_diffs
from imgdiff.pipeline.images import (
    SNAPSHOT_RULES,
    Indexed,
    alike,
    check_wheels,
    index,
    no_collector,
    open_store,
    opened,
    trusted_tables,
)
from imgdiff.pipeline.limits import blindspots_of, caveats_of, left_out, touches
from imgdiff.pipeline.options import Options, assumed_by, check
from imgdiff.pipeline.reporting import report_of
from imgdiff.pipeline.roles import check_recorded_roles, claim_of, profile_of
from imgdiff.pipeline.weighing import (
    compared,
    configs_of,
    joined_with,
    judge_changes,
    one_side,
    resolved_otherwise,
    traces_of,
    weigh_loader_cache,
)
from imgdiff.store import Store
from imgdiff.surrogates import encodable
from imgdiff.tracing import Traces

__all__ = ["SNAPSHOT_RULES", "Indexed", "Options", "check", "diff", "index", "open_store", "opened"]


Early = Callable[[Sequence[Change]], None]


def diff(
    reference_a: str,
    reference_b: str,
    options: Options | None = None,
    progress: Progress | None = None,
    early: Early | None = None,
) -> Report:
    """Compare two images and return the report. Raises ImgdiffError where an image can't be used.

    ``early`` is told all changes with their owners and deltas before the traces are made, which take most of the time;
    where the report is known already, it is not called.
    """
    options = options or Options()
    assumed = assumed_by(options)
    check(options)
    digests = recordings.digests(options.traces)
    with no_collector(), open_store(options) as store:
        image_a, image_b = (opened(reference, options) for reference in (reference_a, reference_b))
        check_wheels(image_a, image_b)
        images = alike(image_a, image_b)
        trusted = [trusted_tables(image) for image in images] if options.trust_toc else None
        asked = options.entry, options.roles, options.accept, options.profile, trusted, options.any_image
        names = [(x.reference, x.manifest_digest, x.config_digest) for x in images if digests]  # a recording's words
        pair = recall.key(images, (asked, assumed, options.traces, digests, names))
        known = None if pair is None else recall.load(store, pair, images, tuple(configs.redact_argv(options.argv)))
        if known is not None:
            return encodable(known)
        # A call of its own: what it held is gone before the collector comes back.
        report = _fresh(images, store, options, assumed, progress, early)
        if pair is not None and digests == recordings.digests(options.traces):  # a run can be under way
            recall.save(store, pair, report)
        return report


def _fresh(
    images: tuple[Image, Image],
    store: Store,
    options: Options,
    assumed: Assumed,
    progress: Progress | None,
    early: Early | None,
) -> Report:
    """Compare two images whose report is not known."""
    runs = recordings.runs(options.traces)
    facts = Facts(store, options.jobs)
    try:
        a, b = index(images, store, facts, progress, options.jobs, Trust() if options.trust_toc else None)
        return encodable(_compare(a, b, store, options, assumed, runs, early))
    finally:
        facts.close()


def _compare(
    a: Indexed,
    b: Indexed,
    store: Store,
    options: Options,
    assumed: Assumed,
    runs: Sequence[Recording],
    early: Early | None,
) -> Report:
    profile = profile_of(a, b, options, assumed)
    check_recorded_roles(runs, profile)
    claim = claim_of(profile, options)
    accepted: frozenset[Level] = frozenset(level for level in ("dormant",) if level in options.accept)
    comparison = compared(a, b)
    explained = explanation.explain(comparison, one_side(a), one_side(b), store)
    if early is not None:
        early(explained.changes)
    traces = Traces(profile, options.entry, store if options.cache else None)
    trace_a, trace_b = traces_of(a, b, traces)
    joined = joined_with(a, trace_a, b, trace_b, runs, profile, options)
    trace_a, trace_b = joined.traces
    sides = [(x.attribution, x.facts, found) for x, found in ((a, trace_a), (b, trace_b))]
    changes = versions.weigh_versions(explained.changes, sides, profile)
    changes = tuple(weigh_loader_cache(change, (a, trace_a), (b, trace_b)) for change in changes)
    resolved = tuple(map(joined.settle_name, resolved_otherwise(a, trace_a, b, trace_b, changes, explained.switched)))
    judged = with_diffs(judge_changes(changes, trace_a, trace_b, profile, accepted, joined), a.texts, b.texts)
    config = configs_of(a, b, profile)
    blindspots = blindspots_of(a, trace_a, b, trace_b, comparison, explained.blindspots, profile, joined.blindspots())
    findings = verdict.Findings(
        judged,
        resolved,
        config,
        blindspots,
        [*joined.caveats(), *caveats_of(a, trace_a, b, trace_b, judged, claim, options, profile)],
        unread=any(touches(spot, a.installed) for spot in comparison.blindspots)
        or left_out(a, b)
        or any(spot.what == runtime.MOUNT and touches(spot, a.installed) for spot in blindspots),
        equal=_equal(a, b),
    )
    report = report_of(a, trace_a, b, trace_b, comparison, findings, profile, claim, accepted, options)
    traces.keep()
    return msgspec.structs.replace(report, recordings=joined.told())


def _equal(a: Indexed, b: Indexed) -> str | None:
    """Return what it means that nothing differs where less than two whole images is compared, else None."""
    if a.installed is not None:
        return a.installed.equal(b.side if a.own is not None else a.side)
    bare = [x.side for x in (a, b) if x.image.config is None]
    if not bare:
        return None
    lacking = f"{bare[0]} has no config" if len(bare) == 1 else "neither has a config"
    return f"Both file systems hold the same bytes under the same names; {lacking} that could be compared."
