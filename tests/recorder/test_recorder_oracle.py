"""strace as the judge: every module file and library that it sees opened stands in the recording."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from imgdiff.recorder import MOUNTED
from tests.recorder.recorded import Stage

OPENED = re.compile(r'open(?:at)?\((?:AT_FDCWD, )?"((?:[^"\\]|\\.)*)", ([A-Z_|]+).*\) = \d+')
PROGRAM = """\
import asyncio, concurrent.futures, csv, ctypes, decimal, email.mime.text, http.server, json, logging.config
import importlib, multiprocessing, os, runpy, sqlite3, subprocess, sys, threading, unittest.mock, xml.dom.minidom

def work(name):
    importlib.import_module(name)

if __name__ == "__main__":
    for method, name in (("fork", "wave"), ("spawn", "tarfile"), ("forkserver", "zipfile")):
        process = multiprocessing.get_context(method).Process(target=work, args=(name,))
        process.start()
        process.join()
    subprocess.run([sys.executable, "-c", "import pdb"], check=True)
    subprocess.run([sys.executable, "-m", "own", "x"], check=True)
    if not os.fork():
        import smtplib
        os.execv(sys.executable, [sys.executable, "-c", "import plistlib"])
    os.wait()
    runpy.run_path("own.py", run_name="given")
    open("data.txt").read()
    os._exit(0)
"""


def seen(log: Path) -> set[str]:
    """The regular files that strace saw opened for reading."""
    found = set()
    for file in log.parent.glob(log.name + "*"):
        for line in file.read_text(errors="surrogateescape").splitlines():
            match = OPENED.search(line)
            if match and "O_DIRECTORY" not in match[2] and "O_WRONLY" not in match[2]:
                found.add(match[1])
    return found


def test_what_strace_sees_is_recorded(stage: Stage, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is missing")
    stage.write({"main.py": PROGRAM, "own.py": "import colorsys\n", "data.txt": "x"})
    wrapped = ("strace", "-f", "-ff", "-qq", "-e", "trace=open,openat", "-s", "4096", "-o")
    log = tmp_path / "log"
    plain = stage.run("main.py", env={"IMGDIFF_RECORD": "", "PYTHONPATH": ""}, wrapped=(*wrapped, str(log)))
    assert plain.processes == []
    truth = {os.path.normpath(stage.app / file) for file in seen(log)}
    ran = stage.run("main.py")
    recorded = ran.all("exec", "open", "module", "extension", "map")
    for process in ran.processes:
        recorded |= {each["cached"] for each in process.of("module") if each["cached"]}
    real = {os.path.realpath(file) for file in recorded}
    python = {file for file in truth if file.endswith((".py", ".pyc"))}
    assert len(python) > 150
    assert {file for file in python if os.path.realpath(file) not in real} == set()
    libraries = {file for file in truth if re.search(r"\.so(\.\d|$)", file)}
    assert libraries
    assert {file for file in libraries if os.path.realpath(file) not in real} == set()
    assert str(stage.app / "data.txt") in recorded
    executed = {Path(file).name for file in ran.all("exec")}
    assert {"wave.py", "tarfile.py", "pdb.py", "smtplib.py", "plistlib.py", "colorsys.py", "own.py"} <= executed
    assert not [file for file in recorded if file.startswith(str(MOUNTED))]
