"""Reports that people read: verdict first, nothing hostile gets through, narrow terminals and long lists."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.model import UnresolvedImport
from imgdiff.reports import View, render, summary
from imgdiff.reports._view import safe
from imgdiff.reports.markdown import LIMIT
from tests.reports.reports import HOSTILE, ROLES, judged, report


def terminal(*changes: object, view: View | None = None, width: int = 80, color: bool = False) -> str:
    return render(report(*changes), "terminal", view or View(), color=color, width=width)  # type: ignore[arg-type]  # judged() gives them


def test_the_terminal_report_opens_with_the_verdict_and_names_both_digests() -> None:
    text = terminal(judged(b"opt/x.py", "dormant", "undecided"))
    assert text.startswith("UNDECIDED for engine-core and worker")
    assert text.count("sha256:" + "3" * 64) == 2
    assert "vllm.v1 ~f~> vllm.x" in text
    assert "What would settle it" in text


def test_a_table_fits_into_80_columns_and_a_pipe_sees_no_escape_sequence() -> None:
    text = terminal(judged(b"opt/x.py", "eager", "stands"))
    assert "\x1b" not in text
    table = text[text.index("Owners that differ") : text.index("The same to the byte")]
    assert max(len(line) for line in table.splitlines()) <= 80


def test_color_is_only_there_on_demand() -> None:
    assert "\x1b[" in terminal(color=True)


def test_hostile_names_move_no_cursor() -> None:
    text = terminal(judged(HOSTILE, "eager", "stands"))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


@given(st.text(max_size=40))
def test_safe_text_is_printable_and_stable(text: str) -> None:
    shown = safe(text)
    assert shown.isprintable()
    assert safe(shown) == shown


def test_only_and_loaded_narrow_what_is_shown_and_not_the_verdict() -> None:
    changes = (judged(b"opt/x.py", "eager", "stands"), judged(b"opt/y.py", "unknown", "undecided", owner="torch"))
    text = terminal(*changes, view=View(only=("torch",)))
    assert "/opt/x.py" not in text[text.index("Differences that bear") :]
    assert "/opt/y.py" in text
    text = terminal(*changes, view=View(loaded=True))
    assert "/opt/y.py" not in text
    assert text.startswith("UNDECIDED")


def test_long_lists_are_cut_and_verbose_shows_them() -> None:
    alike = [judged(f"opt/file{i}.py".encode(), "eager", "stands") for i in range(40)]
    text = terminal(*alike)
    assert text.count("/opt/file") == 5
    assert "... and 35 more like these (-v shows them)" in text
    assert "more differences" not in text
    changes = [judged(f"opt/file{i}.py".encode(), "eager", "stands", reason=f"f{i} differs.") for i in range(40)]
    text = terminal(*changes)
    assert text.count("/opt/file") == 12
    assert "... and 28 more differences (-v shows them)" in text
    assert all(f"/opt/file{i}.py" in terminal(*changes, view=View(verbose=1)) for i in range(40))


def test_markdown_opens_with_the_verdict_digests_and_command() -> None:
    text = render(report(judged(b"opt/x.py", "dormant", "undecided")), "markdown", View())
    assert text.startswith("### imgdiff: **undecided**")
    assert text.index("$ imgdiff 'a b' c") < text.index("<details>")
    assert "sha256:" + "3" * 64 in text


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 3000), st.integers(1, 200))
def test_markdown_stays_under_the_limit_of_a_comment_and_says_what_it_left_out(count: int, length: int) -> None:
    changes = [judged(f"opt/{'n' * length}{i}.py".encode(), "eager", "stands") for i in range(count)]
    text = render(report(*changes), "markdown", View())
    assert len(text) < LIMIT
    assert text.count("<details>") == text.count("</details>")
    if f"n{count - 1}.py" not in text and count:
        assert "Left out to stay under the limit" in text


def test_imports_that_only_a_run_can_tell_are_listed_on_demand() -> None:
    both = UnresolvedImport(b"opt/x\x1b.py", 7, "load", "module", "*.models", tuple(ROLES), ("a", "b"))
    places = (both, msgspec.structs.replace(both, line=9, roles=("worker",), images=("b",)))
    made = report(judged(b"opt/x.py"), unresolved_imports=places)
    shown = render(made, "terminal", View(verbose=1), width=200)
    assert "/opt/x\\x1b.py:7 (load): module *.models\n" in shown
    assert "b: /opt/x\\x1b.py:9 (load): module *.models, by worker\n" in shown
    assert "only a run can tell" not in render(made, "terminal", View())
    found = json.loads(render(made, "json", View()))["unresolved_imports"]
    assert [each["line"] for each in found] == [7, 9]
    assert found[1] == {
        "images": ["b"],
        "path": "/opt/x\x1b.py",
        "line": 9,
        "function": "load",
        "what": "module",
        "name": "*.models",
        "roles": ["worker"],
    }


@pytest.mark.parametrize("width", [80, 120])
def test_a_caveat_that_is_cut_leaves_no_parenthesis_open(width: int) -> None:
    made = report()
    long = "libraries that are not in the image: " + ", ".join(f"lib{n}.so (for /opt/x/{n}.so)" for n in range(20))
    verdict = msgspec.structs.replace(made.verdict, caveats=(long, "Not covered: the host's kernel."))
    said = render(msgspec.structs.replace(made, verdict=verdict), "terminal", View(), width=width)
    (cut,) = [line for line in said.split("\n\n") if "Not covered" in line]
    assert "..." in cut
    assert cut.count("(") == cut.count(")")
    reasons = msgspec.structs.replace(verdict, reasons=(long * 3,))
    shown = render(msgspec.structs.replace(made, verdict=reasons), "markdown", View()).split("\n")
    (cut,) = [line for line in shown if line.startswith("- libraries") and line.endswith(" ...")]
    assert cut.count("(") == cut.count(")")


def test_the_summary_is_one_line() -> None:
    assert summary(report()) == (
        "undecided for engine-core and worker; api-server: stands (it makes prompts) [static evidence]"
    )


def test_markdown_tells_a_stranger_what_the_outcome_means_and_what_wrote_it() -> None:
    made = report()
    for outcome, words in (("stands", "does not prove that it is the cause"), ("undecided", "may be loaded")):
        verdict = msgspec.structs.replace(made.verdict, outcome=outcome)
        said = render(msgspec.structs.replace(made, verdict=verdict), "markdown", View())
        line = next(line for line in said.splitlines() if line.startswith("Evidence: static."))
        assert f" {outcome}: " in line
        assert words in line
        assert line.endswith(f"(imgdiff {made.version}).")


def test_a_long_reference_stays_on_the_line_of_its_side() -> None:
    made = report()
    long = "registry.example/" + "x" * 90
    made = msgspec.structs.replace(made, image_a=msgspec.structs.replace(made.image_a, reference=long))
    assert f"\na  {long}\n" in render(made, "terminal", View(), width=80)
