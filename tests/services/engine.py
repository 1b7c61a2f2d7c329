"""A real engine for tests: docker's where DOCKER_HOST names one (services.sh, engines.sh), podman's own service."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
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


class Holding:
    """A proxy before an engine that holds back the answer to one request, behind so many bytes of it."""

    def __init__(self, words: bytes, behind: int) -> None:
        self.words = words
        self.behind = behind
        self.url = ""
        self.asked = threading.Event()  # the engine has the request
        self.go_on = threading.Event()  # its answer may pass

    def serve(self, server: socket.socket, upstream: str) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:  # it is over
                return
            threading.Thread(target=self._connection, args=(client, upstream), daemon=True).start()

    def _connection(self, client: socket.socket, upstream: str) -> None:
        with client, socket.socket(socket.AF_UNIX) as engine:
            engine.connect(upstream)
            back = threading.Thread(target=self._back, args=(client, engine), daemon=True)
            back.start()
            self._there(client, engine)
            back.join()

    def _there(self, client: socket.socket, engine: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                engine.sendall(data)
                if self.words in data:
                    self.asked.set()
            engine.shutdown(socket.SHUT_WR)

    def _back(self, client: socket.socket, engine: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := engine.recv(1 << 16):
                if self.asked.is_set():
                    first, data = data[: self.behind], data[self.behind :]
                    self.behind -= len(first)
                    client.sendall(first)
                    if data:
                        self.go_on.wait()
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)


@contextmanager
def holding(url: str, words: bytes, behind: int = 0) -> Iterator[Holding]:
    """Run a proxy before the engine at a Unix socket that holds back the answer to a request with these words in it."""
    directory = Path(tempfile.mkdtemp(prefix="h"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(directory / "s"))
        server.listen()
        proxy = Holding(words, behind)
        proxy.url = f"unix://{directory}/s"
        thread = threading.Thread(target=proxy.serve, args=(server, url.removeprefix("unix://")), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.go_on.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            shutil.rmtree(directory)


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
