"""The law of sources: one image gives the same layers and config, however it is held."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import subprocess
from pathlib import Path

import pytest

from imgdiff.errors import BlobError, ImageError, UnknownReferenceError
from imgdiff.model import Image
from imgdiff.sources import _tar as tar_module
from imgdiff.sources import open_image
from tests.support.archives import (
    ARCHIVES,
    Built,
    engine_tar,
    write_containerd,
    write_docker20,
    write_docker26,
    write_oci_archive,
    write_skopeo_dir,
)
from tests.support.images import Compression, Member, compress, digest_of, tar_bytes, write_layout

BASE = tar_bytes([Member("etc", type="dir"), Member("etc/one", b"one\n")])
TOP = tar_bytes([Member("opt", type="dir"), Member("opt/two", b"2" * 5000)])
CONFIG = {
    "Env": ["PATH=/usr/bin", "A=b=c"],
    "Entrypoint": ["vllm", "serve"],
    "Cmd": ["--help"],
    "User": "1000",
    "WorkingDir": "/work",
    "Labels": {"x": "y"},
}
IMAGE = Built([BASE, TOP, BASE], CONFIG, ["engine/x:a"])  # the first layer comes twice
DIFF_IDS = [digest_of(layer) for layer in IMAGE.layers]


def contents(image: Image) -> list[bytes]:
    """Return each layer's tar, with the descriptor's promises checked."""
    tars = []
    for layer in image.layers:
        with layer.open() as stream:
            stored = stream.read()
        assert layer.descriptor is not None
        assert layer.descriptor.digest in (digest_of(stored), "")  # empty: not stated
        assert layer.descriptor.size == len(stored)
        tars.append(gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored)
    return tars


def check(image: Image, source: str) -> None:
    assert image.source == source
    assert image.platform == "linux/amd64"
    assert [layer.diff_id for layer in image.layers] == DIFF_IDS
    assert [layer.directory for layer in image.layers] == [None, None, None]
    assert contents(image) == list(IMAGE.layers)
    assert image.config is not None
    assert image.config.env == ("PATH=/usr/bin", "A=b=c")
    assert image.config.entrypoint == ("vllm", "serve")
    assert image.config.cmd == ("--help",)
    assert (image.config.user, image.config.working_dir, image.config.labels) == ("1000", "/work", {"x": "y"})
    assert image.config.raw["config"] == CONFIG
    assert image.config_digest == digest_of(IMAGE.config_bytes())


@pytest.mark.parametrize("kind", sorted(ARCHIVES))
def test_archive(kind: str, tmp_path: Path) -> None:
    ARCHIVES[kind](tmp_path / "image.tar", IMAGE)
    image = open_image(str(tmp_path / "image.tar"))
    check(image, "oci-archive" if kind == "oci-archive" else "docker-archive")
    assert image.reference == str(tmp_path / "image.tar")
    stated = kind not in ("docker20", "skopeo-docker", "crane")  # manifest.json alone has no manifest of the image
    assert (image.manifest_digest is not None) == stated


@pytest.mark.parametrize("kind", sorted(ARCHIVES))
def test_gzip_archive_is_the_same(kind: str, tmp_path: Path) -> None:
    ARCHIVES[kind](tmp_path / "image.tar", IMAGE)
    packed = tmp_path / "image.tar.gz"
    packed.write_bytes(gzip.compress((tmp_path / "image.tar").read_bytes()))
    image, plain = open_image(str(packed)), open_image(str(tmp_path / "image.tar"))
    check(image, plain.source)
    assert (image.manifest_digest, image.config_digest) == (plain.manifest_digest, plain.config_digest)


def test_gzip_archive_in_members_and_padded(tmp_path: Path) -> None:
    write_docker26(tmp_path / "image.tar", IMAGE)
    data = (tmp_path / "image.tar").read_bytes()
    packed = tmp_path / "image.tgz"
    members = [gzip.compress(data[start : start + 3000]) for start in range(0, len(data), 3000)]
    packed.write_bytes(b"".join(members) + bytes(700))
    check(open_image(str(packed)), "docker-archive")


def test_gzip_archive_is_read_from_kept_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_module, "STATE_EVERY", 5000)
    monkeypatch.setattr(tar_module, "CHUNK", 1024)
    write_docker20(tmp_path / "image.tar", IMAGE)
    packed = tmp_path / "image.tgz"
    packed.write_bytes(gzip.compress((tmp_path / "image.tar").read_bytes(), 1))
    image = open_image(str(packed))
    check(image, "docker-archive")
    with image.layers[2].open() as third, image.layers[0].open() as first:  # both at once, in bits
        assert first.read(100) + third.read(100) + first.read() == BASE[:100] + BASE[:100] + BASE[100:]
        assert third.read() == BASE[100:]
        third.seek(512)
        assert third.read() == BASE[512:]
    copy = pickle.loads(pickle.dumps(image.layers[1].open))  # states don't travel, reading does
    with copy() as stream:
        assert stream.read() == TOP


def test_one_reading_of_an_archive_opens_many_times(tmp_path: Path) -> None:
    write_docker26(tmp_path / "image.tar", IMAGE)
    layer = open_image(str(tmp_path / "image.tar")).layers[1]
    with layer.open() as one, layer.open() as two:
        assert one.read(10) == two.read(10) == TOP[:10]
        buffer = bytearray(1 << 20)
        assert one.readinto(buffer) == len(TOP) - 10  # type: ignore[attr-defined]  # BinaryIO has no readinto
        assert two.read() == bytes(buffer[: len(TOP) - 10])


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_oci_layout(compression: Compression, tmp_path: Path) -> None:
    digest = write_layout(tmp_path / "oci", list(IMAGE.layers), CONFIG, compression, tag="a")
    for reference in (f"{tmp_path}/oci", f"{tmp_path}/oci:a", f"oci:{tmp_path}/oci", f"oci:{tmp_path}/oci@{digest}"):
        image = open_image(reference)
        assert (image.source, image.manifest_digest, image.reference) == ("oci", digest, reference)
        assert [layer.diff_id for layer in image.layers] == DIFF_IDS
        for layer, tar in zip(image.layers, IMAGE.layers, strict=True):
            with layer.open() as stream:
                assert stream.read() == compress(tar, compression)


def test_skopeo_dir(tmp_path: Path) -> None:
    write_skopeo_dir(tmp_path / "d", IMAGE)
    for reference in (f"{tmp_path}/d", f"dir:{tmp_path}/d"):
        image = open_image(reference)
        check(image, "dir")
        assert image.manifest_digest == digest_of((tmp_path / "d" / "manifest.json").read_bytes())
    assert open_image(f"{tmp_path}/d@{image.manifest_digest}").manifest_digest == image.manifest_digest
    with pytest.raises(ImageError, match="no image @sha256"):
        open_image(f"{tmp_path}/d@{DIFF_IDS[0]}")
    with pytest.raises(ImageError, match="no tags"):
        open_image(f"{tmp_path}/d:latest")


def test_unpacked_archives_are_read_too(tmp_path: Path) -> None:
    for kind, source in (("docker20", "docker-archive"), ("crane", "docker-archive"), ("oci-archive", "oci")):
        ARCHIVES[kind](tmp_path / "image.tar", IMAGE)
        (tmp_path / kind).mkdir()
        subprocess.run(["tar", "-xf", tmp_path / "image.tar", "-C", tmp_path / kind], check=True)
        check(open_image(str(tmp_path / kind)), source)


def test_docker_archive_scheme_reads_manifest_json(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    write_docker26(path, IMAGE)
    by_index, by_list = open_image(str(path)), open_image(f"docker-archive:{path}")
    check(by_list, "docker-archive")
    assert by_index.manifest_digest is not None
    assert by_list.manifest_digest is None
    assert open_image(f"oci-archive:{path}").source == "oci-archive"
    write_docker20(path, IMAGE)
    with pytest.raises(UnknownReferenceError, match=r"no index\.json"):
        open_image(f"oci-archive:{path}")
    write_oci_archive(path, IMAGE)
    with pytest.raises(UnknownReferenceError, match=r"no manifest\.json"):
        open_image(f"docker-archive:{path}")


def test_an_image_without_layers_and_config_fields(tmp_path: Path) -> None:
    empty = Built([], {"Env": None, "Entrypoint": None, "Cmd": None, "User": None, "Labels": None}, ["x:a"])
    for write in (write_docker20, write_containerd):
        write(tmp_path / "image.tar", empty)
        image = open_image(str(tmp_path / "image.tar"))
        assert image.layers == ()
        assert image.config is not None
        assert image.config.env == image.config.entrypoint == image.config.cmd == ()
        assert (image.config.user, image.config.labels) == ("", {})


def test_nulls_in_lists_are_empty_as_go_reads_them(tmp_path: Path) -> None:
    write_docker20(tmp_path / "image.tar", Built([BASE], {"Env": [None], "Labels": {"a": None}}, ["x:a"]))
    config = open_image(str(tmp_path / "image.tar")).config
    assert config is not None
    assert (config.env, config.labels) == (("",), {"a": ""})


def test_a_root_file_system_may_hold_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    for data in (b"[]", b"{}"):
        (tmp_path / "manifest.json").write_bytes(data)
        assert open_image(str(tmp_path)).source == "rootfs"


def test_a_command_that_is_one_text(tmp_path: Path) -> None:
    write_docker20(tmp_path / "image.tar", Built([BASE], {"Entrypoint": "/run.sh", "Cmd": "x"}, ["x:a"]))
    config = open_image(str(tmp_path / "image.tar")).config
    assert config is not None
    assert (config.entrypoint, config.cmd) == (("/run.sh",), ("x",))


def test_layers_that_state_no_digest_have_none(tmp_path: Path) -> None:
    config = IMAGE.config_bytes()
    names = [f"{number}.tgz" for number in range(3)]
    listing = f'[{{"Config": "config.json", "RepoTags": null, "Layers": {names!r}}}]'.replace("'", '"')
    stored = [compress(layer, "gzip") for layer in IMAGE.layers]
    members = [Member(name, data) for name, data in zip(names, stored, strict=True)]
    members += [Member("config.json", config), Member("manifest.json", listing.encode())]
    (tmp_path / "image.tar").write_bytes(engine_tar(members))
    image = open_image(str(tmp_path / "image.tar"))
    check(image, "docker-archive")
    assert [layer.descriptor.digest for layer in image.layers if layer.descriptor] == ["", "", ""]


def test_links_inside_an_archive(tmp_path: Path) -> None:
    config = Built([BASE], CONFIG).config_bytes()
    name = hashlib.sha256(config).hexdigest() + ".json"

    def save(*links: Member) -> str:
        listing = b'[{"Config": "%s", "RepoTags": [], "Layers": ["x/layer.tar"]}]' % name.encode()
        members = [Member("./real/layer.tar", BASE), Member(name, config), *links, Member("./manifest.json", listing)]
        (tmp_path / "image.tar").write_bytes(engine_tar(members))
        return str(tmp_path / "image.tar")

    for target in ("../real/layer.tar", "./../real/./layer.tar", "../x/../real/layer.tar"):
        assert contents(open_image(save(Member("x/layer.tar", type="symlink", target=target)))) == [BASE]
    assert contents(open_image(save(Member("x/layer.tar", type="hardlink", target="real/layer.tar")))) == [BASE]
    chain = [Member(f"{n}", type="symlink", target=f"{n + 1}") for n in range(9)]
    chain = [
        Member("x/layer.tar", type="symlink", target="../0"),
        *chain,
        Member("9", type="hardlink", target="real/layer.tar"),
    ]
    assert contents(open_image(save(*chain))) == [BASE]
    for target in ("/real/layer.tar", "../../real/layer.tar", "../../../../etc/passwd"):
        with pytest.raises(ImageError, match="leads out of the archive"):
            open_image(save(Member("x/layer.tar", type="symlink", target=target)))
    with pytest.raises(ImageError, match="never ends"):
        open_image(save(Member("x/layer.tar", type="symlink", target="layer.tar")))
    with pytest.raises(BlobError, match="lacks layer 1 of 1"):
        open_image(save(Member("x/layer.tar", type="symlink", target="../gone")))
    with pytest.raises(BlobError, match="lacks layer 1 of 1"):
        open_image(save(Member("x/layer.tar", type="fifo")))


def test_rootfs(tmp_path: Path) -> None:
    (tmp_path / "root" / "usr" / "bin").mkdir(parents=True)
    for reference in ("root", "rootfs:root", "dir:root"):
        image = open_image(
            reference.replace("root", f"{tmp_path}/root", 1)
            if ":" not in reference
            else f"{reference.split(':')[0]}:{tmp_path}/root"
        )
        assert (image.source, image.platform, image.config) == ("rootfs", "unknown", None)
        assert (image.manifest_digest, image.config_digest) == (None, None)
        (layer,) = image.layers
        assert (layer.directory, layer.descriptor, layer.diff_id) == (tmp_path / "root", None, None)
        with pytest.raises(ImageError, match="no blob"):
            layer.open()
    assert open_image(f"{tmp_path}/root", "linux/arm64").platform == "unknown"


@pytest.mark.parametrize(
    ("tops", "taken"),
    [(["usr"], True), (["etc"], True), (["bin", "opt"], True), (["home"], False), (["root", "src"], False)],
)
def test_a_directory_with_one_name_that_others_have_too_is_no_root_file_system(
    tmp_path: Path, tops: list[str], taken: bool
) -> None:
    for top in tops:
        (tmp_path / "found" / top).mkdir(parents=True)
        (tmp_path / "found" / top / "file").write_text("x")
    assert open_image(f"rootfs:{tmp_path / 'found'}").source == "rootfs"
    if taken:
        assert open_image(str(tmp_path / "found")).source == "rootfs"
    else:
        with pytest.raises(UnknownReferenceError) as caught:
            open_image(str(tmp_path / "found"))
        assert "rootfs:" in (caught.value.hint or "")


def test_rootfs_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "notes.txt").touch()
    with pytest.raises(UnknownReferenceError, match="no image that is known") as caught:
        open_image(f"{tmp_path}/images")
    assert caught.value.hint is not None
    assert f"rootfs:{tmp_path}/images" in caught.value.hint
    assert open_image(f"rootfs:{tmp_path}/images").source == "rootfs"
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageError, match="empty directory"):
        open_image(f"rootfs:{tmp_path}/empty")
    with pytest.raises(UnknownReferenceError, match="no directory"):
        open_image(f"rootfs:{tmp_path}/images/notes.txt")
    with pytest.raises(UnknownReferenceError, match="no tags"):
        open_image(f"rootfs:{tmp_path}/images:a")
    (tmp_path / "slash").symlink_to("/")
    for root in ("/", "rootfs:/", "dir:/", f"rootfs:{tmp_path}/slash", "/."):
        with pytest.raises(ImageError, match="running system"):
            open_image(root)


def test_dir_scheme_refuses_an_oci_layout(tmp_path: Path) -> None:
    write_layout(tmp_path / "oci", [BASE], CONFIG)
    with pytest.raises(UnknownReferenceError, match="is an OCI layout"):
        open_image(f"dir:{tmp_path}/oci")
