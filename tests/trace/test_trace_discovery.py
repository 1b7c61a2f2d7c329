"""Plugins that code finds by looking at what is installed, and modules at the top level whose names it puts together."""

from __future__ import annotations

import pytest

from imgdiff.model import Distribution
from tests.trace.world import SITE, World, site

S = SITE.decode()
PLUGIN = Distribution("acme", "1", SITE, SITE + b"/acme-1.dist-info", 2, (), (("my.plug", "x", "acme.plugin"),))
LOAD = "import importlib\ndef load(name):\n    importlib.import_module(name)\n"


def level(code: str, path: str, **files: str) -> str:
    """The level of a module of another distribution where the application has this code."""
    modules = {"acme/__init__.py": "", "acme/plugin.py": "", "acme_two.py": "", "acmes.py": "", "linux_support.py": ""}
    everything = site({"app.py": code, **modules, **files})
    owned = {"acme": [f"{S}/acme".encode(), f"{S}/linux".encode()]}
    return World(everything, distributions=[PLUGIN], owned=owned).level(f"{S}/{path}")


@pytest.mark.parametrize(
    "code",
    [
        "from importlib.metadata import distribution\nfor e in distribution('acme').entry_points:\n    e.load()\n",
        "from importlib.metadata import Distribution\n[e.load() for e in Distribution.from_name('acme').entry_points]\n",
        f"{LOAD}import glob\nfor f in glob.glob('/usr/lib/*.dist-info/entry_points.txt'):\n    load(open(f).read())\n",
        f"{LOAD}import sys\nfor p in sys.path:\n    open(p + '/acme-1.dist-info/entry_points.txt')\nload(p)\n",
    ],
)
def test_entry_points_of_a_distribution_that_is_asked_for_them(code: str) -> None:
    assert level(code, "acme/plugin.py") == "deferred"
    assert level(code.replace("load", "show").replace("import_module", "find"), "acme/plugin.py") != "deferred"


@pytest.mark.parametrize("start", ["acme_", "acme"])
def test_modules_that_begin_as_a_name_does_where_code_lists_them(start: str) -> None:
    code = f"import pkgutil\n{LOAD}[load(m.name) for m in pkgutil.iter_modules() if m.name.startswith('{start}')]\n"
    assert level(code, "acme_two.py") == "deferred"
    assert level(code, "acmes.py") == "unreached"
    assert level(f"{LOAD}load(input() + '{start}')\n", "acme_two.py") == "unreached"


def test_the_end_of_a_top_level_name() -> None:
    code = "import importlib, platform\nimportlib.import_module(platform.system().lower() + '_support')\n"
    assert level(code, "linux_support.py") == "deferred"
    assert level(code, "acme_two.py") == "unreached"


@pytest.mark.parametrize("option", ["-I/opt/headers", "-L/opt/headers", "-isystem/opt/headers"])
def test_a_directory_behind_an_option(option: str) -> None:
    files = {**site({"app.py": f"import subprocess\nsubprocess.run(['tool', '{option}'])\n"}), "opt/headers/x.h": ""}
    assert World(files).level("opt/headers/x.h") == "unknown"


def test_the_file_of_a_package_is_named_by_a_pattern_with_its_directory() -> None:
    code = "def run(root, name, ext):\n    exec(open({}).read())\nrun(*input())\n"
    files = {"opt/a/plugins/__init__.py": "", "opt/a/other/__init__.py": ""}
    for pattern, expected in (
        ("f'{root}/plugins/__init__.py'", "unknown"),
        ("f'{root}/{name}/__init__{ext}'", "unreached"),
    ):
        world = World({**site({"app.py": code.format(pattern)}), **files})
        assert world.level("opt/a/plugins/__init__.py") == expected
        assert world.level("opt/a/other/__init__.py") == "unreached"
