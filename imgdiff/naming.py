"""Owners' names in a report: unique, and plain for the copy that matters. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from imgdiff.model import JudgedChange, Level, Owner, OwnerRow, OwnerTally

_LOADED: frozenset[Level] = frozenset({"recorded", "eager", "deferred"})


def unique_names(tallies: Sequence[OwnerTally], preferred: Collection[tuple[str, str]]) -> dict[Owner, str]:
    """Return a unique name for each owner of both images; the two sides of a tally share theirs.

    The plain name goes to the copy that the first role resolves (``preferred``: kind and name), else to the only
    one or the first of its kind; another kind is ``kind:name``, a further environment ``name@ROOT``.
    """
    by_name: dict[str, list[OwnerTally]] = {}
    for tally in tallies:
        by_name.setdefault(_owner(tally).name, []).append(tally)
    names: dict[Owner, str] = {}
    for name, group in by_name.items():
        group.sort(key=lambda tally: _rank(tally, preferred))
        kinds_seen: set[str] = set()
        for position, tally in enumerate(group):
            owner = _owner(tally)
            unique = name
            if position:
                unique = name if owner.kind == _owner(group[0]).kind else f"{owner.kind}:{name}"
                if owner.kind in kinds_seen:
                    unique += "@/" + owner.root.decode("utf-8", "backslashreplace")
            kinds_seen.add(owner.kind)
            for side in (tally.a, tally.b):
                if side is not None:
                    names[side] = unique
    return names


def _owner(tally: OwnerTally) -> Owner:
    owner = tally.b if tally.b is not None else tally.a
    assert owner is not None
    return owner


def _rank(tally: OwnerTally, preferred: Collection[tuple[str, str]]) -> tuple[bool, str, bytes]:
    owner = _owner(tally)
    return (owner.kind, owner.name) not in preferred, owner.kind, owner.root


def owner_rows(
    tallies: Sequence[OwnerTally], names: Mapping[Owner, str], changes: Sequence[JudgedChange], claim: Sequence[str]
) -> tuple[OwnerRow, ...]:
    """Return one row for each owner, by name; ``loaded`` counts its differing files that a claimed role loads."""
    loaded: dict[str, int] = {}
    for judged in changes:
        if any(judged.load[role].level in _LOADED for role in claim):
            for name in {*judged.owner_names_a, *judged.owner_names_b}:
                loaded[name] = loaded.get(name, 0) + 1
    rows = [
        OwnerRow(names[_owner(tally)], _owner(tally).kind, tally, loaded.get(names[_owner(tally)], 0))
        for tally in tallies
    ]
    return tuple(sorted(rows, key=lambda row: row.name))
