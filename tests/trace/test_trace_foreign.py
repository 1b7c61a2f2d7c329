"""Entries that lead to programs which are neither a Python nor a shell: followed, or open, and never in silence."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from imgdiff.model import ElfFacts
from tests.trace.world import INTERPRETER, SITE, World, site

S = SITE.decode()
STARTS = ElfFacts(62, 64, interpreter="/lib64/ld.so", needed=("libc.so.6",), symbols=("execve",))
QUIET = ElfFacts(62, 64, interpreter="/lib64/ld.so", needed=("libc.so.6",), symbols=("fopen",))
STATIC = ElfFacts(62, 64)
APP = site({"app.py": "import dep\n", "dep.py": "", "never.py": ""})
OTHERS = (
    *("perl", "perl5.36.0", "ruby3.1", "node", "php8.2", "luajit", "tclsh8.6", "java", "Rscript", "make", "ninja"),
    *("supervisord", "systemd", "init", "runsvdir", "s6-svscan", "execlineb", "monit", "crond", "svscan", "parallel"),
)


def world(argv: tuple[str, ...], more: Mapping[str, bytes | str] | None = None, **elves: ElfFacts) -> World:
    files = {**APP, **{f"usr/bin/{name}": "ELF" for name in ("sh", *elves)}, **(more or {})}
    facts = {"usr/bin/sh": STARTS, **{f"usr/bin/{name}": each for name, each in elves.items()}}
    return World(files, argv=argv, elves=facts, links={"bin": "usr/bin"})


def reasons(found: World) -> list[str]:
    assert all(spot.roles == ("main",) for spot in found.trace.blindspots)
    return [spot.reason for spot in found.trace.blindspots if spot.what == "entry"]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    "how",
    ["{} /srv/x", "sh -c 'exec {} /srv/x'", "/usr/bin/start", "sh -c 'python3.12 -m app; {} /srv/x'"],
)
def test_a_program_that_starts_what_its_own_files_say_is_open(name: str, how: str) -> None:
    script = {"usr/bin/start": f"#!/usr/bin/{name}\n", "srv/x": "exec 'python3.12', '-m', 'never'\n"}
    words = how.format(name)
    argv = ("sh", "-c", words[7:-1]) if words.startswith("sh") else tuple(words.split())
    for facts in (STARTS, STATIC, QUIET):  # a list names it: what it imports tells nothing
        found = reasons(world(argv, {**script}, **{name: facts}))
        assert [each for each in found if f"/usr/bin/{name}, and what that starts is not followed" in each] == found
        assert found


@pytest.mark.parametrize("facts", [STARTS, STATIC, INTERPRETER, ElfFacts(62, 64, needed=("libx.so",))])
@pytest.mark.parametrize("argv", [("launcher", "--config", "/etc/x"), ("sh", "-c", "exec launcher"), ("/opt/bin/run",)])
def test_a_program_that_can_start_or_hold_a_python_is_open_where_the_entry_leads_to_none(
    argv: tuple[str, ...], facts: ElfFacts
) -> None:
    files: dict[str, bytes | str] = {"opt/bin/run": "#!/usr/bin/launcher\n", "usr/lib/libx.so": "ELF"}
    elves = {"usr/bin/sh": STARTS, "usr/bin/launcher": facts, "usr/lib/libx.so": STARTS}
    files |= {"usr/bin/sh": "ELF", "usr/bin/launcher": "ELF"}
    found = World({**APP, **files}, argv=argv, elves=elves)
    assert len(reasons(found)) == 1
    assert "/usr/bin/launcher" in reasons(found)[0]


@pytest.mark.parametrize("argv", [("server",), ("sh", "-c", "exec server"), ("sleep", "1")])
def test_a_program_that_starts_nothing_is_not_open(argv: tuple[str, ...]) -> None:
    found = world(argv, server=QUIET, sleep=STARTS)  # of sleep a list knows that it starts none
    assert reasons(found) == []
    assert found.level(f"{S}/app.py") == "unreached"


def test_a_program_that_could_start_a_python_is_not_open_where_there_is_none() -> None:
    files = {"usr/bin/server": "ELF"}
    found = World(files, argv=("server",), elves={"usr/bin/server": STARTS}, environments=())
    assert found.trace.blindspots == ()


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("sh",), "without a program"),
        (("sh", "-l"), "without a program"),
        (("sh", "-c", "exec /mnt/run"), "leads to no Python"),
        (("tini", "--", "/mnt/run"), "leads to no Python"),
        (("/opt/bin/lost",), "its interpreter is not in the image"),
        (("pypy3", "-m", "app"), ""),
    ],
)
def test_an_entry_of_which_the_image_lacks_what_it_starts_is_open(argv: tuple[str, ...], reason: str) -> None:
    lost = {"opt/bin/lost": "#!/opt/none/bin/python\nimport app\n"}
    found = world(argv, lost, tini=STARTS, pypy3=STARTS)
    if argv[0] == "pypy3":  # there is an environment that fits
        assert found.level(f"{S}/dep.py") == "eager"
        return
    assert len(reasons(found)) == 1
    assert reason in reasons(found)[0]


@pytest.mark.parametrize("environments", [None, ()])
def test_a_script_whose_interpreter_the_image_lacks_is_open_in_any_image(environments: tuple[()] | None) -> None:
    found = World({"opt/bin/lost": "#!/opt/none/run\n"}, argv=("/opt/bin/lost",), environments=environments)
    assert len(reasons(found)) == 1
    assert "its interpreter is not in the image" in reasons(found)[0]


def test_a_python_without_a_standard_library_is_open() -> None:
    found = World(
        {**APP, "usr/bin/pypy3": "ELF"}, argv=("pypy3", "x.py"), elves={"usr/bin/pypy3": STARTS}, environments=()
    )
    assert len(reasons(found)) == 1
    assert "its standard library is not in the image" in reasons(found)[0]


@pytest.mark.parametrize(
    "name",
    [
        "python3.12d",
        "python3-dbg",
        "python3.13td",
        "python3.12-intel64",
        "python3.12.real",
        ".python-wrapped",
        "graalpy",
        "platform-python3.6",
    ],
)
def test_an_interpreter_of_another_build_is_one(name: str) -> None:
    assert world((name, "-m", "app"), {}, **{name: INTERPRETER}).level(f"{S}/dep.py") == "eager"


@pytest.mark.parametrize("symbol", ["Py_BytesMain", "Py_Main"])
def test_a_program_that_is_cpythons_own_is_an_interpreter_under_any_name(symbol: str) -> None:
    facts = ElfFacts(62, 64, needed=("libpython3.12.so",), symbols=(symbol,), python=True)
    assert world(("engine-py", "-m", "app"), {}, **{"engine-py": facts}).level(f"{S}/dep.py") == "eager"


@pytest.mark.parametrize(
    "words",
    ["-m app", "--nproc 2 -m app --flag", "launch --module app", "launch --module=app", "-m app -m never"],
)
@pytest.mark.parametrize("by", ["launcher", "python3.12 -m tool", "sh -c exec"])
def test_the_module_that_a_launcher_is_given_is_reached(words: str, by: str) -> None:
    files: dict[str, bytes | str] = {
        **site({"tool.py": "import subprocess, sys\ncommand = [sys.executable]\n"}),
        "usr/bin/launcher": "#!/usr/bin/python3.12\nimport tool\n",
    }
    argv = (*by.split(), *words.split()) if not by.startswith("sh") else ("sh", "-c", f"exec launcher {words}")
    found = world(argv, files)
    assert found.level(f"{S}/dep.py") in ("eager", "deferred")
    assert reasons(found) == []


def test_a_word_that_only_looks_like_a_module_is_no_blindspot() -> None:
    found = world(("python3.12", "-m", "app", "-m", "slow"))
    assert found.level(f"{S}/dep.py") == "eager"
    assert reasons(found) == []
