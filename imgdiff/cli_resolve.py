"""``imgdiff resolve IMAGE NAME``: which copy a name leads to, and why."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from imgdiff import cli_streams as streams
from imgdiff import lookup, pipeline
from imgdiff.cli_options import CacheDirectory
from imgdiff.model import LookupKind
from imgdiff.reports import lookup as report
from imgdiff.reports import progress


@click.command("resolve", short_help="Say which copy a module, library or program name leads to.")
@click.argument("image")
@click.argument("name")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(("module", "library", "program")),
    help="What NAME is; by default its form tells. May be given several times.",
)
@click.option("--for", "loader", metavar="FILE", help="The ELF file in the image whose library NAME is looked for.")
@click.option("--entry", metavar="COMMAND", help="Start from this command line (a bare module name means python -m).")
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="ROLE",
    help="Trace this role, too, and tell every copy that it takes for NAME. May be given several times.",
)
@click.option("--profile", metavar="NAME", help="Use this engine profile instead of the one recognised.")
@click.option("--platform", metavar="OS/ARCH[/VARIANT]", help="Pick this one from an image index.")
@click.option(
    "--format", "format_", type=click.Choice(report.FORMATS), default="text", show_default=True, help="What to write."
)
@click.option("--cache-dir", type=CacheDirectory(path_type=Path, file_okay=False), help="Where the cache lies.")
@click.option("--no-cache", is_flag=True, help="Use a temporary cache and remove it.")
@click.option("--insecure", is_flag=True, help="Allow plain HTTP and unverified TLS for registries.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Processes to use; all cores by default.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def resolve_command(
    image: str,
    name: str,
    kinds: tuple[LookupKind, ...],
    loader: str | None,
    entry: str | None,
    roles: tuple[str, ...],
    profile: str | None,
    platform: str | None,
    format_: str,
    cache_dir: Path | None,
    no_cache: bool,
    insecure: bool,
    jobs: int | None,
    quiet: bool,
) -> None:
    """Say which copy of NAME wins in IMAGE: a module (vllm.envs), a library (libsycl.so.8) or a program (python).

    Every place that is searched is listed in its order, with who puts it there, what lies in it, which copy wins and
    which lose. IMAGE is any reference that diff takes.

    The answer is what the processes that the entry starts have at their start. What code adds to a search path while
    it runs, and what is loaded before, is known to the trace of a role: --role adds that.

    Exit codes: 0 found, 1 not found, 2 trouble.
    """
    options = pipeline.Options(
        platform=platform,
        entry=entry,
        roles=roles,
        profile=profile,
        cache_dir=cache_dir,
        cache=not no_cache,
        jobs=jobs,
        insecure=insecure,
    )
    with progress.display(enabled=streams.shows_progress(quiet=quiet)) as shown:
        answer = lookup.resolve(image, lookup.Question(name, kinds, loader), options, shown)
    sys.stdout.buffer.write(report.render(answer, format_).encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
    sys.exit(0 if report.found(answer) else 1)
