"""An image that was traced before needs no second trace, and the report says what it would say with one."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import imgdiff
from imgdiff import recall, tracing
from imgdiff.engines import load_profiles
from imgdiff.model import BelievedContents, Image, ImageConfig, LayerIndex, Report, Trace
from imgdiff.store import Store
from imgdiff.trace import freeze, thaw, trace
from tests.support.command import PYTHON, layout
from tests.trace.world import World, site

ENGINE = "srv/app/engine.py"


def bias(number: int) -> dict[str, bytes | None]:
    return {ENGINE: PYTHON[ENGINE].replace(b"BIAS = 3", b"BIAS = %d" % number)}


class Runs:
    """Compares images in one directory with one cache, and counts the traces that were made."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.traced: list[str] = []

        def counted(*arguments: Any) -> Trace:
            self.traced.append(arguments[-1])
            return trace(*arguments)

        patch.setattr(tracing, "trace", counted)

    def image(self, name: str, changes: Mapping[str, bytes | None] | None = None, **more: Any) -> None:
        layout(self.directory / name, changes, **more)

    def diff(self, a: str, b: str, **options: Any) -> Report:
        """Compare with the cache; what is said must be what is said without."""
        self.traced.clear()
        names = [str(self.directory / name) for name in (a, b)]
        found = imgdiff.diff(*names, cache_dir=self.directory / "cache", jobs=1, **options)
        count = list(self.traced)
        assert found == imgdiff.diff(*names, cache=False, jobs=1, **options)
        self.traced = count
        return found

    def rows(self, statement: str) -> list[Any]:
        connection = sqlite3.connect(self.directory / "cache" / "rows.sqlite")
        try:
            with connection:
                return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def traces(self) -> int:
        return int(self.rows("SELECT count(*) FROM rows WHERE kind = 'facts:trace'")[0][0])


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs(tmp_path, monkeypatch)
    found.image("a")
    found.image("b", bias(4))
    found.image("c", {**bias(5), "srv/app/more.py": b"Y = 1\n", "srv/app/unused.py": b"X = 2\n"})
    return found


def test_a_new_build_costs_one_trace(runs: Runs) -> None:
    runs.diff("a", "b")
    assert runs.traced == ["a", "b"]
    runs.diff("a", "c")
    assert runs.traced == ["b"]
    assert runs.traces() == 3


def test_which_side_an_image_was_does_not_matter(runs: Runs) -> None:
    runs.diff("a", "b")
    runs.diff("b", "a")
    assert runs.traced == []
    runs.image("d", entrypoint=("python3.11", "-m", "gone"))  # a blindspot, which names its side
    runs.diff("a", "d")
    assert runs.traced == ["b"]
    assert {spot.image for spot in runs.diff("d", "b").blindspots} == {"a"}
    assert runs.traced == []


def test_labels_and_history_are_nothing_to_a_trace(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = load_profiles()[-1]
    config = ImageConfig(("A=1",), ("x",), ("y",), "me", "/srv", {"made": "monday"}, {"created": "monday"})
    same = msgspec.structs.replace(config, labels={"made": "tuesday"}, raw={})
    layers = ["sha256:" + "0" * 64]
    known = recall.trace_key(layers, config, profile, None)
    assert recall.trace_key(layers, same, profile, None) == known
    others = [
        recall.trace_key(layers, msgspec.structs.replace(config, **{name: value}), profile, None)
        for name, value in (
            ("env", ("A=2",)),
            ("entrypoint", ("z",)),
            ("cmd", ()),
            ("user", "root"),
            ("working_dir", "/"),
        )
    ]
    others.append(recall.trace_key(layers, None, profile, None))
    others.append(recall.trace_key(layers, config, load_profiles()[0], None))
    others.append(recall.trace_key(layers, config, msgspec.structs.replace(profile, start_methods=("fork",)), None))
    others.append(recall.trace_key(layers, config, profile, "x"))
    others.append(recall.trace_key([*layers, "sha256:" + "1" * 64], config, profile, None))
    monkeypatch.setattr(recall, "_program", lambda: b"other bytes")
    others.append(recall.trace_key(layers, config, profile, None))
    monkeypatch.setattr(recall, "_interpreter", lambda name: (name, 1, 1))
    others.append(recall.trace_key(layers, config, profile, None))
    assert len({known, *others}) == len(others) + 1
    assert recall.trace_key([*layers, ""], config, profile, None) is None  # a root file system


@pytest.mark.parametrize("option", [{"entry": "python -m app.unused"}, {"profile": "vllm"}])
def test_another_question_gets_a_trace_of_its_own(runs: Runs, option: dict[str, str]) -> None:
    runs.diff("a", "b")
    runs.diff("a", "b", **option)
    assert runs.traced == ["a", "b"]


def test_two_images_with_one_content_are_traced_once(runs: Runs) -> None:
    runs.image("again", entrypoint=("python3.11", "-m", "app"), compression="zstd")
    runs.diff("a", "again")
    assert runs.traced == ["a"]


def test_without_the_cache_nothing_is_recalled_or_kept(runs: Runs) -> None:
    runs.diff("a", "b")
    names = [str(runs.directory / name) for name in ("a", "b")]
    runs.traced.clear()
    imgdiff.diff(*names, cache=False, cache_dir=runs.directory / "cache", jobs=1)
    assert runs.traced == ["a", "b"]


DAMAGE = [
    "UPDATE rows SET data = X'00' WHERE kind = 'facts:trace'",
    "UPDATE rows SET data = substr(data, 1, length(data) - 9) WHERE kind = 'facts:trace'",
    "UPDATE rows SET checksum = X'00' WHERE kind = 'facts:trace'",
    "UPDATE rows SET size = 7 WHERE kind = 'facts:trace'",
    # One image's row under the other's key.
    "UPDATE rows SET (data, size, checksum) = (SELECT data, size, checksum FROM rows WHERE kind = 'facts:trace' LIMIT 1)",
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_trace_is_none(runs: Runs, damage: str) -> None:
    runs.diff("a", "b")
    runs.rows(damage)
    runs.rows("DELETE FROM rows WHERE kind = 'facts:report'")
    runs.diff("a", "b")
    assert runs.traced
    runs.rows("DELETE FROM rows WHERE kind = 'facts:report'")
    runs.diff("a", "b")
    assert runs.traced == []


@pytest.mark.parametrize("foreign", [b"", b"\xc1", b"\x90", b"no trace", msgspec.msgpack.encode({"roles": {}})])
def test_what_is_no_trace_is_none(runs: Runs, foreign: bytes) -> None:
    runs.diff("a", "b")
    [(key,), (other,)] = runs.rows("SELECT key FROM rows WHERE kind = 'facts:trace'")
    with Store.open(runs.directory / "cache") as store:
        store.put_facts("trace", 1, {key: foreign, other: foreign})
    runs.rows("DELETE FROM rows WHERE kind = 'facts:report'")
    runs.diff("a", "b")
    assert runs.traced == ["a", "b"]


def test_numbers_that_lead_nowhere_are_no_trace() -> None:
    """Whoever wrote the row and its checksum: what it says is not followed where it leads nowhere."""
    world = World(site({"app.py": "import lib\n", "lib.py": "def f():\n    import far\n", "far.py": ""}))
    kept = freeze(world.trace, "a")
    assert kept is not None
    shape = msgspec.msgpack.decode(kept)
    profile = load_profiles()[-1]

    def thawed(changed: object) -> Trace | None:
        encoded = msgspec.msgpack.encode(changed)
        return thaw(encoded, world.tree, world.attribution, world.facts, profile, "a", lambda: world.trace)

    assert thawed(shape) is not None
    seen = 0
    for place in numbers(shape):
        before = at(shape, place[:-1])[place[-1]]
        for number in (10**6, -7):
            at(shape, place[:-1])[place[-1]] = number
            found = thawed(shape)
            if found is not None:  # a line, or a level: nothing that is followed
                for role in found.roles.values():
                    for path in world.tree.entries:
                        role.evidence(path)
            else:
                seen += 1
        at(shape, place[:-1])[place[-1]] = before
    assert seen > 20


def numbers(shape: Any, place: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """The places of all numbers in a list of lists."""
    found: list[tuple[int, ...]] = []
    for index, item in enumerate(shape):
        if isinstance(item, list):
            found += numbers(item, (*place, index))
        elif type(item) is int:
            found.append((*place, index))
    return found


def at(shape: Any, place: tuple[int, ...]) -> Any:
    for index in place:
        shape = shape[index]
    return shape


VERSIONED = {
    "srv/app/engine.py": b"import importlib.metadata\n\nNEW = importlib.metadata.version('lib') >= '1.5'\n\n\n"
    b"def answer(text):\n    return NEW\n",
    "usr/lib/python3.11/importlib/__init__.py": b"",
    "usr/lib/python3.11/importlib/metadata.py": b"def version(name):\n    return name\n",
}


def distribution(version: str) -> dict[str, bytes]:
    home = f"usr/lib/python3.11/site-packages/lib-{version}.dist-info"
    return {
        "usr/lib/python3.11/site-packages/lib/__init__.py": b"",
        f"{home}/METADATA": f"Metadata-Version: 2.1\nName: lib\nVersion: {version}\n".encode(),
        f"{home}/RECORD": b"lib/__init__.py,,\n",
    }


def test_a_distribution_that_was_not_asked_for_before_is_asked_for_in_a_new_trace(runs: Runs) -> None:
    runs.image("x", {**VERSIONED, **distribution("1.0")})
    runs.image("y", {**VERSIONED, **distribution("1.0"), "srv/app/unused.py": b"X = 3\n"})
    runs.image("z", {**VERSIONED, **distribution("2.0")})
    runs.diff("x", "y")
    report = runs.diff("x", "z")
    assert any("engine.py" in str(judged.change.delta) for judged in report.changes)
    assert runs.traced == ["b", "a"]
    runs.rows("DELETE FROM rows WHERE kind = 'facts:report'")
    assert runs.diff("x", "z") == report
    assert runs.traced == []


@pytest.mark.parametrize(
    "change",
    [
        {"snapshot": object()},
        {"contained": True},
    ],
)
def test_what_diff_ids_do_not_tell_is_not_kept(tmp_path: Path, change: dict[str, Any]) -> None:
    image = Image("x", "layout", None, None, "linux/amd64", None, ())
    index = LayerIndex("sha256:" + "0" * 64, ())
    believed = msgspec.structs.replace(index, believed=BelievedContents("", "", {}, 0, 0))
    with Store.open(tmp_path) as store:
        traces = tracing.Traces(load_profiles()[-1], None, store)
        assert None not in traces.keys((image, image), ((index,), (index,)))
        other = msgspec.structs.replace(image, **change)
        assert traces.keys((image, other), ((index,), (index,))) == [None, None]
        assert traces.keys((image, image), ((index,), (believed,))) == [None, None]
    assert tracing.Traces(load_profiles()[-1], None, None).keys((image,), ((index,),)) == [None]


def test_a_text_that_is_no_unicode_is_not_kept() -> None:
    world = World(site({"app.py": ""}))
    spoilt = msgspec.structs.replace(world.trace, caveats=("\udcff",))
    assert freeze(spoilt, "a") is None
