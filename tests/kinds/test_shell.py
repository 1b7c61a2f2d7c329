"""Shell scripts: what they source, run, set and name."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.kinds.shell import MAX_SIZE, delta, facts
from imgdiff.model import HOLE, HOLE_DIR, ShellFacts, Unreadable


def read(script: str) -> ShellFacts:
    found = facts(script.encode())
    assert isinstance(found, ShellFacts)
    return found


def commands(script: str) -> list[tuple[str, ...]]:
    return [words for words, _ in read(script).commands]


def sources(script: str) -> list[str]:
    return [pattern for pattern, _ in read(script).sources]


def test_interpreter_line() -> None:
    assert read("#!/usr/bin/env -S bash -e\n").interpreter == ("bash", "-e")
    assert read("echo\n").interpreter == ()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("vllm serve model", ("vllm", "serve", "model")),
        ("vllm  serve \\\n  model", ("vllm", "serve", "model")),
        ("'vllm' \"serve\" mo'de'l", ("vllm", "serve", "model")),
        ("vllm \"a b\" 'c d' e\\ f", ("vllm", "a b", "c d", "e f")),
        ("vllm ''", ("vllm", "")),
        ("vllm $'a\\tb'", ("vllm", "a\tb")),
        ('vllm "$@"', ("vllm", HOLE)),
        ("vllm --port=$PORT", ("vllm", f"--port={HOLE}")),
        ("vllm --port=${PORT}x", ("vllm", f"--port={HOLE}x")),
        ("vllm /opt/*.so", ("vllm", f"/opt/{HOLE}.so")),
        ("vllm ~/models", ("vllm", "~/models")),
        ("vllm ~", ("vllm", "~")),
        ("vllm ~other/models", ("vllm", f"{HOLE}other/models")),
        ("vllm $HOME/models", ("vllm", "~/models")),
        ("HOME=/data\nvllm $HOME/models", ("vllm", "/data/models")),
        ("vllm ${PWD}/models", ("vllm", "./models")),
        ("vllm $(pwd)/models", ("vllm", "./models")),
        ("cd /data && vllm $PWD/models", ("vllm", "/data/models")),
        ("cd /data && vllm $PWD/models", ("vllm", "./models")),
        ("cd && vllm `pwd -P`/models", ("vllm", "~/models")),
        ("X=$(cd /data && pwd)\nvllm $PWD/models", ("vllm", "./models")),
        ("vllm $((1 + (2)))x", ("vllm", f"{HOLE}x")),
        ("vllm {a,b}", ("vllm", HOLE)),
        ("vllm {a}", ("vllm", "{a}")),
        ("vllm a#b # comment", ("vllm", "a#b")),
        ("vllm > /tmp/log 2>&1 a", ("vllm", "a")),
        ("vllm <<< here", ("vllm",)),
        ("A=1 B=2 vllm", ("vllm",)),
        ("if vllm; then x; fi", ("vllm",)),
        ("while ! vllm; do x; done", ("vllm",)),
        ("a && vllm || b", ("vllm",)),
        ("a | vllm & b", ("vllm",)),
        ("( vllm )", ("vllm",)),
        ("{ vllm; }", ("vllm",)),
        ("f() { vllm; }", ("vllm",)),
        ("function f { vllm; }", ("vllm",)),
        ("case $1 in a|b) vllm ;; *) x ;; esac", ("vllm",)),
        ("case $1 in\n  (a)\n    vllm\n    ;;\nesac\n", ("vllm",)),
        ("x $(vllm)", ("vllm",)),
        ("x `vllm`", ("vllm",)),
        ('x "a $(vllm "b)" | cat)"', ("vllm", "b)")),
        ("x <(vllm)", ("vllm",)),
        ("A=$(vllm)", ("vllm",)),
        ("x ${A:-$(vllm)}", ("vllm",)),
        ("exec vllm", ("vllm",)),
        ("exec env A=1 vllm", ("vllm",)),
        ("env -u A B=2 vllm", ("vllm",)),
        ("command vllm", ("vllm",)),
        ("nohup setsid vllm &", ("vllm",)),
        ("numactl -N 0 -m 0 vllm", ("vllm",)),
        ("timeout -k 5 10 vllm", ("vllm",)),
        ("tini -- vllm", ("vllm",)),
        ("su user -c vllm", ("vllm",)),
        ("bash -c 'exec vllm'", ("vllm",)),
        ("bash -lc 'cd x && vllm'", ("vllm",)),
        ("exec sudo -E bash -c 'vllm'", ("vllm",)),
        ("eval vllm", ("vllm",)),
        ('eval "vllm"', ("vllm",)),
        ("trap 'vllm' EXIT", ("vllm",)),
        ("set -- vllm; exec \"$@\"", ("vllm",)),
        ("P=vllm\n$P", ("vllm",)),
        ("for P in a vllm; do $P; done", ("vllm",)),
        ("${P:-vllm}", ("vllm",)),
        ("${P:=vllm}", ("vllm",)),
        ("if x; then P=vllm; else P=y; fi; $P", ("vllm",)),
        ("cat <<EOF\n$(vllm)\nEOF\n", ("vllm",)),
        ("x; \\\n vllm", ("vllm",)),
        ("x \"unclosed\n\" ; vllm", ("vllm",)),
        ("vllm\r\n", ("vllm",)),
        ("[[ a == b ]] && vllm", ("vllm",)),
        ("((a = 1)); vllm", ("vllm",)),
        ("a=(1 2); vllm", ("vllm",)),
        ("time vllm", ("vllm",)),
    ],
)  # fmt: skip
def test_commands(script: str, words: tuple[str, ...]) -> None:
    assert words in commands(script)


def test_a_quoted_here_document_runs_nothing() -> None:
    assert commands("cat <<'EOF'\n$(vllm)\nEOF\necho x\n") == [("cat",), ("echo", "x")]
    assert commands("cat <<-EOF\n\ta\n\tEOF\necho x\n") == [("cat",), ("echo", "x")]


def test_here_documents_are_strings() -> None:
    assert "import torch" in read("python3 - <<EOF\nimport torch\nEOF\n").strings


def test_a_variable_that_is_not_certain_keeps_a_hole() -> None:
    assert commands("P=/a/x\n$P/y") == [("/a/x/y",)]
    assert set(commands("if q; then P=/a; fi\n$P/y")) == {("q",), ("/a/y",), (f"{HOLE}/y",)}
    assert set(commands("P=/a\nP=/b\n$P/y")) == {("/a/y",), ("/b/y",), (f"{HOLE}/y",)}
    assert commands("P=/a/b\n${P##*/}/y") == [(f"{HOLE}/y",)]
    assert commands("P=/a/b\n${P%/*}/y") == [("/a/y",)]
    assert commands("${P%/*}/y") == [(f"{HOLE}/y",)]


@pytest.mark.parametrize(
    ("script", "pattern"),
    [
        ("source /opt/x.sh", "/opt/x.sh"),
        (". /opt/x.sh --force", "/opt/x.sh"),
        ("[ -f a ] && . /opt/x.sh", "/opt/x.sh"),
        ("D=/opt; source $D/x.sh", "/opt/x.sh"),
        ('source "$(dirname "${BASH_SOURCE[0]}")/x.sh"', f"{HOLE_DIR}/x.sh"),
        ('. "$(dirname "$0")/x.sh"', f"{HOLE_DIR}/x.sh"),
        ('. "$(dirname "$0")/x.sh"', f"{HOLE}/x.sh"),
        ('H="$(cd "$(dirname "$0")" && pwd -P)"\n. "$H/x.sh"', f"{HOLE_DIR}/x.sh"),
        ('. "$(dirname -- "$(readlink -f "$BASH_SOURCE")")/../x.sh"', f"{HOLE_DIR}/../x.sh"),
        ('. "${BASH_SOURCE[0]%/*}/x.sh"', f"{HOLE_DIR}/x.sh"),
        ('. "${0%/*}/../x.sh"', f"{HOLE_DIR}/../x.sh"),
        ("bash -c 'source /opt/x.sh; exec y'", "/opt/x.sh"),
        ("source $X/x.sh", f"{HOLE}/x.sh"),
    ],
)
def test_sources(script: str, pattern: str) -> None:
    assert pattern in sources(script)


def test_arrays_spread() -> None:
    assert ("vllm", "serve", "x y", "z") in commands('cmd=(vllm serve "x y")\nexec "${cmd[@]}" z')
    found = commands('cmd=(vllm)\nif a; then cmd+=(--b); else cmd=(sglang); fi\n"${cmd[@]}" z')
    assert {("vllm", "z"), ("vllm", "--b", "z"), ("sglang", "z")} <= set(found)
    assert commands('"${cmd[@]}" z') == [(HOLE, "z")]


def test_assignments() -> None:
    script = "A=1\nexport B='x y' C\ndeclare -x D=$A\nE=(p 'q r')\nF+=z\nPATH=/opt/bin:$PATH\nlocal G=\nH=a cmd\n"
    assert read(script).assigns == (
        ("A", "1"),
        ("B", "x y"),
        ("D", "1"),
        ("E", "p"),
        ("E", "q r"),
        ("F", "z"),
        ("PATH", f"/opt/bin:{HOLE}"),
        ("G", ""),
        ("H", "a"),
    )


def test_lines_and_certainty_of_assignments_and_sources() -> None:
    script = (
        "A=1\n. /x\nif q; then A=2; . /y; fi\nL=/a:${L:-}\nB=$(C=3; echo q)\nf() {\n  D=4\n}\nA=1 && E=5\n"
        ". /z || . /w\nbash -c 'F=6'\n"
    )
    found = read(script)
    known = dict(zip(found.assigns, found.assigned, strict=True))
    assert known == {
        ("A", "1"): (1, True),
        ("A", "2"): (3, False),
        ("L", f"/a:{HOLE}"): (4, True),
        ("L", "/a:"): (4, True),
        ("C", "3"): (5, False),
        ("B", "q"): (5, True),
        ("D", "4"): (7, False),
        ("E", "5"): (9, False),
        ("F", "6"): (11, False),
    }
    sure = dict(zip(found.sources, found.sourced, strict=True))
    assert sure == {("/x", 2): True, ("/y", 3): False, ("/z", 10): True, ("/w", 10): False}


def test_strings_hold_words_and_the_pieces_between_holes() -> None:
    strings = read("a /etc/x.conf > /tmp/out; b $ROOT/lib/foo.so; for f in /q/r; do :; done").strings
    assert {"/etc/x.conf", "/tmp/out", "/lib/foo.so", "/q/r"} <= strings


def test_lines() -> None:
    found = read("#!/bin/sh\n\n. /x\nif a; then\n  b\nfi\n")
    assert found.sources == (("/x", 3),)
    assert found.commands == ((("a",), 4), (("b",), 5))


ENTRY = r"""#!/bin/bash
set -euo pipefail
source /opt/intel/oneapi/setvars.sh --force >/dev/null 2>&1 || true
export LD_LIBRARY_PATH="/opt/ucx/lib:${LD_LIBRARY_PATH:-}"
MODEL=${MODEL:-meta-llama/x}
args=(--port "${PORT:-8000}")
if [[ "${1:-}" == "bash" ]]; then exec "$@"; fi
case "${BACKEND}" in
  xpu) export ONEAPI_DEVICE_SELECTOR=level_zero:gpu ;;
  cpu|"") LD_PRELOAD=/usr/lib/libtcmalloc.so.4 exec vllm serve "$MODEL" "${args[@]}" ;;
esac
exec python3 -m vllm.entrypoints.openai.api_server --model "$MODEL" "$@"
"""


def test_an_entry_script() -> None:
    found = read(ENTRY)
    assert found.sources == (("/opt/intel/oneapi/setvars.sh", 3),)
    known = [words for words, _ in found.commands]
    assert ("vllm", "serve", HOLE, "--port", HOLE) in known
    assert ("vllm", "serve", "meta-llama/x", "--port", "8000") in known
    assert ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", HOLE, HOLE) in known
    assert ("LD_PRELOAD", "/usr/lib/libtcmalloc.so.4") in found.assigns
    assert ("LD_LIBRARY_PATH", f"/opt/ucx/lib:{HOLE}") in found.assigns


def test_the_llm_scaler_entry() -> None:
    assert ("vllm", "serve", HOLE) in commands('exec vllm serve "$@"')


def test_what_is_no_script() -> None:
    assert isinstance(facts(b"a\0b"), Unreadable)
    assert isinstance(facts(b"a" * (MAX_SIZE + 1)), Unreadable)


def test_holes_in_a_script_are_no_holes() -> None:
    assert commands("vllm a\x01b") == [("vllm", "a\ufffdb")]


def test_any_change_of_a_script_is_code() -> None:
    assert delta(b"a\n", b"a\n# comment\n").effect == "code"


PIECES = st.lists(
    st.sampled_from(
        [
            *"'\"`$(){}[];&|<>\\#*~=ab:,@!\n \t\r\u00e9\udcff.-",
            *("$(", "$((", "))", "${", "[[", "]]", ";;", "&&", "||", "<<", "<<-", "<<<", ">(", "+=", "A=", "x=("),
            *(
                "case ",
                " in ",
                "esac",
                "if ",
                "then ",
                "fi",
                "for ",
                "do ",
                "done",
                "function ",
                "f()",
                "eval ",
                "trap ",
            ),
            *("bash ", "-c ", "source ", "EOF", "${x[@]}", "exec ", "env "),
        ]
    )
).map("".join)


@given(PIECES | st.text(max_size=80))
@settings(max_examples=500, deadline=None)
def test_anything_has_facts(script: str) -> None:
    assert isinstance(facts(script.encode("utf-8", "surrogatepass")), ShellFacts | Unreadable)


@pytest.mark.parametrize(
    "piece",
    ["$(", "`", "${a:-", '"', "'", "(", "((", "{a,", "[", "a[", "<<E\n", "$((", "case x in ", "a=(", "eval '", "f(",
     "\\", "a+=(b ${a[@]})\n${a[@]}\n", "$(echo $a", 'a="$a$a"\n', "a=$(dirname $a$0)\n", "bash -c '", "if x; then ",
     '"$(', "for a in b c d;do $a$a;"],
)  # fmt: skip
def test_repetition_costs_no_more_than_its_length(piece: str) -> None:
    script = piece * (60_000 // len(piece))
    assert isinstance(facts(script.encode()), ShellFacts)


@given(st.lists(st.text("ab '\"\\$`;&|()<>#*?~=\n\t", min_size=1, max_size=8), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_quoted_words_are_what_the_shell_makes_of_them(words: list[str]) -> None:
    script = "printf '%s\\0' " + " ".join("'" + word.replace("'", "'\\''") + "'" for word in words) + "\n"
    shown = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True).stdout.decode().split("\0")[:-1]
    assert commands(script)[0][2:] == tuple(shown) == tuple(words)
