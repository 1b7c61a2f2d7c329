"""Where engines answer: DOCKER_HOST, docker contexts, CONTAINER_HOST, and the sockets that are there by default."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from imgdiff.errors import ServiceError
from imgdiff.sources._text import shown

Kind = Literal["docker", "podman"]

_DEFAULT_SOCKET = "unix:///var/run/docker.sock"
_PORT, _TLS_PORT = 2375, 2376  # as docker's own client has it
_TCP = re.compile(r"(tcp://(?:[^/@]*@)?(?:[^/:\[]+|\[[^\]]*\]))(/.*)?")
_LOGIN = re.compile(r"//[^/@]*@")


def without_login(text: str) -> str:
    """Return a text without the logins of the URLs in it."""
    return _LOGIN.sub("//", text)


class Address(msgspec.Struct, frozen=True):
    """Where one engine may answer. ``url`` is ``unix://``, ``tcp://`` or ``ssh://``, ``origin`` what names it (empty
    for a default). The three files are for TLS; ``verify`` tells whether the engine's certificate is checked."""

    kind: Kind
    url: str
    origin: str = ""
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    tls: bool = False
    verify: bool = True

    @property
    def socket(self) -> Path | None:
        """The path of a Unix socket."""
        return Path(self.url.removeprefix("unix://")) if self.url.startswith("unix://") else None

    def __str__(self) -> str:
        """The engine in a sentence, without a login in its URL."""
        origin = f", from {self.origin}" if self.origin else ""
        return f"{self.kind} engine ({shown(without_login(self.url))}{origin})"


def addresses(kind: Kind, environment: Mapping[str, str] | None = None) -> list[Address]:
    """Return where an engine of a kind may answer, the one to ask first first.

    docker: DOCKER_HOST, else the context of DOCKER_CONTEXT or of docker's configuration, else the default socket.
    podman: CONTAINER_HOST, else the user's socket and the system's. Raises ServiceError for a context that is broken.
    """
    environment = os.environ if environment is None else environment
    if kind == "docker":
        return [_docker(environment)]
    return list(_podman(environment))


def _docker(environment: Mapping[str, str]) -> Address:
    host = environment.get("DOCKER_HOST", "").strip()
    if host:
        return _from_environment(_unix(host), environment)
    directory = Path(environment.get("DOCKER_CONFIG") or Path(environment.get("HOME") or Path.home()) / ".docker")
    origin = "DOCKER_CONTEXT"
    name = environment.get("DOCKER_CONTEXT", "").strip()
    if not name:
        origin = str(directory / "config.json")
        name = _current_context(directory / "config.json")
    if name in ("", "default"):
        return Address("docker", _DEFAULT_SOCKET)
    return _context(directory / "contexts", name, origin)


def _from_environment(host: str, environment: Mapping[str, str]) -> Address:
    """DOCKER_TLS_VERIFY (any text) asks for TLS, with the files of DOCKER_CERT_PATH, as docker's own client has it."""
    if not environment.get("DOCKER_TLS_VERIFY"):
        return Address("docker", _with_port(host, _PORT), "DOCKER_HOST")
    files = _tls_files(Path(environment.get("DOCKER_CERT_PATH") or Path.home() / ".docker"))
    return Address("docker", _with_port(host, _TLS_PORT), "DOCKER_HOST", *files, tls=True)


def _tls_files(directory: Path) -> tuple[str | None, str | None, str | None]:
    ca, certificate, key = (
        str(path) if (path := directory / name).is_file() else None for name in ("ca.pem", "cert.pem", "key.pem")
    )
    return ca, certificate, key


def _current_context(path: Path) -> str:
    value = _json(path)
    name = value.get("currentContext") if value is not None else None
    return name if isinstance(name, str) else ""


def _context(directory: Path, name: str, origin: str) -> Address:
    identity = hashlib.sha256(name.encode()).hexdigest()
    described = f"the docker context '{shown(name)}'"
    value = _json(directory / "meta" / identity / "meta.json")
    if value is None:
        raise ServiceError(
            f"{described}, which {shown(origin)} names, is not there", "docker context ls shows those that are"
        )
    endpoints = value.get("Endpoints")
    endpoint = endpoints.get("docker") if isinstance(endpoints, dict) else None
    host = endpoint.get("Host") if isinstance(endpoint, dict) else None
    if not isinstance(endpoint, dict) or not isinstance(host, str) or not host:
        raise ServiceError(f"{described} has no docker engine", "docker context inspect shows what it has")
    files = _tls_files(directory / "tls" / identity / "docker")
    tls = any(files) or host.startswith("https://")
    url = _with_port(_unix(host), _TLS_PORT if tls else _PORT)
    return Address("docker", url, described, *files, tls=tls, verify=not endpoint.get("SkipTLSVerify"))


def _json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file, None where there is no file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServiceError(f"{shown(str(path))} can't be read: {(error.strerror or 'no reason').lower()}") from error
    except ValueError as error:
        raise ServiceError(f"{shown(str(path))} is no valid JSON", "mend the file, or set DOCKER_HOST") from error
    return value if isinstance(value, dict) else None


def _podman(environment: Mapping[str, str]) -> Iterator[Address]:
    host = environment.get("CONTAINER_HOST", "").strip()
    if host:
        yield Address("podman", _unix(host), "CONTAINER_HOST")
        return
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    for path in (f"{runtime}/podman/podman.sock", "/run/podman/podman.sock"):
        yield Address("podman", f"unix://{path}")
    if environment.get("DOCKER_HOST"):  # podman's service, for docker's own client
        yield msgspec.structs.replace(_docker(environment), kind="podman")


def _unix(host: str) -> str:
    """Return an engine's URL in one spelling: ``unix:/path`` and a bare path are Unix sockets, no scheme is TCP."""
    if host.startswith("unix:"):
        return "unix:///" + host.removeprefix("unix:").lstrip("/")
    if host.startswith("/"):
        return f"unix://{host}"
    return host if "://" in host else f"tcp://{host}"


def _with_port(url: str, port: int) -> str:
    """Return a URL with the port that it stands for where it is TCP and names none."""
    match = _TCP.fullmatch(url)
    return url if match is None else f"{match[1]}:{port}{match[2] or ''}"
