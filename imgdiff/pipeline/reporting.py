"""The report: names of owners, order of changes, and what is said of each image."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from imgdiff import about, assuming, verdict
from imgdiff import config as configs
from imgdiff.kinds import bytecode
from imgdiff.model import (
    Comparison,
    ImageSummary,
    JudgedChange,
    LayerIndex,
    Level,
    Profile,
    Report,
    RoleInfo,
    Side,
    Trace,
    UnresolvedImport,
)
from imgdiff.naming import owner_rows, unique_names
from imgdiff.pipeline.images import Indexed
from imgdiff.pipeline.limits import integrity_of
from imgdiff.pipeline.options import Options

_WHEEL_TYPE = "application/zip"


def report_of(
    a: Indexed,
    trace_a: Trace,
    b: Indexed,
    trace_b: Trace,
    comparison: Comparison,
    findings: verdict.Findings,
    profile: Profile,
    claim: Sequence[str],
    accepted: frozenset[Level],
    options: Options,
) -> Report:
    """Judge the findings, and return them as a report: owners and changes named and in order."""
    judged_verdict = verdict.judge(findings, profile, claim, accepted)
    preferred = {
        resolved.owner
        for side in (trace_a, trace_b)
        for role in claim
        for _, resolved in side.roles[role].modules.values()
        if resolved.owner is not None
    }
    names = unique_names(comparison.tallies, preferred)
    named = [
        msgspec.structs.replace(
            judged,
            owner_names_a=tuple(sorted({names[owner] for owner in judged.change.owners_a})),
            owner_names_b=tuple(sorted({names[owner] for owner in judged.change.owners_b})),
        )
        for judged in findings.changes
    ]
    named.sort(key=_order)
    integrity = [*integrity_of(a, trace_a), *integrity_of(b, trace_b)]
    return Report(
        version=about.VERSION,
        argv=tuple(configs.redact_argv(options.argv)),
        pythons=tuple(f"{major}.{minor}" for major, minor in bytecode.Compilers().minors()),
        image_a=_summary(a),
        image_b=_summary(b),
        profile=profile.name if profile.package is not None else None,
        roles={
            role.name: RoleInfo(
                tuple(dict.fromkeys((*trace_a.roles[role.name].roots, *trace_b.roles[role.name].roots))),
                judged_verdict.roles[role.name].confidence,
            )
            for role in profile.roles
        },
        verdict=judged_verdict,
        owners=owner_rows(comparison.tallies, names, named, claim),
        changes=tuple(named),
        resolution=tuple(findings.resolution),
        config=tuple(findings.config),
        integrity=tuple(sorted(integrity, key=lambda item: (item.image, item.code, item.path or b"", item.message))),
        blindspots=tuple(findings.blindspots),
        mtime_only=comparison.mtime_only,
        unresolved_imports=_unresolved(trace_a, trace_b),
        assumed=assuming.told(profile.assumed),
    )


def _unresolved(trace_a: Trace, trace_b: Trace) -> tuple[UnresolvedImport, ...]:
    """Return the places where reached code imports what no static means can tell, each with the sides that have it."""
    sides: dict[UnresolvedImport, tuple[Side, ...]] = {}
    found: tuple[tuple[Side, Trace], ...] = (("a", trace_a), ("b", trace_b))
    for side, trace_ in found:
        for each in trace_.unresolved:
            sides[each] = (*sides.get(each, ()), side)
    placed = [msgspec.structs.replace(each, images=images) for each, images in sides.items()]
    return tuple(sorted(placed, key=lambda each: (each.path, each.line, each.function or "", each.name, each.images)))


def _order(judged: JudgedChange) -> tuple[bool, bytes, bytes, bytes]:
    owners = judged.owner_names_b or judged.owner_names_a
    first = owners[0] if owners else ""
    change = judged.change
    return first.startswith("unowned:"), first.encode("utf-8", "surrogateescape"), change.path, change.path_a or b""


def _summary(indexed: Indexed) -> ImageSummary:
    image = indexed.image
    held = indexed.tree if indexed.own is None else indexed.own
    entries = held.entries.values()
    hardlinks = held.hardlinks
    layers: list[tuple[str, str | None, int, str]] = []
    for layer, layer_index in zip(image.layers, indexed.indexes, strict=True):
        descriptor = layer.descriptor
        if image.wheel is not None:
            layers.append((layer_index.diff_id, image.wheel.digest, image.wheel.size, _WHEEL_TYPE))
            continue
        layers.append(
            (
                layer_index.diff_id,
                descriptor.digest if descriptor is not None and descriptor.digest else None,
                descriptor.size if descriptor is not None and descriptor.size >= 0 else layer_index.size,
                descriptor.media_type if descriptor is not None else "",
            )
        )
    return ImageSummary(
        reference=image.reference,
        source=image.source,
        manifest_digest=image.manifest_digest,
        config_digest=image.config_digest,
        platform=image.platform,
        layers=tuple(layers),
        files=sum(entry.type in ("file", "symlink") for entry in entries),
        bytes=sum(
            entry.size
            for entry in entries
            if entry.type == "file" and hardlinks.get(entry.path, entry.path) == entry.path
        ),
        transfer=None if image.transfer is None else (image.transfer.fetched(), image.transfer.saved()),
        believed=_believed(indexed.indexes),
    )


def _believed(indexes: Sequence[LayerIndex]) -> tuple[tuple[str, int, int] | None, ...]:
    found = tuple(
        None if (said := layer_index.believed) is None else (said.digest, said.hashed, said.unhashed)
        for layer_index in indexes
    )
    return found if any(found) else ()
