"""``imgdiff record``: run an image with the recorder, or say how a deployment is recorded."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from imgdiff import record, recorder
from imgdiff.cli_options import CacheDirectory
from imgdiff.errors import UsageError
from imgdiff.reports import safe
from imgdiff.sources.daemon.running import ContainerOptions

# Options of docker run that ask for what a recorded run has anyway, or has not.
_REFUSED: Final = {
    "-d": "the run is recorded to its end",
    "--detach": "the run is recorded to its end",
    "-i": "a recorded run reads no input",
    "--interactive": "a recorded run reads no input",
    "-t": "a recorded run has no terminal",
    "--tty": "a recorded run has no terminal",
    "-it": "a recorded run has no terminal",
}


_Decorator = Callable[[Callable[..., None]], Callable[..., None]]


class _Recording(click.Command):
    """Says what to do where docker run would take an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with the command of the container behind ``--``."""
        own = args[: args.index("--")] if "--" in args else args
        refused = next((word for word in own if word in _REFUSED), None)
        if refused is not None:
            raise UsageError(f"imgdiff record takes no {refused}: {_REFUSED[refused]}", _YOURSELF)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UsageError(
                f"imgdiff record takes no {error.option_name}",
                f"the container's own words stand behind --; {_YOURSELF}",
            ) from error


_YOURSELF: Final = "docker run takes any option together with what imgdiff record --print-env prints"


def _many(*names: str, metavar: str, help_: str) -> _Decorator:
    return click.option(*names, multiple=True, metavar=metavar, help=help_)


@click.command("record", cls=_Recording, short_help="Record what the processes of a container load.")
@click.argument("image", required=False)
@click.argument("argv", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=CacheDirectory(path_type=Path, file_okay=False),
    help="The directory to write to, new or empty; a new one in the working directory by default.",
)
@click.option("--syscalls", is_flag=True, help="Record opens, stats and execs of all processes, too.")
@click.option("--platform", metavar="OS/ARCH[/VARIANT]", help="The image has to be for this one.")
@click.option(
    "--export",
    type=CacheDirectory(path_type=Path, file_okay=False),
    help="Write what is to be mounted to this directory, new or empty, and start nothing.",
)
@click.option("--print-env", is_flag=True, help="Print what is to be mounted and set, and start nothing.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(tuple(recorder.FORMATS)),
    help="For whom --print-env prints; docker by default.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but what the container prints.")
@_many("-e", "--env", metavar="NAME[=VALUE]", help_="Set a variable. The rest are docker run's options, too.")
@_many("--env-file", metavar="FILE", help_="Set variables from a file.")
@_many("-v", "--volume", metavar="SOURCE:TARGET[:ro]", help_="Mount a directory or volume.")
@_many("--mount", metavar="FIELDS", help_="The same, with type, source, target and readonly.")
@_many("--tmpfs", metavar="TARGET", help_="Mount a file system in memory.")
@click.option("--gpus", metavar="all|N|device=0,1", help="GPUs.")
@_many("--device", metavar="PATH", help_="A device.")
@click.option("--ipc", metavar="MODE", help="Where its shared memory is.")
@click.option(
    "--pid", "pid_mode", metavar="MODE|PID", help="Whose processes it sees; a number, without IMAGE: that process."
)
@click.option("--shm-size", metavar="SIZE", help="Bytes of /dev/shm.")
@click.option("--network", "--net", metavar="NETWORK", help="Its network.")
@_many("-p", "--publish", metavar="[HOST:]PORT", help_="A port that is open on this machine.")
@_many("--dns", metavar="ADDRESS", help_="A name server.")
@_many("--add-host", metavar="NAME:ADDRESS", help_="A name for an address.")
@click.option("--entrypoint", metavar="PROGRAM", help="Instead of the image's entry point.")
@click.option("-w", "--workdir", metavar="PATH", help="Its working directory.")
@click.option("-u", "--user", metavar="USER[:GROUP]", help="Who runs it.")
@_many("--group-add", metavar="GROUP", help_="A further group.")
@click.option("--name", metavar="NAME", help="The container's name.")
@click.option("--hostname", metavar="NAME", help="Its host name.")
@_many("-l", "--label", metavar="NAME=VALUE", help_="A label.")
@click.option("--privileged", is_flag=True, help="All rights.")
@_many("--ulimit", metavar="NAME=SOFT[:HARD]", help_="A limit.")
@_many("--cap-add", metavar="NAME", help_="A right more.")
@_many("--cap-drop", metavar="NAME", help_="A right less.")
@_many("--security-opt", metavar="OPTION", help_="A security option.")
@click.option("-m", "--memory", metavar="SIZE", help="Most bytes of memory.")
@click.option("--cpus", type=float, metavar="N", help="Most cores.")
@click.option("--cpuset-cpus", metavar="LIST", help="Which cores.")
@click.option("--runtime", metavar="NAME", help="Who runs it for the engine.")
@click.option("--init", is_flag=True, help="A first process that ends the others.")
@click.option("--read-only", is_flag=True, help="Write nothing to its file system.")
@click.option("--rm", is_flag=True, hidden=True)
def record_command(
    image: str | None,
    argv: tuple[str, ...],
    output: Path | None,
    syscalls: bool,
    platform: str | None,
    export: Path | None,
    print_env: bool,
    format_: str | None,
    quiet: bool,
    env: tuple[str, ...],
    env_file: tuple[str, ...],
    entrypoint: str | None,
    pid_mode: str | None,
    rm: bool,  # noqa: ARG001  the container is removed in any case
    **options: Any,
) -> None:
    """Run IMAGE with COMMAND, or with its own, and record what its processes load.

    \b
    imgdiff record IMAGE [docker run's options] [-- COMMAND...]
    imgdiff record --export DIR [--print-env] [--format FORMAT] [IMAGE]
    imgdiff record container:NAME | --pid PID [-o DIR]

    The first runs IMAGE of docker or podman and writes a recording, a directory for imgdiff's --trace. What the
    container prints goes to stderr; Ctrl-C ends it. The exit code is the container's, 2 for trouble.

    The second starts nothing: it writes what is to be mounted into a container that somebody else starts, and says
    what is to be set there. The image itself is not changed.

    The third writes what a container's processes, or one process, have mapped and open now: libraries and files, no
    Python modules. Nothing is started or stopped.
    """
    say = _quiet if quiet else _say
    if export is not None or print_env:
        _tell(image, argv, export, format_ or "docker", print_env=print_env, syscalls=syscalls, platform=platform)
        return
    pid, container = _process(image, pid_mode)
    if pid is not None or container is not None:
        given = [*argv, *env, *env_file, *filter(None, (entrypoint, platform, format_)), *_set(options)]
        if given or syscalls or (container is not None and pid_mode is not None):
            raise UsageError("a process that runs is only looked at: nothing can be set", "leave it out, but for -o")
        target = record.new_directory() if output is None else output
        count = record.look(target, pid=pid, container=container)
        noun = "process" if count == 1 else "processes"
        say(f"{count} {noun} looked at: what is mapped and open now, no modules; imgdiff A B --trace {target} uses it")
        return
    if image is None:
        raise UsageError("an image is wanted", "imgdiff record IMAGE -- COMMAND; or --export, --print-env, --pid")
    if format_ is not None:
        raise UsageError("--format goes with --print-env", "leave it out")
    wanted = record.Wanted(
        reference=image,
        output=record.new_directory() if output is None else output,
        options=msgspec.convert({**options, "pid": pid_mode}, ContainerOptions, strict=False),
        env=_environment(env, env_file),
        argv=argv,
        entrypoint=entrypoint,
        platform=platform,
        syscalls=syscalls,
    )
    ended = record.run(wanted, record.passed_on, say)
    for gap in ended.gaps:
        say(f"not seen: {gap}")
    noun = "process" if ended.processes == 1 else "processes"
    say(f"{ended.processes} Python {noun} recorded; imgdiff A B --trace {wanted.output} uses it")
    if ended.interrupted is not None:
        signal.signal(ended.interrupted, signal.SIG_DFL)
        os.kill(os.getpid(), ended.interrupted)  # so that a calling shell sees an interrupt: 130
    sys.exit(ended.code)


def _process(image: str | None, pid: str | None) -> tuple[int | None, str | None]:
    """Return the process, or the container, that is only looked at."""
    scheme, colon, name = (image or "").partition(":")
    if colon and scheme == "container":
        if not name:
            raise UsageError("the container has no name", "imgdiff record container:NAME")
        return None, name
    if image is None and pid is not None:
        if not (pid.isascii() and pid.isdigit() and 0 < int(pid) < 1 << 31):
            raise UsageError(f"--pid {pid} is no process", "without an image, it is the number of one")
        return int(pid), None
    return None, None


def _set(options: Mapping[str, Any]) -> list[str]:
    """Return the options of docker run that were given."""
    return [name for name, value in options.items() if value not in (None, (), False)]


def _say(text: str) -> None:
    click.echo(f"imgdiff: {safe(text)}", err=True)


def _quiet(text: str) -> None:
    """Say nothing."""


def _tell(
    image: str | None,
    argv: tuple[str, ...],
    export: Path | None,
    format_: str,
    *,
    print_env: bool,
    syscalls: bool,
    platform: str | None,
) -> None:
    """Write what is to be mounted, and print what is to be set."""
    if argv:
        raise UsageError("nothing is started, so there is no command", "leave it out, or --export and --print-env")
    directory = Path(recorder.EXPORTED) if export is None else export
    text = notes = ""
    if print_env:
        text, notes = recorder.printed(format_, record.describe(image, directory, syscalls=syscalls, platform=platform))
    if export is not None and not (print_env and recorder.exported(export, syscalls=syscalls)):
        recorder.export(export, syscalls=syscalls)
        _say(f"the recorder is in {export}; what is recorded will be in {export / 'out'}")
        if not print_env:
            _say(f"what to set: imgdiff record --export {shlex.quote(str(export))} --print-env")
    elif not recorder.exported(directory, syscalls=syscalls):
        _say(f"there is no {directory} here: imgdiff record --export {directory} writes it")
    for line in notes.splitlines():
        _say(line)
    click.echo(text, nl=False)


def _environment(given: tuple[str, ...], files: tuple[str, ...]) -> dict[str, str]:
    """Return variables as docker run takes them: a name alone has the value that it has here, or is not set."""
    lines = []
    for name in files:
        try:
            read = Path(name).read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise UsageError(f"--env-file {name} can't be read", "check its path; it is text in UTF-8") from error
        lines += [line.lstrip() for line in read if line.strip() and not line.lstrip().startswith("#")]
    found: dict[str, str] = {}
    for line in [*lines, *given]:
        name, equals, value = line.partition("=")
        if not name:
            raise UsageError(f"the variable {line!r} has no name", "say NAME=VALUE")
        if equals or name in os.environ:
            found[name] = value if equals else os.environ[name]
    return found
