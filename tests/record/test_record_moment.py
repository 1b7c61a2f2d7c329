"""``imgdiff record --pid PID`` and ``container:NAME``: what a process that runs has mapped and open."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from imgdiff import recordings
from imgdiff.model import RecordedProcess
from tests.record.conftest import Engine
from tests.record.images import NAME
from tests.services.engine import docker
from tests.support.command import Shell

A, B = f"{NAME}:a", f"{NAME}:b"
CODE = (
    "import _ctypes, os, sys, time\n"
    "held = open(sys.argv[1]); written = open(sys.argv[1] + '.log', 'w')\n"
    "if os.fork() == 0: time.sleep(100)\n"
    "print('ready', flush=True)\ntime.sleep(100)\n"
)


def used(process: RecordedProcess, how: str) -> set[str]:
    return {each.path.decode() for each in process.files if each.how == how}


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "données").write_text("")
    command = [sys.executable, "-c", CODE, str(tmp_path / "données"), "--token=abcdefghijklmnop"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        for pid in subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, check=False).stdout.split():
            subprocess.run(["kill", pid.decode()], check=True)
        process.kill()


def test_a_process_is_looked_at(program: subprocess.Popen[bytes], tmp_path: Path) -> None:
    ran = Shell(tmp_path).run("record", "--pid", str(program.pid), "-o", "run")
    assert (ran.code, ran.out) == (0, ""), ran
    assert "1 process looked at: what is mapped and open now, no modules" in ran.err
    [file] = (tmp_path / "run").iterdir()
    assert "abcdefghijklmnop" not in file.read_text("ascii")
    [process] = recordings.read(str(tmp_path / "run")).processes
    assert (process.pid, process.start, process.python, process.coverage) == (program.pid, "unknown", None, frozenset())
    assert process.argv[-1] == "--token=[redacted]"
    assert str(tmp_path / "données") in used(process, "opened")
    assert str(tmp_path / "données.log") not in used(process, "opened")
    assert {"_ctypes", "libc"} <= {Path(path).name.partition(".")[0] for path in used(process, "mapped")}
    assert any("one moment" in gap for gap in process.gaps)
    assert program.poll() is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pid", "999999999"), "can't be looked at"),
        (("--pid", "99999999999"), "is no process"),
        (("--pid", "host"), "is no process"),
        (("--pid", "0"), "is no process"),
        (("--pid", "1", "-e", "A=b"), "nothing can be set"),
        (("--pid", "1", "--syscalls"), "nothing can be set"),
        (("--pid", "1", "--gpus", "all"), "nothing can be set"),
        (("container:",), "has no name"),
        (("container:x", "--pid", "1"), "nothing can be set"),
        (("container:x", "--", "ls"), "nothing can be set"),
    ],
)
def test_what_can_not_be_looked_at_is_said(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ran = Shell(tmp_path).run("record", *arguments)
    assert ran.code == 2
    assert words in ran.err
    assert not list(tmp_path.glob("imgdiff-recording-*"))


@pytest.mark.engine
def test_a_container_is_looked_at(engine: Engine) -> None:
    """Every process of it, by its own pids; what is open stands, and absence settles nothing."""
    host = engine.url
    name = f"imgdiff-looked-at-{engine.kind}"
    more = "import os, time; held = open('/srv/extra.py'); os.fork(); time.sleep(100)"
    for code, outcome in (("import time; time.sleep(100)", "undecided"), (more, "undecided")):
        command = ("--network", "none", "--entrypoint", "/usr/bin/python3", A, "-c", code)
        docker("run", "-d", "--name", name, *command, host=host)
        try:
            out = "many" if "fork" in code else "one"
            for _ in range(50):
                ran = engine.run("record", f"container:{name}", "-o", out)
                if ran.code or out == "one" or "2 processes" in ran.err:
                    break
                for file in (engine.here / out).iterdir():
                    file.unlink()
            assert ran.code == 0, ran
            found = recordings.read(str(engine.here / out)).processes
            assert sorted(each.pid or 0 for each in found)[0] == 1
            assert {each.parent for each in found} <= {0, 1}
            pair = (f"{engine.kind}:{A}", f"{engine.kind}:{B}")
            report = json.loads(engine.run(*pair, "--format", "json", "--trace", out).out)
            assert report["verdict"]["outcome"] == outcome
            level = report["changes"][0]["load"]["main"]["level"]
            assert level == ("recorded" if out == "many" else "deferred")
        finally:
            docker("rm", "-f", name, host=host)


@pytest.mark.engine
def test_a_container_that_does_not_run(engine: Engine) -> None:
    name = f"imgdiff-made-{engine.kind}"
    docker("create", "--name", name, A, host=engine.url)
    try:
        ran = engine.run("record", f"container:{name}", "-o", "run")
        assert (ran.code, ran.out) == (2, "")
        assert "does not run" in ran.err
    finally:
        docker("rm", name, host=engine.url)
    ran = engine.run("record", f"container:{name}", "-o", "run")
    assert ran.code == 2
    assert "names no container" in ran.err
    assert not (engine.here / "run").exists()
