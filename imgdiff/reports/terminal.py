"""The report for a terminal: the verdict first, then what supports it. rich's one door, with the progress display."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from imgdiff.model import Evidence, ImageSummary, JudgedChange, Outcome, OwnerRow, Report
from imgdiff.reports._view import (
    View,
    caveats,
    chain_steps,
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

STYLES: dict[Outcome, str] = {
    "identical": "bold green",
    "killed": "bold green",
    "stands": "bold red",
    "undecided": "bold yellow",
}
COUNTS = ("same", "mod", "add", "del", "type", "move", "attr", "loaded")  # a column that is empty is not shown
MOST_CHANGES = 12  # differences shown one by one without -v
MOST_ROWS = 25  # rows of a table without -v


def render(report: Report, view: View, *, color: bool = False, width: int = 80) -> str:
    """Return the report as text for a terminal of ``width`` columns; escape sequences only where ``color``."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    _Terminal(console, report, view).print()
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


class _Terminal:
    def __init__(self, console: Console, report: Report, view: View) -> None:
        self._console, self._report, self._view = console, report, view
        self._roles = tuple(report.roles)

    def print(self) -> None:
        self._verdict()
        self._images()
        self._owners()
        self._bearing()
        self._rest()
        self._config()
        self._resolution()
        self._integrity()
        self._list(
            "Blindspots", [_blindspot_text(self._report, position) for position in range(len(self._report.blindspots))]
        )
        self._list("Not covered", caveats(self._report), limit=None)
        self._list("What would settle it", list(self._report.verdict.settle), limit=None)

    def _line(self, text: str | Text = "", indent: int = 0) -> None:
        """Print one paragraph, wrapped at spaces with its indent kept; a long path is never cut in two."""
        if isinstance(text, Text) and text.spans and len(text.plain) + indent <= self._console.width:
            self._console.print(Text(" " * indent) + text, soft_wrap=True)
            return
        plain = text.plain if isinstance(text, Text) else text
        pad = " " * indent
        wrapped = textwrap.wrap(
            plain,
            max(self._console.width, indent + 20),
            initial_indent=pad,
            subsequent_indent=pad,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for number_, line in enumerate(wrapped or [""]):
            shown = Text(line)
            if number_ == 0 and isinstance(text, Text):
                for span in text.spans:
                    shown.stylize(span.style, span.start + indent, span.end + indent)
            self._console.print(shown, soft_wrap=True)

    def _title(self, title: str) -> None:
        self._console.print()
        self._console.print(Text(title, style="bold"), soft_wrap=True)

    def _verdict(self) -> None:
        verdict = self._report.verdict
        head = Text()
        head.append(verdict.outcome.upper(), STYLES[verdict.outcome])
        head.append(safe(verdict.headline.removeprefix(verdict.outcome)))
        head.append(f" [{verdict.confidence} evidence]")
        self._line(head)
        for reason in verdict.reasons:
            self._line(Text(safe(reason)), 2)

    def _images(self) -> None:
        self._console.print()
        for side, image in (("a", self._report.image_a), ("b", self._report.image_b)):
            self._line(Text.assemble((side, "bold"), "  ", safe(image.reference)))
            self._line(_image_text(image), 3)
        profile = self._report.profile or "generic"
        self._line(f"engine profile: {profile}; roles: {', '.join(self._roles)}")
        if narrowed := narrowing(self._view):
            self._line(narrowed)

    def _owners(self) -> None:
        differing, same = owner_rows(self._report, self._view)
        if differing:
            self._title("Owners that differ")
            table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
            limit = None if self._view.verbose else MOST_ROWS
            rows = [(row, _counts(row)) for row in differing[:limit]]
            used = [position for position in range(len(COUNTS)) if any(counts[position] for _, counts in rows)]
            table.add_column("owner", overflow="fold", min_width=20)
            table.add_column("version", overflow="fold")
            for position in used:
                table.add_column(COUNTS[position], justify="right", no_wrap=True)
            for row, counts in rows:
                table.add_row(safe(row.name), version_text(row), *(number(counts[position]) for position in used))
            self._console.print(table)
            self._more(len(differing), limit, "owners")
        if same:
            files = sum(row.tally.files_b for row in same)
            total = len(owner_rows(self._report, View())[1])
            owners = counted(total, "owner") if len(same) == total else f"{share(len(same), total)} owners"
            self._title(f"The same to the byte: {owners}, {counted(files, 'file')}")
            limit = len(same) if self._view.verbose else 8
            ranked = sorted(same, key=lambda row: (-row.tally.files_b, row.name))[:limit]
            names = ", ".join(
                f"{safe(row.name)} {version_text(row)} ({row.tally.files_b:,})".replace("  ", " ") for row in ranked
            )
            self._line(names + (f" and {len(same) - limit:,} more" if len(same) > limit else ""), 2)

    def _bearing(self) -> None:
        changes = [judged for judged in shown_changes(self._report, self._view) if weighs(judged)]
        total = sum(weighs(judged) for judged in self._report.changes)
        if not total:
            return
        self._title(f"Differences that bear on a role: {share(len(changes), total)}")
        limit = None if self._view.verbose else MOST_CHANGES
        for judged in changes[:limit]:
            self._change(judged)
        self._more(len(changes), limit, "differences")

    def _change(self, judged: JudgedChange) -> None:
        self._line(Text(moved_text(judged)), 2)
        owners = ", ".join(dict.fromkeys((*judged.owner_names_b, *judged.owner_names_a)))
        reason = "" if judged.change.delta is None else f": {judged.change.delta.reason}"
        self._line(safe(f"{effect_text(judged)} [{owners}]{reason}"), 6)
        said: dict[str, list[str]] = {}
        proofs: dict[str, Evidence] = {}
        for role in self._roles:
            evidence = judged.load[role]
            chain = chain_text(evidence)
            bears = {"stands": "stands", "undecided": "undecided", "none": "does not bear"}[judged.bears[role]]
            text = f"{evidence.level} ({bears})" + (
                f": {chain}" if chain else f": {evidence.note}" if evidence.note else ""
            )
            said.setdefault(text, []).append(role)
            proofs.setdefault(text, evidence)
        for text, roles in said.items():
            self._line(f"{', '.join(roles)}: {safe(text)}", 6)
            if self._view.verbose:
                for step in chain_steps(proofs[text]):
                    self._line(step, 10)

    def _rest(self) -> None:
        rest = [judged for judged in shown_changes(self._report, self._view) if not weighs(judged)]
        total = sum(not weighs(judged) for judged in self._report.changes)
        if self._report.mtime_only or total:
            self._title(f"Differences that bear on no role: {share(len(rest), total)}")
        limit = None if self._view.verbose else MOST_CHANGES
        grouped = groups(rest, self._roles)
        for why, owner, members in grouped[:limit]:
            example = f", e.g. {moved_text(members[0])}" if len(members) > 1 else f": {moved_text(members[0])}"
            self._line(f"{len(members):,} of {safe(owner)}, {why}{example}", 2)
            if self._view.verbose > 1:
                for judged in members:
                    self._line(f"{effect_text(judged)} {moved_text(judged)}", 6)
        self._more(len(grouped), limit, "groups")
        if self._report.mtime_only:
            self._line(mtime_text(self._report.mtime_only), 2)

    def _config(self) -> None:
        if not self._report.config:
            return
        self._title("Image config")
        for change in self._report.config:
            name = f"{change.field} {safe(change.name)}" if change.name else change.field
            values = f"{_value(change.a)} \u2192 {_value(change.b)}"
            self._line(f"{name}: {values} ({change.bears}: {safe(change.reason)})", 2)

    def _resolution(self) -> None:
        said: dict[str, list[str]] = {}
        for item in self._report.resolution:
            a = "nothing" if item.a is None else path_text(item.a.path)
            b = "nothing" if item.b is None else path_text(item.b.path)
            said.setdefault(f"{item.kind} {safe(item.name)} ({item.level}): {a} \u2192 {b}", []).append(item.role)
        self._list("Names that resolve differently", [f"{text} [{', '.join(roles)}]" for text, roles in said.items()])

    def _integrity(self) -> None:
        lines = [f"{item.image}: {safe(item.message)} [{item.code}]" for item in self._report.integrity]
        self._list("Each image against itself", lines)

    def _list(self, title: str, lines: Sequence[str], limit: int | None = MOST_CHANGES) -> None:
        if not lines:
            return
        self._title(title)
        limit = None if self._view.verbose else limit
        for line in lines[:limit]:
            self._line(safe(line), 2)
        self._more(len(lines), limit, "lines")

    def _more(self, total: int, limit: int | None, noun: str) -> None:
        if limit is not None and total > limit:
            self._line(f"... and {total - limit:,} more {noun} (-v shows them)", 2)


def _counts(row: OwnerRow) -> tuple[int, ...]:
    tally = row.tally
    return (
        tally.identical,
        tally.modified,
        tally.added,
        tally.removed,
        tally.retyped,
        tally.moved,
        tally.attributes,
        row.loaded,
    )


def _image_text(image: ImageSummary) -> str:
    return ", ".join(_image_parts(image))


def _image_parts(image: ImageSummary) -> Iterator[str]:
    if image.manifest_digest:
        yield f"manifest {image.manifest_digest}"
    elif image.config_digest:
        yield f"config {image.config_digest}"
    yield image.source
    yield image.platform
    yield counted(len(image.layers), "layer")
    yield counted(image.files, "file")
    yield size_text(image.bytes)


def _value(value: str | None) -> str:
    return "(none)" if value is None else safe(value) if value else '""'


def _blindspot_text(report: Report, position: int) -> str:
    spot = report.blindspots[position]
    where = f"{spot.image}: " if spot.image else ""
    path = f" {path_text(spot.path)}" if spot.path is not None else ""
    roles = f" [blocks {', '.join(spot.roles)}]" if spot.roles else " [blocks no role]"
    return f"{where}{spot.what}{path}: {spot.reason}{roles}"
