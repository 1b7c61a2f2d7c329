"""Programs to run for real: vLLM that serves, transformers that generate, an application under uvicorn.

Each is run under ``truth.watched``, does one thing over loopback or to its end, and is stopped by its pid.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import truth

START = 1200.0  # seconds until a server must answer: strace slows it down

MODEL = """\
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, LlamaConfig, MixtralConfig, PreTrainedTokenizerFast, Qwen3Config
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
    "qwen3": lambda: Qwen3Config(architectures=["Qwen3ForCausalLM"], **llama, **same),
    "mixtral": lambda: MixtralConfig(
        architectures=["MixtralForCausalLM"], num_local_experts=4, num_experts_per_tok=2, **llama, **same
    ),
    "gpt2": lambda: GPT2Config(architectures=["GPT2LMHeadModel"], n_embd=64, n_layer=2, n_head=2, **same),
}[kind]()
config.save_pretrained(where)
"""
GENERATE = """\
import sys

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

where = sys.argv[1]
tokenizer = AutoTokenizer.from_pretrained(where)
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(where))
print(model.generate(**tokenizer("a b c", return_tensors="pt"), max_new_tokens=4).shape)
"""
APPLICATION = """\
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Answer(BaseModel):
    text: str


@app.get("/health")
def health() -> Answer:
    return Answer(text="well")
"""
KINDS = ("llama", "qwen3", "gpt2", "mixtral")


@dataclass
class Ran:
    """What was run: the command line as the image would have it, where, from which modules and scripts of its own it
    starts, and which process has which role by what its title begins with."""

    command: tuple[str, ...]
    directory: Path
    roots: tuple[str, ...]
    script: str | None
    role: str
    titled: Mapping[int, str]


def environment(work: Path, more: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **more, "HF_HUB_OFFLINE": "1", "HOME": str(work)}


def write_model(python: Path, kind: str, work: Path) -> Path:
    model = work / "model"
    subprocess.run([python, "-c", MODEL, kind, model], check=True, env=environment(work, {}))
    return model


def serve_vllm(python: Path, kind: str, work: Path) -> Ran:
    """Serve one completion of a tiny random model, each process started by spawn."""
    model = write_model(python, kind, work)
    entry = "vllm.entrypoints.openai.api_server"
    number = free_port()
    command = [
        *(str(python), "-m", entry, "--model", str(model), "--load-format", "dummy", "--dtype", "float32"),
        *("--max-model-len", "64", "--enforce-eager", "--host", "127.0.0.1", "--port", str(number)),
    ]
    more = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_CACHE_ROOT": str(work / "cache"),
    }
    titles = {"VLLM::EngineCore": "engine-core", "VLLM::Worker": "worker", "VLLM::APIServer": "api-server"}
    titled: dict[int, str] = {}
    with started(command, work, more) as server:
        wait_for(server, number)
        body = json.dumps({"model": str(model), "prompt": "a b c", "max_tokens": 4})
        print(f"served {kind}: {ask(number, 'POST', '/v1/completions', body)[:60]}")
        for pid in truth.pids(work):
            text = title(pid)
            titled.update((pid, role) for start, role in titles.items() if text.startswith(start))
    return Ran(tuple(command), work, (entry,), None, "api-server", titled)


def generate(python: Path, kind: str, work: Path) -> Ran:
    """Generate four tokens with transformers, in one process."""
    model = write_model(python, kind, work)
    application = work / "app"
    application.mkdir()
    script = application / "generate.py"
    script.write_text(GENERATE)
    command = [str(python), str(script), str(model)]
    with started(command, work, {}) as process:
        process.wait(START)
        if process.returncode:
            raise SystemExit(f"{script.name} ended with {process.returncode}: see output.log (--keep)")
    return Ran(tuple(command), application, (), str(script), "main", {})


def serve_application(python: Path, _: str, work: Path) -> Ran:
    """Answer one request from a fastapi application under uvicorn."""
    application = work / "app"
    application.mkdir()
    (application / "service.py").write_text(APPLICATION)
    number = free_port()
    command = [str(python), "-m", "uvicorn", "service:app", "--host", "127.0.0.1", "--port", str(number)]
    with started(command, work, {}, application) as server:
        wait_for(server, number)
        print(f"served: {ask(number, 'GET', '/health')}")
    return Ran(tuple(command), application, ("uvicorn.__main__", "service"), None, "main", {})


APPS: dict[str, Callable[[Path, str, Path], Ran]] = {
    "vllm": serve_vllm,
    "generate": generate,
    "uvicorn": serve_application,
}


# --------------------------------------------------------------------------------------------------------------------
# Processes
# --------------------------------------------------------------------------------------------------------------------


@contextmanager
def started(
    command: Sequence[str], work: Path, more: Mapping[str, str], directory: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program under watch; end it and all of its session."""
    watched, hook = truth.watched(command, work)
    with (work / "output.log").open("wb") as log:
        process = subprocess.Popen(
            watched,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=environment(work, {**more, **hook}),
            cwd=directory or work,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End what strace runs as its user would, then what is left of the session."""
    for pid in children(process.pid):
        os.kill(pid, signal.SIGTERM)
    try:
        process.wait(120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nothing is left


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []  # it has ended


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(server: subprocess.Popen[bytes], number: int) -> None:
    """Wait until a server answers."""
    end = time.monotonic() + START
    while time.monotonic() < end:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode}: see output.log (--keep)")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", number, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(2)
    raise SystemExit(f"the server did not answer within {START:.0f} s: see output.log (--keep)")


def ask(number: int, method: str, path: str, body: str | None = None) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=300)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read().decode("utf-8", "replace")
    if response.status != 200:
        raise SystemExit(f"{path} failed with {response.status}: {text[:300]}")
    return text


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""  # it is gone already
