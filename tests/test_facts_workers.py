"""Worker processes that make facts: none outlives the run that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = """
import hashlib, multiprocessing, os, signal, sys, time
from pathlib import Path
from imgdiff.facts import Facts
from imgdiff.store import Store

class Texts:
    def get(self, digest):
        return contents.get(digest)

def main():
    with Store.open(Path(sys.argv[1])) as store:
        facts = Facts(store, 2)
        facts.make([("python", digest) for digest in contents], Texts())
        children = [child.pid for child in multiprocessing.active_children()]
        print(os.getpid(), *children, flush=True)
        if sys.argv[2] == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        facts.close()

# Much content that takes no time to read: else no process is started for it.
sources = [b"NAME = %d\\n" % number + b"#" * 3_000_000 for number in range(2)]
contents = {hashlib.sha256(each).digest(): each for each in sources}
if __name__ == "__main__":
    main()
"""


def alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize("end", ["", "SIGKILL"])
def test_no_worker_outlives_the_run(tmp_path: Path, end: str) -> None:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    # No pipes: a worker that is left would hold them open.
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, script, tmp_path / "cache", end],
            stdout=out,
            stderr=err,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    process.wait(120)
    said = (tmp_path / "out").read_text()
    pids = [int(word) for word in said.split()]
    assert len(pids) == 3, (tmp_path / "err").read_text()
    assert process.returncode == (-signal.SIGKILL if end else 0)
    until = time.monotonic() + 30
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    left = [pid for pid in pids if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
