"""What the README shows is what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command import Shell

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("more", "code"), [((), 3), (("--trace", "fixtures/story/recording"), 0)])
def test_the_readme_shows_what_the_command_prints(tmp_path: Path, more: tuple[str, ...], code: int) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    words = ("fixtures/story/a", "fixtures/story/b", *more)
    ran = shell.run(*words, "--no-cache", COLUMNS="80")
    assert ran.code == code
    block = re.search(rf"```console\n\$ imgdiff {' '.join(words)}\n(.*?)```", _readme(), re.S)
    assert block is not None
    at = 0
    for part in re.split(r"^ *\.\.\.\n", block[1], flags=re.M):  # what is left out
        assert part in ran.out[at:], part
        at = ran.out.index(part, at) + len(part)


def test_the_readme_names_every_exit_code_and_document() -> None:
    text = _readme()
    assert {int(code) for code in re.findall(r"^\| (\d) \|", text, re.M)} == {0, 1, 2, 3}
    linked = {ROOT / name for name in re.findall(r"\]\((docs/[\w-]+\.md)\)", text)}
    assert all(path.is_file() for path in linked)


def _readme() -> str:
    return (ROOT / "README.md").read_text("utf-8")
