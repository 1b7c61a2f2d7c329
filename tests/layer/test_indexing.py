"""What the pass keeps, several layers at a time, the cache, progress, and giving up."""

from __future__ import annotations

import hashlib
import io
import py_compile
import random
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import pytest

from imgdiff.errors import BlobError
from imgdiff.kinds import elf
from imgdiff.layer import index_layers
from imgdiff.layer._content import RULES
from imgdiff.model import Descriptor, ElfFacts, Layer, PycStamp
from imgdiff.store import Store
from tests.layer.make import END, files, gz, header, info, layer, padded, sha256, tar


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_texts_are_kept_and_others_are_not() -> None:
    big = random.Random(1).randbytes(2_200_000)  # over two chunks
    contents = {
        "lib/python3.12/site-packages/x/__init__.py": b"import y\n" * 200,
        "lib/python3.12/site-packages/x-1.dist-info/RECORD": b"x/__init__.py,,\n",
        "etc/ld.so.conf": b"/opt/lib\n",
        "var/lib/dpkg/status": b"Package: a\n" * 150_000,
        "weights.bin": big,
    }
    plain = tar((info(name), content) for name, content in contents.items())
    with Store.temporary() as store:
        indexes = index_layers([layer(plain, gz(plain))], store)
        texts = store.texts(indexes)
        for name, content in contents.items():
            assert texts.get(digest(content)) == (None if name == "weights.bin" else content), name
        assert texts.get(digest(b"other")) is None


def test_a_text_with_holes_is_kept_whole() -> None:
    content = b"import a\n" + bytes(5000) + b"# end\n"
    records = {b"GNU.sparse.map": b"0,9,5009,6", b"GNU.sparse.size": b"%d" % len(content), b"GNU.sparse.name": b"x.py"}
    from tests.layer.make import pax

    plain = pax(*records.items()) + header(b"GNUSparseFile.0/x.py", size=15) + padded(b"import a\n# end\n") + END
    with Store.temporary() as store:
        indexes = index_layers([layer(plain)], store)
        assert indexes[0].entries[0].path == b"x.py"
        assert store.texts(indexes).get(digest(content)) == content


@pytest.mark.parametrize("size", [5_000, 2_000_000])
@pytest.mark.parametrize("before", [512, 1024, 4096])
def test_what_lies_over_a_border_of_chunks_is_kept_and_stamped(before: int, size: int) -> None:
    script = b"#!/bin/sh\n" + b"echo a line\n" * (size // 12)
    bytecode = bytes(16) + random.Random(3).randbytes(size)
    padding = (1 << 20) - 2 * 512 - before  # two headers, and so many bytes of the content in front of the border
    for name, content in (("bin/run", script), ("m.pyc", bytecode)):
        plain = tar([(info("padding.bin"), bytes(padding)), (info(name), content)])
        assert plain.index(content) == (1 << 20) - before
        with Store.temporary() as store:
            indexes = index_layers([layer(plain)], store)
            assert indexes[0].entries[1].digest == digest(content)
            assert store.texts(indexes).get(digest(content)) == content
            if name == "m.pyc":
                assert indexes[0].stamps == {digest(content): PycStamp(content[:16], digest(content[16:]))}


def test_stamps_of_bytecode(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("x = 1\n" * 3, encoding="ascii")
    small = Path(py_compile.compile(str(tmp_path / "m.py"), cfile=str(tmp_path / "m.pyc")) or "").read_bytes()
    large = small[:16] + random.Random(2).randbytes(1_500_000)
    plain = tar([(info("a/m.pyc"), small), (info("b/m.pyc"), small), (info("large.pyc"), large), (info("s.pyc"), b"x")])
    with Store.temporary() as store:
        found = index_layers([layer(plain)], store)[0]
    assert found.stamps == {digest(content): PycStamp(content[:16], digest(content[16:])) for content in (small, large)}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_facts_of_elf_files_go_to_the_store(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text('const char *name = "libneeded.so.7"; int f(void) { return 1; }', encoding="ascii")
    target = tmp_path / "libx.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libx.so.1", "-o", target, tmp_path / "a.c"], check=True)
    content = target.read_bytes()
    broken = content[:100]
    plain = tar([(info("lib/libx.so.1"), content), (info("lib/broken.so"), broken), (info("pad"), bytes(1 << 20))])
    with Store.temporary() as store:
        first = index_layers([layer(plain)], store)
        rows = store.facts("elf", elf.VERSION, [digest(content), digest(broken)])
        facts = msgspec.msgpack.decode(rows[digest(content)], type=ElfFacts)
        assert facts.soname == "libx.so.1"
        assert msgspec.msgpack.decode(rows[digest(broken)]).keys() == {"reason"}
        assert store.load_index(sha256(plain), RULES) == first[0]


class _Twice:
    """A scanner that always wants a second read."""

    def __init__(self, head: bytes, size: int) -> None:
        del head, size

    def feed(self, view: memoryview) -> None:
        del view

    def finish(self) -> object:
        from imgdiff.model import Unreadable

        return Unreadable(elf.SECOND_READ)


@pytest.mark.parametrize("held", [32 << 20, 100])
def test_an_elf_file_is_read_a_second_time_where_its_scanner_asks(
    held: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shell = Path(shutil.which("sh") or "/bin/sh").resolve().read_bytes()
    other = shell + b"more"
    plain = tar([(info("bin/sh"), shell), (info("pad"), bytes(3 << 20)), (info("bin/sh"), other)])
    monkeypatch.setattr(elf, "Scanner", _Twice)
    monkeypatch.setattr("imgdiff.layer._content._HELD", held)
    (tmp_path / "sh").write_bytes(shell)
    (tmp_path / "bin").mkdir()
    for target in (layer(plain, gz(plain)), Layer(None, None, lambda: io.BytesIO(), tmp_path)):
        with Store.temporary() as store:
            index_layers([target], store)
            facts = store.facts("elf", elf.VERSION, [digest(shell)])
            assert facts[digest(shell)] == msgspec.msgpack.encode(elf.facts(shell))


class Counting:
    """A layer that counts how often it is opened."""

    def __init__(self, plain: bytes, *, known: bool = True) -> None:
        self.blob = gz(plain)
        self.opened = 0
        descriptor = Descriptor("x", sha256(self.blob), len(self.blob)) if known else None
        self.layer = Layer(descriptor, sha256(plain) if known else None, self._open)

    def _open(self) -> BinaryIO:
        self.opened += 1
        return cast("BinaryIO", io.BytesIO(self.blob))


def test_each_layer_is_read_once_and_a_cached_one_not_at_all(tmp_path: Path) -> None:
    plains = [files(**{f"f{number}": b"%d" % number}) for number in range(5)]
    layers = [Counting(plain) for plain in plains]
    order = [0, 1, 2, 3, 4, 2, 0]
    with Store.open(tmp_path) as store:
        first = index_layers([layers[number].layer for number in order], store)
    assert [found.diff_id for found in first] == [sha256(plains[number]) for number in order]
    assert [one.opened for one in layers] == [1] * 5
    with Store.open(tmp_path) as store:
        assert index_layers([layers[number].layer for number in order], store, jobs=1) == first
    assert [one.opened for one in layers] == [1] * 5


def test_other_rules_read_a_layer_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Counting(files(a=b"1"))
    with Store.open(tmp_path) as store:
        first = index_layers([one.layer], store)
        monkeypatch.setattr("imgdiff.layer.RULES", "another version")
        monkeypatch.setattr("imgdiff.layer._indexing.RULES", "another version")
        assert index_layers([one.layer], store) == first
        assert one.opened == 2
        assert index_layers([one.layer], store) == first
        assert one.opened == 2


def test_two_compressions_of_one_layer_are_one_layer() -> None:
    plain = files(a=b"1")
    one, two = layer(plain, gz(plain)), layer(plain)
    with Store.temporary() as store:
        found = index_layers([one, two], store)
    assert found[0] == found[1]


def test_a_layer_without_a_diff_id_is_cached_under_the_computed_one(tmp_path: Path) -> None:
    plain = files(a=b"1")
    unknown = Counting(plain, known=False)
    with Store.open(tmp_path) as store:
        found = index_layers([unknown.layer, unknown.layer], store)
        assert found[0].diff_id == sha256(plain)
        assert store.load_index(sha256(plain), RULES) == found[0]
    assert unknown.opened == 1


@pytest.mark.parametrize("jobs", [None, 1, 2, 7])
def test_the_number_of_jobs_changes_nothing(jobs: int | None) -> None:
    rng = random.Random(3)
    plains = [files(**{f"f{n}_{m}": rng.randbytes(rng.randrange(60_000)) for m in range(9)}) for n in range(9)]
    with Store.temporary() as store:
        found = index_layers([layer(plain, gz(plain)) for plain in plains], store, jobs=jobs)
    assert [one.diff_id for one in found] == [sha256(plain) for plain in plains]
    assert [len(one.entries) for one in found] == [9] * 9


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.threads: set[int] = set()

    def start(self, label: str, total: int | None) -> None:
        self._note("start", label, total)

    def advance(self, n: int) -> None:
        self._note("advance", n)

    def finish(self) -> None:
        self._note("finish")

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        self.threads.add(threading.get_ident())


def test_progress_counts_stored_bytes_in_the_callers_thread() -> None:
    plains = [files(a=random.Random(number).randbytes(2_500_000)) for number in range(3)]
    layers = [layer(plain, gz(plain)) for plain in plains]
    total = sum(one.descriptor.size for one in layers if one.descriptor)
    progress = Recorder()
    with Store.temporary() as store:
        index_layers(layers, store, progress)
        assert progress.calls[0] == ("start", "Reading layers", total)
        assert progress.calls[-1] == ("finish",)
        assert sum(cast("int", call[1]) for call in progress.calls[1:-1]) == total
        assert progress.threads == {threading.get_ident()}
        silent = Recorder()
        index_layers(layers, store, silent)
        assert silent.calls == []


def test_an_error_ends_the_other_layers_and_the_progress() -> None:
    endless = threading.Event()
    start = header(b"a", fields={124: b"\x80" + (1 << 50).to_bytes(11, "big")})

    class Endless(io.RawIOBase):
        at = 0

        def readinto(self, buffer: Any, /) -> int:
            count = min(len(buffer), 512)
            buffer[:count] = start[self.at : self.at + count].ljust(count, b"\0")
            self.at += count
            endless.set()
            return count

    def bad() -> BinaryIO:
        endless.wait(20)
        return cast("BinaryIO", io.BytesIO(b"no tar" * 100))

    progress = Recorder()
    layers = [
        Layer(Descriptor("x", "", 1 << 60), None, lambda: cast("BinaryIO", Endless())),
        Layer(Descriptor("x", "", 600), None, bad),
    ]
    with Store.temporary() as store:
        with pytest.raises(BlobError, match="is no tar"):
            index_layers(layers, store, progress, jobs=2)
        assert store.info()["layers"] == 0
    assert progress.calls[-1] == ("finish",)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("imgdiff")]


def test_no_thread_is_left_behind() -> None:
    plain = files(a=bytes(20 << 20))
    for blob in (plain, plain[: 8 << 20], gz(plain)[:-9], b"x" * (9 << 20)):
        try:
            with Store.temporary() as store:
                index_layers([layer(plain, blob)], store)
        except BlobError:
            pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("imgdiff")]
