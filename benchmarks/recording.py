"""What does recording cost at start-up? Programs are started with and without it, in turn.

    python benchmarks/recording.py PYTHON [--repeat 5] [--only NAME]

PYTHON is the interpreter of a venv; of the programs below, those that it can import are run. **This runs their code**:
it is a benchmark by hand for a venv that one trusts.

Each program is run plain and in each way of recording, one after the other, and that so many times: a machine that is
slower for a while is so for all of them. What counts is CPU seconds of all processes, the tracer among them: wall
time on a busy machine says little; both are printed, with the least, the median and the most of the ratios of one round
to its plain run.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from imgdiff import recorder

PROGRAMS = {
    "pass": "pass",
    "json": "import json, decimal, asyncio, logging, subprocess",
    "fastapi": (
        "import uvicorn\nfrom fastapi import FastAPI\nfrom fastapi.middleware.cors import CORSMiddleware\n"
        "app = FastAPI()\napp.add_middleware(CORSMiddleware)\n"
        "@app.get('/')\ndef root() -> dict[str, int]: return {'a': 1}\n"
        "uvicorn.Config(app, port=0).load()"
    ),
    "torch": "import torch; torch.ones(3).sum()",
    "vllm": "import vllm",
    "vllm engine": "import vllm.v1.engine.core",
}
WAYS = ("recorder", "with LD_DEBUG", "with --syscalls", "with --syscalls by strace")
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: what loses its parent becomes ours, and its CPU time is counted


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("python")
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--only", choices=PROGRAMS, action="append")
    given = arguments.parse_args()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    print("| program | way | CPU s | ratio: least, median, most | wall s | ratio: median | recorded MB |")
    print("|---|---|---|---|---|---|---|")
    for name, program in PROGRAMS.items():
        if given.only and name not in given.only:
            continue
        if subprocess.run([given.python, "-c", program], capture_output=True, check=False).returncode:
            print(f"| {name} | not here | | | | | |")
            continue
        show(name, [round_(given.python, program) for _ in range(given.repeat)])
    return 0


def show(name: str, rounds: Sequence[Sequence[tuple[float, float, float]]]) -> None:
    for number, way in enumerate(("plain", *WAYS)):
        cpu, wall, size = (statistics.median(each[number][part] for each in rounds) for part in range(3))
        ratios, walls = ([each[number][part] / each[0][part] for each in rounds] for part in range(2))
        shown = f"{min(ratios):.2f}, {statistics.median(ratios):.2f}, {max(ratios):.2f}" if number else ""
        walled = f"{statistics.median(walls):.2f}" if number else ""
        print(f"| {name} | {way} | {cpu:.2f} | {shown} | {wall:.2f} | {walled} | {size / 1e6:.1f} |", flush=True)


def round_(python: str, program: str) -> list[tuple[float, float, float]]:
    """Run it plain and in each way; returns CPU seconds, wall seconds and bytes recorded of each."""
    return [measured(python, program, way) for way in ("plain", *WAYS)]


def measured(python: str, program: str, way: str) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        command, environment = [python, "-c", program], dict(os.environ)
        if way != "plain":
            command, environment = recorded(place, way, command, environment)
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        wall = time.monotonic() - begun
        while True:  # the tracer, which ends a little later
            try:
                os.wait()
            except ChildProcessError:
                break
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = place / "out"
        size = sum(path.stat().st_size for path in out.iterdir()) if out.is_dir() else 0
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, float(size)


def recorded(
    place: Path, way: str, command: list[str], environment: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return command and environment as imgdiff record has them in a container, with the paths of this machine."""
    os.environ.pop("IMGDIFF_STRACE", None)
    if "strace" in way:
        os.environ["IMGDIFF_STRACE"] = shutil.which("strace") or "strace"
    parts = recorder.parts(syscalls="syscalls" in way)
    shutil.rmtree(place)
    recorder.export(place, syscalls="syscalls" in way)
    environment.update(recorder.variables(environment, None))
    if way == "recorder":
        for name in ("LD_DEBUG", "LD_DEBUG_OUTPUT"):
            environment.pop(name, None)
    if "syscalls" in way:
        command, environment = recorder.traced(command, environment, recorder.tracer(parts))

    def here(word: str) -> str:
        return word.replace(recorder.ROOT + "/", f"{place}/")

    return [here(word) for word in command], {name: here(value) for name, value in environment.items()}


if __name__ == "__main__":
    sys.exit(main())
