"""Directories that code adds to the module search path at run time: what is imported from them, and in turn."""

from __future__ import annotations

import pytest

from imgdiff.model import Profile, ProfileRole, RootGroup
from tests.trace.test_trace_entry import ELF, SHELL, SHELL_ELVES
from tests.trace.world import SITE, World, site

S = SITE.decode()
APP = f"{S}/app"
HEAD = "import os, sys\n"
IN = "sys.path.insert(0, %s)\n"
HERE = "os.path.dirname(os.path.abspath(__file__))"


def library(directory: str) -> dict[str, str]:
    """What lies in an added directory: ``helper``, and what it imports in turn from there and from site-packages."""
    return {
        f"{directory}/helper.py": "import deep\nfrom pkgx import inner\nimport only_by_helper\n",
        f"{directory}/deep.py": "",
        f"{directory}/pkgx/__init__.py": "",
        f"{directory}/pkgx/inner.py": "from . import beside\n",
        f"{directory}/pkgx/beside.py": "",
        f"{directory}/never.py": "",
        f"{S}/only_by_helper.py": "",
    }


def world(directory: str, source: str, more: dict[str, str] | None = None, **options: object) -> World:
    """An application with this ``__main__``, a library beside it, and a module of the same name elsewhere."""
    files = {
        **site({"app/__init__.py": "", "app/__main__.py": source}),
        **library(directory),
        "elsewhere/helper.py": "",
        **(more or {}),
    }
    return World(files, owned={"other": [b"elsewhere"]}, **options)  # type: ignore[arg-type]  # forwarded


def levels(world: World, directory: str) -> dict[str, str]:
    """The levels of what lies in the added directory, and of what only it imports."""
    found = {
        name: world.level(f"{directory}/{name}.py")
        for name in ("helper", "deep", "pkgx/__init__", "pkgx/inner", "pkgx/beside")
    }
    return {**found, "only_by_helper": world.level(f"{S}/only_by_helper.py")}


def reached(world: World, directory: str) -> bool:
    """All that the chain of imports leads to is loaded, and the module of that name elsewhere is not."""
    assert world.level("elsewhere/helper.py") == "unreached"
    found = set(levels(world, directory).values())
    assert len(found) == 1, levels(world, directory)
    return found == {"deferred"}


@pytest.mark.parametrize(
    ("directory", "statement"),
    [
        ("opt/lib", IN % "'/opt/lib'"),
        ("opt/lib", "sys.path.append('/opt/lib')\n"),
        ("opt/lib", "sys.path.extend(['/opt/x', '/opt/lib'])\n"),
        ("opt/lib", "sys.path[:0] = ['/opt/x', '/opt/lib']\n"),
        ("opt/lib", "sys.path[0] = '/opt/lib'\n"),
        ("opt/lib", "sys.path = ['/opt/lib'] + sys.path\n"),
        ("opt/lib", "sys.path = [*sys.path, '/opt/lib']\n"),
        ("opt/lib", "sys.path += ['/opt/lib']\n"),
        ("opt/lib", "from sys import path\npath.insert(0, '/opt/lib')\n"),
        ("opt/lib", "p = sys.path\np.insert(0, '/opt/lib')\n"),
        ("opt/lib", "import site\nsite.addsitedir('/opt/lib')\n"),
        ("opt/x.egg", IN % "'/opt/x.egg'"),
        (APP, IN % "os.path.dirname(__file__)"),
        (APP, IN % HERE),
        (f"{S}/lib", IN % f"os.path.join({HERE}, '..', 'lib')"),
        (f"{APP}/vendor_", "from pathlib import Path\n" + IN % "str(Path(__file__).parent / 'vendor_')"),
        ("usr/lib/python3.12", "from pathlib import Path\n" + IN % "str(Path(__file__).resolve().parents[2])"),
        ("opt/lib", "for d in ('/opt/x', '/opt/lib'):\n    " + IN % "d"),
        (f"{APP}/v", f"for d in ('x', 'v'):\n    {IN % f'os.path.join({HERE}, d)'}"),
        (f"{APP}/v", f"def add(d):\n    {IN % f'os.path.join({HERE}, d)'}add('v')\n"),
        ("opt/lib", "def f():\n    sys.path.insert(0, '/opt/lib')\nf()\n"),
    ],
)
def test_a_directory_that_folds_is_searched_and_followed(directory: str, statement: str) -> None:
    if directory == "usr/lib/python3.12":  # a search directory already: nothing is added
        found = world(f"{S}/z", HEAD + statement + "import helper\n")
        assert found.level(f"{S}/z/helper.py") == "unreached"
        return
    found = world(directory, HEAD + statement + "import helper\n")
    assert reached(found, directory)
    assert found.level(f"{directory}/never.py") in ("unknown", "unreached")


@pytest.mark.parametrize(
    "source",
    [
        "import helper\n",
        HEAD + f"def f():\n    sys.path.insert(0, {HERE})\nimport helper\n",
        HEAD + "from other import path\npath.insert(0, '/opt/x')\nimport helper\n",
    ],
)
def test_a_directory_that_nothing_reached_adds_gives_nothing(source: str) -> None:
    adds = {f"{APP}/unused.py": HEAD + IN % HERE}
    found = world(APP, source, adds)
    assert found.level(f"{APP}/helper.py") == "unreached"
    assert found.level(f"{APP}/deep.py") == "unreached"
    assert found.level(f"{S}/only_by_helper.py") == "unreached"
    assert not any("known at run time only" in each for each in found.trace.caveats)


@pytest.mark.parametrize("text", ["''", "'.'", "os.getcwd()"])
def test_the_working_directory_as_an_added_one(text: str) -> None:
    source = HEAD + IN % text + "import helper\n"
    found = world("srv", "", {"opt/run.py": source}, argv=("python3.12", "/opt/run.py"))
    assert reached(found, "srv")


@pytest.mark.parametrize("directory", ["srv/plug", f"{APP}/x/y", "opt/plug"])
def test_a_directory_known_at_run_time_only_is_looked_for_where_it_can_be(directory: str) -> None:
    found = world(directory, HEAD + IN % "sys.argv[1]" + "import helper\n")
    assert reached(found, directory)
    said = [each for each in found.trace.caveats if "known at run time only" in each]
    assert len(said) == 1
    assert f"/{APP}/__main__.py:2" in said[0]
    assert f"/{directory}/helper.py" in said[0]


def test_a_name_found_nowhere_and_a_name_found_elsewhere_stay_as_they_are() -> None:
    found = world("opt/plug", HEAD + IN % "sys.argv[1]" + "import nowhere\nimport stat\n", {"opt/plug/stat.py": ""})
    assert found.level("opt/plug/stat.py") == "unreached"
    assert not any("known at run time only" in each for each in found.trace.caveats)


def test_env_and_the_command_line_say_where_a_directory_can_be() -> None:
    owned = {f"{S}/only_by_helper.py": ""}
    files = {**site({"app/__init__.py": "", "app/__main__.py": HEAD + IN % "os.environ['PLUG']" + "import helper\n"})}
    files.update({**library("opt/plug"), **owned})
    argv = ("python3.12", "-m", "app")
    for more, env in ((("--plug", "/opt/plug"), ()), ((), ("PLUG=/opt/plug",))):
        found = World(files, owned={"plug": [b"opt/plug"]}, argv=(*argv, *more), env=env)
        assert set(levels(found, "opt/plug").values()) == {"deferred"}
    assert World(files, owned={"plug": [b"opt/plug"]}).level("opt/plug/helper.py") == "unreached"


def test_the_front_hides_and_both_copies_count() -> None:
    more = {f"{S}/helper.py": ""}
    found = world("opt/lib", HEAD + IN % "'/opt/lib'" + "import helper\n", more)
    assert found.level(f"{S}/helper.py") == "eager"
    assert found.level("opt/lib/helper.py") == "deferred"
    behind = world("srv/x", HEAD + f"sys.path.append({HERE} + '/../../../../../../srv/x')\nimport helper\n", more)
    assert behind.level(f"{S}/helper.py") == "eager"
    assert behind.level("srv/x/deep.py") != "deferred"


def test_what_python_has_loaded_already_is_not_hidden() -> None:
    found = world(APP, HEAD + IN % HERE + "import stat, time\n", {f"{APP}/stat.py": "", f"{APP}/time.py": ""})
    assert found.level(f"{APP}/stat.py") == "unreached"
    assert found.level(f"{APP}/time.py") == "unreached"


def test_a_name_that_is_computed_can_be_any_in_the_added_directory() -> None:
    source = HEAD + f"import importlib\n{IN % HERE}importlib.import_module(sys.argv[1])\n"
    assert reached(world(APP, source), APP)
    assert world(APP, source).level(f"{APP}/never.py") == "deferred"


def test_pth_files_of_an_added_site_directory() -> None:
    add = HEAD + "import site\nsite.addsitedir('/opt/lib')\n"
    found = world("opt/more", add + "import helper\n", {"opt/lib/x.pth": "/opt/more\n"})
    assert reached(found, "opt/more")
    assert found.level("opt/lib/x.pth") == "deferred"
    assert reached(world("opt/lib", add, {"opt/lib/x.pth": "import helper\n"}), "opt/lib")
    unused = world("opt/more", HEAD + "import helper\n", {"opt/lib/x.pth": "/opt/more\n"})
    assert unused.level("opt/more/helper.py") == "unreached"


@pytest.mark.parametrize("name", ["x.pth", "sitecustomize.py"])
def test_what_runs_at_start_can_add_a_directory(name: str) -> None:
    adds = HEAD + IN % HERE
    more = {f"{S}/x.pth": "import app.adds\n", f"{APP}/adds.py": adds}
    if name == "sitecustomize.py":
        more = {f"{S}/{name}": "import app.adds\n", f"{APP}/adds.py": adds}
    assert reached(world(APP, "import helper\n", more), APP)


def test_a_shell_script_sets_the_path() -> None:
    script = "#!/bin/bash\nexport PYTHONPATH=/opt/lib\nexec python3.12 -m app\n"
    files = {**site({"app.py": "import helper\n"}), **SHELL, **library("opt/lib"), "srv/start.sh": script}
    found = World(files, argv=("/srv/start.sh",), elves={**SHELL_ELVES, "usr/bin/bash": ELF}, links={"bin": "usr/bin"})
    assert set(levels(found, "opt/lib").values()) == {"eager"}


@pytest.mark.parametrize(
    "start",
    [
        "os.environ['PYTHONPATH'] = '/opt/lib'\nsubprocess.run([sys.executable, '-m', 'app.child'])\n",
        "subprocess.run([sys.executable, '-m', 'app.child'], env={**os.environ, 'PYTHONPATH': '/opt/lib'})\n",
        "os.environ['PYTHONPATH'] = '/opt/lib'\nsubprocess.run([sys.executable, '-m', 'helper'])\n",
        "subprocess.run([sys.executable, '/opt/lib/go.py'])\n",
        "subprocess.run(['python3', '-u', '/opt/lib/go.py'])\n",
        "subprocess.run([sys.executable, '-c', 'import sys; sys.path.append(\"/opt/lib\"); import helper'])\n",
    ],
)
def test_child_processes(start: str) -> None:
    more = {f"{APP}/child.py": "import helper\n", "opt/lib/go.py": "import helper\n"}
    assert reached(world("opt/lib", HEAD + "import subprocess\n" + start, more), "opt/lib")


@pytest.mark.parametrize(
    ("directory", "source"),
    [
        ("opt/lib", "from importlib.machinery import PathFinder\nPathFinder.find_spec('helper', ['/opt/lib'])\n"),
        ("opt/lib", "from importlib.machinery import FileFinder\nFileFinder('/opt/lib', X)\nimport helper\n"),
        (f"{APP}/v", "import sys\nsys.meta_path.append(F())\nimport helper\n"),
        (f"{APP}/v", "import sys\nsys.path_hooks.append(hook)\nsys.path.append('db://x')\nimport helper\n"),
        ("opt/lib", "exec('import sys; sys.path.insert(0, \"/opt/lib\"); import helper')\n"),
    ],
)
def test_finders_and_code_in_strings(directory: str, source: str) -> None:
    assert reached(world(directory, source), directory)


def test_a_directory_that_is_run() -> None:
    more = {"opt/lib/__main__.py": "import helper\n"}
    found = world("opt/lib", "import runpy\nrunpy.run_path('/opt/lib')\n", more)
    assert reached(found, "opt/lib")
    assert found.level("opt/lib/__main__.py") == "deferred"


@pytest.mark.parametrize("name", ["x.zip", "x.egg"])
def test_an_archive_is_a_blindspot(name: str) -> None:
    more = {f"opt/{name}": "PK"}
    found = world("opt/lib", HEAD + IN % f"'/opt/{name}'" + "import helper\n", more)
    assert "archive on sys.path" in [each.what for each in found.trace.blindspots]
    unused = world("opt/lib", HEAD + "def f():\n    " + IN % f"'/opt/{name}'" + "import helper\n", more)
    assert "archive on sys.path" not in [each.what for each in unused.trace.blindspots]


def test_a_role_gets_what_it_or_its_parent_adds_and_no_other() -> None:
    files = {
        **site({"one.py": HEAD + IN % "os.path.dirname(__file__) + '/lib'" + "import helper\n"}),
        **site({"two.py": "import helper\n"}),
        **library(f"{S}/lib"),
    }
    for parent, level in (("one", "deferred"), (None, "unreached")):
        profile = Profile(
            "test",
            "one",
            (
                ProfileRole("one", True, "adds", (RootGroup(("one",), "a root"),)),
                ProfileRole("two", True, "imports", (RootGroup(("two",), "a root"),), parent=parent),
            ),
        )
        found = World(files, argv=("python3.12", "-c", "pass"), profile=profile)
        assert found.level(f"{S}/lib/deep.py", "one") == "deferred"
        assert found.level(f"{S}/lib/deep.py", "two") == level


def test_of_many_functions_that_import_the_same_the_chain_shows_the_first() -> None:
    names = [f"load_{letter}" for letter in "qwertyuiopasdfgh"]  # in whatever order they are reached
    functions = "".join(f"def {name}():\n    import helper\n" for name in names)
    used = ", ".join(f"app.work.{name}" for name in names)
    source = HEAD + IN % "'/opt/lib'" + f"import app.work\nrun = [{used}]\n"
    found = world("opt/lib", source, {f"{APP}/work.py": functions})
    step = found.evidence("opt/lib/helper.py").chain[-2]
    assert (step.module, step.line, step.function) == ("app.work", 2, names[0])


def test_the_chain_of_what_an_added_directory_gives() -> None:
    found = world("opt/lib", HEAD + IN % "'/opt/lib'" + "import helper\n")
    assert found.chain("opt/lib/deep.py") == [
        ("app.__main__", 3, "the entry: -m app", "root"),
        ("helper (in /opt/lib)", 1, None, "dynamic"),
        ("deep (in /opt/lib)", None, None, "dynamic"),
    ]


def test_what_is_linked_into_the_interpreter_is_never_looked_for_in_an_added_directory() -> None:
    source = f"{HEAD}{IN % 'os.environ[name]'}import _collections, _io, helper\n"
    found = world("lib", source, {"lib/_collections.py": "", "lib/_io/__init__.py": "", f"{APP}/_io.py": ""})
    assert found.level("lib/helper.py") == "deferred"
    for path in ("lib/_collections.py", "lib/_io/__init__.py", f"{APP}/_io.py"):
        assert found.level(path) == "unreached"


def test_what_only_some_interpreters_have_linked_is_looked_for_there_where_this_one_has_a_file_of_it() -> None:
    source = f"{HEAD}import sys\nsys.path.insert(0, '/lib')\nimport cmath, helper, winreg\n"
    there = {f"lib/{name}.py": "" for name in ("cmath", "winreg")}
    linked = world("lib", source, there)
    assert [linked.level(f"lib/{name}.py") for name in ("cmath", "winreg")] == ["unreached", "deferred"]
    beside = world("lib", source, {**there, "usr/lib/python3.12/cmath.py": ""})
    assert beside.level("lib/cmath.py") == "deferred"


def test_a_word_names_what_lies_in_a_directory_that_folds_and_not_in_one_that_is_guessed() -> None:
    source = (
        HEAD
        + IN % "'/opt/lib'"
        + IN % "os.environ['LIB']"
        + "import importlib, only_guessed\nWORD = 'both'\ndef load(name):\n    importlib.import_module(name)\nload(x)\n"
    )
    there = {"opt/lib/both.py": "", "lib/both.py": "", "lib/only_guessed.py": ""}
    found = world("opt/lib", source, there)
    assert [found.level(path) for path in there] == ["deferred", "unreached", "deferred"]
    imported = world("opt/lib", source + "import both\n", there)
    assert imported.level("lib/both.py") == "deferred"
