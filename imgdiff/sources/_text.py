"""How text that came from an image or a command line stands in an error's sentence."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 200  # characters of one foreign text in a sentence
MOST = 20  # items of one list in a sentence


def shown(text: str) -> str:
    """Return the text with everything unprintable escaped (``\\x1b``), cut after 200 characters."""
    safe = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:LONGEST])
    return safe if len(text) <= LONGEST else safe + "..."


def listed(items: Iterable[str]) -> str:
    """Return ``a, b and c``, each :func:`shown`, with the count of what is left out behind the twentieth."""
    texts = [shown(item) for item in items]
    if len(texts) > MOST:
        texts = [*texts[:MOST], f"{len(texts) - MOST} more"]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}" if texts else "nothing"
