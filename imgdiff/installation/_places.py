"""Where in an image a wheel's files belong: beside the installed copy that they are held against."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from imgdiff.errors import UnknownReferenceError
from imgdiff.model import Attribution, Distribution, Tree, Wheel

Scheme = Literal["site-packages", "bin", "include", "data"]
SCHEMES: tuple[Scheme, ...] = ("site-packages", "bin", "include", "data")

_SITE = re.compile(
    rb"(?P<prefix>(?:.*/)?)lib(?:32|64)?/(?P<python>(?:python|pypy)3(?:\.\d+t?)?)/(?:site|dist)-packages\Z"
)
_SHOWN = 5
_FEW = 8  # names that a hint lists whole


class Place(msgspec.Struct, frozen=True):
    """One directory with installed copies of the distribution (more than one where dist-infos of it were left)."""

    site: bytes
    owner: int
    copies: tuple[Distribution, ...]
    bases: Mapping[Scheme, bytes]


def find_places(wheel: Wheel, files: Tree, tree: Tree, attribution: Attribution, image: str) -> tuple[Place, ...]:
    """Return where the wheel's distribution is installed, by site. Raises UnknownReferenceError where it is not."""
    named = [distribution for distribution in attribution.distributions if distribution.name == wheel.name]
    copies = [each for each in named if attribution.owners[each.owner].kind == "wheel"]
    if not copies:
        raise _missing(wheel, named, attribution, image)
    relatives = {
        scheme: [entry.path[len(scheme) + 1 :] for entry in files.walk(scheme.encode()) if entry.type == "file"]
        for scheme in SCHEMES
    }
    places = []
    for site in sorted({each.site for each in copies}):
        group = tuple(each for each in copies if each.site == site)
        recorded = [path for each in group for path, _, _ in each.recorded]
        bases: dict[Scheme, bytes] = {"site-packages": site}
        for scheme, default in _defaults(site, wheel, tree).items():
            bases[scheme] = _base(relatives[scheme], recorded, default)
        places.append(Place(site, group[0].owner, group, bases))
    return tuple(places)


def _defaults(site: bytes, wheel: Wheel, tree: Tree) -> dict[Scheme, bytes]:
    """Return where pip puts what does not go into the site (sysconfig's schemes; --target has all in one place)."""
    match = _SITE.match(site)
    prefix, python = (match["prefix"].rstrip(b"/"), match["python"]) if match else (site, b"python")
    below = prefix + b"/" if prefix else b""
    name = wheel.name.encode()
    headers = below + b"include/site/" + python  # in a virtual environment
    if headers not in tree:
        headers = below + b"include/" + python
    return {"bin": below + b"bin", "data": prefix, "include": headers + b"/" + name}


def _base(relatives: Iterable[bytes], recorded: Collection[bytes], default: bytes) -> bytes:
    """Return the directory below which most of these files are recorded."""
    by_name: dict[bytes, list[bytes]] = {}
    for path in recorded:
        by_name.setdefault(path.rpartition(b"/")[2], []).append(path)
    votes: Counter[bytes] = Counter()
    for relative in relatives:
        for path in by_name.get(relative.rpartition(b"/")[2], ()):
            if path == relative or path.endswith(b"/" + relative):
                votes[path[: -len(relative)].rstrip(b"/")] += 1
    if not votes:
        return default
    return min(votes, key=lambda base: (-votes[base], base != default, base))


def _missing(wheel: Wheel, named: Collection[Distribution], attribution: Attribution, image: str) -> Exception:
    """Return the error for an image in which the distribution is not, or not as a wheel installs it."""
    if named:
        other = next(iter(named))
        kind = attribution.owners[other.owner].kind
        how = "as an editable install" if kind == "editable" else "without a dist-info"
        where = "/" + (other.editable or other.info).decode("utf-8", "backslashreplace")
        return UnknownReferenceError(
            f"{image} has {wheel.name} {how} ({where}), which can't be held against a wheel",
            "compare two images, or install the wheel in one",
        )
    names = sorted({each.name for each in attribution.distributions})
    near = difflib.get_close_matches(wheel.name, names, _SHOWN)
    near += [name for name in names if name not in near and (wheel.name in name or name in wheel.name)]
    if near:
        hint = f"near to it: {', '.join(near[:_SHOWN])}"
    else:
        hint = f"it has {_some(names)}" if names else "no Python distribution was found in it"
    return UnknownReferenceError(f"{image} has no distribution called {wheel.name}", hint)


def _some(names: list[str]) -> str:
    """Return all names where they are few, else how many there are."""
    return f"{len(names):,} others" if len(names) > _FEW else ", ".join(names)


def located(place: Place, path: bytes, tree: Tree) -> bytes:
    """Return the canonical path at which a file of the wheel's layer is installed."""
    scheme = next(scheme for scheme in SCHEMES if path.startswith(scheme.encode() + b"/"))
    relative = path[len(scheme) + 1 :]
    base = place.bases[scheme]
    full = base + b"/" + relative if base else relative
    return full if scheme == "site-packages" else canonical(tree, full)


def canonical(tree: Tree, path: bytes) -> bytes:
    """Return a path with the links in its directory followed, as far as that exists."""
    directory, rest = path.rpartition(b"/")[0], path.rpartition(b"/")[2]
    while directory:
        found = tree.resolve(directory)
        if found is not None:
            return found + b"/" + rest if found else rest
        directory, _, name = directory.rpartition(b"/")
        rest = name + b"/" + rest
    return rest
