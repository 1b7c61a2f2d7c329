"""The report for a terminal: the verdict first, then what supports it. rich's one door, with the progress display."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from imgdiff.model import WHEEL_SOURCE, ImageSummary, Outcome, OwnerRow, Report
from imgdiff.reports._view import (
    Blind,
    Same,
    View,
    alike,
    blindspots,
    caveats,
    chain_steps,
    closed,
    config_changes,
    counted,
    effect_text,
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
    unresolved,
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
MOST_ALIKE = 5  # paths of differences that are explained alike, without -v
MOST_CAVEAT_LINES = 8  # lines of caveats without -v
CUT = " ..."
LINES_OF_ONE = 2  # of them, for one caveat


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
        _environ={},  # width and colour are decided; rich would turn any COLUMNS into a number, of any length
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
        self._list("Recordings", recordings(self._report), limit=None)
        self._owners()
        self._bearing()
        self._rest()
        self._config()
        self._resolution()
        self._integrity()
        self._list("Blindspots", [_blindspot_text(spot) for spot in blindspots(self._report)])
        self._caveats()
        if self._view.verbose:
            self._list("Imports and files in reached code that only a run can tell", unresolved(self._report))
        self._list("What would settle it", list(self._report.verdict.settle), limit=None)

    def _line(self, text: str | Text = "", indent: int = 0) -> None:
        """Print one paragraph, wrapped at spaces with its indent kept; a long path is never cut in two."""
        if isinstance(text, Text) and text.spans and len(text.plain) + indent <= self._console.width:
            self._console.print(Text(" " * indent) + text, soft_wrap=True)
            return
        plain = text.plain if isinstance(text, Text) else text
        for number_, line in enumerate(self._wrap(plain, indent) or [""]):
            shown = Text(line)
            if number_ == 0 and isinstance(text, Text):
                for span in text.spans:
                    shown.stylize(span.style, span.start + indent, span.end + indent)
            self._console.print(shown, soft_wrap=True)

    def _wrap(self, text: str, indent: int, most: int | None = None) -> list[str]:
        pad = " " * indent
        return textwrap.wrap(
            text,
            max(self._console.width, indent + 20),
            initial_indent=pad,
            subsequent_indent=pad,
            break_long_words=False,
            break_on_hyphens=False,
            max_lines=most,
            placeholder=CUT,
        )

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
            self._console.print(Text.assemble((side, "bold"), "  ", safe(image.reference)), soft_wrap=True)
            known = identity(image)
            self._line(", ".join(_image_parts(image)) + (f", {known[0]}:" if known else ""), 3)
            if known:
                self._line(known[1], 3)
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
        limit = len(changes) if self._view.verbose else MOST_CHANGES
        said = lines = 0
        for group in alike(changes, self._roles):
            if lines >= limit:
                break
            counts = self._alike(group, limit - lines)
            said, lines = said + counts[0], lines + counts[1]
        self._more(len(changes), max(said, limit), "differences")

    def _alike(self, group: Same, room: int) -> tuple[int, int]:
        """Print a group of differences, at most ``room`` of its paths; return how many were said, and printed."""
        said = lines = 0
        for paths, what, diff in group.members:
            if lines >= room:
                break
            most = len(paths) if self._view.verbose or len(paths) <= MOST_ALIKE + 1 else MOST_ALIKE
            for path in paths[:most]:
                self._line(path, 2)
            if len(paths) > most:
                self._line(f"... and {len(paths) - most:,} more like these (-v shows them)", 2)
            self._line(what, 6)
            for line in diff if self._view.verbose else ():
                self._console.print(Text(f"        {line}"), soft_wrap=True)
            said, lines = said + len(paths), lines + most
        for roles, text, proof in group.evidence:
            self._line(f"{', '.join(roles)}: {text}", 6)
            if self._view.verbose:
                for step in chain_steps(proof):
                    self._line(step, 10)
        return said, lines

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
        for change in config_changes(self._report):
            name = f"{change.field} {safe(change.name)}" if change.name else change.field
            values = f"{_value(change.a)} \u2192 {_value(change.b)}"
            self._line(f"{name}: {values} ({change.bears}: {safe(change.reason)})", 2)

    def _resolution(self) -> None:
        lines = [
            f"{item.what} {item.name} ({item.said}): {item.a or 'nothing'} \u2192 {item.b or 'nothing'} "
            f"[{', '.join(item.roles)}]"
            for item in resolutions(self._report)
        ]
        self._list("Names that resolve differently", lines)

    def _integrity(self) -> None:
        lines = [f"{sides}: {message} [{code}]" for sides, message, code in integrity(self._report)]
        self._list("Each image against itself", lines, limit=MOST_ALIKE)

    def _caveats(self) -> None:
        """The last one is true of every report, and always printed; before it, as many as fit, each cut short."""
        texts = [safe(text) for text in caveats(self._report)]
        if not texts:
            return
        if self._view.verbose:
            self._list("Not covered", texts)
            return
        *own, last = [self._cut(text) for text in texts]
        shown: list[list[str]] = []
        for lines in own:
            if sum(map(len, (*shown, lines, last))) > MOST_CAVEAT_LINES:
                break
            shown.append(lines)
        cut = any(lines[-1].endswith(CUT) for lines in (*shown, last))
        self._title("Not covered" + (" (-v or the JSON report has it whole)" if cut else ""))
        for line in (line for lines in (*shown, last) for line in lines):
            self._console.print(Text(line), soft_wrap=True)
        if len(own) > len(shown):
            self._line(f"... and {len(own) - len(shown):,} more (-v or the JSON report has them)", 2)

    def _cut(self, text: str) -> list[str]:
        """Return the lines of a caveat that are shown: what is cut leaves no parenthesis open."""
        lines = self._wrap(text, 2, LINES_OF_ONE)
        if not lines[-1].endswith(CUT) or text.endswith(CUT):
            return lines
        start = " ".join(line.strip() for line in lines).removesuffix(CUT)
        return lines if (kept := closed(start)) == start else self._wrap(kept + CUT, 2)

    def _list(self, title: str, lines: Sequence[str], limit: int | None = MOST_CHANGES) -> None:
        if not lines:
            return
        self._title(title)
        limit = None if self._view.verbose else limit
        for line in lines[:limit]:
            self._line(safe(line), 2)
        self._more(len(lines), limit, "")

    def _more(self, total: int, limit: int | None, noun: str) -> None:
        if limit is not None and total > limit:
            self._line(f"... and {total - limit:,} more {noun}".rstrip() + " (-v shows them)", 2)


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


def _image_parts(image: ImageSummary) -> Iterator[str]:
    yield image.source
    if image.source != WHEEL_SOURCE:
        yield image.platform
        yield counted(len(image.layers), "layer")
    yield counted(image.files, "file")
    yield size_text(image.bytes)


def _value(value: str | None) -> str:
    return "(none)" if value is None else safe(value) if value else '""'


def _blindspot_text(spot: Blind) -> str:
    where = f"{spot.sides}: " if spot.sides else ""
    path = f" {spot.path}" if spot.path is not None else ""
    roles = f" [blocks {', '.join(spot.roles)}]" if spot.roles else " [blocks no role]"
    return f"{where}{spot.what}{path}: {spot.reason}{roles}"
