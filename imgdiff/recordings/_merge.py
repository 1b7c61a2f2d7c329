"""Files of one run that speak of one process: the recorder's own, the loader's, strace's, a dump of its maps."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from imgdiff.interpreters import is_python
from imgdiff.model import Covers, RecordedProcess

Processes = list[RecordedProcess]
_CALLS = (
    "open",
    "stat",
    "access",
    "readlink",
    "execve",
    "failing",
)  # without each of these kinds something was left out of a log of system calls
_NUMBER = re.compile(r"\.\d+$")
_ASKS = re.compile(r"\b(?:files|all)\b")  # ld.so(8)


def merged(processes: Sequence[RecordedProcess]) -> tuple[RecordedProcess, ...]:
    """Return the processes of one run, each once.

    The recorder's own records say most: what other logs say of a pid goes to them; else to those that have a beginning.
    Several of one pid (a program that started another in its place) all get it: each may have loaded it.
    """
    found = _born(_threads(_placed(_covered(list(processes)))))
    found = _whole(found)
    found = _joined(found, [each.python is not None for each in found])
    return tuple(_loaders(_began(_joined(found, [each.start != "unknown" for each in found]))))


def _covered(processes: Processes) -> Processes:
    """A log of system calls covers them where it has calls of each kind; its files are told by the name they share."""
    kinds: dict[str, set[str]] = {}
    for each in processes:
        if each.calls is not None:
            kinds.setdefault(_NUMBER.sub("", each.source), set()).update(each.calls)
    found: Processes = []
    for each in processes:
        if each.calls is None:
            found.append(each)
            continue
        missing = [kind for kind in _CALLS if kind not in kinds[_NUMBER.sub("", each.source)]]
        if missing:
            gap = f"the log has no calls of the kind {' and '.join(missing)}"
            found.append(msgspec.structs.replace(each, gaps=(*each.gaps, gap)))
        else:
            found.append(msgspec.structs.replace(each, coverage=each.coverage | {"syscalls"}))
    return found


def _placed(processes: Processes) -> Processes:
    """Logs that name no host are of the one that the others name."""
    places = {each.place for each in processes if each.place}
    if len(places) != 1:
        return processes
    place = next(iter(places))
    return [each if each.place else msgspec.structs.replace(each, place=place) for each in processes]


def _threads(processes: Processes) -> Processes:
    """Give what a thread did to its process, where the two have files of their own."""
    owners = {
        (each.place, child.pid): each.pid for each in processes for child in each.children if child.how == "thread"
    }
    alone = [each for each in processes if each.start == "unknown" and (each.place, each.pid) in owners]
    if not alone:
        return processes
    kept = [each for each in processes if not any(each is thread for thread in alone)]
    for thread in alone:
        pid: int | None = thread.pid
        seen: set[int | None] = set()
        while (thread.place, pid) in owners and pid not in seen:  # a thread of a thread
            seen.add(pid)
            pid = owners[thread.place, pid]
        kept = [_with_thread(each, thread) if (each.place, each.pid) == (thread.place, pid) else each for each in kept]
    return kept


def _whole(processes: Processes) -> Processes:
    """Hold logs of system calls against what is known of their processes: one that was cut between two lines, that
    ended before its process, or of which lines were left out, looks like any other.

    Each process has its end in it, but for the first one of a container, with which what traces it ends, and for those
    that live until then. What the recorder saw of those was read by the recorder in the same process, each file by the
    name that it is told by, and the log has that. The loader's log tells of each program that the log has to begin.
    """
    named: dict[tuple[str, int | None], set[bytes]] = {}
    ended = set()
    began: dict[tuple[str, int | None], int] = {}  # programs that the loader tells of more than the log
    for each in processes:
        execs = int(each.start == "exec") if each.calls is not None else 0
        began[each.place, each.pid] = began.get((each.place, each.pid), 0) + len(each.programs) - execs
        if each.calls is not None:
            named.setdefault((each.place, each.pid), set()).update(file.path for file in each.files)
            if each.ended not in (None, "replaced"):
                ended.add((each.place, each.pid))
    recorded = {(each.place, each.pid) for each in processes if each.python is not None}
    found: Processes = []
    for each in processes:
        key = each.place, each.pid
        gap = None
        if each.calls is not None and key not in ended:
            first = each.pid == 1 or (key in recorded and (each.place, 1) in named)
            gap = None if first else "the log does not tell its end: it is cut, or its process went on"
        elif each.calls is not None and began[key] > 0:
            gap = "the loader began a program in it of which the log of system calls does not tell"
        elif each.python is not None and key in named:
            lost = {file.path for file in each.files if file.digest is not None} - named[key]
            gap = f"the log of system calls lacks {len(lost):,} files that it is known to have read" if lost else None
        found.append(each if gap is None else msgspec.structs.replace(each, gaps=(*each.gaps, gap)))
    return found


def _born(processes: Processes) -> Processes:
    """A process without a beginning that another one says it forked begins there."""
    born = {(each.place, child.pid): each for each in processes for child in each.children if child.how == "fork"}
    told = {(each.place, each.pid) for each in processes if each.start != "unknown" or each.calls is not None}
    found: Processes = []
    for each in processes:
        parent = born.get((each.place, each.pid)) if each.pid is not None and each.parent is None else None
        own = each.calls is not None or (each.place, each.pid) not in told  # else it goes to who is told of
        if parent is not None and own and each.pid != parent.pid and each.start != "fork":
            start = "fork" if each.start == "unknown" else each.start
            found.append(msgspec.structs.replace(each, parent=parent.pid, start=start))
        else:
            found.append(each)
    return found


def _began(processes: Processes) -> Processes:
    """Hold the Pythons that the loader began in each pid against those that the recorder saw: one without the recorder
    may have been there before another one, or behind it."""
    seen: dict[tuple[str, int | None], int] = {}
    for each in processes:
        if each.python is not None and each.start == "exec":
            seen[each.place, each.pid] = seen.get((each.place, each.pid), 0) + 1
    found: Processes = []
    for each in processes:
        begun = sum(is_python(program) for program in each.programs)
        missing = 0 if each.python is None else begun - seen.get((each.place, each.pid), 0)
        if missing > 0:
            gap = f"the loader began a Python {begun:,} times in it, and {begun - missing:,} were recorded"
            found.append(msgspec.structs.replace(each, gaps=(*each.gaps, gap)))
        else:
            found.append(each)
    return found


def _loaders(processes: Processes) -> Processes:
    """A forked process goes on in its parent's log of the loader, which has no line of it where it loads nothing."""
    covered = {(each.place, each.pid) for each in processes if "libraries" in each.coverage}
    forks = {(each.place, each.pid): (each.place, each.parent) for each in processes if each.start == "fork"}
    for pid in forks:
        above, seen = pid, {pid}
        while above in forks and above not in covered:
            above = forks[above]
            if above in seen:
                break
            seen.add(above)
        if above in covered:
            covered.add(pid)
    return [
        msgspec.structs.replace(each, coverage=each.coverage | {"libraries"})
        if each.start == "fork" and (each.place, each.pid) in covered
        else each
        for each in processes
    ]


def _joined(processes: Processes, leading: Sequence[bool]) -> Processes:
    """Give what the others say of a pid to the leading records of it; the others of that pid are gone."""
    by_pid: dict[tuple[str, int], list[int]] = {}
    kept: Processes = []
    rest: Processes = []
    for each, leads in zip(processes, leading, strict=True):
        if leads and each.pid is not None:
            by_pid.setdefault((each.place, each.pid), []).append(len(kept))
            kept.append(each)
        else:
            rest.append(each)
    alone: Processes = []
    for each in rest:
        positions = by_pid.get((each.place, each.pid), []) if each.pid is not None else []
        for position in positions:
            kept[position] = _with(kept[position], each)
        if not positions:
            alone.append(each)
    return [*kept, *alone]


def _with_thread(process: RecordedProcess, thread: RecordedProcess) -> RecordedProcess:
    found = _with(process, thread)
    if process.calls is None or thread.calls is None or thread.ended is not None:
        return found
    return msgspec.structs.replace(found, ended=None)  # its own log has no end


def _with(process: RecordedProcess, more: RecordedProcess) -> RecordedProcess:
    """Add to a process what another log says of its pid. The loader's log covers a program where it began that one, as
    its variables asked it to: a script may have cleared them on the way to it."""
    covered: frozenset[Covers] = more.coverage
    if process.python is not None and process.start == "exec" and not _told_of(process, more):
        covered -= {"libraries"}
    return msgspec.structs.replace(
        process,
        files=tuple(dict.fromkeys((*process.files, *more.files))),
        titles=tuple(dict.fromkeys((*process.titles, *more.titles))),
        children=(*process.children, *more.children),
        coverage=process.coverage | covered,
        gaps=tuple(dict.fromkeys((*process.gaps, *more.gaps))),
        programs=(*process.programs, *more.programs),
    )


def _told_of(process: RecordedProcess, log: RecordedProcess) -> bool:
    asked = process.env.get("LD_DEBUG")
    if process.env and (asked is None or not _ASKS.search(asked)):
        return False
    first = process.argv[0] if process.argv else None
    return not log.programs or any(program == first or is_python(program) for program in log.programs)
