"""What ``--export`` writes and ``--print-env`` prints, pasted where it belongs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.record.conftest import Engine
from tests.record.images import NAME
from tests.recorder.recorded import read
from tests.services.engine import docker
from tests.support.command import Shell

A = f"{NAME}:a"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def exported(shell: Shell, *more: str) -> str:
    ran = shell.run("record", "--export", "it", "--print-env", *more)
    assert ran.code == 0, ran
    return ran.out


def test_export_writes_what_is_mounted(shell: Shell) -> None:
    ran = shell.run("record", "--export", "it")
    assert (ran.code, ran.out) == (0, "")
    assert "imgdiff record --export it --print-env" in ran.err
    assert sorted(path.name for path in (shell.directory / "it").iterdir()) == ["out", "python"]
    python = shell.directory / "it" / "python"
    assert (python / "sitecustomize.py").is_file()
    assert all(path.suffix == ".py" and path.stat().st_mode & 0o777 == 0o644 for path in python.iterdir())
    assert (shell.directory / "it" / "out").stat().st_mode & 0o777 == 0o777  # the container's user can be anyone
    again = shell.run("record", "--export", "it")
    assert again.code == 2
    assert "'it' is there already, and is no empty directory" in again.err
    (shell.directory / "empty").mkdir()
    assert shell.run("record", "--export", "empty").code == 0


def test_what_to_set_can_be_asked_for_again(shell: Shell) -> None:
    first = exported(shell)
    assert exported(shell) == first
    (shell.directory / "it" / "python" / "sitecustomize.py").write_text("")
    ran = shell.run("record", "--export", "it", "--print-env")
    assert ran.code == 2  # it is another recorder


def test_without_export_it_says_what_is_missing(shell: Shell) -> None:
    ran = shell.run("record", "--print-env")
    assert ran.code == 0
    assert f"source={shell.directory}/imgdiff-recorder/python" in ran.out
    assert "there is no imgdiff-recorder here: imgdiff record --export imgdiff-recorder writes it" in ran.err
    assert "An image, or a deployment, that sets PYTHONPATH itself needs its value behind the one here" in ran.err


@pytest.mark.engine
@pytest.mark.parametrize("more", [(), (A,), (A, "--syscalls")], ids=["any image", "image", "syscalls"])
def test_docker_run_takes_it(dockerd: Engine, more: tuple[str, ...]) -> None:
    ran = dockerd.run("record", "--export", "it", "--print-env", *more)
    assert ran.code == 0, ran.err
    command = f"docker run --rm --network none {ran.out.strip()}" + ("" if "--syscalls" in more else f" {A}")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env={**os.environ, **dockerd.env})
    assert done.returncode == 7, done
    assert done.stdout.startswith("serving it")
    out = dockerd.here / "it" / "out"
    (process,) = read(out)
    assert (out / "ld.1").exists()
    assert (out / "strace.1").exists() == ("--syscalls" in more)
    image = docker("image", "inspect", "--format", "{{.Id}}", A, host=dockerd.url) if more else None
    assert bool(process.start["image"]) == bool(more)
    assert image is None or process.start["image"] == image or "containerd" in docker("info", host=dockerd.url)
    assert ("/srv/lib/sitecustomize.py" in process.files("exec")) == bool(more)  # its own PYTHONPATH is kept


@pytest.mark.engine
def test_the_variables_alone(dockerd: Engine) -> None:
    ran = dockerd.run("record", "--export", "it", "--print-env", "--format", "env", A)
    assert ran.code == 0, ran.err
    (dockerd.here / "env").write_text(ran.out)
    it = dockerd.here / "it"
    mounts = ("-v", f"{it}/python:/imgdiff/python:ro", "-v", f"{it}/out:/imgdiff/out")
    variables = ("--env-file", str(dockerd.here / "env"))
    command = ["docker", "run", "--rm", "--network", "none", *mounts, *variables, A]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **dockerd.env})
    assert done.returncode == 7, done
    assert len(read(it / "out")) == 1


def test_compose_parses_it(shell: Shell) -> None:
    text = exported(shell, "--format", "compose")
    service = yaml.safe_load(text)["services"]["SERVICE"]
    assert service["environment"]["PYTHONPATH"] == "/imgdiff/python"
    assert [
        (each["type"], each["source"], each["target"], each.get("read_only", False)) for each in service["volumes"]
    ] == [
        ("bind", str(shell.directory / "it" / "python"), "/imgdiff/python", True),
        ("bind", str(shell.directory / "it" / "out"), "/imgdiff/out", False),
    ]


@pytest.mark.engine
def test_compose_merges_it(dockerd: Engine) -> None:
    """docker-compose's own parser, over a file as users have it."""
    if shutil.which("docker-compose") is None:
        pytest.skip("docker-compose is missing")
    directory = dockerd.here / "pa$$th"
    directory.mkdir()
    ran = dockerd.run("record", "--export", directory / "it", "--print-env", "--format", "compose", "--syscalls", A)
    assert ran.code == 0, ran.err
    (dockerd.here / "imgdiff.yaml").write_text(ran.out.replace("SERVICE", "engine"))
    (dockerd.here / "compose.yaml").write_text(
        f"version: '3.8'\nservices:\n  engine:\n    image: {A}\n    environment:\n      MINE: '1'\n"
    )
    command = ["docker-compose", "-f", "compose.yaml", "-f", "imgdiff.yaml", "config"]
    done = subprocess.run(command, cwd=dockerd.here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    service = yaml.safe_load(done.stdout)["services"]["engine"]
    assert service["environment"]["MINE"] == "1"
    assert service["environment"]["PYTHONPATH"] == "/imgdiff/python:/srv/lib"
    assert service["entrypoint"][-4:] == ["python3", "/srv/main.py", "--port", "8000"]
    assert str(directory).replace("$", "$$") + "/it/out" in done.stdout


def test_kubernetes_merges_it(shell: Shell) -> None:
    text = exported(shell, "--format", "kubernetes")
    pod: dict[str, Any] = yaml.safe_load(text)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["IMGDIFF_RECORD"] == "/imgdiff/out"
    assert env["PYTHONPATH"] == "/imgdiff/python"
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(mounted) == {each["name"] for each in pod["volumes"]}
    assert mounted == {"imgdiff-recorder": "/imgdiff/python", "imgdiff-recording": "/imgdiff/out"}
    made = next(line for line in text.splitlines() if "create configmap" in line)
    source = Path(shlex.split(made.removeprefix("# "))[-1].partition("=")[2])
    assert (source / "sitecustomize.py").is_file()
    assert sum(path.stat().st_size for path in source.iterdir()) < 1_000_000  # what a ConfigMap takes


def test_a_configmap_is_a_directory_of_links(shell: Shell) -> None:
    """As the kubelet mounts one; Python finds the recorder all the same, and says where it lies."""
    exported(shell)
    mounted = shell.directory / "mounted"
    shutil.copytree(shell.directory / "it" / "python", mounted / "..2026" / "x")
    (mounted / "..data").symlink_to("..2026/x")
    for path in (mounted / "..data").iterdir():
        (mounted / path.name).symlink_to(f"..data/{path.name}")
    out = shell.directory / "it" / "out"
    environment = {"PATH": os.defpath, "PYTHONPATH": str(mounted), "IMGDIFF_RECORD": str(out)}
    subprocess.run(
        ["/usr/bin/env", "python3", "-c", "import json"], env={**environment, "PATH": os.environ["PATH"]}, check=True
    )
    (process,) = read(out)
    assert process.start["recorder"] == str(mounted)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "an image is wanted"),
        (("x", "-it"), "imgdiff record takes no -it: a recorded run has no terminal"),
        (("x", "-d"), "imgdiff record takes no -d: the run is recorded to its end"),
        (("x", "--restart", "always"), "imgdiff record takes no --restart"),
        (("x", "serve", "--model", "y"), "the container's own words stand behind --"),
        (("x", "--format", "env"), "--format goes with --print-env"),
        (("--print-env", "x", "y"), "nothing is started"),
        (("--print-env", "--format", "env", "--syscalls"), "--syscalls changes the command"),
        (("--print-env", "--format", "kubernetes", "--syscalls"), "the tracer is too large for a ConfigMap"),
        (("--print-env", "--syscalls"), "--syscalls stands before the container's command, which is not known"),
        (("-e", "=1", "x"), "has no name"),
        (("--env-file", "none", "x"), "--env-file none can't be read"),
        (("--export", "a,b", "--print-env"), "has a comma, quote or newline in its name"),
        (("--export", "", "--print-env"), "it is empty"),
    ],
)
def test_wrong_use_is_one_sentence(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    ran = shell.fork("record", *arguments)
    assert ran.code == 2
    assert words in ran.err, ran.err
    assert ran.out == ""
    assert not [path for path in shell.directory.iterdir() if path.name not in ("cache", "temporary")]


def test_no_tracer_at_all(shell: Shell) -> None:
    ran = shell.run("record", "--export", "it", "--syscalls", PATH=str(shell.directory))
    assert ran.code == 2
    assert "--syscalls needs a C compiler (on x86-64) or strace, and there is neither" in ran.err
    assert not (shell.directory / "it").exists()


@pytest.mark.parametrize("compiler", ["none", "one that fails"])
def test_strace_stands_in_for_a_tracer_that_can_not_be_built(shell: Shell, compiler: str) -> None:
    strace, ldd = shutil.which("strace"), shutil.which("ldd")
    if strace is None or ldd is None:
        pytest.skip("strace or ldd is missing")
    tools = shell.directory / "tools"
    tools.mkdir()
    (tools / "strace").symlink_to(strace)
    (tools / "ldd").symlink_to(ldd)
    if compiler != "none":
        (tools / "cc").write_text("#!/bin/sh\nexit 1\n")
        (tools / "cc").chmod(0o755)
    ran = shell.run("record", "--export", "it", "--syscalls", PATH=str(tools))
    assert ran.code == 0, ran
    there = {path.name for path in (shell.directory / "it" / "strace").iterdir()}
    assert "strace" in there
    assert "tracer" not in there


def test_a_strace_that_is_named_goes_before_our_tracer(shell: Shell) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is missing")
    assert shell.run("record", "--export", "it", "--syscalls", IMGDIFF_STRACE=strace).code == 0
    assert (shell.directory / "it" / "strace" / "strace").is_file()
    assert not (shell.directory / "it" / "strace" / "tracer").exists()
