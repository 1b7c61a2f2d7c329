"""Registries that run for all tests of this folder, and a docker configuration that is nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from imgdiff.sources.registry import Options
from tests.services import registries
from tests.services.faults import Proxy, fault_proxy
from tests.services.registries import Certificate, TokenService, make_certificate, push, registry, token_service
from tests.support.images import Member, put_image, tar_bytes, write_index

QUICK = Options(pause=0.005, longest_pause=0.02, read_timeout=20)
INSECURE = Options(insecure=True, pause=0.005, longest_pause=0.02, read_timeout=20)
BASE = tar_bytes([Member("base", b"base" * 5000), Member("etc/x", b"x")])
FIRST = tar_bytes([Member("app/one", b"1"), Member("app/two", b"2")])
SECOND = tar_bytes([Member("app/one", b"changed"), Member("app/two", b"2")])


@pytest.fixture(scope="session")
def programs() -> None:
    """Skip where a program is missing."""
    lacking = registries.missing()
    if lacking:
        pytest.skip(lacking)


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layout of two images, a and b, that share their base."""
    root = tmp_path_factory.mktemp("layout")
    name = "org.opencontainers.image.ref.name"
    images = [
        {**put_image(root, [BASE, layer], {"Env": ["A=1"]}), "annotations": {name: tag}}
        for tag, layer in (("a", FIRST), ("b", SECOND))
    ]
    write_index(root, images)
    return root


@pytest.fixture(scope="session")
def certificate(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session")
def data(programs: None, layout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A plain registry with imgdiff/x:a and :b, and public/x:a: its address and its files."""
    root = tmp_path_factory.mktemp("registry")
    with registry(root) as address:
        for name in ("imgdiff/x:a", "imgdiff/x:b", "public/x:a"):
            push(f"oci:{layout}:{name[-1]}", f"{address}/{name}")
        yield address, root / "data"


@pytest.fixture(scope="session")
def plain(data: tuple[str, Path]) -> str:
    return data[0]


@pytest.fixture(scope="session")
def with_login(
    data: tuple[str, Path], certificate: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The same images behind TLS and htpasswd."""
    root = tmp_path_factory.mktemp("login")
    with registry(root, certificate, registries.htpasswd(root), data[1]) as address:
        yield address


@pytest.fixture(scope="session")
def tokens(certificate: Certificate) -> Iterator[TokenService]:
    with token_service(certificate) as service:
        yield service


@pytest.fixture(scope="session")
def with_tokens(
    data: tuple[str, Path], tokens: TokenService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The same images behind a token service."""
    with registry(tmp_path_factory.mktemp("tokens"), None, tokens.auth(), data[1]) as address:
        yield address


@pytest.fixture(scope="session")
def one_proxy(plain: str) -> Iterator[Proxy]:
    with fault_proxy(plain) as proxy:
        yield proxy


@pytest.fixture
def proxy(one_proxy: Proxy) -> Proxy:
    """A proxy before the plain registry, without orders and with an empty log."""
    one_proxy.clear()
    return one_proxy


@pytest.fixture(autouse=True)
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory as docker's and podman's configuration, and no proxies and CA bundles from the environment."""
    directory = tmp_path / "docker-config"
    directory.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(directory))
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    for name in ("REGISTRY_AUTH_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return directory
