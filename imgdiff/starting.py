"""Who the processes of a container are, and whether they keep root's rights. Pure: by the image's config and files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imgdiff.model import ImageConfig, Texts, Tree

_ROOT = re.compile(r"(?:root|0*)(?::.*)?", re.DOTALL)
_NUMBER = re.compile(rb"[0-9]{1,10}")
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


def is_root(config: ImageConfig, tree: Tree, texts: Texts) -> bool:
    """Tell whether a container is proven to start as user 0 in group 0 and no other, however its config spells that: no
    user, ``0`` or ``root``, with or without the group (OCI image-spec, config.md, ``User``).

    Engines look names up in the image's own passwd(5) and group(5). They take the first line that fits, read a number
    that is none as 0, and give a user without a group those of which it is a member: so every line has to be whole, the
    first of user 0 has to be root's, and root a member of no other group. Some look nothing up where no user is named.
    """
    name, _, group = config.user.partition(":")
    if name not in ("", "0", "root") or group not in ("", "0", "root"):
        return False
    users, groups = _lines(b"etc/passwd", 7, tree, texts), _lines(b"etc/group", 4, tree, texts)
    if users is None or groups is None:
        return False
    first = next((each for each in users if int(each[2]) == 0), None)
    named = next((each for each in users if each[0] == b"root"), None)
    if first is None or first is not named or int(first[3]) != 0:
        return False
    if next((int(each[2]) for each in groups if each[0] == b"root"), None) != 0:
        return False
    return all(int(each[2]) == 0 for each in groups if b"root" in each[3].split(b","))


def _lines(path: bytes, fields: int, tree: Tree, texts: Texts) -> list[list[bytes]] | None:
    """Return the lines of passwd(5) or group(5), cut into fields; None where not every line is whole."""
    entry = tree.lookup(path)
    text = None if entry is None or entry.digest is None else texts.get(entry.digest)
    if text is None:
        return None
    found = [line.split(b":") for line in text.split(b"\n") if line]
    numbers = (2, 3) if fields == 7 else (2,)
    whole = all(len(each) == fields and all(_NUMBER.fullmatch(each[at]) for at in numbers) for each in found)
    return found if whole else None


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
