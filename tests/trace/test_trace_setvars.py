"""oneAPI's setvars.sh, sourced by the entry: it finds its components' scripts, and their directories, by computing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from imgdiff.model import ElfFacts
from imgdiff.resolution import compare_resolution
from tests.trace.library_image import LOADER
from tests.trace.world import World, site

# As oneAPI's own scripts go about it (2024 and 2025), without what they print and check.
SETVARS = r"""#!/bin/sh
get_script_path() (
  script="$1"
  while [ -L "$script" ] ; do
    script_dir=$(command dirname -- "$script")
    script_dir=$(cd "$script_dir" && command pwd -P)
    script="$(readlink "$script")"
  done
  script_dir=$(command dirname -- "$script")
  script_dir=$(cd "$script_dir" && command pwd -P)
  printf "%s" "$script_dir"
)
vars_script_name=""
if [ -n "${BASH_VERSION:-}" ] ; then
  (return 0 2>/dev/null) && vars_script_name="${BASH_SOURCE}"
fi
my_script_path=$(get_script_path "${vars_script_name:-}")
ONEAPI_ROOT="${my_script_path}"
export ONEAPI_ROOT
for component in $(ls "$ONEAPI_ROOT") ; do
  for version in latest ; do
    arg_path="${ONEAPI_ROOT}/${component}/${version}/env/vars.sh"
    if [ -r "$arg_path" ] ; then
      . "$arg_path" --include-intel-llvm
    fi
  done
done
"""
VARS = r"""#!/bin/sh
prepend_path() (
  path_to_add="$1"
  path_is_now="$2"
  if [ "" = "${path_is_now}" ] ; then
    printf "%s" "${path_to_add}"
  else
    printf "%s" "${path_to_add}:${path_is_now}"
  fi
)
vars_script_name=""
if [ -n "${BASH_VERSION:-}" ] ; then
  (return 0 2>/dev/null) && vars_script_name="${BASH_SOURCE}"
fi
my_script_path=$(cd "$(dirname -- "${vars_script_name}")" && pwd -P)
component_root=$(dirname -- "${my_script_path}")
LD_LIBRARY_PATH=$(prepend_path "${component_root}/lib" "${LD_LIBRARY_PATH:-}") ; export LD_LIBRARY_PATH
PATH=$(prepend_path "${component_root}/bin" "${PATH:-}") ; export PATH
"""
ROOT = "opt/intel/oneapi"
START = '#!/bin/bash\nsource /opt/intel/oneapi/setvars.sh --force\nexec python3.12 -m app "$@"\n'
FILES: dict[str, bytes | str] = {
    **site({"app.py": ""}),
    "usr/bin/bash": "",
    "opt/app/start.sh": START,
    f"{ROOT}/setvars.sh": SETVARS,
    **{f"{ROOT}/{name}/2025.0/env/vars.sh": VARS for name in ("compiler", "ccl")},
    f"{ROOT}/compiler/2025.0/lib/libsycl.so.8": "",
    f"{ROOT}/compiler/2025.0/opt/other/libsycl.so.8": "",
    f"{ROOT}/ccl/2025.0/lib/libccl.so.1": "",
    f"{ROOT}/notes/vars.txt": "",
    "usr/lib64/libsycl.so.8": "",
}
LINKS = {"bin/bash": "/usr/bin/bash", **{f"{ROOT}/{name}/latest": "2025.0" for name in ("compiler", "ccl")}}


def world(files: dict[str, bytes | str] | None = None, **more: object) -> World:
    everything = {**FILES, **(files or {})}
    elves = {
        path: ElfFacts(62, 64, soname=path.rpartition("/")[2], needed=("libccl.so.1",) if "sycl" in path else ())
        for path in everything
        if ".so." in path
    }
    elves["usr/bin/python3.12"] = ElfFacts(62, 64, needed=("libsycl.so.8",), interpreter=LOADER, python=True)
    elves["usr/bin/bash"] = ElfFacts(62, 64, interpreter=LOADER)
    argv = more.pop("argv", ("/opt/app/start.sh",))
    return World(everything, argv=argv, env=["PATH=/usr/bin:/bin"], elves=elves, links=LINKS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "argv",
    [
        ("/opt/app/start.sh",),
        ("bash", "-c", "source /opt/intel/oneapi/setvars.sh --force && exec python3.12 -m app"),
    ],
)
def test_libraries_of_the_components_are_found(argv: tuple[str, ...]) -> None:
    made = world(argv=argv)
    for path in (
        f"{ROOT}/setvars.sh",
        f"{ROOT}/compiler/2025.0/lib/libsycl.so.8",
        f"{ROOT}/ccl/2025.0/lib/libccl.so.1",
    ):
        assert made.level(path) == "eager", path
    assert made.level(f"{ROOT}/compiler/2025.0/env/vars.sh") == "deferred"
    # What the script computes is a guess, so that the copy of the system counts too.
    assert made.level("usr/lib64/libsycl.so.8") == "eager"
    assert made.level(f"{ROOT}/compiler/2025.0/opt/other/libsycl.so.8") == "eager"
    assert made.level(f"{ROOT}/notes/vars.txt") == "unreached"


def test_a_library_path_that_can_be_any_leaves_every_copy_open() -> None:
    files: dict[str, bytes | str] = {
        "usr/local/bin/start.sh": "#!/bin/bash\nexport LD_LIBRARY_PATH=$(where)\n. $ENVIRONMENT\nexec python3.12 -m app\n",
        "usr/local/lib/libsycl.so.8": "",
    }
    made = world(files, argv=("/usr/local/bin/start.sh",))
    assert made.level("usr/lib64/libsycl.so.8") == "eager"
    assert made.level(f"{ROOT}/compiler/2025.0/lib/libsycl.so.8") == "deferred"
    assert made.level("usr/local/lib/libsycl.so.8") == "deferred"
    files["usr/local/bin/start.sh"] = (
        "#!/bin/bash\nexport LD_LIBRARY_PATH=/x:$LD_LIBRARY_PATH\nexec python3.12 -m app\n"
    )
    made = world(files, argv=("/usr/local/bin/start.sh",))
    assert made.level(f"{ROOT}/compiler/2025.0/lib/libsycl.so.8") == "unreached"


def test_a_needed_library_that_no_search_finds_is_not_called_unreached() -> None:
    files = {path: content for path, content in FILES.items() if not path.startswith("usr/lib64")}
    made = World(
        files,
        env=["PATH=/usr/bin"],
        elves={
            "usr/bin/python3.12": ElfFacts(62, 64, needed=("libsycl.so.8",), interpreter=LOADER, python=True),
            f"{ROOT}/compiler/2025.0/lib/libsycl.so.8": ElfFacts(62, 64, needed=("libccl.so.1", "libhost.so.1")),
            f"{ROOT}/compiler/2025.0/opt/other/libsycl.so.8": ElfFacts(183, 64),
            f"{ROOT}/ccl/2025.0/lib/libccl.so.1": ElfFacts(62, 64),
        },
    )
    assert made.level(f"{ROOT}/compiler/2025.0/lib/libsycl.so.8") == "deferred"
    assert made.level(f"{ROOT}/ccl/2025.0/lib/libccl.so.1") == "deferred"
    assert made.level(f"{ROOT}/compiler/2025.0/opt/other/libsycl.so.8") != "deferred"  # for another machine
    (caveat,) = [text for text in made.trace.caveats if "not in the image" in text]
    assert "libhost.so.1" in caveat
    assert "libsycl.so.8 (for" not in caveat


def test_the_answer_names_the_script() -> None:
    answer = next(each for each in world().look_up("libccl.so.1") if "python" in each.asked_by[0])
    assert [each.path.decode() for each in answer.winners] == [f"{ROOT}/ccl/2025.0/lib/libccl.so.1"]
    place = next(place for place in answer.places if place.candidates)
    assert (place.source, place.by) == ("LD_LIBRARY_PATH", f"{ROOT}/ccl/2025.0/env/vars.sh".encode())
    assert place.line == VARS.splitlines().index(next(line for line in VARS.splitlines() if "LD_LIB" in line)) + 1


def test_another_version_of_a_component_is_a_difference() -> None:
    other = dict(FILES)
    moved = other.pop(f"{ROOT}/ccl/2025.0/lib/libccl.so.1")
    made = world({f"{ROOT}/ccl/2025.0/lib/release/libccl.so.1": moved, f"{ROOT}/ccl/2025.0/env/vars.sh": VARS})
    assert made.level(f"{ROOT}/ccl/2025.0/lib/release/libccl.so.1") != "unreached"
    a = world()
    b = World(
        {**other, f"{ROOT}/ccl/2025.0/lib/cpu/lib/libccl.so.1": moved},
        argv=("/opt/app/start.sh",),
        env=["PATH=/usr/bin:/bin"],
        elves={
            **{
                path: ElfFacts(62, 64, soname=path.rpartition("/")[2], needed=("libccl.so.1",))
                for path in other
                if ".so.8" in path
            },
            f"{ROOT}/ccl/2025.0/lib/cpu/lib/libccl.so.1": ElfFacts(62, 64, soname="libccl.so.1"),
            "usr/bin/python3.12": ElfFacts(62, 64, needed=("libsycl.so.8",), interpreter=LOADER, python=True),
            "usr/bin/bash": ElfFacts(62, 64, interpreter=LOADER),
        },
        links=LINKS,
    )
    (change,) = [each for each in compare_resolution(a.trace, b.trace) if each.name == "libccl.so.1"]
    assert change.a is not None
    assert change.b is not None
    assert (change.a.path.decode(), change.b.path.decode()) == (
        f"{ROOT}/ccl/2025.0/lib/libccl.so.1",
        f"{ROOT}/ccl/2025.0/lib/cpu/lib/libccl.so.1",
    )


def test_bash_itself_finds_what_is_guessed(tmp_path: Path) -> None:
    """The scripts of this test do in bash what they are taken for."""
    for path, content in FILES.items():
        if path.startswith(ROOT):
            place = tmp_path / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(str(content))
    for path, target in LINKS.items():
        if path.startswith(ROOT):
            (tmp_path / path).symlink_to(target)
    command = f"source {tmp_path}/{ROOT}/setvars.sh; echo $LD_LIBRARY_PATH"
    ran = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    directories = {Path(part).resolve() for part in ran.stdout.strip().split(":")}
    assert directories == {tmp_path.resolve() / f"{ROOT}/{name}/2025.0/lib" for name in ("compiler", "ccl")}
