"""Formatters: a Report in, text out. Each knows the model alone. To add one: a file here and a line in ``FORMATS``."""

from __future__ import annotations

from collections.abc import Callable

from imgdiff.errors import UsageError
from imgdiff.model import Report
from imgdiff.reports import early, json_v1, markdown, progress, terminal
from imgdiff.reports._view import EXIT_CODES, View, safe, size_text

__all__ = ["EXIT_CODES", "FORMATS", "View", "early", "progress", "render", "safe", "summary", "transferred"]


def _terminal(report: Report, view: View, color: bool, width: int) -> str:
    return terminal.render(report, view, color=color, width=width)


def _json(report: Report, view: View, color: bool, width: int) -> str:  # noqa: ARG001  JSON is whole, whatever the view
    return json_v1.render(report)


def _markdown(report: Report, view: View, color: bool, width: int) -> str:  # noqa: ARG001  Markdown has neither
    return markdown.render(report, view)


FORMATS: dict[str, Callable[[Report, View, bool, int], str]] = {
    "terminal": _terminal,
    "json": _json,
    "markdown": _markdown,
}


def render(report: Report, format_: str, view: View, *, color: bool = False, width: int = 80) -> str:
    """Return the report in one of ``FORMATS``."""
    if format_ not in FORMATS:
        raise UsageError(f"there is no format {format_!r}", f"there are: {', '.join(FORMATS)}")
    return FORMATS[format_](report, view, color, width)


def summary(report: Report) -> str:
    """Return the verdict as one plain line."""
    return f"{safe(report.verdict.headline)} [{report.verdict.confidence} evidence]"


def transferred(report: Report) -> str | None:
    """Return what came over a network as one plain line; None where nothing does."""
    said = [
        f"{size_text(image.transfer[0])} for {side} ({size_text(image.transfer[1])} of its layers were not needed)"
        for side, image in (("a", report.image_a), ("b", report.image_b))
        if image.transfer is not None
    ]
    return f"fetched {' and '.join(said)}" if said else None
