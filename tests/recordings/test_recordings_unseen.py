"""Recordings that look complete and are not: whatever could have gone unseen leaves the claim open."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import imgdiff
from imgdiff.model import Report
from tests.recordings.made import event, start, write
from tests.recordings.test_recordings_settle import (
    BASE,
    END,
    LATER,
    LIBRARY,
    LOADER,
    OTHER,
    SETTINGS,
    WHOLE,
    Pair,
    engine,
)
from tests.support.command import PYTHON
from tests.support.images import Member

PYTHON_ENV = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": "/imgdiff/out/ld"}
SHELL = (
    "     5:\tcalling init: /lib64/ld-linux-x86-64.so.2",
    "     5:\tinitialize program: /bin/sh",
    "     5:\ttransferring control: /bin/sh",
)
ISOLATED = ("     5:\tcalling init: /lib/x.so", "     5:\tinitialize program: python3.11")


@pytest.fixture
def module(tmp_path: Path) -> Pair:
    return Pair(tmp_path, {"srv/app/helper.py": b"X = 2\n"}, engine(LATER))


@pytest.fixture
def library(tmp_path: Path) -> Pair:
    return Pair(tmp_path, {LIBRARY: OTHER}, BASE)


@pytest.fixture
def settings(tmp_path: Path) -> Pair:
    return Pair(tmp_path, {SETTINGS: b'{"scale": 3}\n'}, BASE)


def run(pair: Pair, tmp_path: Path, *processes: list[dict[str, Any]], **logs: tuple[str, ...]) -> Report:
    """Compare with a run of several processes, each of which ran the app's main module; logs by their file's name."""
    data = PYTHON["srv/app/__main__.py"]
    ran = event("exec", file="/srv/app/__main__.py", sha256=hashlib.sha256(data or b"").hexdigest(), name=None)
    directory = write(tmp_path / "run", *([first, ran, *rest] for first, *rest in processes))
    for name, lines in logs.items():
        (directory / name.replace("_", ".")).write_text("".join(f"{line}\n" for line in lines))
    a, b = (str(tmp_path / side) for side in "ab")
    return imgdiff.diff(a, b, traces=[str(directory)], cache=False, jobs=1)


def app(pid: int, parent: int = 0, **more: Any) -> dict[str, Any]:
    coverage = ["python", "origins", "open", "maps"]
    return start(pid, parent, executable="/usr/bin/python3.11", coverage=coverage, argv=["python3.11", "x"], **more)


# The loader's log ----------------------------------------------------------------------------------------------------


def test_a_python_without_the_recorder_behind_a_shell_is_seen(module: Pair, tmp_path: Path) -> None:
    """``sh -c 'exec python -I ...'``: one pid, one file of the loader; its child alone was recorded."""
    assert run(module, tmp_path, [app(6, 5)], ld_5=SHELL).verdict.outcome == "killed"
    assert run(module, tmp_path, [app(6, 5)], ld_5=(*SHELL, *ISOLATED)).verdict.outcome == "undecided"


def test_a_python_that_calls_itself_otherwise_is_seen(module: Pair, tmp_path: Path) -> None:
    server = ("     5:\tinitialize program: /opt/server", "     5:\tcalling init: /usr/lib/libpython3.11.so.1.0")
    assert run(module, tmp_path, [app(6, 5)], ld_5=server[:1]).verdict.outcome == "killed"
    assert run(module, tmp_path, [app(6, 5)], ld_5=server).verdict.outcome == "undecided"


def test_a_python_without_the_recorder_that_went_on_as_another_is_seen(module: Pair, tmp_path: Path) -> None:
    assert run(module, tmp_path, [app(5)], ld_5=(*SHELL, *ISOLATED)).verdict.outcome == "killed"
    assert run(module, tmp_path, [app(5)], ld_5=(*ISOLATED, *ISOLATED)).verdict.outcome == "undecided"


def test_the_loaders_log_of_a_shell_covers_no_python_behind_it(library: Pair, tmp_path: Path) -> None:
    """A script that cleared LD_DEBUG, and went on as Python."""
    assert run(library, tmp_path, [app(5)], ld_5=(*SHELL, *ISOLATED)).verdict.outcome == "killed"
    assert run(library, tmp_path, [app(5)], ld_5=SHELL).verdict.outcome == "undecided"
    asked, cleared = app(5, env=PYTHON_ENV), app(5, env={"PATH": "/bin"})
    assert run(library, tmp_path, [asked], ld_5=(*SHELL, *ISOLATED)).verdict.outcome == "killed"
    assert run(library, tmp_path, [cleared], ld_5=(*SHELL, *ISOLATED)).verdict.outcome == "undecided"


@pytest.mark.parametrize(
    "line",
    [
        "     5:\tfile=libplug.so [0];  generating link map",  # and no line that says from where
        "     5:\tcalling init: ./libplug.so",
        "     5:\tfile=./libplug.so [0];  generating link map",
        "     5:\tcalling init: /proc/self/fd/9",
        "     5:\tfile=/memfd:x [0];  generating link map",
        "     5:\tcalling in",
        "libplug.so",
    ],
)
def test_a_library_that_may_have_been_mapped_is_not_settled(library: Pair, line: str) -> None:
    assert library.diff(loader=LOADER).verdict.outcome == "killed"
    outcome = library.diff(loader=(*LOADER, line)).verdict.outcome
    assert outcome == ("killed" if line.endswith("calling in") else "undecided")


def test_other_names_of_a_library_are_the_library(tmp_path: Path) -> None:
    link = Member("usr/lib/libplug.so.1", type="symlink", target="libplug.so")
    pair = Pair(tmp_path, {LIBRARY: OTHER}, {**BASE, "opt/libplug.so.1": OTHER}, (link,))
    assert pair.diff(loader=LOADER).verdict.outcome == "killed"
    named = "     5:\tfile=libplug.so.1 [0];  generating link map"
    assert pair.diff(loader=(*LOADER, named)).verdict.outcome == "undecided"
    told = "     5:\tcalling init: /opt/libplug.so.1"
    assert pair.diff(loader=(*LOADER, named, told)).verdict.outcome == "killed"


@pytest.mark.parametrize("program", ["env", "/usr/bin/sudo", "su", "/usr/sbin/chroot"])
def test_programs_that_take_the_recorder_away_are_seen(module: Pair, tmp_path: Path, program: str) -> None:
    one = (f"     4:\tinitialize program: {program}",)
    then = (*one, "     4:\tinitialize program: /bin/cat")
    assert run(module, tmp_path, [app(5)], ld_4=then).verdict.outcome == "killed"
    assert run(module, tmp_path, [app(5)], ld_4=one).verdict.outcome == "undecided"


@pytest.mark.parametrize(("pid", "outcome"), [(4, "killed"), (9, "undecided")])
def test_a_program_that_no_event_tells_of_may_have_started_others(
    module: Pair, tmp_path: Path, pid: int, outcome: str
) -> None:
    """What C code starts behind Python's back; what ran before the first Python is the way to it."""
    for name in ("sh", "/bin/bash", "/opt/tool"):
        log = {f"ld_{pid}": (f"     {pid}:\tinitialize program: {name}",)}
        assert run(module, tmp_path, [app(5)], **log).verdict.outcome == outcome
    log = {f"ld_{pid}": (f"     {pid}:\tinitialize program: /usr/lib/gcc/x86_64-linux-gnu/12/cc1",)}
    assert run(module, tmp_path, [app(5)], **log).verdict.outcome == "killed"


def test_a_shell_that_python_started_for_one_known_command_is_its_own(module: Pair, tmp_path: Path) -> None:
    spawn = event("spawn", call="os.system", executable="/bin/sh", argv=["sh", "-c", "lscpu"], env="inherited")
    logs = {"ld_9": ("     9:\tinitialize program: sh",), "ld_10": ("     10:\tinitialize program: lscpu",)}
    assert run(module, tmp_path, [app(5), spawn], **logs).verdict.outcome == "killed"
    logs["ld_11"] = ("     11:\tinitialize program: sh",)
    assert run(module, tmp_path, [app(5), spawn], **logs).verdict.outcome == "undecided"


# Several runs, several processes -------------------------------------------------------------------------------------


def test_two_runs_in_one_directory(settings: Pair, tmp_path: Path) -> None:
    """A container that was started again: the same host and pids, and strace wrote its log anew."""
    lines = tuple(line.removeprefix("5 ") for line in (*WHOLE, END))
    first, again = app(5), {**app(5), "time": start(5)["time"] + 100}
    assert run(settings, tmp_path, [first], strace_5=lines).verdict.outcome == "killed"
    assert run(settings, tmp_path, [first], [again], strace_5=lines).verdict.outcome == "undecided"


def test_a_clock_that_was_set_back_settles_no_more(module: Pair, tmp_path: Path) -> None:
    spawn = event("spawn", call="subprocess.Popen", executable="/usr/bin/python3.11", argv=["python3.11"], env="own")
    child = {**app(6, 5), "time": start(5)["time"] - 1000}
    assert run(module, tmp_path, [app(5), spawn], [child]).verdict.outcome == "killed"
    fork = {**child, "how": "fork"}
    assert run(module, tmp_path, [app(5), event("fork")], [fork]).verdict.outcome == "undecided"


# What ran from nowhere -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["/dev/shm/cache/x.py", "/proc/self/fd/9", "/dev/fd/63"])
def test_code_that_is_in_no_image_is_a_blindspot(module: Pair, file: str) -> None:
    assert module.diff().verdict.outcome == "killed"
    report = module.diff(event("exec", file=file, sha256="ab" * 32, name=None))
    assert report.verdict.outcome == "undecided"
    assert any((spot.path or b"").decode() == file[1:] for spot in report.blindspots)


def test_a_python_whose_site_came_late_has_not_seen_all(module: Pair, tmp_path: Path) -> None:
    """``python -S``, with ``import site`` in the middle of the program."""
    assert run(module, tmp_path, [app(5, flags={"no_site": 0})]).verdict.outcome == "killed"
    assert run(module, tmp_path, [app(5, flags={"no_site": 1})]).verdict.outcome == "undecided"


# System calls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        '5 openat(AT_FDCWD, "/proc/self/root/etc/app/settings.json", O_RDONLY) = 3',
        '5 newfstatat(AT_FDCWD, "/proc/5/root/etc/app/settings.json", {}, 0) = 0',
        '5 openat(AT_FDCWD</proc/self>, "root/etc/app/settings.json", O_RDONLY) = 3',
        '5 newfstatat(AT_FDCWD, "/proc/self/fd/7/settings.json", {}, 0) = 0',
        '5 newfstatat(AT_FDCWD, "/proc/1/cwd/settings.json", {}, 0) = 0',
        '5 openat(AT_FDCWD, "/link", O_RDONLY) = 3</etc/app/settings.json>',
        '5 execveat(7</etc/app/settings.json>, "", ["x"], 0x1 /* 0 vars */, AT_EMPTY_PATH) = 0',
        '5 execveat(7</etc/app>, "settings.json", ["x"], 0x1 /* 0 vars */, 0) = 0',
        '5 execveat(7, "settings.json", ["x"], 0x1 /* 0 vars */, 0) = -1 ENOEXEC (Exec format error)',
        '5 execveat(7, "", ["x"], 0x1 /* 0 vars */, AT_EMPTY_PATH',
        '5 move_mount(5, "", AT_FDCWD, "/etc", MOVE_MOUNT_F_EMPTY_PATH) = 0',
        "5 setns(3, CLONE_NEWNS) = 0",
        "5 unshare(CLONE_NEWNS) = 0",
        '5 pivot_root(".", ".") = 0',
    ],
)
def test_other_ways_to_a_file_are_seen_in_a_log_of_system_calls(settings: Pair, line: str) -> None:
    assert settings.diff(strace=WHOLE).verdict.outcome == "killed"
    assert settings.diff(strace=(*WHOLE, line)).verdict.outcome != "killed"


@pytest.mark.parametrize("end", ["", "5 --- SIGTERM {si_signo=SIGTERM} ---", "4 +++ exited with 0 +++"])
def test_a_log_that_does_not_tell_the_end_of_a_process_settles_nothing(settings: Pair, end: str) -> None:
    """It was cut between two lines, was copied while the program ran, or strace ended before it did (or -qq)."""
    assert settings.diff(strace=WHOLE).verdict.outcome == "killed"
    assert settings.diff(strace=WHOLE, end="5 +++ killed by SIGKILL +++").verdict.outcome == "killed"
    assert settings.diff(strace=WHOLE, end=end).verdict.outcome == "undecided"


def test_the_end_of_every_program_and_thread_is_asked_for(settings: Pair) -> None:
    child = ("5 vfork() = 6", '6 execve("/bin/cat", ["cat"], 0x1) = 0')
    thread = ("5 clone(flags=CLONE_VM|CLONE_THREAD) = 7", '7 openat(AT_FDCWD, "/x", O_RDONLY) = 3')
    for lines, end in ((child, "6 +++ exited with 0 +++"), (thread, "7 +++ exited with 0 +++")):
        assert settings.diff(strace=(*WHOLE, *lines, end)).verdict.outcome == "killed"
        assert settings.diff(strace=(*WHOLE, *lines)).verdict.outcome == "undecided"


def test_the_first_process_of_a_container_ends_what_traces_it(settings: Pair, tmp_path: Path) -> None:
    """... and what was still there then; only a Python is held against what the recorder saw of it."""
    first = tuple("1" + line.removeprefix("5") for line in WHOLE)
    child = ("1 vfork() = 6", '6 execve("/bin/cat", ["cat"], 0x1) = 0')
    assert run(settings, tmp_path, [app(1)], strace_log=first).verdict.outcome == "killed"
    assert run(settings, tmp_path, [app(1)], strace_log=(*first, *child)).verdict.outcome == "undecided"
    done = (*first, *child, "6 +++ exited with 0 +++")
    assert run(settings, tmp_path, [app(1)], strace_log=done).verdict.outcome == "killed"


def test_a_log_that_lacks_what_the_recorder_read_is_not_whole(settings: Pair, tmp_path: Path) -> None:
    """Lines that were filtered (grep, strace -P), or a log of another run under the same pid."""
    other = tuple(line.replace("/srv/app/__main__.py", "/srv/app/other.py") for line in WHOLE)
    assert run(settings, tmp_path, [app(5)], strace_log=(*other, END)).verdict.outcome == "undecided"
    assert run(settings, tmp_path, [app(5)], strace_log=(*WHOLE, END)).verdict.outcome == "killed"


def test_a_log_that_lacks_the_beginning_of_a_program_is_not_whole(settings: Pair, tmp_path: Path) -> None:
    """``strace -ff``: the file of one process was cut at its head; the loader tells that it began a program."""
    parent = (*(line.removeprefix("5 ") for line in WHOLE), "vfork() = 6", END.removeprefix("5 "))
    child = ('execve("/bin/cat", ["cat"], 0x1) = 0', 'openat(AT_FDCWD, "/x", O_RDONLY) = 3', "+++ exited with 0 +++")
    loader = ("     6:\tinitialize program: cat",)
    for lines, outcome in ((child, "killed"), (child[1:], "undecided")):
        logs = {"strace_5": parent, "strace_6": lines, "ld_6": loader}
        assert run(settings, tmp_path, [app(5)], **logs).verdict.outcome == outcome


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("5 openat(0xffffff9c, 0x7f3a12345678, 0x80000, 0) = 0x4", "undecided"),  # strace -e raw=all
        ("5 stat(0x7f3a12345678, 0x7ffc12345678) = 0", "undecided"),
        ("5 execve(0x7f3a12345678, 0x7ffc12345678, 0x1) = -1 ENOENT (No such file or directory)", "undecided"),
        ("5 newfstatat(3, 0x7f3a12345678, 0x7ffc12345678, 0x1000) = 0", "undecided"),
        ('5 rename("/a", 0x7f3a12345678) = 0', "undecided"),
        ("5 chdir(0x7f3a12345678) = 0", "undecided"),
        ('5 openat(AT_FDCWD, "/etc/app/sett"..., O_RDONLY) = 4', "undecided"),
        ("5 access(NULL, F_OK) = -1 EFAULT (Bad address)", "killed"),
        ("5 stat(0x1, 0x7ffc12345678) = -1 EFAULT (Bad address)", "killed"),
        ("5 newfstatat(3, NULL, {st_mode=S_IFREG|0644}, AT_EMPTY_PATH) = 0", "killed"),
        ("5 utimensat(3, NULL, NULL, 0) = 0", "killed"),
        ('5 openat(AT_FDCWD, "/etc/app/settings.json", O_RDONLY <unfinished ...>', "undecided"),  # and no more of it
        ("5 read(3,  <unfinished ...>", "killed"),
    ],
)
def test_a_call_whose_path_the_log_does_not_have_leaves_it_open(settings: Pair, line: str, outcome: str) -> None:
    assert settings.diff(strace=(*WHOLE, line)).verdict.outcome == outcome


def test_a_log_of_what_succeeded_alone_settles_nothing(settings: Pair) -> None:
    """``strace -z``: names that were looked for in vain are not in it."""
    lines = tuple(line.partition(" = -1")[0] + " = 0" if " = -1" in line else line for line in WHOLE)
    assert settings.diff(strace=lines).verdict.outcome == "undecided"


def test_a_relative_path_is_known_where_the_log_has_calls_on_descriptors(settings: Pair) -> None:
    """fchdir(2) is no call with a path: ``-e trace=file`` leaves it out."""
    relative = (*WHOLE[:1], '5 chdir("/srv") = 0', *WHOLE[1:], '5 openat(AT_FDCWD, "app/x", O_RDONLY) = 3')
    assert settings.diff(strace=relative).verdict.outcome == "undecided"
    assert settings.diff(strace=(*relative, "5 close(3) = 0")).verdict.outcome == "killed"
    told = (*WHOLE, '5 openat(AT_FDCWD</srv>, "app/x", O_RDONLY) = 3</srv/app/x>')
    assert settings.diff(strace=told).verdict.outcome == "killed"
    moved = (*relative, "5 fchdir(4</etc/app>) = 0", '5 openat(AT_FDCWD, "settings.json", O_RDONLY) = 3')
    assert settings.diff(strace=moved).verdict.outcome == "stands"


def test_the_time_that_a_call_took_is_no_part_of_its_result(settings: Pair) -> None:
    """``strace -T``."""
    lines = tuple(f"{line} <0.000012>" for line in WHOLE)
    assert settings.diff(strace=lines).verdict.outcome == "killed"
    read = '5 openat(AT_FDCWD, "/etc/app/settings.json", O_RDONLY) = 3 <0.000012>'
    assert settings.diff(strace=(*lines, read)).verdict.outcome == "stands"


# Processes of something else -------------------------------------------------------------------------------------------

TRACKER = ["python3.11", "-c", "from multiprocessing.resource_tracker import main;main(6)"]


@pytest.mark.parametrize("argv", [TRACKER, ["python3.11", "/usr/local/bin/healthcheck.py"]], ids=["tracker", "health"])
def test_a_process_that_ran_nothing_of_the_entry_tells_nothing_of_its_role(
    module: Pair, tmp_path: Path, argv: list[str]
) -> None:
    """One file of a directory of recordings, or one that ``docker exec`` left there: it lacks whatever it is asked for."""
    data = PYTHON["usr/lib/python3.11/os.py"]
    ran = event("exec", file="/usr/lib/python3.11/os.py", sha256=hashlib.sha256(data or b"").hexdigest(), name=None)
    other = [{**app(7, 1), "argv": argv}, ran]
    alone = imgdiff.diff(
        str(tmp_path / "a"), str(tmp_path / "b"), traces=[str(write(tmp_path / "alone", other))], cache=False, jobs=1
    )
    assert alone.verdict.outcome == "undecided"
    assert any("no recorded process ran what main starts with" in text for text in alone.verdict.caveats)
    assert run(module, tmp_path, [app(6)]).verdict.outcome == "killed"
    assert run(module, tmp_path, [app(6)], [other[0], ran]).verdict.outcome == "killed"


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("code", ["import app.engine", "from app.engine import answer; answer(1)"])
def test_the_code_of_a_command_line_is_known_by_what_it_imports(tmp_path: Path, code: str) -> None:
    """It lies in no file that a recording could show; a health check is often a ``python -c`` as well."""
    lib = "usr/lib/python3.11/os.py"
    contents = {lib: PYTHON[lib], "srv/app/__init__.py": PYTHON["srv/app/__init__.py"], **engine(LATER)}

    def outcome(name: str, *files: str) -> str:
        ran = (
            event("exec", file=f"/{file}", sha256=hashlib.sha256(contents[file] or b"").hexdigest(), name=None)
            for file in files
        )
        directory = write(tmp_path / name, [{**app(7, 1), "argv": ["python3.11", "-c", "..."]}, *ran])
        a, b = str(tmp_path / "a"), str(tmp_path / "b")
        entry = f'python3.11 -c "{code}"'
        return imgdiff.diff(a, b, traces=[str(directory)], cache=False, jobs=1, entry=entry).verdict.outcome

    assert outcome("health", lib) == "undecided"
    assert outcome("run", lib, "srv/app/__init__.py", "srv/app/engine.py") == "killed"
