"""Our tracer of system calls (tracer.c), outside of containers: what it writes, held against strace and the program."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from imgdiff import recorder, recordings
from imgdiff.model import RecordedProcess
from imgdiff.recorder.settings import OURS

WAYS = pytest.mark.parametrize("way", [(), ("-p",)], ids=["notifications", "ptrace"])
STRENGTH = {"sought": 0, "listed": 1, "opened": 2, "mapped": 3}
PROGRAM = """
import os, subprocess, sys, threading
here = sys.argv[1]
os.chdir(here)
open("relative.txt").close()
descriptor = os.open("below", os.O_RDONLY | os.O_DIRECTORY)
os.close(os.open("inner.txt", os.O_RDONLY, dir_fd=descriptor))
for name in ("missing.json", "line\\nand \\"<quote>\\\\.txt", b"bytes\\xff", "x" * 200, "/" + "y" * 300):
    os.path.exists(name)
open("written.txt", "w").close()
open("both.txt", "r+").close()
try:
    os.stat("of-descriptor", dir_fd=descriptor)
except OSError:
    pass
os.fchdir(descriptor)
os.path.lexists("after-fchdir")
os.access("/asked", os.R_OK)
for link in ("/proc/self/cwd/by-cwd", f"/proc/self/fd/{descriptor}/by-fd", f"/proc/{os.getpid()}/cwd/by-pid"):
    os.path.exists(link)
os.path.exists("/proc/self/root/by-root")
os.symlink(here + "/both.txt", here + "/link.txt")
open(here + "/link.txt").close()
os.rename(here + "/link.txt", "renamed.txt", dst_dir_fd=descriptor)
os.link(here + "/both.txt", here + "/linked.txt")
os.mkdir("made"), os.rmdir("made"), os.statvfs("/usr")
for call in (lambda: os.unlink("/no/file"), lambda: os.truncate("/no/more", 1), lambda: os.getxattr("/no/attribute", "user.x")):
    try:
        call()
    except OSError:
        pass
try:
    os.readlink("/a/link")
    os.readlink("relative/link")
except OSError:
    pass
os.chdir(here)
def inside():
    open(here + "/thread.txt").close()
    subprocess.run(["cat", "child.txt"], cwd=here + "/below", check=False, stdout=subprocess.DEVNULL)
threads = [threading.Thread(target=inside) for _ in range(3)]
[each.start() for each in threads]
[each.join() for each in threads]
if os.fork() == 0:
    os.chdir("below")
    open("forked.txt").close()
    os._exit(0)
os.wait()
if os.fork() == 0:
    os._exit(3)  # of it there is nothing to say
os.wait()
try:
    os.execv("/no/such/program", ["x"])
except OSError:
    pass
sys.stdout.write("out"), sys.stdout.flush()
os.execv("/bin/sh", ["sh", "-c", "test -e /after/exec; exit 9"])
"""


@pytest.fixture(scope="session")
def tracer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if platform.machine() != "x86_64" or not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("it can't be built here")
    place = tmp_path_factory.mktemp("tracer")
    for part in recorder.parts(syscalls=True):
        if part.name == f"strace/{OURS}" and part.data is not None:
            (place / OURS).write_bytes(part.data)
            (place / OURS).chmod(0o755)
    assert (place / OURS).is_file(), "there is a compiler, and no tracer"
    done = subprocess.run([place / OURS, "-o", place / "log", "--", "/bin/true"], capture_output=True, check=False)
    if done.returncode == 125:
        pytest.skip(f"not allowed here: {done.stderr!r}")
    return place / OURS


@pytest.fixture
def everyones() -> Iterator[Path]:
    """A directory that others reach, too."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def traced(
    tracer: Path, out: Path, way: Iterable[str], *command: str | Path, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run a program under it, and wait until both have ended: the tracer holds none of the program's pipes."""
    out.mkdir(exist_ok=True)
    words = [*before, str(tracer), *way, "-o", str(out / "strace"), "--", *map(str, command)]
    done = subprocess.run(words, capture_output=True, check=False, timeout=120)
    until(lambda: not running(out))
    return done


def running(out: Path) -> bool:
    """Tell whether a tracer still writes to a directory."""
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(out / "strace") in words.split(b"\0"):
            return True
    return False


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def processes(out: Path) -> tuple[RecordedProcess, ...]:
    recording = recordings.read(str(out))
    assert recording.formats == ("strace",)
    return recording.processes


def paths(found: Iterable[RecordedProcess]) -> dict[bytes, str]:
    """Each absolute path, with the strongest of what was done to it."""
    known: dict[bytes, str] = {}
    for process in found:
        for file in process.files:
            path = file.path
            if not path.startswith(b"/"):
                path = (file.cwd or process.cwd).rstrip(b"/") + b"/" + path
            path = re.sub(rb"\A/proc/\d+/", b"/proc/self/", path)  # strace names the process
            if path not in known or STRENGTH[known[path]] < STRENGTH[file.how]:
                known[path] = file.how
    return known


def place(tmp_path: Path) -> Path:
    here = tmp_path / "pl\u00e4ce <1>"
    (here / "below").mkdir(parents=True)
    for name in ("relative.txt", "thread.txt", "both.txt", "below/inner.txt", "below/child.txt", "below/forked.txt"):
        (here / name).write_text("x")
    return here


@WAYS
def test_it_sees_what_strace_sees(tracer: Path, tmp_path: Path, way: tuple[str, ...]) -> None:
    here = place(tmp_path)
    done = traced(tracer, tmp_path / "ours", way, sys.executable, "-Wignore", "-c", PROGRAM, here)
    assert (done.returncode, done.stdout, done.stderr) == (9, b"out", b"")
    found = processes(tmp_path / "ours")
    assert [process.gaps for process in found if process.gaps] == []
    assert all(process.coverage == {"syscalls"} for process in found)
    first, shell = sorted((x for x in found if x.parent is None), key=lambda x: x.executable == "/bin/sh")
    assert (first.start, first.ended, shell.start, shell.ended) == ("exec", "replaced", "exec", "exited with 9")
    assert {child.how for child in first.children} == {"fork", "replace"}
    others = [process for process in found if process.parent == first.pid]
    assert sorted((process.start, process.ended or "") for process in others) == [
        *[("exec", "exited with 0")] * 3,
        ("fork", "exited with 0"),
        ("fork", "exited with 3"),
    ]
    known = paths(found)
    base = os.fsencode(here)
    assert known[b"/after/exec"] == "sought"
    assert known[base + b"/below/of-descriptor"] == known[base + b"/below/after-fchdir"] == "sought"
    assert known[base + b'/line\nand "<quote>\\.txt'] == known[base + b"/bytes\xff"] == "sought"
    assert known[base + b"/below/forked.txt"] == known[base + b"/both.txt"] == "opened"
    assert known[base + b"/written.txt"] == "sought"
    assert {known[base + b"/below/by-" + name] for name in (b"cwd", b"fd", b"pid")} == {"sought"}
    assert known[b"/by-root"] == known[base + b"/below/made"] == known[b"/no/file"] == known[b"/no/more"] == "sought"
    assert known[base + b"/below/renamed.txt"] == known[base + b"/linked.txt"] == known[b"/no/attribute"] == "sought"
    strace = shutil.which("strace")
    if strace is None:
        return
    shutil.rmtree(here)
    here = place(tmp_path)
    (tmp_path / "theirs").mkdir()
    command, _ = recorder.traced(
        [sys.executable, "-Wignore", "-c", PROGRAM, str(here)], {}, recorder.Tracer("strace", loader=False)
    )
    command = [word.replace("/imgdiff/strace/strace", strace) for word in command]
    command = [str(tmp_path / "theirs" / "strace") if word == "/imgdiff/out/strace" else word for word in command]
    assert subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 9
    until(lambda: not running(tmp_path / "theirs"))
    theirs = paths(x for x in processes(tmp_path / "theirs") if not x.gaps)  # a forked child has no directory there
    assert len(theirs) > 100
    missed = {path: how for path, how in theirs.items() if STRENGTH[known.get(path, "sought")] < STRENGTH[how]}
    missed |= {path: how for path, how in theirs.items() if path not in known}
    assert missed == {}


@WAYS
def test_what_is_said_once_is_said_of_each_program(tracer: Path, tmp_path: Path, way: tuple[str, ...]) -> None:
    """Repeated names cost no line; a child and a program that follows another say their own."""
    code = (
        "import os, sys\n"
        "for _ in range(500): os.path.exists('/often'); os.path.exists('/etc/passwd')\n"
        "child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n"
        "os.path.exists('/often')\n"
        "if child and len(sys.argv) < 2: os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], 'again'])\n"
    )
    assert traced(tracer, tmp_path / "out", way, sys.executable, "-c", code).returncode == 0
    seen = [b"/often" in {file.path for file in process.files} for process in processes(tmp_path / "out")]
    assert seen == [True] * 4
    text = b"".join(log.read_bytes() for log in (tmp_path / "out").iterdir())
    assert text.count(b'"/often"') == 4


@WAYS
def test_a_thread_that_becomes_another_program(tracer: Path, tmp_path: Path, way: tuple[str, ...]) -> None:
    """It goes on under the number of its process, whatever the other threads were at."""
    code = (
        "import os, threading, time\n"
        "def look():\n"
        "    while True: os.path.exists('/busy')\n"
        "threading.Thread(target=look, daemon=True).start()\n"
        "threading.Thread(target=os.execv, args=('/bin/sh', ['sh', '-c', 'test -e /busy; exit 6'])).start()\n"
        "time.sleep(60)\n"
    )
    assert traced(tracer, tmp_path / "out", way, sys.executable, "-c", code).returncode == 6
    python, shell = sorted(processes(tmp_path / "out"), key=lambda each: each.executable == "/bin/sh")
    assert (python.pid, shell.start, shell.ended) == (shell.pid, "exec", "exited with 6")
    assert b"/busy" in paths([python])
    assert b"/busy" in paths([shell])
    assert python.gaps == shell.gaps == ()


@WAYS
@pytest.mark.parametrize("end", ["os._exit(4)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_the_last_word_is_there(tracer: Path, tmp_path: Path, way: tuple[str, ...], end: str) -> None:
    code = f"import os; os.path.exists('/last/word'); {end}"
    done = traced(tracer, tmp_path / "out", way, sys.executable, "-c", code)
    assert done.returncode == {"os._exit(4)": 4, "os.kill(os.getpid(), 9)": -9, "os.abort()": -6}[end]
    [process] = processes(tmp_path / "out")
    assert b"/last/word" in paths([process])
    assert process.gaps == ()
    ended = {4: "exited with 4", -9: "killed by SIGKILL", -6: "killed by SIGABRT"}
    assert process.ended == ended[done.returncode]


@WAYS
def test_signals_and_stops_are_the_programs(tracer: Path, tmp_path: Path, way: tuple[str, ...]) -> None:
    """Signals that fall into every call: none is lost, no name either; a stopped child is stopped, and goes on."""
    code = (
        "import os, signal\n"
        "came = []\n"
        "signal.signal(signal.SIGALRM, lambda *_: came.append(1))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)\n"
        "for number in range(3000):\n"
        "    try:\n"
        "        os.stat(f'/number/{number}')\n"
        "    except FileNotFoundError:\n"
        "        pass\n"  # and nothing else: no stat is interrupted
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "assert len(came) > 10, came\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os.kill(os.getpid(), signal.SIGSTOP); os.path.exists('/gone/on'); os._exit(5)\n"
        "assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])\n"
        "os.kill(child, signal.SIGCONT)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5\n"
    )
    done = traced(tracer, tmp_path / "out", way, sys.executable, "-c", code)
    assert (done.returncode, done.stderr) == (0, b"")
    known = paths(processes(tmp_path / "out"))
    assert {b"/number/%d" % number for number in range(3000)} <= set(known)
    assert b"/gone/on" in known


@WAYS
def test_many_at_once(tracer: Path, tmp_path: Path, way: tuple[str, ...]) -> None:
    """More processes than the tracer may have files open."""
    code = (
        "import os, time\n"
        "for number in range(40):\n"
        "    if not os.fork():\n"
        "        for one in range(50): os.path.exists(f'/of/{number}/{one}')\n"
        "        open('/proc/self/stat').close()\n"
        "        time.sleep(0.5); os.path.exists(f'/last/{number}'); os._exit(0)\n"
        "for _ in range(40): os.wait()\n"
    )
    before = ("prlimit", "--nofile=24:24")
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is missing")
    assert traced(tracer, tmp_path / "out", way, sys.executable, "-c", code, before=before).returncode == 0
    found = processes(tmp_path / "out")
    assert len(found) == 41
    assert [process.gaps for process in found if process.gaps] == []
    known = paths(found)
    assert {b"/of/%d/%d" % (number, one) for number in range(40) for one in range(50)} <= set(known)
    assert {b"/last/%d" % number for number in range(40)} <= set(known)


@WAYS
def test_a_log_that_could_not_be_written_is_not_whole(tracer: Path, tmp_path: Path, way: tuple[str, ...]) -> None:
    """As on a full disk."""
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is missing")
    code = "import os\nfor number in range(2000): os.path.exists(f'/number/{number}')"
    before = ("prlimit", "--fsize=50000")
    assert traced(tracer, tmp_path / "out", way, sys.executable, "-c", code, before=before).returncode == 0
    [process] = processes(tmp_path / "out")
    assert b"/number/1999" not in paths([process])
    assert process.gaps


@WAYS
def test_calls_of_another_architecture_are_said_to_be_unseen(
    tracer: Path, tmp_path: Path, way: tuple[str, ...]
) -> None:
    source = tmp_path / "old.c"
    source.write_text(
        '#include <sys/stat.h>\nint main(void) { struct stat s; int r; stat("/seen", &s);\n'
        '__asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return stat("/seen/too", &s) == 0; }\n'
    )
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    subprocess.run([compiler, "-o", tmp_path / "old", source], check=True)
    if subprocess.run([tmp_path / "old"], check=False).returncode != 0:
        pytest.skip("the kernel has no such calls")
    assert traced(tracer, tmp_path / "out", way, tmp_path / "old").returncode == 0
    [process] = processes(tmp_path / "out")
    assert "it makes system calls of another architecture" in process.gaps
    assert {b"/seen", b"/seen/too"} <= set(paths([process]))


@WAYS
def test_a_program_that_changes_its_user(tracer: Path, tmp_path: Path, way: tuple[str, ...]) -> None:
    """Its memory may then be read by ptrace alone, and until it becomes another program by nobody."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("it needs root and setpriv")
    tmp_path.chmod(0o755)
    out = tmp_path / "out"
    code = "for i in 1 2 3; do test -e /after/change/$i; test -e /after/change; done; cat /etc/hostname >/dev/null"
    change = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    before = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all")
    done = traced(tracer, out, way, *change, "sh", "-c", code, before=before)
    assert (done.returncode, done.stderr) == (0, b"")
    known = paths(processes(out))
    assert {b"/after/change", b"/after/change/1", b"/after/change/2", b"/after/change/3"} <= set(known)
    text = b"".join(log.read_bytes() for log in out.iterdir())
    assert any(process.gaps for process in processes(out)), text


@WAYS
def test_how_an_open_ends(tracer: Path, everyones: Path, way: tuple[str, ...]) -> None:
    """As it did: what is not there, may not be read or is there already was not opened; links are followed, those of
    the kernel's, too, and links that the program changes each time."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("it needs root and setpriv")
    tracer = Path(shutil.copy(tracer, everyones / OURS))
    here = everyones / "here"
    (here / "closed").mkdir(parents=True)
    (here / "mine").mkdir()
    (here / "mine").chmod(0o777)
    for name in ("one", "two", "input", "secret", "closed/file"):
        (here / name).write_text("x")
    (here / "secret").chmod(0o600)
    (here / "closed").chmod(0o700)
    code = (
        "import os, sys\n"
        "os.chdir(sys.argv[1])\n"
        "for name in ('secret', 'closed/file', 'missing', 'one/below', 'one'):\n"
        "    try:\n"
        "        os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL if name == 'one' else os.O_RDONLY))\n"
        "    except OSError: continue\n"
        "    print('opened', name)\n"
        "for target in ('one', 'two'):\n"
        "    os.symlink('../' + target, 'mine/link')\n"
        "    open('mine/link').close()\n"
        "    os.unlink('mine/link')\n"
        "descriptor = os.open('input', os.O_RDONLY)\n"
        "os.dup2(descriptor, 0)\n"
        "for name in ('/dev/stdin', '/dev/fd/0', '/proc/self/fd/0', '/proc/self/exe', '/proc/self/status'):\n"
        "    open(name).close()\n"
        "open('mine/made', 'w+').close()\n"
    )
    out = everyones / "out"
    out.mkdir()
    out.chmod(0o777)
    before = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    python = os.path.realpath("/usr/bin/python3")
    done = traced(tracer, out, way, python, "-c", code, here, before=before)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    [process] = processes(out)
    assert process.gaps == ()
    known = paths([process])
    base = os.fsencode(here)
    assert {name: known[base + b"/" + name] for name in (b"secret", b"closed/file", b"missing", b"one/below")} == {
        b"secret": "sought",
        b"closed/file": "sought",
        b"missing": "sought",
        b"one/below": "sought",
    }
    assert known[base + b"/one"] == known[base + b"/two"] == known[base + b"/input"] == "opened"
    assert known[os.fsencode(python)] == "mapped"
    assert known[base + b"/mine/made"] == "opened"
    log = next(iter(out.iterdir())).read_text()
    assert log.count(f"<{here}/input>") == 4  # once by its own name


def test_what_can_not_be_done_is_said(tracer: Path, tmp_path: Path) -> None:
    done = traced(tracer, tmp_path / "out", (), "no-such-program")
    assert (done.returncode, done.stdout) == (127, b"")
    assert done.stderr == b"imgdiff: no-such-program: No such file or directory\n"
    done = traced(tracer, tmp_path / "out", (), "/etc/passwd")
    assert done.returncode == 126
    if shutil.which("setarch") is not None:
        old = traced(tracer, tmp_path / "out", (), "/bin/true", before=("setarch", "x86_64", "--uname-2.6"))
        assert old.returncode == 125
        assert b"the kernel is older than 4.8" in old.stderr


def test_the_program_sees_no_tracer(tracer: Path, tmp_path: Path) -> None:
    """Its process number, parent, signals, descriptors and variables are its own."""
    code = (
        "import os, signal, sys\n"
        "print(os.getppid(), sorted(os.listdir('/proc/self/fd')), signal.pthread_sigmask(signal.SIG_BLOCK, []),\n"
        "      os.environ.get('MINE'), os.environ.get('OTHER'), sys.argv)\n"
    )
    command = [sys.executable, "-c", code, "-x", "--", "y"]
    environment = {"OTHER": "1", "PATH": os.environ["PATH"]}
    plain = subprocess.run(command, env={**environment, "MINE": "a=b"}, capture_output=True, check=True).stdout
    (tmp_path / "out").mkdir()
    words = [str(tracer), "-o", str(tmp_path / "out" / "strace"), "-E", "MINE=a=b", "--", *command]
    assert subprocess.run(words, env=environment, capture_output=True, check=True).stdout == plain
    until(lambda: not running(tmp_path / "out"))
