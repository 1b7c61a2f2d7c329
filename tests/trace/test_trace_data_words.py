"""Cutting a data file into words: held against plain patterns, which are slow on long runs of letters."""

from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from imgdiff.trace.data.words import code_paths, words_of

_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_WITH_ATTRIBUTE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_HYPHENED = re.compile(r"[^\W\d][\w.]*(?:-[\w.]+)+")
_FILES = re.compile(r"(?:/[\w.@+-]+){2,}|[\w.@+-][\w./@+-]*\.(?:pyc?|so(?:\.\d+)*|sh)(?!\w)")

PIECES = st.lists(
    st.sampled_from(["a", "B_", "1", ".", "-", ":", " ", "\n", "é", "/", ".py", ".so", ".so.1", ".sh", "@", "+", ","]),
    max_size=14,
).map("".join)


@given(PIECES)
def test_words_are_those_of_the_patterns(text: str) -> None:
    expected = {*_DOTTED.findall(text), *_WITH_ATTRIBUTE.findall(text)}
    expected.update(word.replace("-", "_") for word in _HYPHENED.findall(text))
    found, pickle = words_of(text.encode())
    assume(not pickle)  # "." alone is one
    assert found == expected


@given(PIECES)
def test_paths_are_those_of_the_pattern(text: str) -> None:
    assert code_paths(text.encode()) == tuple(sorted(set(_FILES.findall(text))))


def test_a_megabyte_without_a_break_is_read_in_one_go() -> None:
    for run in ("a" * 10**6, "a" * 10**6 + "-", "a." * 10**6 + ":", "/a" * 10**6, "a-" * 10**6, "1:" * 10**6):
        words_of(run.encode())
        code_paths(run.encode())
