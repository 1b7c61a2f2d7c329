"""Editable installs, eggs, and which dist-infos are distributions at all."""

from __future__ import annotations

import json

import pytest

from tests.attribution.claims import (
    INTERPRETER,
    SITE,
    Files,
    attributed,
    claim,
    distribution,
    notes,
    wheel,
    whose,
)
from tests.support.trees import Dir, Link

INFO = "vllm-1.dist-info/"


def direct_url(path: str, editable: bool = True) -> str:
    return json.dumps({"url": f"file://{path}", "dir_info": {"editable": editable}})


def editable(path: str, hooks: Files | None = None) -> Files:
    content = {INFO + "direct_url.json": direct_url(path)} | {
        str(name): text for name, text in (hooks or {}).items() if isinstance(text, str)
    }
    return INTERPRETER | wheel("vllm", "1", content)


PROJECT: Files = {
    "workspace/my vllm/vllm/__init__.py": "",
    "workspace/my vllm/vllm/__pycache__/__init__.cpython-312.pyc": "",
    "workspace/my vllm/setup.py": "",
    "workspace/my vllm/.git/HEAD": "",
    "workspace/other.txt": "",
}


def test_an_editable_install_owns_its_project() -> None:
    found = attributed(PROJECT | editable("/workspace/my%20vllm"))
    assert claim(found, "workspace/my vllm/vllm/__init__.py", "editable:vllm") == ("editable", b"vllm/__init__.py")
    for path in ("vllm/__pycache__/__init__.cpython-312.pyc", "setup.py", ".git/HEAD"):
        assert whose(found, f"workspace/my vllm/{path}") == ["editable:vllm"]
    assert whose(found, "workspace/other.txt") == ["unowned:unowned:/workspace"]
    info = f"{SITE}/vllm-1.dist-info/METADATA"
    assert claim(found, info, "editable:vllm") == ("record", b"vllm.dist-info/METADATA")
    one = distribution(found, "vllm")
    assert one.editable == b"workspace/my vllm"
    assert one.packages == ("vllm",)
    assert one.site == SITE.encode()


def test_a_local_install_that_is_not_editable_owns_no_project() -> None:
    files = INTERPRETER | wheel("vllm", "1", {INFO + "direct_url.json": direct_url("/workspace/my vllm", False)})
    assert whose(attributed(PROJECT | files), "workspace/my vllm/setup.py") == ["unowned:unowned:/workspace"]


def test_the_project_is_found_by_setuptools_pth_where_direct_url_is_gone() -> None:
    files = PROJECT | INTERPRETER | wheel("vllm", "1", {"__editable__.vllm-1.pth": "/workspace/my vllm\n"})
    found = attributed(files)
    assert whose(found, "workspace/my vllm/vllm/__init__.py") == ["editable:vllm"]
    assert distribution(found, "vllm").packages == ("vllm",)


FINDER = """import sys
MAPPING: dict[str, str] = {'vllm': '/workspace/my vllm/vllm', 'tool': '/srv/elsewhere/tool'}
NAMESPACES: dict[str, list[str]] = {'space': ['/srv/space']}
PATH_PLACEHOLDER = '__editable__.vllm-1.finder' + ".__path_hook__"
"""


def test_setuptools_finder_names_packages_and_places_outside_the_project() -> None:
    hooks: Files = {
        "__editable___vllm_1_finder.py": FINDER,
        "__editable__.vllm-1.pth": "import __editable___vllm_1_finder",
    }
    more: Files = {"srv/elsewhere/tool.py": "", "srv/space/x.py": "", "srv/nobodys.py": ""}
    found = attributed(PROJECT | editable("/workspace/my vllm", hooks) | more)
    assert distribution(found, "vllm").packages == ("space", "tool", "vllm")
    assert claim(found, "srv/elsewhere/tool.py", "editable:vllm") == ("editable", b"tool.py")
    assert claim(found, "srv/space/x.py", "editable:vllm") == ("editable", b"space/x.py")
    assert whose(found, "srv/nobodys.py") == ["unowned:unowned:/srv"]


@pytest.mark.parametrize(
    "finder", ["MAPPING = {" + "(" * 10_000 + "}\n", "MAPPING = {1: 2}\n", "MAPPING = {'a': [3]}\n"]
)
def test_a_finder_with_rubbish_leaves_the_project_known(finder: str) -> None:
    found = attributed(PROJECT | editable("/workspace/my vllm", {"__editable___vllm_1_finder.py": finder}))
    assert whose(found, "workspace/my vllm/setup.py") == ["editable:vllm"]


@pytest.mark.parametrize("text", ["{", "[1]", '{"url": 3}', '{"url": "file://[", "dir_info": {"editable": true}}'])
def test_a_direct_url_that_cannot_be_read_is_a_blindspot(text: str) -> None:
    files = INTERPRETER | wheel("x", "1", {"x-1.dist-info/direct_url.json": text})
    assert [spot.what for spot in attributed(files).blindspots] == ["direct_url.json"]


def test_an_editable_install_of_the_root_owns_nothing_there_and_one_that_is_gone_is_named() -> None:
    found = attributed(editable("/") | {"etc/x": ""})
    assert whose(found, "etc/x") == ["unowned:unowned:/etc"]
    assert distribution(attributed(editable("/gone/vllm")), "vllm").editable == b"gone/vllm"


def test_an_environment_inside_a_project_is_no_part_of_it() -> None:
    site = "workspace/my vllm/.venv/lib/python3.12/site-packages"
    files = editable("/workspace/my vllm") | wheel("torch", "2", {"torch/__init__.py": ""}, site=site)
    files |= {"workspace/my vllm/.venv/pyvenv.cfg": "home = /usr/local/bin\nversion = 3.12\n", f"{site}/left.py": ""}
    found = attributed(PROJECT | files)
    assert whose(found, f"{site}/torch/__init__.py") == ["wheel:torch"]
    assert whose(found, f"{site}/left.py") == ["unowned:unowned:/workspace"]


def test_what_building_left_in_the_project_is_no_second_distribution() -> None:
    egg = "workspace/my vllm/vllm.egg-info"
    hooks: Files = {"__editable__.vllm-1.pth": "/workspace/my vllm\n"}
    files = editable("/workspace/my vllm", hooks) | {
        f"{egg}/PKG-INFO": "Name: vllm\nVersion: 1\n",
        f"{egg}/top_level.txt": "vllm\n",
    }
    found = attributed(PROJECT | files)
    assert [each.name for each in found.distributions] == ["vllm"]
    assert whose(found, f"{egg}/PKG-INFO") == ["editable:vllm"]
    assert found.integrity == ()


def test_an_egg_link_owns_its_project() -> None:
    project = "sgl-workspace/sglang/python"
    files: Files = {
        f"{SITE}/sglang.egg-link": f"/{project}\n.",
        f"{SITE}/easy-install.pth": f"/{project}\n",
        f"{project}/sglang/__init__.py": "",
        f"{project}/sglang.egg-info/PKG-INFO": "Name: sglang\nVersion: 0.5\n",
        f"{project}/sglang.egg-info/top_level.txt": "sglang\n",
        f"{project}/sglang.egg-info/entry_points.txt": "[console_scripts]\nsgl = sglang:main\n",
    }
    found = attributed(INTERPRETER | files)
    one = distribution(found, "sglang")
    assert (one.version, one.editable, one.packages) == ("0.5", project.encode(), ("sglang",))
    assert one.entry_points == (("console_scripts", "sgl", "sglang:main"),)
    assert whose(found, f"{project}/sglang/__init__.py") == ["editable:sglang"]
    assert whose(found, f"{SITE}/sglang.egg-link") == ["editable:sglang"]


def test_an_egg_link_to_nowhere_is_a_blindspot() -> None:
    assert len(attributed(INTERPRETER | {f"{SITE}/x.egg-link": "/gone\n."}).blindspots) == 1
    assert len(attributed(INTERPRETER | {f"{SITE}/x.egg-link": ""}).blindspots) == 1


# --------------------------------------------------------------------------------------------------------------------
# Eggs
# --------------------------------------------------------------------------------------------------------------------


def test_installed_files_of_an_egg_info_directory_are_its_record() -> None:
    info = f"{SITE}/six-1.16.0-py3.12.egg-info"
    files: Files = {
        f"{info}/PKG-INFO": "Name: six\nVersion: 1.16.0\n",
        f"{info}/installed-files.txt": "../six.py\n../../../../bin/sixer\nPKG-INFO\n/etc/six.conf\n",
        f"{SITE}/six.py": "",
        "usr/local/bin/sixer": "",
        "etc/six.conf": "",
    }
    found = attributed(INTERPRETER | files)
    assert claim(found, f"{SITE}/six.py", "egg:six") == ("record", b"six.py")
    assert claim(found, "usr/local/bin/sixer", "egg:six") == ("record", b"../../../bin/sixer")
    assert claim(found, "etc/six.conf", "egg:six") == ("record", b"/etc/six.conf")
    assert claim(found, f"{info}/PKG-INFO", "egg:six") == ("record", b"six.egg-info/PKG-INFO")
    assert distribution(found, "six").packages == ("six",)


def test_a_single_file_egg_info() -> None:
    site = "usr/lib/python3/dist-packages"
    files: Files = {
        "usr/lib/python3.12/os.py": "",
        f"{site}/wheel-0.42.0.egg-info": "Metadata-Version: 1.1\nName: wheel\nVersion: 0.42.0\n",
        f"{site}/wheel/__init__.py": "",
    }
    found = attributed(files)
    assert distribution(found, "wheel").version == "0.42.0"
    assert claim(found, f"{site}/wheel/__init__.py", "egg:wheel") == ("enclosing", b"wheel/__init__.py")
    assert claim(found, f"{site}/wheel-0.42.0.egg-info", "egg:wheel") == ("enclosing", b"wheel.egg-info")


def test_an_egg_directory_on_easy_installs_list() -> None:
    egg = f"{SITE}/foo-2.0-py3.12.egg"
    files: Files = {
        f"{SITE}/easy-install.pth": "./foo-2.0-py3.12.egg\n",
        f"{egg}/EGG-INFO/PKG-INFO": "Name: foo\nVersion: 2.0\n",
        f"{egg}/EGG-INFO/top_level.txt": "foo\n",
        f"{egg}/foo/__init__.py": "",
        f"{egg}/native.so": "",
    }
    found = attributed(INTERPRETER | files)
    assert claim(found, f"{egg}/foo/__init__.py", "egg:foo") == ("enclosing", b"foo/__init__.py")
    assert whose(found, f"{egg}/native.so") == ["egg:foo"]
    assert distribution(found, "foo").site == egg.encode()


# --------------------------------------------------------------------------------------------------------------------
# What is a distribution of an environment
# --------------------------------------------------------------------------------------------------------------------


def names(files: Files) -> list[str]:
    return [each.name for each in attributed(files).distributions]


def test_vendored_and_cached_dist_infos_are_none() -> None:
    inner = {
        "setuptools/_vendor/wheel-1.dist-info/RECORD": "wheel/__init__.py,,\n",
        "setuptools/_vendor/wheel/__init__.py": "",
    }
    files = INTERPRETER | wheel("setuptools", "70", {"setuptools/__init__.py": "", **inner})
    for cache in ("root/.cache/uv/archive-v0/abc", "uv-cache/archive-v0/abc", "cache/x", "root/.cache/pip/x"):
        files |= wheel("six", "1", {"six.py": ""}, site=cache)
    files["cache/CACHEDIR.TAG"] = "Signature: 8a477f597d28d172789f06886806bc55"
    assert names(files) == ["setuptools"]
    found = attributed(files)
    assert whose(found, f"{SITE}/setuptools/_vendor/wheel/__init__.py") == ["wheel:setuptools"]
    assert whose(found, "root/.cache/uv/archive-v0/abc/six.py") == ["unowned:unowned:/root"]


def test_a_target_directory_counts_and_pips_bin_in_it() -> None:
    files = wheel("six", "1", {"six.py": ""}, site="opt/deps", rows="../../bin/sixer,,\n")
    vendored = {"pkg/__init__.py": "", "pkg/_vendor/y-1.dist-info/RECORD": "y.py,,\n", "pkg/_vendor/y.py": ""}
    files |= wheel("pkg", "1", vendored, site="opt/deps")
    files["opt/deps/bin/sixer"] = ""
    found = attributed(files)
    assert [each.name for each in found.distributions] == ["pkg", "six"]
    assert claim(found, "opt/deps/six.py", "wheel:six") == ("record", b"six.py")
    assert claim(found, "opt/deps/bin/sixer", "wheel:six") == ("record", b"../../bin/sixer")
    assert found.integrity == ()


def test_a_dist_info_with_nothing_beside_it_in_an_odd_place_is_none() -> None:
    files = wheel("six", "1", {"six.py": ""}, site="srv/backup")
    del files["srv/backup/six.py"]
    assert names(files) == []


def test_a_directory_on_a_pth_counts() -> None:
    files = INTERPRETER | {f"{SITE}/more.pth": "# no\nimport x\n\n../bundle\nnowhere\n"}
    files |= wheel("six", "1", {"six.py": ""}, site="usr/local/lib/python3.12/bundle")
    del files["usr/local/lib/python3.12/bundle/six-1.dist-info/RECORD"]
    assert names(files) == ["six"]


def test_site_packages_without_an_interpreter_and_of_a_user_count() -> None:
    files = wheel("a", "1", {"a.py": ""}, site="opt/v/lib/python3.9/site-packages")
    files |= wheel("b", "1", {"b.py": ""}, site="home/u/.local/lib/python3.12/site-packages")
    assert names(files) == ["b", "a"]


def test_the_same_distribution_in_two_environments_is_two_owners() -> None:
    files = INTERPRETER | wheel("torch", "1", {"torch/__init__.py": ""})
    files |= wheel("torch", "2", {"torch/__init__.py": ""}, site="opt/v/lib/python3.12/site-packages")
    found = attributed(files)
    assert sorted((owner.version, owner.root) for owner in found.owners if owner.kind == "wheel") == [
        ("1", SITE.encode()),
        ("2", b"opt/v/lib/python3.12/site-packages"),
    ]
    assert found.integrity == ()


# --------------------------------------------------------------------------------------------------------------------
# An image against itself
# --------------------------------------------------------------------------------------------------------------------


def test_an_edited_file_is_a_mismatch_but_not_bytecode() -> None:
    files = INTERPRETER | wheel("x", "1", {"x/__init__.py": "old", "x/__pycache__/__init__.cpython-312.pyc": "old"})
    files |= {f"{SITE}/x/__init__.py": "new", f"{SITE}/x/__pycache__/__init__.cpython-312.pyc": "new"}
    found = attributed(files)
    assert notes(found) == [("record-mismatch", "x", f"{SITE}/x/__init__.py".encode())]
    assert found.integrity[0].message == (
        f"/{SITE}/x/__init__.py differs from RECORD of x: it was changed after the install."
    )


def test_missing_files_are_said_once_for_a_directory_that_is_gone_and_bytecode_is_none() -> None:
    content = {
        "x/__init__.py": "",
        "x/a.json": "",
        "x/t/1.py": "",
        "x/t/u/2.py": "",
        "x/__pycache__/q.cpython-312.pyc": "",
    }
    files = INTERPRETER | wheel("x", "1", content)
    for gone in ("x/a.json", "x/t/1.py", "x/t/u/2.py", "x/__pycache__/q.cpython-312.pyc"):
        del files[f"{SITE}/{gone}"]
    found = attributed(files)
    assert notes(found) == [
        ("record-missing", "x", f"{SITE}/x/a.json".encode()),
        ("record-missing", "x", f"{SITE}/x/t".encode()),
    ]
    assert "2 files" in found.integrity[1].message


def test_an_emptied_directory() -> None:
    files = INTERPRETER | wheel("x", "1", {"x/__init__.py": "", "x/lib/a.so": "", "x/lib/b.so": ""})
    del files[f"{SITE}/x/lib/a.so"], files[f"{SITE}/x/lib/b.so"]
    found = attributed(files | {f"{SITE}/x/lib": Dir(), f"{SITE}/x/kernels": Dir(), f"{SITE}/x/__pycache__": Dir()})
    assert notes(found) == [
        ("empty-directory", "x", f"{SITE}/x/kernels".encode()),
        ("empty-directory", "x", f"{SITE}/x/lib".encode()),
        ("record-missing", "x", f"{SITE}/x/lib/a.so".encode()),
        ("record-missing", "x", f"{SITE}/x/lib/b.so".encode()),
    ]
    assert "2 files" in found.integrity[1].message


def test_an_orphan_dist_info() -> None:
    files = INTERPRETER | wheel("x", "1", {"x/__init__.py": "", "x/data.bin": ""})
    del files[f"{SITE}/x/__init__.py"], files[f"{SITE}/x/data.bin"]
    found = attributed(files)
    assert notes(found) == [("orphan-dist-info", "x", f"{SITE}/x-1.dist-info".encode())]


def test_two_versions_of_one_distribution_in_a_site_are_one_owner_and_said() -> None:
    files = INTERPRETER | wheel("x", "1.9", {"x/__init__.py": "old"}) | wheel("x", "1.10", {"x/__init__.py": "new"})
    found = attributed(files)
    assert notes(found) == [("duplicate-distribution", "x", f"{SITE}/x-1.10.dist-info".encode())]
    assert "1.10 and 1.9" in found.integrity[0].message
    assert [owner.version for owner in found.owners if owner.name == "x"] == ["1.10"]
    assert [each.version for each in found.distributions] == ["1.10", "1.9"]


def test_lists_that_lead_through_a_looping_link_raise_nothing() -> None:
    files = INTERPRETER | wheel("x", "1", {"x.py": ""}, rows="loop/a.py,,\nx.py/below.py,,\n./x.py,,\n../,,\n")
    found = attributed(files | {f"{SITE}/loop": Link(b"loop")})
    assert [code for code, _, _ in notes(found)].count("record-missing") >= 1
