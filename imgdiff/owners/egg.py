"""Distributions with an egg-info: a directory, a single file (distutils, Debian), or ``EGG-INFO`` inside an egg."""

from __future__ import annotations

import msgspec

from imgdiff.owners._installed import register
from imgdiff.owners._ledger import Ledger, join
from imgdiff.owners._place import Place
from imgdiff.owners._record import Row, Rows


def find(ledger: Ledger) -> None:
    """Claim what installed-files.txt lists; without one, the distribution's top-level names are claimed later."""
    for place in ledger.places:
        if place.project is not None or place.info.endswith(b".dist-info"):
            continue
        register(ledger, msgspec.structs.replace(place, rows=_installed_files(ledger, place)), "egg")


def _installed_files(ledger: Ledger, place: Place) -> Rows | None:
    """The paths that ``setup.py install --single-version-externally-managed`` wrote down, relative to the egg-info
    directory; spelled here as RECORD would, relative to the site. No hashes."""
    text = ledger.text(place.info + b"/installed-files.txt")
    if text is None:
        return None
    rows = []
    for line in text.splitlines():
        if not line.strip() or b"\0" in line:
            continue
        folder = place.info.rpartition(b"/")[2]
        if line.startswith(b"/"):
            spelled = line
        elif line.startswith(b"../"):
            spelled = line[3:]
        else:
            spelled = join(folder, line.removeprefix(b"./"))
        rows.append(Row(spelled, None))
    return Rows(tuple(dict.fromkeys(rows)), ()) if rows else None
