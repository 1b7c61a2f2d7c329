"""The progress display: bytes and layers on stderr, only where somebody watches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from imgdiff.reports._view import safe


class Display:
    """Shows one step at a time; ``start``, ``advance`` and ``finish`` come from the main process."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def start(self, label: str, total: int | None) -> None:
        """Begin a step of ``total`` bytes (None where unknown)."""
        self.finish()
        self._task = self._progress.add_task(safe(label), total=total)

    def advance(self, n: int) -> None:
        """Count ``n`` more bytes."""
        if self._task is not None:
            self._progress.advance(self._task, n)

    def finish(self) -> None:
        """End the step."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


@contextmanager
def display(*, enabled: bool) -> Iterator[Display | None]:
    """Give a display that is gone when the work is done; None where nobody watches."""
    if not enabled:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    sizes = ("COLUMNS", "LINES")  # the terminal knows better, and these can be anything
    environ = {name: value for name, value in os.environ.items() if name not in sizes}
    with Progress(*columns, console=Console(stderr=True, _environ=environ), transient=True) as progress:
        shown = Display(progress)
        yield shown
        shown.finish()
