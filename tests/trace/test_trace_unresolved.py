"""Every import of reached code that only a run can tell is listed, with file and line."""

from __future__ import annotations

from imgdiff.model import Trace
from imgdiff.trace import freeze, thaw
from tests.trace.world import SITE, World, site

S = SITE.decode()
APP = """import importlib
import runpy
import quiet

NAME = "json"


def plugin(name):
    return importlib.import_module(name)


def model(name, kind):
    importlib.import_module(f"{name}.models")
    importlib.import_module(f"app.parts.{kind}")
    importlib.import_module(NAME)
    runpy.run_path(name)


def never(name):
    return importlib.import_module(name + "x")


plugin("x")
model("y", "z")
"""
QUIET = "import importlib\n\n\ndef asleep(name):\n    importlib.import_module(name)\n"


def places(trace: Trace) -> list[tuple[str, int, str | None, str, str, tuple[str, ...]]]:
    return [
        (each.path.decode(), each.line, each.function, each.what, each.name, each.roles) for each in trace.unresolved
    ]


def test_each_place_has_its_line_function_and_what_is_known_of_the_name() -> None:
    world = World(site({"app/__init__.py": "", "app/__main__.py": APP, "quiet.py": QUIET, "app/parts/a.py": ""}))
    path = f"{S}/app/__main__.py"
    assert places(world.trace) == [
        (path, 9, "plugin", "module", "*", ("main",)),
        (path, 13, "model", "module", "*.models", ("main",)),
        (path, 16, "model", "file", "*", ("main",)),
    ]


def test_there_is_no_end_to_the_list() -> None:
    lines = [f"def f{number}(x):\n    importlib.import_module(x)\nf{number}(1)\n" for number in range(40)]
    world = World(site({"app.py": "import importlib\n" + "".join(lines)}))
    assert len(world.trace.unresolved) == 40
    assert world.trace.unresolved[-1].line == 120


def test_a_trace_that_was_kept_has_the_list() -> None:
    world = World(site({"app.py": "import importlib\nimportlib.import_module(X)\n"}))
    kept = freeze(world.trace, "a")
    assert kept is not None
    again = thaw(kept, world.tree, world.attribution, world.facts, world.trace.profile, "b", lambda: world.trace)
    assert again is not None
    assert again.unresolved == world.trace.unresolved != ()
