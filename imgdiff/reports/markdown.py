"""The report for an issue thread: verdict, digests and command first, details folded, always under GitHub's limit.

Text from images stands in code spans or is escaped (GitHub Flavored Markdown, "Code spans", "Backslash escapes"), so
that no file name can make a link, a mention, a table cell or HTML.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from imgdiff.model import ImageSummary, JudgedChange, Report
from imgdiff.reports._view import (
    View,
    caveats,
    chain_text,
    counted,
    effect_text,
    groups,
    moved_text,
    mtime_text,
    narrowing,
    number,
    owner_rows,
    path_text,
    safe,
    share,
    shown_changes,
    size_text,
    version_text,
    weighs,
)

LIMIT = 65_536  # characters of one GitHub comment
ROOM_FOR_NOTICE = 400

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@&$^:-])")
_MOST_TEXT = 600  # of one sentence from a kind


def render(report: Report, view: View, *, limit: int = LIMIT) -> str:
    """Return the report as GitHub Flavored Markdown of less than ``limit`` characters, saying what was left out."""
    blocks = _Budget(limit - ROOM_FOR_NOTICE)
    blocks.add("verdict", _verdict(report, view))
    for title, lines in _sections(report, view):
        blocks.add(title, [f"<details><summary>{title}</summary>", "", *lines, "", "</details>", ""], fold=True)
    return blocks.text()


class _Budget:
    """Collects blocks of lines until the room is used up; a folded block may be cut, and then says so."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._lines: list[str] = []
        self._left_out: list[str] = []

    def add(self, title: str, lines: Sequence[str], *, fold: bool = False) -> None:
        cost = sum(len(line) + 1 for line in lines)
        if cost <= self._room:
            self._lines.extend(lines)
            self._room -= cost
            return
        tail = lines[-3:] if fold else []
        body = lines[: len(lines) - len(tail)]
        room = self._room - sum(len(line) + 1 for line in tail) - 80
        kept: list[str] = []
        for line in body:
            if len(line) + 1 > room:
                break
            kept.append(line)
            room -= len(line) + 1
        missing = len(body) - len(kept)
        if fold and len(kept) < 4:
            self._left_out.append(title)
            return
        self._lines.extend([*kept, "", f"... and {missing:,} more lines", *tail])
        self._room = max(room, 0)
        self._left_out.append(f"{missing:,} lines of {title!r}")

    def text(self) -> str:
        notice = []
        if self._left_out:
            named = "; ".join(self._left_out)[: ROOM_FOR_NOTICE - 120]
            notice = ["", f"_Left out to stay under the limit of a comment: {named}. The JSON report has everything._"]
        return "\n".join([*self._lines, *notice]).rstrip("\n") + "\n"


def escape(text: str) -> str:
    """Return text in which nothing is Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", safe(text)).replace("\n", " ")


def code(text: str) -> str:
    """Return text as a code span; a fence one backtick longer than any run inside keeps it closed."""
    text = safe(text).replace("|", "\\|") or " "
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "..."


def _verdict(report: Report, view: View) -> list[str]:
    verdict = report.verdict
    headline = escape(verdict.headline.removeprefix(verdict.outcome))
    lines = [f"### imgdiff: **{verdict.outcome}**{headline}", "", f"Evidence: {verdict.confidence}.", ""]
    lines += [f"- {escape(_cut(reason))}" for reason in verdict.reasons]
    lines += ["", "| | image | manifest or config | platform | files |", "|---|---|---|---|---:|"]
    for side, image in (("a", report.image_a), ("b", report.image_b)):
        lines.append(f"| {side} | {_image(image)} |")
    if report.argv:
        lines += ["", "```console", "$ " + safe(shlex.join(report.argv)).replace("```", "'''"), "```"]
    if narrowed := narrowing(view):
        lines += ["", escape(narrowed)]
    lines.append("")
    return lines


def _image(image: ImageSummary) -> str:
    digest = image.manifest_digest or image.config_digest
    files = f"{image.files:,} ({size_text(image.bytes)})"
    return " | ".join(
        (f"{code(image.reference)} ({image.source})", code(digest) if digest else "none", escape(image.platform), files)
    )


def _sections(report: Report, view: View) -> Iterator[tuple[str, list[str]]]:
    roles = tuple(report.roles)
    changes = shown_changes(report, view)
    bearing = [judged for judged in changes if weighs(judged)]
    rest = [judged for judged in changes if not weighs(judged)]
    weigh = sum(weighs(judged) for judged in report.changes)
    if weigh:
        yield f"Differences that bear on a role ({share(len(bearing), weigh)})", list(_bearing(bearing, roles))
    if report.config:
        yield f"Image config ({len(report.config):,})", list(_config(report))
    if report.resolution:
        yield f"Names that resolve differently ({len(report.resolution):,})", list(_resolution(report))
    differing, same = owner_rows(report, view)
    if differing or same:
        all_differing, all_same = owner_rows(report, View())
        counts = share(len(differing), len(all_differing)), share(len(same), len(all_same))
        yield f"Owners (differ: {counts[0]}; the same to the byte: {counts[1]})", list(_owners(report, view))
    if report.blindspots:
        yield f"Blindspots ({len(report.blindspots):,})", list(_blindspots(report))
    if report.verdict.caveats:
        yield "Not covered", [f"- {escape(text)}" for text in caveats(report)]
    if report.verdict.settle:
        yield "What would settle it", [f"- {escape(text)}" for text in report.verdict.settle]
    light = len(report.changes) - weigh
    if light or report.mtime_only:
        yield f"Differences that bear on no role ({share(len(rest), light)})", list(_rest(report, rest, roles))
    if report.integrity:
        yield (
            f"Each image against itself ({len(report.integrity):,})",
            [f"- {item.image}: {escape(item.message)} ({item.code})" for item in report.integrity],
        )


def _bearing(changes: Iterable[JudgedChange], roles: Sequence[str]) -> Iterator[str]:
    for judged in changes:
        owners = ", ".join(dict.fromkeys((*judged.owner_names_b, *judged.owner_names_a)))
        yield f"- {code(moved_text(judged))} ({effect_text(judged)}; {escape(owners)})"
        if judged.change.delta is not None:
            yield f"  {escape(_cut(judged.change.delta.reason))}"
        for role in roles:
            evidence = judged.load[role]
            chain = chain_text(evidence) or evidence.note or ""
            yield f"  - {role}: **{evidence.level}**, {judged.bears[role]}" + (f": {code(chain)}" if chain else "")


def _owners(report: Report, view: View) -> Iterator[str]:
    differing, same = owner_rows(report, view)
    if differing:
        yield "| owner | version | same | modified | added | removed | retyped | moved | attributes | loaded |"
        yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        for row in differing:
            tally = row.tally
            counts = (
                tally.identical,
                tally.modified,
                tally.added,
                tally.removed,
                tally.retyped,
                tally.moved,
                tally.attributes,
                row.loaded,
            )
            cells = (code(row.name), escape(version_text(row)), *(number(count) for count in counts))
            yield f"| {' | '.join(cells)} |"
        yield ""
    if same:
        yield "The same to the byte (owner, version, files, root):"
        yield ""
        for row in sorted(same, key=lambda row: (-row.tally.files_b, row.name)):
            root = f", {code(row.tally.root_b)}" if row.tally.root_b else ""
            name = f"{code(row.name)} {escape(version_text(row))}".rstrip()
            yield f"- {name}, {counted(row.tally.files_b, 'file')}{root}"


def _rest(report: Report, rest: Sequence[JudgedChange], roles: Sequence[str]) -> Iterator[str]:
    for why, owner, members in groups(rest, roles):
        example = (", e.g. " if len(members) > 1 else ": ") + code(moved_text(members[0]))
        yield f"- {len(members):,} of {code(owner)}, {escape(_cut(why))}{example}"
    if report.mtime_only:
        yield f"- {mtime_text(report.mtime_only)}"


def _config(report: Report) -> Iterator[str]:
    yield "| field | a | b | bears | why |"
    yield "|---|---|---|---|---|"
    for change in report.config:
        name = f"{change.field} {code(change.name)}" if change.name else change.field
        a, b = ("(none)" if value is None else code(_cut(value)) for value in (change.a, change.b))
        yield f"| {name} | {a} | {b} | {change.bears} | {escape(change.reason)} |"


def _resolution(report: Report) -> Iterator[str]:
    for item in report.resolution:
        a = "nothing" if item.a is None else code(path_text(item.a.path))
        b = "nothing" if item.b is None else code(path_text(item.b.path))
        yield f"- {item.role}: {item.kind} {code(item.name)} ({item.level}): {a} \u2192 {b}"


def _blindspots(report: Report) -> Iterator[str]:
    for spot in report.blindspots:
        where = f"{spot.image}: " if spot.image else ""
        path = f" {code(path_text(spot.path))}" if spot.path is not None else ""
        roles = f" (blocks {', '.join(spot.roles)})" if spot.roles else " (blocks no role)"
        yield f"- {where}{escape(spot.what)}{path}: {escape(spot.reason)}{roles}"
