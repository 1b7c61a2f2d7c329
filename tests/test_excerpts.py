"""A short diff of what bears: small, the same each time, without secrets, and inert in every report."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt

from imgdiff.model import Delta, JudgedChange, Owner
from imgdiff.pipeline.excerpts import MOST_CHARACTERS, MOST_FILES, MOST_LINES, with_diffs
from imgdiff.reports import View, render
from tests.reports.reports import digest, judged, report
from tests.reports.test_markdown_inert import hostile


class Kept:
    """Texts by the digest that :func:`judged` gives its side."""

    def __init__(self, side: str, content: bytes) -> None:
        self._known = {digest(side): content}

    def get(self, digest: bytes) -> bytes | None:
        return self._known.get(digest)


def diffs(a: bytes, b: bytes, *changes: JudgedChange) -> list[dict[str, Any] | None]:
    changes = changes or (judged(b"opt/vllm/x.py", "eager", "stands"),)
    found = with_diffs(changes, Kept("a", a), Kept("b", b))
    return [each.change.delta.detail.get("diff") if each.change.delta is not None else None for each in found]


def test_a_small_change_is_shown_with_its_surroundings() -> None:
    (diff,) = diffs(b"a = 1\nb = 2\n", b"a = 1\nb = 3\n")
    assert diff == {"lines": ["@@ -1,2 +1,2 @@", " a = 1", "-b = 2", "+b = 3"], "left_out": 0}


def test_a_large_change_says_how_much_is_left_out() -> None:
    (diff,) = diffs(b"", b"\n".join(b"%d" % number * 300 for number in range(100)))
    assert diff is not None
    assert (len(diff["lines"]), diff["left_out"]) == (MOST_LINES, 102 - MOST_LINES)
    assert max(map(len, diff["lines"])) == MOST_CHARACTERS


@pytest.mark.parametrize("content", [b"\xff", b"a\0b", b"x" * 300_000, b"\n" * 6_000])
def test_what_is_no_small_text_has_none(content: bytes) -> None:
    if len(content) < 200_000:
        assert diffs(b"a", content) == [None]
    large = judged(b"opt/vllm/x.py", "eager", "stands")
    assert large.change.b is not None
    entry = msgspec.structs.replace(large.change.b, size=len(content))
    large = msgspec.structs.replace(large, change=msgspec.structs.replace(large.change, b=entry))
    assert diffs(b"a", content, large) == [None]


def test_what_bears_on_nothing_or_is_on_one_side_has_none() -> None:
    assert diffs(b"a", b"b", judged(b"opt/x.py"), judged(b"opt/y.py", "eager", "stands", status="added")) == [
        None,
        None,
    ]


def test_only_the_first_have_one() -> None:
    many = [judged(b"opt/%03d.py" % number, "eager", "stands") for number in range(MOST_FILES + 5)]
    assert [diff is not None for diff in diffs(b"a", b"b", *many)] == [True] * MOST_FILES + [False] * 5


def test_secrets_and_data_of_nobody_are_not_shown() -> None:
    (diff,) = diffs(b"", b"export HF_TOKEN=hunter2\ncurl https://me:hunter2@host/x\nserve --api-key hunter2\n")
    assert diff is not None
    assert "hunter2" not in str(diff)
    change = judged(b"etc/app.conf", "unknown", "undecided")
    nobody = (Owner("unowned", "unowned:/etc", None, b""),)
    data = Delta("data", "The text differs.", {"kind": "text"})
    own = msgspec.structs.replace(change.change, owners_a=nobody, owners_b=nobody, delta=data)
    assert diffs(b"a", b"b", msgspec.structs.replace(change, change=own)) == [None]


@settings(max_examples=100)
@given(hostile)
def test_a_hostile_diff_is_one_block_of_code(text: str) -> None:
    change = judged(b"opt/vllm/x.py", "eager", "stands")
    content = ("new\n" + text.replace("\0", "")).encode("utf-8", "replace")
    (found,) = with_diffs([change], Kept("a", b"old"), Kept("b", content))
    made = report(found)
    tokens = MarkdownIt("commonmark").parse(render(made, "markdown", View()))
    fences = [token for token in tokens if token.type == "fence" and token.info == "diff"]
    assert len(fences) == 1
    assert "-old\n" in fences[0].content
    assert all(line.isprintable() for line in fences[0].content.split("\n"))
    assert [token.content for token in tokens if token.type == "html_block"].count("</details>\n") >= 1
    shown = render(made, "terminal", View(verbose=1))
    assert all(line.isprintable() for line in shown.split("\n"))
    assert "-old" in shown
    assert "-old" not in render(made, "terminal", View())


def test_few_functions_are_named_and_many_are_not() -> None:
    change = judged(
        b"opt/vllm/x.py", "eager", "stands", reason="The syntax trees differ: f and others (1 changed, 2 added)."
    )

    def shown(count: int) -> str:
        detail = {"kind": "python", "functions": {"changed": ["f"], "added": [f"g{n}" for n in range(count)]}}
        delta = Delta("code", "The syntax trees differ: f and others (1 changed).", detail)
        own = msgspec.structs.replace(change, change=msgspec.structs.replace(change.change, delta=delta))
        return " ".join(render(report(own), "terminal", View()).split())

    assert "The syntax trees differ: changed f; added g0, g1. " in shown(2)
    assert "g0" not in shown(8)
    assert "changed f" not in shown(0)
