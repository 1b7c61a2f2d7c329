"""Libraries that stand only in data which native code reads: drivers, providers, converters."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from imgdiff.model import ElfFacts
from tests.trace.world import SITE, World, site

S = SITE.decode()
EXTENSION = f"{S}/pkg/_c.so"
DRIVERS = ("opt/driver/libdriver.so.1", "opt/driver/libother.so.1")


def world(
    strings: set[str], files: Mapping[str, bytes | str], needs: Mapping[str, tuple[str, ...]] | None = None
) -> World:
    """An extension module whose C code holds these strings; ``needs``: further libraries and what each needs."""
    elves: dict[str, ElfFacts] = {
        EXTENSION: ElfFacts(62, 64, strings=tuple(sorted(strings))),
        **{path: ElfFacts(62, 64) for path in DRIVERS},
        **{path: ElfFacts(62, 64, needed=needed) for path, needed in (needs or {}).items()},
    }
    everything: dict[str, bytes | str] = {
        **site({"app.py": "import pkg._c\n", "pkg/__init__.py": ""}),
        **dict.fromkeys(elves, b"\x7fELF"),
        **files,
    }
    return World(everything, elves=elves)


@pytest.mark.parametrize(
    "said", ["/opt/driver/libdriver.so.1\n", "libdriver.so.1\n", '{"library_path": "libdriver.so.1"}']
)
@pytest.mark.parametrize(
    ("string", "file"),
    [
        ("/etc/OpenCL/vendors", "etc/OpenCL/vendors/x.icd"),
        ("/etc/OpenCL/vendors/", "etc/OpenCL/vendors/x.icd"),
        ("/etc/OpenCL/vendors/%s", "etc/OpenCL/vendors/x.icd"),
        ("/etc/icd/x.json", "etc/icd/x.json"),
        ("ssl-x.cnf", "opt/ssl/ssl-x.cnf"),
    ],
)
def test_data_that_native_code_names_names_libraries(string: str, file: str, said: str) -> None:
    found = world({string}, {file: said})
    assert found.level("opt/driver/libdriver.so.1") == "unknown"
    assert found.level("opt/driver/libother.so.1") == "unreached"


def test_data_that_includes_data_names_what_that_says() -> None:
    files = {
        "etc/x/main.conf": "include /etc/y/more.conf\n",
        "etc/y/more.conf": "module = /opt/driver/libdriver.so.1\n",
    }
    found = world({"/etc/x/main.conf"}, files)
    assert found.level("etc/y/more.conf") == "unknown"
    assert found.level("opt/driver/libdriver.so.1") == "unknown"
    assert world({"/etc/z.conf"}, files).level("opt/driver/libdriver.so.1") == "unreached"


def test_data_that_python_reads_includes_data_too() -> None:
    files = {
        **site({"app.py": "open('/etc/x/main.conf')\n"}),
        "etc/x/main.conf": "include = /etc/y/more.conf\n",
        "etc/y/more.conf": "/opt/driver/libdriver.so.1\n",
        "opt/driver/libdriver.so.1": "",
    }
    assert World(files).level("opt/driver/libdriver.so.1") == "unknown"


def test_what_a_named_library_needs_comes_with_it() -> None:
    """At any depth, and by the name alone: which copy a search would find is not asked."""
    deep = {
        "opt/x/libdeep.so.2": ("libdeeper.so.3",),
        "opt/y/libdeeper.so.3": (),
        "opt/y/libalone.so.1": ("libother.so.1",),
    }
    needs = {"opt/driver/libdriver.so.1": ("libdeep.so.2",), **deep}
    found = world({"/etc/icd"}, {"etc/icd/x.icd": "/opt/driver/libdriver.so.1\n"}, needs)
    assert found.level("opt/x/libdeep.so.2") == "unknown"
    assert found.level("opt/y/libdeeper.so.3") == "unknown"
    assert found.level("opt/driver/libother.so.1") == "unreached"


def test_the_loaders_own_cache_names_nothing() -> None:
    """The loader's strings name its cache, which holds every library."""
    cache = b"glibc-ld.so.cache1.1\0/opt/driver/libdriver.so.1\0"
    assert world({"/etc/ld.so.cache"}, {"etc/ld.so.cache": cache}).level("opt/driver/libdriver.so.1") == "unreached"
