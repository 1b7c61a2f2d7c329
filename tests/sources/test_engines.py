"""Archives and layouts that real engines and tools wrote: run by ``tests/services/engines.sh pytest -m engine``."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from imgdiff.errors import BlobError, ImageError
from imgdiff.model import Image
from imgdiff.sources import open_image
from tests.support.archives import OCI_INDEX
from tests.support.images import Member, digest_of, put_image, put_json, tar_bytes, write_index, write_layout

pytestmark = pytest.mark.engine

DOCKERFILE = """\
FROM scratch
COPY one /a/one
COPY two /a/two
COPY one /a/one
ENV A=1 B=2
LABEL x=y
WORKDIR /w
ENTRYPOINT ["/bin/x", "y"]
CMD ["z"]
"""
NAME = "imgdiff-test/sources"
PODMAN_CONF = """\
[containers]
default_ulimits=["nofile=1024:1024","nproc=4096:4096"]
netns="none"
[engine]
cgroup_manager="cgroupfs"
events_logger="file"
"""


def missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI has to have it")
    pytest.skip(f"{what} is missing")


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def tool(name: str) -> str:
    if shutil.which(name) is None:
        missing(name)
    return name


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Build two images, save them in all ways, and give the directory; remove them from the engine at the end."""
    if not os.environ.get("DOCKER_HOST"):
        missing("a docker engine (DOCKER_HOST)")
    tool("docker")
    work = tmp_path_factory.mktemp("engine")
    (work / "one").write_text("one\n")
    (work / "two").write_bytes(hashlib.sha512(b"two").digest() * 400)
    (work / "Dockerfile").write_text(DOCKERFILE)
    (work / "Dockerfile.b").write_text(f"FROM {NAME}:a\nCOPY two /b\n")
    docker_build = ("docker", "build", "-q", "--network", "none")
    run(*docker_build, "-t", f"{NAME}:a", str(work), DOCKER_BUILDKIT="0")
    run(*docker_build, "-t", f"{NAME}:b", "-f", str(work / "Dockerfile.b"), str(work), DOCKER_BUILDKIT="0")
    run("docker", "tag", f"{NAME}:a", f"{NAME}:again")
    identity = run("docker", "inspect", "-f", "{{.Id}}", f"{NAME}:a").strip()
    for file, names in (
        ("a.tar", [f"{NAME}:a"]),
        ("tags.tar", [f"{NAME}:a", f"{NAME}:again"]),
        ("both.tar", [f"{NAME}:a", f"{NAME}:b"]),
        ("id.tar", [identity]),
    ):
        run("docker", "save", "-o", str(work / file), *names)
    yield work
    run("docker", "rmi", "-f", f"{NAME}:a", f"{NAME}:again", f"{NAME}:b")


def inspected(tag: str = "a") -> dict[str, Any]:
    return dict(json.loads(run("docker", "inspect", f"{NAME}:{tag}"))[0])


def check(image: Image, *, tag: str = "a") -> None:
    """Hold an image against what the engine itself says of it, and its layers against their digests."""
    engine = inspected(tag)
    assert [layer.diff_id for layer in image.layers] == engine["RootFS"]["Layers"]
    assert image.platform == f"{engine['Os']}/{engine['Architecture']}"
    assert image.config is not None
    assert list(image.config.env) == engine["Config"]["Env"]
    assert (image.config.entrypoint, image.config.cmd) == (("/bin/x", "y"), ("z",))
    assert (image.config.working_dir, image.config.labels) == ("/w", {"x": "y"})
    for layer in image.layers:
        with layer.open() as stream:
            stored = stream.read()
        assert layer.descriptor is not None
        assert (layer.descriptor.digest, layer.descriptor.size) == (digest_of(stored), len(stored))
        assert digest_of(gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored) == layer.diff_id


def test_docker_save(built: Path) -> None:
    for name in ("a.tar", "tags.tar", "id.tar"):
        image = open_image(str(built / name))
        assert image.source == "docker-archive"
        check(image)
    check(open_image(f"docker-archive:{built}/a.tar"))
    for reference in (f"{built}/both.tar:b", f"{built}/both.tar:{NAME}:b", f"{built}/both.tar:docker.io/{NAME}:b"):
        check(open_image(reference), tag="b")
    with pytest.raises(ImageError, match=rf"could be each of 2 images: .*{NAME}:a and .*{NAME}:b"):
        open_image(str(built / "both.tar"))


def test_docker_save_compressed(built: Path, tmp_path: Path) -> None:
    with (tmp_path / "a.tar.gz").open("wb") as packed:
        subprocess.run(["gzip", "-c", str(built / "a.tar")], stdout=packed, check=True)
    check(open_image(str(tmp_path / "a.tar.gz")))


@pytest.mark.parametrize("name", ["oci", "oci-archive", "dir", "docker-archive"])
def test_skopeo(name: str, built: Path, tmp_path: Path) -> None:
    target = f"{name}:{tmp_path}/x" + {"dir": "", "docker-archive": f":{NAME}:a"}.get(name, ":a")
    run(tool("skopeo"), "--insecure-policy", "copy", "-q", f"docker-archive:{built}/a.tar", target)
    image = open_image(f"{tmp_path}/x")
    assert image.source == name
    check(image)
    check(open_image(target))


def test_skopeo_zstd(built: Path, tmp_path: Path) -> None:
    layout = f"oci:{tmp_path}/x:a"
    source = f"docker-archive:{built}/a.tar"
    run(tool("skopeo"), "--insecure-policy", "copy", "-q", "--dest-compress-format", "zstd", source, layout)
    image = open_image(layout)
    assert [layer.diff_id for layer in image.layers] == inspected()["RootFS"]["Layers"]
    for layer in image.layers:
        with layer.open() as stream:
            assert layer.descriptor is not None
            assert digest_of(stream.read()) == layer.descriptor.digest


@pytest.fixture
def podman() -> Iterator[Callable[..., str]]:
    """Give a podman with a store of its own (in a short path: it takes 50 characters at most)."""
    tool("podman")
    root = Path(tempfile.mkdtemp(prefix="p"))
    (root / "conf").write_text(PODMAN_CONF)
    command = ("podman", "--root", f"{root}/root", "--runroot", f"{root}/run", "--storage-driver", "vfs")
    yield lambda *arguments: run(*command, *arguments, CONTAINERS_CONF=f"{root}/conf")
    shutil.rmtree(root)


def podman_load(podman: Callable[..., str], saved: str, plain: str, tag: str) -> None:
    """Load an image through skopeo: podman 4.3 can't save again what it loads from containerd's store itself."""
    source, target = f"docker-archive:{saved}", f"docker-archive:{plain}:{NAME}:{tag}"
    run(tool("skopeo"), "--insecure-policy", "copy", "-q", source, target)
    podman("load", "-q", "-i", plain)


@pytest.mark.parametrize("name", ["docker-archive", "oci-archive", "oci-dir", "docker-dir"])
def test_podman_save(name: str, built: Path, tmp_path: Path, podman: Callable[..., str]) -> None:
    podman_load(podman, f"{built}/a.tar", f"{tmp_path}/a.tar", "a")
    podman("save", "-q", "--format", name, "-o", f"{tmp_path}/x", f"{NAME}:a")
    image = open_image(f"{tmp_path}/x")
    assert image.source == {"oci-dir": "oci", "docker-dir": "dir"}.get(name, name)
    check(image)


def test_podman_saves_several(built: Path, tmp_path: Path, podman: Callable[..., str]) -> None:
    for tag in ("a", "b"):
        run("docker", "save", "-o", f"{tmp_path}/saved-{tag}.tar", f"{NAME}:{tag}")
        podman_load(podman, f"{tmp_path}/saved-{tag}.tar", f"{tmp_path}/{tag}.tar", tag)
    podman("save", "-q", "-m", "-o", f"{tmp_path}/x", f"{NAME}:a", f"{NAME}:b")
    check(open_image(f"{tmp_path}/x:localhost/{NAME}:a"))
    check(open_image(f"{tmp_path}/x:{NAME}:b"), tag="b")


def test_schema_2_and_platforms_through_a_registry(built: Path, tmp_path: Path) -> None:
    """What a pull leaves in the engine's store: containerd's keeps the pulled manifests, the other makes its own.

    The layers are no other image's: containerd's store of docker 26 leaves out blobs of a second image that has the
    layers of one that is there (with exit code 0; ``test_an_incomplete_archive``).
    """
    registry = os.environ.get("IMGDIFF_TEST_REGISTRY") or ""
    if not registry:
        missing("a registry (IMGDIFF_TEST_REGISTRY)")
    skopeo = (tool("skopeo"), "--insecure-policy", "copy", "-q", "--dest-tls-verify=false")
    old, new = tar_bytes([Member("old", b"1")]), tar_bytes([Member("new", b"1")])
    write_layout(tmp_path / "s2", [old], {"Env": ["A=1"]}, tag="a")
    run(*skopeo, "-f", "v2s2", f"oci:{tmp_path}/s2:a", f"docker://{registry}/imgdiff-test/s2:a")
    write_multi(tmp_path / "multi", new)
    run(*skopeo, "--all", f"oci:{tmp_path}/multi:m", f"docker://{registry}/imgdiff-test/multi:m")
    for name in ("s2:a", "multi:m"):
        run("docker", "pull", "-q", "--platform", "linux/amd64", f"{registry}/imgdiff-test/{name}")
        run("docker", "save", "-o", f"{tmp_path}/{name}.tar", f"{registry}/imgdiff-test/{name}")
        run("docker", "rmi", "-f", f"{registry}/imgdiff-test/{name}")
    for name, layer in (("s2:a", old), ("multi:m", new)):
        for image in (open_image(f"{tmp_path}/{name}.tar"), open_image(f"{tmp_path}/{name}.tar", "linux/amd64")):
            assert image.platform == "linux/amd64"
            assert [each.diff_id for each in image.layers] == [digest_of(layer)]
    with pytest.raises(ImageError, match="for linux/arm64"):  # listed and not held, or never known
        open_image(f"{tmp_path}/multi:m.tar", "linux/arm64")


def write_multi(directory: Path, layer: bytes) -> None:
    """Write a layout of an index for two platforms with an attestation, as buildx pushes it."""
    amd, arm = (put_image(directory, [layer], {"architecture": each, "os": "linux"}) for each in ("amd64", "arm64"))
    attestation = put_image(directory, [], {"architecture": "unknown", "os": "unknown"})
    notes = {"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": amd["digest"]}
    manifests = [
        {**amd, "platform": {"os": "linux", "architecture": "amd64"}},
        {**arm, "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}},
        {**attestation, "platform": {"os": "unknown", "architecture": "unknown"}, "annotations": notes},
    ]
    index = put_json(directory, {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}, OCI_INDEX)
    write_index(directory, [{**index, "annotations": {"org.opencontainers.image.ref.name": "m"}}])


def test_an_incomplete_archive(built: Path, tmp_path: Path) -> None:
    """Two images with the same diffIDs and other compressed layers: what an engine saves is whole or refused."""
    registry = os.environ.get("IMGDIFF_TEST_REGISTRY") or ""
    if not registry:
        missing("a registry (IMGDIFF_TEST_REGISTRY)")
    name = f"{registry}/imgdiff-test/twin:a"
    skopeo = (tool("skopeo"), "--insecure-policy", "copy", "-q", "--dest-tls-verify=false")
    run(*skopeo, "-f", "v2s2", f"docker-archive:{built}/a.tar", f"docker://{name}")
    run("docker", "pull", "-q", name)
    run("docker", "save", "-o", f"{tmp_path}/x.tar", name)
    run("docker", "rmi", "-f", name)
    try:
        image = open_image(f"{tmp_path}/x.tar")
    except BlobError as error:
        incomplete = str(error)
        assert "lacks" in incomplete
    else:
        check(image)
