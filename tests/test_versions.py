"""A changed version is metadata unless something that is reached decides by it."""

from __future__ import annotations

import pytest

from imgdiff.engines import load_profiles
from imgdiff.model import Change, Delta, FileEntry, Owner
from imgdiff.versions import weigh_versions
from tests.trace.world import World

SITE = "usr/lib/python3.12/site-packages"


def weighed(gate: str, a: str, b: str, name: str = "__version__") -> Delta:
    world = World({f"{SITE}/app.py": gate, f"{SITE}/dep.py": f"{name} = {b!r}\n"})
    path = f"{SITE}/dep.py".encode()
    entry = FileEntry(path, "file", 0o644, 0, 0, 0, 1, b"\x00" * 32)
    owner = (Owner("unowned", "unowned:/usr", None, b""),)
    detail = {"kind": "python", "versions": [{"name": name, "a": a, "b": b}]}
    change = Change(path, path, "modified", entry, entry, owner, owner, Delta("metadata", "A version.", detail))
    side = (world.attribution, world.facts, world.trace)
    (result,) = weigh_versions((change,), (side, side), load_profiles()[-1])
    assert result.delta is not None
    return result.delta


@pytest.mark.parametrize(
    "gate",
    [
        "import dep\nFAST = dep.__version__ >= '2.0.0'\n",
        "import dep\nFAST = dep.__version__.split('.')[0] == '2'\n",
        "import dep\nFAST = int(dep.__version__.split('.')[0]) >= 2\n",
        "import dep\nfrom packaging.version import parse\nFAST = parse(dep.__version__).major >= 2\n",
        "import dep\nfrom packaging.version import parse\nFAST = parse(dep.__version__).release >= (2, 0)\n",
        "import dep\ndef fast():\n    return dep.__version__.partition('.')[0] > '1'\nfast()\n",
    ],
)
def test_a_gate_in_reached_code_leaves_it_open(gate: str) -> None:
    delta = weighed(gate, "1.9.0", "2.1.0")
    assert delta.settle is not None
    assert "app.py" in delta.reason


@pytest.mark.parametrize("name", ["version", "__version_tuple__", "git_version"])
def test_a_version_under_another_name_has_gates_too(name: str) -> None:
    assert weighed(f"from dep import {name}\nFAST = {name} > '2.0.0'\n", "1.9.0", "2.1.0", name).settle is not None


@pytest.mark.parametrize(
    ("gate", "a", "b"),
    [
        ("import dep\nprint(dep.__version__)\n", "1.9.0", "2.1.0"),  # it only says it
        ("import dep\nFAST = dep.__version__ >= '3.0.0'\n", "1.9.0", "2.1.0"),  # both are below
        ("import dep\nFAST = int(dep.__version__.split('.')[0]) >= 2\n", "2.1.0.dev1", "2.1.0.dev2"),  # equal numbers
    ],
)
def test_what_decides_nothing_leaves_it_metadata(gate: str, a: str, b: str) -> None:
    delta = weighed(gate, a, b)
    assert (delta.effect, delta.settle) == ("metadata", None)


@pytest.mark.parametrize(
    ("a", "b", "effect"),
    [
        ("1.0+cpu", "1.0+xpu", "code"),
        ("1.0", "1.0+cpu", "code"),
        ("1.0+g1a2b3c4", "1.0+g5d6e7f8", "metadata"),
        ("1.0+g1a2b3c4.d20260101", "1.0+g1a2b3c4.d20260102", "metadata"),
        ("1.0+cpu.g1a2b3c4", "1.0+cpu.g5d6e7f8", "metadata"),
    ],
)
def test_a_label_is_code_unless_it_is_a_commit_or_a_date(a: str, b: str, effect: str) -> None:
    assert weighed("import dep\n", a, b).effect == effect
