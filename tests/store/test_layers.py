"""Layer indexes and packs: what was written is what is read, and nothing else is believed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.errors import CacheError
from imgdiff.model import Blindspot, FileEntry, LayerIndex, PycStamp
from imgdiff.store import Store


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def diff_id(number: int = 0) -> str:
    return "sha256:" + hashlib.sha256(b"layer %d" % number).hexdigest()


TEXTS = [b"", b"x", b"import os\n" * 300, random.Random(1).randbytes(3000), b"a" * 3_000_000]


def an_index(number: int = 0) -> LayerIndex:
    return LayerIndex(
        diff_id(number),
        (
            FileEntry(b"", "dir", 0o755, 0, 0, 0, 0),
            FileEntry(b"\xff/a", "file", 0o4755, 1 << 40, 3, -5, 1 << 42, digest(b"a"), None, ((b"user.x", b"\0"),)),
            FileEntry(b"l", "symlink", 0o777, 0, 0, 1_700_000_000_123_456_789, 0, None, b"\xfe"),
            FileEntry(b"n", "char", 0o666, 0, 0, 0, 0, device=(1, 3)),
        ),
        (b"gone",),
        (b"opaque", b""),
        {digest(b"a"): PycStamp(b"h" * 16, digest(b"body"))},
        (Blindspot("member name", "The name leads out.", b"\xff"),),
        12345 + number,
    )


def write(store: Store, number: int = 0, texts: list[bytes] = TEXTS) -> LayerIndex:
    index = an_index(number)
    with store.writer() as writer:
        for text in [*texts, *texts]:
            writer.keep(digest(text), memoryview(text))
        writer.fact("elf", 3, digest(b"elf"), b"facts")
        writer.commit(index)
    return index


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "cache") as opened:
        yield opened


def files_of(store: Store) -> list[Path]:
    return sorted(path for path in (store.directory / "layers").iterdir())


def test_what_was_written_is_read(store: Store) -> None:
    assert store.load_index(diff_id()) is None
    index = write(store)
    assert store.load_index(diff_id()) == index
    texts = store.texts([index])
    assert [texts.get(digest(text)) for text in TEXTS] == TEXTS
    assert texts.get(digest(b"never kept")) is None
    assert len(texts) == len(TEXTS)
    assert store.facts("elf", 3, [digest(b"elf")]) == {digest(b"elf"): b"facts"}
    assert len(files_of(store)) == 2


def test_texts_may_come_in_pieces(store: Store) -> None:
    rng = random.Random(2)
    contents = [b"", b"x", b"import os\n" * 90_000, rng.randbytes(500_000)]
    contents += [rng.randbytes(size) + b"ab" * more for size in range(40, 90) for more in range(60)]
    index = an_index()
    with store.writer() as writer:
        for content in contents:
            for _ in range(2):
                text = writer.start()
                for at in range(0, len(content), 70_001):
                    text.feed(memoryview(content)[at : at + 70_001])
                text.end(digest(content))
        text = writer.start()
        text.feed(memoryview(b"never ended"))
        writer.commit(index)
    assert store.load_index(diff_id()) == index
    texts = store.texts([index])
    assert all(texts.get(digest(content)) == content for content in contents)
    assert len(texts) == len(contents)


def test_it_is_there_for_the_next_process(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        index = write(store)
    with Store.open(tmp_path) as store:
        assert store.load_index(diff_id()) == index


def test_texts_of_several_layers_are_one(store: Store) -> None:
    indexes = [write(store, number, [b"%d" % number, b"shared" * 100]) for number in range(40)]
    texts = store.texts([*indexes, indexes[0].diff_id])
    for number in range(40):
        assert texts.get(digest(b"%d" % number)) == b"%d" % number
    assert texts.get(digest(b"shared" * 100)) == b"shared" * 100
    assert store.texts([]).get(digest(b"1")) is None


def test_the_table_of_a_hundred_thousand_texts_is_small(store: Store) -> None:
    contents = [b"%d" % number for number in range(100_000)]
    index = an_index()
    with store.writer() as writer:
        for content in contents:
            writer.keep(digest(content), content)
        writer.commit(index)
    texts = store.texts([index])
    assert sys.getsizeof(texts._table) < 5_100_000
    for content in contents[::997]:
        assert texts.get(digest(content)) == content


def test_without_commit_nothing_remains(store: Store) -> None:
    with contextlib.suppress(RuntimeError), store.writer() as writer:
        writer.keep(digest(b"x"), b"x")
        raise RuntimeError
    assert files_of(store) == []


def test_an_index_counts_only_with_its_own_pack_and_facts(store: Store) -> None:
    write(store, 0)
    write(store, 1, [b"other"])
    (index, pack), (_, other) = [
        tuple(store.path(diff_id(number), suffix) for suffix in ("index", "pack")) for number in (0, 1)
    ]
    assert index.exists()
    saved = pack.read_bytes()
    shutil.copy(other, pack)
    assert store.load_index(diff_id(0)) is None
    pack.unlink()
    assert store.load_index(diff_id(0)) is None
    pack.write_bytes(saved)
    assert store.load_index(diff_id(0)) is not None
    store._rows.drop(None)
    assert store.load_index(diff_id(0)) is None


def test_an_index_under_another_name_is_not_believed(store: Store) -> None:
    write(store, 0)
    for suffix in ("index", "pack"):
        shutil.copy(store.path(diff_id(0), suffix), store.path(diff_id(9), suffix))
    assert store.load_index(diff_id(9)) is None


@pytest.mark.parametrize("suffix", ["index", "pack"])
def test_an_entry_torn_at_any_length_is_not_believed(store: Store, suffix: str) -> None:
    write(store, texts=[b"import os\n" * 20, b"x"])
    path = store.path(diff_id(), suffix)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert store.load_index(diff_id()) is None
    for more in (b"\0", b"x" * 600, whole):
        path.write_bytes(whole + more)
        assert store.load_index(diff_id()) is None
    path.write_bytes(whole)
    assert store.load_index(diff_id()) is not None


@pytest.mark.parametrize("suffix", ["index", "pack"])
def test_an_entry_with_any_byte_altered_is_not_believed(store: Store, suffix: str) -> None:
    write(store, texts=[b"import os\n" * 20, b"x"])
    path = store.path(diff_id(), suffix)
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        assert store.load_index(diff_id()) is None, at


@settings(max_examples=60, deadline=None)
@given(garbage=st.binary(max_size=400), suffix=st.sampled_from(["index", "pack"]), keep=st.integers(0, 80))
def test_foreign_files_are_not_believed(garbage: bytes, suffix: str, keep: int) -> None:
    with Store.temporary() as store:
        write(store, texts=[b"x"])
        path = store.path(diff_id(), suffix)
        whole = path.read_bytes()
        path.write_bytes(whole[:keep] + garbage)
        assert path.read_bytes() == whole or store.load_index(diff_id()) is None


def test_a_text_that_was_altered_meanwhile_is_an_error_and_dropped(store: Store) -> None:
    index = write(store, texts=[b"import os\n" * 200, b"y" * 10])
    texts = store.texts([index])
    path = store.path(diff_id(), "pack")
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    with path.open("r+b") as file:  # in place: the pack is open
        file.write(data)
    with pytest.raises(CacheError, match="damaged text") as caught:
        [texts.get(digest(text)) for text in (b"import os\n" * 200, b"y" * 10)]
    assert "run the same command again" in str(caught.value.hint)
    assert store.load_index(diff_id()) is None


def test_a_pack_that_went_away_is_one_sentence(store: Store) -> None:
    index = write(store)
    store.path(diff_id(), "pack").unlink()
    with pytest.raises(CacheError, match="went away"):
        store.texts([index])


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "sha256:", "sha256:" + "A" * 64, "x" * 300, "sha256:/" + "a" * 63]
)
def test_a_name_that_is_no_digest_is_not_looked_for(store: Store, name: str) -> None:
    assert store.load_index(name) is None
    with pytest.raises(ValueError, match="no diffID"):
        store.path(name, "index")


def test_a_temporary_store_leaves_nothing() -> None:
    with Store.temporary() as store:
        write(store)
        directory = store.directory
        assert directory.exists()
    assert not directory.exists()


_INTERRUPTED = """
import os, signal, sys
from imgdiff.store import Store
store = Store.temporary()
print(store.directory, flush=True)
store.put_facts("x", 1, {b"k": b"v"})
signal.raise_signal(signal.SIGINT)
"""


def test_a_temporary_store_is_gone_after_an_interrupt() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=False)
    assert done.returncode not in (0, 1) or "KeyboardInterrupt" in done.stderr
    assert not Path(done.stdout.strip()).exists()


_WRITER = """
import hashlib, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from imgdiff.store import Store
from tests.store.test_layers import an_index, digest
store = Store.open(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    for number in range(4):
        with store.writer() as writer:
            for text in range(200):
                content = b"%d %d" % (number, text) * 50
                writer.keep(digest(content), content)
            writer.fact("elf", 1, digest(b"%d" % number), b"facts" * 1000)
            writer.commit(an_index(number))
"""


def _start(directory: Path) -> subprocess.Popen[str]:
    tests = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER.format(tests=tests), directory], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _check(directory: Path) -> int:
    """Everything that a store says is there must be right; returns how many layers are."""
    count = 0
    with Store.open(directory) as store:
        for number in range(4):
            index = store.load_index(diff_id(number))
            if index is not None:
                count += 1
                assert index == an_index(number)
                texts = store.texts([index])
                for text in range(0, 200, 17):
                    content = b"%d %d" % (number, text) * 50
                    assert texts.get(digest(content)) == content
                assert store.facts("elf", 1, [digest(b"%d" % number)])
    return count


def test_two_processes_share_a_cache(tmp_path: Path) -> None:
    processes = [_start(tmp_path), _start(tmp_path)]
    try:
        seen = 0
        for _ in range(40):
            seen = max(seen, _check(tmp_path))
            if seen == 4:
                break
            time.sleep(0.1)
        assert all(process.poll() is None for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert _check(tmp_path) == 4


def test_killed_in_the_middle_of_writing_leaves_nothing_that_is_believed(tmp_path: Path) -> None:
    rng = random.Random(7)
    for _ in range(5):
        process = _start(tmp_path)
        time.sleep(rng.uniform(0.0, 0.15))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        _check(tmp_path)


def test_what_a_killed_writer_left_is_swept_after_a_day(tmp_path: Path) -> None:
    with Store.open(tmp_path):
        pass
    old, young = tmp_path / "layers" / ".writing-old", tmp_path / "layers" / ".writing-young"
    for path in (old, young):
        path.touch()
    os.utime(old, (time.time() - 90_000,) * 2)
    with Store.open(tmp_path) as store:
        assert files_of(store) == [young]
        assert store.info()["layers"] == 0


@pytest.mark.parametrize("place", ["file", "below a file"])
def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(CacheError, match="can't be used") as caught:
        Store.open(tmp_path / "f" if place == "file" else tmp_path / "f" / "cache")
    assert "--no-cache" in str(caught.value.hint)


def _commit_to(store: Store, path: Path) -> None:
    with path.open("wb", buffering=0) as file, store.writer() as writer:
        writer._pack._file = file
        writer.commit(an_index())


def test_a_full_disk_is_one_sentence(store: Store) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with pytest.raises(CacheError, match="No space left"):
        _commit_to(store, Path("/dev/full"))
    assert files_of(store) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_an_unwritable_directory_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(CacheError, match="Permission denied"):
        Store.open(tmp_path)


def test_the_default_place_is_the_users_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with Store.open() as store:
        assert store.directory == tmp_path / "imgdiff"
        assert (store.directory / "CACHEDIR.TAG").read_text(encoding="ascii").startswith("Signature: 8a477f597d28d172")
