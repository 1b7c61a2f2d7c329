"""A package names its libraries as their builds do: a loader puts ``lib`` and ``.so`` around the name."""

from __future__ import annotations

import pytest

from imgdiff.model import ElfFacts
from tests.trace.world import SITE, World, site

S = SITE.decode()
PLACES = ("pkg/libcore_ops.so", "pkg/lib/libcore_ops.so.1.2", "pkg/deep/er/libcore_ops.so")


def world(code: str, place: str) -> World:
    files: dict[str, bytes | str] = {
        **site({"app.py": "import pkg.load\n", "pkg/__init__.py": "", "pkg/load.py": code, "far/__init__.py": ""}),
        f"{S}/{place}": b"",
        "usr/lib/x86_64-linux-gnu/libbelow.so.1": b"",
    }
    elves = {
        f"{S}/{place}": ElfFacts(62, 64, soname=place.rpartition("/")[2], needed=("libbelow.so.1",)),
        "usr/lib/x86_64-linux-gnu/libbelow.so.1": ElfFacts(62, 64, soname="libbelow.so.1"),
    }
    return World(files, elves=elves)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "code", ["from ffi import load_module\nLIB = load_module('pkg', 'core_ops')\n", "NAME = 'core_ops'\n"]
)
def test_a_library_of_the_package_that_its_code_names_is_deferred_with_what_it_needs(code: str, place: str) -> None:
    found = world(code, place)
    assert found.level(f"{S}/{place}") == "deferred"
    assert found.chain(f"{S}/{place}")[-1][-1] == "dlopen"
    assert found.level("usr/lib/x86_64-linux-gnu/libbelow.so.1") == "deferred"


def test_another_package_s_library_is_not_named_so() -> None:
    assert world("NAME = 'core_ops'\n", "far/libcore_ops.so").level(f"{S}/far/libcore_ops.so") != "deferred"


@pytest.mark.parametrize("code", ["", "NAME = 'core'\n", "def core_ops(): pass\n", "import core_ops\n"])
def test_what_nothing_says_is_not_named(code: str) -> None:
    assert world(code, PLACES[0]).level(f"{S}/{PLACES[0]}") != "deferred"
