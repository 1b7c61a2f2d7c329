"""Whatever an image holds, the Markdown report is what we wrote: held against a real renderer, hostile text is text."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from imgdiff.model import Blindspot, ConfigChange, Integrity, Owner, OwnerRow, ResolutionChange, Resolved, Verdict
from imgdiff.reports import View, render
from imgdiff.reports._view import safe
from imgdiff.reports.markdown import code, prose
from tests.reports.reports import HOSTILE, digest, judged, report, row

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# What GitHub makes of the text that Markdown leaves: mentions, issue numbers, bare addresses, mathematics.
LINKED = re.compile(r"[@#$]|www\.|://|\bgh-\d", re.IGNORECASE)
OURS = re.compile(r"<details><summary>[A-Za-z ]+(?:\([\w,:; ]+\))?</summary>|</details>")

PIECES = [
    *"`|<>[]()!*_~\\@#$&^:-+=.\"' \t\n\r\0a1",
    *("``", "```", "@someone", "#123", "GH-7", "octo/repo#1", "https://evil.example/x", "www.evil.example"),
    *("me@evil.example", "<script>alert(1)</script>", "<!--", "-->", "</details>", "&lt;", "![x](http://evil)"),
    *("[x]: http://evil", "**", "~~", "- ", "1. ", "# ", "> ", "---", "===", "|---|", "\x1b[31m", "\u202e", "\u2066"),
    *("\u200b", "    ", "\\|", "\u00e9\u4e2d", "mailto:me@evil.example", "$x$", "\\(", "{{ x }}", "\u2028"),
]
hostile = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join)


def flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from flat(token.children or [])


def inert(tokens: list[Token]) -> None:
    """Check that text is only text: no address, no mention, no character that hides or moves anything."""
    for token in flat(tokens):
        if token.type == "text":
            assert not LINKED.search(token.content), token.content
        if token.type in ("text", "code_inline", "fence"):
            assert token.content.rstrip("\n").isprintable(), token.content


def unquoted(text: str) -> list[str]:
    """The words of a sentence; backticks around some of them are the marks of a code span, and not shown."""
    return text.replace("`", "").split()


LISTS = {"bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"}
PLAIN = {"inline", "text", "code_inline", "paragraph_open", "paragraph_close", "softbreak"}


@given(hostile)
@example("```")
@example("`a` |b| \\| `")
@example(" x ")
@example("- 1. # @a@b")
@example("===")
@example("(((")
def test_a_sentence_is_text_and_code_and_nothing_else(text: str) -> None:
    for before, more in (("", set()), ("- ", LISTS), ("x\n", set()), ("- x\n  ", LISTS)):
        tokens = list(flat(RENDERER.parse(f"{before}{prose(text)}")))
        inert(tokens)
        assert {token.type for token in tokens} <= PLAIN | more
        said = "".join(
            " " if token.type == "softbreak" else token.content for token in tokens if token.type != "inline"
        )
        assert unquoted(said) == [*(["x"] if "x" in before else []), *unquoted(safe(text))]


@given(hostile)
@example("`")
@example("a`")
@example("  ")
@example("\\")
def test_a_name_is_one_code_span_with_all_that_is_in_it(text: str) -> None:
    inline = RENDERER.parseInline(f"x {code(text)} y")[0].children or []
    assert [token.type for token in inline] == ["text", "code_inline", "text"]
    assert inline[1].content == (safe(text) or " ")


@given(hostile, hostile)
@example("a|b", "c|d")
@example("\\|", "\\")
@example("|\\", "`|`")
def test_a_cell_stays_one_cell(name: str, sentence: str) -> None:
    table = f"| a | b |\n|---|---|\n| {code(name, cell=True)} | {prose(sentence, cell=True)} |\n"
    tokens = RENDERER.parse(table)
    inert(tokens)
    cells = [tokens[i + 1] for i, token in enumerate(tokens) if token.type == "td_open"]
    assert len(cells) == 2
    assert [child.content for child in cells[0].children or []] == [safe(name) or " "]
    assert unquoted("".join(child.content for child in cells[1].children or [])) == unquoted(safe(sentence))


def test_a_bar_is_escaped_in_tables_alone() -> None:
    assert code("a|b") == "`a|b`"
    assert code("a|b", cell=True) == "`a\\|b`"


@pytest.mark.parametrize("text", ["plain words, and more.", "It differs: f.", "0.15.0 \u2192 0.15.0.1 (was 1)"])
def test_plain_words_stay_plain(text: str) -> None:
    assert prose(text) == text


def test_a_path_in_a_sentence_is_code_and_its_full_stop_is_not() -> None:
    assert prose("1 file is loaded: /opt/a_b.py, /x.") == "1 file is loaded: `/opt/a_b.py`, `/x`."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for `vllm serve --x a_b`; another", "for `vllm serve --x a_b`; another"),
        ("(`sh -c x`)", "(`sh -c x`)"),
        ("`one` and /two.", "`one` and `/two`."),
        ("for `sh -c `date` x`; it", "for `` `sh `` -c `date` `` x` ``; it"),
    ],
)
def test_a_command_in_backticks_is_one_code_span(text: str, expected: str) -> None:
    assert prose(text) == expected


NEVER = {"link_open", "image", "html_inline", "em_open", "s_open", "hr", "blockquote_open", "code_block",
         "ordered_list_open"}  # fmt: skip


@settings(max_examples=60)
@given(hostile, hostile)
@example(HOSTILE.decode("latin-1"), "|")
@example("`", "`|")
def test_a_whole_report_has_our_structure_and_no_other(text: str, other: str) -> None:
    path = b"opt/" + other.encode("utf-8", "surrogatepass")
    made = report(
        judged(path, "eager", "stands", reason=text, owner=other),
        judged(path + b"2", "unreached", reason=other, owner=text),
        argv=("imgdiff", text, other),
        owners=(row(text, modified=1), row(other + "x"), versioned(text)),
        config=(ConfigChange("env", text, other, text, "undecided", other),),
        integrity=(Integrity("a", "record-mismatch", text, path, other),),
        blindspots=(Blindspot(text, other, path, "b", ("worker",)),),
        resolution=(ResolutionChange("module", text, "worker", "eager", Resolved(path, digest("x")), None),),
    )
    base = made.verdict
    verdict = Verdict(base.outcome, base.confidence, f"undecided for {text}", (text, other), (other, text), base.claim,
                      base.roles, (text,))  # fmt: skip
    named = msgspec.structs.replace(made.image_a, reference=text, source=other, platform=text)
    shown = render(msgspec.structs.replace(made, verdict=verdict, image_a=named), "markdown", View(verbose=1))
    tokens = RENDERER.parse(shown)
    inert(tokens)
    for token in flat(tokens):
        assert token.type not in NEVER, token.content
        if token.type == "html_block":
            assert all(OURS.fullmatch(line) for line in token.content.split("\n") if line), token.content
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h3"]
    assert {len(cells) for cells in table_rows(tokens)} == {5, 10}


def versioned(text: str) -> OwnerRow:
    base = row("versioned", modified=1)
    sides = [Owner("wheel", "versioned", version, b"opt") for version in (text, "1")]
    return msgspec.structs.replace(base, tally=msgspec.structs.replace(base.tally, a=sides[0], b=sides[1]))


def table_rows(tokens: list[Token]) -> Iterator[list[str]]:
    cells: list[str] = []
    for token in tokens:
        if token.type == "tr_open":
            cells = []
        if token.type in ("td_open", "th_open"):
            cells.append(token.type)
        if token.type == "tr_close":
            yield cells
