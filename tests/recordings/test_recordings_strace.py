"""strace's logs: which process opened or looked for which path, in all the ways in which strace tells it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from imgdiff import recordings
from imgdiff.errors import RecordingError
from imgdiff.model import RecordedProcess
from imgdiff.recordings import _lines, strace
from imgdiff.recordings._merge import merged
from tests.recordings.made import event, ran, start, write

STRACE = shutil.which("strace")
PROGRAM = """
import os, subprocess, sys, threading
here = sys.argv[1]
os.chdir(here)
open("relative.txt").close()
descriptor = os.open("below", os.O_RDONLY)
os.close(os.open("inner.txt", os.O_RDONLY, dir_fd=descriptor))
try:
    open("missing.json")
except OSError:
    pass
threading.Thread(target=lambda: open(here + "/thread.txt").close()).start()
subprocess.run(["cat", "child.txt"], cwd=here + "/below", check=False)
if os.fork() == 0:
    os.chdir("below")
    open("forked.txt").close()
    open("absent.txt", "w").close()
    os._exit(0)
os.wait()
os.stat("looked.txt")
os.listdir(here + "/below")
"""


def text(*lines: str, name: str = "log") -> tuple[RecordedProcess, ...]:
    stream = io.BytesIO("".join(f"{line}\n" for line in lines).encode("latin-1"))
    return merged(strace.read(_lines.Lines(stream), name))


def used(process: RecordedProcess, how: str) -> set[bytes]:
    """Absolute paths that were used so."""
    return {
        each.path if each.path.startswith(b"/") else (each.cwd or process.cwd).rstrip(b"/") + b"/" + each.path
        for each in process.files
        if each.how == how
    }


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("way", [("-f",), ("-ff", "-y"), ("-f", "-y", "-ttt"), ("-f", "-tt", "-s", "4")])
def test_a_real_program_with_threads_children_and_relative_paths(tmp_path: Path, way: tuple[str, ...]) -> None:
    assert STRACE is not None
    here = tmp_path / "pl\u00e4ce"
    (here / "below").mkdir(parents=True)
    for name in ("relative.txt", "thread.txt", "looked.txt", "below/inner.txt", "below/child.txt", "below/forked.txt"):
        (here / name).write_text("x")
    out = tmp_path / "logs"
    out.mkdir()
    command = [STRACE, *way, "-o", str(out / "log"), sys.executable, "-c", PROGRAM, str(here)]
    ran = subprocess.run(command, capture_output=True, check=False)
    if b"ptrace" in ran.stderr and ran.returncode:
        pytest.skip("ptrace is not allowed here")
    recording = recordings.read(str(out))
    assert recording.formats == ("strace",)
    parent, cat, forked = sorted(recording.processes, key=lambda each: (each.parent is not None, each.pid))
    base = os.fsencode(here)
    assert (parent.start, cat.start, forked.start) == ("exec", "exec", "fork")
    assert cat.parent == forked.parent == parent.pid
    for process in recording.processes:
        assert process.coverage == {"syscalls"}
        apart = "-ff" in way and process is forked  # its directory is in its parent's file
        assert bool(process.gaps) == apart, process.gaps
    assert {base + b"/relative.txt", base + b"/below/inner.txt", base + b"/thread.txt"} <= used(parent, "opened")
    assert {base + b"/missing.json", base + b"/looked.txt"} <= used(parent, "sought")
    assert base + b"/below" in used(parent, "listed") | used(parent, "opened")
    assert used(cat, "opened") >= {base + b"/below/child.txt"}
    assert any(path.endswith(b"/libc.so.6") for path in used(cat, "mapped"))
    assert cat.executable is not None
    assert cat.executable.endswith("/cat")
    assert base + b"/below/forked.txt" in used(forked, "opened")
    assert base + b"/below/absent.txt" in used(forked, "sought")  # only written
    assert parent.ended == forked.ended == "exited with 0"


def test_calls_that_are_interrupted_by_others_are_put_together() -> None:
    [one, two] = text(
        '10 execve("/usr/bin/python3", ["python3"], 0x7ff /* 3 vars */) = 0',
        "10 vfork( <unfinished ...>",
        '11 chdir("/srv") = 0',
        '11 execve("/usr/bin/cat", ["cat", "a\\"b"], 0x1 /* 1 var */ <unfinished ...>',
        "10 <... vfork resumed>)             = 11",
        "11 <... execve resumed>)            = 0",
        '11 openat(AT_FDCWD, "x\\303\\244\\n.txt", O_RDONLY <unfinished ...>',
        '10 newfstatat(AT_FDCWD, "/a", {st_mode=S_IFREG|0644, st_size=3, ...}, 0) = 0',
        "11 <... openat resumed>)            = 3",
        "11 +++ killed by SIGKILL +++",
    )
    assert (one.pid, one.start, one.parent) == (10, "exec", None)
    assert (two.pid, two.start, two.parent, two.ended) == (11, "exec", 10, "killed by SIGKILL")
    assert two.argv == ("cat", 'a"b')
    assert used(two, "opened") == {b"/srv/x\xc3\xa4\n.txt"}
    assert used(one, "sought") == {b"/a"}


def test_threads_belong_to_their_process_and_close_frees_a_descriptor() -> None:
    [process] = text(
        '7 execve("/bin/x", ["x"], 0x1) = 0',
        '7 openat(AT_FDCWD, "/d", O_RDONLY|O_DIRECTORY) = 3',
        "7 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, exit_signal=0} => {parent_tid=[8]}, 88) = 8",
        '8 openat(3, "inner", O_RDONLY) = 4',
        "8 close(3) = 0",
        '8 openat(3, "lost", O_RDONLY) = -1 EBADF (Bad file descriptor)',
    )
    assert used(process, "opened") == {b"/d/inner"}
    assert used(process, "listed") == {b"/d"}


def test_all_logs_of_one_run_say_one_thing_of_each_process(tmp_path: Path) -> None:
    directory = write(tmp_path / "run", [start(1, 0), ran("/srv/x.py", "ab" * 32), event("spawn", call="os.system")])
    logs = {
        "strace.1": (
            '12:00:00.1 execve("/usr/bin/python3", ["python3"], 0x1) = 0',
            '12:00:00.2 newfstatat(AT_FDCWD</srv>, "x.py", {}, 0) = 0',
            '12:00:00.3 access("/etc/ld.so.preload", R_OK) = -1 ENOENT (No such file or directory)',
            '12:00:00.4 readlink("/usr/bin/python3", "python3.12", 4096) = 10',
            "12:00:00.5 clone(child_stack=0x1, flags=CLONE_VM|CLONE_THREAD) = 2",
            '12:00:00.6 openat(AT_FDCWD, "/srv/x.py", O_RDONLY) = 3</srv/x.py>',
        ),
        "strace.2": ("12:00:01.1 vfork() = 3", '12:00:01.2 openat(AT_FDCWD</srv>, "thread.txt", O_RDONLY) = 3</srv/t>'),
        "strace.3": (
            '12:00:01.3 execve("/bin/sh", ["sh", "-c", "x"], 0x1) = 0',
            '12:00:01.4 openat(AT_FDCWD</srv>, "child.txt", O_RDONLY) = 3</srv/child.txt>',
            "12:00:01.5 +++ exited with 0 +++",
        ),
        "ld.1": ("     1:\tcalling init: /lib/one.so",),
        "ld.3": ("     3:\tcalling init: /lib/three.so", "     3:\tinitialize program: sh"),
        "ld.9": ("     9:\tcalling init: /lib/nine.so", "     9:\tinitialize program: /usr/bin/strace"),
    }
    for name, lines in logs.items():
        (directory / name).write_text("".join(f"{line}\n" for line in lines))
    python, shell, tracer = recordings.read(str(directory)).processes
    assert (python.pid, shell.pid, shell.parent, shell.start) == (1, 3, 1, "exec")
    assert python.coverage == {"python", "libraries", "syscalls"}
    assert shell.coverage == {"libraries", "syscalls"}
    assert not python.gaps
    assert not shell.gaps
    assert used(python, "opened") == {
        b"/srv/x.py",
        b"/srv/thread.txt",
        b"/srv/t",
    }  # as it was asked for, and where that led
    assert used(python, "executed") == {b"/srv/x.py"}
    assert used(python, "mapped") == {b"/usr/bin/python3", b"/lib/one.so"}
    assert used(shell, "opened") == {b"/srv/child.txt"}
    assert used(shell, "mapped") == {b"/bin/sh", b"/lib/three.so"}
    assert tracer.executable == "/usr/bin/strace"


@pytest.mark.parametrize(
    ("line", "gap"),
    [
        ('5 chroot("/jail") = 0', "root directory"),
        ('5 openat(9, "x", O_RDONLY) = 4', "relative"),
        ('5 openat(AT_FDCWD, "x", O_RDONLY) = 4', "relative"),
        ("5 io_uring_setup(8, {flags=0}) = 3", "io_uring"),
        ("some output of the program", "none of strace's"),
        ("5 +++ not seen: a path that it named could not be read +++", "could not be read"),  # our own tracer says so
        ('!!! lost: 48.654976 execve("/bin/x", ...) = 0', "none of strace's"),
        ('5 openat(AT_FDCWD, "/x", O_RDONLY', "cut off"),
    ],
)
def test_what_a_log_leaves_open_is_a_gap(line: str, gap: str) -> None:
    begun = (
        '5 execve("/bin/x", ["x"], 0x1) = 0',
        '5 newfstatat(AT_FDCWD, "/a", {}, 0) = 0',
        '5 access("/c", R_OK) = 0',
        '5 readlink("/c", 0x1, 9) = 1',
        '5 newfstatat(AT_FDCWD, "/nowhere", 0x1, 0) = -1 ENOENT (No such file or directory)',
    )
    end = "5 +++ exited with 0 +++"
    [process] = text(*begun, '5 openat(AT_FDCWD, "/b", O_RDONLY) = 3', end)
    assert process.gaps == ()
    [process] = text(*begun, line, end)
    assert any(gap in said for said in process.gaps), process.gaps


def test_calls_with_two_paths_and_with_answers() -> None:
    [process] = text(
        '5 execve("/bin/x", ["x"], 0x1) = 0',
        '5 openat(AT_FDCWD, "/d", O_RDONLY|O_DIRECTORY) = 3',
        '5 renameat2(3, "one", AT_FDCWD, "/two", 0) = 0',
        '5 rename("/three", "/four") = 0',
        '5 symlinkat("target", 3, "link") = 0',
        '5 readlink("/proc/self/exe", "answer", 99) = 6',
        '5 getxattr("/five", "security.capability", 0x1, 20) = -1 ENODATA (No data available)',
    )
    assert used(process, "sought") == {
        b"/d/one", b"/two", b"/three", b"/four", b"/d/link", b"/proc/self/exe", b"/five",
    }  # fmt: skip
    assert not [gap for gap in process.gaps if "relative" in gap]


def test_the_working_directory_is_what_the_program_asks_for() -> None:
    [process] = text(
        '5 execve("/bin/x", ["x"], 0x1) = 0',
        '5 openat(AT_FDCWD, "early.txt", O_RDONLY) = 3',
        '5 getcwd("/srv", 4096) = 5',
        '5 openat(AT_FDCWD, "late.txt", O_RDONLY) = 3',
        "5 close(3) = 0",
    )
    assert used(process, "opened") == {b"/srv/early.txt", b"/srv/late.txt"}
    assert not [gap for gap in process.gaps if "relative" in gap]


@pytest.mark.parametrize(
    "line",
    [
        "1796235631.419589 +++ exited with 0 +++",
        '1796235631.419589 execve("/bin/x", ...) = 0',
        "1796235631.419589 clone(...) = 12",
    ],
)
def test_what_is_said_of_a_process_can_be_one_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "strace.7").write_text(line + "\n")
    [process] = recordings.read(str(tmp_path)).processes
    assert process.pid == 7
    (tmp_path / "strace.7").write_text(line + "\nand a word\n")
    with pytest.raises(RecordingError, match="no known format"):
        recordings.read(str(tmp_path))


def test_a_log_of_some_calls_alone_covers_nothing() -> None:
    [process] = text('5 execve("/bin/x", ["x"], 0x1) = 0', '5 openat(AT_FDCWD, "/x", O_RDONLY) = 3')
    assert not process.coverage
    assert any("stat" in gap for gap in process.gaps)


def test_a_process_that_strace_came_to_has_no_beginning() -> None:
    [process] = text('5 openat(AT_FDCWD, "/x", O_RDONLY) = 3', '5 stat("/y", {}) = 0', name="strace.5")
    assert process.start == "unknown"


@pytest.mark.parametrize("early", range(6))
def test_lines_of_a_child_before_the_end_of_the_call_that_made_it_are_relative_to_its_parent(early: int) -> None:
    child = [
        '11 openat(3, "inner.txt", O_RDONLY) = 4',
        '11 openat(AT_FDCWD, "near.txt", O_RDONLY) = 5',
        "11 clone(child_stack=NULL, flags=SIGCHLD) = 12",
        '12 newfstatat(3, "looked.txt", {}, 0) = 0',
        "12 +++ exited with 0 +++",
        '11 openat(AT_FDCWD, "last.txt", O_RDONLY) = 6',
        "11 close(6) = 0",
        "11 +++ exited with 0 +++",
    ]
    parent, first, second = text(
        '10 execve("/bin/x", ["x"], 0x1) = 0',
        '10 access("/c", R_OK) = 0',
        '10 readlink("/c", 0x1, 9) = 1',
        '10 chdir("/srv") = 0',
        '10 openat(AT_FDCWD, "below", O_RDONLY|O_DIRECTORY) = 3',
        "10 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>",
        *child[:early],
        "10 <... clone resumed>) = 11",
        *child[early:],
        '10 newfstatat(AT_FDCWD, "/nowhere", 0x1, 0) = -1 ENOENT (No such file or directory)',
        "10 +++ exited with 0 +++",
    )
    assert used(parent, "listed") == {b"/srv/below"}
    assert used(first, "opened") == {b"/srv/below/inner.txt", b"/srv/near.txt", b"/srv/last.txt"}
    assert used(second, "sought") == {b"/srv/below/looked.txt"}
    assert (first.parent, second.parent, second.start, second.ended) == (10, 11, "fork", "exited with 0")
    assert not [gap for process in (parent, first, second) for gap in process.gaps]


def test_early_lines_of_a_child_that_no_call_tells_of_are_read_all_the_same() -> None:
    parent, child = text(
        '10 execve("/bin/x", ["x"], 0x1) = 0',
        "10 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>",
        *['11 openat(AT_FDCWD, "/srv/early.txt", O_RDONLY) = 4'] * 10_002,
        '11 openat(AT_FDCWD, "/srv/late.txt", O_RDONLY) = 4',
    )
    assert (parent.pid, child.pid, child.start) == (10, 11, "unknown")
    assert used(child, "opened") == {b"/srv/early.txt", b"/srv/late.txt"}
