"""What processes really loaded."""

from __future__ import annotations

from typing import Literal

import msgspec

from imgdiff.model.blindspots import Side

RecordingFormat = Literal["imgdiff", "ld-debug", "maps", "importtime", "python-v", "strace", "traced-files"]
# What a recording would have seen of a process. python: code that was executed and files that Python opened; origins:
# modules by the file that they came from, sourceless ones too; functions: the first start of a function in each file
# after a fork; libraries: each library that was mapped, when it was; syscalls: all files that were opened or looked
# for, by any means.
Covers = Literal["python", "origins", "functions", "libraries", "syscalls"]
RecordedHow = Literal[
    "executed",
    "mapped",
    "opened",
    "started",  # a function in it started, after a fork
    "before",  # in sys.modules when the recorder began: in a forked process, inherited
    "sought",  # looked for, or looked at, and not opened
    "listed",  # a directory whose names were read
    "named",  # mapped by this file name, from a directory that the log does not tell
]


class RecordedFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file in one process. ``path`` is as recorded: absolute, or relative to ``cwd`` (the process's own where
    that is None). It is empty where only the module's ``name`` is known. ``digest`` is of what lay there then."""

    path: bytes
    how: RecordedHow
    digest: bytes | None = None
    name: str | None = None
    cwd: bytes | None = None


class Started(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A process that another one started: a copy of itself (``fork``), a program (``exec``), a program that goes on in
    its own place (``replace``), or a ``thread``, where a log tells threads apart. ``pid`` is the child's, where it is
    known. ``whole`` is False where the child's environment does not lead it to the recorder."""

    how: Literal["fork", "exec", "replace", "thread"]
    program: str | None = None
    argv: tuple[str, ...] = ()
    pid: int | None = None
    whole: bool = True


class RecordedProcess(msgspec.Struct, frozen=True):
    """One process of a recording. ``start`` is how it came: ``unknown`` where its beginning was not recorded.

    ``titles`` are its titles and names, in order. ``started`` and ``last`` are seconds since the epoch: its start and
    its last event, where they are known; ``ended`` says how it ended, None where it was killed, still ran, or that is
    not known. ``gaps`` are sentences on what of it could not be seen. ``source`` is the file that it stands in,
    ``place`` what keeps it apart from processes of the same pid (a host, a container). ``role`` is what the user said
    that it is. ``recorder`` is the directory of what recorded it. ``calls`` are the kinds of system calls that a log
    has (None: it is of none), out of which ``coverage`` follows once all files of the log are read. ``programs`` are
    those that the loader began in it, one in the place of the other, as it calls them: by their first words.
    """

    pid: int | None
    parent: int | None
    start: Literal["exec", "fork", "unknown"]
    source: str
    place: str = ""
    argv: tuple[str, ...] = ()
    cwd: bytes = b"/"
    titles: tuple[str, ...] = ()
    executable: str | None = None
    python: str | None = None
    machine: str | None = None
    image: str | None = None
    env: dict[str, str] = {}
    started: float | None = None
    last: float | None = None
    ended: str | None = None
    coverage: frozenset[Covers] = frozenset()
    files: tuple[RecordedFile, ...] = ()
    children: tuple[Started, ...] = ()
    gaps: tuple[str, ...] = ()
    recorder: bytes | None = None
    role: str | None = None
    calls: frozenset[str] | None = None
    programs: tuple[str, ...] = ()


class Recording(msgspec.Struct, frozen=True):
    """What one ``--trace`` gave: the processes of a run. ``digest`` is the SHA-256 of all its bytes. ``notes`` are
    sentences on what was left out of it."""

    source: str
    formats: tuple[RecordingFormat, ...]
    processes: tuple[RecordedProcess, ...]
    digest: bytes
    notes: tuple[str, ...] = ()


class RecordedRole(msgspec.Struct, frozen=True):
    """What a recording says of one role, for the report: its processes' pids, what is covered in full (absence from it
    settles what that covers), and why the rest is not."""

    processes: tuple[int, ...]
    complete: tuple[Covers, ...]
    incomplete: tuple[str, ...] = ()


class RecordedRun(msgspec.Struct, frozen=True):
    """One recording as the report names it, with the conditions that it holds under.

    ``images`` are the sides that it speaks for (both where its files are the same in both). ``argv`` is of its first
    process, redacted; ``started`` and ``last`` are seconds since the epoch.
    """

    source: str
    formats: tuple[RecordingFormat, ...]
    images: tuple[Side, ...]
    processes: int
    argv: tuple[str, ...]
    python: str | None
    machine: str | None
    image: str | None
    started: float | None
    last: float | None
    roles: dict[str, RecordedRole] = {}
    unassigned: tuple[str, ...] = ()
    said: tuple[str, ...] = ()  # the caveats on it
