"""Which dist-infos and egg-infos are distributions that an interpreter could find, and what they claim.

One counts if its directory is a site of an environment, or is put on sys.path by a ``.pth``, or looks like the target
of ``pip install --target``: RECORD names files that lie beside it. One that is nested in another distribution's
package (``setuptools/_vendor``) or lies in a cache does not.
"""

from __future__ import annotations

import msgspec
from packaging.version import InvalidVersion, Version

from imgdiff.model import Claim, Distribution, OwnerKind
from imgdiff.owners import _metadata as metadata
from imgdiff.owners._ledger import Ledger, counted, join
from imgdiff.owners._place import Place
from imgdiff.owners._projects import egg_link_target, path_lines, project_of
from imgdiff.owners._record import Listed, Rows


def places(ledger: Ledger) -> tuple[Place, ...]:
    """Return every distribution that counts, dist-info or egg-info, sorted by site and name, newest version first."""
    sites = ledger.sites
    records: dict[bytes, Rows | None] = {}
    accepted: list[bytes] = []
    rest: list[bytes] = []
    for info in ledger.survey.infos:
        (accepted if _site_of(info) in sites else rest).append(info)
    accepted += _targets(ledger, rest, sites, records)
    found = []
    for info in accepted:
        rows = records[info] if info in records else _rows(ledger, info)
        name, version = metadata.name_and_version(ledger, info)
        project = project_of(ledger, _site_of(info), info, rows)
        found.append(Place(info, _site_of(info), name, version, rows, project))
    found = _without_build_traces(ledger, found)
    found.sort(key=lambda place: place.info)
    found.sort(key=lambda place: _version_order(place.version), reverse=True)
    found.sort(key=lambda place: (place.site, place.name))
    return tuple(found)


def _site_of(info: bytes) -> bytes:
    return info.rpartition(b"/")[0]  # of X.egg/EGG-INFO too: the egg itself is on sys.path


def _version_order(version: str | None) -> tuple[int, Version | str]:
    if version is None:
        return (0, "")
    try:
        return (2, Version(version))
    except InvalidVersion:
        return (1, version)


def _without_build_traces(ledger: Ledger, found: list[Place]) -> list[Place]:
    """Leave out the egg-info that an editable install left in its project: the dist-info or egg-link speaks for it."""
    projects = {(place.name, place.project.directory) for place in found if place.project is not None}
    for link in ledger.survey.egg_links:
        target = egg_link_target(ledger, link)
        if target is not None and link.rpartition(b"/")[0] in ledger.sites:
            projects.add((egg_link_name(link), target))

    def is_trace(place: Place) -> bool:
        if place.project is not None or place.info.endswith(b".dist-info"):
            return False
        return any(name == place.name and _below(place.info, directory) for name, directory in projects)

    return [place for place in found if not is_trace(place)]


def _below(path: bytes, directory: bytes) -> bool:
    return path.startswith(directory + b"/") if directory else True


def site_directories(ledger: Ledger) -> frozenset[bytes]:
    """Return every canonical directory in which an interpreter looks for distributions: the environments' sites, all
    that are called site-packages or dist-packages and lie in no package, and what their ``.pth`` lines add."""
    named = {site for environment in ledger.environments for site in (*environment.sites, *environment.user_sites)}
    for site in ledger.survey.sites:
        # site-packages inside a package of another site is data of that package.
        if not any(_below(site, other) for other in named if other != site):
            named.add(site)
    added: set[bytes] = set()
    for pth in ledger.survey.pths:
        directory = pth.rpartition(b"/")[0]
        if directory in named:
            added.update(path_lines(ledger, ledger.text(pth) or b"", directory))
    return frozenset(named | added)


def _rows(ledger: Ledger, info: bytes) -> Rows | None:
    """The rows of RECORD; None where there is none or it can't be had (which is a blindspot: ownership is unsure)."""
    path = info + b"/RECORD"
    if ledger.tree.lookup(path) is None:
        return None
    rows = ledger.rows(path)
    if rows is None:
        ledger.blind("RECORD", "its content was not kept, so whose the files are is unsure", path)
        return None
    if rows.rubbish:
        name, _ = metadata.name_and_version(ledger, info)
        number, why = rows.rubbish[0]
        ledger.note(
            "record-unreadable",
            name,
            path,
            f"RECORD of {name} has {counted(len(rows.rubbish), 'row')} that can't be read in full; the first is row "
            f"{number}: {why}.",
        )
        if not rows.rows:
            ledger.blind("RECORD", "no row of it could be read, so whose the files are is unsure", path)
            return None
    return rows


def _targets(
    ledger: Ledger, rest: list[bytes], sites: frozenset[bytes], records: dict[bytes, Rows | None]
) -> list[bytes]:
    """Of the dist-infos that lie in no site, those in a directory that ``pip install --target`` made."""
    accepted: list[bytes] = []
    packages: set[bytes] = set()  # package directories of accepted targets
    for info in sorted(rest, key=lambda path: (path.count(b"/"), path)):
        site = _site_of(info)
        if _inside(site, sites) or _inside_or_is(site, packages) or not info.endswith(b".dist-info"):
            continue
        rows = _rows(ledger, info)
        records[info] = rows
        if rows is None:
            continue
        own = info[len(site) + 1 :] if site else info
        beside = {
            row.path.partition(b"/")[0]
            for row in rows.rows
            if not row.path.startswith((b"../", b"/", own)) and join(site, row.path) in ledger.tree.entries
        }
        if beside:
            accepted.append(info)
            packages.update(join(site, name) for name in beside)
    return accepted


def _inside(path: bytes, directories: frozenset[bytes]) -> bool:
    """Tell whether one of these directories lies strictly above the path."""
    while path:
        path = path.rpartition(b"/")[0]
        if path in directories:
            return True
    return False


def _inside_or_is(path: bytes, directories: set[bytes]) -> bool:
    while path:
        if path in directories:
            return True
        path = path.rpartition(b"/")[0]
    return False


def egg_link_name(link: bytes) -> str:
    """Return the normalised name of the distribution that an ``.egg-link`` stands for."""
    return metadata.normalised(metadata.text_of(link.rpartition(b"/")[2].removesuffix(b".egg-link")))


def register(ledger: Ledger, place: Place, kind: OwnerKind, packages: tuple[str, ...] | None = None) -> int:
    """Add the distribution and its owner, claim what RECORD lists, and return the owner's index."""
    root = place.project.directory if place.project is not None else place.site
    owner = ledger.owner(kind, place.name, place.version, root)
    listed = None if place.rows is None else _claim_rows(ledger, place, place.rows, owner)
    if packages is None:
        packages = (() if listed is None else listed.packages) or metadata.top_level(ledger, place.info)
        packages = packages or metadata.guessed_packages(ledger, place.site, place.name)
    ledger.distributions.append(
        Distribution(
            name=place.name,
            version=place.version,
            site=place.site,
            info=place.info,
            owner=owner,
            packages=packages,
            entry_points=metadata.entry_points(ledger, place.info),
            editable=place.project.directory if place.project is not None else None,
            recorded=() if listed is None else listed.recorded,
        )
    )
    return owner


def _claim_rows(ledger: Ledger, place: Place, rows: Rows, owner: int) -> Listed:
    """Claim what RECORD lists. What was made of the same RECORD of another image holds for each row whose path stands
    here, too, as it is spelled."""
    known = ledger.records.listed.get(place.info)
    if known is not None and known.rows is rows and known.owner == owner:
        return _claim_alike(ledger, place, known)
    entries = ledger.tree.entries
    folder = place.info.rpartition(b"/")[2]
    inside = join(place.site, b"")
    recorded: list[tuple[bytes, bytes, bytes | None]] = []
    claims: list[tuple[Claim, ...] | None] = []
    for row in rows.rows:
        spelled = row.path
        path = inside + spelled
        entry = entries.get(path)
        if entry is None:
            path = _located(ledger, place.site, spelled)
        elif entry.path == path:
            path = entry.path  # one copy of each, by the hundred thousand
        relative = versionless_path(spelled, folder)
        ledger.claim(path, owner, "record", relative)
        recorded.append((path, spelled, row.digest))
        held = None if entry is None else ledger.claims.get(path)
        # Its relative path shows that it is this row's claim, not that of a row that spells the same path otherwise.
        claims.append(held if held is not None and len(held) == 1 and held[0].relative is relative else None)
    listed = Listed(rows, owner, tuple(recorded), tuple(claims), recorded_packages(place))
    ledger.records.listed[place.info] = listed
    return listed


def _claim_alike(ledger: Ledger, place: Place, known: Listed) -> Listed:
    """Claim what RECORD lists, with the claims of another image where they hold here."""
    entries, claims = ledger.tree.entries, ledger.claims
    folder = place.info.rpartition(b"/")[2]
    recorded: list[tuple[bytes, bytes, bytes | None]] = []
    for listed, claim in zip(known.recorded, known.claims, strict=True):
        path, spelled, digest = listed
        entry = None if claim is None or path in claims else entries.get(path)
        if claim is not None and entry is not None and (entry.type == "file" or entry.type == "symlink"):
            claims[path] = claim
            recorded.append(listed)
            continue
        here = _located(ledger, place.site, spelled)
        ledger.claim(here, known.owner, "record", versionless_path(spelled, folder))
        recorded.append(listed if here == path else (here, spelled, digest))
    return msgspec.structs.replace(known, recorded=tuple(recorded))


def _located(ledger: Ledger, site: bytes, spelled: bytes) -> bytes:
    """The canonical path of a row. pip moves the files of --target after it has written RECORD: its ``../../bin`` is
    ``bin`` in the target then."""
    if spelled.startswith(b"/"):
        return ledger.canonical(spelled.lstrip(b"/"))
    path = ledger.canonical(join(site, spelled))
    if spelled.startswith(b"../../") and site not in ledger.sites and path not in ledger.tree.entries:
        moved = ledger.canonical(join(site, spelled[len(b"../../") :]))
        if moved in ledger.tree.entries:
            return moved
    return path


def versionless_path(spelled: bytes, folder: bytes) -> bytes:
    """Return a path in a site with the version taken out of this dist-info's or egg-info's folder."""
    if spelled.startswith(folder) and spelled[len(folder) : len(folder) + 1] in (b"/", b""):
        return metadata.versionless(folder) + spelled[len(folder) :]
    return spelled


def recorded_packages(place: Place) -> tuple[str, ...]:
    """Return the import names that RECORD's rows provide, sorted."""
    names: set[str] = set()
    seen: set[bytes] = set()
    for row in place.rows.rows if place.rows is not None else ():
        first, slash, _ = row.path.partition(b"/")
        if first in (b"..", b"", b".") or (slash and first in seen) or not metadata.is_module(row.path):
            continue
        seen.add(first)
        name = metadata.import_name(first, bool(slash))
        if name is not None:
            names.add(name)
    return tuple(sorted(names))
