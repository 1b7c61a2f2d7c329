"""The ``.pyc`` of an owned source belongs to whom the source belongs (PEP 3147, PEP 488)."""

from __future__ import annotations

from imgdiff.model import Claim
from imgdiff.owners._ledger import Ledger

_PYCACHE = b"__pycache__"


def find(ledger: Ledger) -> None:
    """Claim each ``.pyc`` beside an owned source for the source's owners, where they do not list it themselves."""
    entries, claims = ledger.tree.entries, ledger.claims
    for path in ledger.survey.bytecode:
        directory, _, name = path.rpartition(b"/")
        if directory.endswith(_PYCACHE):
            # name.tag.pyc or name.tag.opt-1.pyc, as importlib's source_from_cache has it
            parts = name.split(b".")
            if len(parts) != 3 and not (len(parts) == 4 and parts[2].startswith(b"opt-")):
                continue
            source = directory[: -len(_PYCACHE)] + parts[0] + b".py"
        else:
            source = path[:-1]
        held = claims.get(source)
        if held is None or source not in entries:
            continue
        cut = len(source.rpartition(b"/")[0])
        rest = path[cut + 1 :] if cut else path
        for claim in held:
            ledger.claim(path, claim.owner, "bytecode", _beside(claim, rest))


def _beside(claim: Claim, rest: bytes) -> bytes:
    parent = claim.relative.rpartition(b"/")[0]
    return parent + b"/" + rest if parent else rest
