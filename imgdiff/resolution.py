"""Names that lead to different files in the two images although the files themselves pair as equal.

Pure. A file whose bytes changed under one name is a change, not a resolution; here the *name* leads elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from imgdiff.model import (
    LEVELS,
    Attribution,
    Distribution,
    Level,
    ResolutionChange,
    Resolved,
    RoleTrace,
    Trace,
    Tree,
)

_STRENGTH = {level: position for position, level in enumerate(LEVELS)}


def compare_resolution(
    trace_a: Trace,
    trace_b: Trace,
    paired: Iterable[tuple[bytes, bytes]] = (),
    stays: Callable[[bytes], bool] = lambda _: False,
) -> tuple[ResolutionChange, ...]:
    """Return every module, library and program name that a role reaches in both images and that resolves differently.

    ``stays`` tells of a path whether both images have the same file there: a name that leads to it in one image, and
    that is asked for and leads to nothing in the other, is a difference, too, which no change of a file shows.

    ``paired`` are the (a, b) paths that the comparison holds for one file under two names; a name that leads to the
    two ends of such a pair has moved with its file, whose bytes are judged as a change.
    """
    same_file = set(paired)
    found: list[ResolutionChange] = []
    for role in sorted(trace_a.roles.keys() & trace_b.roles.keys()):
        role_a, role_b = trace_a.roles[role], trace_b.roles[role]
        found.extend(_names("module", role, role_a.modules, role_b.modules, same_file))
        found.extend(_names("library", role, role_a.libraries, role_b.libraries, same_file))
        found.extend(_lost(role, role_a, role_b, stays))
    return tuple(found)


def _names(
    kind: str,
    role: str,
    a: Mapping[str, tuple[Level, Resolved]],
    b: Mapping[str, tuple[Level, Resolved]],
    same_file: set[tuple[bytes, bytes]],
) -> Iterator[ResolutionChange]:
    for name in sorted(a.keys() & b.keys()):
        level_a, resolved_a = a[name]
        level_b, resolved_b = b[name]
        if _same(resolved_a, resolved_b) or (resolved_a.path, resolved_b.path) in same_file:
            continue
        level = min(level_a, level_b, key=_STRENGTH.__getitem__)
        yield ResolutionChange("module" if kind == "module" else "library", name, role, level, resolved_a, resolved_b)


def _lost(role: str, a: RoleTrace, b: RoleTrace, stays: Callable[[bytes], bool]) -> Iterator[ResolutionChange]:
    """Names of one image that the other asks for in vain, although the file is there as well."""
    kinds: tuple[Literal["module", "library"], ...] = ("module", "library")
    for kind in kinds:
        names_a, names_b = (each.modules if kind == "module" else each.libraries for each in (a, b))
        for name in sorted(names_a.keys() ^ names_b.keys()):
            level, resolved = names_a[name] if name in names_a else names_b[name]
            asked = (b if name in names_a else a).misses(name) if stays(resolved.path) else None
            if asked is not None:
                strongest = min(level, asked, key=_STRENGTH.__getitem__)
                ends = (resolved, None) if name in names_a else (None, resolved)
                yield ResolutionChange(kind, name, role, strongest, *ends)


def _same(a: Resolved, b: Resolved) -> bool:
    if a.path == b.path:
        return True  # other bytes under the same path are a change of that file
    return a.digest == b.digest and a.owner == b.owner and a.owner is not None and a.relative == b.relative


def compare_distributions(
    attribution_a: Attribution, tree_a: Tree, trace_a: Trace, attribution_b: Attribution, tree_b: Tree, trace_b: Trace
) -> tuple[ResolutionChange, ...]:
    """Return every distribution whose dist-info appears or disappears whole, or of which a site holds two.

    Which version a name has, and which entry points exist, is decided by the dist-infos on the path
    (importlib.metadata). The level is the evidence for the metadata of the side that has it.
    """
    by_name_a, by_name_b = _by_name(attribution_a), _by_name(attribution_b)
    found: list[ResolutionChange] = []
    for name in sorted(by_name_a.keys() | by_name_b.keys()):
        left, right = by_name_a.get(name, []), by_name_b.get(name, [])
        if len(left) == len(right):
            continue
        for role in sorted(trace_a.roles.keys() & trace_b.roles.keys()):
            level_a = [trace_a.roles[role].evidence(_metadata(item, tree_a)).level for item in left]
            level_b = [trace_b.roles[role].evidence(_metadata(item, tree_b)).level for item in right]
            found.append(
                ResolutionChange(
                    "distribution",
                    name,
                    role,
                    min((*level_a, *level_b), key=_STRENGTH.__getitem__),
                    _resolved(left, tree_a),
                    _resolved(right, tree_b),
                )
            )
    return tuple(found)


def _by_name(attribution: Attribution) -> dict[str, list[Distribution]]:
    by_name: dict[str, list[Distribution]] = {}
    for distribution in attribution.distributions:
        by_name.setdefault(distribution.name, []).append(distribution)
    return by_name


def _metadata(distribution: Distribution, tree: Tree) -> bytes:
    for name in (b"METADATA", b"PKG-INFO"):
        path = distribution.info + b"/" + name
        if path in tree:
            return path
    return distribution.info


def _resolved(distributions: list[Distribution], tree: Tree) -> Resolved | None:
    if not distributions:
        return None
    path = _metadata(distributions[0], tree)
    entry = tree.get(path)
    return Resolved(path, None if entry is None else entry.digest)
