"""What a pair costs that is wholly in the cache: 200,000 files a side, in many layers.

    python benchmarks/warm.py [--files N] [--layers N] [--work DIR] [--repeat N] [--keep]

Three builds of one image are made, a, b and c, which share all layers but the last; that one differs in a few files.
After a with b and a with c were compared, every layer and every fact is known. Measured are, as processes of their own:

- the same pair again, whose report is recalled;
- b with c, which were never compared with one another: what a gate does with a new build whose layers it has seen.
  Flattening, owners, comparison and trace really run, for both images; and where the time goes, by stage.

Goal: under 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pair
import synthetic
from measure import Cost, run

HERE = Path(__file__).parent


def build(work: Path, files: int, layers: int) -> list[Path]:
    """Write WORK/a, WORK/b and WORK/c and return them."""
    blobs = work / "blobs"
    with tempfile.TemporaryDirectory(dir=work) as name:
        pair.base(Path(name))
        base_files = sum(path.is_file() for path in Path(name).rglob("*"))
        stack = [pair.pack(Path(name), blobs)]
    each = synthetic.MODULES * 3 + 5
    count = max(layers - 2, (files - base_files) // each)  # distributions
    spread = [range(at, count, layers - 2) for at in range(layers - 2)]
    total = base_files
    for numbers in spread:

        def members(numbers: range = numbers) -> Iterator[synthetic.Member]:
            for number in numbers:
                uses = [f"package_{number + 1}"] if number % 8 else []
                yield from synthetic.distribution(f"package_{number}", "1.0", uses)

        made, added = synthetic.layer(members(), blobs)
        stack.append(made)
        total += added
    config = {"Entrypoint": ["python3", "-m", "engine.main"], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]}
    uses = [f"package_{number}" for number in range(1, count, 8)][:50]
    sides = []
    for side in ("a", "b", "c"):

        def last(side: str = side) -> Iterator[synthetic.Member]:
            yield from synthetic.distribution("engine", f"1.0.{ord(side)}", uses)
            yield f"{synthetic.SITE}/engine/main.py", f"import engine\nBUILD = {side!r}\n".encode()

        made, added = synthetic.layer(last(), blobs)
        pair.layout(work / side, blobs, [*stack, made], config)
        sides.append(work / side)
    print(f"{total + added:,} files a side in {layers} layers; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    return sides


def compare(a: Path, b: Path, cache: Path) -> Cost:
    command = (sys.executable, "-m", "imgdiff", "diff", a, b, "--cache-dir", cache, "-q", "--format", "json")
    cost = run(command)
    if cost.code not in (0, 1, 3):
        raise SystemExit(f"imgdiff ended with {cost.code}: {cost.err}")
    return cost


def line(name: str, cost: Cost) -> None:
    print(f"{name:52}{cost.cpu:8.2f}{cost.wall:8.2f}{cost.peak / 1e6:7.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=200_000, help="of an image (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=31, help="of an image (default: %(default)s)")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()), help="where to make a directory")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the best counts (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the images and the cache")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="imgdiff-warm-", dir=options.work))
    try:
        a, b, c = build(work, options.files, options.layers)
        cache = work / "cache"
        print(f"{'':52}{'CPU s':>8}{'wall s':>8}{'MB':>7}")
        line("a b, nothing known", compare(a, b, cache))
        line("a c, all but one layer known", compare(a, c, cache))
        line("a b again, its report known", min(compare(a, b, cache) for _ in range(options.repeat)))
        fresh = []
        for at in range(options.repeat):  # each in a copy of the cache that has never seen this pair
            shutil.copytree(cache, work / f"cache-{at}")
            fresh.append(compare(b, c, work / f"cache-{at}"))
            shutil.rmtree(work / f"cache-{at}")
        line("b c, all layers known, the pair not", min(fresh))
        staged = run([sys.executable, HERE / "stages.py", b, c, "--cache-dir", cache, "--json"])
        found = json.loads(staged.out)
        print("\nb c by stage:")
        for stage, cpu in sorted(found["cpu"].items(), key=lambda item: -item[1]):
            print(f"  {stage:50}{cpu:8.2f}{found['wall'][stage]:8.2f}")
    finally:
        if options.keep:
            print(f"kept in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
