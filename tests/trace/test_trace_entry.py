"""The entry decides: command lines, shells, wrappers, shebangs, interpreters and search paths."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from imgdiff.model import ElfFacts, Environment
from tests.trace.world import PYTHON, SITE, STDLIB, World, site

S = SITE.decode()
ELF = ElfFacts(62, 64)
APP = site({"app.py": "import dep\n", "dep.py": "", "never.py": ""})
SCRIPT = "#!/usr/bin/python3.12\nimport sys\nfrom app import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
SHELL = {"usr/bin/bash": "ELF", "usr/bin/sh": "ELF"}
SHELL_ELVES = {"usr/bin/bash": ELF, "usr/bin/sh": ELF}


@pytest.mark.parametrize(
    "argv",
    [
        ("python3.12", "-m", "app"),
        ("/usr/bin/python3.12", "-u", "-X", "dev", "-m", "app", "--port", "1"),
        ("python3.12", "-um", "app"),
        ("/usr/bin/tini", "--", "python3.12", "-m", "app"),
        ("dumb-init", "python3.12", "-m", "app"),
        ("env", "-i", "A=b", "python3.12", "-m", "app"),
        ("numactl", "--cpunodebind=0", "-m", "0", "python3.12", "-m", "app"),
        ("bash", "-c", "exec python3.12 -m app"),
        ("bash", "-lc", "cd /tmp && python3.12 -m app"),
        ("sh", "-c", 'exec python3.12 -m app "$@"', "--"),
        ("bash", "/srv/start.sh"),
        ("/srv/start.sh", "serve"),
        ("/srv/pass.sh", "python3.12", "-m", "app"),
        ("app-script",),
    ],
)
def test_every_way_to_start_a_module_leads_to_it(argv: tuple[str, ...]) -> None:
    files = {
        **APP,
        **SHELL,
        "usr/bin/tini": "ELF",
        "usr/bin/dumb-init": "ELF",
        "usr/bin/env": "ELF",
        "usr/bin/numactl": "ELF",
        "srv/start.sh": "#!/bin/bash\nset -e\nexec python3.12 -m app\n",
        "srv/pass.sh": '#!/usr/bin/env bash\nexec "$@"\n',
        "usr/bin/app-script": SCRIPT,
    }
    elves = {**SHELL_ELVES, **{f"usr/bin/{name}": ELF for name in ("tini", "dumb-init", "env", "numactl")}}
    world = World(files, argv=argv, elves=elves, links={"bin": "usr/bin"})
    assert world.level(f"{S}/app.py") == "eager", world.trace.blindspots
    assert world.level(f"{S}/dep.py") == "eager"
    assert world.level(f"{S}/never.py") == "unreached"
    assert world.level(PYTHON.decode()) == "eager"


def test_what_a_shell_script_sources_is_eager_and_what_it_starts_is_deferred() -> None:
    files = {
        **APP,
        **SHELL,
        "srv/start.sh": "#!/bin/bash\nsource /etc/setup.sh\nldconfig\npython3.12 -m app\n",
        "etc/setup.sh": ". /etc/deeper.sh\n",
        "etc/deeper.sh": "export PYTHONPATH=/opt/extra\n",
        "usr/sbin/ldconfig": "ELF",
        "opt/extra/dep.py": "",
        "root/.bashrc": "",
    }
    entries = {**SHELL_ELVES, "usr/sbin/ldconfig": ELF}
    files["usr/bin/ldconfig"] = files.pop("usr/sbin/ldconfig")
    entries["usr/bin/ldconfig"] = entries.pop("usr/sbin/ldconfig")
    world = World(files, argv=("/srv/start.sh",), elves=entries, links={"bin": "usr/bin"})
    assert world.level("srv/start.sh") == "eager"
    assert world.level("etc/setup.sh") == "eager"
    assert world.level("etc/deeper.sh") == "eager"
    assert world.level("usr/bin/ldconfig") == "deferred"
    assert world.level("usr/bin/bash") == "eager"
    assert world.level("opt/extra/dep.py") == "eager"  # what the sourced file sets
    assert world.level("root/.bashrc") == "deferred"


@pytest.mark.parametrize(
    ("line", "env", "directory"),
    [
        ("export PYTHONPATH=$PWD/lib:$PYTHONPATH", (), "work/lib"),
        ("export PYTHONPATH=$(pwd)/lib", (), "work/lib"),
        ("export PYTHONPATH=$HOME/lib", ("HOME=/home/me",), "home/me/lib"),
        ("export PYTHONPATH=$HOME/lib", (), "root/lib"),
        ("export PYTHONPATH=$HOME/lib", (), "home/me/lib"),
        ("export PYTHONPATH=/none:~/lib", ("HOME=/home/me",), "home/me/lib"),
        ("cd /data; export PYTHONPATH=$PWD/lib", (), "data/lib"),
        ("cd /data; export PYTHONPATH=lib", (), "data/lib"),
        ('export PYTHONPATH="${0%/*}/lib"', (), "opt/start/lib"),
        ("cd /data/lib", (), "data/lib"),
        ("cd /data && cd lib", (), "data/lib"),
        ("cd ~/lib", ("HOME=/home/me",), "home/me/lib"),
        ('cd "$(dirname "$0")/lib"', (), "opt/start/lib"),
        ("pushd /data/lib", (), "data/lib"),
    ],
)
def test_directories_that_a_shell_script_takes_from_where_it_runs(
    line: str, env: tuple[str, ...], directory: str
) -> None:
    """A module there hides the installed one."""
    hidden = {**APP, **SHELL, f"{directory}/dep.py": "", "work/x": "", "data/lib/x": "", "home/me/x": "", "root/x": ""}
    files = {**hidden, "opt/start/run.sh": f"#!/bin/bash\n{line}\nexec python3.12 -m app\n"}
    where = {"argv": ("/opt/start/run.sh",), "cwd": "/work", "elves": SHELL_ELVES, "links": {"bin": "usr/bin"}}
    assert World(files, env=env, **where).level(f"{directory}/dep.py") == "eager"  # type: ignore[arg-type]  # forwarded
    files["opt/start/run.sh"] = "#!/bin/bash\nexec python3.12 -m app\n"
    assert World(files, env=env, **where).level(f"{directory}/dep.py") in ("unreached", "unknown")  # type: ignore[arg-type]  # forwarded


@pytest.mark.parametrize(
    ("argv", "level"),
    [
        (("env", "-C", "/opt/own", "python3.12", "-m", "own"), "eager"),
        (("env", "-C/opt/own", "python3.12", "-m", "own"), "eager"),
        (("env", "--chdir=/opt/own", "A=b", "python3.12", "-m", "own"), "eager"),
        (("env", "-C", "/opt", "PYTHONPATH=own", "python3.12", "-m", "own"), "eager"),
        (("env", "-C", "/opt/own", "--", "python3.12", "-m", "own"), "eager"),
        (("env", "-C", "/opt/own", "python3.12", "own.py"), "eager"),
        (("env", "-C", "/opt/own", "./run.sh"), "deferred"),
        (("env", "-C", "/opt/own", "-S", "python3.12 -m own"), "eager"),
        (("env", "-C", "/opt/own", "--split-string=python3.12 -m own"), "eager"),
        (("env", "-vSPYTHONPATH=/opt/own python3.12 -m own"), "eager"),
        (("tini", "--", "env", "--chdir", "/opt/own", "python3.12", "-m", "own"), "eager"),
        (("bash", "-c", "exec env -C /opt/own python3.12 -m own"), "deferred"),
        (("start-stop-daemon", "-S", "-d", "/opt/own", "-x", "/usr/bin/python3.12", "--", "-m", "own"), "eager"),
        (("start-stop-daemon", "--chdir=/opt/own", "--exec=/usr/bin/python3.12", "--", "own.py"), "eager"),
        (("unshare", "--wd", "/opt/own", "python3.12", "-m", "own"), "eager"),
        (("mpirun", "-np", "2", "-wdir", "/opt/own", "python3.12", "-m", "own"), "eager"),
        (("su", "user", "-c", "cd /opt/own && python3.12 -m own"), "deferred"),
        (("su", "--command=cd /opt/own; exec python3.12 -m own", "user"), "deferred"),
        (("flock", "/tmp/lock", "-c", "PYTHONPATH=/opt/own python3.12 -m own"), "deferred"),
        (("script", "-qc", "PYTHONPATH=/opt/own python3.12 -m own", "/dev/null"), "deferred"),
        (("su", "-", "user", "-c", "python3.12 -m home"), "deferred"),
        (("su", "-c", "exec python3.12 -m home", "-l", "user"), "deferred"),
        (("bash", "-c", "su - user -c 'python3.12 -m home'"), "deferred"),
        (("sudo", "-i", "-u", "user", "python3.12", "-m", "home"), "eager"),
    ],
)
def test_a_wrapper_can_say_where_a_program_runs_and_take_shell_code(argv: tuple[str, ...], level: str) -> None:
    names = ("start-stop-daemon", "env", "tini", "unshare", "mpirun", "su", "flock", "script", "sudo")
    files = {
        **APP,
        **SHELL,
        **{f"usr/bin/{name}": "ELF" for name in names},
        "opt/own/own.py": "import dep\n",
        "opt/own/run.sh": "#!/bin/bash\nexec python3.12 -m own\n",
        "home/user/home.py": "import dep\n",
        "srv/here.txt": "",
    }
    elves = {**SHELL_ELVES, **{f"usr/bin/{name}": ELF for name in names}}
    world = World(files, argv=argv, elves=elves, links={"bin": "usr/bin"})
    found = "home/user/home.py" if any("home" in word for word in argv) else "opt/own/own.py"
    assert world.level(found) in ("eager", level), world.trace.blindspots
    assert world.level(f"{S}/dep.py") in ("eager", level)
    assert world.level(f"{S}/never.py") == "unreached"


def test_a_program_beside_the_script_that_starts_it() -> None:
    files = {
        **APP,
        **SHELL,
        "opt/start/go.sh": '#!/bin/bash\nexec "$(dirname "$0")/bin/run"\n',
        "opt/start/bin/run": "#!/bin/bash\nexec python3.12 -m app\n",
    }
    world = World(files, argv=("bash", "/opt/start/go.sh"), elves=SHELL_ELVES, links={"bin": "usr/bin"})
    assert world.level(f"{S}/app.py") == "eager"


def test_an_entry_that_leads_nowhere_is_a_blindspot() -> None:
    world = World(APP, argv=("/no/such/program",))
    assert [spot.what for spot in world.trace.blindspots] == ["entry"]
    assert world.trace.blindspots[0].roles == ("main",)


def test_another_entry_can_be_given() -> None:
    world = World(APP, argv=("sleep", "1"), entry="python3.12 -m app")
    assert world.level(f"{S}/app.py") == "eager"
    files = {**APP, **site({"pkg/__init__.py": "", "pkg/server.py": "import dep\n"}), "usr/bin/python": "ELF"}
    world = World(files, argv=("sleep", "1"), entry="pkg.server --port 1", elves={"usr/bin/python": ELF})
    assert world.level(f"{S}/pkg/server.py") == "eager"


def test_no_config_is_said() -> None:
    world = World(APP, config=False)
    assert world.trace.blindspots


def test_the_working_directory_comes_first_for_python_m() -> None:
    files = {**APP, "srv/dep.py": ""}
    assert World(files).level("srv/dep.py") == "eager"
    assert World(files).level(f"{S}/dep.py") == "unreached"


@pytest.mark.parametrize("how", ["env", "flag"])
def test_a_safe_path_leaves_the_working_directory_out(how: str) -> None:
    files = {**APP, "srv/dep.py": ""}
    env = ["PYTHONSAFEPATH=1"] if how == "env" else []
    argv = ("python3.12", "-P", "-m", "app") if how == "flag" else ("python3.12", "-m", "app")
    world = World(files, env=env, argv=argv)
    assert world.level(f"{S}/dep.py") == "eager"


def test_a_script_has_its_own_directory_first() -> None:
    files = {**APP, "opt/tool/run.py": "import helper\n", "opt/tool/helper.py": ""}
    world = World(files, argv=("python3.12", "/opt/tool/run.py"))
    assert world.level("opt/tool/helper.py") == "eager"


def test_pythonpath_and_two_copies_of_one_package() -> None:
    files = {**APP, "opt/a/dep.py": "", "opt/b/dep.py": ""}
    world = World(files, env=["PYTHONPATH=/opt/a:/opt/b"])
    assert world.level("opt/a/dep.py") == "eager"
    assert world.trace.roles["main"].modules["dep"][1].path == b"opt/a/dep.py"
    assert (
        World(files, env=["PYTHONPATH=/opt/a"], argv=("python3.12", "-I", "-m", "app")).level(f"{S}/dep.py") == "eager"
    )


def test_pth_lines_add_directories_and_run_code() -> None:
    files = {
        **APP,
        **site(
            {
                "extra.pth": "# comment\n../more\nimport startup_hook\n",
                "startup_hook.py": "import hooked\n",
                "hooked.py": "",
            }
        ),
        "usr/lib/python3.12/more/dep.py": "",
    }
    del files[f"{S}/dep.py"]
    world = World(files)
    assert world.level(f"{S}/startup_hook.py") == "eager"
    assert world.level(f"{S}/hooked.py") == "eager"
    assert world.level("usr/lib/python3.12/more/dep.py") == "eager"
    assert world.level(f"{S}/extra.pth") == "eager"
    assert world.absent(f"{S}/another.pth") == "eager"


def test_a_pth_line_that_extends_the_path_by_code() -> None:
    line = "import sys, os; sys.path.append(os.path.join(os.path.dirname(__file__), 'nvidia', 'packages'))\n"
    files = {**APP, **site({"x.pth": line, "nvidia/packages/inside.py": "", "app.py": "import inside\n"})}
    assert World(files).level(f"{S}/nvidia/packages/inside.py") == "eager"
    unknown = {**APP, **site({"x.pth": "import sys, os; sys.path.append(os.environ['X'])\n"})}
    assert ".pth line" in [spot.what for spot in World(unknown).trace.blindspots]
    broken = {**APP, **site({"x.pth": "import sys; (\n"})}
    assert ".pth line" in [spot.what for spot in World(broken).trace.blindspots]


def test_sitecustomize_runs_and_would_run() -> None:
    world = World({**APP, **site({"sitecustomize.py": "import hooked\n", "hooked.py": ""})})
    assert world.level(f"{S}/sitecustomize.py") == "eager"
    assert world.level(f"{S}/hooked.py") == "eager"
    assert World(APP).absent(f"{S}/sitecustomize.py") == "eager"
    assert World(APP).absent(f"{S}/usercustomize.py") == "eager"


def test_editable_finders_know_where_packages_lie() -> None:
    finder = "MAPPING: dict[str, str] = {'pkg': '/src/project/pkg'}\nNAMESPACES = {}\ndef install():\n    pass\n"
    files = {
        **site(
            {
                "app.py": "import pkg.sub\n",
                "__editable__.pkg.pth": "import __editable___pkg_finder; __editable___pkg_finder.install()\n",
                "__editable___pkg_finder.py": finder,
            }
        ),
        "src/project/pkg/__init__.py": "",
        "src/project/pkg/sub.py": "",
    }
    world = World(files)
    assert world.level("src/project/pkg/sub.py") == "eager"
    assert world.level(f"{S}/__editable___pkg_finder.py") == "eager"
    assert world.absent("src/project/pkg/never.py") != "eager"


def test_an_archive_on_the_path_is_a_blindspot() -> None:
    world = World({**APP, "usr/lib/python312.zip": "PK"})
    assert "archive on sys.path" in [spot.what for spot in world.trace.blindspots]


@pytest.mark.parametrize("part", ["/opt/x.whl", "/opt/x.whl/lib", "/opt/x.whl/lib/deeper/"])
def test_an_archive_or_what_lies_in_it_on_pythonpath_is_a_blindspot(part: str) -> None:
    world = World({**APP, "opt/x.whl": "PK"}, env=(f"PYTHONPATH=/none:{part}",))
    assert [spot.path for spot in world.trace.blindspots] == [b"opt/x.whl"]
    assert not World({**APP, "opt/x.whl": "PK"}, env=("PYTHONPATH=/opt/none/lib",)).trace.blindspots


def test_a_path_file_beside_an_interpreter_is_a_blindspot() -> None:
    """CPython reads it on every system (Modules/getpath.py), beside the name under which it was started, too."""
    for path in ("usr/bin/python3.12._pth", "opt/bin/py._pth"):
        world = World({**APP, path: "/opt/lib\n"}, links={"opt/bin/py": "/usr/bin/python3.12"})
        assert [spot.path for spot in world.trace.blindspots] == [path.encode()]
    assert not World({**APP, "opt/bin/none._pth": ""}).trace.blindspots


def test_a_library_directory_of_another_name_is_a_blindspot() -> None:
    assert World(APP, env=("PYTHONPLATLIBDIR=lib64",)).trace.blindspots
    assert not World(APP, env=("PYTHONPLATLIBDIR=lib64",), argv=("python3.12", "-E", "-m", "app")).trace.blindspots
    assert not World(APP, env=("PYTHONPLATLIBDIR=lib",)).trace.blindspots


def test_a_venv_is_known_by_the_name_of_its_interpreter() -> None:
    venv = b"opt/venv"
    files = {
        **site({"app.py": "", "dep.py": ""}),
        "opt/venv/pyvenv.cfg": "home = /usr/bin\n",
        "opt/venv/lib/python3.12/site-packages/app.py": "import dep\n",
        "opt/venv/lib/python3.12/site-packages/dep.py": "",
        "opt/venv/bin/app-script": SCRIPT.replace("/usr/bin/python3.12", "/opt/venv/bin/python"),
    }
    environments = [
        Environment(b"usr", b"usr", PYTHON, "3.12", STDLIB, (SITE,)),
        Environment(venv, b"usr", PYTHON, "3.12", STDLIB, (b"opt/venv/lib/python3.12/site-packages",), False),
    ]
    links = {"opt/venv/bin/python": "/usr/bin/python3.12"}
    world = World(
        files, argv=("app-script",), env=["PATH=/opt/venv/bin:/usr/bin"], links=links, environments=environments
    )
    assert world.level("opt/venv/lib/python3.12/site-packages/dep.py") == "eager"
    assert world.level(f"{S}/dep.py") != "eager"
    assert world.level("opt/venv/bin/app-script") == "eager"
    assert world.level("opt/venv/bin/python") == "eager"
    assert world.level("opt/venv/pyvenv.cfg") == "eager"


# A name of a virtual environment's interpreter that leads to it over links: as it is called, and what is a link.
LINKED = {
    "a link to the interpreter": ("/usr/local/bin/python", {"usr/local/bin/python": "/opt/venv/bin/python"}),
    "a link to its bin": ("/usr/local/venv-bin/python", {"usr/local/venv-bin": "/opt/venv/bin"}),
    "a link to the environment": ("/srv/env/bin/python", {"srv/env": "/opt/venv"}),
    "a link beside it": ("/opt/venv/bin/python3", {"opt/venv/bin/python3": "python"}),
}


@pytest.mark.parametrize(("called", "links"), LINKED.values(), ids=LINKED)
def test_a_venv_that_is_reached_over_links_is_one_where_cpython_says_so(
    called: str, links: dict[str, str], tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "opt/venv"], check=True)
    for name, target in links.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if not (tmp_path / name).is_symlink():
            (tmp_path / name).symlink_to(f"{tmp_path}{target}" if target.startswith("/") else target)
    asked = [f"{tmp_path}{called}", "-c", "import sys; print(sys.prefix != sys.base_prefix)"]
    is_venv = subprocess.run(asked, check=True, capture_output=True, text=True).stdout == "True\n"
    files = {
        **site({"app.py": "import dep\n", "dep.py": ""}),
        "opt/venv/pyvenv.cfg": "home = /usr/bin\n",
        "opt/venv/lib/python3.12/site-packages/app.py": "import dep\n",
        "opt/venv/lib/python3.12/site-packages/dep.py": "",
    }
    environments = [
        Environment(b"usr", b"usr", PYTHON, "3.12", STDLIB, (SITE,)),
        Environment(b"opt/venv", b"usr", PYTHON, "3.12", STDLIB, (b"opt/venv/lib/python3.12/site-packages",), False),
    ]
    links = {"opt/venv/bin/python": "/usr/bin/python3.12", **links}
    world = World(files, argv=(called, "-m", "app"), links=links, environments=environments)
    assert (world.level("opt/venv/lib/python3.12/site-packages/dep.py") == "eager") is is_venv
    assert (world.level(f"{S}/dep.py") == "eager") is not is_venv


@pytest.mark.parametrize(
    ("env", "argv", "level"),
    [
        ((), ("python3.12",), "eager"),
        (("HOME=/root",), ("python3.12",), "eager"),
        (("HOME=/home/other",), ("python3.12",), "unreached"),
        (("PYTHONNOUSERSITE=1",), ("python3.12",), "unreached"),
        ((), ("python3.12", "-s"), "unreached"),
        ((), ("python3.12", "-I"), "unreached"),
    ],
)
def test_the_site_directory_of_a_user_comes_before_the_systems(
    env: tuple[str, ...], argv: tuple[str, ...], level: str
) -> None:
    users = b"root/.local/lib/python3.12/site-packages"
    environment = Environment(b"usr", b"usr", PYTHON, "3.12", STDLIB, (SITE,), user_sites=(users,))
    files = {**site({"app.py": "import dep\n", "dep.py": ""}), f"{users.decode()}/dep.py": ""}
    files[f"{users.decode()}/usercustomize.py"] = ""
    world = World(files, argv=(*argv, "-m", "app"), env=env, environments=[environment])
    assert world.level(f"{users.decode()}/dep.py") == level
    assert world.level(f"{users.decode()}/usercustomize.py") == level
    assert world.level(f"{S}/dep.py") == ("unreached" if level == "eager" else "eager")


@pytest.mark.parametrize(
    ("line", "level"),
    [('. "$(dirname "$0")/common"', "eager"), ('. "$WHERE/common"', "deferred"), ("true", "unreached")],
)
def test_a_script_sources_what_lies_beside_it(line: str, level: str) -> None:
    files = {**APP, "srv/bin/run": f"#!/bin/sh\n{line}\nexec python3.12 -m app\n", "srv/bin/common": "export A=1\n"}
    files["bin/sh"] = "ELF"
    world = World(files, argv=("/srv/bin/run",), elves={"bin/sh": ElfFacts(62, 64)}, cwd="/")
    assert world.level("srv/bin/common") == level
    assert world.level(f"{S}/dep.py") in ("eager", "deferred")


@pytest.mark.parametrize(
    "argv",
    [
        ("python3.12", "-c", "import app"),
        ("python3.12", "-Ic", "import app"),
        ("python3.12", "-uc", "def run():\n    from app import x\nrun()"),
        ("python3.12", "-cimport app", "--port", "1"),
        ("python3.12", "-c", "__import__('app').main()"),
        ("python3.12", "-c", "if __name__ == '__main__':\n    import app"),
        ("sh", "-c", "exec python3.12 -c 'import app; app.main()'"),
        ("bash", "/srv/start.sh"),
        ("env", "X=y", "python3.12", "-X", "dev", "-c", "import runpy; runpy.run_module('app')"),
    ],
)
def test_code_of_the_command_line_is_followed(argv: tuple[str, ...]) -> None:
    files = {**APP, **SHELL, "usr/bin/env": "ELF", "srv/start.sh": "#!/bin/bash\npython3.12 -c 'import app'\n"}
    world = World(files, argv=argv, elves={**SHELL_ELVES, "usr/bin/env": ELF}, links={"bin": "usr/bin"})
    assert world.level(f"{S}/app.py") in ("eager", "deferred"), world.trace.blindspots
    assert world.level(f"{S}/dep.py") in ("eager", "deferred")
    assert world.level(f"{S}/never.py") == "unreached"
    assert not world.trace.blindspots


def test_a_chain_from_code_of_the_command_line_begins_with_it() -> None:
    world = World(APP, argv=("python3.12", "-c", "import app"))
    evidence = world.evidence(f"{S}/dep.py")
    assert [hop.module for hop in evidence.chain] == ["__main__", "app", "dep"]
    assert evidence.chain[0].function == "the entry: the code of -c"
    assert evidence.chain[0].line == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("python3.12",), "standard input"),
        (("python3.12", "-i"), "standard input"),
        (("python3.12", "-", "--port"), "standard input"),
        (("bash", "-c", "python3.12 <<EOF\nimport app\nEOF"), "standard input"),
        (("bash", "-c", "python3.12 -c $CODE"), "python -c"),
        (("python3.12", "-c", "import app ("), "python -c"),
    ],
)
def test_a_program_that_is_not_known_is_a_blindspot(argv: tuple[str, ...], said: str) -> None:
    world = World({**APP, **SHELL}, argv=argv, elves=SHELL_ELVES, links={"bin": "usr/bin"})
    assert [spot.what for spot in world.trace.blindspots] == ["entry"]
    assert said in world.trace.blindspots[0].reason
    assert world.trace.blindspots[0].roles == ("main",)


def test_code_that_reached_code_gives_to_a_child_is_followed() -> None:
    files = site(
        {
            "app.py": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import dep'])\n",
            "dep.py": "import deeper\n",
            "deeper.py": "",
            "never.py": "",
        }
    )
    world = World(files, argv=("python3.12", "-m", "app"))
    assert world.level(f"{S}/dep.py") in ("eager", "deferred")
    assert world.level(f"{S}/deeper.py") in ("eager", "deferred")
    assert world.level(f"{S}/never.py") == "unreached"
