"""Engines that have the images."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.record.images import left, load, make
from tests.services.engine import docker_host, podman_service
from tests.support.command import Ran, Shell


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    for tool in ("skopeo", "docker"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing")
    if not Path("/usr/bin/python3.11").exists():
        pytest.skip("Debian's Python 3.11 is missing")
    return make(tmp_path_factory.mktemp("recorded"))


@dataclass
class Engine:
    """A real engine, and imgdiff on a command line that finds no other."""

    kind: str
    url: str
    shell: Shell

    @property
    def env(self) -> dict[str, str]:
        none = "unix:///imgdiff-no-such.sock"
        docker, podman = (self.url, none) if self.kind == "docker" else (none, self.url)
        return {"DOCKER_HOST": docker, "CONTAINER_HOST": podman}

    def run(self, *arguments: str | Path, **env: str) -> Ran:
        return self.shell.run(*arguments, **self.env, **env)

    def record(self, *arguments: str | Path, code: int = 0, **env: str) -> Ran:
        """Record, without network: the test's engine has none. Nothing may be left in it."""
        ran = self.run("record", "--network", "none", *arguments, **env)
        assert ran.code == code, ran
        assert left(self.url) == ("", "")
        assert ran.out == ""
        return ran

    @property
    def here(self) -> Path:
        return self.shell.directory


@pytest.fixture(scope="session")
def docker_url(archives: dict[str, Path]) -> str:
    host = docker_host()
    load(host, archives)
    return host


@pytest.fixture(scope="session")
def podman_url(archives: dict[str, Path]) -> Iterator[str]:
    with podman_service() as url:
        load(url, archives)
        yield url


@pytest.fixture
def dockerd(docker_url: str, tmp_path: Path) -> Engine:
    return Engine("docker", docker_url, Shell(tmp_path))


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """Each engine in turn."""
    return Engine(request.param, request.getfixturevalue(f"{request.param}_url"), Shell(tmp_path))
