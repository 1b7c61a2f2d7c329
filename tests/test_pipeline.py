"""The flow over whole images, where stages meet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

import imgdiff
from imgdiff import tracing
from imgdiff.model import Change
from tests.support.elf import Elf, elf_bytes
from tests.support.images import Member, tar_bytes, write_layout


def library(number: int) -> bytes:
    return elf_bytes(Elf(soname="libx.so", text=bytes([number, 0xC3])))


def test_contents_of_one_name_that_a_hard_link_keeps_are_both_read_again(tmp_path: Path) -> None:
    name = "usr/lib/libx.so"
    first, second = Member(name, library(1)), Member(name, library(2))
    link = Member("usr/lib/liby.so", type="hardlink", target=name)
    write_layout(tmp_path / "a", [tar_bytes([first, link, second])], {})
    others = [Member(name, library(3)), Member("usr/lib/liby.so", library(4))]
    write_layout(tmp_path / "b", [tar_bytes(others)], {})
    report = imgdiff.diff(str(tmp_path / "a"), str(tmp_path / "b"), cache=False, jobs=1)
    reasons = {judged.change.path: judged.change.delta for judged in report.changes}
    assert set(reasons) == {b"usr/lib/libx.so", b"usr/lib/liby.so"}
    for delta in reasons.values():
        assert delta is not None
        assert delta.detail["bytes"] == 1, delta
        assert ".text" in delta.reason


@pytest.mark.parametrize(
    "entry",
    ["python -m vllm.entrypoints.openai.api_sever", "python missing.py", "python", "python -", "python -c 'import ('"],
)
def test_an_entry_that_the_image_lacks_kills_nothing(entry: str) -> None:
    story = Path(__file__).parents[1] / "fixtures" / "story"
    report = imgdiff.diff(str(story / "a"), str(story / "b"), entry=entry, accept=("dormant",), cache=False, jobs=1)
    assert report.verdict.outcome == "undecided"
    assert {spot.what for spot in report.blindspots} == {"entry"}
    assert any("--entry" in said for said in report.verdict.settle)
    assert not any("readable" in said for said in report.verdict.settle)
    levels = {evidence.level for judged in report.changes for evidence in judged.load.values()}
    assert "unreached" not in levels  # nothing is known of what a program does that is not known


def test_code_of_the_command_line_is_a_way_to_a_difference() -> None:
    story = Path(__file__).parents[1] / "fixtures" / "story"
    helper = "vllm.entrypoints.serve.middleware.request_timing"
    entry = f"python -c 'import {helper}'"
    report = imgdiff.diff(str(story / "a"), str(story / "b"), entry=entry, profile="generic", cache=False, jobs=1)
    assert report.verdict.outcome == "stands"
    document = json.loads(imgdiff.render(report, "json"))
    [change] = [
        each for each in document["changes"] if each["load"]["main"]["level"] == "eager" and each["effect"] == "code"
    ]
    assert change["load"]["main"]["chain"][0]["module"] == "__main__"
    assert change["load"]["main"]["chain"][0]["path"] == "/proc/self/cmdline"


def test_what_differs_is_told_before_anything_is_traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    story = Path(__file__).parents[1] / "fixtures" / "story"
    told: list[Change] = []
    traced: list[int] = []
    trace = tracing.trace  # type: ignore[attr-defined]  # where the pipeline finds it

    def counting(*arguments: object) -> object:
        traced.append(len(told))
        return trace(*arguments)  # type: ignore[arg-type]  # handed on as they came

    def early(changes: Sequence[Change]) -> None:
        assert not traced
        told.extend(changes)

    monkeypatch.setattr(tracing, "trace", counting)
    report = imgdiff.diff(str(story / "a"), str(story / "b"), cache_dir=tmp_path, jobs=1, early=early)
    assert traced == [len(told)] * 2

    def said(changes: Iterable[Change]) -> dict[bytes, tuple[str, str] | None]:  # a diff is added once it is judged
        return {each.path: (each.delta.effect, each.delta.reason) if each.delta else None for each in changes}

    assert said(told) == said(judged.change for judged in report.changes)
    told.clear()
    again = imgdiff.diff(str(story / "a"), str(story / "b"), cache_dir=tmp_path, jobs=1, early=early)
    assert again == report  # it is known now
    assert not told
