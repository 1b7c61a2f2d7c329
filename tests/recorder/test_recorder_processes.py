"""Children of every kind, and every way to end: what was seen stands in the recording."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from imgdiff import recordings
from imgdiff.recorder import MOUNTED
from tests.recorder.recorded import Process, Recorded, Stage, pythons, read

MODULES = {f"m{number}.py": f"def call():\n    return {number}\n" for number in range(6)}


SIZE = "size = os.path.getsize(f'{out}/{os.listdir(out)[0]}')"


def executed(process: Process) -> set[str]:
    return {name for name in process.names("exec") if name == "main.py" or name in MODULES}


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.abort()", -signal.SIGABRT),
        ("import faulthandler; faulthandler._sigsegv()", -signal.SIGSEGV),
        ("raise SystemExit(4)", 4),
        ("raise ValueError", 1),
    ],
)
def test_no_way_to_end_loses_what_was_seen(stage: Stage, end: str, code: int) -> None:
    stage.write(MODULES)
    ran = stage.program(f"import os, signal, m1\nopen('m2.py')\n{end}\n", code=code)
    (process,) = ran.processes
    assert executed(process) == {"main.py", "m1.py"}
    assert "m2.py" in process.names("open")
    assert bool(process.of("end")) == (end.startswith("raise"))


def test_a_forked_child_has_a_file_of_its_own(stage: Stage) -> None:
    stage.write(MODULES)
    ran = stage.program(
        "import os, m1\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    import m2\n"
        "    again = os.fork()\n"
        "    if not again:\n"
        "        import m3\n"
        "        os._exit(0)\n"
        "    os.waitpid(again, 0)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "import m4\n"
    )
    first = ran.first
    (child,) = ran.children(first)
    (grandchild,) = ran.children(child)
    assert [len(each.of("fork")) for each in (first, child, grandchild)] == [1, 1, 0]
    assert [each.start["how"] for each in (first, child, grandchild)] == ["exec", "fork", "fork"]
    assert executed(first) == {"main.py", "m1.py", "m4.py"}
    assert executed(child) == {"m2.py"}
    assert executed(grandchild) == {"m3.py"}
    assert child.of("module") == []
    assert child.start["argv"] == first.start["argv"]
    assert [name for name in child.names("map") if name.startswith("libc")]


def test_functions_of_inherited_modules(stage: Stage) -> None:
    """From 3.12 on: which files' functions ran in the child, those that were running when it forked included."""
    stage.write({**MODULES, "late.py": "def lines():\n    yield 1\n    yield 2\n"})
    ran = stage.program(
        "import os, m1, m2, m3, late\n"
        "m2.call(); m3.call()\n"
        "going = late.lines(); next(going)\n"
        "def child():\n"
        "    m1.call(); m3.call(); next(going)\n"
        "    again = os.fork()\n"
        "    if not again: m3.call(); os._exit(0)\n"
        "    os.waitpid(again, 0)\n"
        "pid = os.fork()\n"
        "if not pid: child(); os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    (child,) = ran.children(ran.first)
    (grandchild,) = ran.children(child)
    if "functions" not in child.start["coverage"]:
        assert not hasattr_monitoring(stage)
        assert child.of("function") == []
        return
    assert hasattr_monitoring(stage)
    assert child.names("function") == {"main.py", "m1.py", "m3.py", "late.py"}
    assert grandchild.names("function") == {"main.py", "m3.py"}
    assert ran.first.of("function") == []
    assert "functions" not in ran.first.start["coverage"]


def hasattr_monitoring(stage: Stage) -> bool:
    return next(int(minor[2:]) for minor, python in pythons().items() if python == stage.python) >= 12


def test_functions_can_be_left_out(stage: Stage) -> None:
    ran = stage.program("import os\nif not os.fork(): os._exit(0)\nos.wait()\n", env={"IMGDIFF_RECORD_FUNCTIONS": "0"})
    (child,) = ran.children(ran.first)
    assert "functions" not in child.start["coverage"]
    assert child.of("function") == []


def test_a_tool_that_watches_functions_keeps_its_place(stage: Stage) -> None:
    if not hasattr_monitoring(stage):
        return
    ran = stage.program(
        "import os, sys\nseen = []\n"
        "def saw(code, offset): seen.append(code.co_name)\n"
        "for tool in (3, 4): sys.monitoring.use_tool_id(tool, 'mine')\n"
        "sys.monitoring.register_callback(4, sys.monitoring.events.PY_START, saw)\n"
        "sys.monitoring.set_events(4, sys.monitoring.events.PY_START)\n"
        "def mine(): pass\n"
        "if not os.fork():\n    mine(); print(seen, flush=True); os._exit(0)\n"
        "os.wait()\n"
    )
    assert "mine" in ran.out
    (child,) = ran.children(ran.first)
    assert "functions" not in child.start["coverage"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(stage: Stage, method: str) -> None:
    stage.write(
        {**MODULES, "job.py": "def run(number):\n    import importlib\n    importlib.import_module(f'm{number}')\n"}
    )
    ran = stage.program(
        "import multiprocessing, job\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context('{method}')\n"
        "    several = [context.Process(target=job.run, args=(n,), name=f'Worker_TP{n}') for n in (1, 2)]\n"
        "    [each.start() for each in several]; [each.join() for each in several]\n"
    )
    workers = {next(iter(executed(each) - {"main.py"})): each for each in ran.processes if executed(each) - {"main.py"}}
    assert set(workers) == {"m1.py", "m2.py"}
    assert len({each.pid for each in workers.values()}) == 2
    for name, each in workers.items():
        assert f"Worker_TP{name[1]}" in {title["title"] for title in each.of("title")}
        assert each.start["how"] == ("exec" if method == "spawn" else "fork")
        if method == "spawn":
            assert {"main.py", "job.py"} <= each.names("exec")
    calls = [each["call"] for each in ran.first.of("spawn")]
    assert calls.count("multiprocessing.spawn") == (2 if method == "spawn" else 0)
    assert calls.count("multiprocessing.forkserver") == (method == "forkserver")
    assert len(ran.first.of("fork")) == (2 if method == "fork" else 0)
    if method == "forkserver":
        (server,) = [each for each in ran.processes if len(each.of("fork")) == 2]
        assert server.start["parent"] == ran.first.pid
        assert {each.start["parent"] for each in workers.values()} == {server.pid}


def test_a_pool_of_executors(stage: Stage) -> None:
    stage.write({**MODULES, "job.py": "def run(number):\n    return __import__(f'm{number}').call()\n"})
    ran = stage.program(
        "import concurrent.futures, multiprocessing, job\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    with concurrent.futures.ProcessPoolExecutor(2, context) as pool: print(sum(pool.map(job.run, range(6))))\n"
    )
    assert ran.out == "15\n"
    assert {f"m{number}.py" for number in range(6)} <= {Path(file).name for file in ran.all("exec")}


def test_programs_that_are_started(stage: Stage) -> None:
    stage.write(MODULES)
    ran = stage.program(
        "import os, pathlib, subprocess, sys\n"
        "me = sys.executable\n"
        "subprocess.run([me, '-c', 'import m1', '--password', 'hidden'], check=True)\n"
        "subprocess.run(me + ' -c \"import m2\" --token=hidden', shell=True, check=True)\n"
        "os.system(me + ' -c \"import m3\"')\n"
        "os.waitpid(os.posix_spawn(me, [me, '-c', 'import m4'], os.environ), 0)\n"
        "subprocess.run([pathlib.Path(me), '-c', 'import m5'], close_fds=False, check=True)\n"
        "os.spawnv(os.P_WAIT, me, [me, '-c', 'import m0'])\n"
    )
    spawned = ran.first.of("spawn")
    calls = ["subprocess.Popen", "subprocess.Popen", "os.system", "os.posix_spawn", "subprocess.Popen"]
    assert [each["call"] for each in spawned] == calls
    assert {each["env"] for each in spawned} == {"inherited", "own"}
    assert "hidden" not in ran.first.file.read_text()
    assert spawned[0]["executable"] == stage.python
    assert spawned[0]["argv"] == [stage.python, "-c", "import m1", "--password", "[redacted]"]
    assert spawned[2]["argv"][:2] == ["sh", "-c"]
    assert {f"m{number}.py" for number in range(6)} <= {Path(file).name for file in ran.all("exec")}
    assert ran.first.notes() == []
    (child,) = [each for each in ran.processes if each.of("spawn") and each is not ran.first]
    assert child.start["how"] == "fork"  # os.spawnv is a fork and an exec
    assert [each["call"] for each in child.of("spawn")] == ["os.exec"]


def test_exec_goes_on_under_the_same_pid(stage: Stage) -> None:
    stage.write(MODULES)
    ran = stage.program("import os, sys, m1\nos.execlp(sys.executable, 'python', '-c', 'import m2')\n")
    assert len({each.pid for each in ran.processes}) == 1
    before, after = ran.processes
    assert before.events[-1]["event"] == "spawn"
    assert before.events[-1]["call"] == "os.exec"
    assert executed(before) == {"main.py", "m1.py"}
    assert executed(after) == {"m2.py"}


def test_exec_along_path_is_one_event(stage: Stage) -> None:
    ran = stage.program(
        "import os\nos.environ['PATH'] = '/nowhere:/nowhere/else:' + os.environ['PATH']\nos.execvp('true', ['true'])\n"
    )
    assert [each["executable"].rpartition("/")[2] for each in ran.first.of("spawn")] == ["true"]


def test_a_child_with_code_of_its_own_before_exec(stage: Stage) -> None:
    ran = stage.program(
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'pass'], preexec_fn=lambda: os.nice(1), check=True)\n"
    )
    fork, after = sorted(ran.children(ran.first), key=lambda each: each.start["how"], reverse=True)
    assert (fork.start["how"], after.start["how"]) == ("fork", "exec")
    assert fork.pid == after.pid


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("subprocess.run([me, '-c', 'pass'], env={})", "its environment lacks"),
        ("subprocess.run([me, '-c', 'pass'], env={'PATH': '/bin', b'X': b'y'})", "its environment lacks"),
        ("os.environ.pop('PYTHONPATH'); os.system('true')", "its environment lacks"),
        ("os.environ['PYTHONPATH'] = '/x'; subprocess.run([me, '-c', 'pass'])", "its environment lacks"),
        ("os.posix_spawn(me, [me, '-c', 'pass'], {})", "its environment lacks"),
        ("subprocess.run([me, '-I', '-c', 'pass'])", "-I"),
        ("subprocess.run([me, '-sE', '-c', 'pass'])", "-E"),
        ("subprocess.run([me, '-W', 'ignore', '-X', 'dev', '-S', '-c', 'pass'])", "-S"),
        ("subprocess.run(['env', '-i', me, '-c', 'pass'])", "env"),
        ("subprocess.run(['./isolated'])", "-I"),
        ("os.execve(me, [me, '-c', 'pass'], {})", "its environment lacks"),
        (
            "os.environ.pop('IMGDIFF_RECORD'); p = multiprocessing.get_context('spawn').Process(target=print); p.start(); p.join()",
            "its environment lacks",
        ),
        ("subprocess.run([me, '-c', 'pass', '-I'])", None),
        ("subprocess.run([me, '-B', '-s', 'empty.py', '-E'])", None),
        ("subprocess.run([me, '-WI', '-c', 'pass'], stderr=-3)", None),
        ("subprocess.run(['env', 'X=1', me, '-c', 'pass'])", None),
        ("subprocess.run([me, '-c', 'pass'], env=dict(os.environ, X='1'))", None),
        (
            "subprocess.run([me, '-c', 'pass'], env={key.encode(): value for key, value in os.environb.items()} if 0 else None)",
            None,
        ),
    ],
)
def test_children_that_can_not_be_seen_are_noted(stage: Stage, start: str, reason: str | None) -> None:
    stage.write({"empty.py": "", "isolated": f"#!{stage.python} -I\n"})
    (stage.app / "isolated").chmod(0o755)
    ran = stage.program(
        "import multiprocessing, os, subprocess, sys\nme = sys.executable\nif __name__ == '__main__':\n    "
        + start
        + "\n"
    )
    notes = ran.first.notes()
    if reason is None:
        assert notes == []
        assert len(ran.processes) == 2
    else:
        assert [note for note in notes if reason in note], notes
        assert len([each for each in ran.processes if "-c" in each.start["argv"][1:2]]) == 0


def test_a_daemon_that_closes_everything(stage: Stage) -> None:
    """Two forks, a session of its own, all descriptors closed; its own files take what numbers they like."""
    stage.write(MODULES)
    ran = stage.program(
        "import os\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "os.closerange(0, 4096)\n"
        "import m1\n"
        "own = os.open('own.txt', os.O_CREAT | os.O_RDWR)\n"
        "for number in range(40, 1100): os.dup2(own, number)\n"
        "import m2\n"
        "os.closerange(0, 4096)\n"
        "import m3\n"
        "open('done', 'w').close()\n"
    )
    for _ in range(100):
        if (stage.app / "done").exists():
            break
        subprocess.run(["sleep", "0.1"], check=True)
    ran = Recorded(ran.code, ran.out, ran.err, read(stage.out))
    (daemon,) = [each for each in ran.processes if "m1.py" in each.names("exec")]
    assert {"m1.py", "m2.py", "m3.py"} <= daemon.names("exec")
    assert (stage.app / "own.txt").read_bytes() == b""


def test_no_descriptor_is_left_to_a_child(stage: Stage) -> None:
    ran = stage.program(
        "import os, subprocess\n"
        "print(sorted(os.listdir('/proc/self/fd')), flush=True)\n"
        "subprocess.run(['ls', '-l', '/proc/self/fd'], close_fds=False, check=True)\n"
    )
    assert ".jsonl" not in ran.out
    assert "1000" in ran.out.splitlines()[0]


def test_threads(stage: Stage) -> None:
    stage.write({"alone.py": "", **{f"t{number}.py": "import json, csv, decimal\n" for number in range(60)}})
    ran = stage.program(
        "import threading, importlib, os\n"
        "def load(first):\n"
        "    for number in range(first, 60, 6): importlib.import_module(f't{number}')\n"
        "def look(first):\n"
        "    for number in range(first, 60, 6): open(f't{number}.py').close()\n"
        "def started(work):\n"
        "    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]\n"
        "    [each.start() for each in threads]\n"
        "    return threads\n"
        "[each.join() for each in started(load)]\n"
        "threads = started(look)\n"  # 3.12.1 can wait for ever after a fork while others import, recorder or not
        "pid = os.fork()\n"
        "if not pid: os.open('alone.py', os.O_RDONLY); os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "[each.join() for each in threads]\n"
    )
    names = {f"t{number}.py" for number in range(60)}
    assert names <= ran.first.names("exec")
    assert names <= ran.first.names("open")
    (child,) = ran.children(ran.first)
    assert "alone.py" in child.names("open")


def test_a_signals_handler_gets_its_error_out(stage: Stage) -> None:
    """What a handler raises while the recorder runs reaches the program; what it imports is recorded."""
    stage.write({f"h{number}.py": "" for number in range(40)})
    ran = stage.program(
        "import signal, os\n"
        "raised = caught = 0\n"
        "inside = False\n"
        "class Rung(Exception): pass\n"
        "def ring(number, frame):\n"
        "    global raised, inside\n"
        "    if not inside: return\n"
        "    inside = False\n"
        "    raised += 1\n"
        "    if raised <= 40: __import__(f'h{raised - 1}')\n"
        "    raise Rung\n"
        "signal.signal(signal.SIGALRM, ring)\n"
        "names = [f'f{n}' for n in range(4000)]\n"
        "for name in names: open(name, 'w').close()\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)\n"
        "at = 0\n"
        "while raised < 60:\n"
        "    at += 1\n"
        "    try:\n"
        "        inside = True\n"
        "        os.stat('.'); os.open(names[at % 4000], os.O_RDONLY) if at < 500 else os.close(os.open('f1', os.O_RDONLY))\n"
        "        inside = False\n"
        "    except Rung: caught += 1\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "print(raised - caught)\n"
    )
    assert ran.out == "0\n"
    assert {f"h{number}.py" for number in range(40)} <= ran.first.names("exec")


def test_a_deep_recursion_is_the_programs_own(stage: Stage) -> None:
    ran = stage.program(
        "def deep(n):\n"
        "    try: deep(n + 1)\n"
        "    except RecursionError: open('main.py').close(); raise\n"
        "try: deep(0)\n"
        "except RecursionError: print('caught')\n"
    )
    assert (ran.out, ran.err) == ("caught\n", "")


def test_a_full_disk_is_noted_when_there_is_room_again(stage: Stage) -> None:
    """A limit on the size of files is a disk that is full for this process; then it is lifted."""
    stage.write({f"f{number}.py": "" for number in range(200)})
    ran = stage.program(
        "import resource, time, importlib\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY))\n"
        "for number in range(200): importlib.import_module(f'f{number}')\n"
        "print('still going')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
    )
    assert (ran.out, ran.err) == ("still going\n", "")
    assert {f"f{number}.py" for number in range(200)} <= ran.first.names("exec")
    assert ran.first.notes() == []  # all that waited was written in the end


@pytest.mark.parametrize(
    "before",
    [
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))",
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30,) * 2)",  # a part of a line fits
        "import os; os.seteuid(65534); os.closerange(3, 4096)",
    ],
)
def test_a_recording_whose_lines_could_never_be_written_does_not_look_whole(stage: Stage, before: str) -> None:
    if "seteuid" in before:
        if os.geteuid():
            pytest.skip("root alone can change its user")
        stage.out.chmod(0o777)
        for place in stage.out.parents[:3]:
            place.chmod(0o755)
    stage.write(MODULES)
    ran = stage.program(f"import os; out = os.environ['IMGDIFF_RECORD']\n{SIZE}\n{before}\nimport m1\n")
    assert ran.err == ""
    assert not any(name == "m1.py" for each in ran.processes for name in each.names("exec"))
    recording = recordings.read(str(stage.out))
    assert [gap for process in recording.processes for gap in process.gaps]


def test_a_directory_that_is_not_there_or_comes_later(stage: Stage) -> None:
    later = stage.app / "later"
    stage.write(MODULES)
    ran = stage.program(
        "import os, m1, time\nos.mkdir('later')\ntime.sleep(1.1)\nimport m2\n", env={"IMGDIFF_RECORD": str(later)}
    )
    assert (ran.err, ran.processes) == ("", [])
    (process,) = read(later)
    assert executed(process) == {"main.py", "m1.py", "m2.py"}
    gone = stage.run("main.py", env={"IMGDIFF_RECORD": "/dev/null/nowhere"}, code=1)
    assert "FileExistsError" in gone.err  # the program's own: it makes the directory again


def test_what_could_not_be_kept_is_counted(stage: Stage) -> None:
    """More than waits for a directory is lost, and said."""
    stage.write({"main.py": "import os, time\n"})
    ran = stage.program(
        "import os, time\n"
        "for n in range(5000):\n"
        "    name = f'{n:04}' + 'x' * 200; open(name, 'w').close(); open(name).close(); os.unlink(name)\n"
        "os.mkdir('later')\ntime.sleep(1.1)\nopen('main.py').close()\n",
        env={"IMGDIFF_RECORD": str(stage.app / "later")},
    )
    assert ran.err == ""
    (process,) = read(stage.app / "later")
    (note,) = process.notes()
    assert "could not be written" in note
    assert "No such file" in note


def test_a_changed_title_is_written(stage: Stage) -> None:
    """As the C library's functions for it do: over the command line, where the system shows it."""
    ran = stage.program(
        "import ctypes, multiprocessing, time\n"
        "libc = ctypes.CDLL(None)\n"
        "with open('/proc/self/stat') as file: fields = file.read().rpartition(')')[2].split()\n"
        "start, end = int(fields[45]), int(fields[46])\n"
        "title = b'VLLM::EngineCore'\n"
        "ctypes.memmove(start, title + bytes(end - start - len(title)), end - start) if start else None\n"
        "multiprocessing.current_process().name = 'EngineCore_DP0'\n"
        "print(bool(start))\n"
        "import csv\n"
    )
    titles = [each["title"] for each in ran.first.of("title")]
    assert "EngineCore_DP0" in titles
    if ran.out == "True\n":
        assert "VLLM::EngineCore" in titles


def test_the_recorder_directory_is_only_read() -> None:
    assert not [path for path in MOUNTED.iterdir() if path.is_dir() and path.name != "__pycache__"]
