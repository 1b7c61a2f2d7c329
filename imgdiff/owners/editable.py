"""Editable installs: the files of the project directory that a distribution in a site points at."""

from __future__ import annotations

from collections.abc import Iterator

from imgdiff.model import Distribution
from imgdiff.owners import _metadata as metadata
from imgdiff.owners._installed import egg_link_name, recorded_packages, register
from imgdiff.owners._ledger import Ledger, below, join
from imgdiff.owners._place import Place, Project
from imgdiff.owners._projects import egg_link_target


def find(ledger: Ledger) -> None:
    """Claim the project of every editable install: PEP 660 and PEP 610 ones, and setuptools' egg-links."""
    for place in ledger.places:
        if place.project is not None:
            owner = register(ledger, place, "editable", _packages(ledger, place, place.project))
            _claim_project(ledger, place.project, owner)
    for link in ledger.survey.egg_links:
        if link.rpartition(b"/")[0] in ledger.sites:
            _egg_link(ledger, link)


def _egg_link(ledger: Ledger, link: bytes) -> None:
    """``name.egg-link``: its first line is the directory that easy-install.pth puts on sys.path."""
    directory = egg_link_target(ledger, link)
    if directory is None:
        ledger.blind("egg-link", "it names no directory that is in the image, or its content was not kept", link)
        return
    site, _, name = link.rpartition(b"/")
    wanted = egg_link_name(link)
    infos = [join(directory, child) for child in ledger.tree.children(directory) if child.endswith(b".egg-info")]
    info = next((each for each in infos if metadata.name_and_version(ledger, each)[0] == wanted), link)
    found, version = metadata.name_and_version(ledger, info) if info != link else (wanted, None)
    owner = ledger.owner("editable", found, version, directory)
    ledger.claim(link, owner, "editable", name)
    project = Project(directory)
    _claim_project(ledger, project, owner)
    ledger.distributions.append(
        Distribution(
            name=found,
            version=version,
            site=site,
            info=info,
            owner=owner,
            packages=metadata.top_level(ledger, info) or tuple(_importable(ledger, directory)),
            entry_points=metadata.entry_points(ledger, info),
            editable=directory,
        )
    )


def _packages(ledger: Ledger, place: Place, project: Project) -> tuple[str, ...]:
    """The import names of a project: what its finder maps, what metadata says, else what lies in its search
    directories."""
    names = {name.partition(".")[0] for name, _ in project.mapping}
    names.update(name for name in recorded_packages(place) if not name.startswith("__editable__"))
    names.update(metadata.top_level(ledger, place.info))
    if not names:
        for info in _egg_infos(ledger, place.name, project):
            names.update(metadata.top_level(ledger, info))
    if not names:
        for directory in project.search or (join(project.directory, b"src"), project.directory):
            names.update(_importable(ledger, directory))
    return tuple(sorted(names))


def _egg_infos(ledger: Ledger, name: str, project: Project) -> Iterator[bytes]:
    """The egg-infos of this name that building left in the project."""
    for directory in (project.directory, join(project.directory, b"src"), *project.search):
        for child in ledger.tree.children(directory):
            info = join(directory, child)
            if child.endswith(b".egg-info") and metadata.name_and_version(ledger, info)[0] == name:
                yield info


def _importable(ledger: Ledger, directory: bytes) -> Iterator[str]:
    for child in ledger.tree.children(directory):
        if b"__init__.py" in ledger.tree.children(join(directory, child)):
            name = metadata.import_name(child, True)
            if name is not None:
                yield name


def _claim_project(ledger: Ledger, project: Project, owner: int) -> None:
    """Claim all that lies in the project directory, and what the finder maps from elsewhere; not the environments
    that lie in it."""
    entries = ledger.tree.entries
    if not project.directory:
        return  # an install that points at the root of the file system says nothing of whose the files are
    apart = _environments_in(ledger, project.directory)
    outside = [path for _, path in project.mapping if not path.startswith(project.directory + b"/")]
    for start in (project.directory, *outside):
        base = project.directory if start == project.directory else start.rpartition(b"/")[0]
        cut = len(base) + 1 if base else 0
        if start in entries and entries[start].type != "dir":
            ledger.claim(start, owner, "editable", start[cut:])
        for path in below(ledger.tree, start, apart):
            ledger.claim(path, owner, "editable", path[cut:])


def _environments_in(ledger: Ledger, directory: bytes) -> frozenset[bytes]:
    apart: set[bytes] = set()
    for environment in ledger.environments:
        places = [environment.prefix, environment.stdlib or b"", *environment.sites, *environment.user_sites]
        apart.update(place for place in places if place.startswith(directory + b"/"))
    apart.discard(directory)
    return frozenset(apart)
