"""Recordings of the story's images, made by hand: what a run of its engine would leave."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

from tests.recordings.made import event, start

STORY = Path(__file__).parents[2] / "fixtures" / "story"
SITE = "opt/venv/lib/python3.12/site-packages"
MIDDLEWARE = f"{SITE}/vllm/entrypoints/serve/middleware/request_timing.py"
SERVER = ("/entrypoints/openai/", "/entrypoints/serve/middleware/")
PYTHON = "/opt/uv/python/cpython-3.12.11-linux-x86_64-gnu/bin/python3.12"
Lines = list[dict[str, Any]]


def sources(side: Literal["a", "b"]) -> dict[str, bytes]:
    """Every Python source of an image, by its path without the leading slash."""
    found: dict[str, bytes] = {}
    for tree in ("python", "venv", "vllm", f"vllm-{side}"):
        base = STORY / "src" / tree
        found.update({str(path.relative_to(base)): path.read_bytes() for path in sorted(base.rglob("*.py"))})
    return found


def ran(path: str, data: bytes, **more: Any) -> dict[str, Any]:
    """The body of a module ran."""
    return event("exec", file="/" + path, sha256=hashlib.sha256(data).hexdigest(), **more)


def everything(side: Literal["a", "b"], *, server: bool) -> Lines:
    """Every module of an image ran, those of the API server alone only there."""
    return [
        ran(path, data) for path, data in sources(side).items() if server or not any(part in path for part in SERVER)
    ]


def processes(side: Literal["a", "b"] = "b", **more: Any) -> tuple[Lines, Lines]:
    """An API server that spawned one engine core, with the worker in it; ``more`` goes to the engine core's start."""
    core = ["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--multiprocessing-fork"]
    common: dict[str, Any] = {
        "executable": PYTHON,
        "coverage": ["python", "origins", "maps", "open"],
        "recorder": "/imgdiff",
    }
    front: Lines = [
        start(10, 1, argv=["/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve"], **common),
        *everything(side, server=True),
        event("spawn", call="multiprocessing.spawn", executable=PYTHON, argv=core, env="inherited"),
        event("end", t=60.0, how="exit"),
    ]
    engine: Lines = [
        start(20, 10, argv=core, **{**common, **more}),
        event("title", title="VLLM::EngineCore"),
        *everything(side, server=False),
    ]
    return front, engine
