"""A wheel against an image that has it, through the command line: is it the published one, and what was changed in it?

The image is real but for its kernel: the running interpreter, wheels that pip installed, an application that uses them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from imgdiff.reports.json_v1 import schema
from tests.support import nightly
from tests.support.command import Ran, Shell
from tests.support.elf import Elf, elf_bytes
from tests.support.images import Member
from tests.support.nightly import SITE, TUESDAY, Build, Shop, bytecode, cached
from tests.support.wheels import wheel_files, write_wheel, write_zip

pytest.importorskip("pip", reason="pip installs the wheels that the images hold")

PACKAGE = f"{SITE}/gear"
BIN = "usr/local/bin"
NATIVE = Elf(soname="native.so", exports=["gear_turn"], files=["gear.c", "tmpxft_0001"])
FILES = {
    "gear/__init__.py": b"from gear import core, native\n",
    "gear/core.py": b"# turns\nfrom gear import tables\n\n\ndef turn(text):\n    return tables.FACTOR * len(text)\n",
    "gear/tables.py": b"FACTOR = 3\n",
    "gear/never.py": b"X = 1\n",
    "gear/cli.py": b"def main():\n    print('gear')\n",
    "gear/native.so": elf_bytes(NATIVE),
    "gear/data/E=64,N=512.json": b'{"a": 1}\n',
    "lone.py": b"LONE = 1\n",
    ".data/scripts/gear-run": b"#!python\nimport gear\nprint(gear.core.turn('x'))\n",
    ".data/scripts/gear.sh": b"#!/bin/sh\nexec gear-run\n",
    ".data/data/lib/libgear.so.1": elf_bytes(Elf(soname="libgear.so.1", exports=["gear_low"])),
    ".data/data/share/gear/notes.txt": b"notes\n",
    ".data/headers/gear.h": b"int gear;\n",
}
POINTS = "[console_scripts]\ngear-cli = gear.cli:main\n\n[gear.plugins]\nx = gear.core:turn\n"


@dataclass
class Shelf:
    """Images and the wheel that they have."""

    shop: Shop
    shell: Shell
    wheel: Path
    build: Build
    clean: str


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    directory = tmp_path_factory.mktemp("shelf")
    shop = Shop(directory)
    wheel = write_wheel(directory, "gear", "1.0", FILES, POINTS, executable=["gear/native.so"])
    build = shop.plain.copy()
    build.files.update(nightly.install([wheel]))
    build.edit("srv/app/engine.py", "from kernels import ops\n", "import gear\nimport lone\nfrom kernels import ops\n")
    build.compile(mtime=None)
    return Shelf(shop, Shell(tmp_path_factory.mktemp("shell")), wheel, build, shop.put(build))


@dataclass
class Told:
    """What a run says."""

    ran: Ran
    report: dict[str, Any]

    @property
    def changes(self) -> dict[str, dict[str, Any]]:
        """The changes by their path in the image, or where it has none, by the wheel's."""
        image, wheel = ("a", "b") if self.report["images"]["b"]["source"] == "wheel" else ("b", "a")
        return {each["path"][image] or each["path"][wheel]: each for each in self.report["changes"]}

    @property
    def outcome(self) -> str:
        return str(self.report["verdict"]["outcome"])

    def caveat(self, words: str) -> str:
        (found,) = [text for text in self.report["verdict"]["caveats"] if words in text]
        return str(found)


def told(shelf: Shelf, a: str | Path, b: str | Path, *options: str | Path) -> Told:
    """Compare through the command line; the report must keep its schema, and the code must be the outcome's."""
    ran = shelf.shell.fork(a, b, "--format", "json", *options)
    assert ran.code in (0, 1, 3), ran.err
    report = json.loads(ran.out)
    jsonschema.Draft202012Validator(schema()).validate(report)
    outcome = report["verdict"]["outcome"]
    assert ran.code == {"identical": 0, "killed": 0, "stands": 1, "undecided": 3}[outcome]
    return Told(ran, report)


def held(shelf: Shelf, build: Build, *options: str) -> Told:
    """Hold the wheel against a build of the image, both ways round: the outcome must be the same."""
    image = shelf.shop.put(build)
    found = told(shelf, f"wheel:{shelf.wheel}", image, *options)
    other = told(shelf, image, shelf.wheel, *options)
    assert other.outcome == found.outcome
    assert other.changes.keys() == found.changes.keys()
    turned = {"added": "removed", "removed": "added"}
    for path, change in found.changes.items():
        mirrored = other.changes[path]
        assert mirrored["status"] == turned.get(change["status"], change["status"])
        assert mirrored["effect"] == change["effect"]
        levels = [{role: load["level"] for role, load in each["load"].items()} for each in (change, mirrored)]
        assert levels[0] == levels[1]
    return found


# The image holds the wheel --------------------------------------------------------------------------------------------


def test_an_image_with_the_wheel_as_pip_installed_it_is_identical(shelf: Shelf) -> None:
    found = held(shelf, shelf.build)
    assert found.outcome == "identical"
    assert found.report["changes"] == []
    assert found.report["resolution"] == []
    assert found.report["integrity"] == []
    assert found.report["config"] == []
    (owner,) = found.report["owners"]
    assert (owner["name"], owner["kind"], owner["version"]) == ("gear", "wheel", {"a": "1.0", "b": "1.0"})
    assert owner["root"]["a"] == owner["root"]["b"]
    assert owner["files"]["a"] == owner["files"]["b"] == owner["identical"]
    reasons = found.report["verdict"]["reasons"]
    assert reasons == ["b holds exactly the files of the wheel gear 1.0, with what an installer makes."]


def test_the_report_says_what_was_out_of_scope_and_what_an_installer_made(shelf: Shelf) -> None:
    found = told(shelf, shelf.wheel, shelf.clean)
    total = found.report["images"]["b"]["files"]
    (owner,) = found.report["owners"]
    rest = total - owner["files"]["b"]
    assert found.caveat("Only gear is compared") == (
        f"Only gear is compared: {owner['files']['b']} files of b (/{SITE}) with the wheel; the other {rest:,} files of "
        "b, and its config, are out of scope."
    )
    made = found.caveat("What an installer makes")
    assert made.endswith(
        "INSTALLER (1), RECORD (1), REQUESTED (1), bytecode (6), direct_url.json (1), launcher (1), rewritten script (1)."
    )


def test_the_wheel_is_named_by_the_digest_of_its_file(shelf: Shelf) -> None:
    image = told(shelf, shelf.wheel, shelf.clean).report["images"]["a"]
    assert image["source"] == "wheel"
    assert image["files"] == len(FILES) + 4
    (layer,) = image["layers"]
    assert layer["digest"] == f"sha256:{hashlib.sha256(shelf.wheel.read_bytes()).hexdigest()}"
    assert layer["size"] == shelf.wheel.stat().st_size
    assert layer["media_type"] == "application/zip"
    for format_ in ("terminal", "markdown"):
        ran = shelf.shell.fork(shelf.wheel, shelf.clean, "--format", format_)
        assert layer["digest"] in ran.out
        assert ran.code == 0


def test_what_else_differs_in_the_image_is_out_of_scope(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.put(f"{SITE}/kernels/ops.py", "BIAS = 4\n")
    build.put(f"{SITE}/kernels/more.py", "X = 1\n")
    build.put("etc/passwd", "root:x:0:0::/:/bin/sh\n")
    found = held(shelf, build)
    assert found.outcome == "identical"
    assert found.report["integrity"] == []


def test_the_same_is_said_again_from_the_cache(shelf: Shelf) -> None:
    cold = told(shelf, shelf.wheel, shelf.clean, "--cache-dir", shelf.shell.directory / "warm")
    warm = told(shelf, shelf.wheel, shelf.clean, "--cache-dir", shelf.shell.directory / "warm")
    assert warm.report == cold.report
    moved = shelf.shell.directory / shelf.wheel.name
    moved.write_bytes(shelf.wheel.read_bytes())
    again = told(shelf, moved, shelf.clean, "--cache-dir", shelf.shell.directory / "warm")
    assert again.report["images"]["a"].pop("reference") == str(moved)
    for each in (again, cold):
        each.report["images"]["a"].pop("reference", None)
        each.report["imgdiff"].pop("argv")
    assert again.report == cold.report


def test_bytecode_by_hash_and_times_that_were_set_change_nothing(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.compile(mtime=TUESDAY)
    assert held(shelf, build).outcome == "identical"


def test_an_image_without_bytecode_is_identical(shelf: Shelf) -> None:
    build = shelf.build.copy()
    for path in [path for path in build.files if path.startswith(f"{PACKAGE}/") and path.endswith(".pyc")]:
        del build.files[path]
    assert held(shelf, build).outcome == "identical"


def test_the_wheel_of_pip_itself_as_ensurepip_has_it(shelf: Shelf) -> None:
    ensurepip = pytest.importorskip("ensurepip")
    wheels = sorted((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
    if not wheels:
        pytest.skip("this Python has no ensurepip with its wheel")
    build = shelf.shop.plain.copy()
    build.files.update(nightly.install(wheels[-1:]))
    build.compile(*[path for path in build.sources() if path.startswith(f"{SITE}/pip/")])
    image = shelf.shop.put(build)
    found = told(shelf, wheels[-1], image)
    assert found.outcome == "identical", found.report["verdict"]
    assert "launcher (" in found.caveat("What an installer makes")
    module = f"{SITE}/pip/_internal/cli/main.py"
    build.put(module, build.files[module].content + b"\nDEBUG = 1\n")
    changed = told(shelf, wheels[-1], shelf.shop.put(build))
    assert changed.outcome != "identical"
    assert f"/{module}" in changed.changes


# What the image's builder changed -------------------------------------------------------------------------------------


def test_one_changed_byte_in_a_loaded_module_stands(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.edit(f"{PACKAGE}/tables.py", "3", "4")
    found = held(shelf, build)
    assert found.outcome == "stands"
    change = found.changes[f"/{PACKAGE}/tables.py"]
    assert (change["status"], change["effect"]) == ("modified", "code")
    assert change["load"]["main"]["level"] == "eager"
    (note,) = found.report["integrity"]
    assert (note["image"], note["code"]) == ("b", "record-mismatch")


def test_a_comment_is_noise(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.edit(f"{PACKAGE}/core.py", "# turns\n", "# turned\n")
    build.compile(f"{PACKAGE}/core.py", mtime=TUESDAY)
    found = held(shelf, build)
    assert found.outcome == "killed"
    assert {each["effect"] for each in found.changes.values()} == {"noise"}


def test_a_change_in_what_nobody_loads_is_killed(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.edit(f"{PACKAGE}/never.py", "1", "2")
    found = held(shelf, build)
    assert found.outcome == "killed"
    assert found.changes[f"/{PACKAGE}/never.py"]["load"]["main"]["level"] == "unreached"


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        (f"{PACKAGE}/patch.py", "killed"),  # nothing names it
        (f"{PACKAGE}/tables/__init__.py", "stands"),  # it comes before the module of that name
        (f"{SITE}/lone/__init__.py", "stands"),  # so does this, beside the package
        (f"{SITE}/gear.py", "killed"),  # the package comes before it
    ],
)
def test_an_added_module_is_seen(shelf: Shelf, path: str, outcome: str) -> None:
    build = shelf.build.copy()
    build.put(path, "FACTOR = LONE = 5\n")
    found = held(shelf, build)
    assert found.changes[f"/{path}"]["status"] == "added"
    assert found.outcome == outcome


def test_an_added_module_that_recorded_rows_hide_is_seen_all_the_same(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.put(f"{PACKAGE}/patch.py", "X = 1\n")
    record = f"{SITE}/gear-1.0.dist-info/RECORD"
    build.put(record, build.text(record) + "gear/patch.py,,\n")
    found = held(shelf, build)
    assert found.changes[f"/{PACKAGE}/patch.py"]["status"] == "added"
    assert found.changes[f"/{record}"]["effect"] == "metadata"


def test_an_added_extension_module_comes_before_the_source(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.put(f"{PACKAGE}/tables.abi3.so", elf_bytes(Elf(exports=["PyInit_tables"])))
    found = held(shelf, build)
    assert found.outcome == "stands"
    assert found.changes[f"/{PACKAGE}/tables.abi3.so"]["status"] == "added"


def test_a_removed_module_stands(shelf: Shelf) -> None:
    build = shelf.build.copy()
    del build.files[f"{PACKAGE}/tables.py"]
    found = held(shelf, build)
    assert found.outcome == "stands"
    assert found.changes[f"/{PACKAGE}/tables.py"]["status"] == "removed"
    assert found.changes[f"/{PACKAGE}/tables.py"]["load"]["main"]["level"] == "eager"


def test_a_removed_module_that_nobody_loads_is_killed(shelf: Shelf) -> None:
    build = shelf.build.copy()
    for path in (f"{PACKAGE}/never.py", cached(f"{PACKAGE}/never.py")):
        del build.files[path]
    found = held(shelf, build)
    assert found.outcome == "killed"
    assert found.changes.keys() == {f"/{PACKAGE}/never.py"}


def test_sources_that_were_compiled_and_taken_away(shelf: Shelf) -> None:
    build = shelf.build.copy()
    source = f"{PACKAGE}/tables.py"
    build.put(f"{PACKAGE}/tables.pyc", build.files[cached(source)].content)
    del build.files[source]
    del build.files[cached(source)]
    found = held(shelf, build)
    assert found.outcome == "stands"
    assert found.changes[f"/{source}"]["status"] == "removed"


def test_a_stripped_library_is_noise_and_another_code_is_not(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.put(f"{PACKAGE}/native.so", elf_bytes(replace(NATIVE, files=(), comment="")), mode=0o755)
    found = held(shelf, build)
    assert found.outcome == "killed"
    assert found.changes[f"/{PACKAGE}/native.so"]["effect"] == "noise"
    build.put(f"{PACKAGE}/native.so", elf_bytes(replace(NATIVE, text=b"\xcc")), mode=0o755)
    found = held(shelf, build)
    assert found.changes[f"/{PACKAGE}/native.so"]["effect"] == "code"
    assert found.outcome == "stands"


def test_data_outside_of_the_site_is_compared_where_it_was_installed(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.put("usr/local/lib/libgear.so.1", elf_bytes(Elf(soname="libgear.so.1", exports=["gear_high"])))
    build.put("usr/local/share/gear/notes.txt", "other\n")
    header = next(path for path in build.files if path.endswith("gear/gear.h"))
    build.put(header, "int other;\n")
    found = held(shelf, build)
    assert {"/usr/local/lib/libgear.so.1", "/usr/local/share/gear/notes.txt", f"/{header}"} == found.changes.keys()
    assert {each["status"] for each in found.changes.values()} == {"modified"}


def test_lost_bits_of_the_mode_are_seen(shelf: Shelf) -> None:
    build = shelf.build.copy()
    for name, mode in (("native.so", 0o644), ("tables.py", 0o600)):
        path = f"{PACKAGE}/{name}"
        build.put(path, build.files[path].content, int(build.files[path].mtime), mode)
    found = held(shelf, build)
    assert found.outcome == "undecided"
    assert {path: each["status"] for path, each in found.changes.items()} == {
        f"/{PACKAGE}/native.so": "attributes",
        f"/{PACKAGE}/tables.py": "attributes",
    }


def test_an_umask_that_lets_a_group_write_is_no_difference(shelf: Shelf) -> None:
    build = shelf.build.copy()
    path = f"{PACKAGE}/tables.py"
    build.put(path, build.files[path].content, int(build.files[path].mtime), 0o664)
    assert held(shelf, build).report["changes"] == []


def test_a_package_that_became_a_link_is_read_through_it(shelf: Shelf) -> None:
    build = shelf.build.copy()
    for path in [path for path in build.files if path.startswith(f"{PACKAGE}/")]:
        member = build.files.pop(path)
        target = path.replace(f"{PACKAGE}/", "opt/gear/")
        build.files[target] = replace(member, path=target)
    build.files[PACKAGE] = Member(PACKAGE, type="symlink", target="/opt/gear", mtime=TUESDAY)
    linked = held(shelf, build)
    assert f"/{PACKAGE}" in linked.changes
    build.edit("opt/gear/tables.py", "3", "4")
    found = held(shelf, build)
    assert found.outcome == "stands"
    assert any(path.endswith("/tables.py") for path in found.changes)


def test_an_empty_directory_in_the_package_is_seen(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.files[f"{PACKAGE}/hole"] = Member(f"{PACKAGE}/hole", type="dir", mtime=TUESDAY)
    found = held(shelf, build)
    assert found.changes[f"/{PACKAGE}/hole"]["status"] == "added"
    assert found.outcome != "identical"


# Bytecode -------------------------------------------------------------------------------------------------------------


def test_foreign_bytecode_beside_an_equal_source_stands(shelf: Shelf) -> None:
    build = shelf.build.copy()
    source = build.files[f"{PACKAGE}/tables.py"]
    forged = bytecode(b"FACTOR = 9\n", f"/{PACKAGE}/tables.py", int(source.mtime), len(source.content))
    build.put(cached(f"{PACKAGE}/tables.py"), forged)
    found = held(shelf, build)
    assert found.outcome == "stands"
    assert found.changes[f"/{cached(f'{PACKAGE}/tables.py')}"]["effect"] == "code"


def test_stale_bytecode_that_runs_in_place_of_a_changed_source_stands(shelf: Shelf) -> None:
    build = shelf.build.copy()
    member = build.files[f"{PACKAGE}/tables.py"]
    build.put(f"{PACKAGE}/tables.py", b"FACTOR = 4\n", int(member.mtime))  # the size and time that its .pyc has
    assert held(shelf, build).outcome == "stands"


def test_bytecode_that_does_not_fit_its_source_is_no_difference_that_bears(shelf: Shelf) -> None:
    build = shelf.build.copy()
    source = build.files[f"{PACKAGE}/tables.py"]
    stale = bytecode(b"FACTOR = 9\n", f"/{PACKAGE}/tables.py", int(source.mtime) - 7)
    build.put(cached(f"{PACKAGE}/tables.py"), stale)
    found = held(shelf, build)
    assert found.outcome == "killed"
    assert [each["effect"] for each in found.changes.values()] == ["noise"]


def test_bytecode_of_a_python_that_is_not_at_hand_is_open(shelf: Shelf) -> None:
    build = shelf.build.copy()
    path = f"{PACKAGE}/tables.py"
    content = bytearray(build.files[cached(path)].content)
    content[:2] = (3705).to_bytes(2, "little")  # of 3.16's range, which no release has yet
    build.put(re.sub(r"cpython-\d+", "cpython-316", cached(path)), bytes(content))
    found = held(shelf, build)
    assert found.outcome == "undecided"
    assert any("3.16" in text for text in found.report["verdict"]["settle"])


# Scripts --------------------------------------------------------------------------------------------------------------


def test_a_script_whose_text_was_changed_is_seen(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.edit(f"{BIN}/gear-run", "'x'", "'y'")
    found = held(shelf, build)
    assert found.changes[f"/{BIN}/gear-run"]["status"] == "modified"
    assert found.outcome == "undecided"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from gear.cli import main", "from gear.other import main"),
        ("sys.exit(main())", "sys.exit(main() or 1)"),
        ("import sys\n", "import sys, os\nos.environ['X'] = '1'\n"),
        ("#!/usr/local/bin/python3\n", "#!/usr/bin/python3\n"),
        ("#!/usr/local/bin/python3\n", "#!/usr/local/bin/python3 -O\n"),
    ],
)
def test_a_launcher_that_does_something_else_is_seen(shelf: Shelf, old: str, new: str) -> None:
    build = shelf.build.copy()
    build.edit(f"{BIN}/gear-cli", old, new)
    found = held(shelf, build, "--entry", "gear-cli")
    change = found.changes[f"/{BIN}/gear-cli"]
    assert (change["status"], change["effect"]) == ("added", "code")
    assert change["load"]["main"]["level"] == "eager"
    assert found.outcome == "stands"


# Versions and copies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("cp311-cp311-manylinux_2_17_aarch64", "manylinux_2_17_aarch64"),
        (
            "cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64",
            "manylinux_2_17_aarch64 and manylinux2014_aarch64",
        ),
        ("py3-none-win_amd64", "win_amd64"),
        ("py3-none-macosx_11_0_x86_64", "macosx_11_0_x86_64"),
        ("py3-none-linux_x86_64", None),
        ("cp38-abi3-manylinux_2_28_x86_64", None),
        ("py3-none-win_amd64\nTag: py3-none-any", None),
        ("", None),
    ],
)
def test_a_wheel_for_another_platform_is_compared_and_said(
    tag: str, words: str | None, shelf: Shelf, tmp_path: Path
) -> None:
    members = wheel_files("gear", "1.0", FILES, POINTS)
    members["gear-1.0.dist-info/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
    wheel = write_zip(tmp_path / "gear-1.0-py3-none-any.whl", members, ["gear/native.so"])
    for a, b in ((wheel, shelf.clean), (shelf.clean, wheel)):
        side = "b" if a == wheel else "a"
        said = f"The wheel is for {words}, and {side} for linux/amd64: no installer would take it there."
        assert (said in told(shelf, a, b).report["verdict"]["caveats"]) == (words is not None)


def test_another_version_is_compared_and_said(shelf: Shelf, tmp_path: Path) -> None:
    files = {**FILES, "gear/tables.py": b"FACTOR = 4\n"}
    newer = write_wheel(tmp_path, "gear", "1.1", files, POINTS, executable=["gear/native.so"])
    found = told(shelf, newer, shelf.clean)
    assert found.outcome == "stands"
    assert found.caveat("The wheel is") == "The wheel is gear 1.1, and b has 1.0."
    (owner,) = found.report["owners"]
    assert owner["version"] == {"a": "1.1", "b": "1.0"}
    assert found.changes[f"/{SITE}/gear-1.0.dist-info/METADATA"]["path"]["a"] == f"/{SITE}/gear-1.1.dist-info/METADATA"
    assert found.changes[f"/{PACKAGE}/tables.py"]["status"] == "modified"


def test_each_environment_that_has_it_is_compared(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.files.update(nightly.install([shelf.wheel], "/opt/venv"))
    build.put("opt/venv/pyvenv.cfg", f"home = /usr/local/bin\nversion = {nightly.MINOR.removeprefix('python')}.1\n")
    build.files["opt/venv/bin/python3"] = Member(
        "opt/venv/bin/python3", type="symlink", target="/usr/local/bin/python3", mtime=TUESDAY
    )
    build.compile(*[path for path in build.sources() if path.startswith("opt/venv/")])
    found = held(shelf, build)
    assert found.outcome == "identical"
    assert len(found.report["owners"]) == 2
    assert "launcher (2)" in found.caveat("What an installer makes")
    other = f"opt/venv/lib/{nightly.MINOR}/site-packages/gear/tables.py"
    build.edit(other, "3", "4")
    found = held(shelf, build)
    assert found.outcome == "killed"  # the process loads the other copy
    assert f"/{other}" in found.changes


def test_a_copy_that_is_loaded_from_elsewhere_is_said(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.put("srv/gear/__init__.py", "core = 1\n")
    build.edit(f"{PACKAGE}/tables.py", "3", "4")
    found = held(shelf, build)
    assert found.outcome == "killed"
    assert found.caveat("none of the files") == (
        "main loads gear from /srv/gear/__init__.py, which is none of the files that are compared."
    )


def test_two_dist_infos_of_it_are_seen(shelf: Shelf) -> None:
    build = shelf.build.copy()
    build.put(f"{SITE}/gear-0.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: gear\nVersion: 0.9\n")
    build.put(f"{SITE}/gear-0.9.dist-info/RECORD", "gear/__init__.py,,\n")
    found = held(shelf, build)
    assert any(each["kind"] == "distribution" for each in found.report["resolution"])
    assert found.outcome != "identical"


def test_what_does_not_fit_in_the_wheel_itself_is_said(shelf: Shelf, tmp_path: Path) -> None:
    members = wheel_files("gear", "1.0", FILES, POINTS)
    members["gear/tables.py"] = b"FACTOR = 4\n"
    members["gear/more.py"] = b""
    del members["gear/never.py"]
    found = told(shelf, write_zip(tmp_path / "gear-1.0-py3-none-any.whl", members), shelf.clean)
    assert [(note["image"], note["code"]) for note in found.report["integrity"]] == [
        ("a", "record-mismatch"),
        ("a", "record-missing"),
    ]
    assert "gear/more.py" in found.caveat("does not list")
    assert found.outcome == "stands"


# Other sources, and what can't be compared ----------------------------------------------------------------------------


def test_a_snapshot_has_what_it_holds_compared(shelf: Shelf) -> None:
    for name, options, outcome in (("full", ("--texts",), "identical"), ("small", (), "undecided")):
        target = shelf.shell.directory / f"{name}.snapshot"
        assert shelf.shell.fork("snapshot", shelf.clean, "-o", target, *options).code == 0
        found = told(shelf, shelf.wheel, target)
        assert found.outcome == outcome
        assert all(path.endswith(".pyc") for path in found.changes)
    assert any("--texts" in text for text in found.report["verdict"]["settle"])


def refused(shelf: Shelf, *arguments: str | Path) -> tuple[str, str]:
    ran = shelf.shell.fork(*arguments)
    assert ran.code == 2
    first, _, rest = ran.err.partition("\n")
    return first, rest


def test_what_is_not_in_the_image_is_named_with_what_is_near(shelf: Shelf, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "gears", "1.0", {"gears.py": b""})
    error, hint = refused(shelf, wheel, shelf.clean)
    assert error == f"imgdiff: {shelf.clean} has no distribution called gears"
    assert hint.strip() == "hint: near to it: gear"
    wheel = write_wheel(tmp_path, "unlike", "1.0", {"unlike.py": b""})
    hint = refused(shelf, shelf.clean, wheel)[1]
    assert hint.strip().startswith("hint: it has ")
    assert "gear" in hint


def test_an_editable_install_is_no_wheels(shelf: Shelf) -> None:
    build = shelf.build.copy()
    info = f"{SITE}/gear-1.0.dist-info"
    build.put(f"{info}/direct_url.json", '{"url": "file:///srv/app", "dir_info": {"editable": true}}')
    error, _ = refused(shelf, shelf.wheel, shelf.shop.put(build))
    assert error.endswith("has gear as an editable install (/srv/app), which can't be held against a wheel")


def test_two_wheels_and_a_snapshot_of_one_are_refused(shelf: Shelf, tmp_path: Path) -> None:
    other = write_wheel(tmp_path, "gear", "1.1", FILES)
    assert "both references are wheels" in refused(shelf, shelf.wheel, f"wheel:{other}")[0]
    assert "both references are the same" in refused(shelf, shelf.wheel, f"wheel:{shelf.wheel}")[0]
    error, _ = refused(shelf, "snapshot", f"wheel:{shelf.wheel}", "-o", tmp_path / "x")
    assert "is a wheel, and a snapshot is of an image" in error
    assert "wheel:FILE" in shelf.shell.fork("diff", "--help").out


@pytest.fixture(autouse=True)
def _nothing_left(shelf: Shelf) -> Iterator[None]:
    yield
    assert list(shelf.shell.temporary.iterdir()) == []
