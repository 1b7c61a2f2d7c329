"""Names that lead elsewhere than they say: what the kernel makes for a process, other roots, code that was moved."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.recorder.recorded import Stage, pythons, read

READ = {
    "fd": "fd = os.open('code.py', os.O_RDONLY)\nopened = open(f'/proc/self/fd/{fd}')",
    "dev": "fd = os.open('code.py', os.O_RDONLY)\nopened = open(f'/dev/fd/{fd}')",
    "root": "opened = open('/proc/self/root' + os.path.abspath('code.py'))",
    "cwd": "opened = open(b'/proc/self/cwd/code.py')",
    "pid": "opened = open(f'/proc/{os.getpid()}/cwd/code.py')",
}


@pytest.mark.parametrize("way", READ)
def test_what_the_kernel_names_is_the_file_behind_it(stage: Stage, way: str) -> None:
    stage.write({"code.py": "X = 1\n"})
    ran = stage.program(f"import os\n{READ[way]}\nexec(opened.read())\nassert X == 1\n")
    assert str(stage.app / "code.py") in ran.first.files("open")
    assert not [file for file in ran.first.files("open") if file.startswith(("/proc", "/dev"))]


def test_a_script_behind_a_descriptor_ran(stage: Stage) -> None:
    stage.write({"code.py": "X = 1\n"})
    command = ["bash", "-c", 'exec "$0" /proc/self/fd/9 9< code.py', stage.python]
    subprocess.run(command, cwd=stage.app, env=stage.environment(), check=True)
    [process] = read(stage.out)
    assert str(stage.app / "code.py") in process.files("exec")


@pytest.mark.parametrize("words", ["< code.py", "- < code.py", "/dev/stdin < code.py", "main.py 7< code.py"])
def test_files_that_a_process_was_given_open_are_read(stage: Stage, words: str) -> None:
    """The shell opened them: no event of Python tells of that."""
    stage.write({"code.py": "X = 1\n", "main.py": "import os\nexec(os.read(7, 99))\n"})
    command = ["bash", "-c", f'exec "$0" {words} > written.txt', stage.python]
    subprocess.run(command, cwd=stage.app, env=stage.environment(), check=True)
    [process] = read(stage.out)
    assert str(stage.app / "code.py") in process.files("open", "exec")
    assert str(stage.app / "written.txt") not in process.files("open")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to change the root")
def test_another_root_is_noted(stage: Stage) -> None:
    stage.write({"jail/code.py": "X = 1\n"})
    ran = stage.program("import os\nos.chroot('jail')\nexec(compile(open('/code.py').read(), '/code.py', 'exec'))\n")
    assert [note for note in ran.first.notes() if "root directory" in note], ran.first.events


def test_functions_of_a_module_without_source_are_told_where_it_lies(stage: Stage) -> None:
    """... also in a fork, where functions alone can run, and their code names the place of its build."""
    if int(next(minor for minor, python in pythons().items() if python == stage.python)[2:]) < 12:
        pytest.skip("function starts are seen by a Python minor from 3.12 on")
    stage.write({"build/bare.py": "def call():\n    return 1\n"})
    code = "import py_compile; py_compile.compile('build/bare.py', cfile='bare.pyc', doraise=True)"
    subprocess.run([stage.python, "-c", code], cwd=stage.app, check=True)
    ran = stage.program(
        "import os, bare\n"
        "pid = os.fork()\n"
        "if not pid:\n    bare.call()\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )  # fmt: skip
    [child] = ran.children(ran.first)
    assert str(stage.app / "bare.pyc") in child.files("function")


def test_a_fork_that_python_was_not_told_of_has_not_seen_all_functions(stage: Stage) -> None:
    stage.write({"late.py": "def call():\n    return 1\n"})
    ran = stage.program(
        "import ctypes, os, late\n"
        "pid = ctypes.CDLL(None).fork()\n"
        "if not pid:\n    late.call()\n    open('main.py')\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    [child] = ran.children(ran.first)
    assert child.start["how"] == "fork"
    assert "functions" not in child.start["coverage"]


def test_a_subinterpreter_is_told_of(stage: Stage) -> None:
    """Hooks are one interpreter's: each writes a file of its own, under the same pid."""
    ran = stage.program(
        "try:\n    import _interpreters as each\nexcept ImportError:\n"
        "    try:\n        import _xxsubinterpreters as each\n"
        "    except ImportError:\n        raise SystemExit(0)\n"
        "run = getattr(each, 'exec', None) or each.run_string\n"
        "run(each.create(), 'import fractions')\nprint('ran')\n"
    )
    if "ran" in ran.out:
        assert len({each.pid for each in ran.processes}) == 1
        assert [each for each in ran.processes if any("fractions" in file for file in each.files("exec"))]
        assert Path(ran.processes[0].file) != Path(ran.processes[1].file)


def test_a_sitecustomize_that_ends_it_ends_it(stage: Stage) -> None:
    stage.write({"site/sitecustomize.py": "import sys\nsys.exit(4)\n", "main.py": "print('no')\n"})
    place = f"{stage.environment()['PYTHONPATH']}:{stage.app / 'site'}"
    ran = stage.run("main.py", env={"PYTHONPATH": place}, code=1)  # as it does without the recorder
    assert ran.out == ""
    assert "SystemExit: 4" in ran.err
    assert f"{stage.app / 'site'}/sitecustomize.py" in ran.first.files("exec")
