"""Recording what the processes of a container load: an image is run with the recorder, or a deployment is told how."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from imgdiff import recorder, recordings
from imgdiff.config import redact_argv
from imgdiff.errors import RecordingError, UsageError
from imgdiff.interrupts import held_back, signal_of
from imgdiff.recorder import moment
from imgdiff.sources.daemon.running import Container, ContainerOptions, Runnable, copy, runnable, running

_GRACE: Final = 10.0  # seconds that a program has to end after an interrupt
_APART: Final = 30.0  # seconds between what an engine and the kernel say of a start, and clocks are set meanwhile
_MOST_GAPS: Final = 10  # sentences on what could not be seen
_NAMES: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}")  # of a recording's files; whatever else lies there is none
_UNDER_WAY: Final = "NOT-WHOLE"  # lies in a recording until all of it is there
_PYTHON: Final = re.compile(r"(?:.*/)?python[\d.]*")


class Wanted(msgspec.Struct, frozen=True):
    """A run that is to be recorded. ``env`` is set in the container over the image's own; ``argv`` takes the place of
    its command, ``entrypoint`` that of its entry point (empty: none)."""

    reference: str
    output: Path
    options: ContainerOptions = ContainerOptions()
    env: dict[str, str] = {}
    argv: tuple[str, ...] = ()
    entrypoint: str | None = None
    platform: str | None = None
    syscalls: bool = False


class Ended(msgspec.Struct, frozen=True):
    """How the run ended: the container's exit code, the signal that interrupted it, and what was recorded."""

    code: int
    interrupted: int | None
    processes: int
    gaps: tuple[str, ...]


def run(wanted: Wanted, write: Callable[[bytes], object], say: Callable[[str], object]) -> Ended:
    """Run an image with the recorder until it ends or is interrupted, and collect what was recorded.

    ``write`` gets what the container prints, ``say`` sentences on what goes on. The container is removed with all that
    was in it. Raises UsageError for what can't be done, ServiceError where the engine fails.
    """
    with _directory(wanted.output):
        parts = recorder.parts(syscalls=wanted.syscalls)
        image = runnable(wanted.reference, wanted.platform)
        env, argv = _command(wanted, image, parts)
        code, interrupted = _ran(wanted, image, env, argv, parts, write, say)
        processes, gaps = _seen(wanted.output)
        return Ended(code, interrupted, processes, gaps)


def _ran(
    wanted: Wanted,
    image: Runnable,
    env: Mapping[str, str],
    argv: Sequence[str],
    parts: Sequence[recorder.Part],
    write: Callable[[bytes], object],
    say: Callable[[str], object],
) -> tuple[int, int | None]:
    """Run it, and return its exit code and the signal that interrupted us."""
    with _removed(image, wanted.options, argv, env) as container:
        container.put([(part.name, part.data, part.mode) for part in parts])
        try:
            container.start(write)
            say(f"recording {image.image.reference} in {wanted.output}; Ctrl-C ends it")
            return container.wait(), None
        except KeyboardInterrupt as error:
            interrupted = signal_of(error)
            return _end(container, interrupted, say), interrupted
        finally:
            _collect(container, wanted.output, say)


def describe(
    reference: str | None, directory: Path, *, syscalls: bool, platform: str | None = None
) -> recorder.Described:
    """Return what is known of a container that somebody else starts, with the recorder that lies in a directory.

    Raises UnknownReferenceError and ServiceError where an image is named and no engine has it.
    """
    tracer = recorder.tracer(recorder.parts(syscalls=True)) if syscalls else None
    if reference is None:
        return recorder.Described(directory.absolute(), tracer=tracer)
    image = runnable(reference, platform)
    return recorder.Described(
        directory=directory.absolute(),
        reference=reference.partition(":")[2] if reference.startswith(("docker:", "podman:")) else reference,
        image=image.digest,
        env=image.env,
        entrypoint=image.entrypoint,
        command=image.command,
        tracer=tracer,
    )


def look(output: Path, *, pid: int | None = None, container: str | None = None) -> int:
    """Write what one process, or each process of a container, has mapped and open now, as a recording; return how many
    there were. Nothing is started, stopped or changed.

    Raises UsageError for what can't be looked at, UnknownReferenceError and ServiceError as engines do.
    """
    with _directory(output):
        host, image = os.uname().nodename, None
        pids = [] if pid is None else [pid]
        if container is not None:
            found = running(container)
            host, image, pids = found.host, found.image, moment.family(found.pid)
            began = moment.started(found.pid)
            if found.started is not None and abs(began - found.started) > _APART:
                raise UsageError(
                    f"process {found.pid} of this machine is not the container's", "look at it where the engine runs"
                )
        files = [moment.snapshot(each, redact_argv, host, image) for each in pids]
        try:
            for name, content in files:
                (output / name).write_bytes(content)
        except OSError as error:
            raise UsageError(f"the recording can't be written to {str(output)!r}: {error.strerror}") from error
        return len(files)


@contextmanager
def _directory(output: Path) -> Iterator[None]:
    """Make the directory that recordings go to; one in which nothing lies after a trouble was not there before."""
    there = output.exists()
    try:
        if there and (not output.is_dir() or any(output.iterdir())):
            raise UsageError(f"{str(output)!r} is there already, and is no empty directory", "choose another with -o")
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{str(output)!r} can't be made: {error.strerror}", "choose another with -o") from error
    try:
        yield
    except BaseException:
        if not there:
            with suppress(OSError):
                output.rmdir()
        raise


def _command(wanted: Wanted, image: Runnable, parts: Sequence[recorder.Part]) -> tuple[dict[str, str], list[str]]:
    """Return the variables to set, and the whole command: what the engine would put together itself."""
    if wanted.entrypoint is None:
        argv = [*image.entrypoint, *(wanted.argv or image.command)]
    else:
        argv = [*([wanted.entrypoint] if wanted.entrypoint else []), *wanted.argv]
    if not argv:
        raise UsageError(
            f"{wanted.reference} has no command of its own, and none was given",
            f"imgdiff record {wanted.reference} -- COMMAND",
        )
    env = {**wanted.env, **recorder.variables({**image.env, **wanted.env}, image.digest)}
    if not wanted.syscalls:
        return env, argv
    inner = {**recorder.loaders(image.env), **env}
    argv, env = recorder.traced(argv, inner, recorder.tracer(parts))
    return env, argv


@contextmanager
def _removed(
    image: Runnable, options: ContainerOptions, argv: Sequence[str], env: Mapping[str, str]
) -> Iterator[Container]:
    """Give a container, and remove it at the end. An interrupt comes through when that is done."""
    container: Container | None = None
    try:
        with held_back():
            container = Container(image, options, argv, env, recorder.ROOT)
        yield container
    finally:
        if container is not None:
            with held_back():
                container.__exit__()


def _end(container: Container, signum: int, say: Callable[[str], object]) -> int:
    """Ask the program to end as the user asked us, and end it after a while or when the user asks again."""
    try:
        say(f"interrupted: it has {_GRACE:g} seconds to end; Ctrl-C again ends it now")
        container.signal(signal.Signals(signum).name)
        code = container.over(_GRACE)
        if code is not None:
            return code
    except KeyboardInterrupt:
        say("it is ended now")
    container.signal("SIGKILL")
    container.over(_GRACE)
    return 128 + signum


def _collect(container: Container, output: Path, say: Callable[[str], object]) -> None:
    mark = output / _UNDER_WAY  # no format knows it: while it lies there, absence settles nothing
    try:
        for name, content in container.files(recorder.OUT):
            if _NAMES.fullmatch(name) and name not in (".", "..", _UNDER_WAY):
                mark.write_text("not all of this recording was copied\n")
                copy(content, output / name)
        mark.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"the recording can't be written to {str(output)!r}: {error.strerror}") from error
    except KeyboardInterrupt:
        say(f"the recording in {output} is not whole: it was interrupted while it was copied")
        raise


def _seen(output: Path) -> tuple[int, tuple[str, ...]]:
    """Return how many Python processes were recorded, and what could not be seen, in sentences."""
    files = sorted(output.iterdir())
    if not files:
        return 0, ("nothing was recorded: no program of it loads libraries with glibc, and no Python with a recorder",)
    try:
        found = recordings.read(str(output))
    except RecordingError as error:
        return 0, (str(error),)
    gaps = [f"{gap} ({process.source})" for process in found.processes for gap in process.gaps]
    gaps += [
        f"{process.executable} ran as process {process.pid} without the recorder (python -I, -E or -S, or an "
        "environment of its own)"
        for process in found.processes
        if process.python is None and process.executable and _PYTHON.fullmatch(process.executable)
    ]
    gaps = list(dict.fromkeys(gaps))
    if len(gaps) > _MOST_GAPS:
        gaps = [*gaps[:_MOST_GAPS], f"and {len(gaps) - _MOST_GAPS} more"]
    return len([file for file in files if file.suffix == ".jsonl"]), tuple(gaps)


def new_directory() -> Path:
    """Return the name of a directory that is not there yet, in the working directory."""
    name = time.strftime("imgdiff-recording-%Y%m%d-%H%M%S")
    path, number = Path(name), 2
    while path.exists():
        path, number = Path(f"{name}-{number}"), number + 1
    return path


def passed_on(data: bytes) -> None:
    """Write what a container prints to stderr."""
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()
