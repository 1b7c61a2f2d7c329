"""Where reports go: formats paired with files, and what is wrong with those before the long work begins."""

from __future__ import annotations

import os
from pathlib import Path

from imgdiff import recordings
from imgdiff.errors import UsageError
from imgdiff.sources import registry

_ENDINGS = {".json": "json", ".md": "markdown", ".markdown": "markdown", ".txt": "terminal"}


def targets(formats: tuple[str, ...], outputs: tuple[Path, ...]) -> list[tuple[str, Path | None]]:
    """Pair formats with files: by a file's ending where that names one of several formats, the rest in order. A format
    without a file goes to stdout."""
    if not formats and not outputs:
        return [("terminal", None)]
    if not formats:
        return [(_by_ending(path), path) for path in outputs]
    if len(outputs) > len(formats):
        raise UsageError("there are more -o than --format", "give one --format for each file, or none at all")
    pairs: list[tuple[str, Path | None]] = [(format_, None) for format_ in formats]
    others = []
    for path in outputs:
        named = _ENDINGS.get(path.suffix)
        index = next((i for i, pair in enumerate(pairs) if pair == (named, None)), None)
        if index is None:
            others.append(path)
        else:
            pairs[index] = formats[index], path
    free = (i for i, (_, path) in enumerate(pairs) if path is None)
    for index, path in zip(free, others, strict=False):
        pairs[index] = formats[index], path
    if sum(path is None for _, path in pairs) > 1:
        raise UsageError("only one report can go to stdout", "give each further --format a file with -o")
    return pairs


def _by_ending(path: Path) -> str:
    if path.suffix not in _ENDINGS:
        raise UsageError(f"the ending of {str(path)!r} names no format", "add --format terminal, json or markdown")
    return _ENDINGS[path.suffix]


def check(outputs: tuple[Path, ...], references: tuple[str, ...], traces: tuple[str, ...] = ()) -> None:
    """Say before the long work what would fail after it, or would write over an image."""
    targets = [os.path.realpath(path) for path in outputs]
    regular = [target for target in targets if Path(target).is_file() or not os.path.lexists(target)]
    if len(set(regular)) < len(regular):
        raise UsageError("two reports can't go to one file", "give each -o a file of its own")
    images = [_place(reference)[1] for reference in references]
    recorded = [os.path.realpath(recordings.split(trace)[1]) for trace in traces]
    for path, target in zip(outputs, targets, strict=True):
        if any(target == image or target.startswith(image.rstrip("/") + "/") for image in images if image != "/"):
            raise UsageError(f"{str(path)!r} is part of an image that is compared", "choose another file with -o")
        if any(target == trace or target.startswith(trace + "/") for trace in recorded):
            raise UsageError(f"{str(path)!r} is part of a recording", "choose another file with -o")
    for path in outputs:
        if not path.parent.is_dir():
            raise UsageError(
                f"{str(path)!r} can't be written: its directory is not there", "make it, or choose another"
            )
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UsageError(f"{str(path)!r} can't be written: permission denied", "choose another file with -o")


def same(a: str, b: str) -> bool:
    """Tell whether two references are one image on disk, however its path is spelled, with or without a scheme."""
    (scheme_a, *place_a), (scheme_b, *place_b) = _place(a), _place(b)
    return place_a == place_b and (scheme_a == scheme_b or not (scheme_a and scheme_b))


def _place(reference: str) -> tuple[str, str, str]:
    """Return the scheme, canonical path and ``:tag`` or ``@digest`` of a reference to what lies on disk, the full name
    of one to a registry, and any other one as it is: a bare name can be an older image in an engine. A path that exists
    wins over a tag, as where images are opened."""
    scheme, colon, rest = reference.partition(":")
    for before, text in (("", reference), (scheme, rest if colon else "")):
        for end in (len(text), *(at for at in (text.rfind("@"), text.rfind(":", 0, text.find("@"))) if at > 0)):
            path = text[:end]
            if path and "\0" not in path and os.path.lexists(path):
                return before, os.path.realpath(path), text[end:]
    if registry.is_named(reference):
        return registry.SCHEME, registry.full_name(reference), ""
    return "named", reference, ""
