"""Identical files of which another one is found: every cause that must show as a difference in resolution."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from imgdiff.model import ElfFacts, Environment, ResolutionChange
from imgdiff.resolution import compare_resolution
from tests.trace.library_image import LOADER
from tests.trace.test_ld_cache import new_cache
from tests.trace.world import SITE, World, site

S = SITE.decode()
MUSL_LOADER = "/lib/ld-musl-x86_64.so.1"

COPIES: dict[str, bytes | str] = {
    **site({"app.py": "import pkg.core\n", "pkg/__init__.py": "", "pkg/core.py": ""}),
    "srv/pkg/__init__.py": "",
    "srv/pkg/core.py": "x = 1\n",
    "one/pkg/__init__.py": "",
    "one/pkg/core.py": "x = 2\n",
    "usr/bin/run": "#!/usr/bin/python3.12\nimport app\n",
}


def differences(a: World, b: World) -> dict[tuple[str, str], tuple[str, str]]:
    """Return (kind, name) -> the two paths, of the generic role."""
    found: tuple[ResolutionChange, ...] = compare_resolution(a.trace, b.trace)
    return {
        (each.kind, each.name): (each.a.path.decode(), each.b.path.decode())
        for each in found
        if each.a is not None and each.b is not None
    }


def modules(
    a: Mapping[str, object], b: Mapping[str, object], more: Mapping[str, bytes | str] | None = None
) -> tuple[str, str] | None:
    files = {**COPIES, **(more or {})}

    def world(changes: Mapping[str, object]) -> World:
        changed = dict(changes)
        extra = changed.pop("files", {})
        assert isinstance(extra, dict)
        return World({**files, **extra}, **changed)  # type: ignore[arg-type]  # what World takes

    return differences(world(a), world(b)).get(("module", "pkg.core"))


def test_the_safe_path() -> None:
    assert modules({}, {"env": ["PYTHONSAFEPATH=1"]}) == ("srv/pkg/core.py", f"{S}/pkg/core.py")


def test_an_empty_part_of_pythonpath() -> None:
    script = ["run"]
    env = ["PATH=/usr/bin", "PYTHONPATH=/none"]
    assert modules({"argv": script, "env": env}, {"argv": script, "env": [env[0], "PYTHONPATH=/none:"]}) == (
        f"{S}/pkg/core.py",
        "srv/pkg/core.py",
    )


def test_the_working_directory_and_the_way_of_starting() -> None:
    assert modules({}, {"cwd": "/none"}) == ("srv/pkg/core.py", f"{S}/pkg/core.py")
    assert modules({}, {"argv": ["run"], "env": ["PATH=/usr/bin"]}) == ("srv/pkg/core.py", f"{S}/pkg/core.py")


def test_pythonpath_with_two_copies() -> None:
    assert modules({"cwd": "/none"}, {"cwd": "/none", "env": ["PYTHONPATH=/one"]}) == (
        f"{S}/pkg/core.py",
        "one/pkg/core.py",
    )


def test_the_order_of_pth_files() -> None:
    more = {"one/late.py": "", "two/late.py": "", f"{S}/app.py": "import late\n"}
    a = World({**more, **site({"a.pth": "/one\n", "b.pth": "/two\n"})})
    b = World({**more, **site({"a.pth": "/two\n", "b.pth": "/one\n"})})
    assert differences(a, b) == {("module", "late"): ("one/late.py", "two/late.py")}


@pytest.mark.parametrize(
    "finder",
    [
        "MAPPING: dict[str, str] = {{'late': '{0}'}}\nNAMESPACES = {{}}\n",
        "from editables.redirector import RedirectingFinder as F\nF.install()\nF.map_module('late', '{0}.py')\n",
        "import sys\nsys.meta_path.insert(0, Finder({{'late': '{0}.py'}}))\ninstall({{'late': '{0}.py'}}, {{}})\n",
    ],
)
def test_editable_finders(finder: str) -> None:
    def world(place: str) -> World:
        name = "__editable___late_finder"
        files = site({"app.py": "import late\n", "late.pth": f"import {name}\n", f"{name}.py": finder.format(place)})
        return World({**files, "src/one/late.py": "", "src/two/late.py": ""})

    assert differences(world("/src/one/late"), world("/src/two/late")) == {
        ("module", "late"): ("src/one/late.py", "src/two/late.py")
    }


def library(soname: str, *needed: str) -> ElfFacts:
    return ElfFacts(62, 64, soname=soname, needed=needed)


ELVES: dict[str, ElfFacts] = {
    "usr/bin/python3.12": ElfFacts(62, 64, needed=("libx.so.1",), interpreter=LOADER, python=True),
    "opt/one/libx.so.1": library("libx.so.1"),
    "opt/two/libx.so.1": library("libx.so.1"),
    "opt/pre/libother.so": library("libx.so.1"),
    "usr/lib64/libx.so.1": library("libx.so.1"),
}
LIBRARIES: dict[str, bytes | str] = {
    **site({"app.py": ""}),
    **{path: "" for path in ELVES if path != "usr/bin/python3.12"},
    "usr/bin/sh": "",
}


def libraries(a: Mapping[str, object], b: Mapping[str, object]) -> tuple[str, str] | None:
    def world(changes: Mapping[str, object]) -> World:
        changed = dict(changes)
        files, elves = changed.pop("files", {}), changed.pop("elves", {})
        assert isinstance(files, dict)
        assert isinstance(elves, dict)
        links = {"bin/sh": "/usr/bin/sh"}
        known = {**ELVES, "usr/bin/sh": ElfFacts(62, 64, interpreter=LOADER), **elves}
        return World({**LIBRARIES, **files}, elves=known, links=links, **changed)  # type: ignore[arg-type]  # as above

    return differences(world(a), world(b)).get(("library", "libx.so.1"))


def test_ld_preload() -> None:
    one = {"env": ["LD_LIBRARY_PATH=/opt/one"]}
    both = {"env": ["LD_LIBRARY_PATH=/opt/one", "LD_PRELOAD=/opt/pre/libother.so"]}
    assert libraries(one, both) == ("opt/one/libx.so.1", "opt/pre/libother.so")
    file = {**one, "files": {"etc/ld.so.preload": "/opt/pre/libother.so\n"}}
    assert libraries(one, file) == ("opt/one/libx.so.1", "opt/pre/libother.so")


def test_a_preload_that_a_script_may_set_leaves_both() -> None:
    def run(script: str) -> World:
        files = {**LIBRARIES, "opt/start.sh": f"#!/bin/sh\n{script}exec python3.12 -m app\n"}
        elves = {**ELVES, "usr/bin/sh": ElfFacts(62, 64, interpreter=LOADER)}
        env = ["PATH=/usr/bin:/bin"]
        return World(files, elves=elves, links={"bin/sh": "/usr/bin/sh"}, argv=["/opt/start.sh"], env=env)

    sure = run("export LD_PRELOAD=/opt/pre/libother.so\n")
    assert sure.level("opt/pre/libother.so") == "eager"
    assert sure.level("usr/lib64/libx.so.1") == "deferred"  # in another order of loading
    open_ = run('[ -z "$X" ] || export LD_PRELOAD=/opt/pre/libother.so\n')
    assert open_.level("usr/lib64/libx.so.1") == "eager"
    assert open_.level("opt/pre/libother.so") == "deferred"


def test_the_library_path_and_its_order() -> None:
    a, b = ({"env": [f"LD_LIBRARY_PATH={value}"]} for value in ("/opt/one:/opt/two", "/opt/two:/opt/one"))
    assert libraries(a, b) == ("opt/one/libx.so.1", "opt/two/libx.so.1")


def test_rpath_and_runpath() -> None:
    python = ELVES["usr/bin/python3.12"]
    env = {"env": ["LD_LIBRARY_PATH=/opt/two"]}

    def linked(**how: str) -> dict[str, object]:
        facts = ElfFacts(62, 64, needed=python.needed, interpreter=LOADER, python=True, **how)  # type: ignore[arg-type]
        return {**env, "elves": {"usr/bin/python3.12": facts}}

    assert libraries(linked(rpath="/opt/one"), linked(runpath="/opt/one")) == (
        "opt/one/libx.so.1",
        "opt/two/libx.so.1",
    )


def test_the_order_of_configuration_files() -> None:
    def configured(one: str, two: str) -> dict[str, object]:
        stored = new_cache([(b"libx.so.1", f"{one}/libx.so.1".encode(), 0x0303, 0)])
        return {
            "files": {
                "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
                "etc/ld.so.conf.d/a.conf": f"{one}\n",
                "etc/ld.so.conf.d/b.conf": f"{two}\n",
                "etc/ld.so.cache": stored,
            }
        }

    assert libraries(configured("/opt/one", "/opt/two"), configured("/opt/two", "/opt/one")) == (
        "opt/one/libx.so.1",
        "opt/two/libx.so.1",
    )


def test_directories_for_certain_cpus() -> None:
    """What only one image has is an added file; what a name leads to beside the plain one is told by its place."""
    place = "usr/lib64/glibc-hwcaps/x86-64-v3/libx.so.1"
    other = "usr/lib64/glibc-hwcaps/x86-64-v3/libmoved.so"

    def world(target: str) -> World:
        elves = {**ELVES, target: library("libx.so.1")}
        links = {place: "libmoved.so"} if target == other else {}
        return World({**LIBRARIES, target: ""}, elves=elves, links=links)

    found = differences(world(place), world(other))
    assert (place, other) in found.values()


def test_the_path_file_of_musl() -> None:
    def world(order: str) -> World:
        python = ElfFacts(62, 64, needed=("libx.so.1",), interpreter=MUSL_LOADER, python=True)
        files = {**LIBRARIES, "lib/ld-musl-x86_64.so.1": "", "etc/ld-musl-x86_64.path": order}
        elves = {**ELVES, "usr/bin/python3.12": python, "lib/ld-musl-x86_64.so.1": ElfFacts(62, 64)}
        return World(files, elves=elves)

    found = differences(world("/opt/one\n/opt/two\n"), world("/opt/two:/opt/one\n"))
    assert found[("library", "libx.so.1")] == ("opt/one/libx.so.1", "opt/two/libx.so.1")


def test_a_script_that_the_entry_sources() -> None:
    start = {"opt/start.sh": "#!/bin/sh\nsource /opt/vars.sh\nexec python3.12 -m app\n"}
    a, b = (
        {
            "files": {**start, "opt/vars.sh": f"export LD_LIBRARY_PATH={place}:$LD_LIBRARY_PATH\n"},
            "argv": ["/opt/start.sh"],
            "env": ["PATH=/usr/bin:/bin"],
        }
        for place in ("/opt/one", "/opt/two")
    )
    assert libraries(a, b) == ("opt/one/libx.so.1", "opt/two/libx.so.1")


@pytest.mark.parametrize("line", ['if [ -n "$D" ]; then {0}; fi', '[ -z "$D" ] || {0}', "f() {{ {0}; }}\nf"])
def test_a_line_that_may_not_run_hides_no_copy_of_a_module(line: str) -> None:
    def levels(text: str) -> dict[str, str]:
        files = {**COPIES, "opt/start.sh": f"#!/bin/sh\n{text}\nexec python3.12 -m app\n", "usr/bin/sh": ""}
        files["two/pkg/__init__.py"] = files["two/pkg/core.py"] = ""
        elves = {"usr/bin/sh": ElfFacts(62, 64, interpreter=LOADER)}
        links = {"bin/sh": "/usr/bin/sh"}
        made = World(files, elves=elves, links=links, argv=["/opt/start.sh"], env=["PATH=/usr/bin:/bin"], cwd="/none")
        return {path: made.level(f"{path}/pkg/core.py") for path in ("one", "two", S)}

    assert levels("export PYTHONPATH=/one") == {"one": "eager", "two": "unreached", S: "unreached"}
    assert levels(line.format("export PYTHONPATH=/one")) == {"one": "eager", "two": "unreached", S: "eager"}
    both = "\n".join(line.format(f"PYTHONPATH=/{name}:$PYTHONPATH") for name in ("two", "one"))
    assert levels(both) == {"one": "eager", "two": "eager", S: "eager"}


def test_a_line_that_may_not_run_hides_no_program() -> None:
    files = {
        **COPIES,
        "opt/start.sh": "#!/bin/sh\n[ -d /x ] && export PATH=/opt/own/bin:$PATH\nexec tool\n",
        "usr/bin/sh": "",
        "usr/bin/tool": "#!/usr/bin/python3.12\nimport pkg.core\n",
        "opt/own/bin/tool": "#!/usr/bin/python3.12\nimport json\n",
        "usr/lib/python3.12/json.py": "",
    }
    elves = {"usr/bin/sh": ElfFacts(62, 64, interpreter=LOADER)}
    made = World(
        files,
        elves=elves,
        links={"bin/sh": "/usr/bin/sh"},
        argv=["/opt/start.sh"],
        env=["PATH=/usr/bin:/bin"],
        cwd="/none",
    )
    assert made.level("opt/own/bin/tool") in ("eager", "deferred")
    assert made.level("usr/bin/tool") in ("eager", "deferred")
    assert made.level("usr/lib/python3.12/json.py") == "eager"
    assert made.level(f"{S}/pkg/core.py") == "eager"


VENV = {
    "opt/venv/lib/python3.12/site-packages/lone.py": "",
    "opt/base/lib/python3.12/os.py": "",
    "opt/base/bin/python3.12": "ELF",
    **site({"app.py": ""}),
}


def test_a_name_that_leads_to_nothing_any_more_is_a_difference_where_its_file_stays() -> None:
    """No change of a file shows it: the link to the environment is turned, with the same interpreter in both."""
    environments = [
        Environment(b"opt/base", b"opt/base", b"opt/base/bin/python3.12", "3.12", b"opt/base/lib/python3.12", ()),
        Environment(
            b"opt/venv",
            b"opt/base",
            b"opt/base/bin/python3.12",
            "3.12",
            b"opt/base/lib/python3.12",
            (b"opt/venv/lib/python3.12/site-packages",),
            False,
        ),
    ]

    def world(target: str) -> World:
        return World(
            VENV,
            argv=("python", "-c", "import lone, gone"),
            env=("PATH=/opt/env/bin",),
            links={
                "opt/env": target,
                "opt/base/bin/python": "python3.12",
                "opt/venv/bin/python": "/opt/base/bin/python3.12",
            },
            elves={"opt/base/bin/python3.12": ElfFacts(62, 64)},
            environments=environments,
        )

    inside, outside = world("/opt/venv"), world("/opt/base")
    for a, b, ends in ((inside, outside, (True, False)), (outside, inside, (False, True))):
        found = compare_resolution(a.trace, b.trace, stays=lambda path: path.endswith(b"lone.py"))
        assert [(each.name, each.level, (each.a is not None, each.b is not None)) for each in found] == [
            ("lone", "eager", ends)
        ]
    assert not compare_resolution(inside.trace, outside.trace)  # what is no more there shows as a removed file
    assert not compare_resolution(inside.trace, inside.trace, stays=lambda _: True)


def test_a_copy_of_an_interpreter_finds_the_standard_library_above_it() -> None:
    """CPython's getpath looks upwards from the copy: a link that becomes a file leads to other packages."""
    environments = [
        Environment(prefix, prefix, prefix + b"/bin/python3.12", "3.12", prefix + b"/lib/python3.12", (own,))
        for prefix, own in ((b"opt/base", b"opt/base/lib/python3.12/site-packages"), (b"usr", SITE))
    ]
    files = {
        **VENV,
        "opt/base/lib/python3.12/site-packages/app.py": "",
        "usr/local/bin/x": "",
    }

    def world(more: Mapping[str, bytes | str], links: Mapping[str, str]) -> World:
        program = ElfFacts(62, 64)
        return World(
            {**files, **more},
            argv=("python3.12", "-c", "import app"),
            env=("PATH=/usr/local/bin",),
            links=links,
            elves={"opt/base/bin/python3.12": program, **dict.fromkeys(more, program)},
            environments=environments,
        )

    link = world({}, {"usr/local/bin/python3.12": "/opt/base/bin/python3.12"})
    copy = world({"usr/local/bin/python3.12": "ELF"}, {})
    assert differences(link, copy)["module", "app"] == ("opt/base/lib/python3.12/site-packages/app.py", f"{S}/app.py")
