"""A real engine for tests: docker's where DOCKER_HOST names one (services.sh, engines.sh), podman's own service."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PODMAN_CONF = """\
[containers]
default_ulimits=["nofile=1024:1024","nproc=4096:4096"]
netns="none"
[engine]
runtime="runc"
cgroup_manager="cgroupfs"
events_logger="file"
"""


def docker(*command: str, host: str | None = None) -> str:
    """Run docker's client and return what it says."""
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    if host is not None:
        environment["DOCKER_HOST"] = host
    done = subprocess.run(["docker", *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {command}: {done.stderr}"
    return done.stdout.strip()


def docker_host() -> str:
    """Return DOCKER_HOST, or skip."""
    host = os.environ.get("DOCKER_HOST", "")
    if not host or shutil.which("docker") is None:
        pytest.skip("a docker engine (DOCKER_HOST) is missing")
    return host


@contextmanager
def podman_service() -> Iterator[str]:
    """Run podman's service with a store of its own and give its URL (a short path: podman takes 50 characters)."""
    if shutil.which("podman") is None:
        pytest.skip("podman is missing")
    root = Path(tempfile.mkdtemp(prefix="p"))
    (root / "conf").write_text(PODMAN_CONF)
    url = f"unix://{root}/s"
    command = ["podman", "--root", f"{root}/root", "--runroot", f"{root}/run", "--storage-driver", "vfs"]
    environment = {**os.environ, "CONTAINERS_CONF": f"{root}/conf"}
    with (root / "log").open("w") as log:
        process = subprocess.Popen([*command, "system", "service", "--time=0", url], env=environment, stderr=log)
    try:
        for _ in range(300):
            if (root / "s").exists():
                break
            assert process.poll() is None, (root / "log").read_text()
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(root, ignore_errors=True)
