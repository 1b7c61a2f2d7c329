"""click commands and exit codes, nothing else.

Exit codes: 0 identical or killed, 1 stands, 3 undecided, 2 trouble or wrong usage. Reports go to stdout, progress
and the summary to stderr.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from imgdiff import about, cli_targets, interrupts, pipeline, snapshot
from imgdiff import cli_streams as streams
from imgdiff.cli_options import CacheDirectory
from imgdiff.cli_record import record_command
from imgdiff.cli_resolve import resolve_command
from imgdiff.errors import ImgdiffError, UsageError
from imgdiff.model import Change
from imgdiff.reports import EXIT_CODES, FORMATS, View, early, progress, render, safe, summary, transferred
from imgdiff.store import Store

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Main(click.Group):
    """``imgdiff A B`` is the main job; a first word that names a subcommand is one (``./cache`` is a path)."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            raise click.UsageError("two images are wanted: imgdiff A B", ctx)
        if not any(word in self.commands for word in args[:1]) and args[0] not in ("-h", "--help", "--version"):
            args = ["diff", *args]
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        with _no_one():  # --help and --version write here
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> object:
        with _no_one():
            return super().invoke(ctx)


@contextmanager
def _no_one() -> Iterator[None]:
    """Keep a closed pipe from click, which would end with 1, and that says "stands"."""
    try:
        yield
    except BrokenPipeError as error:
        raise _ClosedPipeError from error


class _OutputFile(click.Path):
    """A file to write; an empty word would be the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty and names no file", param, ctx)
        return super().convert(value, param, ctx)


class _ClosedPipeError(Exception):
    """Nobody reads stdout any more."""


@click.group(cls=_Main, context_settings=_CONTEXT)
@click.version_option(about.VERSION, prog_name="imgdiff")
def cli() -> None:
    """Tell whether the difference between two container images can explain what a process does.

    imgdiff A B compares them (imgdiff diff --help has the options); imgdiff snapshot keeps
    what a later comparison needs of one; imgdiff resolve says which copy a name leads to in one;
    imgdiff record records what a container loads; imgdiff cache shows or clears the cache.
    """


cli.add_command(resolve_command)
cli.add_command(record_command)


@cli.command("diff")
@click.argument("a")
@click.argument("b")
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(tuple(FORMATS)),
    help="What to write; terminal by default. May be given several times.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=_OutputFile(path_type=Path, dir_okay=False),
    help="Write to this file instead of stdout. Its ending tells which --format (or, without any, what) goes there, "
    "else their order does.",
)
@click.option("--platform", metavar="OS/ARCH[/VARIANT]", help="Pick this one from an image index.")
@click.option("--entry", metavar="COMMAND", help="Trace from this command line (a bare module name means python -m).")
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="ROLE",
    help="Judge the claim for this role, instead of the engine's. May be given several times.",
)
@click.option("--profile", metavar="NAME", help="Use this engine profile instead of the one recognised.")
@click.option(
    "--accept",
    multiple=True,
    type=click.Choice(("dormant",)),
    help="Take files that only unreferenced functions could load as not loaded; the verdict says so.",
)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="[ROLE=]FILE",
    help="A recording of a run: a directory, a tar or a file of imgdiff's own format, strace, LD_DEBUG=files, "
    "/proc/PID/maps, importtime, python -v. It raises what it shows, and settles what it is complete for. May be given "
    "several times; single files are one run together.",
)
@click.option(
    "--trace-any-image",
    is_flag=True,
    help="Take recordings that were made on another image, too; what ran there with other bytes is a blindspot.",
)
@click.option(
    "--assume",
    multiple=True,
    metavar="NAME=VALUE",
    help="Leave out what only another platform would load (platform=xpu; the profiles have the values). The verdict "
    "says so. May be given several times.",
)
@click.option(
    "--model-arch",
    "model_archs",
    multiple=True,
    metavar="CLASS",
    help="Leave out the models that this architecture (LlamaForCausalLM) does not need. The verdict says so. May be "
    "given several times.",
)
@click.option(
    "--model-config",
    type=_OutputFile(path_type=Path, dir_okay=False),
    help="The model's config.json: the same, for all architectures that it names.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="OWNER",
    help="Show this owner's differences only. May be given several times.",
)
@click.option("--loaded", is_flag=True, help="Show only what some role loads.")
@click.option("--cache-dir", type=CacheDirectory(path_type=Path, file_okay=False), help="Where the cache lies.")
@click.option("--no-cache", is_flag=True, help="Use a temporary cache and remove it.")
@click.option("--insecure", is_flag=True, help="Allow plain HTTP and unverified TLS for registries.")
@click.option(
    "--trust-toc",
    is_flag=True,
    help="Believe tables of contents of eStargz and zstd:chunked layers in registries, instead of reading such layers "
    "whole; the report says so.",
)
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Processes to use; all cores by default.")
@click.option(
    "--early",
    "early_list",
    is_flag=True,
    help="Write each differing file, whose it is and what in it differs to stderr before it is traced who loads it.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary.")
@click.option("-v", "--verbose", count=True, help="Show all rows and whole chains; twice: every file.")
def diff_command(
    a: str,
    b: str,
    formats: tuple[str, ...],
    outputs: tuple[Path, ...],
    platform: str | None,
    entry: str | None,
    roles: tuple[str, ...],
    profile: str | None,
    accept: tuple[str, ...],
    assume: tuple[str, ...],
    model_archs: tuple[str, ...],
    model_config: Path | None,
    traces: tuple[str, ...],
    trace_any_image: bool,
    only: tuple[str, ...],
    loaded: bool,
    cache_dir: Path | None,
    no_cache: bool,
    insecure: bool,
    trust_toc: bool,
    jobs: int | None,
    early_list: bool,
    quiet: bool,
    verbose: int,
) -> None:
    """Compare images A and B.

    Each is a directory or file that is recognised as an image, or

    \b
    oci:DIR[:TAG][@DIGEST]   oci-archive:FILE[:TAG]   docker-archive:FILE[:TAG]
    dir:DIR                  rootfs:DIR (a plain root file system)
    snapshot:FILE (what imgdiff snapshot wrote)
    wheel:FILE (one side: held against the same distribution in the other)
    NAME (docker's, else podman's, else its registry's)
    docker:NAME   podman:NAME   container:NAME
    registry:[HOST[:PORT]/]NAME[:TAG][@DIGEST]

    Exit codes: 0 identical or killed, 1 stands, 3 undecided, 2 trouble.
    """
    targets = cli_targets.targets(formats, outputs)
    cli_targets.check(outputs, (a, b), traces)
    if sys.stdout is None and any(path is None for _, path in targets):
        raise UsageError("the report can't be written to stdout: it is closed", "use -o FILE")
    if a == b or cli_targets.same(a, b):
        raise UsageError("both references are the same", "name two images, or two tags or digests of one")
    options = pipeline.Options(
        platform=platform,
        entry=entry,
        roles=roles,
        accept=accept,
        assume=assume,
        model_archs=model_archs,
        model_config=model_config,
        profile=profile,
        cache_dir=cache_dir,
        cache=not no_cache,
        jobs=jobs,
        argv=("imgdiff", *sys.argv[1:]),
        insecure=insecure,
        trust_toc=trust_toc,
        traces=traces,
        any_image=trace_any_image,
    )
    gc.disable()  # the process ends soon: to look for cycles among some ten million objects first takes seconds
    with progress.display(enabled=streams.shows_progress(quiet=quiet)) as shown:
        report = pipeline.diff(a, b, options, shown, _say_early if early_list else None)
    gc.freeze()  # nor at the very end
    view = View(only=only, loaded=loaded, verbose=verbose)
    _check_owners(only, {row.name for row in report.owners})
    rendered: list[tuple[Path | None, str, str]] = []
    for format_, path in targets:
        color = path is None and streams.has_color()
        encoding = sys.stdout.encoding if path is None and format_ == "terminal" else "utf-8"  # JSON is UTF-8 anywhere
        rendered.append((path, encoding, render(report, format_, view, color=color, width=streams.width(path))))
    rendered.sort(key=lambda target: target[0] is None)  # stdout last, when the files are there
    for path, encoding, text in rendered:
        streams.write(path, text, encoding)
    if not quiet and any(path is not None or format_ != "terminal" for format_, path in targets):
        click.echo(summary(report), err=True)
    moved = transferred(report)
    if not quiet and moved is not None:
        click.echo(moved, err=True)
    sys.exit(EXIT_CODES[report.verdict.outcome])


def _say_early(changes: Sequence[Change]) -> None:
    click.echo("\n".join(early.lines(changes)), err=True)


def _check_owners(only: tuple[str, ...], names: set[str]) -> None:
    unknown = [name for name in only if name not in names]
    if unknown:
        raise UsageError(f"no owner is called {unknown[0]!r}", "the table by owner and the JSON report have the names")


@cli.group("cache", no_args_is_help=False)  # what is missing is said in one sentence, as everywhere
def cache_group() -> None:
    """Show, clear or shrink the cache of layer indexes and facts."""


_cache_dir = click.option(
    "--cache-dir", type=CacheDirectory(path_type=Path, file_okay=False), help="Where the cache lies."
)


def _known(directory: Path | None) -> Path | None:
    """Return the directory of a cache; one that is not empty and was never a cache is refused, as nothing in it is
    ours."""
    if directory is not None and not (directory / "CACHEDIR.TAG").exists():
        try:
            foreign = any(directory.iterdir())
        except FileNotFoundError:
            foreign = False
        if foreign:
            raise UsageError(
                f"{str(directory)!r} is no cache of imgdiff", "give the directory that runs had as --cache-dir"
            )
    return directory


@cache_group.command("info")
@_cache_dir
def cache_info(cache_dir: Path | None) -> None:
    """Say where the cache lies and how large it is."""
    with Store.open(_known(cache_dir)) as store:
        for name, value in store.info().items():
            click.echo(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}")


_quiet = click.option("-q", "--quiet", is_flag=True, help="Say nothing of what was freed.")


@cache_group.command("clear")
@_cache_dir
@_quiet
def cache_clear(cache_dir: Path | None, quiet: bool) -> None:
    """Remove everything that is cached."""
    with Store.open(_known(cache_dir)) as store:
        before = store.info()
        store.clear()
        _say_freed(store, before, quiet)


def _say_freed(store: Store, before: Mapping[str, str | int], quiet: bool) -> None:
    after = store.info()
    layers, freed = (max(0, int(before[name]) - int(after[name])) for name in ("layers", "bytes"))
    if not quiet:
        noun = "layer" if layers == 1 else "layers"
        place = safe(str(store.directory))
        click.echo(f"freed {freed / 1e6:,.1f} MB ({layers:,} {noun}) in {place}", err=True)


@cache_group.command("prune", short_help="Remove what was not used for longest.")
@click.option(
    "--max-size",
    type=click.IntRange(0),
    default=20_000,
    show_default=True,
    metavar="MB",
    help="How large the cache may stay, in megabytes.",
)
@_cache_dir
@_quiet
def cache_prune(max_size: int, cache_dir: Path | None, quiet: bool) -> None:
    """Remove what was not used for longest, until the cache fits in --max-size megabytes."""
    with Store.open(_known(cache_dir)) as store:
        before = store.info()
        store.prune(max_size * 1_000_000)
        _say_freed(store, before, quiet)


@cli.command("snapshot", short_help="Keep what a later comparison needs of an image.")
@click.argument("image")
@click.option(
    "-o",
    "--output",
    required=True,
    type=_OutputFile(path_type=Path, dir_okay=False),
    help="The file to write. An older snapshot there is replaced, anything else is not.",
)
@click.option("--texts", is_flag=True, help="Keep Python modules whole, too: five times as large, and told in full.")
@click.option("--platform", metavar="OS/ARCH[/VARIANT]", help="Pick this one from an image index.")
@click.option("--cache-dir", type=CacheDirectory(path_type=Path, file_okay=False), help="Where the cache lies.")
@click.option("--no-cache", is_flag=True, help="Use a temporary cache and remove it.")
@click.option("--insecure", is_flag=True, help="Allow plain HTTP and unverified TLS for registries.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Processes to use; all cores by default.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, and no word on the size.")
def snapshot_command(
    image: str,
    output: Path,
    texts: bool,
    platform: str | None,
    cache_dir: Path | None,
    no_cache: bool,
    insecure: bool,
    jobs: int | None,
    quiet: bool,
) -> None:
    """Keep what a later comparison needs of IMAGE in a small file, which then is an image to imgdiff."""
    options = pipeline.Options(platform=platform, cache_dir=cache_dir, cache=not no_cache, jobs=jobs, insecure=insecure)
    with progress.display(enabled=streams.shows_progress(quiet=quiet)) as shown:
        taken = snapshot.take(image, output, options, texts=texts, progress=shown)
    if not quiet:
        parts = [f"{taken.size / taken.plain:.2%} of the image's {taken.plain:,}"] if taken.plain else []
        if taken.stored:
            parts.append(f"{taken.size / taken.stored:.2%} of the {taken.stored:,} of its layers as stored")
        click.echo(f"{safe(str(output))}: {taken.size:,} bytes{''.join(f', {part}' for part in parts)}", err=True)


def main() -> NoReturn:
    """Run the command line; every expected trouble is one sentence on stderr and exit code 2."""
    streams.fill_closed()
    interrupts.listen()
    try:
        result = cli.main(standalone_mode=False, prog_name="imgdiff")
        sys.exit(result if isinstance(result, int) else 0)
    except _ClosedPipeError:
        streams.drop_stdout()
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        signum = interrupts.signal_of(error.__cause__ or error)  # click wraps what it catches
        with suppress(OSError):  # the terminal is gone
            click.echo("interrupted", err=True)
        signal.signal(signum, signal.SIG_DFL)
        if signum != signal.SIGHUP:  # that ends multiprocessing's own helper, too, which would be missed loudly
            atexit._run_exitfuncs()  # noqa: SLF001  else the directory stays that is made for workers' sockets
        os.kill(os.getpid(), signum)  # so that a calling shell sees an interrupt, not an error
    except click.ClickException as error:
        click.echo(f"imgdiff: {safe(error.format_message())}", err=True)
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context is not None and context.parent is not None else "imgdiff diff"
        click.echo(f"  hint: {safe(command)} --help has the options", err=True)
    except ImgdiffError as error:
        click.echo(f"imgdiff: {safe(str(error))}", err=True)
        if error.hint:
            click.echo(f"  hint: {safe(error.hint)}", err=True)
    except OSError as error:  # of what no stage opens: stdout that is full, a working directory that is gone
        streams.drop_stdout()
        click.echo(f"imgdiff: {safe(_trouble(error))}", err=True)
    sys.exit(2)


def _trouble(error: OSError) -> str:
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return "the working directory is gone"
    return f"it can't be written: {error.strerror or error}"


if __name__ == "__main__":
    main()
