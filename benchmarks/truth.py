"""What a program really executed and mapped, seen from outside: an audit hook and strace.

``watched`` gives the command line and environment under which a program writes both; ``seen`` reads them. The hook
comes in as a sitecustomize on PYTHONPATH and writes the file of every module body that runs (audit event ``exec``), one
log for each process; strace's log tells which files were mapped executable, and whose child and thread is whose.
"""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RECORDER = """\
import os, sys
_where = {where!r}
_files = {{}}
def _heard(event, arguments):
    if event != "exec":
        return
    code = arguments[0]
    if getattr(code, "co_name", "") != "<module>":
        return
    pid = os.getpid()
    file = _files.get(pid)
    if file is None:
        file = _files[pid] = os.open(f"{{_where}}/{{pid}}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, ("# %d %s\\n" % (os.getppid(), " ".join(getattr(sys, "orig_argv", [])))).encode())
    os.write(file, os.fsencode(code.co_filename) + b"\\n")
sys.addaudithook(_heard)
"""
CALLS = "mmap,execve,clone,clone3,fork,vfork"
STARTS = ("clone", "clone3", "fork", "vfork")
LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
MAPPED = re.compile(r"\bPROT_EXEC\b[^,]*, [^,]*, \d+<(/[^>]*)>")


@dataclass
class Process:
    """One process: its parent, its command line, and the canonical paths (without the first slash) that it executed as
    module bodies and mapped executable."""

    pid: int
    parent: int | None = None
    argv: str = ""
    executed: set[bytes] = field(default_factory=set)
    mapped: set[bytes] = field(default_factory=set)


def watched(command: Sequence[str], work: Path) -> tuple[list[str], Mapping[str, str]]:
    """Return the command to start, and the environment that it needs, so that WORK will hold what it did."""
    logs, hook = work / "logs", work / "hook"
    for directory in (logs, hook):
        directory.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(RECORDER.format(where=str(logs)))
    trace = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-e", f"trace={CALLS}", "-e", "signal=none"]
    return [*trace, "-o", str(work / "strace"), *command], {"PYTHONPATH": str(hook)}


def pids(work: Path) -> list[int]:
    """Return which processes ran Python so far."""
    return [int(path.stem) for path in (work / "logs").iterdir()]


def seen(work: Path) -> tuple[int, dict[int, Process]]:
    """Return the first process, and all of them by pid."""
    processes: dict[int, Process] = {}
    first = None
    belongs: dict[int, int] = {}  # thread -> process
    for thread, call, text in _calls(work / "strace"):
        pid = belongs.setdefault(thread, thread)
        process = processes.setdefault(pid, Process(pid))
        first = pid if first is None else first
        if call == "mmap":
            found = MAPPED.search(text)
            if found:
                process.mapped.add(_canonical(found[1]))
        elif call in STARTS:
            began = re.search(r" = (\d+)$", text)
            if began is None:
                continue
            child = int(began[1])
            if "CLONE_THREAD" in text:
                _move(processes, belongs, child, pid)
            else:
                processes.setdefault(child, Process(child)).parent = pid
    for log in (work / "logs").iterdir():
        head, *lines = log.read_bytes().split(b"\n")
        _, parent, *argv = head.decode("utf-8", "replace").split(" ")
        process = processes.setdefault(int(log.stem), Process(int(log.stem)))
        process.parent = process.parent if process.parent is not None else int(parent)
        process.argv = " ".join(argv)
        process.executed = {_canonical(os.fsdecode(line)) for line in lines if line[:1] == b"/"}  # not <frozen ...>
    if first is None:
        raise SystemExit("strace wrote nothing: is it allowed to trace here?")
    return first, processes


def _move(processes: dict[int, Process], belongs: dict[int, int], thread: int, pid: int) -> None:
    """A thread's own calls can stand before the line that tells of its start."""
    belongs[thread] = pid
    early = processes.pop(thread, None)
    if early is not None:
        processes[pid].mapped |= early.mapped
        for process in processes.values():
            process.parent = pid if process.parent == thread else process.parent


def _calls(log: Path) -> Iterator[tuple[int, str, str]]:
    """Yield (thread, name, text) for each call, put together where another one came between."""
    begun: dict[tuple[int, str], str] = {}
    with log.open(encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            found = LINE.match(line)
            if found is None:
                continue
            thread, resumed, name, text = int(found[1]), found[2], found[3], found[4]
            if resumed:
                yield thread, resumed, begun.pop((thread, resumed), "") + text
            elif text.endswith("<unfinished ...>"):
                begun[thread, name] = text.removesuffix("<unfinished ...>")
            else:
                yield thread, name, text
    for (thread, name), text in begun.items():
        yield thread, name, text


def _canonical(path: str) -> bytes:
    return os.fsencode(os.path.realpath(path)).lstrip(b"/")


def by_role(first: int, processes: Mapping[int, Process], titled: Mapping[int, str]) -> dict[str, list[Process]]:
    """Return the processes of each role: what ``titled`` says, else the parent's, else that of the first one."""

    def role(pid: int | None) -> str:
        while pid is not None and pid in processes:
            if pid in titled:
                return titled[pid]
            pid = processes[pid].parent
        return titled[first]

    found: dict[str, list[Process]] = collections.defaultdict(list)
    for pid, process in processes.items():
        found[role(pid)].append(process)
    return found
