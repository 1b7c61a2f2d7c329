"""Image archives as the engines write them, made by hand.

Each builder mirrors what a real tool wrote for the same layers and config: docker 20.10.24, docker 26.1.5 with both
stores, skopeo 1.9.3, podman 4.3.1. Compared were the members (names, types, modes, link targets, sizes) and the bytes
of manifest.json, index.json, oci-layout and repositories. What differs is made up and read by nobody (the IDs of v1
layers and their ``json``), or the compressor's (Python's gzip gives other bytes than Go's), or white space in a
manifest of containerd's. crane's mirrors the source, pkg/v1/tarball/write.go of go-containerregistry.
``tests/sources/test_engines.py`` holds the same laws against the real ones.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.images import Member, compress, digest_of, full_config, json_bytes, tar_bytes

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass(frozen=True)
class Built:
    """An image to be written: uncompressed layers, what stands in its config, names such as ``engine/x:a``."""

    layers: Sequence[bytes]
    config: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()

    def config_bytes(self) -> bytes:
        return json_bytes(full_config(self.layers, self.config))


def hexed(data: bytes) -> str:
    """Return the digest without its algorithm."""
    return digest_of(data).removeprefix("sha256:")


def engine_tar(members: Sequence[Member]) -> bytes:
    """Return a tar as Go writes it: two blocks of zeros at the end, and no padding to a record."""
    size = sum(512 + -(-len(member.content) // 512) * 512 for member in members)
    return tar_bytes(members, tarfile.USTAR_FORMAT)[: size + 1024]


def write_docker20(path: Path, *images: Built) -> None:
    """``docker save`` up to version 24: ``ID/{VERSION,json,layer.tar}``, a layer that was there before as a link."""
    folders: dict[str, list[Member]] = {}
    configs: dict[str, bytes] = {}
    where: dict[bytes, str] = {}
    listing: list[dict[str, Any]] = []
    repositories: dict[str, Any] = {}
    for image in images:
        config, parent, names = image.config_bytes(), "", []
        for number, layer in enumerate(image.layers):
            top = config if number == len(image.layers) - 1 else b""
            own = hexed(parent.encode() + layer + top)
            state = {"id": own, **({"parent": parent} if parent else {}), "os": "linux"}
            held = where.setdefault(layer, own)
            folders[own] = [
                Member(f"{own}/", type="dir", mode=0o755),
                Member(f"{own}/VERSION", b"1.0"),
                Member(f"{own}/json", json_bytes(state)),
                Member(f"{own}/layer.tar", layer)
                if held == own
                else Member(f"{own}/layer.tar", type="symlink", target=f"../{held}/layer.tar", mode=0o777),
            ]
            names.append(f"{own}/layer.tar")
            parent = own
        configs[f"{hexed(config)}.json"] = config
        listing.append({"Config": f"{hexed(config)}.json", "RepoTags": list(image.tags) or None, "Layers": names})
        _repositories(repositories, image, parent)
    members = sorted(
        [*(member for folder in folders.values() for member in folder), *(Member(*item) for item in configs.items())],
        key=lambda member: str(member.path),
    )
    members.append(Member("manifest.json", json_bytes(listing) + b"\n"))
    if repositories:
        members.append(Member("repositories", json_bytes(repositories) + b"\n"))
    path.write_bytes(engine_tar(members))


def _repositories(repositories: dict[str, Any], image: Built, top: str) -> None:
    for tag in image.tags:
        name, _, version = tag.rpartition(":")
        repositories.setdefault(name, {})[version] = top


def write_docker26(path: Path, *images: Built) -> None:
    """``docker save`` from version 25 on, graph driver's store: OCI blobs, layers plain, ``LayerSources``, and the
    ``json`` of v1 layers as blobs that nothing refers to."""
    blobs: dict[str, bytes] = {}
    listing: list[dict[str, Any]] = []
    manifests: list[dict[str, Any]] = []
    repositories: dict[str, Any] = {}
    for image in images:
        config = image.config_bytes()
        layers = [_blob(blobs, layer, OCI_LAYER) for layer in image.layers]
        for number, layer in enumerate(layers):
            _blob(blobs, json_bytes({"id": hexed(f"{number} {layer['digest']}".encode()), "os": "linux"}), "")
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": _blob(blobs, config, OCI_CONFIG),
            "layers": layers,
        }
        manifests += _named(_blob(blobs, json_bytes(manifest), OCI_MANIFEST), image.tags)
        listing.append(
            {
                "Config": f"blobs/sha256/{hexed(config)}",
                "RepoTags": list(image.tags) or None,
                "Layers": [f"blobs/sha256/{hexed(layer)}" for layer in image.layers],
                "LayerSources": {
                    layer["digest"]: {key: layer[key] for key in ("mediaType", "size", "digest")}
                    for layer in sorted(layers, key=lambda layer: str(layer["digest"]))
                },
            }
        )
        _repositories(repositories, image, hexed(image.layers[-1]) if image.layers else "")
    members = [
        *_blob_members(blobs),
        Member("index.json", json_bytes(_index(manifests))),
        Member("manifest.json", json_bytes(listing) + b"\n"),
        Member("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'),
    ]
    if repositories:
        members.append(Member("repositories", json_bytes(repositories) + b"\n"))
    path.write_bytes(engine_tar(members))


def write_containerd(path: Path, *images: Built, docker_types: bool = False, platforms: bool = False) -> None:
    """``docker save`` from containerd's store: gzip layers, no ``repositories``.

    ``docker_types``: schema 2 manifests, as pulled from a registry of old. ``platforms``: a nested index, whose
    manifests for linux/arm64/v8 and the attestation are listed and not there, as after a pull for linux/amd64.
    """
    blobs: dict[str, bytes] = {}
    listing, manifests = [], []
    media_types = (DOCKER_MANIFEST, DOCKER_CONFIG, DOCKER_LAYER)
    manifest_type, config_type, layer_type = (
        media_types if docker_types else (OCI_MANIFEST, OCI_CONFIG, f"{OCI_LAYER}+gzip")
    )
    for image in images:
        stored = [compress(layer, "gzip") for layer in image.layers]
        config = image.config_bytes()
        manifest = {
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": _blob(blobs, config, config_type),
            "layers": [_blob(blobs, layer, layer_type) for layer in stored],
        }
        descriptor = _blob(blobs, json_bytes(manifest), manifest_type)
        if platforms:
            descriptor = _blob(blobs, json_bytes(_index(_with_absent(descriptor))), OCI_INDEX)
        manifests += _named(descriptor, image.tags)
        listing.append(
            {
                "Config": f"blobs/sha256/{hexed(config)}",
                "RepoTags": list(image.tags) or None,
                "Layers": [f"blobs/sha256/{hexed(layer)}" for layer in stored],
            }
        )
    members = [
        *_blob_members(blobs, mode=0o444),
        Member("index.json", json_bytes(_index(manifests))),
        Member("manifest.json", json_bytes(listing)),
        Member("oci-layout", b'{"imageLayoutVersion":"1.0.0"}', mode=0o444),
    ]
    path.write_bytes(engine_tar(members))


def _with_absent(descriptor: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a built-and-pulled index: this manifest, another platform's and an attestation (buildx)."""
    other, attestation = digest_of(b"linux/arm64"), digest_of(b"attestation")
    return [
        {**descriptor, "platform": {"architecture": "amd64", "os": "linux"}},
        {
            "mediaType": descriptor["mediaType"],
            "digest": other,
            "size": 1188,
            "platform": {"architecture": "arm64", "os": "linux", "variant": "v8"},
        },
        {
            "mediaType": OCI_MANIFEST,
            "digest": attestation,
            "size": 566,
            "annotations": {
                "vnd.docker.reference.digest": descriptor["digest"],
                "vnd.docker.reference.type": "attestation-manifest",
            },
            "platform": {"architecture": "unknown", "os": "unknown"},
        },
    ]


def write_skopeo_docker(path: Path, *images: Built) -> None:
    """``skopeo copy ... docker-archive:`` and ``podman save``: ``DIFFID.tar``, and ``ID/layer.tar`` as links to it."""
    members: dict[str, Member] = {}
    listing: list[dict[str, Any]] = []
    repositories: dict[str, Any] = {}
    for image in images:
        config, parent, names = image.config_bytes(), "", []
        for layer in image.layers:
            members.setdefault(f"{hexed(layer)}.tar", Member(f"{hexed(layer)}.tar", layer, mode=0o444))
        name = f"{hexed(config)}.json"
        members.setdefault(name, Member(name, config, mode=0o444))
        for layer in image.layers:
            own = hexed(parent.encode() + layer)
            state = {"id": own, **({"parent": parent} if parent else {})}
            for member in (
                Member(f"{own}/layer.tar", type="symlink", target=f"../{hexed(layer)}.tar", mode=0),
                Member(f"{own}/VERSION", b"1.0", mode=0o444),
                Member(f"{own}/json", json_bytes(state), mode=0o444),
            ):
                members.setdefault(str(member.path), member)
            names.append(f"{hexed(layer)}.tar")
            parent = own
        listing.append({"Config": name, "RepoTags": list(image.tags), "Layers": names})
        _repositories(repositories, image, parent)
    members["manifest.json"] = Member("manifest.json", json_bytes(listing), mode=0o444)
    members["repositories"] = Member("repositories", json_bytes(repositories), mode=0o444)
    path.write_bytes(engine_tar(list(members.values())))


def write_oci_archive(path: Path, image: Built) -> None:
    """``skopeo copy ... oci-archive:`` and ``podman save --format oci-archive``: a layout in a tar, gzip layers."""
    blobs: dict[str, bytes] = {}
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": _blob(blobs, image.config_bytes(), OCI_CONFIG),
        "layers": [_blob(blobs, compress(layer, "gzip"), f"{OCI_LAYER}+gzip") for layer in image.layers],
    }
    descriptor = _blob(blobs, json_bytes(manifest), OCI_MANIFEST)
    if image.tags:
        descriptor["annotations"] = {"org.opencontainers.image.ref.name": image.tags[0]}
    members = [
        *_blob_members(blobs),
        Member("index.json", json_bytes({"schemaVersion": 2, "manifests": [descriptor]})),
        Member("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'),
    ]
    path.write_bytes(engine_tar(members))


def write_skopeo_dir(directory: Path, image: Built) -> None:
    """``skopeo copy ... dir:``, ``podman save --format docker-dir``: a file per blob, layers plain under gzip's type."""
    directory.mkdir(parents=True)
    blobs: dict[str, bytes] = {}
    manifest = {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": _skopeo(_blob(blobs, image.config_bytes(), DOCKER_CONFIG)),
        "layers": [_skopeo(_blob(blobs, layer, DOCKER_LAYER)) for layer in image.layers],
    }
    for digest, data in blobs.items():
        (directory / digest.removeprefix("sha256:")).write_bytes(data)
    (directory / "manifest.json").write_bytes(json_bytes(manifest))
    (directory / "version").write_bytes(b"Directory Transport Version: 1.1\n")


def _skopeo(descriptor: dict[str, Any]) -> dict[str, Any]:
    return {key: descriptor[key] for key in ("mediaType", "size", "digest")}


def write_crane(path: Path, *images: Built) -> None:
    """``crane pull``: the config under its whole digest, layers as stored under ``HEX.tar.gz``."""
    members: dict[str, Member] = {}
    listing = []
    for image in images:
        config = image.config_bytes()
        stored = [compress(layer, "gzip") for layer in image.layers]
        members.setdefault(digest_of(config), Member(digest_of(config), config))
        for layer in stored:
            members.setdefault(f"{hexed(layer)}.tar.gz", Member(f"{hexed(layer)}.tar.gz", layer))
        listing.append(
            {
                "Config": digest_of(config),
                "RepoTags": list(image.tags) or None,
                "Layers": [f"{hexed(layer)}.tar.gz" for layer in stored],
            }
        )
    members["manifest.json"] = Member("manifest.json", json_bytes(listing))
    path.write_bytes(engine_tar(list(members.values())))


ARCHIVES: Mapping[str, Callable[[Path, Built], None]] = {
    "docker20": write_docker20,
    "docker26": write_docker26,
    "containerd": write_containerd,
    "containerd-schema2": lambda path, image: write_containerd(path, image, docker_types=True),
    "containerd-platforms": lambda path, image: write_containerd(path, image, platforms=True),
    "skopeo-docker": write_skopeo_docker,
    "oci-archive": write_oci_archive,
    "crane": write_crane,
}


def _blob(blobs: dict[str, bytes], data: bytes, media_type: str) -> dict[str, Any]:
    blobs[digest_of(data)] = data
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}


def _blob_members(blobs: Mapping[str, bytes], mode: int = 0o644) -> list[Member]:
    folders = [Member("blobs/", type="dir"), Member("blobs/sha256/", type="dir")]
    files = sorted((digest.removeprefix("sha256:"), data) for digest, data in blobs.items())
    return [*folders, *(Member(f"blobs/sha256/{name}", data, mode=mode) for name, data in files)]


def _index(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": list(manifests)}


def _named(descriptor: dict[str, Any], tags: Sequence[str]) -> list[dict[str, Any]]:
    """Return one descriptor a tag, as containerd's exporter names them."""
    return [
        {
            **descriptor,
            "annotations": {
                "io.containerd.image.name": tag if re.match("[^/]*[.:][^/]*/", tag) else f"docker.io/{tag}",
                "org.opencontainers.image.ref.name": tag.rpartition(":")[2],
            },
        }
        for tag in tags
    ] or [descriptor]
