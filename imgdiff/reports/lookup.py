"""What ``imgdiff resolve`` writes: which copy a name leads to, as text and as JSON (docs/resolve-v1.schema.json)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from imgdiff.model import (
    Edge,
    Evidence,
    Level,
    Lookup,
    LookupAnswer,
    LookupCandidate,
    LookupKind,
    LookupLoad,
    LookupPlace,
    LookupSource,
)
from imgdiff.reports._view import chain_steps, counted, path_text, safe

FORMATS = ("text", "json")
_MAX_ELSEWHERE = 20  # files of other places that the text names


class WireFile(msgspec.Struct, frozen=True):
    """A file for a name: ``path`` as it is opened, ``file`` the canonical path (null: a directory alone)."""

    path: str
    file: str | None
    digest: str | None
    owners: tuple[str, ...]
    wins: bool
    note: str | None


class WirePlace(msgspec.Struct, frozen=True):
    """A place that is searched; ``by`` and ``line`` say which file puts it there, ``said`` in words what does."""

    source: LookupSource
    directory: str | None
    present: bool
    by: str | None
    line: int | None
    said: str | None
    candidates: list[WireFile]


class WireAnswer(msgspec.Struct, frozen=True):
    """What the name is to the processes in ``asked_by``: ``found`` is empty where it is nothing."""

    kind: LookupKind
    asked_by: tuple[str, ...]
    found: list[WireFile]
    places: list[WirePlace]
    notes: tuple[str, ...]
    elsewhere: list[WireFile]


class WireStep(msgspec.Struct, frozen=True):
    """One step of a chain."""

    module: str | None
    path: str
    line: int | None
    function: str | None
    edge: Edge


class WireTraced(msgspec.Struct, frozen=True):
    """A copy that a role's trace takes for the name; ``label`` tells several copies apart."""

    role: str
    kind: LookupKind
    label: str
    level: Level
    file: str
    chain: list[WireStep]


class WireLookup(msgspec.Struct, frozen=True):
    """The whole answer. Paths are absolute; bytes that are no UTF-8 are written ``\\xNN``."""

    schema: Literal["imgdiff/resolve/v1"]
    version: str
    image: str
    name: str
    profile: str | None
    found: bool
    answers: list[WireAnswer]
    roles: tuple[str, ...]
    traced: list[WireTraced]
    caveats: tuple[str, ...]


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the answer."""
    made = msgspec.json.schema(WireLookup)
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["title"] = "imgdiff resolve, version 1"
    return made


def found(lookup: Lookup) -> bool:
    """Tell whether the name leads to anything."""
    return any(answer.winners for answer in lookup.answers) or bool(lookup.loads)


def render(lookup: Lookup, format_: str) -> str:
    """Return the answer in one of ``FORMATS``."""
    if format_ == "json":
        return msgspec.json.format(msgspec.json.encode(_wire(lookup)), indent=2).decode() + "\n"
    return "\n".join(_text(lookup)) + "\n"


# JSON -----------------------------------------------------------------------------------------------------------------


def _wire(lookup: Lookup) -> WireLookup:
    return WireLookup(
        "imgdiff/resolve/v1",
        lookup.version,
        lookup.reference,
        lookup.name,
        lookup.profile,
        found(lookup),
        [
            WireAnswer(
                answer.kind,
                answer.asked_by,
                [_file(each) for each in answer.winners],
                [_place(place) for place in answer.places],
                answer.notes,
                [_file(each) for each in answer.elsewhere],
            )
            for answer in lookup.answers
        ],
        lookup.roles,
        [_traced(load) for load in lookup.loads],
        lookup.caveats,
    )


def _path(path: bytes | None) -> str | None:
    return None if path is None else "/" + path.decode("utf-8", "backslashreplace")


def _file(each: LookupCandidate) -> WireFile:
    digest = None if each.digest is None else "sha256:" + each.digest.hex()
    return WireFile(_path(each.path) or "/", _path(each.file), digest, each.owners, each.wins, each.note)


def _place(place: LookupPlace) -> WirePlace:
    candidates = [_file(each) for each in place.candidates]
    directory, by = _path(place.directory), _path(place.by)
    return WirePlace(place.source, directory, place.present, by, place.line, place.said, candidates)


def _traced(load: LookupLoad) -> WireTraced:
    chain = [WireStep(hop.module, _path(hop.path) or "/", hop.line, hop.function, hop.edge) for hop in load.chain]
    return WireTraced(load.role, load.kind, load.label, load.level, _path(load.file) or "/", chain)


# Text -----------------------------------------------------------------------------------------------------------------


def _text(lookup: Lookup) -> Iterator[str]:
    kinds = {answer.kind for answer in lookup.answers if answer.winners}
    none = {answer.kind for answer in lookup.answers} - kinds if kinds else set()
    for number, answer in enumerate(each for each in lookup.answers if each.kind not in none):
        if number:
            yield ""
        yield from _answer(answer)
    for kind in sorted(none):  # where the name is something else, what was searched for this is of no use
        yield f"{safe(lookup.name)}: no {kind} of this name is found"
    for role in lookup.roles:
        yield ""
        yield from _role(role, [load for load in lookup.loads if load.role == role])
    if lookup.caveats:
        yield ""
        yield from (f"note: {safe(text)}" for text in lookup.caveats)


def _answer(answer: LookupAnswer) -> Iterator[str]:
    name = safe(answer.name)
    if not answer.winners:
        yield f"{name}: no {answer.kind} of this name is found"
    for each in answer.winners:
        yield f"{name} -> {path_text(each.file if each.file is not None else each.path)}"
        if each.file is not None and each.file != each.path:
            yield f"  opened as {path_text(each.path)}"
        if each.digest is not None:
            yield f"  sha256:{each.digest.hex()}"
        yield f"  owner: {safe(', '.join(each.owners)) or '-'}"
        if each.note is not None:
            yield f"  {safe(each.note)}"
    if len(answer.winners) > 1:
        yield "  Each of these counts: the CPU, or what happens at start (ldconfig, a line of a script), decides."
    yield from (f"  {safe(note)}" for note in answer.notes)
    yield f"  asked by: {safe('; '.join(answer.asked_by))}"
    yield "  searched, in this order:"
    for number, place in enumerate(answer.places, 1):
        yield from _place_text(number, place)
    if answer.elsewhere:
        yield "  also in the image, where nothing looks:"
        for each in answer.elsewhere[:_MAX_ELSEWHERE]:
            yield f"      {_candidate(each)}"
        more = len(answer.elsewhere) - _MAX_ELSEWHERE
        if more > 0:
            yield f"      and {counted(more, 'file')} more"


def _place_text(number: int, place: LookupPlace) -> Iterator[str]:
    directory = f" {path_text(place.directory)}" if place.directory is not None else ""
    by = f" by {path_text(place.by)}" if place.by is not None else ""
    line = f":{place.line}" if place.line is not None and by else ""
    said = f" ({safe(place.said)})" if place.said and place.said != place.source else ""
    missing = "" if place.present else ": not there"
    yield f"  {number:>3}. {place.source}{directory}{by}{line}{said}{missing}"
    for each in place.candidates:
        mark = "=>" if each.wins else "  "
        yield f"       {mark} {_candidate(each)}"


def _candidate(each: LookupCandidate) -> str:
    link = f" = {path_text(each.file)}" if each.file is not None and each.file != each.path else ""
    digest = f"  sha256:{each.digest.hex()[:12]}" if each.digest is not None else ""
    owners = f"  {safe(', '.join(each.owners))}" if each.owners else ""
    note = f"  ({safe(each.note)})" if each.note else ""
    return f"{path_text(each.path)}{link}{digest}{owners}{note}"


def _role(role: str, loads: list[LookupLoad]) -> Iterator[str]:
    if not loads:
        yield f"{safe(role)}: the trace of this role does not reach the name"
    for load in loads:
        yield f"{safe(role)}: {safe(load.label)} is {load.level}, {path_text(load.file)}"
        yield from (f"    {step}" for step in chain_steps(Evidence(load.level, chain=load.chain)))
