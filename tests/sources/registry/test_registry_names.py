"""Names of images in registries, with docker's defaults written out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgdiff.errors import UnknownReferenceError
from imgdiff.sources._names import ImageName, parse_name, without_login
from imgdiff.sources.registry import strip_scheme

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "host", "whole"),
    [
        ("ubuntu", "registry-1.docker.io", "docker.io/library/ubuntu:latest"),
        ("ubuntu:22.04", "registry-1.docker.io", "docker.io/library/ubuntu:22.04"),
        ("vllm/vllm-openai:v0.9", "registry-1.docker.io", "docker.io/vllm/vllm-openai:v0.9"),
        ("docker.io/ubuntu", "registry-1.docker.io", "docker.io/library/ubuntu:latest"),
        ("index.docker.io/a/b:c", "registry-1.docker.io", "docker.io/a/b:c"),
        ("registry-1.docker.io/a/b", "registry-1.docker.io", "docker.io/a/b:latest"),
        ("ghcr.io/a/b/c:d", "ghcr.io", "ghcr.io/a/b/c:d"),
        ("localhost/x", "localhost", "localhost/x:latest"),
        ("localhost:5000/x:a", "localhost:5000", "localhost:5000/x:a"),
        ("host:5000/n/x", "host:5000", "host:5000/n/x:latest"),
        ("Host/x", "Host", "Host/x:latest"),
        ("[::1]:5000/x:a", "[::1]:5000", "[::1]:5000/x:a"),
        (f"ubuntu@{DIGEST}", "registry-1.docker.io", f"docker.io/library/ubuntu@{DIGEST}"),
        (f"host:1/x:a@{DIGEST}", "host:1", f"host:1/x@{DIGEST}"),
        ("a/b__c.d-e--f/g:_1", "registry-1.docker.io", "docker.io/a/b__c.d-e--f/g:_1"),
    ],
)
def test_names(text: str, host: str, whole: str) -> None:
    name = parse_name(text)
    assert name.host == host
    assert str(name) == whole
    assert parse_name(whole).repository == name.repository


def test_a_tag_beside_a_digest_is_kept() -> None:
    assert parse_name(f"x:a@{DIGEST}") == ImageName("docker.io", "library/x", "a", DIGEST)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Ubuntu", "path"),
        ("ghcr.io/Vllm/x", "path"),
        ("", "path"),
        ("a//b", "path"),
        ("-a/b", "path"),
        ("a.b-/x", "no host"),
        ("x:", "no tag"),
        ("x:a b", "no tag"),
        (f"x:{'a' * 129}", "no tag"),
        ("x@sha256:abc", "no digest"),
        ("x@md5:" + "0" * 32, "no digest"),
        ("a" * 300, "longer than 255"),
        ("x/\x1b[31m", "path"),
        ("a.b:port/x", "no host"),
    ],
)
def test_no_names(text: str, why: str) -> None:
    with pytest.raises(UnknownReferenceError, match=why) as caught:
        parse_name(text)
    assert str(caught.value).isprintable()


def test_a_password_in_a_reference_is_not_said() -> None:
    for text in ("me:hunter2@host/x", "https://me:hunter2@host/x", "docker://me:hunter2@host:1/x:a"):
        assert "hunter2" not in without_login(text)
        with pytest.raises(UnknownReferenceError) as caught:
            parse_name(strip_scheme(text))
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("registry:x", "x"),
        ("registry:x:a", "x:a"),
        ("registry:localhost:5000/x", "localhost:5000/x"),
        ("registry:5000/x:a", "registry:5000/x:a"),  # a host of this name, as in every compose file
        ("docker://a/b", "a/b"),
        ("a/b", "a/b"),
    ],
)
def test_schemes(text: str, name: str) -> None:
    assert strip_scheme(text) == name


@given(st.text(max_size=60))
def test_any_text_is_a_name_or_an_error(text: str) -> None:
    try:
        name = parse_name(text)
    except UnknownReferenceError as error:
        said = str(error)
    else:
        said = parse_name(str(name)).repository
        assert said == name.repository
    assert said.isprintable()
