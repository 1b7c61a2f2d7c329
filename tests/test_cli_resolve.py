"""``imgdiff resolve`` as a user has it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from imgdiff.reports.lookup import schema
from tests.support.command import Shell, layout
from tests.support.elf import Elf, elf_bytes

PUBLISHED = Path(__file__).parents[1] / "docs" / "resolve-v1.schema.json"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    shell = Shell(tmp_path_factory.mktemp("resolve"))
    more = {
        "usr/lib/python3.11/site-packages/app/__init__.py": b"",
        "usr/lib/python3.11/site-packages/app/engine.py": b"",
        "opt/lib/libx.so.1": elf_bytes(Elf(soname="libx.so.1")),
        "opt/ask.so": elf_bytes(Elf(soname="ask.so", needed=["libx.so.1"], runpath="/opt/lib")),
        "usr/bin/tool": b"#!/usr/bin/python3.11\n",
    }
    layout(shell.directory / "image", more, env={"SECRET_TOKEN": "hunter2"})
    return shell


def answer(shell: Shell, *arguments: str, code: int = 0) -> dict[str, Any]:
    ran = shell.fork("resolve", "image", *arguments, "--format", "json")
    assert ran.code == code, ran.err
    found = json.loads(ran.out)
    jsonschema.Draft202012Validator(schema()).validate(found)
    assert isinstance(found, dict)
    return found


def test_the_published_schema_is_the_one_of_the_code() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert json.loads(PUBLISHED.read_text()) == schema()


def test_a_module_as_text_and_as_json(shell: Shell) -> None:
    ran = shell.run("resolve", "image", "app.engine")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("app.engine -> /srv/app/engine.py\n  sha256:")
    assert "    1. working directory /srv\n       => /srv/app/engine.py" in ran.out
    assert "          /usr/lib/python3.11/site-packages/app/engine.py" in ran.out
    found = answer(shell, "app.engine")
    assert (found["schema"], found["found"], found["profile"]) == ("imgdiff/resolve/v1", True, None)
    (only,) = found["answers"]
    assert [each["path"] for each in only["found"]] == ["/srv/app/engine.py"]
    assert only["asked_by"] == ["python3.11 of /usr -m app, in /srv"]
    assert "hunter2" not in ran.out + json.dumps(found)


def test_another_entry_has_another_answer(shell: Shell) -> None:
    (only,) = answer(shell, "app.engine", "--entry", "/usr/bin/tool")["answers"]
    assert only["found"][0]["path"] == "/usr/lib/python3.11/site-packages/app/engine.py"


def test_a_library_for_a_file(shell: Shell) -> None:
    assert answer(shell, "libx.so.1", code=1)["answers"][0]["elsewhere"][0]["path"] == "/opt/lib/libx.so.1"
    (only,) = answer(shell, "libx.so.1", "--for", "/opt/ask.so")["answers"]
    assert only["found"][0]["path"] == "/opt/lib/libx.so.1"
    place = only["places"][0]
    assert (place["source"], place["directory"], place["by"]) == ("RUNPATH", "/opt/lib", "/opt/ask.so")


def test_a_name_that_can_be_several_things(shell: Shell) -> None:
    found = answer(shell, "tool")
    assert {each["kind"]: len(each["found"]) for each in found["answers"]} == {"module": 0, "program": 1}
    assert [each["kind"] for each in answer(shell, "tool", "--kind", "program")["answers"]] == ["program"]


def test_the_text_of_a_program_has_no_table_of_the_places_of_modules(shell: Shell) -> None:
    ran = shell.fork("resolve", "image", "tool")
    assert ran.code == 0
    assert "tool: no module of this name is found" in ran.out
    assert "standard library" not in ran.out


def test_a_role_adds_what_its_trace_takes(shell: Shell) -> None:
    found = answer(shell, "app.engine", "--role", "main")
    assert found["roles"] == ["main"]
    (traced,) = found["traced"]
    assert (traced["label"], traced["level"], traced["file"]) == ("app.engine", "eager", "/srv/app/engine.py")
    assert traced["chain"][0]["edge"] == "root"
    text = shell.fork("resolve", "image", "app.engine", "--role", "main").out
    assert "main: app.engine is eager, /srv/app/engine.py\n    root: " in text


def test_what_is_not_found_and_what_is_wrong(shell: Shell) -> None:
    ran = shell.fork("resolve", "image", "no.such.module")
    assert (ran.code, ran.out.partition("\n")[0]) == (1, "no.such.module: no module of this name is found")
    for arguments, said in (
        (("nowhere", "x"), "nowhere"),
        (("image", "x", "--role", "pilot"), "no role"),
        (("image", "x.y", "--for", "/opt/ask.so"), "is no library"),
        (("image", "libx.so.1", "--for", "/none"), "not in the image"),
        (("image",), "NAME"),
    ):
        ran = shell.fork("resolve", *arguments)
        assert ran.code == 2
        assert said in ran.err
        assert ran.out == ""


def test_a_wheel_has_no_search_path(shell: Shell) -> None:
    with zipfile.ZipFile(shell.directory / "demo-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("demo.py", "")
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("demo-1.0.dist-info/RECORD", "demo.py,,\n")
    ran = shell.fork("resolve", "wheel:demo-1.0-py3-none-any.whl", "demo")
    assert (ran.code, ran.out) == (2, "")
    assert "is a wheel, which has no search path" in ran.err


def test_a_snapshot_answers_as_its_image(shell: Shell) -> None:
    assert shell.fork("snapshot", "image", "-o", "image.snapshot", "-q").code == 0
    for arguments in (("app.engine",), ("libx.so.1", "--for", "/opt/ask.so"), ("tool", "--kind", "program")):
        of_image, of_snapshot = (
            json.loads(shell.fork("resolve", name, *arguments, "--format", "json").out)
            for name in ("image", "image.snapshot")
        )
        assert of_image["answers"] == of_snapshot["answers"]


def test_a_root_file_system_is_asked_by_its_environments(shell: Shell) -> None:
    root = shell.directory / "root"
    for path, data in {
        "usr/bin/python3.11": b"",
        "usr/lib/python3.11/os.py": b"",
        "usr/lib/python3.11/ast.py": b"",
        "x.py": b"",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    ran = shell.fork("resolve", "rootfs:root", "ast", "--kind", "module")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("ast -> /usr/lib/python3.11/ast.py\n")
    assert "note: a root file system has no config" in ran.out


def test_names_from_an_image_move_no_cursor(shell: Shell) -> None:
    layout(shell.directory / "hostile", env={"PYTHONPATH": "/\x1b[2J:/y"})
    ran = shell.fork("resolve", "hostile", "app.engine")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "/\\x1b[2J" in ran.out


def test_a_name_of_any_bytes_is_a_question(shell: Shell) -> None:
    for name in ("lib\udcff.so.1", "a\udcffb", "\x1b[2J"):
        found = shell.run("resolve", "image", name, "--format", "json")
        assert found.code == 1, found.err
        assert json.loads(found.out)["found"] is False
        assert "\x1b" not in shell.run("resolve", "image", name).out
