"""The streams of the process: reports to stdout whole or not at all, and what a caller closed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from imgdiff.errors import UsageError


def shows_progress(*, quiet: bool) -> bool:
    """Tell whether stderr is a terminal that can show progress, and it is wanted."""
    return not quiet and not _dumb() and sys.stderr.isatty()


def has_color() -> bool:
    """Tell whether a report on stdout may be coloured (no-color.org)."""
    return sys.stdout.isatty() and not _dumb() and not os.environ.get("NO_COLOR")


def _dumb() -> bool:
    """Tell whether the terminal takes no escape sequences."""
    return os.environ.get("TERM") == "dumb"


def width(path: Path | None) -> int:
    """Return the columns of a report: what COLUMNS says, else the terminal's, within what a table can bear."""
    if path is not None:
        return 100
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdigit():
        columns = int(said[:6])
    else:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    return max(60, min(columns or 80, 200))


def write(path: Path | None, text: str, encoding: str) -> None:
    """Write a report whole or not at all: a file appears under its name only when it is complete.

    Raises UsageError where it can't be written, BrokenPipeError where nobody reads stdout.
    """
    if path is None:
        try:
            sys.stdout.buffer.write(text.encode(encoding, "backslashreplace"))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            drop_stdout()
            raise UsageError(f"the report can't be written to stdout: {error.strerror}", "use -o FILE") from error
        return
    target = path.resolve()  # a link stays one
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and not target.is_file():  # /dev/null, a pipe: there is nothing to replace
            target.write_text(text, encoding="utf-8", errors="backslashreplace")
            return
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{str(path)!r} can't be written: {error.strerror}", "choose another file with -o") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def fill_closed() -> None:
    """Open what a caller closed (``>&-``): else the next file, of the cache say, would take its number, and what is
    written to stdout would land in it. That stdout was closed is still known by its being None."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  for the whole process


def drop_stdout() -> None:
    """Send what is buffered nowhere: at exit it would be tried again, and its failure would be the exit code."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
