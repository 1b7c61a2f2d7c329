"""Distributions with a dist-info: what RECORD lists (PyPA "Recording installed projects")."""

from __future__ import annotations

from imgdiff.owners._installed import register
from imgdiff.owners._ledger import Ledger


def find(ledger: Ledger) -> None:
    """Claim the files of every installed distribution that has a dist-info and is not editable."""
    for place in ledger.places:
        if place.project is None and place.info.endswith(b".dist-info"):
            register(ledger, place, "wheel")
