"""Each test of the recorder runs under every Python that is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorder.recorded import Stage, pythons


@pytest.fixture(params=list(pythons()))
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(tmp_path, pythons()[request.param])
