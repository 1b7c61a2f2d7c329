"""--trust-toc over a real registry: the same report, fewer bytes, and nothing that was believed taken for what was read."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from imgdiff import pipeline
from imgdiff.errors import BlobError
from imgdiff.model import Report
from imgdiff.reports import View, render
from imgdiff.sources import open_image
from imgdiff.store import Store
from tests.services.faults import Fault, Proxy
from tests.services.registries import push
from tests.support.command import Shell
from tests.support.elf import Elf, elf_bytes
from tests.support.fixtures import FIXTURES, all_members, read_case
from tests.support.images import Member
from tests.support.made import MissingPython
from tests.support.tocs import Built, Edit, Format, build, write_built

FORMATS: tuple[Format, ...] = ("eStargz", "zstd:chunked")
WEIGHTS = random.Random(9).randbytes(600_000)
SETTINGS = {"Entrypoint": ["python3.11", "-m", "app"], "WorkingDir": "/srv", "Env": ["PATH=/usr/bin"]}


def app(answer: bytes, *, more: Sequence[Member] = ()) -> list[Member]:
    loader = elf_bytes(Elf(soname="ld-linux-x86-64.so.2", text=b"\xc3"))
    python = elf_bytes(Elf(interpreter="/lib64/ld-linux-x86-64.so.2", needed=["libc.so.6"]))
    return [
        Member("usr/bin/python3.11", python, mode=0o755),
        Member("lib64/ld-linux-x86-64.so.2", loader, mode=0o755),
        Member("usr/lib/python3.11/os.py", b"import sys\n"),
        Member("srv/app/__init__.py", b""),
        Member("srv/app/__main__.py", b"from app.engine import answer\n"),
        Member("srv/app/engine.py", b"def answer(text):\n    return " + answer + b"\n"),
        Member("srv/model/weights", WEIGHTS),
        *more,
    ]


def put(
    proxy: Proxy, directory: Path, name: str, layers: Sequence[Built], config: Mapping[str, Any], *, vouch: bool = True
) -> str:
    """Push an image as it is, and return its reference through the proxy."""
    target = directory / name.replace("/", "-")
    write_built(target, layers, config, "t", vouch=vouch)
    push(f"oci:{target}:t", f"{proxy.upstream}/{name}:t", "--preserve-digests")
    return f"registry:{proxy.address}/{name}:t"


def pair(
    proxy: Proxy, directory: Path, name: str, kind: Format, *, edit: Edit | None = None, vouch: bool = True
) -> tuple[str, str]:
    """Push two images of one layer each, which differ in one module."""
    a, b = (
        put(proxy, directory, f"{name}/{side}", [build(app(text), kind, edit=edit)], SETTINGS, vouch=vouch)
        for side, text in (("a", b"1"), ("b", b"22"))
    )
    return a, b


def compare(names: tuple[str, str], cache: Path, *, trust: bool) -> Report:
    options = pipeline.Options(cache_dir=cache, insecure=True, trust_toc=trust, jobs=1)
    return pipeline.diff(names[0], names[1], options)


def said(report: Report) -> dict[str, Any]:
    """Return what a report says, but for what tells how the images were read."""
    wire: dict[str, Any] = json.loads(render(report, "json", View()))
    del wire["imgdiff"], wire["images"], wire["verdict"]["caveats"]
    return wire


def blob_of(name: str) -> str:
    (layer,) = open_image(name, insecure=True).layers
    assert layer.descriptor is not None
    return layer.descriptor.digest


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "case",
    [
        "story",
        "kernel-code",
        "bytecode-header",
        "directory-became-a-link",
        "hard-link-then-overwrite",
        "lost-execute-bit",
    ],
)
def test_a_case_gives_the_report_that_it_gives_read_whole(
    case: str, kind: Format, proxy: Proxy, tmp_path: Path
) -> None:
    folder = FIXTURES / case
    read = read_case(folder)
    names = []
    for side, image in (("a", read.a), ("b", read.b)):
        config = {"architecture": "amd64", "os": "linux", "config": {**read.config, **image.config}}
        try:
            layers = [build(members, kind, chunk=3000) for members in all_members(folder, read, image)]
        except MissingPython as error:
            pytest.skip(str(error))
        names.append(put(proxy, tmp_path, f"cases/{case}/{kind.replace(':', '-').lower()}/{side}", layers, config))
    a, b = names
    whole = compare((a, b), tmp_path / "whole", trust=False)
    trusted = compare((a, b), tmp_path / "trusted", trust=True)
    assert said(trusted) == said(whole)
    assert trusted.verdict.caveats[0].startswith("Not hashed by imgdiff, but taken from layers' tables of contents:")
    assert all(trusted.image_a.believed)
    assert (whole.image_a.believed, whole.image_b.believed) == ((), ())
    assert said(compare((a, b), tmp_path / "trusted", trust=True)) == said(whole)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_comes_and_what_is_said(kind: Format, proxy: Proxy, tmp_path: Path) -> None:
    a, b = pair(proxy, tmp_path, f"said/{FORMATS.index(kind)}", kind)
    proxy.clear()
    report = compare((a, b), tmp_path / "cache", trust=True)
    assert not any(each.headers.get("Range") is None for each in proxy.requests("blobs") if each.sent > 5000)
    layers = [blob_of(name) for name in (a, b)]
    moved = [proxy.sent(f"/blobs/{digest}") for digest in layers]
    assert report.image_a.transfer is not None
    assert report.image_b.transfer is not None
    sizes = [summary.layers[0][2] for summary in (report.image_a, report.image_b)]
    assert report.image_a.transfer[1] == sizes[0] - moved[0]
    assert report.image_b.transfer[1] == sizes[1] - moved[1]
    assert moved[0] < 160_000  # the weights were not needed: of them the beginning came
    assert moved[1] < 8_000  # and the second layer has one module that the first lacks
    table = [_unhashed(summary) for summary in (report.image_a, report.image_b)]
    files = [f"{count} files in layer {digest}" for count, digest in zip(table, layers, strict=True)]
    assert report.verdict.caveats[0] == (
        f"Not hashed by imgdiff, but taken from layers' tables of contents: the content of {files[0]}, {files[1]}."
    )
    wire = json.loads(render(report, "json", View()))
    stated = open_image(a, insecure=True).layers[0].annotations
    contents = wire["images"]["a"]["layers"][0]["table_of_contents"]
    assert contents["digest"] in stated.values()
    assert contents["unhashed"] == table[0]
    for format_ in ("terminal", "markdown"):
        assert "Not hashed by imgdiff, but taken from layers' tables of contents" in " ".join(
            render(report, format_, View()).replace("\\", "").split()
        )


def _unhashed(summary: Any) -> int:
    (believed,) = summary.believed
    return int(believed[2])


@pytest.mark.parametrize("kind", FORMATS)
def test_the_next_build_costs_its_table_and_what_changed(kind: Format, proxy: Proxy, tmp_path: Path) -> None:
    """The old image was read whole yesterday; of today's comes what is new."""
    a, b = pair(proxy, tmp_path, f"next/{FORMATS.index(kind)}", kind)
    cache = tmp_path / "cache"
    compare((a, f"rootfs:{_empty(tmp_path)}"), cache, trust=False)
    proxy.clear()
    report = compare((a, b), cache, trust=True)
    assert proxy.sent(f"/blobs/{blob_of(a)}") == 0
    assert proxy.sent(f"/blobs/{blob_of(b)}") < 8_000
    assert report.image_a.believed == ()
    assert len(report.image_b.believed) == 1
    assert said(report) == said(compare((a, b), tmp_path / "other", trust=False))


def _empty(directory: Path) -> Path:
    (directory / "empty").mkdir()
    (directory / "empty" / "x").touch()
    return directory / "empty"


@pytest.mark.parametrize("kind", FORMATS)
def test_later_runs(kind: Format, proxy: Proxy, tmp_path: Path) -> None:
    a, b = pair(proxy, tmp_path, f"later/{FORMATS.index(kind)}", kind)
    cache = tmp_path / "cache"
    trusted = compare((a, b), cache, trust=True)
    proxy.clear()
    again = compare((a, b), cache, trust=True)  # recalled
    assert again.verdict == trusted.verdict
    assert again.image_a.believed == trusted.image_a.believed
    options = pipeline.Options(cache_dir=cache, insecure=True, trust_toc=True, jobs=1, accept=("dormant",))
    other = pipeline.diff(a, b, options)  # another question: the believed indexes are of the cache
    assert other.image_a.believed == trusted.image_a.believed
    assert not any(proxy.sent(f"/blobs/{blob_of(name)}") for name in (a, b))
    whole = compare((a, b), cache, trust=False)  # not recalled, and read to the last byte
    assert whole.image_a.believed == ()
    assert not [text for text in whole.verdict.caveats if "contents" in text]
    for name in (a, b):
        (layer,) = open_image(name, insecure=True).layers
        assert layer.descriptor is not None
        assert proxy.sent(f"/blobs/{layer.descriptor.digest}") == layer.descriptor.size


@pytest.mark.parametrize("kind", FORMATS)
def test_a_shared_layer_is_one(kind: Format, proxy: Proxy, tmp_path: Path) -> None:
    base = build(app(b"1"), kind)
    names = [
        put(proxy, tmp_path, f"shared/{FORMATS.index(kind)}/{side}", [base, top], SETTINGS)
        for side, top in (("a", build([Member("x", b"1")], kind)), ("b", build([Member("x", b"2")], kind)))
    ]
    proxy.clear()
    report = compare((names[0], names[1]), tmp_path / "cache", trust=True)
    layer = open_image(names[0], insecure=True).layers[0]
    assert layer.descriptor is not None
    asked = [each.headers["Range"] for each in proxy.requests(layer.descriptor.digest)]
    assert len(asked) == len(set(asked))
    assert sum(layer.descriptor.digest in text for text in report.verdict.caveats) == 1


@pytest.mark.parametrize("kind", FORMATS)
def test_a_registry_that_refuses_ranges(kind: Format, proxy: Proxy, tmp_path: Path) -> None:
    a, b = pair(proxy, tmp_path, f"refused/{FORMATS.index(kind)}", kind)
    for number, fault in enumerate(
        (Fault("/blobs/", no_range=True), Fault(f"/blobs/{blob_of(a)}", times=1, status=416))
    ):
        proxy.clear()
        proxy.faults.append(fault)
        report = compare((a, b), tmp_path / f"cache{number}", trust=True)
        assert report.image_a.believed in ((), (None,))
        expected = f"Layer {blob_of(a)} was read whole: its registry gives blobs whole only."
        assert expected in report.verdict.caveats
    proxy.clear()
    assert said(report) == said(compare((a, b), tmp_path / "other", trust=False))


def test_a_registry_that_begins_to_refuse(proxy: Proxy, tmp_path: Path) -> None:
    """A range that breaks off goes on where it stopped; where that is refused, the layer is read whole."""
    a, b = pair(proxy, tmp_path, "begins", "eStargz")
    digest = blob_of(a)
    proxy.clear()
    proxy.faults += [Fault(digest, times=2), Fault(digest, times=1, cut=100), Fault(digest, times=1, no_range=True)]
    report = compare((a, b), tmp_path / "cache", trust=True)
    assert f"Layer {digest} was read whole: its registry gives blobs whole only." in report.verdict.caveats
    proxy.clear()
    proxy.faults += [Fault(digest, times=2), Fault(digest, times=2, cut=100)]
    report = compare((a, b), tmp_path / "other", trust=True)
    assert len(report.image_a.believed) == 1
    assert report.image_a.believed[0] is not None


@pytest.mark.parametrize("kind", FORMATS)
def test_no_annotation_no_trust(kind: Format, proxy: Proxy, tmp_path: Path) -> None:
    a, b = pair(proxy, tmp_path, f"none/{FORMATS.index(kind)}", kind, vouch=False)
    proxy.clear()
    report = compare((a, b), tmp_path / "cache", trust=True)
    assert not [each for each in proxy.requests("blobs") if "Range" in each.headers]
    assert report.image_a.believed == ()
    assert report.verdict.caveats[:2] == tuple(
        f"{side}: the manifest vouches for no table of contents of 1 of 1 layers: --trust-toc changes nothing for them."
        for side in "ab"
    )
    assert said(report) == said(compare((a, b), tmp_path / "other", trust=False))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_registry_that_tampers(kind: Format, proxy: Proxy, tmp_path: Path) -> None:
    """With the table, and with a content behind a right table."""
    a, b = pair(proxy, tmp_path, f"tampers/{FORMATS.index(kind)}", kind)
    digest = blob_of(a)
    with_footer = int(kind == "eStargz")
    proxy.clear()
    proxy.faults += [Fault(digest, times=with_footer), Fault(digest, times=1, corrupt=0 if with_footer else 40)]
    if with_footer:  # no gzip any more: the layer is read whole, and then is what the manifest says
        report = compare((a, b), tmp_path / "first", trust=True)
        assert f"Layer {digest} was read whole: its table of contents " in " ".join(report.verdict.caveats)
    else:
        with pytest.raises(BlobError, match=f"The table of contents of the layer blob {digest} was changed"):
            compare((a, b), tmp_path / "cache", trust=True)
    proxy.clear()
    proxy.faults += [Fault(digest, times=with_footer + 2), Fault(digest, times=1, corrupt=20)]
    with pytest.raises(BlobError, match="is not what its table of contents says"):
        compare((a, b), tmp_path / "cache", trust=True)
    proxy.clear()
    with Store.open(tmp_path / "cache") as store:
        assert store.info()["layers"] == 0
    compare((a, b), tmp_path / "cache", trust=True)


def test_an_image_on_disk_changes_nothing(proxy: Proxy, tmp_path: Path) -> None:
    a, b = pair(proxy, tmp_path, "disk", "eStargz")
    report = compare((a, f"oci:{tmp_path / 'disk-b'}:t"), tmp_path / "cache", trust=True)
    assert report.image_b.believed == ()
    assert "b does not come from a registry: --trust-toc changes nothing for it." in report.verdict.caveats
    report = compare((a, b), tmp_path / "cache", trust=True)  # of the same content, and another question
    assert not [text for text in report.verdict.caveats if "does not come" in text]
    assert said(report) == said(compare((a, b), tmp_path / "other", trust=False))


def test_the_table_is_no_difference_that_bears(tmp_path: Path) -> None:
    """In eStargz it is a file of the image, in the working directory where that is the root, and no two builds have the
    same one."""
    sides = []
    for side, text in (("a", b"X = 1\n"), ("b", b"X = 2\n")):
        members = app(b"1", more=[Member("srv/app/unused.py", text)])
        config = {**SETTINGS, "WorkingDir": "/", "Env": ["PATH=/usr/bin", "PYTHONPATH=/srv"]}
        write_built(tmp_path / side, [build(members, "eStargz")], config, "t")
        sides.append(f"oci:{tmp_path / side}:t")
    report = pipeline.diff(sides[0], sides[1], pipeline.Options(cache=False, jobs=1))
    levels = {change.change.path: change.load["main"].level for change in report.changes}
    assert levels == {b"stargz.index.json": "outside", b"srv/app/unused.py": "unreached"}
    assert report.verdict.outcome == "killed"


def test_the_command_line(proxy: Proxy, tmp_path: Path) -> None:
    a, b = pair(proxy, tmp_path, "command", "zstd:chunked")
    shell = Shell(tmp_path)
    ran = shell.fork(a, b, "--insecure", "--trust-toc", "--format", "json", "--no-cache")
    plain = shell.fork(a, b, "--insecure", "--format", "json", "--no-cache")
    assert ran.code == plain.code == 1, ran.err
    assert "table_of_contents" in ran.out
    assert "table_of_contents" not in plain.out
    assert "fetched" in ran.err
    assert "--trust-toc" in shell.fork("diff", "--help").out
