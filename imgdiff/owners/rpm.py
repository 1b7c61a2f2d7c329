"""RPM packages."""

from __future__ import annotations

from imgdiff.owners._ledger import Ledger


def find(ledger: Ledger) -> None:
    """Claim."""
