"""Images and containers of real engines: run on the installed docker and podman, and by ``tests/services/engines.sh`` on newer dockers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imgdiff import config, engines, pipeline
from imgdiff.errors import CacheError, ImageError, ServiceError, UnknownReferenceError
from imgdiff.layer import index_layers
from imgdiff.model import Report
from imgdiff.reports import json_v1
from imgdiff.sources import open_image
from imgdiff.sources.daemon import _engine
from imgdiff.store import Store
from tests.services.engine import docker, docker_host, holding, podman_service
from tests.support.command import Shell
from tests.support.elf import Elf, elf_bytes
from tests.support.fixtures import FIXTURES
from tests.support.images import Member, tar_bytes, write_layout

pytestmark = pytest.mark.engine

STORY = "imgdiff-test/story"
LIBRARIES = "imgdiff-test/libraries"


def load(host: str, directory: Path) -> None:
    """Put both images of the founding story into an engine."""
    for side in ("a", "b"):
        archive = directory / f"{side}.tar"
        target = f"docker-archive:{archive}:docker.io/{STORY}:{side}"
        command = ["skopeo", "--insecure-policy", "copy", "-q", f"oci:{FIXTURES}/story/{side}", target]
        if not archive.exists():
            subprocess.run(command, check=True, capture_output=True)
        docker("load", "-q", "-i", str(archive), host=host)


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Give (kind, URL) of an engine that has the story."""
    directory = tmp_path_factory.mktemp("engine")
    if request.param == "podman":
        with podman_service() as url:
            load(url, directory)
            yield "podman", url
        return
    host = docker_host()
    load(host, directory)
    yield "docker", host
    docker("rmi", "-f", f"{STORY}:a", f"{STORY}:b", host=host)


@pytest.fixture
def kind(engine: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Let the engine be the only one that is found, and give its kind."""
    name, url = engine
    for variable in ("DOCKER_HOST", "CONTAINER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DOCKER_HOST" if name == "docker" else "CONTAINER_HOST", url)
    if name == "podman":
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    else:
        monkeypatch.setenv("CONTAINER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.chdir(tmp_path)
    return name


def url(engine: tuple[str, str]) -> str:
    return engine[1]


def report(a: str, b: str, cache: Path | None = None) -> Report:
    return pipeline.diff(a, b, pipeline.Options(cache=cache is not None, cache_dir=cache))


def rest(found: Report) -> dict[str, Any]:
    """Return a report without what tells where the images came from."""
    value: dict[str, Any] = json.loads(json_v1.render(found))
    return {key: item for key, item in value.items() if key not in ("images", "imgdiff")}


def exports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record what is asked of the engine that moves layers or files."""
    asked: list[str] = []
    stream = _engine.Engine._stream

    def recorded(self: _engine.Engine, path: str, parameters: Any, *more: Any) -> _engine.Stream:
        asked.append(path.rpartition("/")[2] + (f" {len(parameters)}" if path == "/images/get" else ""))
        return stream(self, path, parameters, *more)

    monkeypatch.setattr(_engine.Engine, "_stream", recorded)
    return asked


def test_an_image_is_what_it_is_on_disk(kind: str) -> None:
    for side in ("a", "b"):
        on_disk = open_image(f"{FIXTURES}/story/{side}")
        for reference in (f"{STORY}:{side}", f"{kind}:{STORY}:{side}"):
            image = open_image(reference)
            assert (image.source, image.platform, image.reference) == (kind, on_disk.platform, reference)
            assert [layer.diff_id for layer in image.layers] == [layer.diff_id for layer in on_disk.layers]
            assert image.config is not None
            assert on_disk.config is not None
            for field in ("env", "entrypoint", "cmd", "user", "working_dir", "labels"):
                assert getattr(image.config, field) == getattr(on_disk.config, field)
            profile = engines.load_profiles()[0]
            assert config.compare_configs(image.config, on_disk.config, profile, engines.common().env) == ()
            assert image.config_digest in (on_disk.config_digest, None)


def test_the_report_is_that_of_the_disk(kind: str) -> None:
    from_disk = report(f"{FIXTURES}/story/a", f"{FIXTURES}/story/b")
    assert rest(report(f"{STORY}:a", f"{STORY}:b")) == rest(from_disk)
    assert rest(report(f"{FIXTURES}/story/a", f"{kind}:{STORY}:b")) == rest(from_disk)


def test_both_images_come_in_one_archive_and_cached_layers_in_none(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = exports(monkeypatch)
    with Store.open(tmp_path / "cache") as store:
        images = [open_image(f"{STORY}:{side}") for side in ("a", "b")]
        layers = [layer for image in images for layer in image.layers]
        first = index_layers(layers, store)
        assert asked == ["get 2"]
        assert [index.diff_id for index in first] == [layer.diff_id for layer in layers]
        again = [layer for side in ("a", "b") for layer in open_image(f"{STORY}:{side}").layers]
        assert index_layers(again, store) == first
        assert asked == ["get 2"]


def test_only_the_image_that_has_the_missing_layer_is_saved(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = exports(monkeypatch)
    with Store.open(tmp_path / "cache") as store:
        index_layers(open_image(f"{STORY}:a").layers, store)
        both = [layer for side in ("a", "b") for layer in open_image(f"{STORY}:{side}").layers]
        index_layers(both, store)
    assert asked == ["get 1", "get 1"]


def test_files_are_read_again_one_by_one(kind: str, engine: tuple[str, str]) -> None:
    image = open_image(f"{STORY}:a")
    with Store.temporary() as store:
        indexes = index_layers(image.layers, store)
    wanted = {entry.path: entry.digest for index in indexes for entry in index.entries if entry.digest}
    some = {path: digest for path, digest in list(wanted.items())[::40] if digest is not None}
    assert image.contents is not None
    before = docker("ps", "-aq", host=url(engine))
    found = dict.fromkeys(path for path, _ in image.contents({**some, b"not/there": b"0" * 32}))
    assert set(found) <= set(some)
    assert len(found) >= len(some) - 1  # a later layer may hold another content
    assert docker("ps", "-aq", host=url(engine)) == before


def test_a_layer_opens_on_its_own(kind: str) -> None:
    layer = open_image(f"{STORY}:b").layers[-1]
    on_disk = open_image(f"{FIXTURES}/story/b").layers[-1]
    single = type(layer)(None, layer.diff_id, layer.open)
    with Store.temporary() as one, Store.temporary() as other:
        assert index_layers([single], one) == index_layers([on_disk], other)


def test_an_image_as_one_tree(kind: str) -> None:
    """What stands in where an engine leaves layers out of its archive."""
    image = open_image(f"{STORY}:a")
    assert image.whole is not None
    whole = image.whole()
    assert (whole.source, len(whole.layers), whole.contained) == (f"{kind}-export", 1, True)
    assert whole.config == image.config


def test_the_tree_stands_in_for_layers_that_are_not_there(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from imgdiff.sources.daemon import _saved

    monkeypatch.setattr(_saved, "_BY_DIGEST", re.compile("nothing"))
    monkeypatch.setattr(_saved, "_LEGACY", re.compile("nothing"))
    found = report(f"{STORY}:a", f"{STORY}:b")
    assert (found.image_a.source, found.image_b.source) == (f"{kind}-export", f"{kind}-export")
    on_disk = report(f"{FIXTURES}/story/a", f"{FIXTURES}/story/b")
    assert rest(found)["changes"] == rest(on_disk)["changes"]
    assert found.verdict.outcome == on_disk.verdict.outcome
    assert any("no digest of a layer could be checked" in caveat for caveat in found.verdict.caveats)


# --------------------------------------------------------------------------------------------------------------------
# Containers
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def containers(engine: tuple[str, str]) -> Iterator[list[str]]:
    made: list[str] = []
    yield made
    for name in made:
        docker("rm", "-f", "-v", name, host=url(engine))


def create(engine: tuple[str, str], made: list[str], name: str, *options: str) -> None:
    made.append(name)
    docker("create", "--name", name, "--network", "none", *options, host=url(engine))


def test_a_fresh_container_is_its_image(kind: str, engine: tuple[str, str], containers: list[str]) -> None:
    create(engine, containers, "imgdiff-fresh", f"{STORY}:a")
    found = report(f"{STORY}:a", "container:imgdiff-fresh")
    assert found.verdict.outcome == "identical"
    assert found.image_b.source == f"{kind}-container"
    assert found.config == ()


def test_what_was_changed_in_a_container(
    kind: str, engine: tuple[str, str], containers: list[str], tmp_path: Path
) -> None:
    create(engine, containers, "imgdiff-changed", "-e", "VLLM_X=1", f"{STORY}:a")
    path = "/opt/venv/lib/python3.12/site-packages/vllm/__init__.py"
    copied = tmp_path / "__init__.py"
    docker("cp", f"imgdiff-changed:{path}", str(copied), host=url(engine))
    copied.write_text(copied.read_text() + "\nEDITED = 1\n")
    docker("cp", str(copied), f"imgdiff-changed:{path}", host=url(engine))
    found = report(f"{STORY}:a", "container:imgdiff-changed")
    assert found.verdict.outcome == "stands"
    assert [change.change.path.decode() for change in found.changes] == [path.lstrip("/")]
    assert [(each.field, each.name) for each in found.config] == [("env", "VLLM_X")]


def test_mounts_are_said_and_block_what_they_hide(
    kind: str, engine: tuple[str, str], containers: list[str], tmp_path: Path
) -> None:
    package = "/opt/venv/lib/python3.12/site-packages/vllm"
    mounts = ("-v", f"{tmp_path}:{package}", "-v", f"{tmp_path}:/models")
    create(engine, containers, "imgdiff-mounted", *mounts, f"{STORY}:a")
    found = report(f"{STORY}:a", "container:imgdiff-mounted")
    (spot,) = [spot for spot in found.blindspots if spot.what == "mount"]
    assert spot.path is not None
    assert spot.path.decode() == package.lstrip("/")
    assert "engine-core" in spot.roles
    assert found.verdict.outcome == "undecided"
    assert any("/models (from the host)" in caveat for caveat in found.verdict.caveats)


# --------------------------------------------------------------------------------------------------------------------
# What goes wrong
# --------------------------------------------------------------------------------------------------------------------


def test_unknown_names_have_their_nearest(kind: str, engine: tuple[str, str], containers: list[str]) -> None:
    with pytest.raises(UnknownReferenceError, match=f"the {kind} engine .* has none of this name") as caught:
        open_image(f"{kind}:{STORY}:c")
    assert f"{STORY}:a" in str(caught.value.hint)
    create(engine, containers, "imgdiff-known", f"{STORY}:a")
    with pytest.raises(UnknownReferenceError, match="names no container") as caught:
        open_image("container:imgdiff-knwon")
    assert "container:imgdiff-known" in str(caught.value.hint)


def test_another_platform_is_refused(kind: str, engine: tuple[str, str], containers: list[str]) -> None:
    create(engine, containers, "imgdiff-platform", f"{STORY}:a")
    for reference in (f"{kind}:{STORY}:a", "container:imgdiff-platform"):
        with pytest.raises(ImageError, match=r"for linux/amd64, not for linux/arm64"):
            open_image(reference, "linux/arm64")
        assert open_image(reference, "linux/amd64").platform == "linux/amd64"


def test_an_image_that_goes_away_while_it_is_read(kind: str, engine: tuple[str, str], tmp_path: Path) -> None:
    docker("tag", f"{STORY}:a", "imgdiff-test/gone:a", host=url(engine))
    (tmp_path / "Dockerfile").write_text(f"FROM {STORY}:a\nLABEL gone=1\n")
    command = ("build", "-q", "--network", "none", "-t", "imgdiff-test/gone:a", str(tmp_path))
    if kind == "podman":
        pytest.skip("root may not build with podman here")
    docker(*command, host=url(engine))
    image = open_image("imgdiff-test/gone:a")
    docker("rmi", "-f", "imgdiff-test/gone:a", host=url(engine))
    with Store.temporary() as store, pytest.raises((ImageError, ServiceError)) as caught:
        index_layers(image.layers, store)
    assert caught.value.hint


@pytest.fixture(scope="module")
def libraries(engine: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two images in the engine, :a and :b, with a library each that differs: to tell what in it, it is read again."""
    directory = tmp_path_factory.mktemp("libraries")
    for side, code in (("a", b"\xc3"), ("b", b"\x90\xc3")):
        layer = tar_bytes([Member("usr/lib/libx.so.1", elf_bytes(Elf(soname="libx.so.1", text=code)))])
        write_layout(directory / side, [layer], {"Cmd": ["/x"]}, "none")
        target = f"docker-archive:{directory}/{side}.tar:docker.io/{LIBRARIES}:{side}"
        command = ["skopeo", "--insecure-policy", "copy", "-q", f"oci:{directory}/{side}", target]
        subprocess.run(command, check=True, capture_output=True)
        docker("load", "-q", "-i", f"{directory}/{side}.tar", host=url(engine))
    yield LIBRARIES
    docker("rmi", "-f", f"{LIBRARIES}:a", f"{LIBRARIES}:b", host=url(engine))


@pytest.mark.parametrize("words", [b"/containers/create", b"/archive?", b"DELETE /"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
def test_an_interrupt_leaves_no_container(
    words: bytes, signum: signal.Signals, kind: str, engine: tuple[str, str], libraries: str, tmp_path: Path
) -> None:
    """Also while the engine makes one and has not said its ID, or removes it."""
    before = docker("ps", "-aq", host=url(engine))
    shell = Shell(tmp_path)
    with holding(url(engine), words) as held:
        variable = "DOCKER_HOST" if kind == "docker" else "CONTAINER_HOST"
        references = [f"{kind}:{libraries}:{side}" for side in ("a", "b")]
        process = shell.start(*references, "--no-cache", env={variable: held.url})
        assert held.asked.wait(60)
        if words == b"/archive?":  # what a `kill -9` leaves can be found
            assert docker("ps", "-aq", "--filter", "label=org.imgdiff=temporary", host=url(engine))
        process.send_signal(signum)
        time.sleep(0.2)  # for it to arrive
        held.go_on.set()
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (-signum, b"", b"interrupted")
    assert docker("ps", "-aq", host=url(engine)) == before
    assert shell.left() == []


def test_a_full_disk_for_what_is_read_again_is_one_sentence(
    kind: str, engine: tuple[str, str], libraries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no reason to read it in another way; the container is removed."""
    before = docker("ps", "-aq", host=url(engine))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "r+b", buffering=0))  # noqa: PTH123, SIM115
    with pytest.raises(CacheError, match=r"The directory for temporary files, .*, can't be used: No space left"):
        report(f"{kind}:{libraries}:a", f"{kind}:{libraries}:b")
    assert docker("ps", "-aq", host=url(engine)) == before


PATIENCE = {"docker": 2, "podman": 8}  # seconds; podman takes one or two for anything where the machine is busy


def test_an_engine_that_is_slow_to_make_a_container_leaves_none(
    kind: str, engine: tuple[str, str], libraries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = PATIENCE[kind]
    monkeypatch.setenv("DOCKER_CLIENT_TIMEOUT", str(seconds))
    before = docker("ps", "-aq", host=url(engine))
    with holding(url(engine), b"/containers/create") as held:
        monkeypatch.setenv("DOCKER_HOST" if kind == "docker" else "CONTAINER_HOST", held.url)
        waiting = threading.Timer(seconds + 1, held.go_on.set)
        waiting.start()
        assert report(f"{kind}:{libraries}:a", f"{kind}:{libraries}:b").changes
        waiting.join()
        assert held.asked.is_set()
    assert docker("ps", "-aq", host=url(engine)) == before


def test_an_engine_that_stops_in_the_middle_of_an_archive(
    kind: str, engine: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = PATIENCE[kind]
    monkeypatch.setenv("DOCKER_CLIENT_TIMEOUT", str(seconds))
    with holding(url(engine), b"/images/get", 100_000) as held:
        monkeypatch.setenv("DOCKER_HOST" if kind == "docker" else "CONTAINER_HOST", held.url)
        with pytest.raises(ServiceError, match=rf"the {kind} engine .* did not answer in time \({seconds} s\)"):
            report(f"{kind}:{STORY}:a", f"{kind}:{STORY}:b")
        assert held.asked.is_set()
