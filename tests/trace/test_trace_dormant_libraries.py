"""Libraries that only dormant extension modules need are dormant: nothing is known to load them, and something could."""

from __future__ import annotations

import pytest

from imgdiff.model import ElfFacts
from tests.trace.world import SITE, World, site

S = SITE.decode()
PLACES = ("usr/lib/x86_64-linux-gnu", "opt/vendor/lib", f"{S}/far.libs")


def world(place: str) -> World:
    """An image with an extension module that only a function imports whose name no reached code says."""
    files: dict[str, bytes | str] = {
        **site(
            {"app.py": "import pkg.late\n", "pkg/__init__.py": "", "pkg/late.py": "def never_said():\n    import far\n"}
        ),
        f"{S}/far.cpython-312-x86_64-linux-gnu.so": b"",
        f"{place}/libfirst.so.1": b"",
        f"{place}/libsecond.so.2.1": b"",
        f"{place}/libother.so.3": b"",
    }
    elves = {
        f"{S}/far.cpython-312-x86_64-linux-gnu.so": ElfFacts(62, 64, needed=("libfirst.so.1",), python=True),
        f"{place}/libfirst.so.1": ElfFacts(62, 64, soname="libfirst.so.1", needed=("libsecond.so.2",)),
        f"{place}/libsecond.so.2.1": ElfFacts(62, 64, soname="libsecond.so.2"),
        f"{place}/libother.so.3": ElfFacts(62, 64, soname="libother.so.3"),
    }
    return World(files, elves=elves)


@pytest.mark.parametrize("place", PLACES)
def test_a_library_that_a_dormant_extension_needs_is_dormant(place: str) -> None:
    found = world(place)
    assert found.level(f"{S}/far.cpython-312-x86_64-linux-gnu.so") == "dormant"
    assert found.level(f"{place}/libfirst.so.1") == "dormant"
    assert [edge for *_, edge in found.chain(f"{place}/libfirst.so.1")][-1] == "needed"


@pytest.mark.parametrize("place", PLACES)
def test_so_is_what_that_library_needs_by_its_soname(place: str) -> None:
    assert world(place).level(f"{place}/libsecond.so.2.1") == "dormant"


@pytest.mark.parametrize("place", PLACES)
def test_a_library_that_nothing_needs_is_not(place: str) -> None:
    assert world(place).level(f"{place}/libother.so.3") in ("unreached", "unknown")
