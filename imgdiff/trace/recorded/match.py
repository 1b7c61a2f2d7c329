"""On which of two images a run was recorded: by the digests of what it executed, else by its paths."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from imgdiff.errors import RecordingError
from imgdiff.model import Image, RecordedFile, Recording, Side, Tree
from imgdiff.trace.recorded.places import Places, recorders

_LEAST = 0.5  # of the paths of a recording without digests, that have to be in an image
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}  # platform(1), OCI's words
_ANYWAY = "--trace-any-image takes it all the same"


class One(msgspec.Struct, frozen=True):  # holds live objects: never serialised
    """One of the two images, as far as it matters where a run was recorded."""

    side: Side
    image: Image
    tree: Tree
    places: Places


class Fit(msgspec.Struct):
    """How a recording fits an image: files with the image's own bytes, those with others, executed ones whose bytes
    nobody saw, names that the image has, and names that it lacks."""

    same: int = 0
    other: list[bytes] = []
    unseen: list[bytes] = []
    there: int = 0
    missing: int = 0


class Made(msgspec.Struct, frozen=True):
    """The sides that a recording speaks for, how it fits each, and whether bytes prove that."""

    sides: tuple[Side, ...]
    fits: dict[Side, Fit]
    proven: bool


def made_on(recording: Recording, images: Sequence[One], *, any_image: bool) -> Made:
    """Return which of the images a run was recorded on: both, where nothing tells them apart.

    Raises RecordingError where it was made on neither. With ``any_image`` it speaks for those that it fits best.
    """
    fits = {one.side: _fit(recording, one.places) for one in images}
    named = _named(recording, images)
    asked = [one.side for one in images if not named or one.side in named]
    best = min(_misfit(fits[side]) for side in asked)
    sides = tuple(side for side in asked if _misfit(fits[side]) == best)
    first = fits[sides[0]]
    proven = first.same > 0
    digests = proven or bool(first.other)
    if not any_image:
        _check_machine(recording, images)
        if first.other and not named:
            raise RecordingError(
                f"the recording {recording.source} was made on another image: in neither a nor b "
                f"{_show(first.other[0])} has the bytes that were run",
                f"record the image that is compared; {_ANYWAY}",
            )
        known = first.there + first.missing  # none where only modules' names are known
        if (digests and not proven) or (not digests and first.there < _LEAST * known):
            raise RecordingError(
                f"the recording {recording.source} was made on another image: most files that it names are in "
                "neither a nor b",
                f"record the image that is compared; {_ANYWAY}",
            )
    return Made(sides, fits, proven)


def _check_machine(recording: Recording, images: Sequence[One]) -> None:
    built = {one.image.platform.split("/")[1] for one in images if one.image.platform.count("/")}
    for process in recording.processes:
        machine = _MACHINES.get(process.machine or "")
        if machine is not None and built and machine not in built:
            raise RecordingError(
                f"the recording {recording.source} was made on {process.machine}, and the images are for "
                f"{' and '.join(sorted(built))}",
                f"record the image that is compared; {_ANYWAY}",
            )


def _misfit(fit: Fit) -> tuple[int, int]:
    return len(fit.other), fit.missing


def _named(recording: Recording, images: Sequence[One]) -> tuple[Side, ...]:
    """Return the side whose digest or reference the recording names, if it names one."""
    said = {process.image for process in recording.processes if process.image}
    found = tuple(
        one.side
        for one in images
        if said.intersection(filter(None, (one.image.manifest_digest, one.image.config_digest, one.image.reference)))
    )
    return found if len(found) == 1 else ()


def _fit(recording: Recording, places: Places) -> Fit:
    fit = Fit()
    seen: set[tuple[bytes, bytes | None]] = set()
    for process in recording.processes:
        digests = process.python is not None
        for file in process.files:
            if file.how in ("sought", "listed", "named") or not file.path or recorders(process, file.path, places.tree):
                continue
            place = places.find(file.path, file.cwd if file.cwd is not None else process.cwd)
            if place is None or (place.path, file.digest) in seen:
                continue
            seen.add((place.path, file.digest))
            _count(fit, places, file, place.path, place.there, digests)
    return fit


def _count(fit: Fit, places: Places, file: RecordedFile, path: bytes, there: bool, digests: bool) -> None:
    entry = places.tree.get(path) if there else None
    if entry is None or entry.type != "file":
        # What a run makes or is given (caches, models) says nothing of the image, unless it is code.
        fit.missing += file.how in ("executed", "mapped") or (file.how == "before" and not file.path.endswith(b".pyc"))
        return
    fit.there += 1
    if file.digest is None:
        if digests and file.how == "executed":
            fit.unseen.append(path)
    elif file.digest == entry.digest:
        fit.same += 1
    else:
        fit.other.append(path)


def _show(path: bytes) -> str:
    return "/" + path.decode("utf-8", "backslashreplace")
