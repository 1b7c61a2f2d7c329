"""The fixture machinery: the same folder gives the same bytes, and the committed story is what its folder says."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.expected import read_expected
from tests.support.fixtures import FIXTURES, Case, all_members, build_case, cases, layer_tars, members, read_case
from tests.support.images import Member
from tests.support.made import MissingPython, interpreter

STORY = FIXTURES / "story"
READELF = shutil.which("readelf")


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def blob(layout: Path, digest: str) -> bytes:
    return (layout / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes()


def config_and_layers(layout: Path) -> tuple[dict[str, Any], list[bytes]]:
    index = json.loads((layout / "index.json").read_bytes())
    manifest = json.loads(blob(layout, index["manifests"][0]["digest"]))
    config: dict[str, Any] = json.loads(blob(layout, manifest["config"]["digest"]))
    return config, [gzip.decompress(blob(layout, layer["digest"])) for layer in manifest["layers"]]


@pytest.mark.parametrize("name", cases())
def test_a_case_can_be_read_and_its_runs_too(name: str) -> None:
    assert read_case(FIXTURES / name).about.strip()
    assert read_expected(FIXTURES / name).run


@pytest.mark.parametrize("name", cases())
def test_a_case_builds_the_same_twice(name: str, tmp_path: Path) -> None:
    try:
        build_case(FIXTURES / name, tmp_path / "one")
    except MissingPython as missing:
        pytest.skip(str(missing))
    build_case(FIXTURES / name, tmp_path / "two")
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_the_committed_story_is_what_its_folder_says(tmp_path: Path) -> None:
    build_case(STORY, tmp_path)
    for side in ("a", "b"):
        assert config_and_layers(STORY / side) == config_and_layers(tmp_path / side)


@pytest.mark.skipif("zlib-ng" in zlib.ZLIB_RUNTIME_VERSION, reason="zlib-ng compresses to other bytes than zlib")
def test_building_the_story_again_gives_the_committed_bytes(tmp_path: Path) -> None:
    build_case(STORY, tmp_path)
    for side in ("a", "b"):
        assert files_of(STORY / side) == files_of(tmp_path / side)
        assert sum(map(len, files_of(STORY / side).values())) < 400_000


def test_the_story_differs_where_it_says_and_nowhere_else() -> None:
    case = read_case(STORY)
    sides: list[dict[str, Member]] = []
    for image in (case.a, case.b):
        found: dict[str, Member] = {}
        for layer in all_members(STORY, case, image):
            found.update((str(member.path), member) for member in layer)
        sides.append(found)
    a, b = sides
    site = "opt/venv/lib/python3.12/site-packages/"
    assert {
        path for path in a.keys() & b.keys() if (a[path].content, a[path].target) != (b[path].content, b[path].target)
    } == {
        f"{site}vllm/_version.py",
        f"{site}vllm/entrypoints/serve/middleware/request_timing.py",
    }
    only = {path.removeprefix(site).partition("/")[0] for path in a.keys() ^ b.keys()}
    assert only == {"vllm-0.9.2.dev1+g1a2b3c4.dist-info", "vllm-0.9.2.dev2+g5d6e7f8.dist-info"}


@pytest.mark.skipif(READELF is None, reason="readelf, the oracle, is not installed")
def test_every_elf_file_of_the_story_is_one(tmp_path: Path) -> None:
    assert READELF is not None
    seen = 0
    for layer in layer_tars(STORY)[0]:
        (tmp_path / "layer.tar").write_bytes(layer)
        with tarfile.open(tmp_path / "layer.tar") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                data = b"" if content is None else content.read()
                if data.startswith(b"\x7fELF"):
                    seen += 1
                    (tmp_path / "file").write_bytes(data)
                    done = subprocess.run(
                        [READELF, "-aW", tmp_path / "file"], capture_output=True, check=True, text=True
                    )
                    assert not done.stderr, (member.name, done.stderr)
    assert seen > 30


def test_every_source_of_the_story_is_python() -> None:
    for path in STORY.rglob("src/**/*.py"):
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)


def case_of(tmp_path: Path, text: str) -> tuple[Path, Case]:
    (tmp_path / "case.toml").write_text(text)
    return tmp_path, read_case(tmp_path)


PAIR = """
about = "a pair"
[a]
layers = [{ trees = ["t"] }]
[b]
layers = [{ trees = ["t"] }]
"""


def test_unknown_words_in_a_case_are_refused(tmp_path: Path) -> None:
    with pytest.raises(msgspec.ValidationError):
        case_of(tmp_path, PAIR + '[[made]]\ntree = "t"\npath = "/x"\ntxt = "1"\n')
    folder, case = case_of(tmp_path, PAIR + '[[made]]\ntree = "t"\npath = "/x"\n')
    with pytest.raises(ValueError, match="must say what it is"):
        members(folder, case, case.a.layers[0])
    folder, case = case_of(tmp_path, PAIR)
    with pytest.raises(ValueError, match="nothing in tree 't'"):
        members(folder, case, case.a.layers[0])


def test_made_members_come_with_their_parents_and_attributes(tmp_path: Path) -> None:
    folder, case = case_of(
        tmp_path,
        PAIR
        + """
[[made]]
tree = "t"
path = "/d/z"
text = "1"
uid = 7
xattrs = { "user.a" = "1" }
[[made]]
tree = "t"
path = "/a"
hardlink = "/d/z"
[[made]]
tree = "t"
path = "/d/gone"
whiteout = true
[[made]]
tree = "t"
path = "/d"
opaque = true
[[attributes]]
tree = "t"
pattern = "/d/z"
mode = 0o600
mtime = 5
""",
    )
    found = members(folder, case, case.a.layers[0])
    assert [member.path for member in found] == ["d", "d/.wh..wh..opq", "d/.wh.gone", "d/z", "a"]
    assert (found[3].mode, found[3].mtime, found[3].uid, found[3].xattrs) == (0o600, 5, 7, {"user.a": b"1"})
    assert (found[4].type, found[4].target) == ("hardlink", "d/z")


def test_a_python_that_is_not_here_is_said() -> None:
    with pytest.raises(MissingPython, match=r"needs a Python 2\.5"):
        interpreter("2.5")


def test_parents_keep_the_attributes_of_lower_layers(tmp_path: Path) -> None:
    folder, case = case_of(
        tmp_path,
        """
about = "a pair"
[a]
layers = [{ trees = ["t"] }, { trees = ["u"], mtime = 9 }]
[b]
layers = [{ trees = ["t"] }]
[[made]]
tree = "t"
path = "/root"
dir = true
mode = 0o700
[[made]]
tree = "u"
path = "/root/x/y"
text = "1"
""",
    )
    _, upper = all_members(folder, case, case.a)
    assert [(member.path, member.mode, member.mtime) for member in upper] == [
        ("root", 0o700, case.mtime),
        ("root/x", None, 9),
        ("root/x/y", None, 9),
    ]
