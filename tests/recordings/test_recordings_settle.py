"""Which kind of recording settles which kind of file: each with the twin in which absence must settle nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import imgdiff
from imgdiff.model import Evidence, Report
from tests.recordings.made import event, start, write
from tests.support.command import PYTHON, layout
from tests.support.elf import Elf, elf_bytes

SETTINGS = "etc/app/settings.json"
LIBRARY = "usr/lib/libplug.so"
NAMING = PYTHON["srv/app/engine.py"] + b"PLUG = 'libplug.so'\n"
BASE: dict[str, bytes | None] = {
    "srv/app/engine.py": NAMING,
    LIBRARY: elf_bytes(Elf(soname="libplug.so", text=b"\x90\xc3")),
}
OTHER = elf_bytes(Elf(soname="libplug.so", text=b"\x91\xc3"))
WHOLE = (
    '5 execve("/usr/bin/python3.11", ["python3.11", "-m", "app"], 0x7ff /* 3 vars */) = 0',
    '5 newfstatat(AT_FDCWD, "/srv/app", {st_mode=S_IFDIR|0755, st_size=3, ...}, 0) = 0',
    '5 openat(AT_FDCWD, "/srv/app/__main__.py", O_RDONLY|O_CLOEXEC) = 3',
    '5 access("/etc/ld.so.preload", R_OK) = -1 ENOENT (No such file or directory)',
    '5 readlink("/usr/bin/python3.11", 0x7ff, 4096) = -1 EINVAL (Invalid argument)',
)
LOADER = ("     5:\tcalling init: /lib64/ld-linux-x86-64.so.2", "     5:\tinitialize program: python3.11")


class Pair:
    """Two images, and runs of b."""

    def __init__(self, directory: Path, changes: dict[str, bytes | None], base: dict[str, bytes | None]) -> None:
        self._directory = directory
        self._a = layout(directory / "a", base)
        self._b = layout(directory / "b", {**base, **changes})
        self._files = {path: data for path, data in {**PYTHON, **base, **changes}.items() if data is not None}

    def diff(self, *more: dict[str, Any], strace: tuple[str, ...] = (), loader: tuple[str, ...] = ()) -> Report:
        """Compare them with a run: what Python did, and the logs that lie beside it."""
        ran = [
            event("exec", file=f"/{path}", sha256=hashlib.sha256(data).hexdigest(), name=None)
            for path, data in self._files.items()
            if path.endswith(("os.py", "site.py", "__main__.py", "engine.py", "/__init__.py")) and "json" not in path
        ]
        words = ["python", "origins", "open", "maps"]
        begin = start(5, executable="/usr/bin/python3.11", coverage=words, cwd="/srv", argv=["python3.11", "-m", "app"])
        run = write(self._directory / "run", [begin, *ran, *more])
        if strace:
            (run / "strace.5").write_text("".join(f"{line}\n" for line in strace))
        if loader:
            (run / "ld.5").write_text("".join(f"{line}\n" for line in loader))
        return imgdiff.diff(str(self._a), str(self._b), traces=[str(run)], cache=False, jobs=1)


def only(report: Report) -> Evidence:
    [judged] = report.changes
    return judged.load["main"]


@pytest.fixture
def settings(tmp_path: Path) -> Pair:
    return Pair(tmp_path, {SETTINGS: b'{"scale": 3}\n'}, BASE)


@pytest.fixture
def library(tmp_path: Path) -> Pair:
    return Pair(tmp_path, {LIBRARY: OTHER}, BASE)


def test_data_is_settled_by_system_calls(settings: Pair) -> None:
    report = settings.diff(strace=WHOLE)
    assert (report.verdict.outcome, report.verdict.confidence) == ("killed", "recorded")
    assert only(report).level == "unknown"
    assert only(report).settled


def test_data_is_not_settled_by_what_python_opened(settings: Pair) -> None:
    assert settings.diff().verdict.outcome == "undecided"
    assert settings.diff(loader=LOADER).verdict.outcome == "undecided"


@pytest.mark.parametrize(
    "line",
    [
        '5 newfstatat(AT_FDCWD, "/etc/app/settings.json", {st_mode=S_IFREG|0644, ...}, 0) = 0',
        '5 openat(AT_FDCWD, "../etc/app/settings.json", O_RDONLY) = -1 EACCES (Permission denied)',
        '5 chroot("/jail") = 0',
        '5 openat(9, "x", O_RDONLY) = 4',
        "5 io_uring_setup(8, {flags=0}) = 3",
        "5 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD) = 6",
        '5 openat(AT_FDCWD, "/x", O_RDONLY',
    ],
)
def test_data_that_was_looked_at_or_could_have_been_is_not_settled(settings: Pair, line: str) -> None:
    assert settings.diff(strace=(*WHOLE, line)).verdict.outcome == "undecided"


def test_data_that_a_child_program_read_is_recorded(settings: Pair) -> None:
    child = (
        "5 vfork() = 6",
        '6 execve("/bin/cat", ["cat", "settings.json"], 0x1) = 0',
        '6 openat(AT_FDCWD, "/etc/app/settings.json", O_RDONLY) = 3',
        "6 +++ exited with 0 +++",
    )
    report = settings.diff(strace=(*WHOLE, *child))
    assert report.verdict.outcome == "stands"
    assert (only(report).level, only(report).how) == ("recorded", "opened")


def test_a_child_that_the_log_did_not_follow_leaves_it_open(settings: Pair) -> None:
    child = event("spawn", call="subprocess.Popen", executable="/bin/cat", argv=["cat"], env="inherited")
    assert settings.diff(child, strace=WHOLE).verdict.outcome == "undecided"
    followed = (*WHOLE, "5 vfork() = 6", '6 execve("/bin/cat", ["cat"], 0x1) = 0', "6 +++ exited with 0 +++")
    assert settings.diff(child, strace=followed).verdict.outcome == "killed"


@pytest.mark.parametrize("missing", ["execve", "newfstatat", "openat", "access", "readlink"])
def test_a_log_without_some_kind_of_call_settles_nothing(settings: Pair, missing: str) -> None:
    lines = tuple(line for line in WHOLE if missing not in line)
    assert settings.diff(strace=lines).verdict.outcome == "undecided"


def test_data_that_python_read_is_recorded(settings: Pair) -> None:
    report = settings.diff(event("open", file="/etc/app/settings.json", mode="r"))
    assert report.verdict.outcome == "stands"
    assert report.verdict.confidence == "recorded"


def test_a_log_of_system_calls_alone_proves_no_image(settings: Pair, tmp_path: Path) -> None:
    (tmp_path / "strace.log").write_text("".join(f"{line}\n" for line in WHOLE))
    a, b = (str(tmp_path / side) for side in "ab")
    report = imgdiff.diff(a, b, traces=[str(tmp_path / "strace.log")], cache=False, jobs=1)
    assert report.verdict.outcome == "undecided"
    assert any("proves on which image" in text for text in report.verdict.caveats)


def test_a_library_is_settled_by_the_loaders_log(library: Pair) -> None:
    assert library.diff(loader=LOADER).verdict.outcome == "killed"


def test_a_library_is_not_settled_without_it(library: Pair) -> None:
    assert library.diff().verdict.outcome == "undecided"
    assert library.diff(event("map", file="/usr/lib/other.so")).verdict.outcome == "undecided"


def test_a_library_is_not_settled_where_a_child_has_libraries_of_its_own(library: Pair) -> None:
    child = event("spawn", call="subprocess.Popen", executable="/usr/bin/gcc", argv=["gcc"], env="inherited")
    assert library.diff(child, loader=LOADER).verdict.outcome == "undecided"


def test_a_child_of_which_the_loader_tells_hides_no_library(library: Pair) -> None:
    child = event("spawn", call="subprocess.Popen", executable="/usr/bin/gcc", argv=["gcc"], env="inherited")
    gcc = ("     6:\tcalling init: /lib64/ld-linux-x86-64.so.2", "     6:\tinitialize program: gcc")
    assert library.diff(child, loader=(*LOADER, *gcc)).verdict.outcome == "killed"
    assert library.diff(child, child, loader=(*LOADER, *gcc)).verdict.outcome == "undecided"
    mapped = "     6:\tcalling init: /usr/lib/libplug.so"
    assert library.diff(child, loader=(*LOADER, *gcc, mapped)).verdict.outcome == "stands"


def test_a_python_of_which_the_loader_alone_tells_leaves_all_open(library: Pair) -> None:
    other = ("     6:\tcalling init: /lib64/ld-linux-x86-64.so.2", "     6:\tinitialize program: python3.11")
    assert library.diff(loader=(*LOADER, *other)).verdict.outcome == "undecided"


def test_a_library_that_was_mapped_is_recorded(library: Pair) -> None:
    report = library.diff(loader=(*LOADER, "     5:\tcalling init: /usr/lib/libplug.so"))
    assert report.verdict.outcome == "stands"
    assert (only(report).level, only(report).how) == ("recorded", "mapped")


def test_an_added_file_is_settled_by_system_calls_alone(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {SETTINGS: b"{}"}, {**BASE, SETTINGS: None})
    assert pair.diff().verdict.outcome == "undecided"
    assert pair.diff(strace=WHOLE).verdict.outcome == "killed"


def test_an_added_file_that_was_looked_for_stands(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {SETTINGS: b"{}"}, {**BASE, SETTINGS: None})
    line = '5 openat(AT_FDCWD, "/etc/app/settings.json", O_RDONLY) = -1 ENOENT (No such file or directory)'
    report = pair.diff(strace=(*WHOLE, line))
    assert report.verdict.outcome == "stands"
    assert only(report).note == "it was looked for here"


def test_an_added_file_whose_directory_was_read_is_not_settled(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {SETTINGS: b"{}"}, {**BASE, SETTINGS: None, "etc/app/other": b""})
    line = '5 openat(AT_FDCWD, "/etc/app", O_RDONLY|O_DIRECTORY) = 3'
    assert pair.diff(strace=(*WHOLE, line)).verdict.outcome == "undecided"


def test_names_of_modules_raise_what_they_name(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {"srv/app/unused.py": b"X = 2\n"}, BASE)
    assert pair.diff().verdict.outcome == "killed"  # nothing leads to it
    (tmp_path / "log").write_text("import time:       100 |        200 |   app.unused\n")
    a, b = (str(tmp_path / side) for side in "ab")
    report = imgdiff.diff(a, b, traces=[str(tmp_path / "log")], cache=False, jobs=1)
    assert report.verdict.outcome == "stands"
    assert (only(report).level, only(report).how) == ("recorded", "executed")
