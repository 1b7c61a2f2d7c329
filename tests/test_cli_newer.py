"""Images with sources in a grammar that the Python that runs imgdiff may not know: traced, not blocked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import PYTHON, Shell, layout

ENGINE = "srv/app/engine.py"
NEWER = b"""from typing import Protocol
lazy import json

type Words[T = str] = dict[str, T]


def shown[T: (str, int) = str](words: Words[T]) -> str:
    from app.dependency import weigh

    try:
        return f"{weigh(words["text"])}{'\\n'.join(words)}"
    except KeyError, TypeError:
        return t"{words}"
"""
FILES = {
    ENGINE: b"from app.newer import shown\n" + PYTHON[ENGINE].replace(b"len(text)", b"len(shown(text))"),
    "srv/app/newer.py": NEWER,
    "srv/app/dependency.py": b"def weigh(words):\n    return len(words)\n",
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def compare(shell: Shell, **b: bytes) -> Any:
    """The JSON report of two images that differ in these modules of ``app``."""
    layout(shell.directory / "a", FILES)
    layout(shell.directory / "b", {**FILES, **{f"srv/app/{name}.py": data for name, data in b.items()}})
    ran = shell.run("a", "b", "--format", "json", "--no-cache")
    assert ran.code in (0, 1, 3), ran
    return json.loads(ran.out)


def test_what_it_imports_is_reached_through_it(shell: Shell) -> None:
    report = compare(shell, dependency=b"def weigh(words):\n    return 2 * len(words)\n")
    assert report["blindspots"] == []
    (change,) = report["changes"]
    load = change["load"]["main"]
    assert load["level"] == "deferred"
    assert [step["path"] for step in load["chain"]][-3:] == [
        f"/{ENGINE}",
        "/srv/app/newer.py",
        "/srv/app/dependency.py",
    ]
    assert load["chain"][-2]["line"] == 8
    assert load["chain"][-2]["function"] == "shown"
    assert report["verdict"]["outcome"] == "undecided"


def test_what_its_body_imports_makes_the_claim_stand(shell: Shell) -> None:
    source = b"import app.dependency\n" + NEWER
    layout(shell.directory / "a", {**FILES, "srv/app/newer.py": source})
    layout(shell.directory / "b", {**FILES, "srv/app/newer.py": source, "srv/app/dependency.py": b"weigh = max\n"})
    ran = shell.run("a", "b")
    assert ran.code == 1
    assert ran.out.startswith("STANDS")
    assert "app.newer" in ran.out


def test_what_nothing_reaches_is_killed(shell: Shell) -> None:
    report = compare(shell, unused=b"X = 2\n")
    assert report["blindspots"] == []
    assert [change["load"]["main"]["level"] for change in report["changes"]] == ["unreached"]
    assert report["verdict"]["outcome"] == "killed"


def test_it_is_still_code_where_it_differs(shell: Shell) -> None:
    """Its trees are not compared: a comment could be noise, and is not said to be."""
    report = compare(shell, newer=NEWER + b"# a comment\n")
    assert [change["effect"] for change in report["changes"]] == ["code"]
    assert report["verdict"]["outcome"] == "stands"


def test_a_source_of_python_2_still_blocks(shell: Shell) -> None:
    old = NEWER + b"print 'words'\n"
    layout(shell.directory / "a", {**FILES, "srv/app/newer.py": old})
    layout(shell.directory / "b", {**FILES, "srv/app/newer.py": old, "srv/app/unused.py": b"X = 2\n"})
    ran = shell.run("a", "b", "--format", "json")
    report = json.loads(ran.out)
    assert [spot["path"] for spot in report["blindspots"]] == ["/srv/app/newer.py"] * 2  # one for each image
    assert "(line 14)" in report["blindspots"][0]["reason"]
    assert ran.code == 3
