"""What goes wrong between here and a registry: it passes, or it ends in one sentence with what to do."""

from __future__ import annotations

import email.utils
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from imgdiff.errors import BlobError, ImageError, ImgdiffError, ServiceError, UnknownReferenceError
from imgdiff.layer import index_layers
from imgdiff.model import Image
from imgdiff.sources.registry import Options, open_registry
from imgdiff.sources.registry._http import retry_after
from imgdiff.store import Store
from tests.services.faults import Fault, Proxy, fault_proxy
from tests.services.registries import free_port, push
from tests.sources.registry.conftest import INSECURE
from tests.support.images import Member, digest_of, tar_bytes, write_layout

NAME = "faults/big"
SIZE = 6 << 20


@pytest.fixture(scope="module")
def big(plain: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Push an image of one layer of some megabytes, and give the layer."""
    root = tmp_path_factory.mktemp("big")
    noise = b"".join(hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(SIZE // 32))
    layer = tar_bytes([Member("big", noise)])
    write_layout(root, [layer], {}, "none", tag="a")
    push(f"oci:{root}:a", f"{plain}/{NAME}:a", "--preserve-digests")
    return layer


def opened(proxy: Proxy, options: Options = INSECURE) -> Image:
    return open_registry(f"{proxy.address}/{NAME}:a", None, options)


def layer_of(proxy: Proxy, options: Options = INSECURE) -> bytes:
    with opened(proxy, options).layers[0].open() as stream:
        return stream.read()


def trouble(
    proxy: Proxy, kind: type[ImgdiffError], options: Options = INSECURE, name: str = f"{NAME}:a"
) -> ImgdiffError:
    """Return the error of reading an image whole, from the first request to the last byte."""
    with pytest.raises(ImgdiffError) as caught, Store.temporary() as store:
        index_layers(open_registry(f"{proxy.address}/{name}", None, options).layers, store)
    assert type(caught.value) is kind, repr(caught.value)
    assert "\n" not in str(caught.value)
    assert "http:" not in str(caught.value)
    return caught.value


def ranges(proxy: Proxy) -> list[str]:
    return [each.headers["Range"] for each in proxy.requests("blobs") if "Range" in each.headers]


# --------------------------------------------------------------------------------------------------------------------
# Broken transfers go on
# --------------------------------------------------------------------------------------------------------------------


def test_a_cut_transfer_goes_on_where_it_stopped(proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(digest_of(big), cut=2_000_000, times=1))
    proxy.faults.append(Fault(digest_of(big), cut=1_000_000, times=1))
    image = opened(proxy)
    with image.layers[0].open() as stream:
        assert stream.read() == big
    assert ranges(proxy) == ["bytes=2000000-", "bytes=3000000-"]
    assert proxy.sent(digest_of(big)) == len(big)
    assert image.transfer is not None
    assert image.transfer.fetched() == proxy.sent(NAME)


def test_an_index_made_over_a_broken_line_is_the_same(proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(digest_of(big), cut=3_000_000, times=2))
    with Store.temporary() as store:
        (index,) = index_layers(opened(proxy).layers, store)
    assert [entry.path for entry in index.entries] == [b"big"]
    assert index.diff_id == digest_of(big)


def test_a_server_without_ranges_begins_anew(proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(digest_of(big), cut=2_500_000, times=1))
    proxy.faults.append(Fault(digest_of(big), cut=3_500_000, no_range=True, times=1))
    proxy.faults.append(Fault(digest_of(big), cut=2_000_000, no_range=True, times=1))  # not even where it was
    proxy.faults.append(Fault(digest_of(big), no_range=True))
    image = opened(proxy)
    with image.layers[0].open() as stream:
        assert stream.read() == big
    assert ranges(proxy) == ["bytes=2500000-", "bytes=3500000-", "bytes=3500000-"]
    assert image.transfer is not None
    assert image.transfer.fetched() == proxy.sent(NAME)  # what came twice counts twice


@pytest.mark.parametrize("chunked", [False, True])
def test_slow_and_small_pieces(chunked: bool, proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(digest_of(big), piece=300_000, delay=0.002, chunked=chunked))
    assert layer_of(proxy) == big


def test_a_chunked_transfer_that_is_cut(proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(digest_of(big), cut=2_000_000, chunked=True, times=1))
    assert layer_of(proxy) == big
    (again,) = ranges(proxy)
    assert 1_800_000 < int(again.removeprefix("bytes=").removesuffix("-")) <= 2_000_000


def test_a_transfer_that_stalls(proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(digest_of(big), stall=1_500_000, times=1))
    impatient = msgspec.structs.replace(INSECURE, read_timeout=0.2)
    try:
        assert layer_of(proxy, impatient) == big
    finally:
        proxy.over.set()
        proxy.rest()
        proxy.over.clear()
    (again,) = ranges(proxy)
    assert 1_300_000 < int(again.removeprefix("bytes=").removesuffix("-")) <= 1_500_000


def test_progress_gives_new_tries(proxy: Proxy, big: bytes) -> None:
    """More cuts than tries, each behind a further megabyte."""
    proxy.faults.append(Fault(digest_of(big), cut=1 << 20))
    assert layer_of(proxy, msgspec.structs.replace(INSECURE, tries=2)) == big


def test_a_line_that_never_holds(proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(digest_of(big), cut=1000))
    error = trouble(proxy, ServiceError)
    assert "broke off 6 times in a row, last at byte 6000 of" in str(error)
    assert error.hint == "check the network and try again; layers that were read are in the cache"


def test_refused_ranges(proxy: Proxy, big: bytes) -> None:
    cut = Fault(digest_of(big), cut=1000, times=1)
    proxy.faults += [cut, Fault(digest_of(big), status=416)]
    assert "ends before byte 1000" in str(trouble(proxy, BlobError))
    cut.times = 1
    proxy.faults[1] = Fault(digest_of(big), set={"Content-Range": f"bytes 999-{len(big) - 1}/{len(big)}"})
    assert "came from elsewhere" in str(trouble(proxy, ServiceError))
    cut.times = 1
    proxy.faults[1] = Fault(digest_of(big), set={"Content-Range": f"bytes 1000-{len(big) - 2}/{len(big) - 1}"})
    assert f"is {len(big) - 1} bytes long in the registry, and the manifest says {len(big)}" in str(
        trouble(proxy, BlobError)
    )


# --------------------------------------------------------------------------------------------------------------------
# A server that has enough
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 522])
@pytest.mark.parametrize("where", ["/manifests/", "/blobs/"])
def test_trouble_that_passes(status: int, where: str, proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(where, status=status, times=3))
    assert layer_of(proxy) == big


@pytest.mark.parametrize("where", ["/manifests/", "/blobs/"])
def test_connections_that_end_before_an_answer(where: str, proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(where, reset=True, times=3))
    assert layer_of(proxy) == big


def test_small_answers_that_are_cut(proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault("/manifests/", cut=10, times=2))
    assert layer_of(proxy) == big
    proxy.faults.append(Fault("/manifests/", cut=10))
    assert "broke off" in str(trouble(proxy, ServiceError))


def test_retry_after_is_honoured(proxy: Proxy, big: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(self: threading.Event, timeout: float | None = None) -> bool:
        waits.append(timeout or 0)
        return False

    monkeypatch.setattr(threading.Event, "wait", wait)
    proxy.faults.append(Fault("/manifests/", status=429, headers={"Retry-After": "7"}, times=1))
    proxy.faults.append(Fault("/manifests/", status=503, headers={"Retry-After": "later"}, times=1))
    opened(proxy)
    assert 7 in waits
    assert max(waits) == 7


def test_dates_in_retry_after() -> None:
    assert retry_after({"Retry-After": "120"}) == 120
    in_a_minute = email.utils.formatdate(time.time() + 60, usegmt=True)
    assert 50 < retry_after({"Retry-After": in_a_minute}) <= 60
    assert retry_after({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    for rubbish in ("", "-1", "soon", "1e9", "\u0663" * 5000):
        assert retry_after({"Retry-After": rubbish}) >= 0
    assert retry_after({}) == 0


def test_a_limit_that_lasts(proxy: Proxy, big: bytes) -> None:
    body = json.dumps({"errors": [{"code": "TOOMANYREQUESTS", "message": "You have reached your pull rate limit."}]})
    proxy.faults.append(Fault("/manifests/", status=429, headers={"Retry-After": "3600"}, body=body.encode()))
    error = trouble(proxy, ServiceError)
    assert str(error) == f"{proxy.address} allows no more requests for now: You have reached your pull rate limit."
    assert error.hint == f"wait 3600 s, or log in: docker login {proxy.address}"
    assert len(proxy.requests("manifests")) == 1


@pytest.mark.parametrize(
    ("status", "words"), [(500, "answers with 500"), (503, "answers with 503"), (403, "without a login"), (418, "418")]
)
@pytest.mark.parametrize("where", ["/manifests/", "/blobs/"])
def test_trouble_that_lasts(status: int, words: str, where: str, proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(where, status=status, body=b"<html>\x1b[31m"))
    error = trouble(proxy, ServiceError)
    assert words in str(error)
    assert str(error).isprintable()


def test_a_message_from_a_server_is_hostile(proxy: Proxy, big: bytes) -> None:
    body = json.dumps({"errors": [{"code": "X", "message": "\x1b]0;owned\x07\n" + "x" * 5000}]})
    proxy.faults.append(Fault("/manifests/", status=400, body=body.encode()))
    error = trouble(proxy, ServiceError)
    assert str(error).isprintable()
    assert len(str(error)) < 500


# --------------------------------------------------------------------------------------------------------------------
# What is not what it should be
# --------------------------------------------------------------------------------------------------------------------


def test_changed_bytes(proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(digest_of(big), corrupt=4_000_000, times=1))
    assert "does not match its digest" in str(trouble(proxy, BlobError))
    proxy.faults[0] = Fault("/blobs/", corrupt=10, times=1)
    assert "the image config in" in str(trouble(proxy, BlobError))
    proxy.faults[0] = Fault("/manifests/a", corrupt=10, times=1)
    error = trouble(proxy, BlobError)
    assert f"the manifest of {proxy.address}/{NAME}:a was changed" in str(error)


def test_a_manifest_by_digest_is_checked(proxy: Proxy, big: bytes) -> None:
    digest = opened(proxy).manifest_digest
    proxy.faults.append(Fault("/manifests/", corrupt=10, times=1))
    assert "was changed" in str(trouble(proxy, BlobError, name=f"{NAME}@{digest}"))
    other = {"Docker-Content-Digest": f"sha256:{'0' * 64}"}
    proxy.faults[0] = Fault("/manifests/", set=other, times=1)
    assert "was changed: its digest is" in str(trouble(proxy, BlobError))
    proxy.faults[0] = Fault("/manifests/", set={"Docker-Content-Digest": "sha256:short"}, times=1)
    assert "a digest" in str(trouble(proxy, ImageError))


def test_a_tag_that_moves_between_is_one_image(proxy: Proxy, plain: str, big: bytes, layout: Path) -> None:
    """All below the tag is read by digest, so the answer is one image or the other, and never half of each."""
    push(f"oci:{layout}:a", f"{plain}/moving:t")
    image = open_registry(f"{proxy.address}/moving:t", None, INSECURE)
    push(f"oci:{layout}:b", f"{plain}/moving:t")
    with Store.temporary() as store:
        indexes = index_layers(image.layers, store)
    assert [index.diff_id for index in indexes] == [layer.diff_id for layer in image.layers]


def test_layers_of_another_length(proxy: Proxy, big: bytes) -> None:
    for length in (len(big) - 1, len(big) + 1):
        proxy.faults[:] = [Fault(digest_of(big), length=length)]
        said = str(trouble(proxy, BlobError))
        assert f"is {length} bytes long in the registry, and the manifest says {len(big)}" in said


def test_a_layer_that_goes_on_behind_its_end(proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(digest_of(big), status=200, body=big + b"\0" * 512, chunked=True))
    assert f"is longer than the {len(big)} bytes" in str(trouble(proxy, BlobError))


def test_a_layer_or_config_that_is_not_there(proxy: Proxy, big: bytes) -> None:
    proxy.faults.append(Fault(digest_of(big), status=404))
    error = trouble(proxy, BlobError)
    assert str(error) == f"layer 1 of 1 of {proxy.address}/{NAME} ({digest_of(big)}) is not there"
    proxy.faults[0] = Fault("/blobs/", status=404)
    assert "lacks the image config" in str(trouble(proxy, BlobError))


def manifest(**fields: object) -> bytes:
    return json.dumps({"schemaVersion": 2, **fields}).encode()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>log in to the hotel's network</html>", "is no valid JSON"),
        (b"[]", "is no JSON object"),
        (b"\xff\xfe", "is no valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (manifest(), "is no image manifest"),
        (manifest(manifests=[]), "is an index without images"),
        (manifest(manifests="x"), "no list"),
        (json.dumps({"schemaVersion": 1, "fsLayers": [], "history": []}).encode(), "schema 1, which is not read"),
        (manifest(config={"digest": "sha256:short"}, layers=[]), "has no digest that can be checked"),
        (manifest(config={"digest": f"sha256:{'0' * 64}", "size": 2}, layers=[]), "lacks the image config"),
    ],
)
def test_what_is_no_image(body: bytes, words: str, proxy: Proxy) -> None:
    proxy.faults.append(Fault("/manifests/", status=200, body=body))
    with pytest.raises(ImageError) as caught:
        opened(proxy)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_an_artifact_is_no_image(proxy: Proxy, plain: str) -> None:
    """A chart of Helm: its config lies there and is the config of something else."""
    config = b'{"name": "chart"}'
    digest = digest_of(config)
    kind = "application/vnd.cncf.helm.config.v1+json"
    body = manifest(config={"mediaType": kind, "digest": digest, "size": len(config)}, layers=[])
    proxy.faults += [
        Fault("/manifests/", status=200, body=body),
        Fault(f"/blobs/{digest}", status=200, body=config),
    ]
    with pytest.raises(ImageError, match=r"of type application/vnd\.cncf\.helm.* is no image config"):
        opened(proxy)


def test_an_answer_without_end(proxy: Proxy) -> None:
    proxy.faults.append(Fault("/manifests/", status=200, body=b" " * (17 << 20)))
    with pytest.raises(ServiceError, match="answers with more than"):
        opened(proxy)


# --------------------------------------------------------------------------------------------------------------------
# Names that the registry does not have, and registries that do not answer
# --------------------------------------------------------------------------------------------------------------------


def test_wrong_tags_and_names(proxy: Proxy, plain: str, layout: Path) -> None:
    push(f"oci:{layout}:a", f"{plain}/tags:v0.9.1-xpu")
    push(f"oci:{layout}:a", f"{plain}/tags:nightly")

    def unknown(name: str) -> UnknownReferenceError:
        with pytest.raises(UnknownReferenceError) as caught:
            open_registry(f"{proxy.address}/{name}", None, INSECURE)
        return caught.value

    error = unknown("tags:v0.9.2-xpu")
    assert str(error) == f"{proxy.address}/tags has no tag 'v0.9.2-xpu'"
    assert error.hint == "near to it: v0.9.1-xpu"
    assert unknown("tags:zzz").hint == "it has nightly and v0.9.1-xpu"
    assert str(unknown("tagz:nightly")) == f"{proxy.address} has no image tagz"
    assert "has no image @sha256:0000" in str(unknown(f"tags@sha256:{'0' * 64}"))
    proxy.faults.append(Fault("/tags/list", status=405))
    assert str(unknown("tags:v0.9.2-xpu")) == f"{proxy.address}/tags has no tag 'v0.9.2-xpu'"


def test_tags_on_several_pages(proxy: Proxy) -> None:
    following = {"Link": '</v2/x/tags/list?last=b&n=2>; rel="next"'}
    unknown = Fault("/manifests/", status=404)
    first = Fault("n=1000", status=200, headers=following, body=b'{"tags": ["a", "b"]}')
    proxy.faults += [unknown, first, Fault("last=b", status=200, body=b'{"tags": ["nightly-2", null]}')]
    with pytest.raises(UnknownReferenceError) as caught:
        open_registry(f"{proxy.address}/x:nightly", None, INSECURE)
    assert caught.value.hint == "near to it: nightly-2"
    first.headers, proxy.faults[2] = {"Link": '<?n=1000>; rel="next"'}, Fault("never")  # pages without end
    with pytest.raises(UnknownReferenceError):
        open_registry(f"{proxy.address}/x:nightly", None, INSECURE)


def test_nobody_answers() -> None:
    address = f"localhost:{free_port()}"
    for options in (Options(), INSECURE):
        with pytest.raises(ServiceError, match=f"{address} refuses connections"):
            open_registry(f"{address}/x:a", None, options)
    with pytest.raises(ServiceError, match=r"the host registry\.invalid is not known"):
        open_registry("registry.invalid/x:a")


def test_a_registry_that_goes_away_under_way(plain: str, big: bytes) -> None:
    with fault_proxy(plain) as proxy:
        image = opened(proxy)
    with pytest.raises(ServiceError, match="refuses connections"):
        image.layers[0].open()


def test_redirects(proxy: Proxy, plain: str, big: bytes) -> None:
    with fault_proxy(plain) as elsewhere:
        path = f"/v2/{NAME}/blobs/{digest_of(big)}"
        moved = {"Location": f"http://{elsewhere.address}{path}?X-Amz-Signature=secret"}
        proxy.faults.append(Fault(digest_of(big), status=307, headers=moved))
        elsewhere.faults.append(Fault(digest_of(big), cut=2_000_000, times=1))
        assert layer_of(proxy) == big
        assert len(proxy.requests(digest_of(big))) == 2  # each address is good for a while only
        assert [each.headers.get("Range") for each in elsewhere.requests("")] == [None, "bytes=2000000-"]
        elsewhere.faults.append(Fault(digest_of(big), status=500))
        assert "secret" not in str(trouble(proxy, ServiceError))
    proxy.faults[:] = [Fault("/manifests/", status=302, headers={"Location": f"/v2/{NAME}/manifests/a"})]
    assert "redirects without end" in str(trouble(proxy, ServiceError))
    for other in ("ftp://localhost/x", "file:///etc/passwd"):
        proxy.faults[:] = [Fault("/manifests/", status=302, headers={"Location": other})]
        assert "sends us on to what is no address" in str(trouble(proxy, ServiceError))


def test_a_proxy_from_the_environment(proxy: Proxy, big: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://user:hunter2@{proxy.address}")
    image = open_registry(f"registry.invalid:80/{NAME}:a", None, INSECURE)
    with image.layers[0].open() as stream:
        assert stream.read() == big
    assert all(each.path.startswith("http://registry.invalid") for each in proxy.requests("manifests"))
    monkeypatch.setenv("HTTP_PROXY", f"http://user:hunter2@localhost:{free_port()}")
    with pytest.raises(ServiceError) as caught:
        open_registry(f"registry.invalid:80/{NAME}:a", None, INSECURE)
    assert "the proxy on the way to registry.invalid:80 can't be used" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    proxy.clear()
    assert layer_of(proxy) == big  # loopback never goes through one


# --------------------------------------------------------------------------------------------------------------------
# Many at once, and giving up
# --------------------------------------------------------------------------------------------------------------------


def test_several_layers_at_once(proxy: Proxy, plain: str, tmp_path: Path) -> None:
    layers = [tar_bytes([Member(f"file{number}", bytes([number]) * 200_000)]) for number in range(6)]
    write_layout(tmp_path / "x", layers, {}, "none", tag="a")
    push(f"oci:{tmp_path}/x:a", f"{plain}/many:a", "--preserve-digests")
    proxy.faults.append(Fault("/blobs/", piece=100_000, delay=0.05))
    image = open_registry(f"{proxy.address}/many:a", None, INSECURE)
    with Store.temporary() as store:
        indexes = index_layers(image.layers, store)
    assert [index.diff_id for index in indexes] == [digest_of(layer) for layer in layers]
    proxy.rest()
    assert proxy.most_at_once >= 3


@pytest.fixture
def stalled(proxy: Proxy, big: bytes) -> Iterator[Image]:
    proxy.faults.append(Fault(digest_of(big), stall=400_000))
    yield opened(proxy, msgspec.structs.replace(INSECURE, read_timeout=600))
    proxy.over.set()
    proxy.rest()
    proxy.over.clear()


@pytest.mark.parametrize("give_up", ["stop", "close"])
def test_whoever_waits_can_be_told_to_give_up(give_up: str, stalled: Image) -> None:
    """A read that would wait for ten minutes ends at once; so does one that starts later."""
    transfer, layer = stalled.transfer, stalled.layers[0]
    assert transfer is not None
    stream = layer.open()
    errors: list[ImgdiffError] = []

    def read() -> None:
        try:
            stream.read()
        except ImgdiffError as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(3000):
        if transfer.fetched() >= 300_000:
            break
        time.sleep(0.01)
    end: Callable[[], None] = transfer.stop if give_up == "stop" else vars(type(stream))["abort"].__get__(stream)
    end()
    reader.join(timeout=60)
    assert [str(error) for error in errors] == ["reading from the registry was given up"]
    stream.close()
    if give_up == "stop":
        with pytest.raises(ServiceError, match="was given up"):
            layer.open()


def test_a_layer_that_fails_ends_those_that_wait(proxy: Proxy, stalled: Image) -> None:
    """One layer is broken and another would wait for ten minutes."""
    broken = msgspec.structs.replace(stalled.layers[0], diff_id=f"sha256:{'1' * 64}", open=_fail)
    assert stalled.transfer is not None
    with Store.temporary() as store, pytest.raises(BlobError, match="broken on purpose"):
        index_layers([stalled.layers[0], broken], store, None, 2, stalled.transfer.stop)


def _fail() -> None:
    raise BlobError("broken on purpose")
