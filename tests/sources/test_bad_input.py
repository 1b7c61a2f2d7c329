"""Bad input of all kinds ends in one printable sentence of ours, never in anything else."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from imgdiff.errors import BlobError, ImageError, ImgdiffError, UnknownReferenceError
from imgdiff.sources import _tar as tar_module
from imgdiff.sources import open_image
from tests.support.archives import (
    DOCKER_MANIFEST,
    OCI_LAYER,
    OCI_MANIFEST,
    Built,
    engine_tar,
    write_crane,
    write_docker20,
    write_docker26,
    write_skopeo_dir,
)
from tests.support.images import (
    Member,
    compress,
    digest_of,
    full_config,
    json_bytes,
    put_blob,
    put_image,
    put_json,
    tar_bytes,
    write_index,
    write_layout,
)

LAYER = tar_bytes([Member("etc/one", b"one")])
IMAGE = Built([LAYER], {"Env": ["A=1"]}, ["x:a"])


def refused(reference: str | Path, error: type[ImgdiffError], words: str) -> str:
    """Open what can't be opened, and return the hint."""
    with pytest.raises(error, match=words) as caught:
        open_image(str(reference))
    hint = caught.value.hint or ""
    assert str(caught.value).isprintable()
    assert hint.isprintable()
    assert len(str(caught.value)) < 1000
    return hint


def layout(root: Path, manifest: Any, media_type: str = OCI_MANIFEST) -> Path:
    write_index(root, [put_json(root, manifest, media_type)])
    return root


def manifest_of(root: Path, layers: list[dict[str, Any]], config: Any = None) -> dict[str, Any]:
    config = full_config([LAYER] * len(layers), {}) if config is None else config
    return {
        "schemaVersion": 2,
        "config": put_json(root, config, "application/vnd.oci.image.config.v1+json"),
        "layers": layers,
    }


@pytest.mark.parametrize(
    "data", [b"", b"hello\n", b"\x7fELF" + bytes(600), b"\x89PNG" * 200, os.urandom(0) + b"PK\3\4" * 300]
)
def test_a_file_that_is_no_image(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    for scheme in ("", "oci-archive:", "docker-archive:"):
        assert "docker save" in refused(f"{scheme}{tmp_path}/x", UnknownReferenceError, "no image archive")


def test_other_compressions_say_how_to_decompress(tmp_path: Path) -> None:
    tar = engine_tar([Member("manifest.json", b"[]")])
    for name, data, command in (
        ("zstd", compress(tar, "zstd"), "zstd -d"),
        ("xz", lzma.compress(tar), "xz -d"),
        ("bzip2", bz2.compress(tar), "bzip2 -d"),
    ):
        (tmp_path / "x").write_bytes(data)
        assert f"{command} {tmp_path}/x" in refused(tmp_path / "x", ImageError, f"compressed with {name}")


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path / "fifo", ImageError, "no regular file")
    refused("/dev/null", ImageError, "no regular file")
    (tmp_path / "dangling").symlink_to("gone")
    refused(tmp_path / "dangling", ImageError, "no such file")
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", ImageError, "can't be read")


def test_what_may_not_be_read() -> None:
    root = Path(tempfile.mkdtemp())
    try:
        write_layout(root / "oci", [LAYER], {})
        (root / "file").touch()
        root.chmod(0o755)
        for name in ("oci", "file"):
            (root / name).chmod(0)
        if os.geteuid() == 0:  # nothing is closed to root
            os.seteuid(65534)
        for name in ("oci", "file", "oci/index.json"):
            refused(root / name, ImgdiffError, "can't be read: permission denied|names no image")
        refused(f"oci:{root}/oci", ImgdiffError, "can't be read: permission denied")
        refused(f"rootfs:{root}/oci", ImgdiffError, "can't be read: permission denied")
    finally:
        os.seteuid(os.getuid())
        (root / "oci").chmod(0o755)
        shutil.rmtree(root)


def test_directories_that_are_no_image(tmp_path: Path) -> None:
    refused(tmp_path, UnknownReferenceError, "no image that is known")
    refused(f"oci:{tmp_path}", UnknownReferenceError, r"no index\.json")
    (tmp_path / "index.json").mkdir()
    (tmp_path / "oci-layout").touch()
    refused(tmp_path, ImageError, "index.json .* is no regular file")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no valid JSON"),
        (b"\xff\xfe{", "no valid JSON"),
        (b"{", "no valid JSON"),
        (b"[]", "no JSON object"),
        (b"null", "no JSON object"),
        (b"{}", "no list of manifests"),
        (b'{"manifests": {}}', "no list of manifests"),
        (b'{"manifests": []}', "index is empty"),
        (b'{"manifests": [7]}', "entry 1 .* is no descriptor"),
        (b'{"manifests": [{"digest": "sha256:../../../etc/passwd"}]}', "no digest that can be checked"),
        (b'{"manifests": [{"digest": "md5:00"}]}', "no digest that can be checked"),
        (b'{"manifests": [{"digest": "\\u001b[31m"}]}', "no digest that can be checked"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
    ],
)
def test_an_index_that_is_rubbish(data: bytes, words: str, tmp_path: Path) -> None:
    write_index(tmp_path, [])
    (tmp_path / "index.json").write_bytes(data)
    refused(tmp_path, ImageError, words)
    refused(f"oci:{tmp_path}", ImageError, words)


def test_sizes_in_descriptors(tmp_path: Path) -> None:
    descriptor = put_image(tmp_path, [LAYER], {})
    for size in (-1, "1", True, 1.5):
        write_index(tmp_path, [{**descriptor, "size": size}])
        refused(tmp_path, ImageError, "no valid size")
    write_index(tmp_path, [{**descriptor, "size": descriptor["size"] + 1}])
    refused(tmp_path, BlobError, "its descriptor says")
    write_index(tmp_path, [{key: value for key, value in descriptor.items() if key != "size"}])
    assert open_image(str(tmp_path)).layers


def test_json_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    write_layout(tmp_path, [LAYER], {})
    with (tmp_path / "index.json").open("r+b") as file:
        file.truncate(1 << 40)  # sparse
    refused(tmp_path, ImageError, "which no manifest or config is")


def test_a_layout_of_the_future(tmp_path: Path) -> None:
    write_layout(tmp_path, [LAYER], {})
    for data, words in (
        (b'{"imageLayoutVersion": "2.0"}', "version '2.0'"),
        (b"{}", "version None"),
        (b"x", "no valid JSON"),
    ):
        (tmp_path / "oci-layout").write_bytes(data)
        refused(tmp_path, ImageError, words)


def test_tampered_manifest_config_and_layer(tmp_path: Path) -> None:
    digest = write_layout(tmp_path, [LAYER], {})
    blobs = tmp_path / "blobs" / "sha256"
    manifest = blobs / digest.removeprefix("sha256:")
    before = manifest.read_bytes()
    manifest.write_bytes(before.replace(b'"schemaVersion":2', b'"schemaVersion":3'))
    refused(tmp_path, BlobError, "the manifest in .* was changed: its digest is sha256:")
    manifest.write_bytes(before)
    config = blobs / json.loads(before)["config"]["digest"].removeprefix("sha256:")
    original = config.read_bytes()
    config.write_bytes(original.replace(b"amd64", b"arm64"))
    refused(tmp_path, BlobError, "the image config in .* was changed")
    config.write_bytes(original)
    layer = blobs / json.loads(before)["layers"][0]["digest"].removeprefix("sha256:")
    stored = layer.read_bytes()
    for data in (stored[:-1], stored + b"\0"):
        layer.write_bytes(data)
        refused(tmp_path, BlobError, f"layer 1 of 1 .* is {len(data)} bytes long, and the manifest says {len(stored)}")
    layer.unlink()
    assert "copy or save the image again" in refused(tmp_path, BlobError, "lacks layer 1 of 1")
    config.unlink()
    refused(tmp_path, BlobError, "lacks layer 1 of 1|lacks the image config")


def test_tampered_config_in_saved_archives(tmp_path: Path) -> None:
    for write in (write_docker20, write_docker26, write_crane):
        write(tmp_path / "x.tar", IMAGE)
        data = (tmp_path / "x.tar").read_bytes()
        (tmp_path / "x.tar").write_bytes(data.replace(b'"architecture":"amd64"', b'"architecture":"arm64"'))
        refused(f"docker-archive:{tmp_path}/x.tar", BlobError, "the image config in .* was changed")
    write_skopeo_dir(tmp_path / "dir", IMAGE)
    config = tmp_path / "dir" / digest_of(IMAGE.config_bytes()).removeprefix("sha256:")
    config.write_bytes(config.read_bytes().replace(b"amd64", b"arm64"))
    refused(tmp_path / "dir", BlobError, "the image config in .* was changed")


def test_links_out_of_a_layout_are_refused(tmp_path: Path) -> None:
    write_layout(tmp_path / "oci", [LAYER], {})
    for name in ("index.json", *(f"blobs/sha256/{blob.name}" for blob in (tmp_path / "oci/blobs/sha256").iterdir())):
        inside = tmp_path / "oci" / name
        outside = tmp_path / "outside"
        inside.rename(outside)
        inside.symlink_to(outside)
        assert "cp -rL" in refused(f"oci:{tmp_path}/oci", ImageError, "leads out of the directory")
        inside.unlink()
        outside.rename(inside)
        kept = inside.with_name("kept")
        inside.rename(kept)
        inside.symlink_to("kept")  # inside it may be a link
        assert open_image(f"{tmp_path}/oci").layers
        inside.unlink()
        kept.rename(inside)


def test_layers_and_diff_ids_must_be_as_many(tmp_path: Path) -> None:
    layer = put_blob(tmp_path, LAYER, OCI_LAYER)
    layout(tmp_path, manifest_of(tmp_path, [layer, layer], full_config([LAYER], {})))
    refused(tmp_path, ImageError, "has 2 layers, and its config names 1 diffIDs")
    short = Built([LAYER], {**full_config([LAYER, LAYER], {}), "config": {}})
    for write in (write_docker20, write_docker26, write_crane):
        write(tmp_path / "x.tar", short)
        refused(f"docker-archive:{tmp_path}/x.tar", ImageError, "has 1 layers, and its config names 2 diffIDs")


def test_encrypted_and_foreign_layers(tmp_path: Path) -> None:
    here = put_blob(tmp_path, LAYER, "")
    gone = {"digest": digest_of(b"gone"), "size": 4}
    for media_type in (f"{OCI_LAYER}+gzip+encrypted", f"{OCI_LAYER}+encrypted"):
        layout(tmp_path, manifest_of(tmp_path, [{**here, "mediaType": media_type}]))
        assert "decrypt" in refused(tmp_path, ImageError, "layer 1 of .* is encrypted")
    for media_type in (
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
    ):
        layout(tmp_path, manifest_of(tmp_path, [{**gone, "mediaType": media_type, "urls": ["https://example.com"]}]))
        refused(tmp_path, ImageError, "layer 1 of .* is foreign")
        layout(tmp_path, manifest_of(tmp_path, [{**here, "mediaType": media_type}]))
        assert open_image(str(tmp_path)).layers  # a foreign layer that is there after all
    config = IMAGE.config_bytes()
    sources = {digest_of(LAYER): {"mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"}}
    listing = [{"Config": "c.json", "RepoTags": None, "Layers": ["gone.tar.gz"], "LayerSources": sources}]
    members = [Member("c.json", config), Member("manifest.json", json_bytes(listing))]
    (tmp_path / "x.tar").write_bytes(engine_tar(members))
    refused(tmp_path / "x.tar", ImageError, "layer 1 of .* is foreign")


def test_schema_1(tmp_path: Path) -> None:
    old = {"schemaVersion": 1, "name": "x", "tag": "a", "fsLayers": [{"blobSum": digest_of(LAYER)}], "history": []}
    for media_type in ("application/vnd.docker.distribution.manifest.v1+prettyjws", DOCKER_MANIFEST):
        layout(tmp_path / "oci", old, media_type)
        assert "skopeo copy --format oci" in refused(tmp_path / "oci", ImageError, "schema 1")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "manifest.json").write_bytes(json_bytes(old))
    refused(tmp_path / "dir", ImageError, "schema 1")
    (tmp_path / "x.tar").write_bytes(engine_tar([Member("a/layer.tar", LAYER), Member("repositories", b"{}")]))
    refused(tmp_path / "x.tar", ImageError, "before 1.10")


def test_artifacts_and_other_manifests(tmp_path: Path) -> None:
    layer = put_blob(tmp_path, b"chart", "application/vnd.cncf.helm.chart.content.v1.tar+gzip")
    chart = manifest_of(tmp_path, [layer], {"name": "chart"})
    chart["config"]["mediaType"] = "application/vnd.cncf.helm.config.v1+json"
    refused(layout(tmp_path, chart), ImageError, "helm.config.* is no image config: it has no rootfs")
    refused(layout(tmp_path, {"schemaVersion": 2}), ImageError, "no image manifest")
    refused(layout(tmp_path, {"schemaVersion": 2, "config": None, "layers": None}), ImageError, "is no descriptor")
    refused(layout(tmp_path, []), ImageError, "no JSON object")


RUN: list[dict[str, Any]] = [
    {"Env": "A=1"}, {"Env": [1]}, {"Entrypoint": [[]]}, {"Cmd": 1}, {"User": 0}, {"WorkingDir": []}, {"Labels": []},
    {"Labels": {"a": 1}},
]  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [
        [], 7, {}, {"rootfs": []}, {"rootfs": {"diff_ids": "x"}}, {"rootfs": {"diff_ids": [1]}},
        {"rootfs": {"diff_ids": ["sha256:x"]}}, {"rootfs": {"diff_ids": []}, "config": []},
        *({"rootfs": {"diff_ids": []}, "config": run} for run in RUN),
    ],
)  # fmt: skip
def test_a_config_that_is_rubbish(config: Any, tmp_path: Path) -> None:
    layout(tmp_path / "oci", manifest_of(tmp_path / "oci", [], config))
    refused(tmp_path / "oci", ImageError, "image config")
    listing = [{"Config": "c.json", "Layers": []}]
    members = [Member("c.json", json_bytes(config)), Member("manifest.json", json_bytes(listing))]
    (tmp_path / "x.tar").write_bytes(engine_tar(members))
    refused(tmp_path / "x.tar", ImageError, "image config")


@pytest.mark.parametrize(
    ("listing", "words"),
    [
        (b"{}", "no list of images"), (b"[]", "manifest.json is empty"), (b"x", "no valid JSON"),
        (b"[1]", "names no config"),
        (b'[{"Config": 1}]', "names no config"), (b'[{"Config": "c"}]', "lacks the image config c"),
        (b'[{"Config": "c", "Layers": 1}]', "no list"), (b'[{"Config": "c", "Layers": [1]}]', "no texts"),
        (b'[{"Config": "c", "RepoTags": [null]}]', "no texts"),
        (b'[{"Config": "../../etc/passwd"}]', "lacks the image config|leads out"),
        (b'[{"Config": "\\u001b]0;x\\u0007"}]', "lacks the image config"),
        (b'[{"Config": "a\\u0000b"}]', "lacks the image config"),
    ],
)  # fmt: skip
def test_a_manifest_json_that_is_rubbish(listing: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(engine_tar([Member("manifest.json", listing)]))
    refused(tmp_path / "x.tar", ImageError, words)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "manifest.json").write_bytes(listing)
    if listing.startswith(b"[") and listing != b"[]":
        refused(tmp_path / "d", ImageError, words)


def test_an_exported_container_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(engine_tar([Member("etc/", type="dir"), Member("etc/passwd", b"x")]))
    assert "unpack it" in refused(tmp_path / "x.tar", UnknownReferenceError, "neither index.json nor manifest.json")
    (tmp_path / "empty.tar").write_bytes(bytes(10240))
    refused(tmp_path / "empty.tar", UnknownReferenceError, "no image archive")
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"just a text"))
    refused(tmp_path / "x.gz", UnknownReferenceError, "no tar archive")


def test_truncated_archives(tmp_path: Path) -> None:
    """Wherever an archive is cut, it is an error, or all that the image needs stands before the cut."""
    write_docker26(tmp_path / "whole.tar", IMAGE)
    whole = (tmp_path / "whole.tar").read_bytes()
    packed = gzip.compress(whole)
    needed = whole.index(b"manifest.json\0")  # the index and all blobs lie before it
    for data, end, step in ((whole, needed, 128), (packed, len(packed) - 20, 37)):
        for length in range(step, end, step):
            (tmp_path / "x.tar").write_bytes(data[:length])
            refused(f"{tmp_path}/x.tar", ImgdiffError, ".")
    for length in (needed, len(whole) - 1024, len(whole) - 512, len(whole)):
        (tmp_path / "x.tar").write_bytes(whole[:length])
        assert open_image(f"{tmp_path}/x.tar").layers


def test_damaged_archives(tmp_path: Path) -> None:
    write_docker20(tmp_path / "x.tar", IMAGE)
    data = bytearray((tmp_path / "x.tar").read_bytes())
    data[512 + 100] ^= 0xFF  # the second header: tarfile would end there in silence
    (tmp_path / "x.tar").write_bytes(data)
    refused(tmp_path / "x.tar", ImageError, "there is no header at byte 512")
    packed = bytearray(gzip.compress(bytes(data)))
    packed[40:60] = bytes(20)
    (tmp_path / "x.tgz").write_bytes(packed)
    refused(tmp_path / "x.tgz", ImgdiffError, "is damaged|no tar archive|no header")


def test_headers_that_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    refused(tmp_path / "x.tar", ImageError, "claims to be 8589934592 bytes long")
    info.size = 0
    (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) * 20_000)
    refused(tmp_path / "x.tar", ImgdiffError, ".")
    many = io.BytesIO()
    with tarfile.open(fileobj=many, mode="w") as tar:
        for number in range(11):
            tar.addfile(tarfile.TarInfo(f"{number}"))
    (tmp_path / "x.tar").write_bytes(many.getvalue())
    monkeypatch.setattr(tar_module, "MAX_MEMBERS", 10)
    refused(tmp_path / "x.tar", ImageError, "more than 10 files")


def test_hostile_member_names_are_harmless(tmp_path: Path) -> None:
    config = IMAGE.config_bytes()
    listing = json_bytes([{"Config": "c.json", "RepoTags": None, "Layers": ["../../l.tar"]}])
    members = [
        Member("../manifest.json", b"[]"),
        Member("a/../manifest.json", b"[]"),
        Member("/../../l.tar", LAYER),
        Member("c.json", config),
        Member("manifest.json", listing),
        Member(b"\xff\x1b[31m", b""),
        Member("dev", type="char", device=(1, 3)),
    ]
    (tmp_path / "x.tar").write_bytes(engine_tar(members))
    refused(tmp_path / "x.tar", BlobError, r"lacks layer 1 of 1 \(../../l.tar\)")


def test_the_last_of_two_members_counts(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(
        engine_tar(
            [
                Member("manifest.json", b"rubbish"),
                Member("c.json", IMAGE.config_bytes()),
                Member("l.tar", LAYER),
                Member("/./manifest.json", json_bytes([{"Config": "c.json", "Layers": ["l.tar"]}])),
            ]
        )
    )
    assert open_image(f"{tmp_path}/x.tar").layers[0].diff_id == digest_of(LAYER)


def test_names_from_an_image_are_escaped(tmp_path: Path) -> None:
    name = {"annotations": {"org.opencontainers.image.ref.name": "a\x1b[31m\n\u202e" + "x" * 3000}}
    write_index(tmp_path, [{**put_image(tmp_path, [LAYER], {}), **name}, put_image(tmp_path, [], {})])
    refused(tmp_path, ImageError, r"a\\x1b\[31m\\n\\u202ex")
    many = [put_image(tmp_path, [], {"Cmd": [str(n)]}) for n in range(40)]
    write_index(tmp_path, many)
    with pytest.raises(ImageError, match=r"could be each of 40 images: .* and 20 more"):
        open_image(str(tmp_path))


def test_platforms_from_an_image_are_words_or_unknown(tmp_path: Path) -> None:
    for architecture in ("\x1b[31m", "", None, 7, "a/b"):
        write_layout(tmp_path, [LAYER], {"os": "linux", "architecture": architecture})
        assert open_image(str(tmp_path)).platform == "unknown"
