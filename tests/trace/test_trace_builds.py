"""Which extension modules an interpreter loads, by its build: free-threaded, debug, an old one, another platform's."""

from __future__ import annotations

import pytest

from imgdiff.model import ElfFacts, Environment
from imgdiff.trace.finder.suffixes import Suffixes
from tests.trace.world import World, make_tree

EXTENSION = ElfFacts(62, 64, python=True)
GNU = "x86_64-linux-gnu"
BUILDS = {
    "release": ("3.13", "python3.13", "python3.13", f"cpython-313-{GNU}"),
    "free": ("3.13", "python3.13t", "python3.13t", f"cpython-313t-{GNU}"),
    "debug": ("3.13", "python3.13", "python3.13d", f"cpython-313d-{GNU}"),
    "free debug": ("3.13", "python3.13t", "python3.13td", f"cpython-313td-{GNU}"),
    "musl": ("3.12", "python3.12", "python3.12", "cpython-312-x86_64-linux-musl"),
    "arm": ("3.11", "python3.11", "python3.11", "cpython-311-arm-linux-gnueabihf"),
    "old": ("3.6", "python3.6", "platform-python3.6", f"cpython-36m-{GNU}"),
    "pypy": ("3.10", "pypy3.10", "pypy3.10", f"pypy310-pp73-{GNU}"),
    "graalpy": ("3.11", "python3.11", "graalpy", "graalpy242-311-native-x86_64-linux"),
}


def world(build: str, names: list[str], told: str = "dynload", start: str | None = None) -> tuple[World, str]:
    version, library, program, tag = BUILDS[build]
    stdlib, site = f"usr/lib/{library}", f"usr/lib/{library}/site-packages"
    files: dict[str, bytes | str] = {
        f"usr/bin/{program}": "ELF",
        f"usr/bin/{start or program}": "ELF",
        f"{stdlib}/os.py": "",
        f"{stdlib}/site.py": "",
        f"{site}/app.py": "import _x\n",
        **{f"{site}/_x.{name}so": "ELF" for name in names},
    }
    if told == "dynload":
        files[f"{stdlib}/lib-dynload/_json.{tag}.so"] = "ELF"
    elif told == "config" and tag.startswith("cpython"):
        _, flags, platform = tag.split("-", 2)
        files[f"{stdlib}/_sysconfigdata_{flags.strip('0123456789')}_linux_{platform}.py"] = ""
    elves = {path: EXTENSION for path in files if files[path] == "ELF"}
    executable = f"usr/bin/{program}".encode()
    environments = [Environment(b"usr", b"usr", executable, version, stdlib.encode(), (site.encode(),))]
    argv = (f"/usr/bin/{start or program}", "-m", "app")
    return World(files, argv=argv, elves=elves, environments=environments), site


@pytest.mark.parametrize("told", ["dynload", "config", "names"])
@pytest.mark.parametrize("build", BUILDS)
def test_an_extension_module_of_the_interpreters_build_is_loaded_before_all_others(build: str, told: str) -> None:
    own = BUILDS[build][3] + "."
    others = [f"{tag}." for name, (*_, tag) in BUILDS.items() if name != build and not name.startswith("free debug")]
    found, site = world(build, [own, *others, "abi3.", ""], told)
    assert found.level(f"{site}/_x.{own}so") == "eager"
    for name in (*others, "abi3.", ""):
        assert found.level(f"{site}/_x.{name}so") == "unreached", name


@pytest.mark.parametrize("build", BUILDS)
def test_where_only_one_fits_it_is_loaded(build: str) -> None:
    for name in (BUILDS[build][3] + ".", ""):
        found, site = world(build, [name])
        assert found.level(f"{site}/_x.{name}so") == "eager"


@pytest.mark.parametrize(
    ("build", "first"), [("release", "abi3."), ("debug", "abi3."), ("free", ""), ("free debug", "")]
)
def test_a_free_threaded_build_loads_no_abi3(build: str, first: str) -> None:
    found, site = world(build, ["abi3.", ""])
    assert found.level(f"{site}/_x.{first}so") == "eager"
    other = "" if first else "abi3."
    assert found.level(f"{site}/_x.{other}so") == "unreached"


def test_a_debug_build_loads_what_was_built_for_a_release() -> None:
    found, site = world("debug", [f"cpython-313-{GNU}.", ""])
    assert found.level(f"{site}/_x.cpython-313-{GNU}.so") == "eager"


@pytest.mark.parametrize("name", ["python3.13d", "python3-dbg", "python3.13-dbg"])
def test_a_debug_build_that_shares_its_library_is_a_blindspot(name: str) -> None:
    both = [f"cpython-313-{GNU}.", f"cpython-313d-{GNU}."]
    version, library, program, _ = BUILDS["release"]
    stdlib, site = f"usr/lib/{library}", f"usr/lib/{library}/site-packages"
    files: dict[str, bytes | str] = dict.fromkeys((f"usr/bin/{program}", f"usr/bin/{name}"), "ELF")
    for where in (f"{stdlib}/lib-dynload/_json.", f"{site}/_x."):
        files |= {f"{where}{each}so": "ELF" for each in both}
    files |= {f"{stdlib}/os.py": "", f"{site}/app.py": "import _x\n"}
    elves = {path: EXTENSION for path in files if files[path] == "ELF"}
    environments = [
        Environment(b"usr", b"usr", f"usr/bin/{program}".encode(), version, stdlib.encode(), (site.encode(),))
    ]
    for argv, spots in (((program, "-m", "app"), 0), ((name, "-m", "app"), 1)):
        found = World(files, argv=argv, elves=elves, environments=environments)
        assert [spot.what for spot in found.trace.blindspots] == ["interpreter"] * spots


@pytest.mark.parametrize(("build", "spots"), [("release", 0), ("free", 0), ("debug", 0), ("pypy", 1), ("graalpy", 1)])
def test_an_interpreter_that_is_no_cpython_is_a_blindspot(build: str, spots: int) -> None:
    found, _ = world(build, [])
    assert [spot.what for spot in found.trace.blindspots] == ["interpreter"] * spots


@pytest.mark.parametrize(
    ("library", "order"),
    [
        ("python3.15", [".cpython-315-x.so", ".abi3.so", ".abi3t.so", ".so"]),
        ("python3.15t", [".cpython-315t-x.so", ".abi3t.so", ".so"]),
        ("python3.14t", [".cpython-314t-x.so", ".so"]),
    ],
)
def test_abi3t_is_for_free_threaded_builds_since_3_15(library: str, order: list[str]) -> None:
    tree, _ = make_tree({f"usr/lib/{library}/os.py": ""})
    version = library.removeprefix("python").rstrip("t")
    environment = Environment(b"usr", b"usr", None, version, f"usr/lib/{library}".encode(), ())
    suffixes = Suffixes(tree, environment)
    digits = version.replace(".", "")
    names = [f".cpython-{digits}-x.so", f".cpython-{digits}t-x.so", ".abi3.so", ".abi3t.so", ".so", ".pypy310-pp73.so"]
    ranked = sorted((rank, name) for name in names if (rank := suffixes.rank(name.encode())) is not None)
    assert [name for _, name in ranked] == order
