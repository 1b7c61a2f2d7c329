"""Programs run under the recorder, by each Python at hand, and what it wrote of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from imgdiff.recorder import MOUNTED
from tests.kinds.bytecode_inputs import interpreters


@dataclass(frozen=True)
class Process:
    """One file of a recording."""

    file: Path
    events: list[dict[str, Any]]

    @property
    def start(self) -> dict[str, Any]:
        return self.events[0]

    @property
    def pid(self) -> int:
        return int(self.start["pid"])

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]

    def files(self, *events: str) -> set[str]:
        return {each["file"] for each in self.events if each["event"] in events and each.get("file")}

    def names(self, *events: str) -> set[str]:
        """The last parts of the files."""
        return {file.rpartition("/")[2] for file in self.files(*events)}

    def notes(self) -> list[str]:
        return [f"{each['what']}: {each['reason']}" for each in self.of("note")]


@dataclass(frozen=True)
class Recorded:
    """How a program ended, and its recording."""

    code: int
    out: str
    err: str
    processes: list[Process] = field(default_factory=list)

    @property
    def first(self) -> Process:
        """The process that was started: the one whose parent is not recorded."""
        pids = {each.pid for each in self.processes}
        return next(each for each in self.processes if each.start["parent"] not in pids)

    def children(self, of: Process) -> list[Process]:
        return [each for each in self.processes if each.start["parent"] == of.pid and each is not of]

    def all(self, *events: str) -> set[str]:
        return {file for each in self.processes for file in each.files(*events)}


class Stage:
    """A directory with a program, and one beside it that its recording is written to."""

    def __init__(self, directory: Path, python: str) -> None:
        self.python = python
        self.app = directory / "app"
        self.out = directory / "recording"
        self.app.mkdir()
        self.out.mkdir()

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.app / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        return {
            **plain,
            "PYTHONDONTWRITEBYTECODE": "1",
            "IMGDIFF_RECORD": str(self.out),
            "PYTHONPATH": str(MOUNTED),
            **(more or {}),
        }

    def run(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, wrapped: Sequence[str] = (), code: int = 0
    ) -> Recorded:
        """Run Python with these arguments in the program's directory; ``code`` is how it has to end."""
        command = [*wrapped, self.python, *map(str, arguments)]
        environment = self.environment(env)
        done = subprocess.run(
            command, cwd=self.app, env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == code, done
        return Recorded(done.returncode, done.stdout, done.stderr, read(self.out))

    def program(self, source: str, env: Mapping[str, str] | None = None, code: int = 0) -> Recorded:
        """Run one source, as ``main.py``."""
        self.write({"main.py": source})
        return self.run("main.py", env=env, code=code)


def read(directory: Path) -> list[Process]:
    """Read a recording. Each line has to be whole JSON in ASCII, and the first one a start."""
    found = []
    for file in sorted(directory.glob("*.jsonl"), key=lambda path: path.name.split("-")[-1]):
        events = [json.loads(line) for line in file.read_bytes().decode("ascii").splitlines()]
        assert events[0]["event"] == "start", events[0]
        assert not any(each["event"] == "start" for each in events[1:])
        times = [each["t"] for each in events[1:]]
        assert all(time >= 0 for time in times)
        found.append(Process(file, events))
    return found


@cache
def pythons() -> dict[str, str]:
    """The Pythons from 3.8 on that are at hand, by minor."""
    found: dict[str, str] = {}
    for path in interpreters():
        asked = [path, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"]
        minor, _, executable = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.partition(" ")
        if minor.startswith("3.") and int(minor[2:]) >= 8:
            executable = executable.strip()
            found.setdefault(minor, executable)  # what a shim on PATH stands for
    return dict(sorted(found.items(), key=lambda item: int(item[0][2:])))


def at_least(minor: int) -> Iterable[str]:
    return [name for name in pythons() if int(name[2:]) >= minor]
