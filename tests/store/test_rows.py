"""Facts and deltas: rows that are checked, in a database that several processes may share."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.errors import CacheError
from imgdiff.store import Store

A, B = b"a" * 32, b"b" * 32


def test_facts_by_kind_version_and_digest(tmp_path: Path) -> None:
    rng = random.Random(1)
    facts = {rng.randbytes(32): rng.randbytes(rng.randrange(3000)) for _ in range(1500)}
    facts[A] = b""
    facts[B] = b"compressible" * 5000
    with Store.open(tmp_path) as store:
        store.put_facts("python", 2, facts)
        assert store.facts("python", 2, [*facts, b"none" * 8]) == facts
        assert store.facts("python", 3, facts) == {}
        assert store.facts("shell", 2, facts) == {}
        assert store.facts("python", 2, []) == {}
        store.put_facts("python", 2, {A: b"new"})
        store.put_facts("python", 2, {})
    with Store.open(tmp_path) as store:
        assert store.facts("python", 2, [A, B]) == {A: b"new", B: facts[B]}


def test_deltas_by_both_digests_in_order() -> None:
    with Store.temporary() as store:
        store.put_delta("elf", 1, A, B, b"delta")
        assert store.delta("elf", 1, A, B) == b"delta"
        assert store.delta("elf", 1, B, A) is None
        assert store.delta("elf", 2, A, B) is None
        assert store.facts("elf", 1, [A + B]) == {}
        assert store.info()["deltas"] == 1


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.binary(min_size=1, max_size=40), st.binary(max_size=600), max_size=8))
def test_put_then_get_is_the_identity(rows: dict[bytes, bytes]) -> None:
    with Store.temporary() as store:
        store.put_facts("x", 1, rows)
        assert store.facts("x", 1, rows) == rows


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE rows SET data = X'00'",
        "UPDATE rows SET data = 'text'",
        "UPDATE rows SET size = 7",
        "UPDATE rows SET size = 'x'",
        "UPDATE rows SET checksum = X'00'",
        "UPDATE rows SET version = 9",
        "UPDATE rows SET kind = 'facts:other'",
        "UPDATE rows SET key = X'" + B.hex() + "'",
    ],
)
def test_a_damaged_row_is_none(tmp_path: Path, damage: str) -> None:
    with Store.open(tmp_path) as store:
        store.put_facts("x", 1, {A: b"fact" * 100})
        with sqlite3.connect(tmp_path / "rows.sqlite") as connection:
            connection.execute(damage)
        connection.close()
        for kind, version in (("x", 1), ("x", 9), ("other", 1)):
            assert store.facts(kind, version, [A, B]) == {}
        store.put_facts("x", 1, {A: b"again"})
        assert store.facts("x", 1, [A]) == {A: b"again"}


def _damaged(original: bytes, how: str) -> bytes:
    if how == "garbage":
        return b"not a database at all" * 500
    if how == "torn":
        return original[: len(original) // 2]
    if how == "header":
        return b"X" + original[1:]
    pages = bytearray(original)
    for at in range(4096, len(pages), 512):
        pages[at] ^= 0xFF
    return bytes(pages)


@pytest.mark.parametrize("how", ["garbage", "torn", "header", "pages"])
def test_a_damaged_database_is_set_aside_and_made_anew(tmp_path: Path, how: str) -> None:
    path = tmp_path / "rows.sqlite"
    facts = {bytes([number]) * 32: os.urandom(400) for number in range(200)}
    with Store.open(tmp_path) as store:
        store.put_facts("x", 1, facts)
    path.write_bytes(_damaged(path.read_bytes(), how))
    with Store.open(tmp_path) as store:
        found = store.facts("x", 1, facts)
        assert found.items() <= facts.items()
        assert len(found) < len(facts)
        store.put_facts("x", 1, {A: b"new"})
        assert store.facts("x", 1, [A]) == {A: b"new"}
    assert len(list(tmp_path.glob("rows.sqlite*"))) <= 2


def test_a_foreign_database_is_set_aside(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "rows.sqlite") as connection:
        connection.execute("CREATE TABLE rows (other TEXT)")
    connection.close()
    with Store.open(tmp_path) as store:
        store.put_facts("x", 1, {A: b"new"})
        assert store.facts("x", 1, [A]) == {A: b"new"}
    assert (tmp_path / "rows.sqlite.broken").exists()


def test_a_database_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "rows.sqlite").mkdir()
    with Store.open(tmp_path) as store, pytest.raises(CacheError, match="can't be used") as caught:
        store.facts("x", 1, [A])
    assert "--no-cache" in str(caught.value.hint)


def test_several_threads_share_a_store() -> None:
    with Store.temporary() as store:

        def work(number: int) -> None:
            for step in range(30):
                key = bytes([number, step]) * 16
                store.put_facts("x", 1, {key: key})
                assert store.facts("x", 1, [key]) == {key: key}

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert store.info()["facts"] == 120


_PUTS = """
import sys
from pathlib import Path
from imgdiff.store import Store
number = int(sys.argv[2])
with Store.open(Path(sys.argv[1])) as store:
    for step in range(60):
        store.put_facts("x", 1, {bytes([number, step]) * 16: b"%d" % step, b"shared" * 5: b"same"})
"""


def test_several_processes_share_a_database(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", _PUTS, tmp_path, str(number)], stderr=subprocess.PIPE)
        for number in range(3)
    ]
    for process in processes:
        assert process.communicate()[1] == b""
        assert process.returncode == 0
    with Store.open(tmp_path) as store:
        wanted = [bytes([number, step]) * 16 for number in range(3) for step in range(60)]
        assert len(store.facts("x", 1, wanted)) == 180
