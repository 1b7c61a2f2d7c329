"""Logins: htpasswd behind TLS, a token service, docker's configuration and its helpers. No secret in any sentence."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgdiff.errors import ServiceError
from imgdiff.sources.registry import Options, _http, open_registry
from imgdiff.sources.registry._auth import Challenge, parse_challenges
from tests.services.faults import Fault, fault_proxy
from tests.services.registries import (
    IDENTITY,
    PASSWORD,
    SERVICE,
    USER,
    Certificate,
    TokenService,
    htpasswd,
    make_certificate,
    registry,
)
from tests.sources.registry.conftest import INSECURE, QUICK
from tests.sources.registry.test_registry import contents


def log_in(config: Path, address: str, user: str = USER, password: str = PASSWORD) -> None:
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    write(config, {"auths": {address: {"auth": auth}}})


def write(config: Path, value: Any) -> None:
    (config / "config.json").write_text(value if isinstance(value, str) else json.dumps(value))


def refused(reference: str, options: Options = QUICK) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        open_registry(reference, None, options)
    for text in (str(caught.value), repr(caught.value), caught.value.hint or ""):
        assert text.isprintable()
        for secret in (PASSWORD, IDENTITY, "hunter2", base64.b64encode(PASSWORD.encode()).decode()[:8]):
            assert secret not in text
    return caught.value


@pytest.fixture
def trusted(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))


# --------------------------------------------------------------------------------------------------------------------
# TLS
# --------------------------------------------------------------------------------------------------------------------


def test_a_basic_login(with_login: str, trusted: None, docker_config: Path) -> None:
    log_in(docker_config, with_login)
    image = open_registry(f"{with_login}/imgdiff/x:a", None, QUICK)
    assert len(contents(image)) == 2


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_ca_from_the_environment(
    variable: str, with_login: str, certificate: Certificate, docker_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(docker_config, with_login)
    monkeypatch.setenv(variable, str(certificate.certificate))
    assert open_registry(f"{with_login}/imgdiff/x:a", None, QUICK).layers


def test_a_ca_as_docker_keeps_it(
    with_login: str, certificate: Certificate, docker_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(docker_config, with_login)
    monkeypatch.setattr(_http, "CERTIFICATES", (tmp_path / "certs.d",))
    error = refused(f"{with_login}/imgdiff/x:a")
    assert "is not trusted: self-signed certificate" in str(error)
    assert f"/etc/docker/certs.d/{with_login}/ca.crt" in (error.hint or "")
    directory = tmp_path / "certs.d" / with_login
    directory.mkdir(parents=True)
    (directory / "ca.crt").write_bytes(certificate.certificate.read_bytes())
    assert open_registry(f"{with_login}/imgdiff/x:a", None, QUICK).layers
    (directory / "ca.crt").write_text("rubbish")
    assert "ca.crt can't be used" in str(refused(f"{with_login}/imgdiff/x:a"))


def test_a_certificate_for_another_host(programs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_certificate(tmp_path, "DNS:other.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(other.certificate))
    with registry(tmp_path / "registry", other) as address:
        error = refused(f"{address}/imgdiff/x:a")
        assert "is not trusted: Hostname mismatch" in str(error)


def test_another_ca(with_login: str, tmp_path: Path, programs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(make_certificate(tmp_path / "other").certificate))
    assert "is not trusted" in str(refused(f"{with_login}/imgdiff/x:a"))


def test_a_ca_bundle_that_is_not_there(with_login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.crt")
    assert "names a file that is not there" in str(refused(f"{with_login}/imgdiff/x:a"))


def test_tls_through_a_proxy(
    tmp_path: Path, data: tuple[str, Path], docker_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is the registry's, the CA as docker keeps it; proxy and registry each have a login."""
    name = "registry.example:5000"
    own = make_certificate(tmp_path / "own", "DNS:registry.example")
    directory = tmp_path / "certs.d" / name
    directory.mkdir(parents=True)
    (directory / "ca.crt").write_bytes(own.certificate.read_bytes())
    monkeypatch.setattr(_http, "CERTIFICATES", (tmp_path / "certs.d",))
    log_in(docker_config, name)
    settings = htpasswd(tmp_path / "own")
    with registry(tmp_path / "registry", own, settings, data[1]) as address, fault_proxy(address) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:word@{proxy.address}")
        assert len(contents(open_registry(f"{name}/imgdiff/x:a", None, QUICK))) == 2
        assert {each.path for each in proxy.requests("CONNECT")} == {name}
        assert all("Proxy-Authorization" in each.headers for each in proxy.requests("CONNECT"))
        assert all("Authorization" not in each.headers for each in proxy.requests("CONNECT"))


def test_unverified_tls_on_demand_only(with_login: str, docker_config: Path) -> None:
    log_in(docker_config, with_login)
    assert "is not trusted" in str(refused(f"{with_login}/imgdiff/x:a"))
    assert len(contents(open_registry(f"{with_login}/imgdiff/x:a", None, INSECURE))) == 2


def test_plain_http_on_demand_only(plain: str) -> None:
    error = refused(f"{plain}/imgdiff/x:a")
    assert str(error) == f"{plain} speaks no TLS"
    assert "--insecure" in (error.hint or "")


# --------------------------------------------------------------------------------------------------------------------
# Logins
# --------------------------------------------------------------------------------------------------------------------


def test_no_login_and_a_wrong_one(with_login: str, trusted: None, docker_config: Path) -> None:
    reference = f"{with_login}/imgdiff/x:a"
    error = refused(reference)
    assert "gives" in str(error)
    assert "to nobody without a login" in str(error)
    assert error.hint == f"check the name, or log in first: docker login {with_login}"
    log_in(docker_config, with_login, password="hunter2")
    error = refused(reference)
    assert "refuses the login that is kept for it" in str(error)
    log_in(docker_config, "elsewhere.example")
    assert "to nobody without a login" in str(refused(reference))


def test_netrc_is_not_docker_s(with_login: str, trusted: None, docker_config: Path) -> None:
    """A login for this host that was meant for something else is not sent."""
    (docker_config / ".netrc").write_text(f"machine localhost login {USER} password {PASSWORD}\n")
    assert "to nobody without a login" in str(refused(f"{with_login}/imgdiff/x:a"))


@pytest.mark.skipif(shutil.which("podman") is None, reason="needs podman")
@pytest.mark.parametrize("named", [False, True], ids=["where podman keeps it", "REGISTRY_AUTH_FILE"])
def test_a_login_of_podman(
    named: bool,
    with_login: str,
    certificate: Certificate,
    trusted: None,
    docker_config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if named:
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "logins.json"))
    write(docker_config, {"auths": {"elsewhere.example": {}}})
    expected = "logins.json can't be read: no such file" if named else "to nobody without a login"
    assert expected in str(refused(f"{with_login}/imgdiff/x:a"))
    (tmp_path / "ca").mkdir()
    (tmp_path / "ca" / "ca.crt").write_bytes(certificate.certificate.read_bytes())
    command = [
        "podman",
        "login",
        "--cert-dir",
        str(tmp_path / "ca"),
        "--username",
        USER,
        "--password-stdin",
        with_login,
    ]
    subprocess.run(command, input=PASSWORD, text=True, check=True, capture_output=True)
    assert open_registry(f"{with_login}/imgdiff/x:a", None, QUICK).layers


@pytest.mark.parametrize("where", ["containers", ".config/containers"])
def test_logins_of_podman_that_can_not_be_read(where: str, with_login: str, trusted: None, docker_config: Path) -> None:
    file = docker_config / where / "auth.json"
    file.parent.mkdir(parents=True)
    file.write_text(f"{{{PASSWORD}")
    error = refused(f"{with_login}/imgdiff/x:a")
    assert str(error).endswith(f"{where}/auth.json is no valid JSON")
    assert error.hint == "mend the file, or log in again: podman login"


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A credential helper that answers with what lies in a file, and notes what it was asked."""
    directory = tmp_path / "bin"
    directory.mkdir()
    answer = tmp_path / "answer"
    program = directory / "docker-credential-test"
    program.write_text(f'#!/bin/sh\ncat >"{answer}.asked"\ncat "{answer}" || exit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)
    return answer


@pytest.mark.parametrize("kind", ["credsStore", "credHelpers"])
def test_credential_helpers(kind: str, helper: Path, with_login: str, trusted: None, docker_config: Path) -> None:
    write(docker_config, {kind: "test" if kind == "credsStore" else {with_login: "test"}})
    helper.write_text(json.dumps({"ServerURL": with_login, "Username": USER, "Secret": PASSWORD}))
    assert open_registry(f"{with_login}/imgdiff/x:a", None, QUICK).layers
    assert Path(f"{helper}.asked").read_text() == with_login


def test_a_helper_that_fails(helper: Path, with_login: str, trusted: None, docker_config: Path) -> None:
    write(docker_config, {"credHelpers": {with_login: "test"}})
    assert "docker-credential-test failed" in str(refused(f"{with_login}/imgdiff/x:a"))
    write(docker_config, {"credHelpers": {with_login: "none-of-this-name"}})
    assert "docker-credential-none-of-this-name, which" in str(refused(f"{with_login}/imgdiff/x:a"))
    helper.write_text(f"{PASSWORD}: this is no JSON")
    write(docker_config, {"credHelpers": {with_login: "test"}})
    assert "docker-credential-test failed" in str(refused(f"{with_login}/imgdiff/x:a"))


@pytest.mark.parametrize(
    "text",
    [
        '{"auths": ',
        "[]",
        '{"auths": {"localhost": {"auth": "hunter2"}}}',
        '{"auths": {"localhost": "hunter2"}}',
        '{"auths": ["hunter2"]}',
        '{"auths": {"localhost": {"auth": "aHVudGVyMg=="}}}',
    ],
)
def test_a_configuration_that_is_broken(text: str, with_login: str, trusted: None, docker_config: Path) -> None:
    write(docker_config, text)
    assert "config.json" in str(refused(f"{with_login}/imgdiff/x:a"))


def test_a_public_registry_asks_for_no_configuration(plain: str, docker_config: Path) -> None:
    write(docker_config, '{"auths": ')
    assert open_registry(f"{plain}/imgdiff/x:a", None, INSECURE).layers


# --------------------------------------------------------------------------------------------------------------------
# Tokens
# --------------------------------------------------------------------------------------------------------------------


def test_anonymous_tokens(with_tokens: str, tokens: TokenService) -> None:
    tokens.asked.clear()
    image = open_registry(f"{with_tokens}/public/x:a", None, INSECURE)
    assert len(contents(image)) == 2
    assert [(method, login) for method, _, login in tokens.asked] == [("GET", "")]
    assert tokens.asked[0][1] == {"service": SERVICE, "scope": "repository:public/x:pull"}
    assert "to nobody without a login" in str(refused(f"{with_tokens}/imgdiff/x:a", INSECURE))


def test_tokens_for_a_login(with_tokens: str, tokens: TokenService, docker_config: Path) -> None:
    log_in(docker_config, with_tokens)
    assert len(contents(open_registry(f"{with_tokens}/imgdiff/x:a", None, INSECURE))) == 2
    log_in(docker_config, with_tokens, password="hunter2")
    assert "refuses the login" in str(refused(f"{with_tokens}/imgdiff/x:a", INSECURE))


def test_identity_tokens(with_tokens: str, tokens: TokenService, docker_config: Path) -> None:
    write(docker_config, {"auths": {with_tokens: {"identitytoken": IDENTITY}}})
    tokens.asked.clear()
    assert len(contents(open_registry(f"{with_tokens}/imgdiff/x:a", None, INSECURE))) == 2
    method, form, login = tokens.asked[0]
    assert (method, login, form["grant_type"], form["client_id"]) == ("POST", "", "refresh_token", "imgdiff")
    write(docker_config, {"auths": {with_tokens: {"identitytoken": "hunter2"}}})
    assert "refuses the login" in str(refused(f"{with_tokens}/imgdiff/x:a", INSECURE))


def test_a_token_whose_time_is_over_is_asked_for_again(with_tokens: str, tokens: TokenService) -> None:
    with fault_proxy(with_tokens) as proxy:
        image = open_registry(f"{proxy.address}/public/x:a", None, INSECURE)
        tokens.asked.clear()
        proxy.faults.append(Fault("GET .*/blobs/", anonymous=True, times=1))
        assert len(contents(image)) == 2
        assert len(tokens.asked) == 1
        proxy.faults.append(Fault("GET .*/blobs/", anonymous=True))
        with pytest.raises(ServiceError, match="to nobody without a login"):
            contents(image)


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b"<html>", b'{"token": 7}', b'{"token": "a\\r\\nHost: x"}'])
def test_a_token_service_that_gives_none(answer: bytes, with_tokens: str, tokens: TokenService) -> None:
    tokens.answer = answer
    try:
        assert "gives no token" in str(refused(f"{with_tokens}/public/x:a", INSECURE))
    finally:
        tokens.answer = None


def test_a_login_goes_to_no_token_service_without_tls(
    with_login: str, trusted: None, docker_config: Path, tokens: TokenService, plain: str, certificate: Certificate
) -> None:
    """A registry behind TLS that names a token service without: the login would be sent in the open."""

    log_in(docker_config, "localhost")
    tokens.asked.clear()
    with registry(docker_config / "r", certificate, tokens.auth()) as address:
        log_in(docker_config, address)
        assert "which is not HTTPS" in str(refused(f"{address}/x:a"))
        assert tokens.asked == []


def test_a_login_stays_with_its_host(with_login: str, plain: str, docker_config: Path) -> None:
    """A redirect to where the layers lie takes no login along: it would be somebody else's."""
    with fault_proxy(plain) as elsewhere, fault_proxy(plain) as proxy:
        challenge = {"WWW-Authenticate": 'Basic realm="x"'}
        proxy.faults.append(Fault("GET /v2/imgdiff", status=401, headers=challenge, times=1))
        moved = {"Location": f"http://{elsewhere.address}/v2/imgdiff/x/manifests/a?X-Amz-Signature=hunter2"}
        proxy.faults.append(Fault("GET .*/manifests/", status=307, headers=moved, times=1))
        log_in(docker_config, proxy.address)
        assert open_registry(f"{proxy.address}/imgdiff/x:a", None, INSECURE).layers
        assert [("Authorization" in each.headers) for each in proxy.requests("manifests")] == [False, True]
        assert [("Authorization" in each.headers) for each in elsewhere.requests("manifests")] == [False]


@pytest.mark.parametrize(
    ("header", "challenges"),
    [
        ("", []),
        ("Basic", [("basic", {})]),
        ('Basic realm="a"', [("basic", {"realm": "a"})]),
        (
            'Bearer realm="https://a/t?x=1,2",service="s",scope="repository:x:pull,push"',
            [("bearer", {"realm": "https://a/t?x=1,2", "service": "s", "scope": "repository:x:pull,push"})],
        ),
        (
            'Negotiate dG9rZW4=, Basic realm="a\\"b" , Bearer Realm=plain, error="x"',
            [("negotiate", {}), ("basic", {"realm": 'a"b'}), ("bearer", {"realm": "plain", "error": "x"})],
        ),
        ("Bearer realm=https://a/t, service=s", [("bearer", {"realm": "https://a/t", "service": "s"})]),
        ('  ,, Basic  realm = "a"', [("basic", {"realm": "a"})]),
        ('Basic realm="open', [("basic", {})]),
    ],
)
def test_challenges(header: str, challenges: list[tuple[str, Mapping[str, str]]]) -> None:
    found = parse_challenges(header)
    assert found[: len(challenges)] == [Challenge(scheme, dict(values)) for scheme, values in challenges]


@given(st.text(max_size=80))
def test_any_header_is_read_without_an_error(header: str) -> None:
    assert all(each.scheme for each in parse_challenges(header))
