"""The JSON report: it keeps its published schema, and says everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from imgdiff.model import Change, Delta, FileEntry, JudgedChange
from imgdiff.reports import View, render
from imgdiff.reports.json_v1 import schema
from tests.reports.reports import HOSTILE, ROLES, judged, report

PUBLISHED = Path(__file__).parents[2] / "docs" / "report-v1.schema.json"


def made(*changes: JudgedChange) -> dict[str, Any]:
    text = render(report(*changes), "json", View())
    found: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(schema()).validate(found)
    return found


def test_the_published_schema_is_the_one_of_the_code() -> None:
    assert json.loads(PUBLISHED.read_text()) == schema()


def test_a_report_keeps_the_schema_and_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    found = made(judged(b"opt/x.py", "dormant", "undecided"))
    assert found["schema"] == "imgdiff/report/v1"
    assert found["changes"][0]["path"] == {"a": "/opt/x.py", "b": "/opt/x.py"}
    assert set(found["changes"][0]["load"]) == set(ROLES)
    assert found["changes"][0]["load"]["worker"]["chain"][0] == {
        "module": "vllm.v1",
        "path": "/opt/vllm/v1.py",
        "line": 3,
        "function": "f",
        "edge": "root",
    }
    assert "escaped" not in found["changes"][0]


def test_the_schema_refuses_words_that_it_does_not_list() -> None:
    found = made(judged(b"opt/x.py"))
    found["changes"][0]["load"]["worker"]["level"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema()).validate(found)


def test_bytes_that_are_no_utf8_are_escaped_and_said_to_be() -> None:
    (change,) = made(judged(HOSTILE))["changes"]
    assert change["escaped"] is True
    assert "\\xff" in change["path"]["b"]


def test_a_link_has_neither_digest_nor_size_and_a_move_no_effect() -> None:
    entry = FileEntry(b"x", "symlink", 0o777, 0, 0, 0, 0, None, b"y")
    link = Change(None, b"x", "added", None, entry, delta=Delta("data", "It is in b only.", {"target": {"b": "y"}}))
    moved = judged(b"opt/y", status="moved")
    base = judged(b"opt/z")
    link_judged = msgspec.structs.replace(base, change=link)
    changes = made(link_judged, moved)["changes"]
    assert (changes[0]["digest"]["b"], changes[0]["size"]["b"]) == (None, None)
    assert changes[1]["effect"] is None


def test_the_same_report_gives_the_same_bytes() -> None:
    first = render(report(judged(b"opt/x.py")), "json", View())
    assert first == render(report(judged(b"opt/x.py")), "json", View(only=("torch",), loaded=True))


def test_a_table_of_contents_is_there_where_it_was_believed() -> None:
    said = report()
    layers = len(said.image_a.layers)
    believed = (("sha256:" + "1" * 64, 3, 4), *(None,) * (layers - 1))
    image = msgspec.structs.replace(said.image_a, believed=believed)
    found = json.loads(render(msgspec.structs.replace(said, image_a=image), "json", View()))
    jsonschema.Draft202012Validator(schema()).validate(found)
    first, *others = found["images"]["a"]["layers"]
    assert first["table_of_contents"] == {"digest": "sha256:" + "1" * 64, "hashed": 3, "unhashed": 4}
    assert not [layer for layer in (*others, *found["images"]["b"]["layers"]) if "table_of_contents" in layer]
