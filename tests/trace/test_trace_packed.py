"""What modules made by Cython import, whose strings are packed."""

from __future__ import annotations

import pytest

from imgdiff.model import ElfFacts
from tests.trace.world import SITE, World, site

S = SITE.decode()
FAST = f"{S}/pkg/fast.cpython-312-x86_64-linux-gnu.so"
MARK = ("cython_runtime",)
TABLE = "A text.?add_note{}__init____main____name____test__zeta"
FILES: dict[str, bytes | str] = {
    "app.py": "import pkg.fast\n",
    "pkg/__init__.py": "",
    "pkg/fast.cpython-312-x86_64-linux-gnu.so": b"",
    "pkg/beside.py": "",
    "pkg/deep/__init__.py": "",
    "pkg/deep/inner.py": "",
    "far/__init__.py": "",
    "far/helpers/__init__.py": "",
    "far/helpers/leaf.py": "import further\n",
    "far/helpers/other.py": "",
    "far/aside.py": "",
    "further.py": "",
    "apart.py": "",
}


def world(*strings: str, identifiers: tuple[str, ...] = MARK, **more: str) -> World:
    """An image whose entry imports an extension module with these strings; ``more`` are metadata by project."""
    files = dict(FILES)
    for project, text in more.items():
        top = "pkg" if project == "own" else project
        files[f"{project}-1.dist-info/METADATA"] = f"Metadata-Version: 2.1\nName: {project}\n{text}\n"
        files[f"{project}-1.dist-info/RECORD"] = f"{top}/__init__.py,,\n{top}.py,,\n{project}-1.dist-info/RECORD,,\n"
    facts = ElfFacts(62, 64, strings=strings, identifiers=identifiers, python=True)
    return World(site(files), elves={FAST: facts})


@pytest.mark.parametrize(
    ("names", "found", "not_found"),
    [
        ("far", ["far/__init__.py"], ["far/helpers/leaf.py", "far/aside.py", "apart.py"]),
        ("far.helpers.leaf", ["far/helpers/__init__.py", "far/helpers/leaf.py"], ["far/helpers/other.py"]),
        ("far.helpersvalues" + "leaf", ["far/helpers/leaf.py", "further.py"], ["far/helpers/other.py", "apart.py"]),
        ("asidebuiltinsfar", ["far/aside.py"], ["far/helpers/leaf.py"]),
        ("pkg.deep.inner", ["pkg/deep/inner.py"], ["far/__init__.py"]),
        ("", ["pkg/beside.py"], ["pkg/deep/inner.py", "far/__init__.py", "apart.py"]),
    ],
)
def test_a_table_names_modules_by_what_stands_in_it(names: str, found: list[str], not_found: list[str]) -> None:
    traced = world(TABLE.format(names))
    assert {path: traced.level(f"{S}/{path}") for path in found} == dict.fromkeys(found, "deferred")
    assert {path: traced.level(f"{S}/{path}") for path in not_found} == dict.fromkeys(not_found, "unreached")
    assert not any("Cython" in caveat for caveat in traced.trace.caveats)


def test_the_table_of_what_is_no_cython_module_is_text_like_any_other() -> None:
    traced = world(TABLE.format("far"), identifiers=("something",))
    assert traced.level(f"{S}/far/__init__.py") == "unreached"


def test_without_a_table_its_distribution_and_what_that_needs_count() -> None:
    needs = "Requires-Dist: Far[extra] (>=2) ; python_version > '3'\nRequires-Dist: absent-one"
    traced = world(own=needs, far="Requires-Dist: further", further="")
    assert traced.level(f"{S}/pkg/deep/inner.py") == "deferred"
    assert traced.level(f"{S}/far/__init__.py") == "deferred"
    assert traced.level(f"{S}/further.py") == "unreached"
    assert traced.level(f"{S}/apart.py") == "unreached"
    assert any("could not be read" in caveat and "/pkg/fast" in caveat for caveat in traced.trace.caveats)


def test_without_a_table_and_metadata_its_own_package_counts() -> None:
    traced = world()
    assert traced.level(f"{S}/pkg/deep/inner.py") == "deferred"
    assert traced.level(f"{S}/far/__init__.py") == "unreached"


def test_strings_of_their_own_are_enough() -> None:
    traced = world("far.aside", identifiers=(*MARK, "__main__", "__name__", "further"), own="Requires-Dist: apart")
    assert traced.level(f"{S}/far/aside.py") == "deferred"
    assert traced.level(f"{S}/further.py") == "deferred"
    assert traced.level(f"{S}/pkg/deep/inner.py") == "unreached"
    assert not any("Cython" in caveat for caveat in traced.trace.caveats)


@pytest.mark.parametrize(
    ("identifiers", "level"),
    [
        (("__pyx_capi__",), "unreached"),  # it calls C functions of a Cython module, as numba does scipy's
        (("__pyx_capi__", "beside"), "deferred"),
        (("__pyx_capi__", *MARK), "deferred"),
        (("__pyx_capi__", "_cython_3_2_8"), "deferred"),
    ],
)
def test_who_looks_for_functions_of_cython_modules_is_none_of_them(identifiers: tuple[str, ...], level: str) -> None:
    traced = world(identifiers=identifiers)
    assert traced.level(f"{S}/pkg/beside.py") == level
    assert any("Cython" in caveat for caveat in traced.trace.caveats) == (identifiers[1:] not in ((), ("beside",)))
