"""Snapshots as images: what they say, what they leave open, and how damaged ones are refused."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import imgdiff
from imgdiff import pipeline, snapshot
from imgdiff.errors import ImageError, ImgdiffError, UnknownReferenceError, UsageError
from imgdiff.model import Report
from imgdiff.sources import open_image
from imgdiff.store.snapshots import Snapshot, write
from tests.support.command import PYTHON, Shell, layout
from tests.support.elf import Elf, elf_bytes
from tests.support.images import Member, tar_bytes, write_layout

STORY = Path(__file__).parents[2] / "fixtures" / "story"
OPTIONS = pipeline.Options(cache=False, jobs=1)


def take(image: Path | str, target: Path, *, texts: bool = False) -> Path:
    snapshot.take(str(image), target, OPTIONS, texts=texts)
    return target


def diff(a: Path | str, b: Path | str, cache_dir: Path | None = None) -> Report:
    return imgdiff.diff(str(a), str(b), cache=cache_dir is not None, cache_dir=cache_dir, jobs=1)


def told(report: Report) -> list[object]:
    """Return all that a report says but for how its images are called."""
    return [
        getattr(report, name)
        for name in (
            "profile",
            "roles",
            "verdict",
            "owners",
            "changes",
            "resolution",
            "config",
            "integrity",
            "blindspots",
        )
    ]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("story")
    made = {side: take(STORY / side, directory / f"{side}.snapshot") for side in ("a", "b")}
    return made | {"full": take(STORY / "a", directory / "full.snapshot", texts=True)}


# What it says ---------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_identical_with_its_image_and_with_itself(story: dict[str, Path]) -> None:
    for a, b in ((story["a"], STORY / "a"), (STORY / "b", story["b"]), (story["a"], story["full"])):
        report = diff(a, b)
        assert report.verdict.outcome == "identical"
        assert report.changes == ()
        assert report.blindspots == ()


def test_with_all_texts_the_report_is_that_of_the_image(story: dict[str, Path]) -> None:
    assert told(diff(story["full"], STORY / "b")) == told(diff(STORY / "a", STORY / "b"))


def test_without_texts_what_differs_is_left_open_and_everything_else_is_the_same(story: dict[str, Path]) -> None:
    expected = diff(STORY / "a", STORY / "b")
    for a, b, name in ((story["a"], STORY / "b", "a"), (STORY / "a", story["b"], "b"), (story["a"], story["b"], "a")):
        report = diff(a, b)
        assert report.owners == expected.owners
        assert report.resolution == expected.resolution
        assert report.integrity == expected.integrity
        keys = [(each.change.path_a, each.change.path_b, each.change.a, each.change.b) for each in report.changes]
        assert keys == [(x.change.path_a, x.change.path_b, x.change.a, x.change.b) for x in expected.changes]
        assert [each.load for each in report.changes] == [each.load for each in expected.changes]
        assert report.verdict.outcome == "undecided"
        for judged, known in zip(report.changes, expected.changes, strict=True):
            if judged.change.delta == known.change.delta:
                continue
            assert judged.change.delta is not None
            assert judged.change.delta.effect == "code"
            assert f"the snapshot of {name} holds no bytes" in judged.change.delta.reason
            assert judged.change.delta.settle is not None
            assert "stands" not in judged.bears.values()
            assert any(spot.path == judged.change.path and spot.image == name for spot in report.blindspots)


def test_the_cache_changes_nothing_and_gets_nothing(story: dict[str, Path], tmp_path: Path) -> None:
    fresh = diff(story["a"], STORY / "b", tmp_path / "cold")
    diff(STORY / "a", STORY / "b", tmp_path / "warm")
    assert told(diff(story["a"], STORY / "b", tmp_path / "warm")) == told(fresh)
    diff(story["a"], story["b"], tmp_path / "only")
    assert told(diff(STORY / "a", STORY / "b", tmp_path / "only")) == told(diff(STORY / "a", STORY / "b"))


def library(number: int) -> bytes:
    return elf_bytes(Elf(soname="libx.so", text=bytes([number, 0xC3])))


def test_a_changed_library_is_code_that_is_not_told_whatever_the_cache_knows(tmp_path: Path) -> None:
    for side, number in (("a", 1), ("b", 2)):
        write_layout(tmp_path / side, [tar_bytes([Member("usr/lib/libx.so", library(number))])], {})
    kept = take(tmp_path / "a", tmp_path / "a.snapshot")
    diff(tmp_path / "a", tmp_path / "b", tmp_path / "cache")
    (judged,) = diff(kept, tmp_path / "b", tmp_path / "cache").changes
    assert judged.change.delta is not None
    assert judged.change.delta.effect == "code"
    assert judged.change.delta.reason.startswith("The ELF files differ; the snapshot of a holds no bytes of it")
    assert judged.change.delta.detail == {"kind": "elf"}


def test_a_layer_that_the_other_image_has_is_read_there(tmp_path: Path) -> None:
    """What is moved out of a shared layer can be compared although the snapshot lacks its bytes."""
    shared = tar_bytes([Member("usr/lib/libx.so", library(1)), Member("usr/lib/python3.11/m.py", b"x = 1\n")])
    top = tar_bytes([Member("usr/lib/libx.so", library(2)), Member("usr/lib/python3.11/m.py", b"x = 1  # one\n")])
    write_layout(tmp_path / "a", [shared], {})
    write_layout(tmp_path / "b", [shared, top], {})
    kept = take(tmp_path / "a", tmp_path / "a.snapshot")
    assert told(diff(kept, tmp_path / "b")) == told(diff(tmp_path / "a", tmp_path / "b"))


def test_a_root_file_system_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "app.conf").write_text("x=1\n")
    kept = take(f"rootfs:{tmp_path / 'root'}", tmp_path / "root.snapshot")
    assert diff(kept, f"rootfs:{tmp_path / 'root'}").verdict.outcome == "identical"


def test_no_secret_is_kept_and_none_counts(tmp_path: Path) -> None:
    secret = "hunter2-and-more"
    env = {"HF_TOKEN": secret, "HTTPS_PROXY": f"http://me:{secret}@proxy.example", "PLAIN": "shown"}
    entry = ("python3.11", "-m", "app", "--api-key", secret)
    image = layout(tmp_path / "a", env=env, entrypoint=entry)
    kept = take(image, tmp_path / "a.snapshot")
    config = Snapshot(kept, "it").manifest.config
    assert config is not None
    assert secret not in repr(config)
    assert "PLAIN=shown" in config.env
    assert secret.encode() not in kept.read_bytes()
    report = diff(kept, image)
    assert report.verdict.outcome == "identical"
    assert report.config == ()


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("small")
    return take(layout(directory / "a"), directory / "a.snapshot")


def read_all(path: Path) -> None:
    image = open_image(f"snapshot:{path}")
    assert image.snapshot is not None
    for layer in image.layers:
        assert layer.kept is not None
        layer.kept()
    list(image.snapshot.texts())
    list(image.snapshot.facts())


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_altered_byte_is_found(data: st.DataObject, small: Path, tmp_path: Path) -> None:
    content = bytearray(small.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ImgdiffError):
        read_all(tmp_path / "x")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_cut_or_lengthened_file_is_refused(data: st.DataObject, small: Path, tmp_path: Path) -> None:
    content = small.read_bytes()
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    for broken in (cut, content + b"\0"):
        (tmp_path / "x").write_bytes(broken)
        with pytest.raises(ImgdiffError):
            read_all(tmp_path / "x")


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_hostile_file_with_a_right_digest_is_one_sentence(data: st.DataObject, small: Path, tmp_path: Path) -> None:
    content = bytearray(small.read_bytes()[:-32])
    at = data.draw(st.integers(19, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    (tmp_path / "x").write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(ImageError):
        read_all(tmp_path / "x")


def test_facts_that_are_none_are_one_sentence(small: Path, tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        kept = Snapshot(small, "it")
        indexes = [kept.index(number) for number in range(len(kept.manifest.layers))]
        rows = [msgspec.structs.replace(row, encoded=b"F\xc1") for row in kept.facts()]
        write(file, kept.manifest, indexes, kept.texts(), rows)
    assert rows
    with pytest.raises(ImageError, match="facts that are none"):
        diff(tmp_path / "x", layout(tmp_path / "b", {"usr/lib/python3.11/os.py": None}))


def test_another_version_of_the_format_is_named(small: Path, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(small.read_bytes().replace(b"snapshot 1\n", b"snapshot 7\n", 1))
    with pytest.raises(ImageError, match=r"version 7, and this imgdiff reads 1"):
        open_image(str(tmp_path / "x"))


def test_facts_of_other_versions_are_named(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.images, "SNAPSHOT_RULES", "kept 99")
    with pytest.raises(ImageError, match=r"was made by imgdiff \S+ \(kept .*\), and this is \S+ \(kept 99\)"):
        diff(small, layout(tmp_path / "b"))


def test_what_is_no_snapshot_is_refused(small: Path, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"something else")
    for reference in (f"snapshot:{tmp_path / 'x'}", f"{small}:tag"):
        with pytest.raises(UnknownReferenceError):
            open_image(reference)
    with pytest.raises(ImageError, match="linux/arm64 is wanted"):
        open_image(str(small), "linux/arm64")
    assert open_image(str(small), "linux/amd64").platform == "linux/amd64"
    with pytest.raises(UsageError, match="is a snapshot already"):
        take(small, tmp_path / "again")


# The command line -----------------------------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_command_writes_a_file_that_is_an_image(shell: Shell, tmp_path: Path) -> None:
    layout(tmp_path / "a")
    layout(tmp_path / "b", {"srv/app/engine.py": PYTHON["srv/app/engine.py"] + b"# more\n"})
    ran = shell.run("snapshot", "a", "-o", "a.snapshot")
    assert (ran.code, ran.out) == (0, "")
    assert re.fullmatch(r"a\.snapshot: [\d,]+ bytes, [\d.]+% of the image's [\d,]+, [\d.]+% of .* as stored\n", ran.err)
    assert shell.run("snapshot", "a", "-o", "quiet.snapshot", "-q").err == ""
    assert (tmp_path / "a.snapshot").read_bytes() == (tmp_path / "quiet.snapshot").read_bytes()
    assert shell.run("a.snapshot", "a").code == 0
    assert shell.run("a.snapshot", "b").code == shell.run("a", "b").code  # its text is kept: no module of a package
    assert shell.run("snapshot", "a", "-o", "a.snapshot").code == 0  # an older one is replaced


def test_nothing_but_a_snapshot_is_replaced(shell: Shell, tmp_path: Path) -> None:
    layout(tmp_path / "a")
    (tmp_path / "image.tar").write_bytes(b"precious")
    for target, words in (("image.tar", "is no snapshot"), ("none/x", "directory is not there"), ("a", "directory")):
        ran = shell.run("snapshot", "a", "-o", target)
        assert ran.code == 2
        assert words in ran.err
    assert (tmp_path / "image.tar").read_bytes() == b"precious"


def test_a_damaged_one_is_one_sentence_and_2(shell: Shell, tmp_path: Path) -> None:
    layout(tmp_path / "a")
    shell.run("snapshot", "a", "-o", "x")
    content = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(content[:-40])
    ran = shell.run("x", "a")
    assert ran.code == 2
    assert ran.err.startswith("imgdiff: the snapshot x is torn, or was altered")
    assert "Traceback" not in ran.err


def test_a_failed_run_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout(tmp_path / "a")

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    (tmp_path / "out").mkdir()
    monkeypatch.setattr("imgdiff.store.snapshots.write", fail)
    with pytest.raises(UsageError, match="No space left on device"):
        take(tmp_path / "a", tmp_path / "out" / "x")
    assert list((tmp_path / "out").iterdir()) == []

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("imgdiff.store.snapshots.write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        take(tmp_path / "a", tmp_path / "out" / "x")
    assert list((tmp_path / "out").iterdir()) == []
