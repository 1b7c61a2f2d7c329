"""Names of members: cleaned as runtimes clean them, and what a name says of lower layers (OCI image spec, layer.md)."""

from __future__ import annotations

from typing import Final, Literal

WHITEOUT: Final = b".wh."
OPAQUE: Final = b".wh..wh..opq"


def clean(name: bytes) -> tuple[bytes, bool]:
    """Return the path inside the root that a member name stands for, and whether the name led out of the root.

    Lexical, as umoci does it: slashes in front and behind, doubled ones, ``.`` and ``..`` go; a ``..`` at the root
    stays at the root. The root itself is ``b""``.
    """
    if b"//" not in name and b"/." not in name and name[:1] not in b"/." and name[-1:] != b"/":
        return name, False  # most names; b"" in b"/." is true, so an empty name goes the long way
    parts: list[bytes] = []
    escaped = False
    for part in name.split(b"/"):
        if part in (b"", b"."):
            continue
        if part != b"..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            escaped = True
    return b"/".join(parts), escaped


def whiteout(path: bytes) -> tuple[Literal["whiteout", "opaque", "nameless"], bytes] | None:
    """Return what a cleaned path hides in lower layers, or None where it is an ordinary name.

    ``whiteout`` comes with the hidden path, ``opaque`` with the directory whose lower content is hidden (exactly
    ``.wh..wh..opq``; ``.wh..wh..opqX`` hides ``.wh..opqX``, which is to say nothing, and so do AUFS's own
    ``.wh..wh.plnk`` and the like). ``nameless`` is a whiteout of "", "." or "..", which runtimes take differently.
    """
    directory, slash, base = path.rpartition(b"/")
    if not base.startswith(WHITEOUT):
        return None
    if base == OPAQUE:
        return "opaque", directory
    hidden = base[len(WHITEOUT) :]
    if hidden in (b"", b".", b".."):
        return "nameless", path
    return "whiteout", directory + slash + hidden
