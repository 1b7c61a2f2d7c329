"""Which image of an index is read."""

from __future__ import annotations

import platform as machine
from pathlib import Path
from typing import Any

import pytest

from imgdiff.errors import BlobError, ImageError
from imgdiff.sources import open_image
from tests.support.archives import OCI_INDEX, OCI_MANIFEST, Built, write_containerd, write_docker20
from tests.support.images import Member, digest_of, put_image, put_json, tar_bytes, write_index

LAYERS = {name: tar_bytes([Member(name, b"")]) for name in ("amd64", "v3", "arm64", "v7", "v6", "s390x")}
ATTESTATION = {
    "platform": {"architecture": "unknown", "os": "unknown"},
    "annotations": {"vnd.docker.reference.type": "attestation-manifest"},
}


@pytest.fixture(autouse=True)
def _on_amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "machine", lambda: "x86_64")


def member(root: Path, name: str, architecture: str, variant: str = "") -> dict[str, Any]:
    stated = {"architecture": architecture, "os": "linux", **({"variant": variant} if variant else {})}
    return {**put_image(root, [LAYERS[name]], stated), "platform": stated}


def index(root: Path, *entries: dict[str, Any], nested: int = 0) -> str:
    """Write a layout with these in its index, or in an index inside (inside ...) it."""
    listed = list(entries)
    for _ in range(nested):
        listed = [put_json(root, {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}, OCI_INDEX)]
    write_index(root, listed)
    return str(root)


def chosen(reference: str, platform: str | None = None) -> str:
    diff_id = open_image(reference, platform).layers[0].diff_id
    return next(name for name, layer in LAYERS.items() if digest_of(layer) == diff_id)


@pytest.mark.parametrize("nested", [0, 1, 3])
def test_host_else_asked_for(nested: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attestation = {**put_json(tmp_path, {"schemaVersion": 2, "config": {}, "layers": []}, OCI_MANIFEST), **ATTESTATION}
    entries = [member(tmp_path, "arm64", "arm64", "v8"), member(tmp_path, "amd64", "amd64"), attestation]
    path = index(tmp_path, *entries, nested=nested)
    assert chosen(path) == "amd64"
    assert chosen(path, "linux/amd64") == chosen(path, "linux/x86_64") == chosen(path, "LINUX/AMD64/v1") == "amd64"
    assert chosen(path, "linux/arm64") == chosen(path, "linux/arm64/v8") == chosen(path, "linux/aarch64") == "arm64"
    assert open_image(path, "linux/arm64").platform == "linux/arm64/v8"
    with pytest.raises(ImageError, match=r"no image for linux/s390x: it has linux/arm64/v8 and linux/amd64$"):
        open_image(path, "linux/s390x")
    with pytest.raises(ImageError, match="no image for windows/amd64"):
        open_image(path, "windows/amd64")
    with pytest.raises(ImageError, match="no image for linux/amd64/v3"):
        open_image(path, "linux/amd64/v3")
    monkeypatch.setattr(machine, "machine", lambda: "aarch64")
    assert chosen(path) == "arm64"
    monkeypatch.setattr(machine, "machine", lambda: "riscv64")
    with pytest.raises(ImageError, match="no image for this host: it has linux/arm64/v8 and linux/amd64") as caught:
        open_image(path)
    assert caught.value.hint is not None
    assert "--platform linux/arm64/v8" in caught.value.hint


def test_the_only_one_where_the_host_has_none(tmp_path: Path) -> None:
    attestation = {**put_json(tmp_path, {}, OCI_MANIFEST), **ATTESTATION}
    path = index(tmp_path, member(tmp_path, "s390x", "s390x"), attestation, nested=1)
    assert chosen(path) == "s390x"
    with pytest.raises(ImageError, match="no image for linux/amd64: it has linux/s390x"):
        open_image(path, "linux/amd64")


def test_variants(tmp_path: Path) -> None:
    entries = [
        member(tmp_path, "v3", "amd64", "v3"),
        member(tmp_path, "amd64", "amd64"),
        member(tmp_path, "v6", "arm", "v6"),
        member(tmp_path, "v7", "arm", "v7"),
    ]
    path = index(tmp_path, *entries, nested=1)
    assert chosen(path) == chosen(path, "linux/amd64") == "amd64"
    assert chosen(path, "linux/amd64/v3") == "v3"
    assert chosen(path, "linux/arm") == chosen(path, "linux/arm/v7") == chosen(path, "linux/arm/7") == "v7"
    assert chosen(path, "linux/arm/v6") == "v6"
    assert chosen(index(tmp_path, entries[0], entries[2], nested=1), "linux/amd64") == "v3"


def test_a_single_image_must_be_for_the_platform(tmp_path: Path) -> None:
    descriptor = member(tmp_path, "arm64", "arm64")
    del descriptor["platform"]
    write_index(tmp_path, [descriptor])
    assert chosen(str(tmp_path)) == "arm64"
    assert chosen(str(tmp_path), "linux/arm64") == "arm64"
    with pytest.raises(ImageError, match="is for linux/arm64, not for linux/amd64"):
        open_image(str(tmp_path), "linux/amd64")


def test_platforms_of_the_configs_where_the_index_states_none(tmp_path: Path) -> None:
    entries = [member(tmp_path, "arm64", "arm64"), member(tmp_path, "amd64", "amd64")]
    for entry in entries:
        del entry["platform"]
    path = index(tmp_path, *entries, nested=1)
    assert chosen(path) == "amd64"
    assert chosen(path, "linux/arm64") == "arm64"


def test_a_manifest_that_is_not_there_matters_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    write_containerd(path, Built([LAYERS["amd64"]], {}, ["x:a"]), platforms=True)
    assert chosen(str(path)) == chosen(str(path), "linux/amd64") == "amd64"
    with pytest.raises(BlobError, match="lists a manifest for linux/arm64/v8 that it does not hold"):
        open_image(str(path), "linux/arm64")


def test_none_of_the_manifests_is_there(tmp_path: Path) -> None:
    absent = {"mediaType": OCI_MANIFEST, "digest": digest_of(b"gone"), "size": 3}
    path = index(tmp_path, {**absent, "platform": {"os": "linux", "architecture": "amd64"}}, nested=1)
    with pytest.raises(BlobError, match="none of the manifests"):
        open_image(path)
    with pytest.raises(BlobError, match="does not hold"):
        open_image(index(tmp_path, absent))


def test_a_digest_inside_a_nested_index(tmp_path: Path) -> None:
    attestation = {**put_json(tmp_path, {}, OCI_MANIFEST), **ATTESTATION}
    arm, amd = member(tmp_path, "arm64", "arm64"), member(tmp_path, "amd64", "amd64")
    path = index(tmp_path, arm, amd, attestation, nested=2)
    assert chosen(f"{path}@{arm['digest']}") == "arm64"
    with pytest.raises(ImageError, match="is for linux/arm64, not for linux/amd64"):
        open_image(f"{path}@{arm['digest']}", "linux/amd64")
    with pytest.raises(ImageError, match="an attestation or an artifact"):
        open_image(f"{path}@{attestation['digest']}")


def test_one_name_over_several_platforms_is_one_image(tmp_path: Path) -> None:
    name = {"annotations": {"org.opencontainers.image.ref.name": "a"}}
    arm, amd = member(tmp_path, "arm64", "arm64"), member(tmp_path, "amd64", "amd64")
    path = index(tmp_path, {**arm, **name}, {**amd, **name})
    assert chosen(path) == chosen(f"{path}:a") == "amd64"
    assert chosen(f"{path}:a", "linux/arm64") == "arm64"
    other = {"annotations": {"org.opencontainers.image.ref.name": "b"}}
    path = index(tmp_path, {**arm, **name}, {**amd, **other})
    with pytest.raises(ImageError, match="could be each of 2 images: a and b"):
        open_image(path, "linux/arm64")


def test_attestations_and_artifacts_alone_are_no_image(tmp_path: Path) -> None:
    attestation = {**put_json(tmp_path, {}, OCI_MANIFEST), **ATTESTATION}
    artifact = {**put_json(tmp_path, {"x": 1}, OCI_MANIFEST), "artifactType": "application/spdx+json"}
    with pytest.raises(ImageError, match="an attestation or an artifact"):
        open_image(index(tmp_path, attestation, artifact))
    with pytest.raises(ImageError, match="index without images"):
        open_image(index(tmp_path, attestation, artifact, nested=1))
    with pytest.raises(ImageError, match="index is empty"):
        open_image(index(tmp_path))


def test_indexes_that_list_each_other_many_times_over(tmp_path: Path) -> None:
    listed = [member(tmp_path, "amd64", "amd64")]
    for _ in range(6):
        inner = put_json(tmp_path, {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}, OCI_INDEX)
        listed = [inner] * 1000
    write_index(tmp_path, listed)
    assert chosen(str(tmp_path)) == "amd64"


def test_one_tag_of_an_archive_over_several_platforms(tmp_path: Path) -> None:
    images = [Built([LAYERS[each]], {"architecture": each, "os": "linux"}, ["x:a"]) for each in ("arm64", "amd64")]
    write_docker20(tmp_path / "image.tar", *images)
    for reference in (f"{tmp_path}/image.tar", f"{tmp_path}/image.tar:x:a"):
        assert chosen(reference) == chosen(reference, "linux/amd64") == "amd64"
        assert chosen(reference, "linux/arm64") == "arm64"


def test_indexes_without_end(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="without end"):
        open_image(index(tmp_path, member(tmp_path, "amd64", "amd64"), nested=12))
