"""Lines of ``.pth`` files that change the order of the search path, and suffixes of other platforms."""

from __future__ import annotations

import pytest

from tests.trace.world import SITE, World, site

S = SITE.decode()
ENTRY = ("python3.12", "-m", "app")


def hidden(line: str) -> World:
    """An image with a copy of ``d`` in site-packages and one in a directory that a line adds."""
    files = site({"app.py": "import d\n", "d.py": "", "a.pth": line + "\n"})
    return World({**files, "opt/y/d.py": "", "opt/y/only.py": ""}, argv=ENTRY)


@pytest.mark.parametrize(
    "line",
    [
        'import sys; sys.path.insert(0, "/opt/y")',
        'import sys; sys.path[:0] = ["/opt/y"]',
        'import sys; sys.path = ["/opt/y"] + sys.path',
        'import sys; p = sys.path; p.insert(0, "/opt/y")',
        'import sys; sys.path.append("/opt/y"); sys.path.reverse()',
        'import sys; from sys import path; path.insert(0, "/opt/y")',
        'import sys as s; s.path.insert(0, "/opt/y")',
        'import os; (lambda m: m.path.insert(0, "/opt/y"))(os.sys)',
        'import os; __import__("sys").path.insert(0, "/opt/y")',
        'import sys; getattr(sys, "path").insert(0, "/opt/y")',
        'import sys; sys.path.insert(0, "/opt/" + "y")',
        "import sys; x = 'y'; sys.path.append(f'/opt/{x}')",
        "import sys; sys.path.append('/opt/%s' % 'y')",
    ],
)
def test_a_line_that_can_put_another_copy_first_is_a_blindspot(line: str) -> None:
    made = hidden(line)
    (spot,) = (each for each in made.trace.blindspots if each.what == ".pth line")
    assert "can put /opt/y first, which has its own copies of d" in spot.reason or "does not fold" in spot.reason


@pytest.mark.parametrize(
    "line",
    [
        'import sys; sys.path.append("/opt/y")',
        'import sys; sys.path += ["/opt/y"]',
        'import site; site.addsitedir("/opt/y")',
    ],
)
def test_a_line_that_adds_at_the_end_hides_nothing(line: str) -> None:
    made = hidden(line)
    assert not [each for each in made.trace.blindspots if each.what == ".pth line"]
    assert (made.level("opt/y/d.py"), made.level(f"{S}/d.py")) == ("unreached", "eager")


def test_a_directory_that_is_put_first_and_holds_nothing_twice_is_none() -> None:
    files = site({"app.py": "import only\n", "a.pth": 'import sys; sys.path.insert(0, "/opt/y")\n'})
    made = World({**files, "opt/y/only.py": ""}, argv=ENTRY)
    assert not made.trace.blindspots
    assert made.level("opt/y/only.py") == "eager"


def test_the_lines_of_a_directory_that_a_line_adds_as_a_site_count_too() -> None:
    files = site({"app.py": "import d\n", "d.py": "", "a.pth": 'import site; site.addsitedir("/opt/more")\n'})
    lines = {"opt/more/b.pth": 'import sys; sys.path.insert(0, "/opt/y")\n', "opt/more/c.pth": "/opt/z\n"}
    made = World({**files, **lines, "opt/y/d.py": "", "opt/z/e.py": ""}, argv=ENTRY)
    (spot,) = (each for each in made.trace.blindspots if each.what == ".pth line")
    assert (spot.path, "can put /opt/y first" in spot.reason) == (b"opt/more/b.pth", True)


def test_a_site_that_adds_itself_is_read_once() -> None:
    files = site({"app.py": "import d\n", "d.py": "", "a.pth": 'import site; site.addsitedir("/opt/more")\n'})
    again = {"opt/more/b.pth": 'import site; site.addsitedir("/opt/more")\n', "opt/more/e.py": ""}
    assert not World({**files, **again}, argv=ENTRY).trace.blindspots


@pytest.mark.parametrize("line", ["  /opt/y", "\t/opt/y", " # /opt/y", " import sys"])
def test_blanks_before_a_directory_are_a_part_of_it(line: str) -> None:
    files = site({"app.py": "import d\n", "a.pth": f"{line}\n"})
    assert World({**files, "opt/y/d.py": ""}, argv=ENTRY).level("opt/y/d.py") == "unreached"


@pytest.mark.parametrize(
    ("suffix", "loads"),
    [
        ("cpython-312-x86_64-linux-gnu.so", True),
        ("cpython-312.so", True),
        ("abi3.so", True),
        ("cpython-312-x86_64-linux-musl.so", False),
        ("cpython-312-aarch64-linux-gnu.so", False),
        ("cpython-311-x86_64-linux-gnu.so", False),
    ],
)
def test_an_extension_module_of_another_platform_hides_nothing(suffix: str, loads: bool) -> None:
    files = site({"app.py": "import d\n", "d.py": "", f"d.{suffix}": b"\x7fELF"})
    dynload = "usr/lib/python3.12/lib-dynload/_json.cpython-312-x86_64-linux-gnu.so"
    made = World({**files, dynload: b"\x7fELF"}, argv=ENTRY)
    assert made.level(f"{S}/d.py") == ("unreached" if loads else "eager")


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.path.pop(0)\nimport d\n",
        "import sys\nsys.path.remove('/srv')\nimport d\n",
        "import sys\nsys.path.reverse()\nimport d\n",
        "import sys\ndef f():\n    sys.path.sort()\n    import d\nf()\n",
        "import sys\np = sys.path\np.pop(0)\nimport d\n",
    ],
)
def test_code_that_changes_the_order_of_the_path_can_load_later_copies(code: str) -> None:
    files = {**site({"d.py": ""}), "srv/app.py": code, "srv/d.py": ""}
    made = World(files, argv=("python3.12", "/srv/app.py"))
    assert made.level(f"{S}/d.py") == "deferred"
    assert made.level("srv/d.py") in ("eager", "deferred")


@pytest.mark.parametrize(
    "code",
    ["import sys, os\nsys.path.append('/x')\nos.remove('/y')\nimport d\n", "from os import path\n[].pop()\nimport d\n"],
)
def test_code_that_takes_something_else_away_leaves_later_copies_alone(code: str) -> None:
    files = {**site({"d.py": ""}), "srv/app.py": code, "srv/d.py": ""}
    assert World(files, argv=("python3.12", "/srv/app.py")).level(f"{S}/d.py") == "unreached"


@pytest.mark.parametrize("place", [S, "usr/lib/python3.12"])
def test_a_sitecustomize_is_followed_wherever_it_lies(place: str) -> None:
    files = site({"app.py": "import d\n", "d.py": "", "a.pth": "/opt/y\n"})
    turned = {f"{place}/sitecustomize.py": "import sys\nsys.path.reverse()\n", "opt/y/d.py": ""}
    assert World({**files, **turned}, argv=ENTRY).level("opt/y/d.py") == "deferred"
