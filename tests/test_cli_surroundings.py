"""The command line in odd surroundings: streams that are closed or full, terminals that can little, no directory to be
in; and outputs that would harm an image."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import CODE, PYTHON, Ran, Shell, layout

ENGINE = "srv/app/engine.py"
SNOWMAN = "srv/app/\u2603.txt"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A directory with two images, ``a`` and ``b``."""
    layout(tmp_path / "a")
    layout(tmp_path / "b", {ENGINE: PYTHON[ENGINE].replace(b"BIAS = 3", b"BIAS = 4"), SNOWMAN: b"x"})
    return Shell(tmp_path)


def bash(shell: Shell, line: str, **env: str) -> Ran:
    """Run a line of bash in which ``imgdiff`` is the command."""
    function = f'imgdiff() {{ {shlex.join([sys.executable, "-P", "-c", CODE])} "$@"; }}\nset -o pipefail\n'
    ran = subprocess.run(["bash", "-c", function + line], cwd=shell.directory, env=shell.environment(**env),
                         capture_output=True, timeout=300, check=False)  # fmt: skip
    assert b"Traceback" not in ran.stderr, ran.stderr
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def one_sentence(ran: Ran, words: str) -> None:
    first, *rest = ran.err.splitlines()
    assert (ran.code, ran.out) == (2, "")
    assert first.startswith("imgdiff: ")
    assert words in first
    assert all(line.startswith("  hint: ") for line in rest)
    assert len(rest) < 2


# Streams -------------------------------------------------------------------------------------------------------------


def test_stdout_that_is_closed_is_trouble_and_not_a_verdict(shell: Shell) -> None:
    one_sentence(bash(shell, "imgdiff a b >&-"), "it is closed")
    one_sentence(bash(shell, "imgdiff a b --format json >&-"), "it is closed")
    assert bash(shell, "imgdiff a b -o r.json -q >&-") == Ran(1, "", "")
    assert json.loads((shell.directory / "r.json").read_bytes())["verdict"]["outcome"] == "stands"


def test_stderr_or_stdin_that_is_closed_changes_nothing(shell: Shell) -> None:
    whole = bash(shell, "imgdiff a b")
    assert bash(shell, "imgdiff a b 2>&-") == whole
    assert bash(shell, "imgdiff a b <&-") == whole
    assert bash(shell, "imgdiff a nowhere: 2>&-").code == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments", ["a b", "a b --format json -q", "--help", "diff --help", "--version", "cache info"]
)
def test_stdout_that_is_full_is_one_sentence(arguments: str, shell: Shell) -> None:
    one_sentence(bash(shell, f"imgdiff {arguments} >/dev/full"), "No space left on device")


def test_a_reader_that_takes_one_line_sees_no_traceback(shell: Shell) -> None:
    ran = bash(shell, "imgdiff a b -v --format json -q | head -1")
    assert (ran.out, ran.err) == ("{\n", "")


def test_a_working_directory_that_is_gone(shell: Shell) -> None:
    line = 'top=$PWD; mkdir gone; cd gone; rmdir "$top/gone"; imgdiff "$top/a" "$top/b" --cache-dir "$top/c" '
    assert bash(shell, line + "-q").code == 1
    one_sentence(bash(shell, line + "-o r.json"), "the working directory is gone")


def test_without_a_home(shell: Shell) -> None:
    assert bash(shell, "unset HOME; imgdiff a b").code == 1


def test_a_cache_that_is_full_stops_it_with_a_way_out(shell: Shell) -> None:
    ran = bash(shell, "ulimit -f 8; imgdiff a b --cache-dir c 2>&1 >/dev/null | cat >&2")
    one_sentence(ran, "can't be used")
    assert "--no-cache" in ran.err


# Terminals and encodings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "least"), [(60, 45), (80, 61), (200, 120)])
def test_columns_are_kept_to(columns: int, least: int, shell: Shell) -> None:
    lines = bash(shell, "imgdiff a b", COLUMNS=str(columns)).out.splitlines()
    assert max(len(line) for line in lines if "sha256:" not in line) <= columns
    assert max(len(line) for line in lines if "sha256:" not in line) >= least


@pytest.mark.parametrize("columns", ["", "x", "0", "-1", "9" * 300, "9" * 5000, "\u0663\u0663"])
def test_columns_that_are_no_number_are_80(columns: str, shell: Shell) -> None:
    ran = bash(shell, "imgdiff a b", COLUMNS=columns)
    assert ran.code == 1
    if not columns.startswith("9"):
        assert ran == bash(shell, "imgdiff a b")


def test_what_an_encoding_lacks_is_escaped_and_json_is_utf8_all_the_same(shell: Shell) -> None:
    plain = bash(shell, "imgdiff a b -v", PYTHONIOENCODING="ascii")
    assert plain.code == 1
    assert plain.out.isascii()
    assert "\\u2603.txt" in plain.out
    assert "\u2603.txt" in bash(shell, "imgdiff a b -v", LC_ALL="C").out
    assert SNOWMAN in bash(shell, "imgdiff a b --format json", PYTHONIOENCODING="ascii").out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [(("a", "b"), 1, b"STANDS for main"), (("snapshot", "a", "-o", "a.snapshot"), 0, b"a.snapshot: ")],
    ids=["diff", "snapshot"],
)
def test_a_dumb_terminal_gets_no_escape_sequence(
    arguments: tuple[str, ...], code: int, words: bytes, shell: Shell
) -> None:
    leader, follower = pty.openpty()
    process = shell.start(*arguments, env={"TERM": "dumb"}, stdout=follower, stderr=follower)
    os.close(follower)
    shown = bytearray()
    try:
        while piece := os.read(leader, 65536):
            shown += piece
    except OSError:  # EIO: the other end is closed
        pass
    os.close(leader)
    assert process.wait(timeout=300) == code
    assert words in shown
    assert b"\x1b" not in shown
    assert shown.replace(b"\r\n", b"").count(b"\r") == 0


# Outputs and references ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "output", ["a/index.json", "./b/new.json", "linked/index.json", "oci.json", "b/blobs/sha256/report.json"]
)
def test_a_report_never_goes_into_an_image_that_is_compared(output: str, shell: Shell) -> None:
    (shell.directory / "linked").symlink_to("a")
    (shell.directory / "oci.json").symlink_to("b/oci-layout")
    before = {path: path.read_bytes() for path in shell.directory.rglob("*") if path.is_file()}
    one_sentence(shell.fork("oci:a", "b", "-o", output), "is part of an image that is compared")
    assert {path: path.read_bytes() for path in before} == before


def test_a_report_never_replaces_an_archive_that_is_compared(shell: Shell) -> None:
    subprocess.run(["tar", "-C", "a", "-cf", "a.json", "."], cwd=shell.directory, check=True)
    before = (shell.directory / "a.json").read_bytes()
    one_sentence(shell.fork("oci-archive:a.json", "b", "-o", "./a.json"), "is part of an image that is compared")
    assert (shell.directory / "a.json").read_bytes() == before


def test_two_reports_that_meet_through_a_link_are_refused_and_two_in_dev_null_are_not(shell: Shell) -> None:
    (shell.directory / "y.json").symlink_to("x.json")
    one_sentence(shell.fork("a", "b", "-o", "x.json", "-o", "y.json"), "two reports can't go to one file")
    null = ("--format", "json", "-o", "/dev/null", "--format", "markdown", "-o", "/dev/null", "-q")
    assert shell.fork("a", "b", *null) == Ran(1, "", "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "oci:a"),
        ("./a", "oci:linked/"),
        ("a:t", "./a:t"),
        ("oci:a:t", "linked:t"),
        ("a@sha256:0", "oci:./a@sha256:0"),
        ("a:t@sha256:0", "linked:t@sha256:0"),
        ("registry:x", "docker://docker.io/library/x:latest"),
        ("registry:host.example:5000/x:t", "registry://host.example:5000/x:t"),
    ],
)
def test_one_image_in_two_spellings_is_refused(one: str, other: str, shell: Shell) -> None:
    (shell.directory / "linked").symlink_to("a")
    one_sentence(shell.fork(one, other), "both references are the same")


def test_a_name_here_and_the_same_in_its_registry_can_be_two_images(shell: Shell) -> None:
    """An engine can hold an older image of a tag than the registry has; nothing answers here, but it is asked."""
    ran = shell.fork("127.0.0.1:1/x:t", "registry:127.0.0.1:1/x:t")
    assert ran.code == 2
    assert "both references are the same" not in ran.err
    assert "127.0.0.1:1" in ran.err


def test_two_tags_of_one_layout_are_two_images(shell: Shell) -> None:
    ran = shell.fork("a:one", "oci:a:two")
    assert "both references are the same" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a", "b", "--platform", ""), "is no platform"),
        (("a", "b", "--entry", ""), "--entry is empty"),
        (("a", "b", "--only", ""), "no owner is called ''"),
        (("a", "b", "--role", ""), "no role ''"),
        (("a", "b", "--profile", ""), "no engine profile ''"),
        (("a", "b", "--role", "worker", "--profile", "generic"), "no role 'worker' in profile generic"),
        (("a", "b", "-o", ""), "names no file"),
        (("a", "b", "-o", ".", "--format", "json"), "is a directory"),
        (("a", "b", "--jobs", "-1"), "--jobs"),
        (("a", "b", "--jobs", ""), "--jobs"),
        (("cache", "prune", "--max-size", "much"), "--max-size"),
        (("cache", "prune", "--max-size", "-1"), "--max-size"),
        (("cache", "prune", "--max-size", ""), "--max-size"),
        (("", "b"), ""),
    ],
)
def test_values_that_are_empty_or_odd_are_one_sentence(arguments: tuple[str, ...], words: str, shell: Shell) -> None:
    one_sentence(shell.fork(*arguments), words)
