"""The report for an issue thread: verdict, digests and command first, details folded, always under GitHub's limit.

Text from images stands in code spans (GitHub Flavored Markdown, "Code spans"): whole where it is a name, else word by
word, wherever a word could be more than a word. So no file name can make a link, a mention, a table cell or HTML.
Backslashes would not do: GitHub looks for mentions and issue numbers in the text that is left after Markdown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from imgdiff.model import WHEEL_SOURCE, ConfigChange, ImageSummary, JudgedChange, Outcome, Report
from imgdiff.reports._view import (
    Blind,
    Resolution,
    View,
    alike,
    blindspots,
    caveats,
    closed,
    config_changes,
    counted,
    groups,
    identity,
    integrity,
    moved_text,
    mtime_text,
    narrowing,
    number,
    owner_rows,
    recordings,
    resolutions,
    safe,
    share,
    shown_changes,
    size_text,
    version_text,
    weighs,
)

LIMIT = 65_536  # characters of one GitHub comment
ROOM_FOR_NOTICE = 400

# A word is only a word if it has none of these, is no bare host name and no issue number, and no list marker first.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#|~@&$^/]|www\.|gh-\d", re.IGNORECASE)
_MARKER = re.compile(r"[-+=:]+|\d{1,9}[.)]")
# What a sentence of ours has in backticks, a command line say, is one span; else each word is for itself.
_TOKEN = re.compile(r"[(\"']*`[^`\s][^`]*`[)\"'.,;:!?]*(?!\S)|\S+")
_QUOTED = re.compile(r"([(\"']*)`([^`]+)`([)\"'.,;:!?]*)")
_AROUND = re.compile(r"([(\"']*)(.*?)([)\"'.,;:!?]*)", re.DOTALL)
_MEANS: dict[Outcome, str] = {
    "identical": "no difference was found in what was compared",
    "killed": "what differs can't explain what these processes do",
    "stands": "what differs is loaded, or steers them, when they start; that does not prove that it is the cause",
    "undecided": "something that differs may be loaded, or that could not be told",
}
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


def prose(text: str, *, cell: bool = False) -> str:
    """Return a sentence in which nothing is Markdown or HTML: words that could be, and what stands in backticks, are
    code spans."""
    words = _TOKEN.findall(" ".join(safe(text).split()))
    return " ".join(_word(word, first=not position, cell=cell) for position, word in enumerate(words))


def _word(word: str, *, first: bool, cell: bool) -> str:
    if quoted := _QUOTED.fullmatch(word):
        before, inner, after = quoted.groups()
        return f"{before}{code(inner, cell=cell)}{after}"
    if not _SPECIAL.search(word) and not (first and _MARKER.fullmatch(word)):
        return word
    found = _AROUND.fullmatch(word)
    before, inner, after = found.groups() if found is not None else ("", word, "")
    if not inner:  # a list marker, or punctuation alone
        return code(word, cell=cell)
    return f"{before}{code(inner, cell=cell)}{after}"


def code(text: str, *, cell: bool = False) -> str:
    """Return text as a code span; a fence one backtick longer than any run inside keeps it closed. In a ``cell`` of a
    table a bar is escaped, which there holds inside of code too."""
    text = safe(text) or " "
    fence = _fence(text, 1)
    outer = text[0] + text[-1]
    pad = " " if "`" in outer or (outer == "  " and text.strip()) else ""
    if cell:
        text = text.replace("|", "\\|")
    return f"{fence}{pad}{text}{pad}{fence}"


def _fence(text: str, least: int) -> str:
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])


def _cut(text: str) -> str:
    return (
        text if len(text) <= _MOST_TEXT else closed(text[:_MOST_TEXT].rpartition(" ")[0] or text[:_MOST_TEXT]) + " ..."
    )


def _verdict(report: Report, view: View) -> list[str]:
    verdict = report.verdict
    headline = prose(verdict.headline.removeprefix(verdict.outcome))
    lines = [f"### imgdiff: **{verdict.outcome}** {headline}", "", _meaning(report), ""]
    lines += [f"- {prose(_cut(reason))}" for reason in verdict.reasons]
    what = "digest" if WHEEL_SOURCE in (report.image_a.source, report.image_b.source) else "manifest or config"
    lines += ["", f"| | image | {what} | platform | files |", "|---|---|---|---|---:|"]
    for side, image in (("a", report.image_a), ("b", report.image_b)):
        lines.append(f"| {side} | {_image(image)} |")
    if report.argv:
        command = safe(shlex.join(report.argv))
        fence = _fence(command, 3)
        lines += ["", f"{fence}console", f"$ {command}", fence]
    if narrowed := narrowing(view):
        lines += ["", prose(narrowed)]
    lines.append("")
    return lines


def _meaning(report: Report) -> str:
    """Return what a reader of the thread, who has not seen imgdiff, needs to read the headline."""
    verdict = report.verdict
    return f"Evidence: {verdict.confidence}. {verdict.outcome}: {_MEANS[verdict.outcome]} (imgdiff {report.version})."


def _image(image: ImageSummary) -> str:
    known = identity(image)
    platform = "any" if image.source == WHEEL_SOURCE else prose(image.platform, cell=True)
    files = f"{image.files:,} ({size_text(image.bytes)})"
    name = f"{code(image.reference, cell=True)} ({prose(image.source, cell=True)})"
    return " | ".join((name, code(known[1], cell=True) if known else "none", platform, files))


def _sections(report: Report, view: View) -> Iterator[tuple[str, list[str]]]:
    roles = tuple(report.roles)
    changes = shown_changes(report, view)
    bearing = [judged for judged in changes if weighs(judged)]
    rest = [judged for judged in changes if not weighs(judged)]
    weigh = sum(weighs(judged) for judged in report.changes)
    if runs := recordings(report):
        yield f"Recordings ({len(report.recordings):,})", [f"- {prose(text)}" for text in runs]
    if weigh:
        yield f"Differences that bear on a role ({share(len(bearing), weigh)})", list(_bearing(bearing, roles))
    if report.config:
        yield f"Image config ({len(report.config):,})", list(_config(config_changes(report)))
    if names := resolutions(report):
        yield f"Names that resolve differently ({len(names):,})", list(_resolution(names))
    differing, same = owner_rows(report, view)
    if differing or same:
        all_differing, all_same = owner_rows(report, View())
        counts = share(len(differing), len(all_differing)), share(len(same), len(all_same))
        yield f"Owners (differ: {counts[0]}; the same to the byte: {counts[1]})", list(_owners(report, view))
    if spots := blindspots(report):
        yield f"Blindspots ({len(spots):,})", list(_blindspots(spots))
    if said := caveats(report):
        yield f"Not covered ({len(said):,})", [f"- {prose(text)}" for text in said]
    if report.verdict.settle:
        yield "What would settle it", [f"- {prose(text)}" for text in report.verdict.settle]
    light = len(report.changes) - weigh
    if light or report.mtime_only:
        yield f"Differences that bear on no role ({share(len(rest), light)})", list(_rest(report, rest, roles))
    if found := integrity(report):
        yield (
            f"Each image against itself ({len(found):,})",
            [f"- {sides}: {prose(message)} ({word})" for sides, message, word in found],
        )


def _bearing(changes: Sequence[JudgedChange], roles: Sequence[str]) -> Iterator[str]:
    for group in alike(changes, roles):
        for paths, what, diff in group.members:
            yield from (f"- {code(path)}" for path in paths)
            yield f"  {prose(_cut(what))}"
            if diff:  # one element, so that a cut leaves no block open
                fence = _fence("\n".join(diff), 3)
                yield "\n".join(("", f"  {fence}diff", *(f"  {line}" for line in diff), f"  {fence}", ""))
        for names, text, _ in group.evidence:
            yield f"  - {', '.join(names)}: {_level(text)}"


def _level(text: str) -> str:
    """Return "**eager** (stands): `chain`" of what is said of a role."""
    level, _, chain = text.partition(": ")
    word, _, rest = level.partition(" ")
    return f"**{word}** {rest}" + (f": {code(chain)}" if chain else "")


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
            version = prose(version_text(row), cell=True)
            cells = (code(row.name, cell=True), version, *(number(count) for count in counts))
            yield f"| {' | '.join(cells)} |"
        yield ""
    if same:
        yield "The same to the byte (owner, version, files, root):"
        yield ""
        for row in sorted(same, key=lambda row: (-row.tally.files_b, row.name)):
            root = f", {code(row.tally.root_b)}" if row.tally.root_b else ""
            name = f"{code(row.name)} {prose(version_text(row))}".rstrip()
            yield f"- {name}, {counted(row.tally.files_b, 'file')}{root}"


def _rest(report: Report, rest: Sequence[JudgedChange], roles: Sequence[str]) -> Iterator[str]:
    for why, owner, members in groups(rest, roles):
        example = (", e.g. " if len(members) > 1 else ": ") + code(moved_text(members[0]))
        yield f"- {len(members):,} of {code(owner)}, {prose(_cut(why))}{example}"
    if report.mtime_only:
        yield f"- {mtime_text(report.mtime_only)}"


def _config(changes: Sequence[ConfigChange]) -> Iterator[str]:
    yield "| field | a | b | bears | why |"
    yield "|---|---|---|---|---|"
    for change in changes:
        name = f"{change.field} {code(change.name, cell=True)}" if change.name else change.field
        a, b = ("(none)" if value is None else code(_cut(value), cell=True) for value in (change.a, change.b))
        yield f"| {name} | {a} | {b} | {change.bears} | {prose(change.reason, cell=True)} |"


def _resolution(names: Sequence[Resolution]) -> Iterator[str]:
    for item in names:
        a, b = ("nothing" if path is None else code(path) for path in (item.a, item.b))
        yield f"- {', '.join(item.roles)}: {item.what} {code(item.name)} ({item.said}): {a} \u2192 {b}"


def _blindspots(spots: Sequence[Blind]) -> Iterator[str]:
    for spot in spots:
        where = f"{spot.sides}: " if spot.sides else ""
        path = f" {code(spot.path)}" if spot.path is not None else ""
        roles = f" (blocks {', '.join(spot.roles)})" if spot.roles else " (blocks no role)"
        yield f"- {where}{prose(spot.what)}{path}: {prose(spot.reason)}{roles}"
