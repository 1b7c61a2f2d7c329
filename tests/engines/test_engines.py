"""Profiles and lists: they load, each line has its reason, and no list hides what an engine reads."""

from __future__ import annotations

from typing import Any

import pytest

from imgdiff.engines import PathRules, common, load_profiles, path_regex, recognise
from imgdiff.model import Distribution, Environment
from tests.trace.world import PYTHON, SITE, STDLIB, make_attribution, make_tree

S = SITE.decode()


def test_every_line_has_its_reason() -> None:
    lists = common()
    rules: list[Any] = [*lists.env, *lists.outside, *lists.read_at_run_time, *lists.compilers, *lists.shell_files]
    for profile in load_profiles():
        rules += [*profile.env, *profile.outside, *profile.read_at_run_time]
        rules += [group for role in profile.roles for group in role.roots]
        rules += [rule for role in profile.roles for rule in role.includes_unless]
    assert all(len(rule.reason) > 5 for rule in rules)


def test_roles_refer_to_roles_of_the_profile_parents_first() -> None:
    for profile in load_profiles():
        names = [role.name for role in profile.roles]
        assert any(role.engine for role in profile.roles)
        for index, role in enumerate(profile.roles):
            assert set(role.includes) <= set(names)
            assert role.parent is None or role.parent in names[:index]


@pytest.mark.parametrize(("package", "name"), [("vllm", "vllm"), ("sglang", "sglang"), ("other", "generic")])
def test_an_engine_is_known_by_its_package(package: str, name: str) -> None:
    tree, _ = make_tree({f"{S}/{package}/__init__.py": ""})
    assert recognise(make_attribution(tree), tree).name == name


def test_an_editable_install_is_known_by_its_project() -> None:
    tree, _ = make_tree({"src/sglang/python/sglang/__init__.py": "", f"{S}/x.py": ""})
    known = [Distribution("sglang", "1", SITE, b"", 0, ("sglang",), (), b"src/sglang")]
    assert recognise(make_attribution(tree, known), tree).name == "sglang"
    assert recognise(make_attribution(tree), tree).name == "generic"


def test_the_first_of_two_engines_wins() -> None:
    tree, _ = make_tree({f"{S}/vllm/__init__.py": "", f"{S}/sglang/__init__.py": ""})
    environment = Environment(b"usr", b"usr", PYTHON, "3.12", STDLIB, (SITE,))
    assert recognise(make_attribution(tree, environments=[environment]), tree).name == "vllm"


READ = [
    "root/.cache/vllm/torch_compile_cache/x", "root/.triton/cache/x", "root/.cache/torch/x", "root/.cache/huggingface/x",
    "root/.config/vllm/x.json", "etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf", "etc/nsswitch.conf",
    "etc/localtime", "etc/ssl/certs/ca-certificates.crt", "etc/ld.so.conf", "etc/ld.so.cache", "etc/OpenCL/vendors/intel.icd",
    "etc/environment", "usr/share/zoneinfo/UTC", "usr/share/locale/locale.alias", "usr/lib/locale/C.utf8/LC_CTYPE",
    f"{S}/vllm/py.py", f"{S}/vllm/model_executor/layers/fused_moe/configs/E=64.json", f"{S}/x-1.dist-info/METADATA",
    f"{S}/x-1.dist-info/entry_points.txt", f"{S}/x-1.dist-info/RECORD", f"{S}/licenses/data.py", f"{S}/doc/__init__.py",
    f"{S}/torch/lib/libtorch.so", "usr/lib/x86_64-linux-gnu/libc.so.6", "usr/share/fonts/x.ttf", "usr/share/misc/magic.mgc",
    "var/lib/dpkg-like/x", "usr/share/docker/x", "opt/conda/etc/x", "usr/share/hwdata/pci.ids", "usr/share/mime/x",
]  # fmt: skip


@pytest.mark.parametrize("path", READ)
def test_what_a_program_can_read_is_not_outside(path: str) -> None:
    lists = common()
    rules = PathRules((*lists.outside, *(rule for profile in load_profiles() for rule in profile.outside)))
    assert rules.match(path.encode()) is None


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("/a/*", "/a/b", True),
        ("/a/*", "/a/b/c", False),
        ("/a/**", "/a/b/c", True),
        ("/a/**", "/a", True),
        ("/a/**", "/ab", False),
        ("**/x", "/x", True),
        ("**/x", "/a/b/x", True),
        ("**/x", "/a/bx", False),
        ("/a/**/z", "/a/z", True),
        ("/a/**/z", "/a/b/c/z", True),
        ("/a?c", "/abc", True),
        ("/a.c", "/abc", False),
    ],
)
def test_path_patterns(pattern: str, path: str, fits: bool) -> None:
    import re

    assert bool(re.fullmatch(path_regex(pattern), path)) is fits


def test_env_lists_agree_with_the_design() -> None:
    rules = {rule.name: rule.bears for rule in common().env}
    assert [rules[name] for name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")] == ["path"] * 3
    assert [rules[name] for name in ("LD_PRELOAD", "LD_AUDIT", "PYTHONHOME", "PYTHONSTARTUP")] == ["stands"] * 4
    assert [rules[name] for name in ("DEBIAN_FRONTEND", "PIP_NO_CACHE_DIR", "UV_CACHE_DIR", "http_proxy")] == [
        "none"
    ] * 4
    # The design calls all of PIP_* and UV_* harmless; an entry point that runs `uv run` is told by some what to start.
    for name in ("PIP_*", "UV_*", "*_TOKEN", "OMP_NUM_THREADS", "CCL_WORKER_COUNT", "LANG", "HOME"):
        assert name not in rules
