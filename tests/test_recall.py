"""A report that is recalled says what a fresh one says, and nothing of an earlier run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import PYTHON, Shell, layout

ENGINE = "srv/app/engine.py"
CHANGED = {ENGINE: PYTHON[ENGINE].replace(b"BIAS = 3", b"BIAS = 4")}
SECRET = "hf_secretsecretsecret"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    layout(tmp_path / "a")
    layout(tmp_path / "b", CHANGED)
    return shell


def report(shell: Shell, *arguments: str) -> tuple[int, dict[str, object]]:
    ran = shell.fork(*arguments, "--cache-dir", "c", "--format", "json")
    return ran.code, json.loads(ran.out)


def test_a_recalled_report_is_the_fresh_one(shell: Shell) -> None:
    assert report(shell, "a", "b") == report(shell, "a", "b")


def test_images_and_command_line_are_those_of_this_run(shell: Shell) -> None:
    (shell.directory / "elsewhere").symlink_to("b")
    _, fresh = report(shell, "a", "b")
    _, recalled = report(shell, "a", "elsewhere", "-v")
    assert recalled["verdict"] == fresh["verdict"]
    images, about = recalled["images"], recalled["imgdiff"]
    assert isinstance(images, dict)
    assert isinstance(about, dict)
    assert images["b"]["reference"].endswith("elsewhere")
    assert "elsewhere" in about["argv"]


@pytest.mark.parametrize(
    "question",
    [("--entry", "app.unused"), ("--accept", "dormant"), ("--role", "main"), ("--profile", "generic")],
)
def test_another_question_is_not_answered_by_the_first_one(shell: Shell, question: tuple[str, ...]) -> None:
    known = report(shell, "a", "b")
    asked = report(shell, "a", "b", *question)
    fresh = shell.fork("a", "b", *question, "--no-cache", "--format", "json")
    assert {**asked[1], "imgdiff": None} == {**json.loads(fresh.out), "imgdiff": None}
    assert known[0] == 1
    assert asked[0] == fresh.code


def test_the_other_way_round_is_another_question(shell: Shell) -> None:
    _, forth = report(shell, "a", "b")
    _, back = report(shell, "b", "a")
    assert [(entry["digest"]["b"], entry["digest"]["a"]) for entry in entries(forth)] == [
        (entry["digest"]["a"], entry["digest"]["b"]) for entry in entries(back)
    ]


def entries(found: dict[str, object]) -> list[dict[str, dict[str, str]]]:
    changes = found["changes"]
    assert isinstance(changes, list)
    return changes


def test_another_config_is_another_question(shell: Shell) -> None:
    assert report(shell, "a", "b")[0] == 1
    layout(shell.directory / "steered", CHANGED, env={"LD_PRELOAD": "/opt/x.so"})
    _, found = report(shell, "a", "steered")
    config = found["config"]
    assert isinstance(config, list)
    assert any("LD_PRELOAD" in str(entry) for entry in config)


def test_a_reference_with_a_secret_is_redacted_when_it_is_recalled_too(shell: Shell) -> None:
    place = shell.directory / f"https:/user:{SECRET}@registry"
    place.mkdir(parents=True)
    (place / "b").symlink_to(shell.directory / "b")
    for _ in range(2):
        reference = f"oci:https://user:{SECRET}@registry/b"
        ran = shell.fork("a", reference, "--cache-dir", "c", "--entry", f"app --token={SECRET}", "-o", "r.json")
        assert ran.code in (1, 3), ran
        text = ran.out + ran.err + (shell.directory / "r.json").read_text()
        assert "@registry/b" in text
        assert SECRET not in text


def test_a_root_file_system_is_read_each_time(shell: Shell) -> None:
    for side in ("x", "y"):
        path = shell.directory / side / "srv/app"
        path.mkdir(parents=True)
        (path / "engine.py").write_text("BIAS = 3\n")
    ran = shell.fork("rootfs:x", "rootfs:y", "--cache-dir", "c")
    assert ran.code == 0
    said = " ".join(ran.out.split())
    assert "neither has a config" in said
    assert "configs steer the same" not in said  # there is none that could
    (shell.directory / "y/srv/app/engine.py").write_text("BIAS = 4\n")
    assert shell.fork("rootfs:x", "rootfs:y", "--cache-dir", "c").code != 0
