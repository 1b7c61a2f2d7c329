"""Recordings made by hand, in our own format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FULL = ("python", "maps", "open")


def start(pid: int, parent: int = 1, how: str = "exec", **more: Any) -> dict[str, Any]:
    """The first line of a process."""
    return {
        "event": "start",
        "schema": "imgdiff/recording/v1",
        "pid": pid,
        "parent": parent,
        "how": how,
        "time": 1_764_670_000.0 + pid,
        "argv": ["python3", "-m", "app"],
        "cwd": "/srv",
        "python": "3.12.3",
        "implementation": "cpython",
        "executable": "/usr/bin/python3.12",
        "machine": "x86_64",
        "hostname": "host",
        "image": None,
        "coverage": list(FULL),
        **more,
    }


def ran(file: str, sha256: str | None = None, **more: Any) -> dict[str, Any]:
    """A module body ran."""
    return {"event": "exec", "t": 0.5, "file": file, "sha256": sha256, "name": None, **more}


def event(word: str, **more: Any) -> dict[str, Any]:
    """Any other line."""
    return {"event": word, "t": 1.0, **more}


def write(directory: Path, *processes: Iterable[Mapping[str, Any]], host: str = "host") -> Path:
    """Write a recording: one file for each process, whose first line is its start."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, lines in enumerate(processes):
        lines = list(lines)
        name = f"{host}-{lines[0]['pid']}-{number}.jsonl"
        (directory / name).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return directory
