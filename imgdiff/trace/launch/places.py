"""What a path in shell code stands for: the script's own place, the home directory; and what holds too much."""

from __future__ import annotations

from collections.abc import Mapping

from imgdiff.model import HOLE, HOLE_DIR, HOLE_FILE, Pattern, Tree

BROAD = frozenset(
    b"usr usr/lib usr/lib64 usr/share usr/local usr/local/lib usr/bin usr/sbin usr/local/bin usr/local/sbin lib lib64 "
    b"bin sbin etc opt var root home srv tmp".split()
)
"""Directories that hold so much that a name in them tells nothing."""

_MAX_HOMES = 400


def own_place(pattern: Pattern, script: bytes | None) -> Pattern:
    """Return a pattern with the script's own path and directory in it; those of a command line are not known."""
    if script is None:
        return pattern.replace(HOLE_FILE, HOLE).replace(HOLE_DIR, HOLE)
    own = "/" + script.decode("utf-8", "surrogateescape")
    return pattern.replace(HOLE_FILE, own).replace(HOLE_DIR, own.rpartition("/")[0])


def at_homes(name: str, env: Mapping[str, str], tree: Tree) -> tuple[str, ...]:
    """Return what a path can be where ``~`` is the home directory: ENV says which, else it is root's or a user's."""
    if name != "~" and not name.startswith("~/"):
        return (name,)
    users = ("/home/" + user.decode("utf-8", "surrogateescape") for user in sorted(tree.children(b"home")))
    homes = [env["HOME"]] if env.get("HOME") else ["/root", *users]
    return tuple([home.rstrip("/") + name[1:] for home in homes[:_MAX_HOMES]])
