"""What one process loads stands in its recording, and the process is none the wiser."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from imgdiff.recorder import MOUNTED
from tests.recorder.recorded import Recorded, Stage

# Says everything about itself that a program could notice.
NOTICING = """\
import os, sys
before = sorted(sys.modules)
import atexit, gc, threading
print(sys.path, sys.argv, sys.flags, len(sys.meta_path), len(sys.path_hooks))
print(sorted(key for key in sys.path_importer_cache))
print(before)
print(sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) < 60))
print(os.open("main.py", os.O_RDONLY), threading.active_count(), sys.gettrace(), sys.getprofile(), gc.isenabled())
print(sys.dont_write_bytecode, [name for name in sys.modules if "imgdiff" in name])
try:
    import sitecustomize
    print(sitecustomize.__file__, sitecustomize.__spec__.origin, vars(sitecustomize).get("NAME"))
except Exception as error:
    print(type(error), error, getattr(error, "name", None))
"""
FILES = {
    "pkg/__init__.py": "from . import sub\n",
    "pkg/sub.py": "import importlib\nlate = importlib.import_module('pkg.late')\n",
    "pkg/late.py": "NAME = 'ü'\n",
    "pkg/never.py": "",
    "plain.txt": "data",
    "loaded_by_path.py": "X = 1\n",
}


def without(stage: Stage, *arguments: str, env: dict[str, str] | None = None) -> Recorded:
    """Run a program as it is, without the recorder."""
    environment = stage.environment(env)
    del environment["IMGDIFF_RECORD"]
    if not env or "PYTHONPATH" not in env:
        del environment["PYTHONPATH"]
    done = subprocess.run(
        [stage.python, *arguments], cwd=stage.app, env=environment, capture_output=True, text=True, check=False
    )
    return Recorded(done.returncode, done.stdout, done.stderr)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_ran_and_was_opened_is_written(stage: Stage) -> None:
    stage.write(FILES)
    ran = stage.program(
        "import os, pkg, importlib.util, runpy\n"
        "spec = importlib.util.spec_from_file_location('given', 'loaded_by_path.py')\n"
        "spec.loader.exec_module(importlib.util.module_from_spec(spec))\n"
        "open('plain.txt').read(); open(b'plain.txt', 'rb').read(); os.open('pkg/never.py', os.O_RDONLY)\n"
        "open('new.txt', 'w').write('x')\n"
        "exec('1 + 1'); exec(compile('2', '<here>', 'exec'))\n"
        "for name in ('missing', '/proc/self/status', '/dev/null', '.'):\n"
        "    try: os.open(name, os.O_RDONLY)\n"
        "    except OSError: pass\n"
    )
    (process,) = ran.processes
    app = str(stage.app)
    executed = {each["file"]: each for each in process.of("exec")}
    for name in ("main.py", "pkg/__init__.py", "pkg/sub.py", "pkg/late.py", "loaded_by_path.py"):
        assert executed[f"{app}/{name}"]["sha256"] == sha256(stage.app / name)
    assert executed[f"{app}/pkg/late.py"]["name"] == "pkg.late"
    assert executed[f"{app}/loaded_by_path.py"]["name"] == "given"
    assert executed[f"{app}/main.py"]["name"] == "__main__"
    assert f"{app}/pkg/never.py" not in executed
    assert not [file for file in executed if "<" in file]
    opened = {each["file"]: each["mode"] for each in process.of("open")}
    assert opened[f"{app}/plain.txt"] == "r"
    assert opened[f"{app}/pkg/never.py"] == "r"
    assert f"{app}/new.txt" not in opened
    assert not [file for file in opened if file.startswith(("/proc", "/dev", app + "/missing")) or file == app]
    keys = [(each["event"], each["file"]) for each in process.events if each.get("file") and each["event"] != "module"]
    assert len(keys) == len(set(keys)), "once per file and process"
    assert process.events[-1]["event"] == "end"
    assert process.notes() == []


def test_the_start_says_who_it_is(stage: Stage) -> None:
    env = {"VLLM_PORT": "5", "HF_TOKEN": "hf_secret", "UNRELATED": "x", "VLLM_URL": "http://me:pass@host/x"}
    ran = stage.run(
        "-c", "pass", "--api-key", "secret1", "--token=secret2", env={**env, "IMGDIFF_RECORD_IMAGE": "me:1"}
    )
    start = ran.first.start
    assert start["schema"] == "imgdiff/recording/v1"
    assert (start["how"], start["parent"], start["cwd"]) == ("exec", os.getpid(), str(stage.app))
    assert start["executable"] == stage.python
    assert start["image"] == "me:1"
    assert start["argv"][1:] == ["-c", "pass", "--api-key", "[redacted]", "--token=[redacted]"]
    assert start["env"]["VLLM_PORT"] == "5"
    assert start["env"]["HF_TOKEN"] == "[redacted]"
    assert "UNRELATED" not in start["env"]
    assert start["flags"]["isolated"] == 0
    assert {"python", "open", "maps"} <= set(start["coverage"])
    text = ran.first.file.read_text()
    assert not [secret for secret in ("secret1", "secret2", "hf_secret", "pass@") if secret in text]
    assert ran.first.file.name.startswith(f"{start['hostname']}-{start['pid']}-")
    assert not [entry for entry in start["path"] if "mounted" in entry]


def test_what_was_there_before_is_written_as_such(stage: Stage) -> None:
    ran = stage.program("import sys\nprint(sys.modules['encodings.utf_8'].__spec__.origin, 'site' in sys.modules)\n")
    before = {each["name"]: each for each in ran.first.of("module")}
    assert all(each["before"] for each in before.values())
    origin = ran.out.split()[0]
    assert before["encodings.utf_8"]["file"] == origin
    assert before["encodings.utf_8"]["sha256"] == sha256(Path(origin))
    assert before["sys"]["file"] is None
    assert not [name for name in before if "imgdiff" in name or name == "sitecustomize"]


def test_extensions_and_libraries_are_written(stage: Stage) -> None:
    ran = stage.program("import ctypes, _ctypes, _elementtree\nctypes.CDLL('libutil.so.1')\nopen('main.py')\n")
    mapped = ran.first.names("map")
    assert [name for name in mapped if name.startswith(("libc.so", "libc-"))]
    assert [name for name in mapped if name.startswith("libutil")]
    if hasattr_file(stage, "_ctypes"):
        (one,) = [each for each in ran.first.of("extension") if each["name"] == "_ctypes"]
        assert one["file"] in ran.first.files("map")


def hasattr_file(stage: Stage, name: str) -> bool:
    code = f"import {name}; raise SystemExit(not hasattr({name}, '__file__'))"
    return subprocess.run([stage.python, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("own", ["none", "good", "bad", "missing"])
def test_the_program_does_not_notice(stage: Stage, own: str) -> None:
    """The same words about itself with and without the recorder, with a sitecustomize of the image and without."""
    texts = {
        "good": "import json\nNAME = 'mine'\n",
        "bad": "raise ValueError('no good')\n",
        "missing": "import not_there_at_all\n",
    }
    stage.write({"main.py": NOTICING, **({"site/sitecustomize.py": texts[own]} if own in texts else {})})
    place = str(stage.app / "site")
    plain = without(stage, "main.py", env={"PYTHONPATH": place})
    both = f"{stage.environment()['PYTHONPATH']}:{place}"
    ran = stage.run("main.py", env={"PYTHONPATH": both})
    own_modules = set(ran.first.start["own"])
    assert len(own_modules) <= 6
    noticed, expected = ran.out.splitlines(), plain.out.splitlines()
    modules, known = (set(ast.literal_eval(lines.pop(2))) for lines in (noticed, expected))
    assert modules - own_modules == known - own_modules
    assert noticed == expected
    assert ran.err == plain.err
    if own in texts:
        assert f"{place}/sitecustomize.py" in ran.first.files("exec")


def test_a_module_without_source_has_the_name_it_lies_under(stage: Stage) -> None:
    """Its code says where it was built, where another file may lie by now."""
    stage.write({"build/bare.py": "VALUE = 1\n", "main.py": "import bare\nprint(bare.VALUE)\n"})
    code = "import py_compile; py_compile.compile('build/bare.py', cfile='bare.pyc', doraise=True)"
    subprocess.run([stage.python, "-c", code], cwd=stage.app, check=True)
    ran = stage.run("main.py")
    (one,) = [each for each in ran.first.of("exec") if each["name"] == "bare"]
    assert one["file"] == str(stage.app / "bare.pyc")
    assert one["sha256"] == sha256(stage.app / "bare.pyc")
    assert not [file for file in ran.first.files("exec") if "build" in file]


def test_modules_of_an_archive_have_no_file(stage: Stage) -> None:
    with zipfile.ZipFile(stage.app / "lib.zip", "w") as archive:
        archive.writestr("zipped.py", "X = 1\n")
    ran = stage.program("import sys\nsys.path.append('lib.zip')\nimport zipped\n")
    (one,) = [each for each in ran.first.of("exec") if each["name"] == "zipped"]
    assert (one["file"].endswith("lib.zip/zipped.py"), one["sha256"]) == (True, None)
    assert str(stage.app / "lib.zip") in ran.first.files("open")


def test_the_bytecode_that_ran_is_opened(stage: Stage) -> None:
    stage.write({"cached.py": "X = 1\n", "main.py": "import cached\n"})
    stage.run("main.py", env={"PYTHONDONTWRITEBYTECODE": ""})
    ran = stage.run("main.py")
    assert len(ran.processes) == 2
    assert "cached.py" not in {Path(file).name for file in ran.processes[1].files("open")}
    assert any(name.startswith("cached.cpython-") for name in ran.processes[1].names("open"))


def test_names_of_any_bytes_and_relative_ones_under_another_directory(stage: Stage) -> None:
    stage.write({"a/data.txt": "", "b/data.txt": ""})
    ran = stage.program(
        "import os\n"
        "open(b'n\\xffame\\n', 'w').close(); open(b'n\\xffame\\n')\n"
        "open('ü😀\\\\\"', 'w').close(); open('ü😀\\\\\"')\n"
        "for place in 'ab':\n    os.chdir(place); open('data.txt'); os.chdir('..')\n"
    )
    opened = ran.first.files("open")
    app = str(stage.app)
    assert {f"{app}/n\udcffame\n", f'{app}/ü😀\\"', f"{app}/a/data.txt", f"{app}/b/data.txt"} <= opened


def test_a_script_in_a_pipe_is_not_read(stage: Stage) -> None:
    """Reading a pipe takes from the program what it would read."""
    code = 'exec 3< <(printf "print(open(0).read())"); exec "$0" /dev/fd/3 <<< "words"'
    done = subprocess.run(
        ["bash", "-c", code, stage.python], env=stage.environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "words"


def test_without_a_directory_nothing_is_recorded_and_nothing_said(stage: Stage) -> None:
    stage.write({"main.py": NOTICING})
    ran = stage.run("main.py", env={"IMGDIFF_RECORD": ""})
    assert (ran.processes, ran.err) == ([], "")
    assert ran.out == without(stage, "main.py").out


def test_lazy_modules_stay_asleep(stage: Stage) -> None:
    """A module that loads itself when it is looked at is not woken by the recorder."""
    stage.write({"lazy.py": "print('awake')\n"})
    ran = stage.program(
        "import importlib.util, sys\n"
        "spec = importlib.util.find_spec('lazy')\n"
        "spec.loader = importlib.util.LazyLoader(spec.loader)\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['lazy'] = module\n"
        "spec.loader.exec_module(module)\n"
        "import csv\nprint('asleep')\nmodule.__name__, module.X if hasattr(module, 'X') else 0\n"
    )
    assert ran.out.split() == ["asleep", "awake"]
    assert "lazy.py" in ran.first.names("exec")


def test_older_pythons_read_the_directory_without_a_word(tmp_path: Path) -> None:
    """A child may be a Python of any age: it is not recorded, and nothing is said."""
    named = [path for path in os.environ.get("IMGDIFF_TEST_PYTHONS", "").split(":") if path]
    code = "import sys; sys.exit(sys.version_info >= (3, 8))"
    old = [path for path in named if subprocess.run([path, "-c", code], check=False).returncode == 0]
    if not old:
        pytest.skip("no other interpreter that is older than 3.8 (IMGDIFF_TEST_PYTHONS names them)")
    environment = {"IMGDIFF_RECORD": str(tmp_path), "PYTHONPATH": str(MOUNTED)}
    for python in old:
        command = [python, "-B", "-c", "print('ok')"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("ok\n", "")
    assert list(tmp_path.iterdir()) == []
