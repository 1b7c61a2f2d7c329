"""Recordings are read by their content: ours, the loader's and dumps of maps, whole or not."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgdiff import recordings
from imgdiff.errors import RecordingError
from imgdiff.model import RecordedProcess, Recording
from imgdiff.recordings import _lines
from tests.recordings.made import event, ran, start, write

SHA = "ab" * 32


def only(recording: Recording) -> RecordedProcess:
    assert len(recording.processes) == 1
    return recording.processes[0]


def real(process: RecordedProcess) -> set[str]:
    return {os.path.realpath(path) for path, how in files(process) if how == "mapped"}


def files(process: RecordedProcess) -> set[tuple[str, str]]:
    return {(os.fsdecode(each.path), each.how) for each in process.files}


def test_ours_says_what_a_process_was_and_did(tmp_path: Path) -> None:
    lines = [
        start(7, 3, argv=["vllm", "serve"], image="sha256:1"),
        event("module", name="os", file="/usr/lib/os.py", cached="/usr/lib/__pycache__/os.pyc", before=True),
        ran("/opt/x.py", SHA, name="x"),
        ran("<frozen importlib._bootstrap>"),
        event("extension", name="_json", file="/opt/_json.so", sha256=None),
        event("open", file="/etc/x.conf", mode="r", cwd="/etc"),
        event("map", file="/usr/lib/libc.so.6"),
        event("function", file="/opt/y.py"),
        event("fork"),
        event("spawn", call="subprocess.Popen", executable="/usr/bin/gcc", argv=["gcc", "-c"], env="inherited"),
        event("spawn", call="subprocess.Popen", executable=None, argv=["python3", "x"], env="empty-of-recorder"),
        event("title", title="VLLM::EngineCore"),
        event("end", t=9.5, how="exit"),
    ]
    recording = recordings.read(str(write(tmp_path / "r", lines)))
    process = only(recording)
    assert recording.formats == ("imgdiff",)
    assert (process.pid, process.parent, process.start, process.place) == (7, 3, "exec", "host")
    assert process.argv == ("vllm", "serve")
    assert process.image == "sha256:1"
    assert process.titles == ("VLLM::EngineCore",)
    assert process.coverage == {"python"}  # maps now and then show no library that came and went
    assert files(process) == {
        ("/usr/lib/os.py", "before"),
        ("/usr/lib/__pycache__/os.pyc", "before"),
        ("/opt/x.py", "executed"),
        ("/opt/_json.so", "mapped"),
        ("/etc/x.conf", "opened"),
        ("/usr/lib/libc.so.6", "mapped"),
        ("/opt/y.py", "started"),
    }
    assert next(each for each in process.files if each.path == b"/opt/x.py").digest == bytes.fromhex(SHA)
    assert next(each for each in process.files if each.path == b"/etc/x.conf").cwd == b"/etc"
    assert [(child.how, child.program, child.whole) for child in process.children] == [
        ("fork", None, True),
        ("exec", "/usr/bin/gcc", True),
        ("exec", "python3", False),
    ]
    assert process.ended == "exit"
    assert process.started is not None
    assert process.last == process.started + 9.5
    assert process.gaps == ()


@pytest.mark.parametrize(("words", "covered"), [(["python"], set()), (["python", "open"], {"python"})])
def test_python_is_covered_only_where_opened_text_is_seen_too(
    tmp_path: Path, words: list[str], covered: set[str]
) -> None:
    assert only(recordings.read(str(write(tmp_path / "r", [start(1, coverage=words)])))).coverage == covered


@pytest.mark.parametrize("damage", ["cut", "rubbish", "unknown word", "bad digest", "too long", "second start"])
def test_what_could_not_be_read_is_a_gap(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lines, "LONGEST", 5000)
    path = next(write(tmp_path / "r", [start(1), ran("/opt/x.py")]).iterdir())
    more = {
        "cut": '{"event":"exec","file":"/op',
        "rubbish": "\x00\xff what\n",
        "unknown word": '{"event":"later","t":1}\n',
        "bad digest": '{"event":"exec","t":1,"file":"/opt/z.py","sha256":"zz"}\n',
        "too long": json.dumps(ran("/" + "x" * 6000)) + "\n",
        "second start": json.dumps(start(1)) + "\n",
    }[damage]
    with path.open("a", encoding="latin-1") as file:
        file.write(more)
    process = only(recordings.read(str(path)))
    assert len(process.gaps) >= 1
    assert ("/opt/x.py", "executed") in files(process)


def test_a_note_is_a_gap(tmp_path: Path) -> None:
    lines = [start(1), event("note", what="a child with an empty environment", reason="it does not load the recorder")]
    assert "an empty environment" in only(recordings.read(str(write(tmp_path / "r", lines)))).gaps[0]


def test_paths_that_are_no_text_come_back_as_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(start(1)) + "\n" + json.dumps(ran("/opt/\udcff\udcfe.py")) + "\n", "utf-8")
    assert only(recordings.read(str(path))).files[0].path == b"/opt/\xff\xfe.py"


def test_a_later_version_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = next(write(tmp_path / "r", [start(1, schema="imgdiff/recording/v2")]).iterdir())
    with pytest.raises(RecordingError, match="imgdiff/recording/v2"):
        recordings.read(str(path))


@pytest.mark.parametrize("content", [b"", b"\x00" * 5000, b"hello\nworld\n", b"{}\n", b"\x1f\x8b\x08broken"])
def test_what_is_no_recording_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as caught:
        recordings.read(str(path))
    assert "\n" not in str(caught.value)
    with pytest.raises(RecordingError):
        recordings.read(str(tmp_path / "missing"))


def test_a_file_of_no_format_beside_others_may_be_a_process(tmp_path: Path) -> None:
    directory = write(tmp_path / "r", [start(1)])
    (directory / "host-9-1.jsonl").write_bytes(b"")
    (directory / "README.md").write_text("about")
    recording = recordings.read(str(directory))
    assert [each.pid for each in recording.processes] == [1, None]
    assert len(recording.notes) == 2


def test_an_archive_and_compressed_files_are_the_same_recording(tmp_path: Path) -> None:
    directory = write(tmp_path / "r", [start(1), ran("/opt/x.py")], [start(2, 1, "fork")])
    with tarfile.open(tmp_path / "r.tar.gz", "w:gz") as archive:
        archive.add(directory, "r")
    plain, packed = recordings.read(str(directory)), recordings.read(str(tmp_path / "r.tar.gz"))
    assert [(each.pid, each.files) for each in plain.processes] == [(each.pid, each.files) for each in packed.processes]
    assert plain.digest != packed.digest


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_other_encodings_that_say_so_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x"
    path.write_bytes((json.dumps(start(1)) + "\r\n" + json.dumps(ran("/opt/ü.py")) + "\r\n").encode(encoding))
    process = only(recordings.read(str(path)))
    assert process.files[0].path == "/opt/ü.py".encode()
    assert process.gaps == ()


def test_the_digest_is_that_of_the_bytes_and_names(tmp_path: Path) -> None:
    directory = write(tmp_path / "r", [start(1)], [start(2)])
    before = recordings.digest(str(directory))
    assert recordings.read(str(directory)).digest == before
    with next(iter(sorted(directory.iterdir()))).open("a") as file:
        file.write(json.dumps(ran("/opt/x.py")) + "\n")
    assert recordings.digest(str(directory)) == recordings.read(str(directory)).digest != before


def test_a_role_can_be_said_with_the_file(tmp_path: Path) -> None:
    directory = write(tmp_path / "r", [start(1)])
    assert only(recordings.read(f"worker={directory}")).role == "worker"
    strange = tmp_path / "a=b"
    write(strange, [start(1)])
    assert only(recordings.read(str(strange))).role is None


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecordingError, match="neither"):
        recordings.read(str(tmp_path / "pipe"))


@pytest.mark.parametrize("argument", ["", "worker=", "a\0b"])
def test_an_empty_name_is_not_the_working_directory(argument: str) -> None:
    with pytest.raises(RecordingError):
        recordings.read(argument)


def test_each_directory_is_a_run_and_single_files_are_one_together(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1", [start(1)], [start(2, 1)]), write(tmp_path / "2", [start(1)])
    assert [len(run.processes) for run in recordings.runs([str(one), str(two)])] == [2, 1]
    [run] = recordings.runs([str(path) for path in sorted(one.iterdir())])
    assert [each.pid for each in run.processes] == [1, 2]


def test_the_loaders_own_log_of_a_real_process(tmp_path: Path) -> None:
    code = "import _ctypes; print(open('/proc/self/maps').read(), flush=True)"
    env = {**os.environ, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / "ld")}
    ran_ = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps" / "42.maps").write_text(ran_.stdout)
    [log] = tmp_path.glob("ld.*")
    loaded, dumped = only(recordings.read(str(log))), only(recordings.read(str(tmp_path / "maps")))
    assert loaded.pid == int(log.suffix[1:])
    assert loaded.coverage == {"libraries"}
    assert loaded.start == dumped.start == "unknown"
    assert dumped.pid == 42
    assert not dumped.coverage
    assert real(loaded) - real(dumped) == set()
    assert {Path(each).name.partition(".so")[0] for each in real(dumped) - real(loaded)} <= {
        Path(os.path.realpath(sys.executable)).name
    }


def test_a_forked_process_in_its_parents_loader_log() -> None:
    log = b"  10:\tcalling init: /lib/libc.so.6\n  10:\tinitialize program: python3\n  11:\tcalling init: /opt/x.so\n"
    stream = _lines.Lines(io.BytesIO(log))
    parent, child = recordings.ld_debug.read(stream, "ld.10")
    assert (parent.pid, parent.parent, child.pid, child.parent) == (10, None, 11, 10)
    assert files(child) == {("/opt/x.so", "mapped")}


def test_the_loaders_log_and_maps_join_the_process_of_their_pid(tmp_path: Path) -> None:
    directory = write(tmp_path / "r", [start(12, coverage=["python", "open"])])
    (directory / "ld.12").write_text("  12:\tcalling init: /opt/a.so\n")
    (directory / "12.maps").write_text("7f00-7f01 r-xp 00000000 08:01 5   /opt/b.so\n7f01-7f02 rw-p 00000000 00:00 0\n")
    process = only(recordings.read(str(directory)))
    assert files(process) == {("/opt/a.so", "mapped"), ("/opt/b.so", "mapped")}
    assert process.coverage == {"python", "libraries"}


def test_maps_of_data_and_of_files_that_are_gone() -> None:
    text = (
        b"7f0000000000-7f0000001000 r--p 00000000 08:01 5                          /opt/a b.gguf (deleted)\n"
        b"7f0000001000-7f0000002000 r-xp 00000000 08:01 6                          /opt/c\\012d.so\n"
        b"7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]\n"
    )
    [process] = recordings.maps.read(_lines.Lines(io.BytesIO(text)), "x")
    assert files(process) == {("/opt/a b.gguf", "opened"), ("/opt/c\nd.so", "mapped")}


@pytest.mark.parametrize("limit", ["_MOST_PROCESSES", "_MOST_FILES"])
def test_more_than_one_run_can_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(recordings, limit, 2)
    directory = write(tmp_path / "r", *([start(pid), ran("/opt/x.py")] for pid in (1, 2, 3)))
    with tarfile.open(tmp_path / "r.tar", "w") as archive:
        archive.add(directory, "r")
    for path in (directory, tmp_path / "r.tar"):
        with pytest.raises(RecordingError, match="more than"):
            recordings.read(str(path))


def test_a_log_of_any_size_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lines, "MOST_FILES", 100)
    path = next(write(tmp_path / "r", [start(1), *(ran(f"/opt/{n}.py") for n in range(200))]).iterdir())
    process = only(recordings.read(str(path)))
    assert len(process.files) == 100
    assert "100 files" in process.gaps[0]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([b'{"event":"exec","file":"/x"}', b"\n", b"{" * 50])))
)
def test_rubbish_never_breaks_the_reader(tmp_path: Path, rubbish: list[bytes]) -> None:
    path = tmp_path / "x"
    path.write_bytes(json.dumps(start(1)).encode() + b"\n" + b"\n".join(rubbish))
    process = only(recordings.read(str(path)))
    assert process.pid == 1


@settings(max_examples=60)
@given(st.binary(max_size=400), st.integers(1, 7))
def test_lines_are_those_of_the_whole_however_it_comes(data: bytes, step: int) -> None:
    class Slow:
        def __init__(self) -> None:
            self.at = 0

        def read(self, size: int, /) -> bytes:
            self.at += step
            return data[self.at - step : self.at][:size]

    found = list(_lines.Lines(Slow()))
    marks: tuple[Any, ...] = tuple(mark for mark, _ in _lines._MARKS)
    if not data.startswith(marks):
        whole = data.split(b"\n")
        whole = whole if whole[-1] else whole[:-1]
        assert found == [line.removesuffix(b"\r") for line in whole]


@pytest.mark.parametrize(("text", "why"), [("FROM scratch\n", "it is of no known format"), ("", "it is empty")])
def test_a_file_that_is_no_recording_is_named_once(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text(text)
    with pytest.raises(RecordingError) as caught:
        recordings.read(str(file))
    assert str(caught.value) == f"{file} is no recording that is known: {why}"
