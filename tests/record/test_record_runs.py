"""``imgdiff record IMAGE`` with real engines: what it records, how it ends, and that nothing is left behind."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from imgdiff import recordings
from tests.record.conftest import Engine
from tests.record.images import NAME, left
from tests.recorder.recorded import Process, read
from tests.services.engine import docker, holding

pytestmark = pytest.mark.engine
A, B = f"{NAME}:a", f"{NAME}:b"


def by_how(processes: list[Process]) -> list[str]:
    return sorted(each.start["how"] for each in processes)


def test_a_run_is_recorded_and_decides_the_verdict(engine: Engine) -> None:
    """The image's own command; its exit code, its output on stderr; and what differs was not loaded."""
    ran = engine.record(A, "-o", "run", code=7)
    assert "serving it ['--port', '8000']\n" in ran.err
    assert "1 Python process recorded; imgdiff A B --trace run uses it" in ran.err
    (process,) = read(engine.here / "run")
    assert process.pid == 1
    assert {"/srv/main.py", "/srv/serve.py", "/srv/lib/sitecustomize.py"} <= process.files("exec")
    assert process.notes() == []
    loaded = (engine.here / "run" / "ld.1").read_text()
    assert "calling init: " in loaded
    pair = (f"{engine.kind}:{A}", f"{engine.kind}:{B}")
    alone = engine.run(*pair, "--format", "json")
    assert json.loads(alone.out)["verdict"]["outcome"] == "undecided"
    joined = engine.run(*pair, "--format", "json", "--trace", "run")
    report = json.loads(joined.out)
    assert report["verdict"]["outcome"] == "killed", joined.err
    assert report["verdict"]["confidence"] == "recorded"
    assert (
        process.start["image"] == report["images"]["a"]["config_digest"]
        or process.start["image"] == (report["images"]["a"]["manifest_digest"])
    )
    engine.record(B, "-o", "other", "--", "--rarely", code=7)
    stands = engine.run(*pair, "--format", "json", "--trace", "other")
    assert json.loads(stands.out)["verdict"]["outcome"] == "stands"


def test_processes_of_each_kind_are_recorded(dockerd: Engine) -> None:
    """Forked, spawned, executed through a shell; killed, or ended without a word; the image's own sitecustomize."""
    ran = dockerd.record(A, "-o", "run", "--entrypoint", "/usr/bin/python3", "--", "/srv/children.py", code=3)
    assert "own mine\n" in ran.err
    assert "not seen" not in ran.err
    processes = read(dockerd.here / "run")
    assert by_how(processes) == ["exec"] * 5 + ["fork"] * 2  # the resource tracker of multiprocessing, too
    names = {name for each in processes for name in each.files("exec", "module")}
    lib = "/usr/lib/python3.11"
    assert {f"{lib}/{name}.py" for name in ("csv", "decimal", "fractions")} <= names
    killed = next(each for each in processes if f"{lib}/csv.py" in each.files("exec"))
    assert killed.start["how"] == "fork"
    assert killed.events[-1]["event"] != "end"
    assert "abcdefghijklmnop" not in "".join(each.file.read_text() for each in processes)


def test_what_is_not_seen_is_said(dockerd: Engine) -> None:
    command = ("--entrypoint", "/usr/bin/python3", "--", "/srv/children.py", "isolated", "site", "empty")
    ran = dockerd.record(A, "-o", "run", *command, code=3)
    said = [line for line in ran.err.splitlines() if line.startswith("imgdiff: not seen: ")]
    for word in ("python -I loads no recorder", "python -S loads no recorder", "lacks the recorder's variables"):
        assert [line for line in said if word in line], ran.err
    assert [line for line in said if "ran as process" in line]


def test_a_first_program_without_the_recorder_is_said(dockerd: Engine) -> None:
    ran = dockerd.record(A, "-o", "run", "--entrypoint", "", "--", "/usr/bin/python3", "-I", "-c", "pass")
    assert "/usr/bin/python3 ran as process 1 without the recorder" in ran.err
    assert "0 Python processes recorded" in ran.err


@pytest.mark.parametrize("tracer", ["ours", "strace"])
def test_system_calls(engine: Engine, tracer: str) -> None:
    """For any user, with a root file system that is only read; what was looked for and is missing; no secret."""
    strace = shutil.which("strace")
    if shutil.which("gcc" if tracer == "ours" else "strace") is None:
        pytest.skip("it is missing")
    more = {} if tracer == "ours" or strace is None else {"IMGDIFF_STRACE": strace}
    code = (
        "import os, subprocess, sys\n"
        "os.path.exists('/srv/missing.json'), open('/etc/os-release').close()\n"
        "subprocess.run(['/bin/sh', '-c', 'test -e /srv/other; : --token=abcdefghijklmnop'])\n"
        "print(os.getpid(), os.environ.get('LD_PRELOAD'), os.environ['LD_DEBUG'], flush=True)\n"
        "os._exit(5)\n"
    )
    preload = ("-e", "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libm.so.6")
    options = ("--syscalls", "-o", "run", "-u", "1234", "--read-only", *preload)
    ran = engine.record(A, *options, "--entrypoint", "/usr/bin/python3", "--", "-c", code, code=5, **more)
    assert "1 /usr/lib/x86_64-linux-gnu/libm.so.6 files\n" in ran.err  # process 1, and its environment is as ever
    assert "not seen" not in ran.err
    logs = sorted((engine.here / "run").glob("strace.*"))
    assert len(logs) >= 2
    text = "".join(log.read_text() for log in logs)
    assert '"/srv/missing.json", ' in text
    assert '"/srv/other", ' in text
    assert "abcdefghijklmnop" not in text
    assert "hf_" not in text
    pair = (f"{engine.kind}:{A}", f"{engine.kind}:{B}")
    engine.record(A, "--syscalls", "-o", "whole", code=7, **more)
    joined = engine.run(*pair, "--format", "json", "--trace", "whole")
    assert json.loads(joined.out)["verdict"]["outcome"] == "killed", joined.err


@pytest.mark.parametrize("options", [(), ("--syscalls",)], ids=["plain", "syscalls"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_it_and_keeps_the_recording(
    dockerd: Engine, signum: signal.Signals, options: tuple[str, ...]
) -> None:
    code, said = interrupted(dockerd, signum, *options)
    assert code == -signum  # a shell calls it 130 or 143
    assert "1 Python process recorded" in said
    (process,) = read(dockerd.here / "run")
    assert "/srv/waiting.py" in process.files("exec")
    assert left(dockerd.url) == ("", "")


def interrupted(engine: Engine, signum: signal.Signals, *options: str, again: bool = False) -> tuple[int, str]:
    """Record a program that waits, and interrupt imgdiff when it does; returns the exit code and what was said."""
    command = ["-o", "run", *options, "--entrypoint", "/usr/bin/python3", "--", "/srv/waiting.py"]
    if again:  # ... which takes no notice
        command[-1:] = ["-c", "import signal; signal.signal(2, signal.SIG_IGN); exec(open('/srv/waiting.py').read())"]
    process = engine.shell.start("record", "--network", "none", A, *command, env=engine.env)
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line.decode())
        if line == b"ready\n" or (again and b"Ctrl-C again" in line and b"interrupted" in line):
            process.send_signal(signum)
    process.stderr.close()
    if process.stdout is not None:
        process.stdout.close()
    return process.wait(), "".join(said)


def test_a_second_interrupt_ends_it_at_once(dockerd: Engine) -> None:
    code, said = interrupted(dockerd, signal.SIGINT, again=True)
    assert code == -signal.SIGINT
    assert "it is ended now" in said
    assert "1 Python process recorded" in said
    assert left(dockerd.url) == ("", "")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("words", [b"/containers/create", b"/start "])
def test_an_interrupt_while_it_is_made_leaves_no_container(
    dockerd: Engine, signum: signal.Signals, words: bytes
) -> None:
    with holding(dockerd.url, words) as held:
        command = ("record", "--network", "none", A, "-o", "run", "--entrypoint", "/usr/bin/python3", "--")
        process = dockerd.shell.start(*command, "/srv/waiting.py", env={**dockerd.env, "DOCKER_HOST": held.url})
        assert held.asked.wait(60)
        process.send_signal(signum)
        time.sleep(0.2)  # for it to arrive
        held.go_on.set()
        process.communicate(timeout=60)
    assert process.returncode == -signum
    assert left(dockerd.url) == ("", "")


def test_a_recording_that_was_not_copied_whole_says_so(engine: Engine) -> None:
    """... to whoever reads it later, wherever the copying ended."""
    code = "import os; open('/imgdiff/out/z.long', 'wb').write(os.urandom(8 << 20))"  # docker compresses what it sends
    with holding(engine.url, b"archive?path=%2Fimgdiff%2Fout", behind=4 << 20) as held:
        own = engine.env
        env = {name: held.url if value == engine.url else value for name, value in own.items()}
        command = ("-o", "run", "--entrypoint", "/usr/bin/python3", "--", "-c", code)
        process = engine.shell.start("record", "--network", "none", A, *command, env=env)
        assert held.asked.wait(60)
        deadline = time.monotonic() + 60
        while not (engine.here / "run" / "z.long").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        held.go_on.set()
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    recording = recordings.read(str(engine.here / "run"))
    gaps = [(each.source, gap) for each in recording.processes for gap in each.gaps]
    assert ("NOT-WHOLE", "it is of no known format") in gaps


def test_options_of_docker_run_reach_the_container(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "word").write_text("from here\n")
    (tmp_path / "env").write_text("# a comment\nFROM_FILE=1\nHERE\n\n")
    code = (
        "import os, resource, socket\n"
        "print(open('/data/word').read().strip(), os.getcwd(), os.getuid(), os.getgid(), socket.gethostname())\n"
        "print(os.environ['A'], os.environ['FROM_FILE'], os.environ['HERE'], 'NOT_HERE' in os.environ)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE), os.statvfs('/dev/shm').f_blocks * 4096)\n"
        "print(os.environ['PYTHONPATH'], os.path.exists('/scratch'), os.access('/data', os.W_OK), flush=True)\n"
    )
    options: tuple[str, ...] = (
        *("-e", "A=b=c", "-e", "NOT_HERE", "--env-file", "env", "-v", "./data:/data:ro", "-w", "/tmp", "-u", "7:8"),
        *("--hostname", "there", "--ulimit", "nofile=512:1000", "--shm-size", "8m", "--tmpfs", "/scratch"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--label", "x=y", "--name", "imgdiff-named"),
        *("-e", "PYTHONPATH=/srv", "--rm"),
    )
    limit = "(512, 1000)"
    if engine.kind == "podman":  # it adds limits of its own then, which root in a container of ours may not raise
        options = tuple(each for each in options if each not in ("--ulimit", "nofile=512:1000"))
        limit = "(1024, 1024)"
    ran = engine.record(A, "-o", "run", *options, "--entrypoint", "/usr/bin/python3", "--", "-c", code, HERE="h")
    assert f"from here /tmp 7 8 there\nb=c 1 h False\n{limit} 8388608\n/imgdiff/python:/srv True False\n" in ran.err
    assert len(read(engine.here / "run")) == 1


def test_troubles_leave_nothing_behind(dockerd: Engine) -> None:
    for arguments, words in (
        (("--entrypoint", "/no/such", A), "no such file"),
        (("--entrypoint", "", A), "has no command of its own"),
        (("nope:1",), "is no image of an engine here"),
        (("--ipc", "nonsense", A), "nonsense"),
        (("--ulimit", "nofile", A), "--ulimit nofile is not understood"),
        (("--shm-size", "much", A), "--shm-size much is not understood"),
        (("-p", "a:b:c:d", A), "--publish a:b:c:d is not understood"),
        (("--gpus", "some", A), "--gpus some is not understood"),
        (("--mount", "type=bind", A), "has no target"),
    ):
        ran = dockerd.record(*arguments, code=2)
        assert words in ran.err, ran.err
    assert not [path for path in dockerd.here.iterdir() if path.name.startswith("imgdiff-recording")]


def test_where_the_recording_goes(dockerd: Engine) -> None:
    (dockerd.here / "full").mkdir()
    (dockerd.here / "full" / "x").write_text("")
    ran = dockerd.record(A, "-o", "full", code=2)
    assert "'full' is there already, and is no empty directory" in ran.err
    dockerd.record(A, code=7)
    dockerd.record(A, "--quiet", code=7)
    found = sorted(dockerd.here.glob("imgdiff-recording-*"))
    assert len(found) == 2
    assert all(read(each) for each in found)


def test_a_name_that_is_taken(dockerd: Engine) -> None:
    made = docker("create", "--name", "imgdiff-taken", A, host=dockerd.url)
    try:
        ran = dockerd.run("record", "--name", "imgdiff-taken", A)
        assert ran.code == 2
        assert "there is a container named 'imgdiff-taken' already" in ran.err
    finally:
        docker("rm", made, host=dockerd.url)


def test_hostile_files_of_a_container_stay_out(dockerd: Engine) -> None:
    """A program may write what it likes where the recording is made."""
    code = (
        "import os\n"
        "os.symlink('/etc/passwd', '/imgdiff/out/link'); os.mkfifo('/imgdiff/out/pipe')\n"
        "os.makedirs('/imgdiff/out/deep/er'); open('/imgdiff/out/deep/er/file', 'w').close()\n"
        "open(b'/imgdiff/out/\\xff\\n', 'w').close()\n"
        "open('/imgdiff/out/a b', 'w').close()\n"
    )
    dockerd.record(A, "-o", "run", "--entrypoint", "/usr/bin/python3", "--", "-c", code)
    names = {path.name for path in (dockerd.here / "run").iterdir()}
    assert {name.rpartition(".")[2] for name in names} == {"jsonl", "1"}
    assert all((dockerd.here / "run" / name).is_file() for name in names)


def test_a_program_goes_on_when_nobody_reads_what_it_prints(dockerd: Engine) -> None:
    """A closed stderr is no reason for the program to wait for ever."""
    code = "for _ in range(200_000): print('x' * 50)\nimport json\n"
    command = ("-o", "run", "--network", "none", A, "--entrypoint", "/usr/bin/python3", "--", "-c", code)
    process = dockerd.shell.start("record", "-q", *command, env=dockerd.env)
    for stream in (process.stderr, process.stdout):
        assert stream is not None
        stream.close()
    process.wait(timeout=120)
    (recorded,) = read(dockerd.here / "run")
    assert "/usr/lib/python3.11/json/__init__.py" in recorded.files("exec")
    assert left(dockerd.url) == ("", "")


def test_the_last_call_before_the_end_is_recorded(dockerd: Engine) -> None:
    """The tracer goes with the first process of the container, and has written all that came before."""
    code = "import os; os.path.exists('/last/word'); os._exit(0)"
    dockerd.record(A, "--syscalls", "-o", "run", "--entrypoint", "/usr/bin/python3", "--", "-c", code)
    assert '"/last/word", ' in (dockerd.here / "run" / "strace.1").read_text().splitlines()[-1]
