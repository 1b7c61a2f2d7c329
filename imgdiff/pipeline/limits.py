"""What a report can't speak for: blindspots with the roles that they block, and caveats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from imgdiff import assuming, engines, installation, runtime
from imgdiff import config as configs
from imgdiff.model import Blindspot, Comparison, Image, Integrity, JudgedChange, Profile, Trace
from imgdiff.pipeline.images import Indexed
from imgdiff.pipeline.options import Options
from imgdiff.trace.launch.words import split_entry


def touches(spot: Blindspot, installed: installation.Installed | None) -> bool:
    """Tell whether a blindspot could hide something of what is compared."""
    return installed is None or installed.touches(spot.path)


def blindspots_of(
    a: Indexed,
    trace_a: Trace,
    b: Indexed,
    trace_b: Trace,
    comparison: Comparison,
    explained: Sequence[Blindspot],
    profile: Profile,
    recorded: Sequence[Blindspot],
) -> tuple[Blindspot, ...]:
    """Collect every stage's blindspots; one that has a path and no roles yet blocks the roles that may reach it."""
    roles = tuple(role.name for role in profile.roles)
    spots: list[Blindspot] = [*trace_a.blindspots, *trace_b.blindspots, *recorded]
    for side_, found in ((a, trace_a), (b, trace_b)):
        spots += runtime.mounted(side_.side, side_.image, side_.tree, found.roles)
    read = [*comparison.blindspots, *explained]
    for indexed in (a, b):
        own = (*indexed.tree.blindspots, *indexed.attribution.blindspots)
        read += [msgspec.structs.replace(spot, image=indexed.side) for spot in own]
    for spot in read:
        if spot.roles:
            spots.append(spot)
            continue
        side, merged = (trace_a, a.tree) if spot.image == "a" else (trace_b, b.tree)
        blocked = roles
        if spot.path is not None and spot.path in merged and merged.get(spot.path) is not None:
            levels = {role: side.roles[role].evidence(spot.path).level for role in roles}
            blocked = tuple(role for role in roles if levels[role] not in ("unreached", "outside"))
        spots.append(msgspec.structs.replace(spot, roles=blocked))
    if a.installed is not None:
        spots = installation.once(spots, a.side if a.own is not None else b.side)
    return tuple(
        sorted(dict.fromkeys(spots), key=lambda spot: (spot.image or "", spot.path or b"", spot.what, spot.reason))
    )


def left_out(a: Indexed, b: Indexed) -> bool:
    """Tell whether something of an image did not get into its tree, which then can't be proven equal to the other."""
    if not any(touches(spot, a.installed) for x in (a, b) for spot in x.tree.blindspots):
        return False
    if a.installed is not None:
        return True
    content_a, content_b = ([layer.diff_id for layer in x.indexes] for x in (a, b))
    return content_a != content_b or not all(content_a)  # a directory states no diffID


def _shown(text: str, images: Sequence[Image], options: Options) -> str:
    """Return a sentence of the trace with the command lines in it redacted."""
    lines = [[*config.entrypoint, *config.cmd] for image in images if (config := image.config) is not None]
    if options.entry is not None:
        lines.append(split_entry(options.entry))
    for argv in sorted(lines, key=len, reverse=True):
        if argv:
            text = text.replace(" ".join(argv), " ".join(configs.redact_argv(argv)))
    return text


def _profile_caveat(a: Indexed, b: Indexed, options: Options, profile: Profile) -> list[str]:
    """Say that a profile was asked for whose engine is in neither image."""
    if options.profile is None or any(engines.holds(profile, x.attribution, x.tree) for x in (a, b)):
        return []
    found = engines.recognise(b.attribution, b.tree)
    given = f"--profile {profile.name} was given, and the package {profile.package} was found in neither image"
    return [f"{given}: its roles say little; the profile that is recognised is {found.name}."]


def _trace_caveats(a: Sequence[str], b: Sequence[str]) -> list[str]:
    """Return the caveats of both traces by kind, each once, with its side where it is true of one alone."""
    said = dict.fromkeys((*a, *b))
    kinds = list(dict.fromkeys(text.partition(":")[0] for text in said))
    return [
        text if text in a and text in b else f"{'a' if text in a else 'b'}: {text}"
        for text in sorted(said, key=lambda text: kinds.index(text.partition(":")[0]))
    ]


def caveats_of(
    a: Indexed,
    trace_a: Trace,
    b: Indexed,
    trace_b: Trace,
    judged: Sequence[JudgedChange],
    claim: Sequence[str],
    options: Options,
    profile: Profile,
) -> list[str]:
    """Return what the verdict does not cover, by weight; what is true of every report last."""
    against = assuming.against(profile, [(each.side, each.attribution) for each in (a, b)])
    caveats = [said for said in (assuming.caveat(profile), against) if said is not None]
    caveats += _profile_caveat(a, b, options, profile)
    caveats += a.trusted
    if a.installed is not None:
        x, found = (b, trace_b) if a.own is not None else (a, trace_a)
        caveats = [*a.installed.said(x.tree, x.attribution, found, x.side), *caveats]
    for indexed in (a, b):
        if indexed.image.config is None and indexed.own is None:
            hint = "" if options.entry else "; --entry gives the command line"
            caveats.append(
                f"{indexed.side} is a root file system without a config: entry point, ENV, user and working directory "
                f"are not compared{hint}."
            )
        caveats += [text.replace("{side}", indexed.side) for text in indexed.image.caveats]
    caveats += a.engine_made
    images = (a.image, b.image)
    texts_a, texts_b = ([_shown(text, images, options) for text in x.caveats] for x in (trace_a, trace_b))
    caveats += _trace_caveats(texts_a, texts_b)
    outside: dict[str, int] = {}
    for change in judged:
        if all(change.load[role].level == "outside" for role in claim):
            owners = change.change.owners_b or change.change.owners_a
            name = owners[0].name if owners else "unowned"
            outside[name] = outside.get(name, 0) + 1
    if outside:
        named = ", ".join(
            f"{name} {count:,}" for name, count in sorted(outside.items(), key=lambda x: (-x[1], x[0]))[:5]
        )
        total = sum(outside.values())
        files = "differing file is" if total == 1 else "differing files are"
        caveats.append(f"{total:,} {files} on the list of what no engine reads (by owner: {named}).")
    caveats.append(
        "Not covered: the host's kernel, drivers and devices, mounts and volumes, model files, and ENV or arguments "
        "given when the container is started."
    )
    return caveats


def integrity_of(indexed: Indexed, found: Trace) -> Iterator[Integrity]:
    """Yield what does not fit in an image or a wheel; of an image beside a wheel, what concerns that distribution."""
    notes = (*indexed.attribution.integrity, *found.integrity)
    if indexed.installed is None:
        yield from notes
    elif indexed.own is not None:
        yield from indexed.installed.notes
    else:
        yield from indexed.installed.concerning(notes)
