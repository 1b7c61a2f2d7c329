"""Whose a file can be: one module for each kind of owner, asked in the order of :data:`FINDERS`."""

from __future__ import annotations

from collections.abc import Callable

from imgdiff.owners import (
    bytecode,
    conda,
    dpkg,
    editable,
    egg,
    enclosing,
    prefix,
    rpm,
    stdlib,
    unowned,
    wheel,
)
from imgdiff.owners._environments import find_environments
from imgdiff.owners._installed import places, site_directories, versionless_path
from imgdiff.owners._integrity import check as check_integrity
from imgdiff.owners._ledger import Ledger
from imgdiff.owners._metadata import read_entry_points
from imgdiff.owners._record import Records, read_record

__all__ = [
    "FINDERS",
    "KEPT_PATTERNS",
    "Ledger",
    "Records",
    "check_integrity",
    "open_ledger",
    "read_entry_points",
    "read_record",
    "versionless_path",
]

# Each finder claims what its kind of owner lists. Several owners of a file are all named; the last two only take what
# is left. To add a kind of owner: one module, one line here.
FINDERS: tuple[Callable[[Ledger], None], ...] = (
    wheel.find,
    editable.find,
    egg.find,
    conda.find,
    dpkg.find,
    rpm.find,
    prefix.find,
    stdlib.find,
    enclosing.find_named,
    bytecode.find,
    enclosing.find,
    unowned.find,
)

# Files that the finders read: the indexing pass must keep them whole (regular expressions over the whole path, no
# leading slash). The .py of an editable finder and an interpreter's site.py are kept as sources anyway.
KEPT_PATTERNS: tuple[bytes, ...] = (
    rb"(?:.*/)?[^/]+\.dist-info/(?:RECORD|METADATA|entry_points\.txt|direct_url\.json|top_level\.txt)",
    rb"(?:.*/)?[^/]+\.egg-info(?:/(?:PKG-INFO|METADATA|entry_points\.txt|top_level\.txt|installed-files\.txt))?",
    rb"(?:.*/)?EGG-INFO/(?:PKG-INFO|entry_points\.txt|top_level\.txt)",
    rb"(?:.*/)?[^/]+\.(?:pth|egg-link)",
    rb"(?:.*/)?__editable___[^/]+_finder\.py",
    rb"(?:.*/)?(?:python|pypy)3\.\d+t?/site\.py",
    rb"(?:.*/)?pyvenv\.cfg",
    rb"(?:.*/)?conda-meta/[^/]+\.json",
    rb"var/lib/dpkg/(?:status|diversions|status\.d/[^/]+|info/[^/]+\.(?:list|md5sums))",
    rb"etc/dpkg/dpkg\.cfg(?:\.d/[^/]+)?",
    rb"(?:var/lib/rpm|usr/lib/sysimage/rpm|usr/share/rpm)/rpmdb\.sqlite",
    rb"usr/local/cuda[^/]*/version\.(?:json|txt)",
    rb"opt/rocm[^/]*/\.info/version",
)


def open_ledger(ledger: Ledger) -> None:
    """Fill in what several finders need: environments, their sites, and the distributions installed in them."""
    ledger.environments = find_environments(ledger)
    ledger.sites = site_directories(ledger)
    ledger.places = places(ledger)
