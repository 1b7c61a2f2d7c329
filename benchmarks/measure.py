"""What a command costs, with all processes that it starts: CPU seconds, wall time, memory and disk."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SAMPLE = 0.25  # seconds between two looks at the memory


class Cost(NamedTuple):
    """``cpu`` is user and system time of the whole process tree, ``peak`` the most memory that its processes held at
    one time (resident, sampled four times a second), ``out`` what it wrote to stdout. ``code`` is None where the time
    limit ended it."""

    cpu: float
    wall: float
    peak: int
    code: int | None
    out: str
    err: str

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]  # one after the other, as one step
        code = other.code if self.code in (0, 1) else self.code
        return Cost(
            self.cpu + other.cpu, self.wall + other.wall, max(self.peak, other.peak), code, other.out, other.err
        )


def run(
    command: Sequence[str | Path],
    *,
    limit: float | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    until: str | None = None,
) -> Cost:
    """Run a command and wait for it and for every process that it leaves behind. With ``until``, the cost is that up to
    the moment at which these words stood in what it wrote to stderr, looked for 50 times a second; it is ended then.

    Orphans (the server that multiprocessing forks workers from is one) come to this process, which counts them.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            start_new_session=True,
        )
        done = threading.Event()
        expired = threading.Event()
        peaks = [0]
        watcher = threading.Thread(target=_watch, args=(process.pid, start, limit, done, expired, peaks))
        watcher.start()
        reached: tuple[float, float] | None = None
        while until is not None and process.poll() is None and reached is None:
            time.sleep(0.02)
            if until.encode() in os.pread(err.fileno(), os.fstat(err.fileno()).st_size, 0):
                reached = sum(cpu for cpu, _ in below(os.getpid()).values()), time.perf_counter() - start
                os.killpg(process.pid, signal.SIGKILL)
        cpu, wall, largest, code = 0.0, 0.0, 0, 0
        while True:
            try:
                pid, status, usage = os.wait4(-1, 0)
            except ChildProcessError:
                break
            cpu += usage.ru_utime + usage.ru_stime
            largest = max(largest, usage.ru_maxrss * 1024)
            if pid == process.pid:
                wall = time.perf_counter() - start
                code = process.returncode = os.waitstatus_to_exitcode(status)
        done.set()
        watcher.join()
        for stream in (out, err):
            stream.seek(0)
        texts = [stream.read().decode("utf-8", "replace") for stream in (out, err)]
    if until is not None:
        if reached is None:
            return Cost(cpu, wall, max(largest, peaks[0]), None, texts[0], f"it never said {until!r}: {texts[1]}")
        return Cost(*reached, max(largest, peaks[0]), 0, *texts)
    return Cost(cpu, wall, max(largest, peaks[0]), None if expired.is_set() else code, texts[0], texts[1])


def _watch(
    pid: int, start: float, limit: float | None, done: threading.Event, expired: threading.Event, peaks: list[int]
) -> None:
    """Sample the memory of everything below this process; end the command (its own session) at the limit."""
    while not done.wait(_SAMPLE):
        peaks[0] = max(peaks[0], sum(resident for _, resident in below(os.getpid()).values()))
        if limit is not None and not expired.is_set() and time.perf_counter() - start > limit:
            expired.set()
            os.killpg(pid, signal.SIGKILL)


def below(ancestor: int) -> dict[int, tuple[float, int]]:
    """Return CPU seconds so far (its dead children's included) and resident bytes of each process below one."""
    parents: dict[int, int] = {}
    found: dict[int, tuple[float, int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 -- names alone, several times a second
        if not name.isdigit():
            continue
        try:
            stat = Path(f"/proc/{name}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        parents[int(name)] = int(stat[1])
        found[int(name)] = (sum(map(int, stat[11:15])) / _TICK, int(stat[21]) * _PAGE)
    below_it: dict[int, tuple[float, int]] = {}
    for pid, what in found.items():
        here = pid
        while here in parents and here != ancestor:
            here = parents[here]
        if here == ancestor and pid != ancestor:
            below_it[pid] = what
    return below_it


def disk(directory: Path) -> int:
    """Return the bytes that a directory takes on disk, a file with several names once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            status = os.lstat(Path(parent) / name)
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total
