"""A changed version is no mere metadata where it selects behaviour. Pure.

A local label (``+cpu``) can choose a platform; a release number can pass or fail a gate in reached code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from imgdiff.kinds import python
from imgdiff.kinds.python.delta import VERSION_NAMES
from imgdiff.kinds.python.version_use import Taken, takes
from imgdiff.model import Attribution, Change, Delta, FactSource, Hop, ModuleFacts, Profile, Scope, Trace

_BUILD_LABEL = re.compile(r"^(g[0-9a-f]{6,40}|git[.a-z0-9]*|d\d{8}|[0-9a-f]{7,40}|precompiled)$")
_VERSION_LIKE = re.compile(
    r"(?<![\w.])v?(\d+(?:\.\d+)+(?:[._-]?(?:a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)\.?\d*)*(?:\+[\w.]+)?)"
)
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
_MOST_LINES = 5
_MOST_PLACES = 3  # of one function that takes it


def weigh_versions(
    changes: Sequence[Change],
    sides: Sequence[tuple[Attribution, FactSource, Trace]],
    profile: Profile,
) -> tuple[Change, ...]:
    """Return the changes with the deltas of changed versions sharpened.

    ``sides`` are (attribution, facts, trace) of a and b. A metadata change whose detail has a ``version`` with two
    sides stays metadata where its label is only a commit or a date and no reached file that asks for it holds a
    version literal between the two; else it is ``code`` (label) or asks to be settled (literal), with those lines.
    """
    asking = _Asking(sides)
    return tuple(_weigh(change, sides, profile, asking) for change in changes)


class _Asking:
    """Who asks for the version of a distribution, asked once for each."""

    def __init__(self, sides: Sequence[tuple[Attribution, FactSource, Trace]]) -> None:
        self._sides = sides
        self._known: dict[tuple[int, str], dict[Hop, None]] = {}

    def places(self, side: int, name: str) -> dict[Hop, None]:
        """Return the places in one image's reached code."""
        known = self._known.get((side, name))
        if known is None:
            known = self._known[side, name] = {}
            for role in self._sides[side][2].roles.values():
                for hop in role.asks_version(name):
                    known[hop] = None
        return known


def _weigh(
    change: Change, sides: Sequence[tuple[Attribution, FactSource, Trace]], profile: Profile, asking: _Asking
) -> Change:
    delta = change.delta
    if delta is None or delta.effect != "metadata":
        return change
    for a, b in _versions(delta.detail):
        if a == b:
            continue
        names = _distributions(change, sides)
        label = _label_matters(a, b, names, profile, sides)
        if label is not None:
            return msgspec.structs.replace(change, delta=Delta("code", label, delta.detail))
        lines = list(_gates(a, b, names, change, sides, asking))
        if lines:
            shown = "; ".join(lines[:_MOST_LINES]) + (
                f" and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
            )
            said = "but code that is reached takes the version and could decide by it"
            reason = f"{delta.reason.rstrip('.')}, {said}: {shown}."
            return msgspec.structs.replace(
                change,
                delta=Delta(
                    "metadata",
                    reason,
                    {**delta.detail, "gates": lines[:50]},
                    settle="Read the named lines: where none decides otherwise for the two versions, nothing bears.",
                ),
            )
    return change


def _versions(detail: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the (a, b) texts of changed versions: one of METADATA, or each version literal of a module."""
    version = detail.get("version")
    if isinstance(version, dict) and isinstance(version.get("a"), str) and isinstance(version.get("b"), str):
        yield version["a"], version["b"]
    for item in _list(detail.get("versions")):
        if isinstance(item, dict) and isinstance(item.get("a"), str) and isinstance(item.get("b"), str):
            yield item["a"], item["b"]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _distributions(change: Change, sides: Sequence[tuple[Attribution, FactSource, Trace]]) -> set[str]:
    names = {owner.name for owner in (*change.owners_a, *change.owners_b) if owner.kind in ("wheel", "egg", "editable")}
    known = {distribution.name for attribution, _, _ in sides for distribution in attribution.distributions}
    return names & known or names or _packages(change)


def _packages(change: Change) -> set[str]:
    """What a module of nobody could be imported as: a checkout on PYTHONPATH, a copied-in package."""
    parts = [part for path in (change.path_a, change.path_b) if path is not None for part in path.split(b"/")]
    texts = {part.removesuffix(b".py").decode("utf-8", "surrogateescape") for part in parts}
    return {text for text in texts if text.isidentifier()}


# --------------------------------------------------------------------------------------------------------------------
# Local labels
# --------------------------------------------------------------------------------------------------------------------


def _parse(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _label_matters(
    a: str,
    b: str,
    names: set[str],
    profile: Profile,
    sides: Sequence[tuple[Attribution, FactSource, Trace]],
) -> str | None:
    version_a, version_b = _parse(a), _parse(b)
    if version_a is None or version_b is None:
        return None  # a commit id or the like: no label; the literals are asked next
    label_a, label_b = _label(version_a), _label(version_b)
    if label_a == label_b:
        return None
    if profile.evaluates_version and names & _engine_distributions(profile, sides):
        differing = [word for word in profile.evaluates_version if (word in a) != (word in b)]
        if not differing:
            return None
        words = " and ".join(repr(word) for word in differing)
        return (
            f"The version changed from {a} to {b}, and {profile.name} looks for {words} in it to choose its platform."
        )
    return (
        f"The version's label changed from {label_a or 'none'} to {label_b or 'none'}: it names another build, no "
        "commit or date."
    )


def _label(version: Version) -> str:
    """Return the local label without the parts that only name a commit or a date."""
    return ".".join(part for part in (version.local or "").split(".") if part and not _BUILD_LABEL.match(part))


def _engine_distributions(profile: Profile, sides: Sequence[tuple[Attribution, FactSource, Trace]]) -> set[str]:
    return {
        distribution.name
        for attribution, _, _ in sides
        for distribution in attribution.distributions
        if profile.package is not None and profile.package in distribution.packages
    }


# --------------------------------------------------------------------------------------------------------------------
# Gates in reached code
# --------------------------------------------------------------------------------------------------------------------


def _gates(
    a: str,
    b: str,
    names: set[str],
    change: Change,
    sides: Sequence[tuple[Attribution, FactSource, Trace]],
    asking: _Asking,
) -> Iterator[str]:
    """Yield "path:line (literal or code)" for what could decide by the version in reached files that ask for it."""
    ends = _parse(a), _parse(b)
    own = {path for path in (change.path_a, change.path_b) if path is not None}
    packages = {
        package
        for attribution, _, _ in sides
        for distribution in attribution.distributions
        if distribution.name in names
        for package in distribution.packages
    }
    seen: set[tuple[bytes, str]] = set()
    for side, (_, facts, _) in enumerate(sides):
        places: dict[Hop, None] = {}
        for name in sorted(names):
            places.update(asking.places(side, name))
        handed_on = any(_hands_on(hop, facts, {*names, *packages}) for hop in places)
        for hop in sorted(places, key=_place):
            path = hop.path
            shown = "/" + path.decode("utf-8", "backslashreplace")
            module = facts.module(path)
            if path in own or not isinstance(module, ModuleFacts):
                continue
            if hop.edge == "named":  # it gets the version from elsewhere: only what it says itself counts
                module = msgspec.structs.replace(
                    module, scopes=tuple(scope for scope in module.scopes if scope.qualname == (hop.function or ""))
                )
            noted = [*_texts(module, hop, names, a, b), *_components(module, hop, names, ends)]
            taken = (
                _taken(module, hop, facts, {*names, *packages})
                if noted and hop.edge != "named" and not handed_on
                else None
            )
            if taken is not None:
                noted = []
                sure = [each for each in taken if not each.maybe]
                for each in (sure or taken)[:_MOST_PLACES]:
                    said = hop.path, f"{each.line}: {each.text}"
                    if said not in seen:
                        seen.add(said)
                        yield f"{shown}:{each.line} ({each.text})"
            for literal in (*_literals_between(module, a, b, ends), *_numbers_between(module, ends), *noted):
                if (path, literal) not in seen:
                    seen.add((path, literal))
                    yield f"{shown}:{hop.line or 0} ({literal})"


def _hands_on(hop: Hop, facts: FactSource, names: set[str]) -> bool:
    """Tell whether a module outside of the distribution binds its version: then another module's ``__version__`` can
    be this one."""
    if hop.function is not None or hop.module is None or hop.module.partition(".")[0] in names:
        return False
    module = facts.module(hop.path)
    if not isinstance(module, ModuleFacts):
        return True
    return not VERSION_NAMES.isdisjoint(module.binds) and _taken(module, hop, facts, names) != ()


def _taken(module: ModuleFacts, hop: Hop, facts: FactSource, names: set[str]) -> tuple[Taken, ...] | None:
    """Return where the place that asks takes the version, from its source; None where that can't be told.

    The source must say of this function what the code that runs says: that can be a ``.pyc`` of another text.
    """
    source = facts.text(hop.path)
    if source is None or not hop.path.endswith(b".py"):
        return None
    written = python.facts(source)
    if not isinstance(written, ModuleFacts):
        return None
    pairs = [[scope for scope in each.scopes if scope.qualname == (hop.function or "")] for each in (module, written)]
    if any(len(scopes) != 1 for scopes in pairs) or _said(pairs[0][0]) != _said(pairs[1][0]):
        return None
    return takes(source, hop.function, names)


def _said(scope: Scope) -> tuple[object, ...]:
    """Return what a function's source and its bytecode say alike."""
    return scope.line, scope.names, scope.strings, scope.numbers, {each.names for each in scope.imports}


def _place(hop: Hop) -> tuple[bytes, int, str, str]:
    return hop.path, hop.line or 0, hop.function or "", hop.edge


def _literals_between(
    module: ModuleFacts, a: str, b: str, ends: tuple[Version | None, Version | None]
) -> Iterator[str]:
    known = sorted(end for end in ends if end is not None)
    low, high = (known[0], known[1]) if len(known) == len(ends) else (None, None)
    for scope in module.scopes:
        for text in sorted((*scope.strings, *scope.patterns)):
            if text in (a, b):
                yield text
                continue
            for match in _VERSION_LIKE.finditer(text):
                literal = _parse(match.group(1))
                if literal is not None and low is not None and high is not None and low <= literal <= high:
                    yield match.group(1)


def _numbers_between(module: ModuleFacts, ends: tuple[Version | None, Version | None]) -> Iterator[str]:
    """Yield the tuples of numbers in a module's comparisons that lie between the two releases, ends included, held
    against as many parts as they have (``torch.__version__ >= (2, 1)``)."""
    if ends[0] is None or ends[1] is None:
        return
    low, high = sorted((ends[0].release, ends[1].release))
    for scope in module.scopes:
        for number in sorted(scope.numbers):
            size = len(number)
            if size > 1 and _parts(low, size) <= number <= _parts(high, size):
                yield f"({', '.join(map(str, number))})"


def _parts(release: tuple[int, ...], size: int) -> tuple[int, ...]:
    return (*release, *[0] * size)[:size]


def _texts(module: ModuleFacts, hop: Hop, names: set[str], a: str, b: str) -> Iterator[str]:
    """Yield the strings at the place that asks that one of the two versions begins with and the other does not, or, of
    strings that are no numbers, that only one holds (``startswith("2.")``, ``"dev" in torch.__version__``)."""
    for scope in module.scopes:
        if scope.qualname == (hop.function or "") and _asks_outright(scope, names):
            for text in sorted(scope.strings):
                held = not _NUMBERS.fullmatch(text) and (text in a) != (text in b)
                if held or a.startswith(text) != b.startswith(text):
                    yield text


# What takes a version apart: the numbers that it is then compared with stand in no string.
_TAKES_APART = frozenset(
    {
        "split",
        "rsplit",
        "partition",
        "rpartition",
        "release",
        "version_info",
        "version_tuple",
        "__version_tuple__",
        "match",
        "fullmatch",
        "search",
        "findall",
        "finditer",
        "base_version",
        "public",
    }
)
# Of those, what only a version has.
_OF_VERSIONS = frozenset({"release", "is_prerelease", "is_devrelease", "is_postrelease", "base_version"})
_POSITIONS = {"major": 0, "minor": 1, "micro": 2}
_NOT_IN_RELEASE = frozenset(
    {
        "is_prerelease",
        "is_devrelease",
        "is_postrelease",
        "dev",
        "pre",
        "post",
        "epoch",
        "local",
        "base_version",
        "public",
    }
)
_METADATA_CALLS = frozenset({"version", "distribution", "metadata", "get_distribution"})


def _components(
    module: ModuleFacts, hop: Hop, names: set[str], ends: tuple[Version | None, Version | None]
) -> Iterator[str]:
    """Yield a note where the place that asks takes the version apart and its release numbers changed.

    Only where it asks outright: a function that looks up any distribution's version, or has something called
    ``version``, splits many other texts.
    """
    if ends[0] is None or ends[1] is None:
        return
    released = ends[0].release != ends[1].release
    if not released and _rest(ends[0]) == _rest(ends[1]):
        return
    for scope in module.scopes:
        if scope.qualname != (hop.function or "") or not (hop.edge == "named" or _asks_outright(scope, names)):
            continue
        imported = {name for each in scope.imports for name in each.names}
        apart = _TAKES_APART if released else _NOT_IN_RELEASE
        if hop.edge == "named":
            apart &= _OF_VERSIONS
        found = sorted(apart & (scope.names - imported))
        if released:
            found += [name for name in _differing(ends[0].release, ends[1].release) if name in scope.names - imported]
        if not found and released and hop.edge != "named":
            found = _single_numbers(scope, ends[0].release, ends[1].release)
        if found:
            yield f"takes it apart: {found[0]}"


def _rest(version: Version) -> tuple[object, ...]:
    return version.epoch, version.pre, version.dev, version.post


def _differing(a: tuple[int, ...], b: tuple[int, ...]) -> list[str]:
    """Return the names of the parts in which two releases differ."""
    return [name for name, place in _POSITIONS.items() if _parts(a, place + 1)[place] != _parts(b, place + 1)[place]]


def _single_numbers(scope: Scope, a: tuple[int, ...], b: tuple[int, ...]) -> list[str]:
    """Return the plain numbers in comparisons that lie between two differing parts (``int(__version__[0]) >= 2``)."""
    size = max(len(a), len(b))
    pairs = [sorted(pair) for pair in zip(_parts(a, size), _parts(b, size), strict=True) if pair[0] != pair[1]]
    return [
        str(number[0])
        for number in sorted(scope.numbers)
        if len(number) == 1 and any(low <= number[0] <= high for low, high in pairs)
    ]


def _asks_outright(scope: Scope, names: set[str]) -> bool:
    if (scope.names | scope.strings) & {"__version__", "__version_tuple__"}:
        return True
    if any(each.names and canonicalize_name(each.module.partition(".")[0]) in names for each in scope.imports):
        return True
    return any(
        call.callee.rpartition(".")[2] in _METADATA_CALLS
        and call.arguments
        and canonicalize_name(call.arguments[0]) in names
        for call in scope.calls
    )
