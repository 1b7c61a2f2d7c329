"""Which files each role of an engine loads, by static means: roots, closure, levels (docs: "Who loads it")."""

from __future__ import annotations

import gc

from imgdiff.model import Attribution, FactSource, ImageConfig, Profile, Side, Trace, Tree
from imgdiff.trace.kept import freeze, thaw, turned
from imgdiff.trace.tracer import Tracer

__all__ = ["freeze", "thaw", "trace", "turned"]


def trace(
    tree: Tree,
    attribution: Attribution,
    facts: FactSource,
    config: ImageConfig | None,
    profile: Profile,
    entry: str | None,
    side: Side,
) -> Trace:
    """Return what each role of the profile loads in this image.

    ``config`` is the image's (None for a plain root file system), ``entry`` another command line than the image's
    (``--entry``; a bare module name means ``python -m``). Nothing of the image is executed.
    """
    # Hundreds of thousands of small objects, all of which live on: the collector would only walk them again and again.
    enabled = gc.isenabled()
    gc.disable()
    try:
        return Tracer(tree, attribution, facts, config, profile, entry, side).run()
    finally:
        if enabled:
            gc.enable()
