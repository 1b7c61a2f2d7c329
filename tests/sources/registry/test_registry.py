"""Images from a real registry: formats, platforms, digests, and what both images share."""

from __future__ import annotations

import gzip
import http.client
from pathlib import Path

import pytest

from imgdiff import pipeline
from imgdiff.errors import ImageError, UsageError
from imgdiff.model import Image, Report
from imgdiff.sources import open_image
from imgdiff.sources.registry import open_registry
from tests.services.faults import Proxy
from tests.services.registries import push
from tests.sources.registry.conftest import BASE, FIRST, INSECURE
from tests.sources.test_engines import write_multi
from tests.support.elf import Elf, elf_bytes
from tests.support.images import Member, digest_of, put_image, put_json, tar_bytes, write_index, write_layout

SCHEMA_2 = "application/vnd.docker.distribution.manifest.v2+json"


def contents(image: Image) -> list[bytes]:
    """Return the layers as stored, held against their digests."""
    found = []
    for layer in image.layers:
        with layer.open() as stream:
            found.append(stream.read())
        assert layer.descriptor is not None
        assert (digest_of(found[-1]), len(found[-1])) == (layer.descriptor.digest, layer.descriptor.size)
    return found


def put(address: str, path: str, body: bytes, media_type: str) -> None:
    """Put a manifest as it is: skopeo would mend it."""
    connection = http.client.HTTPConnection(address)
    connection.request("PUT", path, body, {"Content-Type": media_type})
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()


def test_an_image_is_what_its_layout_is(plain: str, layout: Path) -> None:
    image, same = open_registry(f"{plain}/imgdiff/x:a", None, INSECURE), open_image(f"oci:{layout}:a")
    assert image.source == "registry"
    assert image.reference == f"{plain}/imgdiff/x:a"
    assert (image.manifest_digest, image.config_digest) == (same.manifest_digest, same.config_digest)
    assert (image.platform, image.config) == (same.platform, same.config)
    assert [layer.diff_id for layer in image.layers] == [digest_of(BASE), digest_of(FIRST)]
    assert [gzip.decompress(data) for data in contents(image)] == [BASE, FIRST]
    assert all(layer.remote for layer in image.layers)


@pytest.mark.parametrize("prefix", ["registry:", "docker://", "registry://"])
def test_schemes(prefix: str, plain: str) -> None:
    image = open_registry(f"{prefix}{plain}/imgdiff/x:a", None, INSECURE)
    assert image.reference == f"{prefix}{plain}/imgdiff/x:a"


def test_a_layer_is_opened_anew_each_time(plain: str) -> None:
    image = open_registry(f"{plain}/imgdiff/x:a", None, INSECURE)
    assert contents(image) == contents(image)


def test_schema_2_oci_and_zstd(plain: str, layout: Path) -> None:
    for name, options in (("s2", ("-f", "v2s2")), ("oci", ("-f", "oci"))):
        push(f"oci:{layout}:a", f"{plain}/formats/{name}:a", *options)
        image = open_registry(f"{plain}/formats/{name}:a", None, INSECURE)
        assert [layer.diff_id for layer in image.layers] == [digest_of(BASE), digest_of(FIRST)]
        assert [gzip.decompress(data) for data in contents(image)] == [BASE, FIRST]
        assert image.layers[0].descriptor is not None
        assert ("docker" in image.layers[0].descriptor.media_type) == (name == "s2")


def test_zstd_layers(plain: str, tmp_path: Path) -> None:
    write_layout(tmp_path / "z", [BASE, FIRST], {}, "zstd", tag="z")
    push(f"oci:{tmp_path}/z:z", f"{plain}/formats/zstd:z", "--preserve-digests")
    image = open_registry(f"{plain}/formats/zstd:z", None, INSECURE)
    assert all(data.startswith(b"\x28\xb5\x2f\xfd") for data in contents(image))
    assert [layer.diff_id for layer in image.layers] == [digest_of(BASE), digest_of(FIRST)]


def test_an_index_and_its_platforms(plain: str, tmp_path: Path) -> None:
    write_multi(tmp_path / "multi", FIRST)
    push(f"oci:{tmp_path}/multi:m", f"{plain}/multi:m", "--all")
    arm = open_registry(f"{plain}/multi:m", "linux/arm64", INSECURE)
    amd = open_registry(f"{plain}/multi:m", "linux/amd64", INSECURE)
    assert (arm.platform, amd.platform) == ("linux/arm64/v8", "linux/amd64")
    for image in (arm, amd):
        pinned = open_registry(f"{plain}/multi@{image.manifest_digest}", None, INSECURE)
        assert pinned.config_digest == image.config_digest
    with pytest.raises(ImageError, match=r"has no image for linux/s390x: it has linux/amd64 and linux/arm64/v8"):
        open_registry(f"{plain}/multi:m", "linux/s390x", INSECURE)
    with pytest.raises(ImageError, match="is for linux/arm64, not for linux/amd64"):
        open_registry(f"{plain}/multi@{arm.manifest_digest}", "linux/amd64", INSECURE)
    with pytest.raises(UsageError, match="is no platform"):
        open_registry(f"{plain}/multi:m", "arm", INSECURE)


def test_an_index_may_hold_several_for_a_platform(plain: str, tmp_path: Path) -> None:
    """Windows images differ by os.version alone: the index is still the index of one image."""
    root = tmp_path / "x"
    linux = {**put_image(root, [FIRST], {}), "platform": {"os": "linux", "architecture": "amd64"}}
    windows = [
        {
            **put_image(root, [BASE], {"architecture": "amd64", "os": "windows", "os.version": version}),
            "platform": {"os": "windows", "architecture": "amd64", "os.version": version},
        }
        for version in ("10.0.1", "10.0.2")
    ]
    kind = "application/vnd.oci.image.index.v1+json"
    index = put_json(root, {"schemaVersion": 2, "mediaType": kind, "manifests": [*windows, linux]}, kind)
    write_index(root, [{**index, "annotations": {"org.opencontainers.image.ref.name": "w"}}])
    push(f"oci:{root}:w", f"{plain}/several:w", "--all")
    assert open_registry(f"{plain}/several:w", "linux/amd64", INSECURE).platform == "linux/amd64"
    assert open_registry(f"{plain}/several:w", "windows/amd64", INSECURE).platform == "windows/amd64"


def test_a_tag_is_resolved_once(proxy: Proxy) -> None:
    image = open_registry(f"{proxy.address}/imgdiff/x:a", None, INSECURE)
    contents(image)
    asked = [each.path for each in proxy.requests("manifests")]
    assert asked == ["/v2/imgdiff/x/manifests/a"]
    assert len(proxy.requests("blobs")) == 3  # the config and two layers


def test_a_tag_beside_a_digest_counts_for_nothing(proxy: Proxy, layout: Path) -> None:
    digest = open_image(f"oci:{layout}:b").manifest_digest
    image = open_registry(f"{proxy.address}/imgdiff/x:a@{digest}", None, INSECURE)
    assert image.manifest_digest == digest
    assert [each.path for each in proxy.requests("manifests")] == [f"/v2/imgdiff/x/manifests/{digest}"]


def test_what_comes_is_counted(proxy: Proxy) -> None:
    image = open_registry(f"{proxy.address}/imgdiff/x:a", None, INSECURE)
    assert image.transfer is not None
    sizes = [layer.descriptor.size for layer in image.layers if layer.descriptor is not None]
    small = image.transfer.fetched()
    assert small == proxy.sent("imgdiff/x") > 0
    assert image.transfer.saved() == sum(sizes)
    with image.layers[0].open() as stream:
        stream.read()
    assert image.transfer.fetched() == small + sizes[0] == proxy.sent("imgdiff/x")
    assert image.transfer.saved() == sizes[1]


# --------------------------------------------------------------------------------------------------------------------
# A byte that is not needed is not moved
# --------------------------------------------------------------------------------------------------------------------


def layer_bytes(*images: Image) -> dict[str, int]:
    return {
        x.descriptor.digest: x.descriptor.size for image in images for x in image.layers if x.descriptor is not None
    }


def run(proxy: Proxy, cache: Path, *sides: str) -> Report:
    """Compare two images, those without a scheme in the registry behind the proxy."""
    names = [side if ":" in side else f"registry:{proxy.address}/imgdiff/x:{side}" for side in sides]
    return pipeline.diff(names[0], names[1], pipeline.Options(cache_dir=cache, insecure=True))


def test_a_shared_layer_comes_once_and_a_cached_one_never(proxy: Proxy, tmp_path: Path) -> None:
    images = [open_registry(f"{proxy.address}/imgdiff/x:{tag}", None, INSECURE) for tag in "ab"]
    each = layer_bytes(*images)
    base = next(iter(layer_bytes(images[0])))
    proxy.clear()
    cold = run(proxy, tmp_path / "cache", "a", "b")
    for digest, size in each.items():
        assert proxy.sent(digest) == size
    fetched, saved = cold.image_a.transfer or (0, 0), cold.image_b.transfer or (0, 0)
    assert fetched[0] + saved[0] == proxy.sent("imgdiff/x")
    assert (fetched[1], saved[1]) == (0, each[base])
    proxy.clear()
    warm = run(proxy, tmp_path / "cache", "a", "b")
    assert not any(proxy.sent(digest) for digest in each)
    assert warm.image_a.transfer is not None
    assert warm.image_a.transfer[1] == sum(layer_bytes(images[0]).values())


def test_a_layer_that_lies_on_disk_is_not_fetched(proxy: Proxy, layout: Path, tmp_path: Path) -> None:
    image = open_registry(f"{proxy.address}/imgdiff/x:a", None, INSECURE)
    base, own = layer_bytes(image)
    proxy.clear()
    report = run(proxy, tmp_path / "cache", "a", f"oci:{layout}:b")
    assert proxy.sent(base) == 0
    assert proxy.sent(own) == layer_bytes(image)[own]
    assert report.image_b.transfer is None


def test_what_is_read_twice_is_counted_twice_and_then_cached(proxy: Proxy, plain: str, tmp_path: Path) -> None:
    """Changed libraries are read again, to tell what in them differs: the layers that hold them, and no others."""
    for tag, text in (("a", "one"), ("b", "two")):
        library = Member("usr/lib/libx.so", elf_bytes(Elf(soname="libx.so", strings=(text,))))
        write_layout(tmp_path / tag, [BASE, tar_bytes([library])], {}, tag=tag)
        push(f"oci:{tmp_path / tag}:{tag}", f"{plain}/elf:{tag}")
    names = [f"registry:{proxy.address}/elf:{tag}" for tag in "ab"]
    images = [open_registry(name, None, INSECURE) for name in names]
    options = pipeline.Options(cache_dir=tmp_path / "cache", insecure=True)
    proxy.clear()
    report = pipeline.diff(names[0], names[1], options)
    assert [change.change.path for change in report.changes] == [b"usr/lib/libx.so"]
    (base, own_a), (_, own_b) = (layer_bytes(image) for image in images)
    assert [len(proxy.requests(digest)) for digest in (base, own_a, own_b)] == [1, 2, 2]
    counted = sum(image.transfer[0] for image in (report.image_a, report.image_b) if image.transfer)
    assert counted == proxy.sent("/v2/elf/")
    proxy.clear()
    question = pipeline.Options(cache_dir=tmp_path / "cache", insecure=True, accept=("dormant",))  # another one
    again = pipeline.diff(names[0], names[1], question)
    assert [change.change.delta for change in again.changes] == [change.change.delta for change in report.changes]
    assert not any(proxy.requests(digest) for digest in (base, own_a, own_b))
