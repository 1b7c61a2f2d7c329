"""Where one comparison spends its time: CPU seconds by stage, those of worker processes included.

    python benchmarks/stages.py A B [--cache-dir DIR] [--json] [-- any option of imgdiff: --entry, --role ...]

Without --cache-dir the cache is a fresh one (a cold run). Nothing is changed in what runs: the stages are wrapped where
the pipeline calls them.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from measure import below

STAGES = {
    ("pipeline.images", "index_layers"): "index layers",
    ("pipeline.images.tree", "flatten_both"): "flatten",
    ("pipeline.images.attributing", "attribute"): "attribute",
    ("pipeline.weighing.attributing", "owner_roots"): "root hashes",
    ("pipeline.weighing", "compare"): "compare",
    ("pipeline.Traces", "of"): "trace",
    ("pipeline.Traces", "keep"): "trace: keep",
    ("pipeline.explanation", "explain"): "explain",
    ("pipeline.versions", "weigh_versions"): "versions",
    ("pipeline", "resolved_otherwise"): "resolution",
    ("pipeline", "judge_changes"): "judge",
    ("pipeline", "blindspots_of"): "blindspots",
    ("pipeline", "report_of"): "report",
    ("pipeline.recall", "key"): "recall: key",
    ("pipeline.recall", "load"): "recall: load",
    ("pipeline.recall", "save"): "recall: save",
}


def spent() -> float:
    """CPU seconds of this process and all below it, so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    dead = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = sum(cpu for cpu, _ in below(os.getpid()).values())
    return own.ru_utime + own.ru_stime + dead.ru_utime + dead.ru_stime + living


class Clock:
    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}

    def wrap(self, module: Any, name: str, stage: str) -> None:
        function: Callable[..., Any] = getattr(module, name)

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            cpu, wall = spent(), time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.cpu[stage] = self.cpu.get(stage, 0.0) + spent() - cpu
                self.wall[stage] = self.wall.get(stage, 0.0) + time.perf_counter() - wall

        setattr(module, name, timed)


def resolve(root: ModuleType, path: str) -> Any:
    return functools.reduce(getattr, path.split(".")[1:], root)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--cache-dir", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--entry")
    parser.add_argument("--role", action="append", default=[])
    parser.add_argument("--accept", action="append", default=[])
    options = parser.parse_args()
    before = time.perf_counter()
    from imgdiff import pipeline  # its cost is a stage, too

    clock = Clock()
    clock.cpu["start and imports"] = spent()
    clock.wall["start and imports"] = time.perf_counter() - before
    for (module, name), stage in STAGES.items():
        clock.wrap(resolve(pipeline, module), name, stage)
    with tempfile.TemporaryDirectory(prefix="imgdiff-stages-") as fresh:
        asked = pipeline.Options(
            cache_dir=options.cache_dir or Path(fresh),
            entry=options.entry,
            roles=tuple(options.role),
            accept=tuple(options.accept),
        )
        start = time.perf_counter()
        report = pipeline.diff(options.a, options.b, asked)
        wall = time.perf_counter() - start + clock.wall["start and imports"]
    total = spent()
    clock.cpu["between"] = total - sum(clock.cpu.values())
    clock.wall["between"] = wall - sum(clock.wall.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if options.json:
        json.dump({"cpu": clock.cpu, "wall": clock.wall, "total": total, "peak": peak}, sys.stdout)
        return
    files = report.image_a.files + report.image_b.files
    print(f"{report.verdict.outcome}: {files:,} files, {len(report.changes):,} differences, {peak:,} MB")
    print(f"{'':20}{'CPU s':>8}{'share':>8}{'wall s':>8}")
    for stage, cpu in clock.cpu.items():
        print(f"{stage:20}{cpu:8.2f}{cpu / total:8.0%}{clock.wall[stage]:8.2f}")
    print(f"{'all':20}{total:8.2f}{'':8}{wall:8.2f}")


if __name__ == "__main__":
    main()
