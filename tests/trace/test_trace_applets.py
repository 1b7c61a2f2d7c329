"""One file that is many programs: what busybox, toybox and a coreutils built as one go by is the name they run under."""

from __future__ import annotations

import pytest

from imgdiff.model import ElfFacts
from tests.trace.world import SITE, World, site

S = SITE.decode()
STARTS = ElfFacts(62, 64, interpreter="/lib/ld.so", needed=("libc.so.6",), symbols=("execve",))
APP = site({"app.py": "import dep\n", "dep.py": "", "never.py": ""})
PYTHON = ("python3.12", "-m", "app")


def world(argv: tuple[str, ...], many: str, links: tuple[str, ...] = (), script: str = "") -> World:
    files = {**APP, f"usr/bin/{many}": "ELF", "opt/bin/run": script or "#!/bin/none\n"}
    applets = {f"usr/bin/{name}": f"/usr/bin/{many}" for name in links}
    return World(files, argv=argv, elves={f"usr/bin/{many}": STARTS}, links={"bin": "usr/bin", **applets})


@pytest.mark.parametrize("many", ["busybox", "busybox.static", "toybox"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("env", ()), ("env", ("-i", "A=b")), ("timeout", ("5",)), ("nice", ("-n", "5"))),
        *(("setsid", ()), ("chroot", ("/",)), ("taskset", ("-c", "0")), ("sh", ("-c",)), ("ash", ("-ec",))),
    ],
)
def test_an_applet_is_followed_as_the_program_that_it_is(many: str, name: str, options: tuple[str, ...]) -> None:
    """... through a link of its name, and as the first argument, whether the image has that link or not."""
    command = (" ".join(PYTHON),) if name.endswith("sh") else PYTHON
    for argv, links in (
        ((name, *options, *command), (name,)),
        ((many, name, *options, *command), (name,)),
        ((f"/usr/bin/{many}", name, *options, *command), ()),
    ):
        found = world(argv, many, links)
        assert found.level(f"{S}/dep.py") in ("eager", "deferred"), argv
        assert found.level(f"{S}/never.py") == "unreached"
        assert found.level(f"usr/bin/{many}") == "eager"


@pytest.mark.parametrize(
    ("shebang", "body", "links"),
    [
        ("#!/usr/bin/env python3.12", "import dep", ("env",)),
        ("#!/bin/busybox env python3.12", "import dep", ()),
        ("#!/bin/busybox sh", "exec python3.12 -m app", ()),
        ("#!/bin/busybox ash", "exec python3.12 -m app", ("sh",)),
        ("#!/bin/sh", "exec env A=b python3.12 -m app", ("sh", "env")),
    ],
)
def test_an_applet_can_run_a_script(shebang: str, body: str, links: tuple[str, ...]) -> None:
    found = world(("/opt/bin/run",), "busybox", links, f"{shebang}\n{body}\n")
    assert found.level(f"{S}/dep.py") in ("eager", "deferred")
    assert found.level("opt/bin/run") == "eager"
    assert found.trace.blindspots == ()


@pytest.mark.parametrize("argv", [("init",), ("busybox", "runsvdir", "/etc/sv"), ("busybox",), ("busybox", "sh")])
def test_an_applet_that_starts_what_is_not_followed_is_open(argv: tuple[str, ...]) -> None:
    found = world(argv, "busybox", ("init",))
    assert [spot.what for spot in found.trace.blindspots] == ["entry"]


def test_a_coreutils_that_is_one_program_runs_the_command_of_its_scripts() -> None:
    """As UBI's coreutils-single: ``/usr/bin/env`` is a script of one line."""
    files = {
        **APP,
        "usr/bin/coreutils": "ELF",
        "usr/bin/env": "#!/usr/bin/coreutils --coreutils-prog-shebang=env\n",
        "opt/bin/run": "#!/usr/bin/env python3.12\nimport dep\n",
    }
    for argv in (("env", "A=b", *PYTHON), ("/opt/bin/run",)):
        found = World(files, argv=argv, elves={"usr/bin/coreutils": STARTS})
        assert found.level(f"{S}/dep.py") == "eager"
        assert found.level("usr/bin/coreutils") == "eager"
        assert found.trace.blindspots == ()
