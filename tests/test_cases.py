"""Every fixture case runs through the whole of imgdiff, and its key facts are as its ``expected.toml`` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import imgdiff
from imgdiff.model import Report
from imgdiff.trace.evidence.chains import ROOT_EDGES
from tests.support.expected import Run, differences, read_expected
from tests.support.fixtures import FIXTURES, build_case, cases
from tests.support.made import MissingPython

CASES = cases()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Layouts that are built already, by case."""
    layouts: dict[str, tuple[Path, Path]] = {}
    for name in CASES:
        target = tmp_path_factory.mktemp(name)
        try:
            layouts[name] = build_case(FIXTURES / name, target)
        except MissingPython:
            continue
    return layouts


def runs() -> Iterator[tuple[str, int, Run]]:
    for name in CASES:
        for number, run in enumerate(read_expected(FIXTURES / name).run):
            yield name, number, run


@pytest.mark.parametrize(("name", "run"), [pytest.param(n, run, id=f"{n}-{k}") for n, k, run in runs()])
def test_a_case_reports_what_it_should(
    name: str, run: Run, built: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    if name not in built:
        pytest.skip(f"{name} holds bytecode of a Python minor that is not here (name it in IMGDIFF_TEST_PYTHONS)")
    a, b = built[name]
    report = imgdiff.diff(
        str(a),
        str(b),
        entry=run.entry,
        accept=tuple(run.accept),
        profile=run.profile,
        traces=[str(FIXTURES / name / trace) for trace in run.trace],
        cache_dir=tmp_path,
        jobs=1,
    )
    assert differences(run, report) == []
    assert starts(report) <= ROOT_EDGES | {"recorded"}
    loaded = [evidence for judged in report.changes for evidence in judged.load.values()]
    assert not [evidence for evidence in loaded if evidence.level == "dormant" and not evidence.chain]


def starts(report: Report) -> set[str]:
    """Return how the chains of a report begin."""
    return {each.chain[0].edge for judged in report.changes for each in judged.load.values() if each.chain}
