"""Where a registry, a proxy or the environment sends a request: to any address that is none, and to nobody else's login."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from imgdiff.errors import ServiceError, UnknownReferenceError
from imgdiff.sources.registry import open_registry
from imgdiff.sources.registry._http import _is_local, retry_after
from tests.services.faults import Fault, Proxy, fault_proxy
from tests.services.registries import TokenService
from tests.sources.registry.conftest import INSECURE, QUICK
from tests.sources.registry.test_registry_auth import log_in

ADDRESSES = [
    "https://[::",
    "//[",
    "http://",
    "https://",
    "http:///x",
    "http://a:b:c/",
    "http://127.0.0.1:99999/x",
    "http://127.0.0.1:-1/",
    "http://a b/",
    f"http://{'a' * 70}.example/",
    "mailto:hunter2",
    "file:///etc/passwd",
    "http://[v1.x]/",
    "\xff\xfe",
    "http://xn--\xe4/",
    "http://%zz/",
    "http://user:hunter2@127.0.0.1:1/?X-Amz-Signature=hunter2",
]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("through", ["Location", "realm"])
def test_any_address_from_a_registry_is_one_sentence(through: str, address: str, proxy: Proxy) -> None:
    if through == "Location":
        proxy.faults.append(Fault("GET", status=307, headers={"Location": address}))
    else:
        proxy.faults.append(Fault("GET", status=401, headers={"WWW-Authenticate": f'Bearer realm="{address}"'}))
    with pytest.raises(ServiceError) as caught:
        open_registry(f"{proxy.address}/imgdiff/x:a", None, INSECURE)
    said = f"{caught.value} {caught.value.hint}"
    assert said.isprintable()
    assert "hunter2" not in said
    assert "TLS" not in said  # the first try went by HTTPS, and is no cause
    assert "proxy" not in said


@pytest.mark.parametrize(
    "named",
    [
        "user:hunter2@127.0.0.1:1",
        "http://user:hunter2@[::",
        "://hunter2",
        "ftp://user:hunter2@h",
        "http://",
        "http://user:hunter2@127.0.0.1:none",
        "socks5://user:hunter2@127.0.0.1:1",
    ],
)
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
def test_a_proxy_that_can_be_none_is_one_sentence(
    variable: str, named: str, programs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, named)
    with pytest.raises(ServiceError, match=r"proxy on the way to registry\.example[ ,]") as caught:
        open_registry("registry.example/x:a", None, QUICK)
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("name", ["127.0.0.1:99999/x", f"{'a' * 70}.example/x"])
def test_a_name_whose_host_can_be_none(name: str, programs: None) -> None:
    with pytest.raises(ServiceError, match="is no address of a server"):
        open_registry(name, None, QUICK)


def test_a_redirect_that_is_refused_is_said_to_be_one(proxy: Proxy) -> None:
    moved = {"Location": "http://127.0.0.1:1/there?X-Amz-Signature=hunter2"}
    proxy.faults.append(Fault("GET .*/manifests/", status=307, headers=moved))
    with pytest.raises(ServiceError, match=r"127.0.0.1:1 refuses connections"):
        open_registry(f"{proxy.address}/imgdiff/x:a", None, INSECURE)


@pytest.mark.parametrize("status", [401, 403])
def test_whoever_a_redirect_leads_to_can_ask_for_no_login(
    status: int, plain: str, tokens: TokenService, docker_config: Path
) -> None:
    """A store of layers, or who took its place, would name a token service of its own, and get the registry's login."""
    with fault_proxy(plain) as elsewhere, fault_proxy(plain) as proxy:
        log_in(docker_config, proxy.address)
        moved = {"Location": f"http://{elsewhere.address}/v2/imgdiff/x/manifests/a"}
        proxy.faults.append(Fault("GET .*/manifests/", status=307, headers=moved))
        challenge = {"WWW-Authenticate": f'Bearer realm="{tokens.url}",service="x"'}
        elsewhere.faults.append(Fault("GET", status=status, headers=challenge))
        tokens.asked.clear()
        words = f"{proxy.address} sends us on to {elsewhere.address}, which answers with {status}"
        with pytest.raises(ServiceError, match=words):
            open_registry(f"{proxy.address}/imgdiff/x:a", None, INSECURE)
        assert tokens.asked == []
        assert all("Authorization" not in each.headers for each in elsewhere.requests(""))


@contextmanager
def resetting() -> Iterator[str]:
    """Run a server that resets what begins as TLS does, and answers anything else with 404."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    if connection.recv(1, socket.MSG_PEEK) == b"\x16":
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        continue
                    connection.recv(1 << 16)
                    connection.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_plain_http_behind_a_server_that_resets_tls(programs: None) -> None:
    with resetting() as address:
        with pytest.raises(UnknownReferenceError, match="has no image x"):
            open_registry(f"{address}/x:a", None, INSECURE)
        with pytest.raises(ServiceError, match="broke off"):
            open_registry(f"{address}/x:a", None, QUICK)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("[::1]", True),
        ("localhost.example", False),
        ("localhosting", False),
        ("127.0.0.1.example", False),
        ("10.0.0.1", False),
        ("[::2]", False),
    ],
)
def test_what_is_reached_without_a_proxy(host: str, local: bool) -> None:
    assert _is_local(f"https://{host}:5000/v2/") is local


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_dates_are_in_utc_wherever_we_are(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        in_a_minute = time.gmtime(time.time() + 60)
        for form in ("%a, %d %b %Y %H:%M:%S GMT", "%a, %d %b %Y %H:%M:%S -0000", "%a %b %d %H:%M:%S %Y"):
            assert 50 < retry_after({"Retry-After": time.strftime(form, in_a_minute)}) <= 60
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "value", ["-1", "1.5", "inf", "nan", "1e3", "٣", "Mon, 01 Jan 0001 00:00:00 +2359", "99999", ""]
)
def test_whatever_retry_after_is_is_a_number(value: str) -> None:
    assert 0 <= retry_after({"Retry-After": value}) < 1e9
    assert 0 <= retry_after({"Retry-After": value * 400}) < 1e9
