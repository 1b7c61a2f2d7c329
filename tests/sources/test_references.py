"""References: schemes, tags, digests, colons in paths, and what a name that is no path is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from imgdiff.errors import ImageError, ServiceError, UnknownReferenceError, UsageError
from imgdiff.model import Image
from imgdiff.sources import open_image, registry
from tests.support.archives import Built, write_containerd, write_docker20, write_docker26, write_skopeo_docker
from tests.support.images import Member, digest_of, put_image, tar_bytes, write_index, write_layout

Write = Callable[..., None]

ONE = tar_bytes([Member("one", b"1")])
TWO = tar_bytes([Member("two", b"2")])
A = Built([ONE], {"Env": ["A=1"]}, ["engine/x:a", "engine/x:latest"])
B = Built([TWO], {"Env": ["B=1"]}, ["engine/x:b"])
OTHER = Built([TWO, ONE], {}, ["other/y:a"])


def layers(reference: str) -> list[str | None]:
    return [layer.diff_id for layer in open_image(reference).layers]


@pytest.mark.parametrize("write", [write_docker20, write_docker26, write_containerd, write_skopeo_docker])
def test_tags_of_an_archive_with_several_images(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    write(path, A, B, OTHER)
    one, two = [digest_of(ONE)], [digest_of(TWO)]
    assert layers(f"{path}:engine/x:a") == one
    assert layers(f"{path}:docker.io/engine/x:a") == one
    assert layers(f"{path}:latest") == one
    assert layers(f"{path}:b") == two
    assert layers(f"docker-archive:{path}:b") == two
    assert layers(f"{path}:other/y:a") == [*two, *one]
    with pytest.raises(
        ImageError, match=r"could be each of 3 images: .*engine/x:a, .*engine/x:b and .*other/y:a"
    ) as caught:
        open_image(str(path))
    assert caught.value.hint is not None
    assert f"{path}:" in caught.value.hint
    assert layers(caught.value.hint.partition(": ")[2]) == one
    with pytest.raises(ImageError, match="could be each of"):
        open_image(f"{path}:a")  # engine/x:a or other/y:a
    with pytest.raises(ImageError, match=r"no image 'nightly': it has .*engine/x:a"):
        open_image(f"{path}:nightly")
    with pytest.raises(ImageError, match="no image 'engine/x:c'"):
        open_image(f"{path}:engine/x:c")


@pytest.mark.parametrize("write", [write_docker20, write_skopeo_docker])
def test_image_ids_of_an_archive(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    write(path, A, B)
    assert layers(f"{path}@{digest_of(B.config_bytes())}") == [digest_of(TWO)]
    assert layers(f"{path}:engine/x:a@{digest_of(A.config_bytes())}") == [digest_of(ONE)]
    with pytest.raises(ImageError, match="no image 'engine/x:b'"):
        open_image(f"{path}:engine/x:b@{digest_of(A.config_bytes())}")
    with pytest.raises(ImageError, match="no image @sha256:0000"):
        open_image(f"{path}@sha256:{'0' * 64}")


def test_untagged_images_are_listed_by_digest(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    write_docker26(path, Built([ONE]), Built([TWO]))
    with pytest.raises(ImageError, match=r"could be each of 2 images: @sha256:.* and @sha256:") as caught:
        open_image(str(path))
    assert caught.value.hint is not None
    hinted = caught.value.hint.partition(": ")[2]
    assert layers(hinted) in ([digest_of(ONE)], [digest_of(TWO)])
    listed = str(caught.value).partition("images: ")[2].split(" and ")
    assert listed == sorted(listed)
    assert hinted.endswith(listed[0])
    with pytest.raises(ImageError, match="nothing in it has a name"):
        open_image(f"{path}:a")


def test_two_tags_of_one_image_are_one(tmp_path: Path) -> None:
    for write in (write_docker20, write_docker26, write_containerd, write_skopeo_docker):
        write(tmp_path / "image.tar", A)
        assert layers(str(tmp_path / "image.tar")) == [digest_of(ONE)]


def test_tags_and_digests_of_a_layout(tmp_path: Path) -> None:
    root = tmp_path / "oci"
    first, second = put_image(root, [ONE], {}), put_image(root, [TWO], {})
    name = "org.opencontainers.image.ref.name"
    write_index(root, [{**first, "annotations": {name: "a"}}, {**second, "annotations": {name: "host:5000/n/x:b"}}])
    assert layers(f"{root}:a") == layers(f"oci:{root}:a") == [digest_of(ONE)]
    assert layers(f"{root}:host:5000/n/x:b") == layers(f"{root}:b") == [digest_of(TWO)]
    assert layers(f"{root}@{second['digest']}") == [digest_of(TWO)]
    assert layers(f"{root}:a@{first['digest']}") == [digest_of(ONE)]
    with pytest.raises(ImageError, match="a and host:5000/n/x:b"):
        open_image(str(root))
    with pytest.raises(ImageError, match="no image 'b'"):
        open_image(f"{root}:b@{first['digest']}")


def test_a_path_with_colons_wins(tmp_path: Path) -> None:
    write_layout(tmp_path / "x:a", [ONE], {}, tag="t")
    write_layout(tmp_path / "x", [TWO], {}, tag="a")
    assert layers(f"{tmp_path}/x:a") == [digest_of(ONE)]
    assert layers(f"{tmp_path}/x:a:t") == [digest_of(ONE)]
    assert layers(f"oci:{tmp_path}/x:a") == [digest_of(ONE)]
    assert layers(f"{tmp_path}/x") == [digest_of(TWO)]
    pinned = f"at@sha256:{'0' * 64}"
    write_layout(tmp_path / pinned, [ONE], {})
    assert layers(f"{tmp_path}/{pinned}") == [digest_of(ONE)]


def test_a_path_that_looks_like_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_layout(Path("oci:x"), [ONE], {})
    assert layers("oci:x") == layers("./oci:x") == [digest_of(ONE)]
    write_layout(Path("x"), [TWO], {})
    assert layers("oci:x") == [digest_of(TWO)]  # the scheme, now that it names something
    assert layers("./oci:x") == [digest_of(ONE)]


@pytest.mark.parametrize(
    "reference", ["intel/vllm:a", "ubuntu", "ghcr.io/x/y@sha256:" + "0" * 64, "localhost:5000/x/y:1.0-rc1"]
)
def test_a_name_that_is_no_path_is_looked_for_in_its_registry(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[tuple[str, str | None, bool]] = []

    def refuse(given: str, platform: str | None, options: registry.Options) -> Image:
        asked.append((given, platform, options.insecure))
        raise ServiceError("the registry is away", "try again")

    monkeypatch.setattr(registry, "open_registry", refuse)
    with pytest.raises(ServiceError, match=r"is no path; .*: the registry is away") as caught:
        open_image(reference, "linux/arm64", insecure=True)
    assert caught.value.hint == "try again"
    assert asked == [(reference, "linux/arm64", True)]
    monkeypatch.setattr(registry, "open_registry", None)
    write_layout(tmp_path / "ubuntu", [ONE], {})  # a path that exists wins
    assert layers("ubuntu") == [digest_of(ONE)]


def test_what_other_tools_call_a_name() -> None:
    with pytest.raises(UnknownReferenceError, match="names no image") as caught:
        open_image("containers-storage:vllm/vllm-openai:v1")
    assert caught.value.hint is not None
    assert "registry:NAME" in caught.value.hint


@pytest.mark.parametrize(
    "reference",
    ["", ":", "oci:", "oci::", "./gone", "/gone/x.tar", "gone.tar", "gone.tar:a", "oci:gone", "dir:gone:a", "rootfs:x",
     "a\0b", "x" * 5000, "../" * 3000, "@", "gone@sha256:12", "\x1b[31mred", "\udcff", "a:b:c:d", "docker-archive:g"],
)  # fmt: skip
def test_a_path_that_is_not_there(reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownReferenceError) as caught:
        open_image(reference)
    sentence = f"{caught.value} {caught.value.hint}"
    assert sentence.isprintable()
    assert len(sentence) < 1200


def test_scheme_and_kind_of_path_differ(tmp_path: Path) -> None:
    write_layout(tmp_path / "oci", [ONE], {})
    write_docker20(tmp_path / "image.tar", A)
    for reference, hint in (
        (f"oci:{tmp_path}/image.tar", "oci-archive:"),
        (f"oci-archive:{tmp_path}/oci", "oci:"),
        (f"docker-archive:{tmp_path}/oci", "oci:"),
    ):
        with pytest.raises(UnknownReferenceError) as caught:
            open_image(reference)
        assert caught.value.hint is not None
        assert hint in caught.value.hint


def test_platform_must_be_one(tmp_path: Path) -> None:
    for text in ("", "linux", "linux/", "/", "a/b/c/d", "linux/am d64", "linux/\x1b[0m"):
        with pytest.raises(UsageError, match="is no platform"):
            open_image(str(tmp_path), text)
