"""The static trace of one image: once with no facts cached, and again with all of them cached.

    python benchmarks/trace.py IMAGE [--profile vllm] [--entry COMMAND] [--jobs 2]

CPU seconds of the trace alone (indexing and attribution apart), worker processes included; wall seconds; the most
memory of the process that traces. Each run is a process of its own; the second finds the first one's facts in the
store.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stages import spent

from imgdiff import engines, pipeline, sources
from imgdiff.facts import Facts
from imgdiff.store import Store
from imgdiff.trace import trace


def run(image: str, cache: Path, profile: str | None, entry: str | None, jobs: int) -> dict[str, float]:
    """Trace once in this process."""
    with Store.open(cache) as store:
        facts = Facts(store, jobs)
        opened = sources.open_image(image)
        first, _ = pipeline.index((opened, opened), store, facts, None, jobs)
        chosen = engines.recognise(first.attribution, first.tree)
        if profile is not None:
            chosen = next(each for each in engines.load_profiles() if each.name == profile)
        cpu, wall = spent(), time.monotonic()
        traced = trace(first.tree, first.attribution, first.facts, opened.config, chosen, entry, "a")
        cpu, wall = spent() - cpu, time.monotonic() - wall  # before the workers end: they are no children of ours
        facts.close()
        return {
            "cpu": cpu,
            "wall": wall,
            "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "roles": len(traced.roles),
            "modules": max((len(role.modules) for role in traced.roles.values()), default=0),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image")
    parser.add_argument("--profile")
    parser.add_argument("--entry")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)  # one run in this directory, as JSON
    given = parser.parse_args()
    if given.cache is not None:
        print(json.dumps(run(given.image, given.cache, given.profile, given.entry, given.jobs)))
        return
    with tempfile.TemporaryDirectory() as directory:
        print("| measured | CPU s | wall s | MB | roles | modules |\n|---|---|---|---|---|---|")
        for label in ("no facts cached", "all facts cached"):
            command = [sys.executable, *sys.argv, "--cache", directory]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            cells = [f"{found['cpu']:.1f}", f"{found['wall']:.1f}", *(f"{found[key]:.0f}" for key in ("mb", "roles"))]
            print(f"| {label} | {' | '.join(cells)} | {found['modules']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
