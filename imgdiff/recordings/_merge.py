"""Files of one recording that speak of one process: the recorder's own, the loader's, a dump of its maps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from imgdiff.model import RecordedProcess


def merged(processes: Sequence[RecordedProcess]) -> tuple[RecordedProcess, ...]:
    """Return the processes, with what is said without a beginning given to the process of its pid that has one.

    Several of one pid (a program that started another in its place) all get it: each may have loaded it.
    """
    begun: dict[int, list[int]] = {}
    kept: list[RecordedProcess] = [each for each in processes if each.start != "unknown"]
    for position, each in enumerate(kept):
        if each.pid is not None:
            begun.setdefault(each.pid, []).append(position)
    places = {each.place for each in kept}
    rest: list[RecordedProcess] = []
    for each in processes:
        if each.start != "unknown":
            continue
        owners = begun.get(each.pid, []) if each.pid is not None else []
        if not owners or (len(places) > 1 and not each.place):
            rest.append(each)  # of which host's process of that pid it speaks is not known
            continue
        for position in owners:
            kept[position] = _with(kept[position], each)
    return (*kept, *rest)


def _with(process: RecordedProcess, more: RecordedProcess) -> RecordedProcess:
    coverage = process.coverage | more.coverage
    return msgspec.structs.replace(
        process,
        files=tuple(dict.fromkeys((*process.files, *more.files))),
        titles=tuple(dict.fromkeys((*process.titles, *more.titles))),
        children=(*process.children, *more.children),
        coverage=coverage,
        gaps=tuple(dict.fromkeys((*process.gaps, *more.gaps))),
    )
