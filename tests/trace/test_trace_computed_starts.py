"""What shell code starts by names that it computes, what a shell reads by itself, and what programs are handed.

Each case was run by a real shell (Debian 12's bash and dash): the file at ``runs`` is what it loads."""

from __future__ import annotations

import pytest

from imgdiff.model import ElfFacts, Environment
from tests.trace.world import PYTHON, SITE, STDLIB, World, site

S = SITE.decode()
ELF = ElfFacts(62, 64)
PROGRAMS = (
    "bash", "sh", "tini", "env", "chroot", "ld.so", "perl", "gosu", "run-parts", "find", "cat", "python3.12", "timeout",
)  # fmt: skip
FILES = {
    **site({"never.py": "", "dep.py": "", "app.py": "import dep\n"}),
    **{f"usr/bin/{name}": "ELF" for name in PROGRAMS},
    "srv/app.py": "import dep\n",
    "srv/dep.py": "",
    "alt/app.py": "import dep\n",
    "alt/dep.py": "",
    "alt/other/x": "",
    "d/10.sh": "#!/bin/sh\npython3.12 /alt/app.py\n",
    "s/10.sh": "cd /alt\n",
    "etc/cmd": "python3.12 /alt/app.py\n",
    "srv/run.py": "import os, sys\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n",
    "srv/python": "",
}
ELVES = {f"usr/bin/{name}": ELF for name in PROGRAMS}


def world(argv: tuple[str, ...], code: str = "", env: tuple[str, ...] = (), **files: str) -> World:
    contents = {**FILES, "srv/run.sh": f"#!/bin/bash\n{code}\n", **files}
    return World(contents, argv=argv, env=("PATH=/usr/bin", *env), cwd="/srv", elves=ELVES, links={"bin": "usr/bin"})


def levels(found: World, *paths: str) -> list[str]:
    return [found.level(path) for path in paths]


def is_open(found: World) -> bool:
    return any(spot.what == "entry" and "computes" in spot.reason for spot in found.trace.blindspots)


@pytest.mark.parametrize(
    "code",
    [
        'for f in /d/*; do "$f"; done',
        'for f in /d/*; do [ -x "$f" ] && exec "$f"; done',
        "for f in $(find /d -type f | sort); do $f; done",
        'find /d -name "*.sh" | sort | while read -r f; do "$f"; done',
        "run-parts /d",
        "run-parts --exit-on-error /d",
        'for f in /d/*.sh; do . "$f"; done',
        'for f in /d/*.sh; do bash "$f"; done',
    ],
)
def test_scripts_of_a_directory_that_are_started_one_by_one_are_followed(code: str) -> None:
    found = world(("/srv/run.sh",), code)
    assert levels(found, "d/10.sh", "alt/app.py", "alt/dep.py") == ["deferred", "eager", "eager"]
    assert found.level(f"{S}/never.py") == "unreached"
    assert not is_open(found)


@pytest.mark.parametrize(
    "code",
    [
        "exec $(cat /etc/cmd)",
        "$(cat /etc/cmd) &",
        "read -r C < /etc/cmd; $C",
        "C=$(cat /etc/cmd); exec $C",
        "mapfile -t C < /etc/cmd; exec ${C[@]}",
        'set -- $(cat /etc/cmd); exec "$@"',
        "gosu nobody $(cat /etc/cmd)",
        "timeout 5 $(cat /etc/cmd)",
        "env A=b $(cat /etc/cmd)",
        'python3.12 "$(cat /etc/cmd)"',
        'python3.12 -m "$(cat /etc/cmd)"',
        'bash -c "$(cat /etc/cmd)"',
        'eval "$(cat /etc/cmd)"',
        'E=$(cat /etc/cmd); eval "export $E"',
        '. "$(cat /etc/cmd)"',
        "D=$(cat /etc/cmd); cd $D; python3.12 -m app",
        'printf -v D "/%s" alt; cd "$D"; python3.12 -m app',
        "D=/altXX; cd ${D%XX}; python3.12 -m app",
        "D=/bet; cd ${D/bet/alt}; python3.12 -m app",
        "D=/altXX; cd ${D%XX}; ./start",
    ],
)
def test_a_name_that_nothing_bounds_leaves_the_entry_open(code: str) -> None:
    assert is_open(world(("/srv/run.sh",), code)), code
    assert is_open(world(("bash", "-c", code))), code


@pytest.mark.parametrize(
    "code",
    [
        'exec "$@"',
        "exec $CMD",
        'exec "${1:-python3.12}" -m app',
        '"$(command -v python3.12)" -m app',
        "P=$(which python3.12); $P -m app",
        'cd "$(dirname "$0")" && python3.12 -m app',
        'HERE=$(cd "$(dirname "$(readlink -f "$0")")" && pwd); cd "$HERE"; python3.12 -m app',
        'X=$(cat /etc/cmd); echo "$X"; python3.12 -m app --x "$X"',
        'eval "$(SHELL=/bin/sh lesspipe)"; python3.12 -m app',
        "D=$(cat /etc/cmd); cd $D; python3.12 /srv/app.py",
        "(cd $(cat /etc/cmd); ls); exec python3.12 /srv/app.py",
    ],
)
def test_what_arguments_and_env_give_or_what_folds_leaves_nothing_open(code: str) -> None:
    assert not is_open(world(("/srv/run.sh", "python3.12", "-m", "app"), code)), code


@pytest.mark.parametrize(
    ("argv", "env", "path"),
    [
        (("bash", "-lc", "python3.12 -m app"), (), "etc/profile"),
        (("bash", "--login", "-c", "python3.12 -m app"), (), "root/.bash_profile"),
        (("sh", "-l", "-c", "python3.12 -m app"), (), "root/.profile"),
        (("bash", "-lc", "python3.12 -m app"), ("HOME=/home/me",), "home/me/.profile"),
        (("bash", "-l", "/srv/plain.sh"), (), "root/.profile"),
        (("bash", "-ic", "python3.12 -m app"), (), "root/.bashrc"),
        (("bash", "--rcfile", "/opt/rc", "-i", "-c", "python3.12 -m app"), (), "opt/rc"),
        (("bash", "-c", "python3.12 -m app"), ("BASH_ENV=/opt/env.sh",), "opt/env.sh"),
        (("/srv/plain.sh",), ("BASH_ENV=/opt/env.sh",), "opt/env.sh"),
        (("sh", "-i", "-c", "python3.12 -m app"), ("ENV=/opt/env.sh",), "opt/env.sh"),
    ],
)
@pytest.mark.parametrize("line", ["cd /alt", "export PYTHONPATH=/alt", "for f in /s/*.sh; do . $f; done"])
def test_what_a_shell_reads_by_itself_steers_what_it_starts(
    argv: tuple[str, ...], env: tuple[str, ...], path: str, line: str
) -> None:
    plain = {
        "srv/plain.sh": "#!/bin/bash\npython3.12 -P -m app\n"
        if "export" in line
        else "#!/bin/bash\npython3.12 -m app\n"
    }
    argv = tuple(word.replace("-m app", "-P -m app") if "export" in line else word for word in argv)
    plain[path] = f"{line}\n"
    found = world(argv, "", env, **plain)
    assert levels(found, "alt/app.py", "alt/dep.py") == ["eager", "eager"]
    assert found.level("alt/other/x") != "eager"


def test_a_directory_that_a_sourced_file_changes_to_and_cdpath() -> None:
    assert world(("/srv/run.sh",), ". /s/10.sh\npython3.12 -m app").level("alt/dep.py") == "eager"
    assert world(("/srv/run.sh",), "CDPATH=/none:/\ncd alt\npython3.12 -m app").level("alt/dep.py") == "eager"
    assert world(("/srv/run.sh",), "cd alt\npython3.12 -m app", ("CDPATH=/",)).level("alt/dep.py") == "eager"


@pytest.mark.parametrize(
    "argv",
    [
        ("chroot", "/", "python3.12", "/alt/app.py"),
        ("/usr/bin/ld.so", "--library-path", "/opt/lib", "/usr/bin/python3.12", "/alt/app.py"),
        ("python3.12", "/srv/run.py", "/alt/app.py"),
        ("python3.12", "/srv/run.py", "--flag", "python3.12", "/alt/app.py"),
        ("bash", "-c", 'exec "$0" "$@"', "python3.12", "/alt/app.py"),
        ("bash", "-c", 'exec "$@"', "--", "python3.12", "/alt/app.py"),
    ],
)
def test_what_a_program_is_handed_can_be_started_by_it(argv: tuple[str, ...]) -> None:
    found = world(argv)
    assert levels(found, "alt/app.py", "alt/dep.py") == ["eager", "eager"]
    assert found.level(f"{S}/never.py") == "unreached"


def test_words_that_name_no_program_start_none() -> None:
    found = world(("python3.12", "-m", "app", "serve", "/no/model", "other.py"))
    assert levels(found, "alt/app.py", "alt/dep.py") == ["unreached", "unreached"]


@pytest.mark.parametrize(
    "line",
    ["#!/usr/bin/env -S PYTHONPATH=${WHERE} python3.12 -P", "#!/usr/bin/env -S -i PYTHONPATH=${HOME} python3.12 -P"],
)
def test_env_fills_in_the_names_of_its_split_string(line: str) -> None:
    found = world(("/opt/bin/tool",), "", ("WHERE=/alt", "HOME=/alt"), **{"opt/bin/tool": f"{line}\nimport dep\n"})
    assert found.level("alt/dep.py") == "eager"


@pytest.mark.parametrize("code", ["cd /alt\npython3.12 -m app", "export PYTHONPATH=/alt\npython3.12 -P -m app"])
def test_a_shell_script_that_python_starts_steers_what_it_starts(code: str) -> None:
    """The directory is named by the script alone, not by the code that starts it."""
    starter = {
        "srv/starter.py": "import subprocess\nsubprocess.run(['bash', '/opt/go.sh'])\n",
        "opt/go.sh": f"{code}\n",
    }
    found = world(("python3.12", "/srv/starter.py"), "", (), **starter)
    assert found.level("alt/dep.py") in ("eager", "deferred")
    assert found.level("alt/app.py") in ("eager", "deferred")


RUNNERS = {
    "work/.venv/lib/python3.12/site-packages/dep.py": "",
    "work/.venv/lib/python3.12/site-packages/idle.py": "",
    "work/.venv/bin/serve": "#!/work/.venv/bin/python\nimport dep\n",
    "work/main.py": "import dep\n",
    "work/sub/x": "",
    "conda/envs/other/lib/python3.12/site-packages/dep.py": "",
    "usr/bin/uv": "ELF",
    "usr/bin/micromamba": "ELF",
    "usr/bin/poetry": "#!/usr/bin/python3.12\n",
    "usr/bin/conda": "#!/usr/bin/python3.12\n",
    "usr/bin/uvx": "ELF",
    "usr/bin/pipx": "#!/usr/bin/python3.12\n",
    "usr/bin/tox": "#!/usr/bin/python3.12\n",
}
WORK, OTHER = b"work/.venv", b"conda/envs/other"


@pytest.mark.parametrize(
    ("argv", "cwd", "prefix"),
    [
        (("uv", "run", "serve"), "/work", WORK),
        (("uv", "run", "--no-sync", "--extra", "cpu", "serve", "--port", "1"), "/work", WORK),
        (("uv", "run", "--", "python", "main.py"), "/work", WORK),
        (("uv", "run", "main.py"), "/work", WORK),
        (("uv", "run", "-m", "main"), "/work", WORK),
        (("uv", "run", "serve"), "/work/sub", WORK),
        (("uv", "run", "--directory", "/work", "main.py"), "/", WORK),
        (("uv", "run", "--directory=/work", "python", "-m", "main"), "/", WORK),
        (("poetry", "run", "serve"), "/work", WORK),
        (("poetry", "run", "python", "main.py"), "/work", WORK),
        (("sh", "-c", "exec uv run --no-sync python main.py"), "/work", WORK),
        (("uv", "tool", "run", "serve"), "/work", WORK),
        (("uvx", "--from", "tool", "serve", "--port", "1"), "/", WORK),
        (("pipx", "run", "serve"), "/", WORK),
        (("tox", "exec", "--", "serve"), "/work", WORK),
        (("conda", "run", "-n", "other", "python", "/work/main.py"), "/", OTHER),
        (("conda", "run", "--no-capture-output", "-p", "/conda/envs/other", "python", "/work/main.py"), "/", OTHER),
        (("micromamba", "run", "--name=other", "python", "-m", "main"), "/work", OTHER),
    ],
)
def test_a_runner_starts_its_command_in_an_environment_of_its_own(
    argv: tuple[str, ...], cwd: str, prefix: bytes
) -> None:
    """... which need not be on PATH; uv 0.13 was run so."""
    places = [(each, each + b"/lib/python3.12/site-packages") for each in (WORK, OTHER)]
    links = {f"{each.decode()}/bin/python": "/usr/bin/python3.12" for each, _ in places}
    found = World(
        {**FILES, **RUNNERS},
        argv=argv,
        env=("PATH=/usr/bin",),
        cwd=cwd,
        elves={**ELVES, **dict.fromkeys(("usr/bin/uv", "usr/bin/uvx", "usr/bin/micromamba"), ELF)},
        links={"bin": "usr/bin", **links},
        environments=[
            Environment(b"usr", b"usr", PYTHON, "3.12", STDLIB, (SITE,)),
            *(Environment(each, b"usr", PYTHON, "3.12", STDLIB, (own,), False) for each, own in places),
        ],
    )
    assert found.level((prefix + b"/lib/python3.12/site-packages/dep.py").decode()) == "eager"
    if prefix == OTHER:  # an option names it
        assert found.level("work/.venv/lib/python3.12/site-packages/dep.py") in ("unreached", "unknown")
    assert found.level("work/.venv/lib/python3.12/site-packages/idle.py") in ("unreached", "unknown")
