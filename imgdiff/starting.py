"""Whether the processes of a container keep root's rights. Pure: by the image's config and its own files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imgdiff.model import ImageConfig, Texts, Tree

_ROOT = re.compile(r"(?:root|0*)(?::.*)?", re.DOTALL)
# Programs that give up root's rights before they start another, in an entry's words or script.
_DROPS = re.compile(
    rb"(?<![\w-])(?:gosu|su-exec|setpriv|runuser|s6-setuidgid|setuidgid|chpst|sudo|su|start-stop-daemon|supervisord"
    rb"|capsh|unshare|nsenter|--userspec)(?![\w-])"
)
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where engines look for programs if ENV has no PATH."""


def keeps_root(config: ImageConfig | None, tree: Tree, texts: Texts) -> bool:
    """Tell whether an image's processes run as root as far as its config and its entry's scripts say (OCI image-spec,
    config.md, ``User``). Without a config engines start root. Who is given at start, and what code gives up by itself,
    no image tells."""
    if config is None:
        return True
    if not _ROOT.fullmatch(config.user):
        return False
    return not any(_DROPS.search(text) for text in _entry_texts(config, tree, texts))


def _entry_texts(config: ImageConfig, tree: Tree, texts: Texts) -> Iterator[bytes]:
    """Yield the words of the command line, and the scripts among them."""
    cwd = config.working_dir.encode("utf-8", "surrogateescape")
    for word in (*config.entrypoint, *config.cmd):
        encoded = word.encode("utf-8", "surrogateescape")
        yield encoded
        names = [encoded] if b"/" in encoded else [place + b"/" + encoded for place in _path(config)]
        for name in names:
            found = tree.resolve(name, cwd.strip(b"/"))
            entry = None if found is None else tree.get(found)
            text = texts.get(entry.digest) if entry is not None and entry.digest is not None else None
            if text is not None and text.startswith(b"#!"):
                yield text


def _path(config: ImageConfig) -> list[bytes]:
    values = [line.partition("=")[2] for line in config.env if line.startswith("PATH=")]
    value = values[-1] if values else DEFAULT_PATH
    return [part.encode("utf-8", "surrogateescape") for part in value.split(":") if part]
