"""What running processes have mapped and open now, as the kernel tells it (proc(5)), as lines of a recording.

Modules that Python has loaded can't be seen so, nor what was loaded and dropped before: absence proves nothing.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from imgdiff.errors import UsageError

PROC: Final = Path("/proc")
_LINE: Final = re.compile(rb"[0-9a-f]+-[0-9a-f]+ (....) [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ \d+\s+(/.*)")  # proc_pid_maps(5)
_GONE: Final = " (deleted)"
_ELSEWHERE: Final = ("/memfd:", "/dev/", "/SYSV", "/anon_hugepage", "/[aio]", "/proc/", "/sys/")
_NOTE: Final = {
    "event": "note",
    "what": "what Python loaded, and what was mapped or open before",
    "reason": "this is what one moment shows of a process that runs",
}

Redact = Callable[[Sequence[str]], Sequence[str]]
"""Returns the words of a command line as they may be written."""


def started(pid: int, proc: Path = PROC) -> float:
    """Return when a process began, in seconds since the epoch. Raises UsageError where there is none."""
    with _Trouble(pid):
        return _started(proc / str(pid), proc)


def family(pid: int, proc: Path = PROC) -> list[int]:
    """Return a container's processes, of which ``pid`` is the first: those in a pid namespace of its own, else its
    descendants. Raises UsageError where it can't be looked at."""
    with _Trouble(pid):
        space = _leads(proc / str(pid) / "ns" / "pid")
        own = space != _leads(proc / "self" / "ns" / "pid")
    found: list[int] = []
    for each in sorted(int(path.name) for path in proc.iterdir() if path.name.isdigit()):
        try:
            inside = _leads(proc / str(each) / "ns" / "pid") == space
            status = _status(proc / str(each))
            if status.get("State", "").startswith("Z"):
                continue  # it has ended, and has nothing mapped
            if each == pid or (inside if own else int(status.get("PPid", "0")) in found):
                found.append(each)
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


def snapshot(pid: int, redact: Redact, host: str, image: str | None, proc: Path = PROC) -> tuple[str, bytes]:
    """Return the name and the content of a recording's file on one process. ``image`` is the digest by which its image
    is known. Raises UsageError where the process can't be looked at."""
    with _Trouble(pid):
        place = proc / str(pid)
        status, now = _status(place), time.time()
        began = _started(place, proc)
        own = int(status.get("NSpid", str(pid)).split()[-1])
        words = [word.decode("utf-8", "surrogateescape") for word in (place / "cmdline").read_bytes().split(b"\0")]
        argv = list(redact(words[:-1] if words and not words[-1] else words))
        at = max(0.0, now - began)
        lines: list[dict[str, Any]] = [
            {
                "event": "start",
                "schema": "imgdiff/recording/v1",
                "pid": own,
                "parent": _parent(place, status, proc),
                "how": "snapshot",
                "time": began,
                "argv": argv,
                "cwd": _leads(place / "cwd"),
                "executable": _leads(place / "exe"),
                "machine": os.uname().machine,
                "hostname": host,
                "image": image,
                "coverage": [],
            },
            {"event": "title", "title": " ".join(argv)},
            {"event": "title", "title": status.get("Name", "")},
            _NOTE,
            *_mapped(place),
            *_open(place),
        ]
    found = [line if line["event"] == "start" else {**line, "t": round(at, 6)} for line in lines if line != _UNTITLED]
    safe = re.sub(r"[^\w.-]", "_", host, flags=re.ASCII) or "host"
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in found)
    return f"{safe}-{own}-{int(now * 1_000_000_000)}.jsonl", text.encode("ascii")


_UNTITLED: Final = {"event": "title", "title": ""}


def _leads(link: Path) -> str:
    """Return where a link leads, as the process itself has it."""
    return str(link.readlink()).removesuffix(_GONE)


def _status(place: Path) -> dict[str, str]:
    lines = (place / "status").read_text("utf-8", "surrogateescape").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _started(place: Path, proc: Path) -> float:
    ticks = int((place / "stat").read_bytes().rpartition(b")")[2].split()[19])  # proc_pid_stat(5): starttime
    booted = next(line.split()[1] for line in (proc / "stat").read_bytes().splitlines() if line.startswith(b"btime "))
    return int(booted) + ticks / os.sysconf("SC_CLK_TCK")


def _parent(place: Path, status: dict[str, str], proc: Path) -> int:
    """Return the parent's pid as its own container has it; 0 for one outside."""
    above = proc / status.get("PPid", "0")
    try:
        if _leads(above / "ns" / "pid") != _leads(place / "ns" / "pid"):
            return 0
        return int(_status(above).get("NSpid", above.name).split()[-1])
    except OSError:
        return 0


def _mapped(place: Path) -> Iterator[dict[str, Any]]:
    seen: dict[str, str] = {}  # mapped to be run, or only to be read
    for line in (place / "maps").read_bytes().splitlines():
        found = _LINE.fullmatch(line)
        if found is not None:
            raw = re.sub(rb"\\(\d{3})", lambda each: bytes([int(each[1], 8) & 0xFF]), found[2])
            name = raw.decode("utf-8", "surrogateescape")
            seen[name] = "map" if b"x" in found[1] else seen.get(name, "open")
    for path, event in seen.items():
        if not path.startswith(_ELSEWHERE):
            more: dict[str, Any] = {"mode": "r"} if event == "open" else {}
            more |= {"deleted": True} if path.endswith(_GONE) else {}
            yield {"event": event, "file": path.removesuffix(_GONE), **more}


def _open(place: Path) -> Iterator[dict[str, Any]]:
    for name in sorted((each.name for each in (place / "fd").iterdir()), key=int):
        try:
            path = _leads(place / "fd" / name)
            if not path.startswith("/") or path.startswith(_ELSEWHERE):
                continue
            if not stat.S_ISREG((place / "fd" / name).stat().st_mode):
                continue
            flags = int((place / "fdinfo" / name).read_text().partition("flags:")[2].split()[0], 8)
        except (FileNotFoundError, IndexError, ValueError):  # closed meanwhile
            continue
        mode = {os.O_RDONLY: "r", os.O_WRONLY: "w"}.get(flags & os.O_ACCMODE, "r+")
        yield {"event": "open", "file": path, "mode": mode}


class _Trouble:
    """Make one sentence of what goes wrong with a process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PermissionError):
            hint = "run it as root, or as the user whose process it is"
            raise UsageError(f"process {self._pid} can't be looked at: {error.strerror}", hint) from error
        if isinstance(error, OSError):
            hint = "name one that runs on this machine"
            raise UsageError(f"process {self._pid} can't be looked at: {error.strerror}", hint) from error
