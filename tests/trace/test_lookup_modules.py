"""Which copy a module or program name leads to, and every place that is searched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from imgdiff.model import Environment, LookupAnswer
from imgdiff.trace.finder.resolver import Resolver
from imgdiff.trace.finder.search_path import build_search_path
from tests.trace.library_image import Machine
from tests.trace.world import SITE, World, site

S = SITE.decode()


def one(world: World, name: str, *kinds: str) -> LookupAnswer:
    answers = world.look_up(name, *kinds)  # type: ignore[arg-type]  # the words of the model
    assert len(answers) == 1
    return answers[0]


def won(answer: LookupAnswer) -> str | None:
    return answer.winners[0].path.decode() if answer.winners else None


def shown(answer: LookupAnswer) -> list[tuple[str, str | None, list[tuple[str, bool]]]]:
    """Every place that holds something: source, directory, candidates with whether they win."""
    return [
        (
            place.source,
            None if place.directory is None else place.directory.decode(),
            [(each.path.decode(), each.wins) for each in place.candidates],
        )
        for place in answer.places
        if place.candidates
    ]


COPIES = {
    **site({"app.py": "import pkg\n", "pkg/__init__.py": "", "pkg/core.py": "", "pkg/only.py": ""}),
    "srv/pkg/__init__.py": "",
    "srv/pkg/core.py": "x = 1\n",
    "old/pkg/__init__.py": "",
    "old/pkg/core.py": "",
}


def test_the_places_stand_in_their_order_with_what_each_has_and_who_put_it_there() -> None:
    world = World({**COPIES, f"{S}/more.pth": "# a comment\n/old\n/gone\n"}, env=["PYTHONPATH=/nowhere"], cwd="/srv")
    answer = one(world, "pkg.core")
    assert won(answer) == "srv/pkg/core.py"
    assert shown(answer) == [
        ("working directory", "srv", [("srv/pkg/core.py", True)]),
        ("site-packages", S, [(f"{S}/pkg/core.py", False)]),
        (".pth line", "old", [("old/pkg/core.py", False)]),
    ]
    by_directory = {place.directory: place for place in answer.places}
    line = by_directory[b"old"]
    assert (line.by, line.line) == (SITE + b"/more.pth", 2)
    assert not by_directory[b"gone"].present
    assert (by_directory[b"nowhere"].source, by_directory[b"nowhere"].said) == (
        "PYTHONPATH",
        "PYTHONPATH in the image's ENV",
    )
    assert answer.asked_by == ("python3.12 of /usr -m app, in /srv",)
    assert not answer.elsewhere


def test_a_copy_that_hides_another_hides_what_only_the_other_has() -> None:
    answer = one(World(COPIES, cwd="/srv"), "pkg.only")
    assert won(answer) is None
    (working, site_) = (place.candidates[0] for place in answer.places if place.candidates)
    assert (working.file, working.note) == (None, "pkg is here, without only")
    assert (site_.path.decode(), site_.wins) == (f"{S}/pkg/only.py", False)
    assert answer.notes == ("pkg is /srv/pkg/__init__.py, and what lies below other copies of it is not searched.",)


def test_copies_that_no_place_has_are_named() -> None:
    world = World({**COPIES, "backup/pkg/core.py": "", "deep/x/__init__.py": "", "deep/x/pkg/core.py": ""}, cwd="/srv")
    # deep/x is a package itself: what lies below it is x.pkg.core
    assert [each.path for each in one(world, "pkg.core").elsewhere] == [b"backup/pkg/core.py", b"old/pkg/core.py"]


def test_namespace_packages_and_packages_without_one() -> None:
    files = {**site({"app.py": "", "ns/one.py": ""}), "srv/ns/two.py": "", "srv/flat.py": ""}
    world = World(files, cwd="/srv")
    assert won(one(world, "ns.one")) == f"{S}/ns/one.py"
    assert won(one(world, "ns.two")) == "srv/ns/two.py"
    answer = one(world, "ns", "module")
    assert answer.winners[0].file is None
    assert answer.notes == (f"It is a namespace package of /srv/ns, /{S}/ns.",)
    (place,) = [place for place in one(world, "flat.x").places if place.candidates]
    assert place.candidates[0].note == "flat is here, and is no package"


def test_a_module_that_can_be_built_in_is_said_to() -> None:
    assert any("built in" in note for note in one(World(COPIES), "time", "module").notes)


def test_every_entry_of_a_profile_is_asked_and_alike_answers_are_one() -> None:
    files = {**COPIES, "usr/bin/tool": "#!/usr/bin/python3.12\nimport app\n", "usr/bin/pkg/__init__.py": ""}
    script = World(files, argv=["tool"], cwd="/srv", env=["PATH=/usr/bin"])
    assert won(one(script, "pkg", "module")) == "usr/bin/pkg/__init__.py"
    assert one(script, "pkg", "module").places[0].source == "script directory"


def test_an_image_whose_entry_starts_no_python_is_asked_by_its_environments() -> None:
    answer = one(World(COPIES, config=False), "pkg.core")
    assert won(answer) == f"{S}/pkg/core.py"
    assert answer.asked_by == ("python3.12 of /usr -c, in / (the entry starts no Python)",)


FINDER = "MAPPING: dict[str, str] = {'pkg': '/src/project/pkg'}\nNAMESPACES = {}\ndef install():\n    pass\n"


def _editable(code: str, **more: str) -> World:
    files = {
        **site(
            {
                "app.py": "import pkg.core\n",
                "__editable__.pkg.pth": "import __editable___pkg_finder; __editable___pkg_finder.install()\n",
                "__editable___pkg_finder.py": code,
            }
        ),
        "src/project/pkg/__init__.py": "",
        "src/project/pkg/core.py": "",
        **more,
    }
    return World(files, cwd="/srv")


def test_an_editable_finder_of_setuptools_is_asked_last() -> None:
    answer = one(_editable(FINDER), "pkg.core")
    assert shown(answer) == [("editable finder", None, [("src/project/pkg/core.py", True)])]
    assert answer.places[-1].by == SITE + b"/__editable___pkg_finder.py"
    hidden = one(_editable(FINDER, **{"srv/pkg/__init__.py": "", "srv/pkg/core.py": ""}), "pkg.core")
    assert shown(hidden) == [
        ("working directory", "srv", [("srv/pkg/core.py", True)]),
        ("editable finder", None, [("src/project/pkg/core.py", False)]),
    ]


def test_a_finder_that_puts_itself_first_is_asked_first() -> None:
    code = (  # as scikit-build-core writes it
        "import sys\ndef install(source, wheel):\n    sys.meta_path.insert(\n        0, Finder(source, wheel))\n"
        "install({'pkg': '/src/project/pkg/__init__.py', 'pkg.core': '/src/project/pkg/core.py'},"
        " {'pkg._native': 'pkg/_native.so'})\n"
    )
    world = _editable(code, **{"srv/pkg/__init__.py": "", "srv/pkg/core.py": "", f"{S}/pkg/_native.so": "\x7fELF"})
    answer = one(world, "pkg.core")
    assert answer.places[0].source == "editable finder"
    assert won(answer) == "src/project/pkg/core.py"
    assert won(one(world, "pkg._native")) == f"{S}/pkg/_native.so"
    assert world.level("src/project/pkg/core.py") == "eager"
    assert world.level("srv/pkg/core.py") == "unknown"  # its name stands in app.py


def test_the_finder_of_editables_maps_by_calls() -> None:
    code = (
        "from editables.redirector import RedirectingFinder as F\nF.install()\n"
        "F.map_module('pkg', '/src/project/pkg/__init__.py')\n"
    )
    world = _editable(code)
    assert won(one(world, "pkg.core")) == "src/project/pkg/core.py"
    assert world.level("src/project/pkg/core.py") == "eager"


def test_a_finder_whose_table_is_made_at_run_time_is_a_blindspot() -> None:
    world = _editable("import sys\nsys.meta_path.insert(0, Finder({'pkg'}, '/build'))\n")  # meson-python
    assert [spot.what for spot in world.trace.blindspots] == ["editable finder"]
    assert not [spot for spot in _editable(FINDER).trace.blindspots if spot.what == "editable finder"]


def test_programs_by_path_with_what_can_not_be_executed() -> None:
    files = {
        **COPIES,
        "opt/venv/bin/tool": "#!/usr/bin/python3.12\n",
        "usr/bin/tool": "#!/bin/sh\n",
        "opt/early/tool": "no execute bit",
        "opt/other/bin/tool": "",
    }
    world = World(files, env=["PATH=/opt/early:/opt/none:/opt/venv/bin:/usr/bin"])
    answer = one(world, "tool", "program")
    assert shown(answer) == [
        ("PATH", "opt/early", [("opt/early/tool", False)]),
        ("PATH", "opt/venv/bin", [("opt/venv/bin/tool", True)]),
        ("PATH", "usr/bin", [("usr/bin/tool", False)]),
    ]
    assert answer.places[0].candidates[0].note == "it can't be executed: no execute bit"
    assert not answer.places[1].present
    assert [each.path for each in answer.elsewhere] == [b"opt/other/bin/tool"]
    assert "It is a script that /usr/bin/python3.12 runs." in answer.notes
    assert won(one(world, "/usr/bin/tool")) == "usr/bin/tool"
    assert won(one(world, "none", "program")) is None


def test_a_script_that_sets_the_path_is_named_with_its_line() -> None:
    files = {
        **COPIES,
        "start.sh": "#!/bin/sh\n. /opt/env.sh\nexec python3.12 -m app\n",
        "opt/env.sh": "X=1\nexport PYTHONPATH=/old:$PYTHONPATH\nif test -d /x; then PATH=/x:$PATH; fi\n",
        "usr/bin/sh": "\x7fELF",
        "x/python3.12": "",
    }
    links = {"bin/sh": "/usr/bin/sh"}
    world = World(files, argv=["/start.sh"], cwd="/none", env=["PATH=/usr/bin"], links=links)
    answer = next(each for each in world.look_up("pkg.core") if each.asked_by[0].startswith("python"))
    place = next(place for place in answer.places if place.source == "PYTHONPATH")
    assert (place.directory, place.by, place.line) == (b"old", b"opt/env.sh", 2)
    assert place.candidates[0].wins
    program = next(each for each in world.look_up("python3.12", "program") if each.asked_by[0].startswith("python"))
    assert program.places[0].said == "PATH in a script that the entry runs, if that line runs"


@pytest.mark.parametrize(
    ("code", "answers"),
    [
        ("cd /srv && exec python3.12 -m app", ["srv"]),
        ("cd /srv; exec python3.12 -m app", ["srv"]),
        ("set -e\n# there\nX=1\nexport Y='a b'\ncd /srv || exit 1\nif true; then\n  python3.12 -m app\nfi", ["srv"]),
        ("cd /srv && \\\n  exec python3.12 -m app", ["srv"]),
        ("cd /srv && . /opt/plain.sh && exec python3.12 -m app", ["srv"]),
        ("if true; then\ncd /srv\nfi\npython3.12 -m app", [S, "srv"]),
        ("test -d /x && cd /srv\npython3.12 -m app", [S, "srv"]),
        ("cd /srv || python3.12 -m app", [S, "srv"]),
        ("cd /srv &\npython3.12 -m app", [S, "srv"]),
        ("cd /srv && true &\npython3.12 -m app", [S, "srv"]),
        ("cd /srv && \\\n true &\npython3.12 -m app", [S, "srv"]),
        ("cd /srv && true && sleep 1 & wait\npython3.12 -m app", [S, "srv"]),
        ("cd /srv && { true; }&\npython3.12 -m app", [S, "srv"]),
        ("cd /srv && true 2>&1 &> /x\npython3.12 -m app", ["srv"]),
        ("cd /srv; sleep 1 &\npython3.12 -m app", ["srv"]),
        ("cd ./in\npython3.12 -m app", ["none/in"]),
        ("cd in\npython3.12 -m app", [S, "none/in"]),  # CDPATH
        ("cd /srv\n$BACK /\npython3.12 -m app", [S, "srv"]),
        ('cd /srv\nexec "$@" python3.12 -m app', ["srv"]),
        ("cd /srv && env -C / python3.12 -m app", [S, "srv"]),
        ("cd /srv && env --chdir=/ python3.12 -m app", [S, "srv"]),
        ("(cd /srv && true)\npython3.12 -m app", [S, "srv"]),
        ("false && {\ncd /srv\n}\npython3.12 -m app", [S, "srv"]),
        ("cat <<E\ncd /srv\nE\npython3.12 -m app", [S]),
        ("cd /srv\ncd -\npython3.12 -m app", [S, "srv"]),
        ("cd /srv\n. /opt/$X.sh\npython3.12 -m app", [S, "srv"]),
        ("cd /srv\n. /opt/back.sh\npython3.12 -m app", [S, S, "srv"]),  # it goes to a third directory
        ("cd /closed\npython3.12 -m app", [S, "closed"]),
        ("python3.12 -m app\ncd /srv", [S, "srv"]),
    ],
)
def test_a_script_that_surely_changes_its_directory_has_one_answer(code: str, answers: list[str]) -> None:
    """... and in both directories what may run in either."""
    files = {
        **COPIES,
        "closed/pkg/core.py": "",
        "closed/pkg/__init__.py": "",
        "none/in/pkg/core.py": "",
        "none/in/pkg/__init__.py": "",
        "start.sh": f"#!/bin/sh\n{code}\n",
        "opt/plain.sh": "X=1\n",
        "opt/back.sh": "cd /\n",
        "usr/bin/sh": "\x7fELF",
    }
    world = World(files, argv=["/start.sh"], cwd="/none", env=["PATH=/usr/bin"], links={"bin/sh": "/usr/bin/sh"})
    closed = world.tree.entries[b"closed"]
    world.tree.entries[b"closed"] = msgspec.structs.replace(closed, mode=0o700)
    found = [won(each) for each in world.look_up("pkg.core") if each.asked_by[0].startswith("python")]
    assert sorted(filter(None, found)) == sorted(f"{each}/pkg/core.py" for each in answers)


@pytest.mark.parametrize("name", ["sys", "time", "zipimport", "os", "os.path", "importlib.util"])
def test_what_lies_in_the_interpreter_is_no_file(name: str) -> None:
    """... whatever copies the directories have."""
    files = {**COPIES, "usr/lib/python3.12/os.py": "", "usr/lib/python3.12/zipimport.py": "", "srv/time.py": ""}
    files |= {"usr/lib/python3.12/posixpath.py": "", "usr/lib/python3.12/importlib/util.py": "", "srv/os.py": ""}
    world = World(
        {**files, "usr/lib/python3.12/importlib/__init__.py": "", "usr/bin/python3.12": "\x7fELF"}, cwd="/srv"
    )
    answer = one(world, name, "module")
    assert won(answer) == "usr/bin/python3.12"
    assert answer.places[0].source == "interpreter"
    assert f"{name} is" in answer.notes[0]
    assert [each.wins for place in answer.places[1:] for each in place.candidates].count(True) == 0


def test_a_frozen_module_is_a_file_where_freezing_is_off_or_of_a_later_minor() -> None:
    files = {**COPIES, "usr/lib/python3.12/os.py": "", "srv/os.py": "", "usr/bin/python3.12": "\x7fELF"}
    off = World(files, argv=["python3.12", "-X", "frozen_modules=off", "-m", "app"], cwd="/srv", env=["PATH=/usr/bin"])
    before = [Environment(b"usr", b"usr", b"usr/bin/python3.12", "3.10", b"usr/lib/python3.12", (SITE,))]
    for world in (off, World(files, cwd="/srv", environments=before)):
        answer = one(world, "os", "module")
        assert won(answer) == "usr/lib/python3.12/os.py"  # loaded before the working directory is on the path
        assert "loaded before /srv is put on the path" in answer.notes[-1]


def test_what_runs_at_start_is_not_taken_from_the_working_directory() -> None:
    files = {**COPIES, "srv/sitecustomize.py": "", f"{S}/sitecustomize.py": ""}
    assert won(one(World(files, cwd="/srv"), "sitecustomize", "module")) == f"{S}/sitecustomize.py"
    only = World({**COPIES, "srv/sitecustomize.py": ""}, cwd="/srv")  # for a program that imports it
    assert won(one(only, "sitecustomize", "module")) == "srv/sitecustomize.py"
    assert not any("runs at start" in note for note in one(only, "pkg.core").notes)
    by_path = World(files, cwd="/srv", env=["PYTHONPATH=/srv"])
    assert won(one(by_path, "sitecustomize", "module")) == "srv/sitecustomize.py"
    assert any("runs at start" in note for note in one(by_path, "pkg.core").notes)
    assert not any("runs at start" in note for note in one(World(COPIES, cwd="/srv"), "pkg.core").notes)


@pytest.mark.parametrize("value", ["/opt/x.zip", "/opt/x.zip/lib", "/opt/y.egg"])
def test_an_archive_before_the_copy_that_wins_is_told(value: str) -> None:
    files = {**COPIES, "opt/x.zip": "PK", "opt/y.egg": "PK", f"{S}/z.pth": "/opt/late.zip\n", "opt/late.zip": "PK"}
    world = World(files, env=[f"PYTHONPATH={value}"], cwd="/none")
    answer = one(world, "pkg.core")
    place = next(place for place in answer.places if place.source == "PYTHONPATH")
    assert place.present
    assert "an archive, which is not looked into" in (place.said or "")
    (note,) = [note for note in answer.notes if "archive" in note]
    assert note.startswith(f"/opt/{'y.egg' if 'egg' in value else 'x.zip'} is an archive on the path")
    late = next(place for place in answer.places if place.directory == b"opt/late.zip")
    assert (late.present, late.by) == (True, SITE + b"/z.pth")
    missing = one(world, "gone.core")
    assert len([note for note in missing.notes if "archive" in note]) == 2


def test_any_archive_comes_before_directories_without_init() -> None:
    files = {**site({"app.py": "", "ns/one.py": ""}), f"{S}/z.pth": "/opt/late.zip\n", "opt/late.zip": "PK"}
    for name in ("ns", "ns.one"):
        assert any("archive" in note for note in one(World(files, cwd="/none"), name, "module").notes)
    assert not any("archive" in note for note in one(World(files, cwd="/none"), "app", "module").notes)


def test_code_of_a_pth_line_that_changes_the_path_is_told() -> None:
    files = {**COPIES, f"{S}/code.pth": "import sys, os; sys.path.insert(0, os.environ['X'])\n"}
    answer = one(World(files, cwd="/none"), "pkg.core")
    assert any(f"/{S}/code.pth: line 1 changes sys.path" in note for note in answer.notes)


def test_the_answer_is_what_the_trace_takes() -> None:
    source = "import pkg.core, pkg.only, ns.one, ns.two, json, tool\n"
    files = {
        **COPIES,
        **site({"app.py": source, "ns/one.py": "", "tool.py": "", "tool/__init__.py": ""}),
        "old/ns/two.py": "",
        "usr/lib/python3.12/json/__init__.py": "",
        f"{S}/a.pth": "/old\n",
    }
    for cwd in ("/srv", "/none", "/old"):
        world = World(files, cwd=cwd)
        modules = world.trace.roles["main"].modules
        assert len(modules) > 8
        for name, (_, resolved) in modules.items():
            answer = one(world, name, "module") if not name.startswith("/") else None
            if answer is not None and answer.places[0].source != "interpreter":  # the trace takes both for loaded
                assert answer.winners[0].file == resolved.path, (cwd, name)


# What CPython itself says ---------------------------------------------------------------------------------------------

_ASK = (
    "import importlib.util, json, sys\n"
    "def origin(name):\n"
    "    try:\n"
    "        return getattr(importlib.util.find_spec(name), 'origin', None)\n"
    "    except ModuleNotFoundError:\n"
    "        return None\n"
    "print(json.dumps([sys.path, {name: origin(name) for name in sys.argv[1:]}]))\n"
)
_NAMES = ("pkg", "pkg.core", "pkg.only", "top", "ns.one", "ns.two", "gone")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with ``.pth`` files, and copies of packages around it."""
    root = tmp_path_factory.mktemp("real").resolve()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "venv"], check=True)
    packages = next((root / "venv/lib").iterdir()) / "site-packages"
    files = {
        packages / "pkg/__init__.py": "",
        packages / "pkg/core.py": "",
        packages / "pkg/only.py": "",
        packages / "ns/one.py": "",
        packages / "b.pth": f"{root}/late\n\n# {root}/never\n{root}/early\n",
        packages / "a.pth": f"../../../../first\n{root}/missing\n",
        root / "work/pkg/__init__.py": "",
        root / "work/pkg/core.py": "",
        root / "work/ask.py": _ASK,
        root / "late/top.py": "",
        root / "early/top.py": "",
        root / "first/ns/two.py": "",
        root / "other/top.py": "",
        root / "other/ask.py": _ASK,
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize(
    ("env", "cwd", "mode", "flags"),
    [
        ({}, "work", "module", ()),
        ({}, "work", "script", ()),
        ({}, "first", "script", ()),
        ({"PYTHONPATH": "{root}/other"}, "work", "module", ()),
        ({"PYTHONPATH": ":{root}/other"}, "work", "script", ()),
        ({"PYTHONPATH": "{root}/other:"}, "first", "script", ()),
        ({"PYTHONPATH": "{root}/other::{root}/late"}, "work", "script", ()),
        ({"PYTHONPATH": "../other:late"}, "work", "script", ()),
        ({"PYTHONPATH": ""}, "work", "script", ()),
        ({"PYTHONSAFEPATH": "1"}, "work", "script", ()),
        ({"PYTHONSAFEPATH": "1", "PYTHONPATH": ":"}, "work", "script", ()),
        ({"PYTHONSAFEPATH": ""}, "work", "module", ()),
        ({"PYTHONPATH": "{root}/other"}, "work", "script", ("E",)),
        ({"PYTHONPATH": "{root}/other"}, "work", "script", ("P",)),
        ({"PYTHONPATH": "{root}/other"}, "work", "script", ("I",)),
        ({"PYTHONPATH": "{root}/other"}, "work", "script", ("S",)),
    ],
)
def test_sys_path_and_origins_are_what_cpython_has(
    real: Path, env: Mapping[str, str], cwd: str, mode: str, flags: tuple[str, ...]
) -> None:
    env = {name: value.replace("{root}", str(real)) for name, value in env.items()}
    script = real / ("other" if cwd == "first" else "work") / "ask.py"
    target = ["-m", "ask"] if mode == "module" else [str(script)]
    words = [str(real / "venv/bin/python"), *(f"-{flag}" for flag in flags), *target, *_NAMES]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = subprocess.run(words, cwd=real / cwd, env={**clean, **env}, check=True, capture_output=True, text=True)
    path, origins = json.loads(ran.stdout)

    stdlib = str(Path(os.__file__).resolve().parent)
    machine = Machine([str(real), f"{stdlib}/os.py", f"{stdlib}/lib-dynload"])
    packages = next((real / "venv/lib").iterdir()) / "site-packages"

    def inside(place: Path | str) -> bytes:
        return os.fsencode(str(place)).strip(b"/")

    environment = Environment(
        inside(real / "venv"),
        inside(os.path.realpath(sys.base_prefix)),
        None,
        f"{sys.version_info[0]}.{sys.version_info[1]}",
        inside(stdlib),
        (inside(packages),),
        system_site=False,
    )
    first = inside(real / cwd) if mode == "module" else inside(script.parent)
    search = build_search_path(
        machine.tree, environment, machine.text, env, first, frozenset(flags), cwd=inside(real / cwd)
    )
    expected = [os.path.realpath(each) for each in path if Path(each).is_dir()]
    assert ["/" + each.decode() for each in search.directories] == list(dict.fromkeys(expected))

    resolver = Resolver(machine.tree, search)
    for name, origin in origins.items():
        found = resolver.find(name)
        mine = None if found is None or found.path is None else "/" + found.path.decode()
        assert mine == (None if origin is None else os.path.realpath(origin)), name


@pytest.mark.parametrize(("version", "left_out"), [("3.10", False), ("3.11", True), ("3.12", True)])
def test_pythonsafepath_is_of_3_11(version: str, left_out: bool) -> None:
    environment = [Environment(b"usr", b"usr", b"usr/bin/python3.12", version, b"usr/lib/python3.12", (SITE,))]
    world = World(COPIES, cwd="/srv", env=["PYTHONSAFEPATH=1"], environments=environment)
    assert won(one(world, "pkg.core")) == (f"{S}/pkg/core.py" if left_out else "srv/pkg/core.py")


@pytest.mark.parametrize("value", [":/nowhere", "/nowhere:", "/nowhere::/other"])
def test_an_empty_part_of_pythonpath_is_the_working_directory(value: str) -> None:
    script = {**COPIES, "usr/bin/run": "#!/usr/bin/python3.12\nimport pkg.core\n"}
    world = World(script, argv=["run"], cwd="/srv", env=[f"PYTHONPATH={value}", "PATH=/usr/bin"])
    assert won(one(world, "pkg.core")) == "srv/pkg/core.py"
    assert world.level("srv/pkg/core.py") == "eager"
    plain = World(script, argv=["run"], cwd="/srv", env=["PYTHONPATH=", "PATH=/usr/bin"])
    assert won(one(plain, "pkg.core")) == f"{S}/pkg/core.py"


@pytest.mark.parametrize(("version", "read"), [("3.12", True), ("3.13", False)])
def test_hidden_pth_files_count_where_some_release_reads_them(version: str, read: bool) -> None:
    environment = [Environment(b"usr", b"usr", b"usr/bin/python3.12", version, b"usr/lib/python3.12", (SITE,))]
    files = {
        **site({"app.py": "import top\n", ".h.pth": "/one\n", "._x.pth": "\0/two\n"}),
        "one/top.py": "",
        "two/top.py": "",
    }
    world = World(files, environments=environment)
    assert world.level("one/top.py") == ("eager" if read else "unreached")
    assert world.level("two/top.py") == "unreached"


def test_pth_files_are_read_in_the_order_of_their_names() -> None:
    files = {
        **site({"app.py": "import top\n", "b.pth": "/two\n", "a.pth": "\ufeff/one\n"}),
        "one/top.py": "",
        "two/top.py": "",
    }
    world = World(files, cwd="/none")
    assert won(one(world, "top", "module")) == "one/top.py"
    assert world.level("one/top.py") == "eager"
    assert world.level("two/top.py") == "unreached"
