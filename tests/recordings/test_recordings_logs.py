"""What Python, torch.compile and vLLM say of what they loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from imgdiff import recordings
from imgdiff.errors import RecordingError
from imgdiff.model import RecordedProcess


def others() -> list[str]:
    """Interpreters whose logs are looked at: this one, and those of the PATH that run (a version manager's stand-in for
    one that is not chosen is there, and runs nothing)."""
    found = os.environ.get("IMGDIFF_TEST_PYTHONS", "").split(":")
    found += [path for minor in range(8, 16) if (path := shutil.which(f"python3.{minor}"))]
    there = dict.fromkeys(each for each in found if each and Path(each).is_file())
    return [sys.executable, *(each for each in there if runs(each))]


def runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def logged(tmp_path: Path, python: str, *options: str) -> RecordedProcess:
    site = tmp_path / "si te"
    (site / "pkg").mkdir(parents=True)
    (site / "pkg" / "__init__.py").write_text("import importlib; importlib.import_module('pkg.late')\n")
    (site / "pkg" / "late.py").write_text("import pkg.inner\n")
    (site / "pkg" / "inner.py").write_text("")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site)}
    for _ in range(2):  # from the source, and from its bytecode
        ran = subprocess.run([python, *options, "-c", "import pkg, _json"], capture_output=True, env=env, check=False)
        assert ran.returncode == 0, ran.stderr
    (tmp_path / "log").write_bytes(ran.stderr)
    [process] = recordings.read(str(tmp_path / "log")).processes
    return process


def names(process: RecordedProcess) -> set[str | None]:
    return {each.name for each in process.files if each.how == "executed" and not each.path}


@pytest.mark.parametrize("python", others())
def test_importtime_names_modules(tmp_path: Path, python: str) -> None:
    process = logged(tmp_path, python, "-X", "importtime")
    assert {"pkg", "pkg.inner", "encodings"} <= names(process)
    assert any("importlib.import_module" in gap for gap in process.gaps)


@pytest.mark.parametrize("python", others())
@pytest.mark.parametrize("more", [(), ("-B",)])
def test_python_v_names_files(tmp_path: Path, python: str, more: tuple[str, ...]) -> None:
    process = logged(tmp_path, python, "-v", *more)
    site = os.fsencode(tmp_path) + b"/si te/pkg/"
    ran = {each.path for each in process.files if each.how == "executed"}
    if more:
        assert {site + b"__init__.py", site + b"late.py", site + b"inner.py"} <= ran
    else:
        assert sum(path.startswith(site + b"__pycache__/") for path in ran) == 3
    assert {"pkg", "pkg.late", "pkg.inner"} <= names(process)
    assert process.gaps


def test_a_plain_list_of_traced_files(tmp_path: Path) -> None:
    (tmp_path / "traced.txt").write_text("/opt/vllm/model_executor/models/llama.py\n/opt/torch/nn/functional.py\n")
    [process] = recordings.read(str(tmp_path / "traced.txt")).processes
    assert [each.path for each in process.files] == [
        b"/opt/vllm/model_executor/models/llama.py",
        b"/opt/torch/nn/functional.py",
    ]


def test_the_list_in_a_log_of_vllm_names_its_process(tmp_path: Path) -> None:
    prefix = "(EngineCore_DP0 pid=214) "
    log = [
        "(APIServer pid=1) INFO 12-02 10:00:00 [api_server.py:1] /not/this.py",
        f"{prefix}DEBUG 12-02 10:00:01 [backends.py:561] Traced files (to be considered for compilation cache):",
        f"{prefix}/opt/vllm/model_executor/models/llama.py",
        f"{prefix}/opt/torch/nn/functional.py",
        f"{prefix}INFO 12-02 10:00:02 [backends.py:600] done",
        f"{prefix}/opt/not/that.py",
    ]
    (tmp_path / "server.log").write_text("\n".join(log) + "\n")
    [process] = recordings.read(str(tmp_path / "server.log")).processes
    assert (process.pid, process.titles) == (214, ("EngineCore_DP0",))
    assert len(process.files) == 2


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"event": "start", "schema": "imgdiff/recording/v1", "x": [[]]}).replace("[]", "[" * 90_000),
        "[" * 200_000,
        '{"event":"start","schema":' * 3000,
        json.dumps({"event": "start", "schema": "imgdiff/recording/v1", "pid": "x"}),
        json.dumps({"event": "start", "schema": "imgdiff/recording/v1", "pid": 10**30}),
    ],
    ids=["deep in a line", "deep", "nested objects", "a pid that is text", "a pid that is too large"],
)
def test_hostile_json_ends_in_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.jsonl").write_text(content + "\n")
    with pytest.raises(RecordingError) as caught:
        recordings.read(str(tmp_path / "x.jsonl"))
    assert "\n" not in str(caught.value)
