from __future__ import annotations

import pytest

from imgdiff.model import Environment
from tests.attribution.claims import INTERPRETER, SITE, Files, attributed, whose
from tests.support.trees import Dir, Link

DEBIAN: Files = {
    "usr/bin/python3.12": b"\x7fELF",
    "usr/bin/python3": Link(b"python3.12"),
    "bin": Link(b"usr/bin"),
    "usr/lib/python3.12/os.py": "",
    "usr/lib/python3.12/site.py": "# looks into dist-packages",
    "usr/lib/python3/dist-packages/six.py": "",
    "usr/local/lib/python3.12/dist-packages/vllm/__init__.py": "",
}
UV: Files = {
    "opt/uv/python/cpython-3.12.11-linux-x86_64-gnu/bin/python3.12": b"\x7fELF",
    "opt/uv/python/cpython-3.12.11-linux-x86_64-gnu/lib/python3.12/os.py": "",
    "opt/uv/python/cpython-3.12.11-linux-x86_64-gnu/lib/libpython3.12.so.1.0": "",
    "opt/uv/python/cpython-3.12-linux-x86_64-gnu": Link(b"cpython-3.12.11-linux-x86_64-gnu"),
}


def venv(home: str, system: str = "false", prefix: str = "opt/venv", python: bytes = b"/usr/bin/python3.12") -> Files:
    return {
        f"{prefix}/pyvenv.cfg": f"home = {home}\ninclude-system-site-packages = {system}\nversion_info = 3.12.11\n",
        f"{prefix}/bin/python": Link(python),
        f"{prefix}/bin/python3.12": Link(b"python"),
        f"{prefix}/lib/python3.12/site-packages": Dir(),
        f"{prefix}/lib64": Link(b"lib"),
    }


def environment(files: Files, prefix: str) -> Environment:
    (found,) = [each for each in attributed(files).environments if each.prefix == prefix.encode()]
    return found


def test_a_plain_interpreter() -> None:
    found = environment(INTERPRETER | {f"{SITE}/six.py": ""}, "usr/local")
    assert found.executable == b"usr/local/bin/python3.12"
    assert (found.base, found.version, found.stdlib) == (b"usr/local", "3.12", b"usr/local/lib/python3.12")
    assert found.sites == (SITE.encode(),)


def test_pyvenv_cfg_can_lie_beside_the_interpreter() -> None:
    """PEP 405, run with CPython 3.11: the prefix is the directory above the interpreter's all the same."""
    files = dict(venv("/usr/bin"))
    files["opt/venv/bin/pyvenv.cfg"] = files.pop("opt/venv/pyvenv.cfg")
    found = environment(DEBIAN | files, "opt/venv")
    assert (found.base, found.sites) == (b"usr", (b"opt/venv/lib/python3.12/site-packages",))


def test_debians_interpreter_looks_into_dist_packages_local_first() -> None:
    found = environment(DEBIAN, "usr")
    assert found.executable == b"usr/bin/python3.12"
    assert found.sites == (b"usr/local/lib/python3.12/dist-packages", b"usr/lib/python3/dist-packages")


def test_debians_interpreter_is_known_without_its_site_py() -> None:
    files = dict(DEBIAN)
    del files["usr/lib/python3.12/site.py"]
    assert environment(files, "usr").sites[1] == b"usr/lib/python3/dist-packages"


def test_an_upstream_python_in_usr_local_beside_debians_has_sites_of_its_own() -> None:
    found = environment(DEBIAN | INTERPRETER | {f"{SITE}/six.py": ""}, "usr/local")
    assert found.sites == (SITE.encode(),)


def test_fedoras_interpreter_looks_into_usr_local_and_lib64_first() -> None:
    files: Files = {
        "usr/lib64/python3.12/os.py": "",
        "usr/lib64/python3.12/site.py": "/usr/local",
        **{
            f"{prefix}/python3.12/site-packages/x.py": ""
            for prefix in ("usr/lib", "usr/lib64", "usr/local/lib", "usr/local/lib64")
        },
    }
    assert environment(files, "usr").sites == (
        b"usr/local/lib64/python3.12/site-packages",
        b"usr/local/lib/python3.12/site-packages",
        b"usr/lib64/python3.12/site-packages",
        b"usr/lib/python3.12/site-packages",
    )


def test_a_venv_over_debians_python_sees_its_own_packages_only() -> None:
    found = environment(DEBIAN | venv("/usr/bin"), "opt/venv")
    assert (found.base, found.stdlib) == (b"usr", b"usr/lib/python3.12")
    assert found.executable == b"usr/bin/python3.12"
    assert found.sites == (b"opt/venv/lib/python3.12/site-packages",)
    assert not found.system_site


@pytest.mark.parametrize("system", ["true", "True"])
def test_a_venv_with_system_packages_looks_into_them_after_its_own(system: str) -> None:
    found = environment(DEBIAN | venv("/bin", system), "opt/venv")
    assert found.system_site
    assert found.sites == (
        b"opt/venv/lib/python3.12/site-packages",
        b"usr/local/lib/python3.12/dist-packages",
        b"usr/lib/python3/dist-packages",
    )


def test_a_venv_over_uvs_python_through_a_linked_directory() -> None:
    home = "/opt/uv/python/cpython-3.12-linux-x86_64-gnu/bin"
    found = environment(UV | venv(home, python=f"{home}/python3.12".encode()), "opt/venv")
    assert found.base == b"opt/uv/python/cpython-3.12.11-linux-x86_64-gnu"
    assert found.executable == found.base + b"/bin/python3.12"
    assert found.stdlib == found.base + b"/lib/python3.12"


def test_a_venv_whose_interpreter_is_not_in_the_image() -> None:
    found = environment(venv("/opt/gone/bin", python=b"/opt/gone/bin/python3.12"), "opt/venv")
    assert (found.base, found.executable, found.stdlib, found.version) == (b"opt/gone", None, None, "3.12")
    assert found.sites == (b"opt/venv/lib/python3.12/site-packages",)


def test_a_venv_that_says_no_version_is_known_by_its_lib() -> None:
    files = venv("/usr/bin") | {"opt/venv/pyvenv.cfg": "home = /usr/bin\n"}
    found = environment(DEBIAN | files, "opt/venv")
    assert (found.version, found.system_site) == ("3.12", True)


def test_an_interpreter_without_its_library_is_one() -> None:
    found = environment({"opt/py/bin/python3.13": b"\x7fELF", "opt/py/lib/python3.13/site-packages": Dir()}, "opt/py")
    assert (found.executable, found.stdlib) == (b"opt/py/bin/python3.13", None)
    assert found.sites == (b"opt/py/lib/python3.13/site-packages",)


def test_a_free_threaded_build_beside_the_ordinary_one() -> None:
    files: Files = {
        f"usr/local/{path}": ""
        for name in ("python3.13", "python3.13t")
        for path in (f"lib/{name}/os.py", f"bin/{name}", f"lib/{name}/site-packages/x.py")
    }
    assert [(each.executable, each.sites) for each in attributed(files).environments] == [
        (b"usr/local/bin/python3.13", (b"usr/local/lib/python3.13/site-packages",)),
        (b"usr/local/bin/python3.13t", (b"usr/local/lib/python3.13t/site-packages",)),
    ]


def test_two_minors_share_debians_dist_packages() -> None:
    more: Files = {
        "usr/bin/python3.11": b"",
        "usr/lib/python3.11/os.py": "",
        "usr/lib/python3.11/site.py": "dist-packages",
    }
    found = attributed(DEBIAN | more).environments
    assert [(each.prefix, each.version) for each in found] == [(b"usr", "3.11"), (b"usr", "3.12")]
    assert all(b"usr/lib/python3/dist-packages" in each.sites for each in found)


def test_user_sites_are_told_apart_from_the_interpreters_own() -> None:
    user = "root/.local/lib/python3.12/site-packages"
    found = environment(DEBIAN | {f"{user}/x.py": "", "root/.local/lib/python3.9/site-packages/y.py": ""}, "usr")
    assert found.user_sites == (user.encode(),)
    assert user.encode() not in found.sites


def test_a_conda_environment() -> None:
    files: Files = {
        "home/u/conda/conda-meta/history": "",
        "home/u/conda/bin/python3.11": b"",
        "home/u/conda/lib/python3.11/os.py": "",
        "home/u/conda/lib/python3.11/site-packages": Dir(),
        "home/u/conda/pkgs/python-3.11/lib/python3.11/os.py": "",
        "home/u/conda/pkgs/python-3.11/bin/python3.11": b"",
    }
    (found,) = attributed(files).environments
    assert (found.prefix, found.version) == (b"home/u/conda", "3.11")


def test_poetrys_environment_in_a_cache_and_a_tagged_venv_are_environments() -> None:
    inside = venv("/usr/bin", prefix="root/.cache/pypoetry/virtualenvs/app") | venv("/usr/bin", prefix="app/.venv")
    found = attributed(DEBIAN | inside | {"app/.venv/CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55"})
    assert [each.prefix for each in found.environments] == [
        b"app/.venv",
        b"root/.cache/pypoetry/virtualenvs/app",
        b"usr",
    ]


# --------------------------------------------------------------------------------------------------------------------
# The interpreter as an owner
# --------------------------------------------------------------------------------------------------------------------


def test_the_standard_library_is_an_owner_and_its_sites_are_no_part_of_it() -> None:
    files = UV | {"opt/uv/python/cpython-3.12.11-linux-x86_64-gnu/lib/python3.12/site-packages/x.py": ""}
    found = attributed(files)
    root = "opt/uv/python/cpython-3.12.11-linux-x86_64-gnu"
    assert whose(found, f"{root}/lib/python3.12/os.py") == ["stdlib:cpython-3.12"]
    assert whose(found, f"{root}/lib/python3.12/site-packages/x.py") == ["unowned:unowned:/opt"]
    relative = {
        path: claim.relative
        for path, claims in found.claims.items()
        for claim in claims
        if found.owners[claim.owner].kind == "stdlib"
    }
    assert relative == {
        f"{root}/lib/python3.12/os.py".encode(): b"os.py",
        f"{root}/bin/python3.12".encode(): b"../../bin/python3.12",
        f"{root}/lib/libpython3.12.so.1.0".encode(): b"../libpython3.12.so.1.0",
    }


def test_dpkgs_standard_library_has_both_owners() -> None:
    files = DEBIAN | {
        "var/lib/dpkg/status": "Package: libpython3.12-stdlib\nStatus: install ok installed\nVersion: 3.12.3\n",
        "var/lib/dpkg/info/libpython3.12-stdlib.list": "/.\n/usr\n/usr/lib/python3.12\n/usr/lib/python3.12/os.py\n",
        "usr/lib/python3.12/__pycache__/os.cpython-312.pyc": "",
    }
    found = attributed(files)
    both = ["dpkg:libpython3.12-stdlib", "stdlib:cpython-3.12"]
    assert whose(found, "usr/lib/python3.12/os.py") == both
    assert whose(found, "usr/lib/python3.12/__pycache__/os.cpython-312.pyc") == both
