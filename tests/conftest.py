"""Settings for every test: hypothesis without deadlines, since no test asserts on time; in CI nothing may be missing."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("imgdiff", deadline=None)
settings.load_profile("imgdiff")

# A job in the background of a shell without job control ignores interrupts, and so would every process of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Reasons to skip that no package could mend: what root can't be refused, other minors of Python (recordings of theirs
# are tested everywhere), and file systems without extended attributes.
_UNMENDABLE = (
    "root may",
    "other Python",
    "other interpreter",
    "Python minor",
    "IMGDIFF_TEST_PYTHONS",
    "extended attributes",
    "device nodes",
)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Turn a test that is skipped because a component is missing into a failure where CI is set."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if not os.environ.get("CI") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not any(words in reason for words in _UNMENDABLE):
        report.outcome = "failed"
        report.longrepr = f"in CI nothing may be missing: {reason}"
