"""Where engines are looked for, and what is said when none answers: without any engine."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from imgdiff.errors import ServiceError, UnknownReferenceError
from imgdiff.sources import daemon, open_image, registry
from imgdiff.sources.daemon._address import addresses
from imgdiff.sources.daemon._engine import Engine


def docker(environment: dict[str, str]) -> tuple[str, str]:
    (address,) = addresses("docker", environment)
    return address.url, address.origin


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("DOCKER_CONFIG", "DOCKER_CONTEXT", "CONTAINER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CLIENT_TIMEOUT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def context(home: Path, name: str, host: str | None) -> None:
    directory = home / ".docker" / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    directory.mkdir(parents=True)
    endpoints = {} if host is None else {"docker": {"Host": host, "SkipTLSVerify": False}}
    (directory / "meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoints}))


def test_docker_host_goes_first(home: Path) -> None:
    environment = {"HOME": str(home), "DOCKER_HOST": "tcp://127.0.0.1:2375", "DOCKER_CONTEXT": "x"}
    assert docker(environment) == ("tcp://127.0.0.1:2375", "DOCKER_HOST")
    assert docker({"DOCKER_HOST": "unix:///x.sock"})[0] == docker({"DOCKER_HOST": "/x.sock"})[0] == "unix:///x.sock"
    assert docker({"HOME": str(home)}) == ("unix:///var/run/docker.sock", "")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("tcp://h", "tcp://h:2375"),
        ("h", "tcp://h:2375"),
        ("tcp://[::1]", "tcp://[::1]:2375"),
        ("tcp://user:word@h/x", "tcp://user:word@h:2375/x"),
        ("tcp://h:1", "tcp://h:1"),
        ("tcp://[::1]:1", "tcp://[::1]:1"),
        ("unix:/x", "unix:///x"),
        ("ssh://h", "ssh://h"),
    ],
)
def test_the_port_that_docker_takes_where_none_is_named(host: str, url: str, home: Path) -> None:
    assert docker({"DOCKER_HOST": host})[0] == url
    encrypted = {"DOCKER_HOST": host, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(home)}
    assert docker(encrypted)[0] == url.replace(":2375", ":2376")


def test_contexts(home: Path) -> None:
    context(home, "far", "tcp://10.0.0.1:2376")
    context(home, "none", None)
    environment = {"HOME": str(home)}
    assert docker({**environment, "DOCKER_CONTEXT": "far"})[0] == "tcp://10.0.0.1:2376"
    (home / ".docker" / "config.json").write_text('{"currentContext": "far"}')
    assert docker(environment)[0] == "tcp://10.0.0.1:2376"
    assert docker({**environment, "DOCKER_CONTEXT": "default"})[0] == "unix:///var/run/docker.sock"
    for name, words in (("gone", "is not there"), ("none", "has no docker engine")):
        with pytest.raises(ServiceError, match=words):
            addresses("docker", {**environment, "DOCKER_CONTEXT": name})
    (home / ".docker" / "config.json").write_text("{")
    with pytest.raises(ServiceError, match="no valid JSON"):
        addresses("docker", environment)


def test_tls_files(home: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (home / name).write_text("x")
    environment = {"DOCKER_HOST": "tcp://h:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(home)}
    (address,) = addresses("docker", environment)
    assert (address.tls, address.verify, address.ca) == (True, True, str(home / "ca.pem"))


def test_podmans_sockets(home: Path) -> None:
    urls = [address.url for address in addresses("podman", {"XDG_RUNTIME_DIR": "/run/user/7"})]
    assert urls == ["unix:///run/user/7/podman/podman.sock", "unix:///run/podman/podman.sock"]
    assert [each.url for each in addresses("podman", {"CONTAINER_HOST": "unix:///p"})] == ["unix:///p"]


@pytest.mark.parametrize("host", ["tcp://user:secret@h:1", "tcp://secret@h", "http://user:secret@[", "x://a:secret@b"])
def test_a_login_is_never_shown(host: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(ServiceError) as caught:
        open_image("docker:x")
    assert "secret" not in str(caught.value) + str(caught.value.hint)


def test_an_engine_over_ssh_says_what_it_takes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://user@127.0.0.1:1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ServiceError, match="is reached over ssh, which needs the package paramiko") as caught:
        open_image("docker:x")
    assert "ssh -nNT -L" in str(caught.value.hint)


def test_no_engine_is_one_sentence(home: Path) -> None:
    with pytest.raises(ServiceError, match=r"no docker engine .* is running: there is no such socket") as caught:
        open_image("docker:x:a")
    assert "systemctl start docker" in str(caught.value.hint)
    with pytest.raises(ServiceError, match="no podman engine"):
        open_image("podman:x:a")
    with pytest.raises(ServiceError, match="no docker engine"):
        open_image("container:x")


def test_a_bare_name_says_where_it_was_looked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> object:
        raise UnknownReferenceError("docker.io has no image x", "check the name")

    monkeypatch.setattr(registry, "open_registry", unknown)
    with pytest.raises(UnknownReferenceError) as caught:
        open_image("x:a")
    message = str(caught.value)
    for words in ("it is no path", "no docker engine", "no podman engine", "in its registry: docker.io has no image x"):
        assert words in message
    with pytest.raises(UnknownReferenceError, match="it is no path") as caught:
        open_image("sha256:" + "0" * 64)
    assert "registry" not in str(caught.value)


@pytest.mark.parametrize("given", ["./x", "../x", "./x:a", "./x/y"])
def test_a_relative_path_is_looked_for_nowhere_else(given: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "open_registry", pytest.fail)
    with pytest.raises(UnknownReferenceError, match="there is no such file or directory") as caught:
        open_image(given)
    assert "docker engine" not in str(caught.value)


def test_a_name_beside_a_directory_that_is_no_image(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def found(name: str, *_: object) -> daemon.Search:
        asked.append(name)
        raise ServiceError("enough")

    monkeypatch.setattr(daemon, "find_image", found)
    (home / "vllm" / "lib").mkdir(parents=True)
    with pytest.raises(ServiceError, match="enough"):
        open_image("vllm:nightly")
    assert asked == ["vllm:nightly"]


@contextmanager
def answering(path: Path, answer: bytes | None) -> Iterator[str]:
    """Run something on a socket that gives one answer to everything; None: it never answers."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        over = threading.Event()
        held: list[socket.socket] = []

        def serve() -> None:
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    with contextlib.suppress(OSError):  # a client that only knocked is gone
                        connection.recv(1 << 16)
                        connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()
            thread.join()


def http(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_an_engine_that_hangs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CLIENT_TIMEOUT", "0.3")
    with answering(home / "s", None) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        with pytest.raises(ServiceError, match=r"did not answer in time \(0.3 s\)") as caught:
            open_image("docker:x")
    assert "DOCKER_CLIENT_TIMEOUT" in str(caught.value.hint)


def test_what_is_no_engine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(home / "s", b"SSH-2.0-x\r\n") as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        with pytest.raises(ServiceError, match="docker engine"):
            open_image("docker:x")


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        ("500 x", "write /data/tmp/x: no space left on device", "the disk of the .* is full"),
        ("500 x", "something\x1b[31m broke", r"failed: something\\x1b\[31m broke"),
    ],
)
def test_what_an_engine_says(status: str, message: str, words: str) -> None:
    class Client:
        pass

    engine = Engine.__new__(Engine)
    (engine.address,) = addresses("docker", {"DOCKER_HOST": "unix:///x"})
    error = engine._refusal(int(status[:3]), message)
    assert isinstance(error, ServiceError)
    with pytest.raises(ServiceError, match=words):
        raise error


def test_a_dead_socket(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home / "s"))  # bound, and nobody listens
    monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/s")
    with pytest.raises(ServiceError, match=r"no docker engine .* is running"):
        open_image("docker:x")


@pytest.mark.parametrize("status", ["200 OK", "204 No", "301 Moved", "401 No", "403 No", "404 No", "500 No", "503 No"])
@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"7", b"{}", b'{"ApiVersion": 7}', b'{"ApiVersion": "x"}', b"<html>"]
)
def test_any_server_that_is_no_engine_is_one_sentence(
    status: str, body: bytes, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(home / "s", http(status, body)) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        monkeypatch.setenv("CONTAINER_HOST", url)
        for reference in ("docker:x", "podman:x", "container:x"):
            with pytest.raises(ServiceError, match=f"(docker|podman) engine .*{url}"):
                open_image(reference)
