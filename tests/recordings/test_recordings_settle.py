"""Which kind of recording settles which kind of file: each with the twin in which absence must settle nothing."""

from __future__ import annotations

import hashlib
import marshal
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

import pytest

import imgdiff
from imgdiff.model import Evidence, Report
from tests.recordings.made import event, start, write
from tests.support.command import PYTHON, layout
from tests.support.elf import Elf, elf_bytes
from tests.support.images import Member, MemberType

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
END = "5 +++ exited with 0 +++"
LOADER = ("     5:\tcalling init: /lib64/ld-linux-x86-64.so.2", "     5:\tinitialize program: python3.11")


class Pair:
    """Two images, and runs of b."""

    def __init__(
        self,
        directory: Path,
        changes: dict[str, bytes | None],
        base: dict[str, bytes | None],
        members: tuple[Member, ...] = (),
        members_b: tuple[Member, ...] | None = None,
        env: tuple[str, str] | None = None,
    ) -> None:
        self._directory = directory
        env_a, env_b = ({}, {}) if env is None else ({"PYTHONPATH": path} for path in env)
        self._a = layout(directory / "a", base, members, env_a)
        self._b = layout(directory / "b", {**base, **changes}, members if members_b is None else members_b, env_b)
        self._files = {path: data for path, data in {**PYTHON, **base, **changes}.items() if data is not None}

    def diff(
        self,
        *more: dict[str, Any],
        strace: tuple[str, ...] = (),
        loader: tuple[str, ...] = (),
        coverage: tuple[str, ...] = ("python", "origins", "open", "maps"),
        end: str = END,
    ) -> Report:
        """Compare them with a run: what Python did, and the logs that lie beside it. strace's begins with what the
        recorder read, and has the process's end."""
        ran = [
            event("exec", file=f"/{path}", sha256=hashlib.sha256(data).hexdigest(), name=None)
            for path, data in self._files.items()
            if path.endswith(("os.py", "site.py", "__main__.py", "engine.py", "/__init__.py")) and "json" not in path
        ]
        argv = ["python3.11", "-m", "app"]
        begin = start(5, executable="/usr/bin/python3.11", coverage=list(coverage), cwd="/srv", argv=argv)
        run = write(self._directory / "run", [begin, *ran, *more])
        if strace:
            opens = [f'5 openat(AT_FDCWD, "{each["file"]}", O_RDONLY|O_CLOEXEC) = 3' for each in ran]
            opens = opens if any("openat" in line for line in strace) else []
            lines = [strace[0], *opens, *strace[1:], *([end] if end else [])]
            (run / "strace.5").write_text("".join(f"{line}\n" for line in lines))
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


# Python modules, by how they are reached ------------------------------------------------------------------------------


def engine(text: str) -> dict[str, bytes | None]:
    """The image with another engine, and a helper that it may import."""
    return {**BASE, "srv/app/engine.py": text.encode(), "srv/app/helper.py": b"X = 1\n"}


def helped(tmp_path: Path, text: str) -> Pair:
    return Pair(tmp_path, {"srv/app/helper.py": b"X = 2\n"}, engine(text))


TRIED = "try:\n    import app.helper\nexcept ImportError:\n    pass\n\n\ndef answer(text):\n    return 1\n"
LATER = "def answer(text):\n    import app.helper\n    return 1\n"
ALWAYS = "import app.helper\n\n\ndef answer(text):\n    return 1\n"


@pytest.mark.parametrize(("text", "level"), [(TRIED, "eager"), (LATER, "deferred")])
def test_what_could_run_and_did_not_is_settled(tmp_path: Path, text: str, level: str) -> None:
    report = helped(tmp_path, text).diff()
    assert only(report).level == level
    assert (report.verdict.outcome, report.verdict.confidence) == ("killed", "recorded")


def test_what_must_run_is_disputed(tmp_path: Path) -> None:
    report = helped(tmp_path, ALWAYS).diff()
    assert report.verdict.outcome == "undecided"
    assert only(report).disputed


def test_eager_in_one_image_alone_is_disputed(tmp_path: Path) -> None:
    """The importer differs too, and is proven noise or not: what b alone imports is eager there."""
    pair = Pair(
        tmp_path,
        {"srv/app/helper.py": b"X = 2\n", "srv/app/engine.py": ALWAYS.encode()},
        engine(LATER),
    )
    assert pair.diff().verdict.outcome != "killed"


def test_an_incomplete_recording_disputes_nothing(tmp_path: Path) -> None:
    child = event("spawn", call="subprocess.Popen", executable="/opt/x", argv=["/opt/x"], env="inherited")
    report = helped(tmp_path, ALWAYS).diff(child)
    assert report.verdict.outcome == "stands"
    assert only(report).level == "eager"


def test_a_module_that_comes_is_settled_by_system_calls_alone(tmp_path: Path) -> None:
    base = {**engine(LATER), "srv/app/helper.py": None}
    pair = Pair(tmp_path, {"srv/app/helper.py": b"X = 1\n"}, base)
    assert pair.diff().verdict.outcome == "undecided"
    assert pair.diff(strace=WHOLE).verdict.outcome == "killed"
    listed = '5 openat(AT_FDCWD, "/srv/app", O_RDONLY|O_DIRECTORY) = 3'
    assert pair.diff(strace=(*WHOLE, listed)).verdict.outcome == "undecided"


def test_a_module_without_a_source_needs_its_origin(tmp_path: Path) -> None:
    code = {value: MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(f"X = {value}", "x", "exec")) for value in (1, 2)}
    base = {**engine(LATER), "srv/app/helper.py": None, "srv/app/helper.pyc": code[1]}
    pair = Pair(tmp_path, {"srv/app/helper.pyc": code[2]}, base)
    assert pair.diff().verdict.outcome == "killed"
    assert pair.diff(coverage=("python", "open", "maps")).verdict.outcome == "undecided"
    ran = event("exec", file="/build/helper.py", origin="/srv/app/helper.pyc", sha256=None, name="app.helper")
    assert pair.diff(ran).verdict.outcome != "killed"


# Other names of a file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["hardlink", "symlink"])
def test_another_name_of_a_file_is_the_file(tmp_path: Path, type_: MemberType) -> None:
    target = "srv/app/helper.py" if type_ == "hardlink" else "/srv/app/helper.py"
    link = Member("srv/app/other.py", type=type_, target=target)
    pair = Pair(tmp_path, {"srv/app/helper.py": b"X = 2\n"}, engine(LATER), (link,))
    assert pair.diff().verdict.outcome == "killed"
    ran = event("exec", file="/srv/app/other.py", sha256=hashlib.sha256(b"X = 2\n").hexdigest(), name="app.other")
    report = pair.diff(ran)
    assert report.verdict.outcome == "stands"
    assert {judged.load["main"].level for judged in report.changes} == {"recorded"}


def test_a_directory_whose_mode_changed_is_passed_by_whoever_names_what_lies_below(tmp_path: Path) -> None:
    a, b = Member("etc/app", type="dir", mode=0o755), Member("etc/app", type="dir", mode=0o700)
    pair = Pair(tmp_path, {}, BASE, (a,), (b,))
    passed = '5 newfstatat(AT_FDCWD, "/etc/app/settings.json", {st_mode=S_IFREG|0644, ...}, 0) = 0'
    outcomes = [pair.diff(strace=lines).verdict.outcome for lines in (WHOLE, (*WHOLE, passed))]
    assert outcomes[1] != "killed"


def test_a_name_that_leads_elsewhere_is_settled_where_it_was_not_looked_up(tmp_path: Path) -> None:
    """Two copies of one module; which comes first is decided by PYTHONPATH, whose change itself stays open."""
    text = "def answer(text):\n    import tool\n    return 1\n"
    base = {**BASE, "srv/app/engine.py": text.encode(), "opt/x/tool.py": b"X = 1\n", "opt/y/tool.py": b"X = 2\n"}
    pair = Pair(tmp_path, {}, base, env=("/opt/x:/opt/y", "/opt/y:/opt/x"))
    [name] = pair.diff().resolution
    assert (name.name, name.level) == ("tool", "deferred")
    assert name.settled
    found = event("exec", file="/opt/y/tool.py", sha256=hashlib.sha256(b"X = 2\n").hexdigest(), name="tool")
    [name] = pair.diff(found).resolution
    assert (name.level, name.settled) == ("recorded", None)
    child = event("spawn", call="subprocess.Popen", executable="/opt/x", argv=["/opt/x"], env="inherited")
    [name] = pair.diff(child).resolution
    assert (name.level, name.settled) == ("deferred", None)
    text = imgdiff.render(pair.diff())
    assert "not looked up in the recorded run" in " ".join(text.split())
