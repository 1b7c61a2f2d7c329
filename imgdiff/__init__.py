"""Forensic diff of two container images.

``diff(a, b)`` returns a :class:`~imgdiff.model.Report`; ``render(report, "markdown")`` makes text of it. That, the
options of :func:`diff` and the error tree are the public API::

    import imgdiff

    report = imgdiff.diff("fixtures/story/a", "fixtures/story/b")
    print(report.verdict.outcome, report.verdict.headline)
"""

from __future__ import annotations

from imgdiff.errors import ImgdiffError

TYPE_CHECKING = False  # importing typing takes longer than all the rest here, and Ctrl-C could come meanwhile
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from imgdiff.model import Change, Report

__all__ = ["ImgdiffError", "__version__", "diff", "render"]


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from imgdiff.about import VERSION

    return VERSION


def diff(
    a: str,
    b: str,
    *,
    platform: str | None = None,
    entry: str | None = None,
    roles: Sequence[str] = (),
    accept: Sequence[str] = (),
    profile: str | None = None,
    cache_dir: Path | None = None,
    cache: bool = True,
    jobs: int | None = None,
    insecure: bool = False,
    traces: Sequence[str] = (),
    trace_any_image: bool = False,
    trust_toc: bool = False,
    assume: Sequence[str] = (),
    model_archs: Sequence[str] = (),
    model_config: Path | None = None,
    early: Callable[[Sequence[Change]], None] | None = None,
) -> Report:
    """Compare two images and return the report.

    Args:
        a: Reference of the first image, as on the command line (``DIR``, ``oci:DIR:TAG``, ``registry:NAME``).
        b: Reference of the second one.
        platform: ``os/arch[/variant]`` to pick from an index.
        entry: A command line instead of the images' own (a bare module name means ``python -m``).
        roles: The roles that the claim is about (default: the profile's engine roles).
        accept: Levels of evidence taken as not loaded: ``dormant`` or nothing.
        profile: An engine profile by name (default: the one that is recognised).
        cache_dir: Where the cache lies (default: the user's cache directory).
        cache: False uses a temporary cache that is removed afterwards.
        jobs: Processes to use (default: all cores).
        insecure: Allow plain HTTP and unverified TLS for registries.
        traces: Recordings of runs, each ``PATH`` or ``ROLE=PATH`` (see ``docs/traces.md``).
        trace_any_image: Take recordings that were made on another image, too.
        trust_toc: Believe the tables of contents of layers in registries (see ``docs/sources.md``).
        assume: What the run is known to be, ``NAME=VALUE`` each (see ``docs/verdicts.md``).
        model_archs: The classes of the models that are served.
        model_config: The served model's ``config.json``.
        early: Called once with all changes, their owners and deltas, before it is traced who loads them; not where the
            report is known.

    Raises:
        ImgdiffError: an image can't be read or used; ``str(error)`` is one sentence, ``error.hint`` says what to do.
    """
    from imgdiff.pipeline import Options
    from imgdiff.pipeline import diff as run

    return run(
        a,
        b,
        Options(
            platform=platform,
            entry=entry,
            roles=tuple(roles),
            accept=tuple(accept),
            profile=profile,
            cache_dir=cache_dir,
            cache=cache,
            jobs=jobs,
            insecure=insecure,
            traces=tuple(traces),
            any_image=trace_any_image,
            trust_toc=trust_toc,
            assume=tuple(assume),
            model_archs=tuple(model_archs),
            model_config=model_config,
        ),
        early=early,
    )


def render(report: Report, format: str = "terminal", *, color: bool = False, width: int = 80) -> str:  # noqa: A002  the word of the command line's --format
    """Return a report as text: ``terminal``, ``json`` or ``markdown``."""
    from imgdiff.reports import View
    from imgdiff.reports import render as make

    return make(report, format, View(), color=color, width=width)
