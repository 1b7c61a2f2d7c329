"""Recordings of processes: files in, what each process loaded out. One file for each format, told by its content.

To add a format: one file here with ``FORMAT``, ``matches(lines)`` and ``read(lines, name)``, and one line in
``_FORMATS``.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from imgdiff import compression
from imgdiff.errors import RecordingError
from imgdiff.model import RecordedProcess, Recording, RecordingFormat
from imgdiff.recordings import importtime, ld_debug, maps, ours, python_v, strace, traced_files
from imgdiff.recordings._lines import Lines, Stream
from imgdiff.recordings._merge import merged

__all__ = ["digest", "digests", "read", "runs", "split"]

_PEEK = 2_000  # lines of a log that are looked at to tell what it is
_PROSE = (".md", ".rst", ".html")
_MOST_PROCESSES = 100_000
_MOST_FILES = 4_000_000  # of all its processes
_CHUNK = 1 << 20
_SHOWN = 3


class _Format(Protocol):
    FORMAT: RecordingFormat
    matches: Callable[[Sequence[bytes]], bool]
    read: Callable[[Lines, str], list[RecordedProcess]]


# In order: a log that could be of several is of the first.
_FORMATS: tuple[_Format, ...] = (ours, maps, strace, ld_debug, importtime, python_v, traced_files)  # type: ignore[assignment]  # mypy takes modules for no protocol
_KNOWN = (
    "a recording of ours, strace's log, LD_DEBUG=files output, a dump of /proc/PID/maps, python -X importtime, "
    "python -v, a list of traced files"
)


def split(argument: str) -> tuple[str | None, Path]:
    """Return the role and the path of ``ROLE=PATH`` or ``PATH``; a path that exists is one, whatever stands in it.

    Raises RecordingError where there is no path in it: an empty one would be the working directory.
    """
    if "\0" in argument:
        raise RecordingError("a recording's name holds a null character", "name a file or a directory")
    role, equals, rest = argument.partition("=")
    named = bool(equals and role and "/" not in role and not os.path.lexists(argument))
    if not (rest if named else argument):
        raise RecordingError("the name of a recording is empty", "name a file or a directory: --trace run/")
    return (role, Path(rest)) if named else (None, Path(argument))


def digest(argument: str) -> bytes:
    """Return the SHA-256 of what a ``--trace`` names, as :func:`read` does without reading more than its bytes.

    Raises RecordingError where it can't be read.
    """
    _, path = split(argument)
    with _trouble(path):
        hasher = hashlib.sha256()
        for name, file in _members(path):
            with file:
                hasher.update(_heading(name, _sha256(file)))
        return hasher.digest()


def digests(arguments: Sequence[str]) -> list[bytes]:
    """Return the :func:`digest` of each."""
    return [digest(argument) for argument in arguments]


def _heading(name: str, content: bytes) -> bytes:
    encoded = name.encode("utf-8", "surrogatepass")
    return len(encoded).to_bytes(8) + encoded + content


def _sha256(file: BinaryIO) -> bytes:
    hasher = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        hasher.update(chunk)
    return hasher.digest()


def runs(arguments: Sequence[str]) -> list[Recording]:
    """Read all that ``--trace`` names: each directory and archive is a run, and single files are one run together.

    Raises RecordingError where one can't be read or is of no known format.
    """
    found: list[Recording] = []
    single: list[Recording] = []
    for argument in dict.fromkeys(arguments):
        recording, several = _read(argument)
        (found if several else single).append(recording)
    if len(single) == 1:
        found += single
    elif single:
        hasher = hashlib.sha256(b"".join(each.digest for each in single))
        found.append(
            Recording(
                ", ".join(each.source for each in single),
                tuple(dict.fromkeys(format_ for each in single for format_ in each.formats)),
                merged([process for each in single for process in each.processes]),
                hasher.digest(),
                tuple(note for each in single for note in each.notes),
            )
        )
    return found


def read(argument: str) -> Recording:
    """Read what one ``--trace`` names: a file of any known format, a directory or a tar of such files, each plain or
    compressed. ``ROLE=PATH`` says which role its processes have.

    A log is streamed, whatever its size. Raises RecordingError where it can't be read or is of no known format.
    """
    return _read(argument)[0]


def _read(argument: str) -> tuple[Recording, bool]:
    """Read one, and tell whether it is several files."""
    role, path = split(argument)
    with _trouble(path):
        hasher = hashlib.sha256()
        logs = _Logs(role)
        for name, file in _members(path):
            with file:
                counted = _Counted(file)
                logs.file(name, counted)
                counted.drain()
                hasher.update(_heading(name, counted.hasher.digest()))
        several = logs.archive or path.is_dir()
    if not logs.formats:
        more = f"; and {len(logs.notes) - _SHOWN:,} more" if len(logs.notes) > _SHOWN else ""
        what = "; ".join(logs.notes[:_SHOWN]) + more or "there is no file in it"
        if not logs.archive and path.is_file():
            what = what.rpartition(" was left out: ")[2]  # the note names the one file again
        raise RecordingError(f"{argument} is no recording that is known: {what}", f"what is known: {_KNOWN}")
    recording = Recording(str(path), tuple(logs.formats), merged(logs.processes), hasher.digest(), tuple(logs.notes))
    return recording, several


class _trouble:  # noqa: N801  a context manager, used as a function
    """Make one sentence of whatever goes wrong with a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            why = error.strerror or str(error)
            raise RecordingError(f"the recording {self._path} can't be read: {why}", "check --trace") from error
        if isinstance(error, compression.StreamError | tarfile.TarError | EOFError):
            raise RecordingError(f"the recording {self._path} is damaged: it {error}", "copy it again") from error


class _Counted:
    """A stream that is hashed as it is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.hasher = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes."""
        chunk = self._stream.read(size)
        self.hasher.update(chunk)
        return chunk

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a part of the buffer."""
        chunk = self.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def drain(self) -> None:
        """Read the rest."""
        while self.read(_CHUNK):
            pass


def _members(path: Path) -> Iterator[tuple[str, BinaryIO]]:
    """Yield (name, stream) of each file that an argument stands for, in the order of their names on disk."""
    if path.is_dir():
        for place, directories, names in os.walk(path):
            directories.sort()
            for name in sorted(names):
                inside = Path(place) / name
                if inside.is_file():
                    yield os.path.relpath(inside, path), inside.open("rb")
        return
    if path.exists() and not path.is_file():  # a pipe gives its bytes once, and they are read twice
        raise RecordingError(f"the recording {path} is neither a file nor a directory", "write it to a file first")
    yield path.name, path.open("rb")


class _Joined:
    """Bytes that were looked at, and the rest of their stream."""

    def __init__(self, head: bytes, stream: Stream) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes."""
        if self._head:
            chunk, self._head = self._head[:size], self._head[size:]
            return chunk
        return self._stream.read(size)


class _Logs:
    """The logs of one run so far."""

    def __init__(self, role: str | None) -> None:
        self.role = role
        self.processes: list[RecordedProcess] = []
        self.formats: dict[RecordingFormat, None] = {}
        self.notes: list[str] = []
        self.archive = False
        self._files = 0

    def file(self, name: str, file: _Counted) -> None:
        """Read a file: a log, or an archive of logs."""
        stream = compression.decompressed(file)
        head = stream.read(512)
        while len(head) < 512 and (more := stream.read(512 - len(head))):
            head += more
        whole = _Joined(head, stream)
        if head[257:262] != b"ustar":
            self.log(name, whole)
            return
        self.archive = True
        with tarfile.open(fileobj=whole, mode="r|") as archive:  # type: ignore[call-overload]  # it only reads
            for member in archive:
                inner = archive.extractfile(member) if member.isfile() else None
                if inner is not None:
                    self.log(member.name, inner)

    def _check(self, before: int) -> None:
        self._files += sum(len(each.files) for each in self.processes[before:])
        if len(self.processes) > _MOST_PROCESSES or self._files > _MOST_FILES:
            raise RecordingError(
                f"a recording has more than {_MOST_PROCESSES:,} processes or {_MOST_FILES:,} files",
                "give a recording of one run",
            )

    def log(self, name: str, stream: Stream) -> None:
        """Read a log of whatever format its first lines are of."""
        lines = Lines(stream)
        first = lines.peek(_PEEK)
        for known in _FORMATS:
            if known.matches(first):
                self.formats[known.FORMAT] = None
                before = len(self.processes)
                self.processes += (msgspec.structs.replace(each, role=self.role) for each in known.read(lines, name))
                self._check(before)
                return
        what = "it is empty" if not first else "it is of no known format"
        self.notes.append(f"{name} was left out: {what}")
        if not name.endswith(_PROSE):  # it may be all that there is of a process
            self.processes.append(RecordedProcess(None, None, "unknown", name, gaps=(what,)))
