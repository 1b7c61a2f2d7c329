"""The flow: open, index, flatten, attribute, compare, explain, trace, judge. The one place that knows all stages."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from imgdiff import (
    about,
    assuming,
    engines,
    explanation,
    installation,
    recall,
    recordings,
    resolution,
    runtime,
    sources,
    tree,
    verdict,
    versions,
)
from imgdiff import attribution as attributing
from imgdiff import config as configs
from imgdiff.comparison import compare
from imgdiff.errors import ImageError, IncompleteError, UsageError
from imgdiff.facts import RULES as FACTS_RULES
from imgdiff.facts import Facts, ImageFacts
from imgdiff.kinds import KEPT_VERSION, bytecode, elf, ld_cache
from imgdiff.layer import Progress, Trust, index_layers, read_contents, vouched
from imgdiff.model import (
    Assumed,
    Attribution,
    Blindspot,
    Change,
    Comparison,
    Delta,
    Evidence,
    Image,
    ImageSummary,
    Integrity,
    JudgedChange,
    Layer,
    LayerIndex,
    Level,
    Profile,
    Recording,
    Report,
    ResolutionChange,
    Resolved,
    RoleInfo,
    RoleTrace,
    Side,
    Texts,
    Trace,
    Tree,
    UnresolvedImport,
)
from imgdiff.naming import owner_rows, unique_names
from imgdiff.sources import WHEEL_VERSION
from imgdiff.store import Store
from imgdiff.surrogates import encodable
from imgdiff.trace.entry import split_entry
from imgdiff.trace.recorded import Joined, Traced
from imgdiff.tracing import Traceable, Traces

_LOADER_CACHE = b"etc/ld.so.cache"
_WHEELS = "wheel"  # what the tars of wheels are known under
_WHEEL_TYPE = "application/zip"
SNAPSHOT_RULES = f"kept {KEPT_VERSION} elf {elf.VERSION} {FACTS_RULES}"
"""The versions of all that a snapshot holds."""
ACCEPTABLE: frozenset[str] = frozenset({"dormant"})


class Options(msgspec.Struct, frozen=True):
    """What a run was asked for.

    ``platform``: os/arch[/variant] out of an index. ``entry``: another command line than the image's. ``roles``: the
    roles that the claim is about (default: the profile's engine roles). ``accept``: levels taken as not loaded.
    ``profile``: an engine profile by name (default: recognised). ``cache_dir``: None for the user's own; ``cache``
    False for a temporary one. ``jobs``: processes (default: all cores). ``argv``: for the report.
    ``insecure``: plain HTTP and unverified TLS are allowed for registries. ``trust_toc``: tables of contents that the
    manifests of layers in registries vouch for are believed. ``traces``: recordings of runs, each ``PATH`` or
    ``ROLE=PATH``. ``any_image``: those that were made on another image are taken too. ``assume``: NAME=VALUE each,
    ``model_archs`` and ``model_config`` (its config.json) the model: what they leave out counts as not loaded.
    """

    platform: str | None = None
    entry: str | None = None
    roles: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    profile: str | None = None
    cache_dir: Path | None = None
    cache: bool = True
    jobs: int | None = None
    argv: tuple[str, ...] = ()
    insecure: bool = False
    trust_toc: bool = False
    traces: tuple[str, ...] = ()
    any_image: bool = False
    assume: tuple[str, ...] = ()
    model_archs: tuple[str, ...] = ()
    model_config: Path | None = None


class Indexed(msgspec.Struct, frozen=True):  # holds live objects: never serialised
    """One image, read and attributed."""

    side: Side
    image: Image
    indexes: tuple[LayerIndex, ...]
    tree: Tree
    attribution: Attribution
    facts: ImageFacts
    texts: Texts
    read: explanation.Read
    engine_made: tuple[str, ...] = ()  # caveats on what an engine makes in containers, of both images
    lost: frozenset[bytes] = frozenset()  # contents that a snapshot's layers had, which can't be read again
    trusted: tuple[str, ...] = ()  # caveats on tables of contents that were believed, of both images
    own: Tree | None = None  # what the source itself holds, where the tree is another image with a wheel installed
    installed: installation.Installed | None = None  # on both sides where one is a wheel


def diff(
    reference_a: str, reference_b: str, options: Options | None = None, progress: Progress | None = None
) -> Report:
    """Compare two images and return the report. Raises ImgdiffError where an image can't be used."""
    options = options or Options()
    check(options)
    digests = recordings.digests(options.traces)
    with _no_collector(), open_store(options) as store:
        image_a, image_b = (opened(reference, options) for reference in (reference_a, reference_b))
        _check_wheels(image_a, image_b)
        images = _alike(image_a, image_b)
        trusted = [_trusted(image) for image in images] if options.trust_toc else None
        asked = options.entry, options.roles, options.accept, options.profile, trusted, options.any_image
        names = [(x.reference, x.manifest_digest, x.config_digest) for x in images if digests]  # a recording's words
        pair = recall.key(images, (asked, _assumed(options), options.traces, digests, names))
        known = None if pair is None else recall.load(store, pair, images, tuple(configs.redact_argv(options.argv)))
        if known is not None:
            return encodable(known)
        report = _fresh(images, store, options, progress)  # what it held is gone before the collector comes back
        if pair is not None and digests == recordings.digests(options.traces):  # a run can be under way
            recall.save(store, pair, report)
        return report


def _trusted(image: Image) -> object:
    """Return what decides, where tables of contents are believed, what is, and what is said of it."""
    blobs = [None if layer.descriptor is None else layer.descriptor.digest for layer in image.layers]
    return image.transfer is None, blobs, [vouched(layer) for layer in image.layers]


def _fresh(images: tuple[Image, Image], store: Store, options: Options, progress: Progress | None) -> Report:
    """Compare two images whose report is not known."""
    runs = recordings.runs(options.traces)
    facts = Facts(store, options.jobs)
    try:
        a, b = index(images, store, facts, progress, options.jobs, Trust() if options.trust_toc else None)
        return encodable(_compare(a, b, store, options, runs))
    finally:
        facts.close()


def opened(reference: str, options: Options) -> Image:
    """Open an image; from here on its reference is as it may be shown. Raises ImgdiffError where it can't be used."""
    image = sources.open_image(reference, options.platform, insecure=options.insecure)
    if image.snapshot is not None and image.snapshot.rules != SNAPSHOT_RULES:
        raise ImageError(
            f"the snapshot {reference} was made by imgdiff {image.snapshot.made_by} ({image.snapshot.rules}), and this "
            f"is {about.VERSION} ({SNAPSHOT_RULES})",
            "make it again with this version and this Python, or compare it with those that made it",
        )
    return msgspec.structs.replace(image, reference=configs.redact_text(image.reference))


def _check_wheels(a: Image, b: Image) -> None:
    if a.wheel is not None and b.wheel is not None:
        raise UsageError(
            "both references are wheels, and nothing says which of their files a process loads",
            "name an image that has one of them installed: imgdiff WHEEL IMAGE",
        )


def _alike(a: Image, b: Image) -> tuple[Image, Image]:
    """A snapshot holds no secrets: hide those of the image that it is compared with, too."""
    if a.snapshot is None and b.snapshot is None:
        return a, b
    hidden = [
        image if image.config is None else msgspec.structs.replace(image, config=configs.redact_config(image.config))
        for image in (a, b)
    ]
    return hidden[0], hidden[1]


def check(options: Options) -> None:
    """Say before the long work what is asked for that there is not. Raises UsageError."""
    _assumed(options)
    for level in options.accept:
        if level not in ACCEPTABLE:
            raise UsageError(f"level {level!r} can't be accepted as not loaded", "only dormant can: --accept dormant")
    profiles = engines.load_profiles()
    names = [profile.name for profile in profiles]
    if options.profile is not None and options.profile not in names:
        raise UsageError(f"there is no engine profile {options.profile!r}", f"there are: {', '.join(sorted(names))}")
    asked = [profile for profile in profiles if options.profile in (None, profile.name)]
    known = dict.fromkeys(role.name for profile in asked for role in profile.roles)
    for role in options.roles:  # whether the recognised profile has it is known later
        if role not in known:
            whose = f"profile {options.profile}" if options.profile is not None else "any engine profile"
            raise UsageError(f"there is no role {role!r} in {whose}", f"there are: {', '.join(known)}")
    if options.entry is not None:
        try:
            words = split_entry(options.entry)
        except ValueError as error:
            raise UsageError(f"--entry is no command line: {error}", "quote its words as for a shell") from error
        if not words:
            raise UsageError("--entry is empty", "name a command, or a module: python -m NAME, or NAME")


@contextmanager
def _no_collector() -> Iterator[None]:
    """Leave the cyclic collector out: nearly all that is made, by the hundred thousand, lives until the report is
    there, and walking it again and again took a fifth of the time of a pair of 2 x 200,000 files."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def open_store(options: Options) -> Iterator[Store]:
    """Open the user's cache, the one at ``cache_dir``, or a temporary one that is gone afterwards."""
    store = Store.open(options.cache_dir) if options.cache else Store.temporary()
    try:
        yield store
    finally:
        store.close()


def index(
    pair: tuple[Image, Image],
    store: Store,
    facts: Facts,
    progress: Progress | None,
    jobs: int | None,
    trust: Trust | None = None,
) -> tuple[Indexed, Indexed]:
    """Read both images' layers, each once, and say what stands where and whose it is. With ``trust``, tables of
    contents are believed."""
    images = _known_layers(pair[0], store), _known_layers(pair[1], store)
    layers = [layer for image in images for layer in image.layers]

    def stop() -> None:
        for image in images:
            if image.transfer is not None:
                image.transfer.stop()

    try:
        indexes = index_layers(layers, store, progress, jobs, stop, trust)
    except IncompleteError as error:
        whole = tuple(_whole(image, error.diff_ids) for image in images)
        if whole == images:
            raise
        return index((whole[0], whole[1]), store, facts, progress, jobs, trust)
    split = len(images[0].layers)
    _remember_layer(images[0], indexes[:split], store)
    _remember_layer(images[1], indexes[split:], store)
    for image in images:
        if image.snapshot is not None:
            store.borrow(image.snapshot)
    texts = store.texts([found for layer, found in zip(layers, indexes, strict=True) if layer.kept is None])

    real = {layer.diff_id: layer for layer in layers if layer.kept is None and layer.diff_id is not None}
    own = tuple(indexes[:split]), tuple(indexes[split:])
    sides: tuple[Side, Side] = ("a", "b")
    records: attributing.Records = {}
    trusted = () if trust is None else tuple(trust.caveats(images, own))

    def one(side: Side, image: Image, own: tuple[LayerIndex, ...], merged: Tree) -> Indexed:
        attribution = attributing.attribute(merged, texts, side, records)
        return Indexed(
            side,
            image,
            own,
            merged,
            attribution,
            ImageFacts(merged, texts, facts),
            texts,
            _reader(image, own, merged, real, trust),
            tuple(engine_made),
            _lost(image, own, real),
            trusted,
        )

    trees, engine_made = runtime.seen_alike(images, tree.flatten_both(*own))
    if images[0].wheel is None and images[1].wheel is None:
        a, b = map(one, sides, images, own, trees)
        return a, b
    at = 0 if images[0].wheel is not None else 1
    wheel, holder = (one(sides[i], images[i], own[i], trees[i]) for i in (at, 1 - at))
    wheel, holder = _install(wheel, holder, facts, records)
    return (wheel, holder) if at == 0 else (holder, wheel)


def _known_layers(image: Image, store: Store) -> Image:
    """Return a wheel with the diffID that the tar of it was once found to have, and any image as it is."""
    if image.wheel is None:
        return image
    key = image.wheel.digest.encode()
    found = store.facts(_WHEELS, WHEEL_VERSION, [key]).get(key)
    if found is None:
        return image
    layers = tuple(msgspec.structs.replace(layer, diff_id=found.decode("ascii")) for layer in image.layers)
    return msgspec.structs.replace(image, layers=layers)


def _remember_layer(image: Image, indexes: Sequence[LayerIndex], store: Store) -> None:
    if image.wheel is not None and image.layers[0].diff_id is None:
        row = {image.wheel.digest.encode(): indexes[0].diff_id.encode("ascii")}
        store.put_facts(_WHEELS, WHEEL_VERSION, row)


def _install(wheel: Indexed, image: Indexed, facts: Facts, records: attributing.Records) -> tuple[Indexed, Indexed]:
    """Return both sides with the wheel's as what the image would be, were the wheel installed in it."""
    assert wheel.image.wheel is not None
    installed = installation.install(
        wheel.image.wheel, wheel.tree, image.tree, image.attribution, image.texts, wheel.side, image.image.reference
    )
    packed = {entry.digest for entry in wheel.tree.entries.values()}

    def read(digests: Collection[bytes]) -> Iterator[tuple[bytes, BinaryIO]]:
        yield from wheel.read([digest for digest in digests if digest in packed])
        yield from image.read([digest for digest in digests if digest not in packed])

    replaced = msgspec.structs.replace(
        wheel,
        image=msgspec.structs.replace(wheel.image, config=image.image.config),
        tree=installed.tree,
        attribution=attributing.attribute(installed.tree, installed.texts, wheel.side, records),
        facts=ImageFacts(installed.tree, installed.texts, facts),
        texts=installed.texts,
        read=read,
        lost=image.lost - packed,
        own=wheel.tree,
        installed=installed,
    )
    return replaced, msgspec.structs.replace(image, texts=installed.texts, installed=installed)


def _whole(image: Image, missing: Collection[str]) -> Image:
    """Return an image that an engine can't save as layers as one merged tree, and any other as it is."""
    if image.whole is None or not any(layer.diff_id in missing for layer in image.layers):
        return image
    return msgspec.structs.replace(image.whole(), reference=image.reference)


def _lost(image: Image, indexes: Sequence[LayerIndex], real: Mapping[str, Layer]) -> frozenset[bytes]:
    """Return the contents of a snapshot's layers that no layer of the other image has, too."""
    held: set[bytes] = set()
    lost: set[bytes] = set()
    for layer, layer_index in zip(image.layers, indexes, strict=True):
        gone = layer.kept is not None and layer.diff_id not in real
        (lost if gone else held).update(entry.digest for entry in layer_index.entries if entry.digest is not None)
    return frozenset(lost - held)


def _reader(
    image: Image,
    indexes: Sequence[LayerIndex],
    merged: Tree,
    real: Mapping[str, Layer],
    trust: Trust | None,
) -> explanation.Read:
    """Return a function that reads whole contents of an image again by their digests: from where it can give single
    files, else layer by layer.

    By digest, since a name of the merged tree can be another than the member's (a hard link, a linked parent).
    """

    def read(digests: Collection[bytes]) -> Iterator[tuple[bytes, BinaryIO]]:
        left = set(digests)
        if image.contents is not None and left:
            places = {entry.digest: entry.path for entry in merged.entries.values() if entry.digest in left}
            wanted = {path: digest for digest, path in places.items() if digest is not None}
            for path, stream in image.contents(wanted):
                left.discard(wanted[path])
                yield wanted[path], stream
        for own, layer_index in zip(image.layers, indexes, strict=True):
            layer = own if own.kept is None else real.get(own.diff_id or "")
            if layer is None:
                continue  # a snapshot's, and the other image lacks it
            names: dict[bytes, list[bytes]] = {}
            for entry in layer_index.entries:
                if entry.digest in left:
                    left.discard(entry.digest)
                    names.setdefault(entry.path, []).append(entry.digest)
            while names:  # one name can stand for several contents of a layer, which a hard link keeps
                members = {path: found.pop() for path, found in names.items()}
                names = {path: found for path, found in names.items() if found}
                for path, stream in read_contents(layer, members, layer_index.believed, trust):
                    yield members[path], stream

    return read


# --------------------------------------------------------------------------------------------------------------------
# Comparing two indexed images
# --------------------------------------------------------------------------------------------------------------------


def _compare(a: Indexed, b: Indexed, store: Store, options: Options, runs: Sequence[Recording]) -> Report:
    profile = _profile(a, b, options)
    _check_recorded_roles(runs, profile)
    claim = _claim(profile, options)
    accepted: frozenset[Level] = frozenset(level for level in ("dormant",) if level in options.accept)
    comparison = _compared(a, b)
    traces = Traces(profile, options.entry, store if options.cache else None)
    trace_a, trace_b = _traces(a, b, traces)
    joined = _joined(a, trace_a, b, trace_b, runs, profile, options)
    trace_a, trace_b = joined.traces
    explained = explanation.explain(comparison, _side(a), _side(b), store)
    sides = [(x.attribution, x.facts, found) for x, found in ((a, trace_a), (b, trace_b))]
    changes = versions.weigh_versions(explained.changes, sides, profile)
    changes = tuple(_weigh_loader_cache(change, (a, trace_a), (b, trace_b)) for change in changes)
    resolved = tuple(map(joined.settle_name, _resolution(a, trace_a, b, trace_b, changes, explained.switched)))
    judged = _judge_changes(changes, trace_a, trace_b, profile, accepted, joined)
    config = configs.compare_configs(a.image.config, b.image.config, profile, engines.common().env)
    blindspots = _blindspots(a, trace_a, b, trace_b, comparison, explained.blindspots, profile, joined.blindspots())
    findings = verdict.Findings(
        judged,
        resolved,
        config,
        blindspots,
        [*joined.caveats(), *_caveats(a, trace_a, b, trace_b, judged, claim, options, profile)],
        unread=any(_touches(spot, a.installed) for spot in comparison.blindspots)
        or _left_out(a, b)
        or any(spot.what == runtime.MOUNT and _touches(spot, a.installed) for spot in blindspots),
        equal=None if a.installed is None else a.installed.equal(b.side if a.own is not None else a.side),
    )
    report = _report(a, trace_a, b, trace_b, comparison, findings, profile, claim, accepted, options)
    traces.keep()
    return msgspec.structs.replace(report, recordings=joined.told())


def _check_recorded_roles(runs: Sequence[Recording], profile: Profile) -> None:
    names = [role.name for role in profile.roles]
    for run in runs:
        for process in run.processes:
            if process.role is not None and process.role not in names:
                raise UsageError(
                    f"--trace {process.role}=... names a role that the profile {profile.name} does not have",
                    f"it has: {', '.join(names)}",
                )


def _joined(
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


def _traces(a: Indexed, b: Indexed, traces: Traces) -> tuple[Trace, Trace]:
    keys = traces.keys((a.image, b.image), (a.indexes, b.indexes))

    def one(x: Indexed, key: bytes | None) -> Trace:
        own = key if x.own is None else None  # an image with a wheel in it has no layers of its own
        return traces.of(Traceable(x.tree, x.attribution, x.facts, x.image.config, x.side, own))

    if a.installed is not None and a.installed.unchanged:  # they are one image
        both = one(a, keys[0]) if a.own is None else one(b, keys[1])
        return both, both
    return one(a, keys[0]), one(b, keys[1])


def _compared(a: Indexed, b: Indexed) -> Comparison:
    """Return what differs; where one side is a wheel, only its own files have owners, and are counted."""
    installed = a.installed
    attributions = [x.attribution if installed is None else installed.narrowed(x.attribution) for x in (a, b)]
    roots = [attributing.owner_roots(own, x.tree) for own, x in zip(attributions, (a, b), strict=True)]
    found = compare(a.tree, attributions[0], b.tree, attributions[1], roots[0], roots[1])
    if installed is None:
        return found
    return msgspec.structs.replace(
        found,
        tallies=tuple(tally for tally in found.tallies if tally.files_a or tally.files_b),
    )


def _touches(spot: Blindspot, installed: installation.Installed | None) -> bool:
    """Tell whether a blindspot could hide something of what is compared."""
    return installed is None or installed.touches(spot.path)


def _side(indexed: Indexed) -> explanation.OneSide:
    config = indexed.image.config
    declared = (config.raw.get("config") or {}).get("Volumes") if config is not None else None
    volumes = tuple(str(path).strip("/").encode() for path in declared or ())
    return explanation.OneSide(
        indexed.tree, indexed.attribution, indexed.facts, indexed.texts, indexed.read, volumes, indexed.lost
    )


def _profile(a: Indexed, b: Indexed, options: Options) -> Profile:
    return assuming.applied(_plain_profile(a, b, options), _assumed(options))


def _assumed(options: Options) -> Assumed:
    return assuming.assumed(options.assume, options.model_archs, options.model_config)


def _plain_profile(a: Indexed, b: Indexed, options: Options) -> Profile:
    if options.profile is not None:
        return next(profile for profile in engines.load_profiles() if profile.name == options.profile)
    found = engines.recognise(b.attribution, b.tree)
    return found if found.package is not None else engines.recognise(a.attribution, a.tree)


def _claim(profile: Profile, options: Options) -> tuple[str, ...]:
    names = [role.name for role in profile.roles]
    for role in options.roles:
        if role not in names:
            raise UsageError(f"profile {profile.name} has no role {role!r}", f"it has: {', '.join(names)}")
    return tuple(dict.fromkeys(options.roles)) or tuple(role.name for role in profile.roles if role.engine)


def _resolution(
    a: Indexed,
    trace_a: Trace,
    b: Indexed,
    trace_b: Trace,
    changes: Sequence[Change],
    switched: Sequence[explanation.Switched],
) -> tuple[ResolutionChange, ...]:
    paired = [(x.path_a, x.path_b) for x in changes if x.path_a is not None and x.path_b is not None]
    return (
        *resolution.compare_resolution(trace_a, trace_b, paired),
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


def _weigh_loader_cache(change: Change, *sides: tuple[Indexed, Trace]) -> Change:
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


def _judge_changes(
    changes: Sequence[Change],
    trace_a: Trace,
    trace_b: Trace,
    profile: Profile,
    accepted: frozenset[Level],
    joined: Joined,
) -> list[JudgedChange]:
    judged = []
    for change in changes:
        load: dict[str, Evidence] = {}
        placed: dict[str, Evidence] = {}
        for role in (role.name for role in profile.roles):
            in_a, in_b = trace_a.roles[role], trace_b.roles[role]
            present = [
                side.evidence(path) for side, path in ((in_a, change.path_a), (in_b, change.path_b)) if path is not None
            ]
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


def _blindspots(
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


def _left_out(a: Indexed, b: Indexed) -> bool:
    """Tell whether something of an image did not get into its tree, which then can't be proven equal to the other."""
    if not any(_touches(spot, a.installed) for x in (a, b) for spot in x.tree.blindspots):
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


def _caveats(
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
    caveats = [said for said in (assuming.caveat(profile),) if said is not None]
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


def _integrity(indexed: Indexed, found: Trace) -> Iterator[Integrity]:
    """Yield what does not fit in an image or a wheel; of an image beside a wheel, what concerns that distribution."""
    notes = (*indexed.attribution.integrity, *found.integrity)
    if indexed.installed is None:
        yield from notes
    elif indexed.own is not None:
        yield from indexed.installed.notes
    else:
        yield from indexed.installed.concerning(notes)


# --------------------------------------------------------------------------------------------------------------------
# The report
# --------------------------------------------------------------------------------------------------------------------


def _report(
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
    integrity = [*_integrity(a, trace_a), *_integrity(b, trace_b)]
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
