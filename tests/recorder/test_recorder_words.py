"""The recorder's own copy of the rules for secrets, held against imgdiff's; and its JSON against json."""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from imgdiff import config
from imgdiff.recorder import MOUNTED


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, MOUNTED / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


words = load("imgdiff_recorder_words")

PARTS = [
    "secret",
    "TOKEN",
    "Key",
    "key",
    "id",
    "pat",
    "api",
    "apikey",
    "private_key",
    "pwd",
    "monkey",
    "passwd",
    "auth",
]
NAMES = st.lists(
    st.sampled_from([*PARTS, "_", "-", "HF", "x", "path", "\u017fecret", "toKen", "\u0130d", "\n"]), max_size=5
)
PIECES = st.sampled_from(
    [
        "http://",
        "https://u:p@host",
        "://",
        "@",
        "a+b://",
        "x",
        "/",
        "?",
        "#",
        "[",
        "]",
        "é",
        "'",
        '"',
        " ",
        "\t",
        "=",
        "--token",
        "--api-key",
        "-password",
        "TOKEN=",
        "KEY=v",
        "--x=y",
        "bash -c",
        "\n",
        "1://me@h",
        "user:pw@h:80/p",
    ]
)
TEXTS = st.lists(PIECES, max_size=9).map("".join)


def hidden(shown: str, plain: str) -> bool:
    return shown != plain


@given(NAMES.map("_".join) | NAMES.map("".join) | st.text(max_size=20))
@example("KEY_PATH")
@example("HF_TOKEN")
@example("MONKEY")
def test_names(name: str) -> None:
    ours = config.redact_variable(name, "value")[1]
    assert words.secret_name(name) >= ours
    if name.isascii() and "\n" not in name:
        assert words.secret_name(name) == ours


@given(TEXTS | st.text(max_size=30))
def test_urls(text: str) -> None:
    theirs, ours = words.urls(text), config.redact_text(text)
    if text.isascii() and not {"[", "]"} & set(text):
        assert theirs == ours
    else:
        assert theirs == ours or hidden(theirs, text)
    assert not hidden(ours, text) or hidden(theirs, text)


@given(st.lists(TEXTS | st.text(max_size=12), max_size=5))
@example(["python", "--token", "abc", "--x=http://u:p@h/"])
@example(["bash", "-c", "exec 'run it' --api-key=abc TOKEN='a b' \"x"])
@example(["--token=a\nb"])
def test_command_lines(argv: list[str]) -> None:
    theirs, ours = words.argv(argv), config.redact_argv(argv)
    assert len(theirs) == len(argv)
    for mine, shown, plain in zip(theirs, ours, argv, strict=True):
        assert not hidden(shown, plain) or hidden(mine, plain)
    plain_words = all(word.isascii() and not set("[]\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f") & set(word) for word in argv)
    if plain_words:
        assert theirs == ours


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["vllm", "--api-key", "abc"], ["vllm", "--api-key", "[redacted]"]),
        (["vllm", "--hf-token=abc", "x"], ["vllm", "--hf-token=[redacted]", "x"]),
        (["sh", "-c", "run A_TOKEN=b --password c"], ["sh", "-c", "run A_TOKEN=[redacted] --password [redacted]"]),
        (["get", "https://me:pw@host/x"], ["get", "https://[redacted]@host/x"]),
        (["-c", "import x; x.go(1)"], ["-c", "import x; x.go(1)"]),
    ],
)
def test_examples(argv: list[str], shown: list[str]) -> None:
    assert words.argv(argv) == shown


def test_a_word_without_end_is_cut() -> None:
    (shown,) = words.argv(["x" * 100_000])
    assert len(shown) < 20_000


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.text(alphabet=st.characters(codec=None)),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=12,
    )
)
def test_json(value: object) -> None:
    text = words.json(value)
    assert text.isascii()
    assert "\n" not in text
    assert json.loads(text) == value


def test_surrogates_stay() -> None:
    assert words.json("a\udcff") == '"a\\udcff"'
    assert json.loads(words.json("\U0001f600\udc80")) == "\U0001f600\udc80"
