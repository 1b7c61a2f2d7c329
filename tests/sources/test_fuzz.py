"""Any JSON, and any bytes, in the places that an image is read from: an image or an error of ours, nothing else."""

from __future__ import annotations

import copy
import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgdiff.errors import ImgdiffError
from imgdiff.model import Image
from imgdiff.sources import open_image
from tests.support.archives import OCI_INDEX, OCI_LAYER, OCI_MANIFEST, Built, engine_tar, write_containerd
from tests.support.images import (
    Member,
    digest_of,
    full_config,
    json_bytes,
    put_blob,
    put_image,
    put_json,
    tar_bytes,
    write_index,
)

LAYER = tar_bytes([Member("one", b"1")])
MANIFEST = {
    "schemaVersion": 2,
    "mediaType": OCI_MANIFEST,
    "config": {"mediaType": "x", "digest": digest_of(b"x"), "size": 1},
    "layers": [{"mediaType": OCI_LAYER, "digest": digest_of(LAYER), "size": len(LAYER)}],
}
INDEX = {
    "schemaVersion": 2,
    "mediaType": OCI_INDEX,
    "manifests": [
        {
            "mediaType": OCI_MANIFEST,
            "digest": digest_of(b"x"),
            "size": 1,
            "platform": {"os": "linux", "architecture": "amd64", "variant": "v1"},
            "annotations": {"org.opencontainers.image.ref.name": "a"},
        }
    ],
}
SAVED = [
    {
        "Config": "c.json",
        "RepoTags": ["x:a"],
        "Layers": ["l.tar"],
        "LayerSources": {digest_of(LAYER): {"mediaType": "x"}},
    }
]
CONFIG = full_config(
    [LAYER],
    {"Env": ["A=1"], "Entrypoint": ["x"], "Cmd": ["y"], "User": "0", "WorkingDir": "/", "Labels": {"a": "b"}},
)

texts = st.sampled_from(
    ["", "a", "linux", "sha256:" + "0" * 64, "../../x", "\x00", "\x1b[0m", OCI_INDEX, "unknown"]
) | st.text(max_size=8)
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn, honest: Any) -> Any:
    """Return honest JSON in which up to three places hold anything, or are gone."""
    value = copy.deepcopy(honest)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(places(value)[1:] or [("",)]))
        holder = value
        for step in way:
            holder = holder[step]
        if isinstance(holder, dict) and draw(st.booleans()):
            holder.pop(last, None)
        elif isinstance(holder, (dict, list)) and last != "":
            holder[last] = draw(anything)
    return value


def check_error(error: ImgdiffError) -> None:
    assert str(error).isprintable()
    assert (error.hint or "").isprintable()
    assert len(str(error)) < 5000


def check(reference: Path, platform: str | None = None) -> None:
    try:
        image = open_image(str(reference), platform)
    except ImgdiffError as error:
        check_error(error)
    else:
        assert isinstance(image, Image)
        assert image.config is not None
        for layer in image.layers:
            layer.open().close()


@quick
@given(value=anything | mutated(INDEX))
def test_any_index(value: Any, tmp_path: Path) -> None:
    write_index(tmp_path, [])
    (tmp_path / "index.json").write_bytes(json_bytes(value))
    check(tmp_path)
    check(tmp_path, "linux/arm64")


@quick
@given(value=anything | mutated(INDEX) | mutated(MANIFEST))
def test_any_manifest(value: Any, tmp_path: Path) -> None:
    put_blob(tmp_path, LAYER, OCI_LAYER)
    write_index(tmp_path, [put_json(tmp_path, value, OCI_MANIFEST), put_image(tmp_path, [LAYER], {})][:1])
    check(tmp_path)
    write_index(tmp_path, [put_json(tmp_path, value, OCI_INDEX)])
    check(tmp_path, "linux/amd64")


@quick
@given(value=anything | mutated(CONFIG))
def test_any_config(value: Any, tmp_path: Path) -> None:
    manifest = {**MANIFEST, "config": put_json(tmp_path, value, "x"), "layers": [put_blob(tmp_path, LAYER, OCI_LAYER)]}
    write_index(tmp_path, [put_json(tmp_path, manifest, OCI_MANIFEST)])
    check(tmp_path)
    check(tmp_path, "linux/amd64")


@quick
@given(listing=anything | mutated(SAVED), config=st.just(CONFIG) | mutated(CONFIG))
def test_any_saved_archive(listing: Any, config: Any, tmp_path: Path) -> None:
    members = [
        Member("c.json", json_bytes(config)),
        Member("l.tar", LAYER),
        Member("manifest.json", json_bytes(listing)),
    ]
    (tmp_path / "x.tar").write_bytes(engine_tar(members))
    check(tmp_path / "x.tar")
    check(tmp_path / "x.tar", "linux/arm64")
    (tmp_path / "manifest.json").write_bytes(json_bytes(listing))
    (tmp_path / "version").write_bytes(b"Directory Transport Version: 1.1\n")
    check(tmp_path)


@quick
@given(data=st.data())
def test_any_bytes_in_an_archive(data: st.DataObject, tmp_path: Path) -> None:
    write_containerd(tmp_path / "x.tar", Built([LAYER], {}, ["x:a"]))
    whole = bytearray((tmp_path / "x.tar").read_bytes())
    if data.draw(st.booleans()):
        whole = bytearray(gzip.compress(bytes(whole), mtime=0))
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(whole) - 1))
        new = data.draw(st.binary(min_size=1, max_size=12))
        whole[where : where + len(new)] = new
    (tmp_path / "x.tar").write_bytes(whole[: data.draw(st.integers(1, len(whole)))])
    check(tmp_path / "x.tar")


@quick
@given(reference=st.text(max_size=30) | st.from_regex(r"(oci:|dir:|docker-archive:)?[a-z/.:@]{0,12}", fullmatch=True))
def test_any_reference(reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        open_image(reference)
    except ImgdiffError as error:
        check_error(error)
    else:
        assert (Path("/") / reference.partition(":")[2]).exists() or Path(reference).exists()
