"""A pair whose layers are all shared but one: does it cost what that one layer costs?

    python benchmarks/shared.py [--size MB] [--layers N] [--work DIR] [--repeat N] [--keep]

Two images of real files (what pip installs of torch and others, in 20 layers of about 1 GB in all), equal but for the
last layer (transformers; four files of it differ). Each measurement is a process of its own; what counts is its CPU
seconds, user and system:

- reading and indexing the shared layers once, and each of the two last layers alone;
- reading and indexing both images from nothing, against the sum of these;
- the same where the shared layers and a's last layer are known, against b's last layer alone. Goal: within 1.2 times.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import pair
from measure import Cost, run

from imgdiff import sources
from imgdiff.layer import index_layers
from imgdiff.store import Store

COMMON = ("torch==2.13.0", "sympy==1.14.0", "networkx==3.6.1", "numpy==2.3.5")
LAST = ("transformers==5.19.0",)
CHANGED = ("__init__.py", "utils/generic.py", "utils/hub.py", "generation/utils.py")


def build(work: Path, size: int, layers: int) -> None:
    """Write WORK/a and WORK/b."""
    blobs = work / "blobs"
    stack: list[tuple[str, str, int]] = []
    with tempfile.TemporaryDirectory(dir=work) as name:
        whole = Path(name) / "whole"
        pair.install(whole, COMMON)
        for number, paths in enumerate(split(whole, size, layers)):
            root = Path(name) / f"layer-{number}"
            for path in paths:
                target = root / path.relative_to(whole)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
            stack.append(pair.pack(root, blobs))
    config = {"Entrypoint": ["python3", "-m", "transformers.cli.transformers"]}
    with tempfile.TemporaryDirectory(dir=work) as name:
        root = Path(name)
        pair.install(root, LAST)
        pair.layout(work / "a", blobs, [*stack, pair.pack(root, blobs)], config)
        (package,) = (path for path in root.rglob("transformers") if (path / "__init__.py").is_file())
        for changed in CHANGED:
            path = package / changed
            path.write_text(path.read_text("utf-8") + "\nBUILD = 2\n", "utf-8")
        pair.layout(work / "b", blobs, [*stack, pair.pack(root, blobs)], config)


def split(whole: Path, size: int, layers: int) -> list[list[Path]]:
    """Return the files in that many parts, the largest file first, each to the part that has least."""
    files = [(path.stat().st_size, path) for path in whole.rglob("*") if path.is_file()]
    parts: list[list[Path]] = [[] for _ in range(layers)]
    filled = [(0, number) for number in range(layers)]
    for length, path in sorted(files, reverse=True):
        if sum(room for room, _ in filled) + length > size:
            continue  # as much as was asked for
        room, number = heapq.heappop(filled)
        heapq.heappush(filled, (room + length, number))
        parts[number].append(path)
    return parts


def measure(reference: str, other: str, cache: Path, chosen: str) -> None:
    """Index some of two images' layers, and print the CPU seconds of that."""
    layers = [layer for each in (reference, other) for layer in sources.open_image(each).layers]
    half = len(layers) // 2
    picked = {"all": layers, "shared": layers[: half - 1], "a": layers[half - 1 : half], "b": layers[-1:]}[chosen]
    with Store.open(cache) as store:
        before = resource.getrusage(resource.RUSAGE_SELF)
        index_layers(picked, store)
        after = resource.getrusage(resource.RUSAGE_SELF)
    json.dump(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, sys.stdout)


def indexed(work: Path, cache: Path, chosen: str) -> float:
    done = run([sys.executable, __file__, "--measure", work / "a", work / "b", cache, chosen])
    if done.code != 0:
        raise SystemExit(done.err)
    return float(done.out)


def compared(work: Path, cache: Path) -> Cost:
    done = run([sys.executable, "-m", "imgdiff", "diff", work / "a", work / "b", "--cache-dir", cache, "-q"])
    if done.code not in (0, 1, 3):
        raise SystemExit(done.err)
    return done


def one_round(work: Path) -> dict[str, float]:
    """Measure everything once, in caches of its own."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=work) as name:
        caches = Path(name)
        for chosen in ("shared", "a", "b"):
            found[chosen] = indexed(work, caches / chosen, chosen)
        found["all"] = indexed(work, caches / "all", "all")
        indexed(work, caches / "known", "shared")
        indexed(work, caches / "known", "a")
        shutil.copytree(caches / "known", caches / "whole")
        found["all, known but b"] = indexed(work, caches / "known", "all")
        found["imgdiff"] = compared(work, caches / "whole").cpu
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=1_000, help="megabytes of the shared layers (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=20, help="shared layers (default: %(default)s)")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "imgdiff-shared")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of which the best counts (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the pair for another run")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        a, b, cache, chosen = options.measure
        measure(a, b, Path(cache), chosen)
        return
    options.work.mkdir(parents=True, exist_ok=True)
    try:
        if not (options.work / "b" / "index.json").is_file():
            build(options.work, options.size * 1_000_000, options.layers)
        a, b = (sources.open_image(str(options.work / side)) for side in "ab")
        sizes = [
            sum(layer.descriptor.size for layer in image.layers if layer.descriptor is not None) for image in (a, b)
        ]
        print(f"{len(a.layers)} layers, {sizes[0] / 1e6:.0f} and {sizes[1] / 1e6:.0f} MB of blobs; ", end="")
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
        rounds = [one_round(options.work) for _ in range(options.repeat)]
        best = {name: min(found[name] for found in rounds) for name in rounds[0]}
        apart = best["shared"] + best["a"] + best["b"]
        print(f"{'':60}{'CPU s':>8}{'ratio':>7}{'goal':>6}")
        print(f"{'index: shared layers once':60}{best['shared']:8.2f}")
        print(f"{'index: the last layer of a, of b':60}{best['a']:8.2f}{best['b']:8.2f}")
        print(f"{'index: both images, against these three':60}{best['all']:8.2f}{best['all'] / apart:7.2f}   1.2")
        known = best["all, known but b"]
        print(f"{'index: both images, all but the last of b known':60}{known:8.2f}{known / best['b']:7.2f}   1.2")
        print(f"{'imgdiff whole, the same known (owners, trace, report)':60}{best['imgdiff']:8.2f}")
    finally:
        if not options.keep:
            shutil.rmtree(options.work, ignore_errors=True)


if __name__ == "__main__":
    main()
