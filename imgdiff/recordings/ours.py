"""Our own recordings, version 1: JSON lines, one file for each process (docs/recording.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from imgdiff.errors import RecordingError
from imgdiff.model import Covers, RecordedHow, RecordedProcess, RecordingFormat, Started
from imgdiff.recordings._lines import Files, Lines, path_bytes

FORMAT: RecordingFormat = "imgdiff"
SCHEMA = "imgdiff/recording/v1"
_FAMILY = "imgdiff/recording/"
_MOST_NOTES = 20
_HOWS: Mapping[str, RecordedHow] = {
    "exec": "executed",
    "extension": "mapped",
    "map": "mapped",
    "open": "opened",
    "function": "started",
    "module": "before",
}


Pid = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Event(msgspec.Struct):
    """One line. What is not there, or is null, is None."""

    event: str
    schema: str | None = None
    t: float | None = None
    pid: Pid | None = None
    parent: Pid | None = None
    how: str | None = None
    time: float | None = None
    argv: list[str] | None = None
    cwd: str | None = None
    python: str | None = None
    executable: str | None = None
    machine: str | None = None
    hostname: str | None = None
    image: str | None = None
    coverage: list[str] | None = None
    flags: dict[str, Any] | None = None
    env: str | dict[str, Any] | None = None
    recorder: str | None = None
    file: str | None = None
    origin: str | None = None
    cached: str | None = None
    name: str | None = None
    sha256: str | None = None
    title: str | None = None
    what: str | None = None
    reason: str | None = None
    call: str | None = None
    mode: str | None = None


def matches(lines: Sequence[bytes]) -> bool:
    """Tell whether these first lines are of a recording of ours, of whatever version."""
    first = next((line for line in lines if line.strip()), b"")
    event = _parse(first)
    return event is not None and event.event == "start" and (event.schema or "").startswith(_FAMILY)


def _parse(line: bytes) -> _Event | None:
    try:
        return msgspec.json.decode(line, type=_Event)
    except (UnicodeDecodeError, RecursionError):
        return None
    except msgspec.DecodeError:
        if b"\\ud" not in line and b"\\uD" not in line:
            return None
    try:  # a path that is no UTF-8 holds lone surrogates, which msgspec refuses
        return msgspec.convert(json.loads(line), _Event)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def read(lines: Lines, name: str) -> list[RecordedProcess]:
    """Read one process. Raises RecordingError where the file is of a version that this imgdiff does not know."""
    stream = iter(lines)
    start = next((event for line in stream if line.strip() and (event := _parse(line)) is not None), None)
    assert start is not None  # matches() saw it
    if start.schema != SCHEMA:
        raise RecordingError(
            f"the recording {name} is of the format {start.schema}, and this imgdiff reads {SCHEMA}",
            "read it with the imgdiff that made it",
        )
    process = _Process(start)
    for line in stream:
        if line.strip():
            process.line(line)
    return [process.finish(lines, name)]


class _Process:
    """What is known of one process so far."""

    def __init__(self, start: _Event) -> None:
        self.start = start
        self.files = Files()
        self.children: list[Started] = []
        self.titles: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.last = 0.0
        self.ended: str | None = None
        self.unread = 0

    def line(self, line: bytes) -> None:
        event = _parse(line)
        if event is None:
            self.unread += 1
            return
        self.last = max(self.last, event.t or 0.0)
        how = _HOWS.get(event.event)
        if how is not None:
            self._file(event, how)
        elif event.event == "fork":
            self.children.append(Started("fork", pid=event.pid))
        elif event.event == "spawn":
            self._spawn(event)
        elif event.event == "title" and event.title:
            self.titles[event.title] = None
        elif event.event == "note":
            self.notes[f"{event.what or 'something'}: {event.reason or 'not seen'}"] = None
        elif event.event == "end":
            self.ended = event.how or "exit"
        else:
            self.unread += 1  # a word of a later version, or a second start: what it says is not known

    def _file(self, event: _Event, how: RecordedHow) -> None:
        cwd = None if event.cwd is None else path_bytes(event.cwd)
        file = event.origin or event.file
        if not file or file in ("built-in", "frozen") or (file[0] == "<" and file[-1] == ">"):
            return  # in the interpreter itself, or code that a string holds
        if how == "opened" and event.mode is not None and not set(event.mode) & {"r", "+"}:
            how = "sought"  # it was only written
        digest = None if event.sha256 is None else _digest(event.sha256)
        if event.sha256 is not None and digest is None:
            self.unread += 1
        self.files.add(path_bytes(file), how, digest, event.name, cwd)
        if event.origin is None and event.cached is not None and how == "before":
            self.files.add(path_bytes(event.cached), how, None, event.name, cwd)

    def _spawn(self, event: _Event) -> None:
        argv = tuple(event.argv or ())
        program = event.executable or (argv[0] if argv else None)
        how: Literal["exec", "replace"] = "replace" if (event.call or "").startswith("os.exec") else "exec"
        self.children.append(Started(how, program, argv, event.pid, event.env != "empty-of-recorder"))

    def finish(self, lines: Lines, name: str) -> RecordedProcess:
        start = self.start
        gaps = [*lines.gaps(), *self.files.gaps()]
        if self.unread:
            what = "1 line is" if self.unread == 1 else f"{self.unread:,} lines are"
            gaps.append(f"{what} not of the format, and what was said there is not known")
        if len(self.notes) > _MOST_NOTES:
            gaps.append(f"it notes {len(self.notes):,} things that it could not see")
        gaps += [f"it could not see {note}" for note in list(self.notes)[:_MOST_NOTES]]
        if start.how == "exec" and (start.flags or {}).get("no_site"):
            gaps.append("Python began without site (-S), and what ran until it was imported all the same is not known")
        kind: Literal["exec", "fork", "unknown"] = "unknown"
        if start.how == "exec":
            kind = "exec"
        elif start.how == "fork":
            kind = "fork"
        elif start.how != "snapshot":  # which notes itself what it can't see
            gaps.append("its start record does not say how it was started")
        return RecordedProcess(
            pid=start.pid,
            parent=start.parent,
            start=kind,
            source=name,
            place=start.hostname or "",
            argv=tuple(start.argv or ()),
            cwd=path_bytes(start.cwd or "/"),
            titles=tuple(self.titles),
            executable=start.executable,
            python=start.python,
            machine=start.machine,
            image=start.image,
            env={key: str(value) for key, value in start.env.items()} if isinstance(start.env, dict) else {},
            started=start.time,
            last=None if start.time is None else start.time + self.last,
            ended=self.ended,
            coverage=_coverage(start.coverage or ()),
            files=self.files.all(),
            children=tuple(self.children),
            gaps=tuple(gaps),
            recorder=None if start.recorder is None else path_bytes(start.recorder),
        )


def _digest(text: str) -> bytes | None:
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        return None
    return digest if len(digest) == 32 else None


def _coverage(words: Sequence[str]) -> frozenset[Covers]:
    """Python code is covered where what is only read as text is seen too: Triton and torch.jit compile it.

    Maps that are looked at now and then cover no libraries: one that C code loads and drops in between is not seen.
    """
    found: set[Covers] = set()
    if {"python", "open"} <= set(words):
        found.add("python")
    if "origins" in words:
        found.add("origins")
    if "functions" in words:
        found.add("functions")
    return frozenset(found)
