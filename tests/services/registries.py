"""Real registries (Debian's docker-registry) on loopback, for tests: plain, with TLS, with logins, with tokens.

Needs docker-registry, skopeo and openssl; ``missing`` says which is not there.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

USER, PASSWORD = "reader", "open sesame"
HTPASSWD = f"{USER}:$2b$04$tbg9FhdlMjAbs2uWEdx0CuQPvp9cq4fUs3mvXz5NElqveFesyy2WC\n"  # bcrypt of PASSWORD
IDENTITY = "an-identity-token"
SERVICE, ISSUER = "test registry", "test issuer"
PUBLIC = "public/"  # repositories below it are for everybody


def missing() -> str | None:
    """Return the first program that is not there."""
    programs = ("docker-registry", "skopeo", "openssl")
    return next((f"{name} is missing" for name in programs if shutil.which(name) is None), None)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass(frozen=True)
class Certificate:
    """A certificate for localhost that is its own CA."""

    certificate: Path
    key: Path


def make_certificate(directory: Path, name: str = "DNS:localhost,IP:127.0.0.1") -> Certificate:
    directory.mkdir(parents=True, exist_ok=True)
    made = Certificate(directory / "ca.crt", directory / "ca.key")
    extensions = [
        f"subjectAltName={name}",
        "basicConstraints=critical,CA:TRUE",
        "keyUsage=critical,keyCertSign,digitalSignature",
    ]
    added = [word for extension in extensions for word in ("-addext", extension)]
    where = ["-keyout", str(made.key), "-out", str(made.certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    subprocess.run([*command, *added, *where], check=True, capture_output=True)
    return made


@contextmanager
def registry(
    directory: Path, tls: Certificate | None = None, auth: Mapping[str, Any] | None = None, data: Path | None = None
) -> Iterator[str]:
    """Run a registry and give its ``host:port``. Two that share ``data`` hold the same images."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    http: dict[str, Any] = {"addr": f"127.0.0.1:{port}"}
    if tls is not None:
        http["tls"] = {"certificate": str(tls.certificate), "key": str(tls.key)}
    config: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(data or directory / "data")}, "delete": {"enabled": True}},
        "http": http,
    }
    if auth is not None:
        config["auth"] = auth
    (directory / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            ["docker-registry", "serve", str(directory / "config.yml")], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            _wait(process, port, directory / "log")
            yield f"localhost:{port}"
        finally:
            process.terminate()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the registry does not answer: {log.read_text()}")


def htpasswd(directory: Path) -> Mapping[str, Any]:
    """Return the settings that ask everybody for USER and PASSWORD."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "htpasswd").write_text(HTPASSWD)
    return {"htpasswd": {"realm": "test", "path": str(directory / "htpasswd")}}


@dataclass
class TokenService:
    """A token service as Docker Hub has one: it signs what the registry trusts, for whom it knows."""

    certificate: Certificate
    url: str = ""
    asked: list[tuple[str, dict[str, str], str]] = field(default_factory=list)  # method, parameters, Authorization
    answer: bytes | None = None  # instead of a token

    def auth(self) -> Mapping[str, Any]:
        """Return the settings of a registry that sends everybody here."""
        bundle = str(self.certificate.certificate)
        return {"token": {"realm": self.url, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": bundle}}

    def token(self, scope: str, user: str) -> str:
        kind, name, actions = scope.split(":")
        allowed = [each for each in actions.split(",") if user or (each == "pull" and name.startswith(PUBLIC))]
        now = int(time.time())
        der = "".join(self.certificate.certificate.read_text().split("-----")[2].split())
        header = {"typ": "JWT", "alg": "RS256", "x5c": [der]}
        claims = {
            "iss": ISSUER,
            "sub": user,
            "aud": SERVICE,
            "exp": now + 300,
            "nbf": now - 10,
            "iat": now,
            "jti": "1",
            "access": [{"type": kind, "name": name, "actions": allowed}],
        }
        signed = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.certificate.key)]
        signature = subprocess.run(command, input=signed.encode(), check=True, capture_output=True).stdout
        return f"{signed}.{_base64(signature)}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@contextmanager
def token_service(certificate: Certificate) -> Iterator[TokenService]:
    """Run a token service over plain HTTP."""
    service = TokenService(certificate)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query)))

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(dict(urllib.parse.parse_qsl(form)))

        def _answer(self, asked: dict[str, str]) -> None:
            login = self.headers.get("Authorization", "")
            service.asked.append((self.command, asked, login))
            basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            known = login == basic or asked.get("refresh_token") == IDENTITY
            if not known and (login or "refresh_token" in asked):
                self._send(401, b'{"errors": [{"code": "UNAUTHORIZED", "message": "incorrect username or password"}]}')
            elif service.answer is not None:
                self._send(200, service.answer)
            else:
                key = "access_token" if self.command == "POST" else "token"
                self._send(200, json.dumps({key: service.token(asked["scope"], USER if known else "")}).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://localhost:{server.server_address[1]}/token"
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()


def push(source: str, target: str, *options: str) -> None:
    """Copy an image to a registry with skopeo: ``oci:DIR:TAG`` to ``host:port/name:tag``."""
    command = ["skopeo", "--insecure-policy", "copy", "-q", "--dest-tls-verify=false", *options, source]
    done = subprocess.run([*command, f"docker://{target}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
