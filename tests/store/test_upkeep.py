"""Info, clear and prune."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from imgdiff.store import Store
from tests.store.test_layers import diff_id, write


def test_info(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        empty = store.info()
        assert (empty["directory"], empty["layers"], empty["facts"], empty["deltas"]) == (str(tmp_path), 0, 0, 0)
        write(store, 1)
        write(store, 2)
        store.put_facts("python", 1, {b"a": b"1", b"b": b"2"})
        store.put_delta("elf", 1, b"a", b"b", b"3")
        store.put_facts("trace", 1, {b"a": b"4"})
        store.put_facts("report", 1, {b"a": b"5", b"b": b"6"})
        info = store.info()
        assert (info["layers"], info["facts"], info["deltas"]) == (2, 3, 1)
        assert (info["traces"], info["reports"]) == (1, 2)
        on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
        assert on_disk - 200 < int(info["bytes"]) <= on_disk


def test_clear(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        write(store)
        store.put_facts("x", 1, {b"a": os.urandom(500_000)})
        store.clear()
        assert store.load_index(diff_id()) is None
        assert store.facts("x", 1, [b"a"]) == {}
        info = store.info()
        assert (info["layers"], info["facts"]) == (0, 0)
        assert int(info["bytes"]) < 100_000
        write(store)
        assert store.load_index(diff_id()) is not None


def test_prune_takes_the_oldest_by_last_use(tmp_path: Path) -> None:
    text = [os.urandom(100_000)]
    with Store.open(tmp_path) as store:
        for number in range(5):
            write(store, number, text)
            for suffix in ("index", "pack"):
                age = time.time() - 1000 + number
                os.utime(store.path(diff_id(number), suffix), (age, age))
        assert store.load_index(diff_id(0)) is not None  # used now: the youngest
        limit = int(store.info()["bytes"]) - 250_000
        store.prune(limit)
        left = [number for number in range(5) if store.load_index(diff_id(number)) is not None]
        assert left == [0, 4]
        assert int(store.info()["bytes"]) <= limit
        store.prune(limit)
        assert store.info()["layers"] == 2


def test_prune_takes_old_facts_too(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.put_facts("x", 1, {b"old": os.urandom(300_000), b"used": os.urandom(300_000)})
        with sqlite3.connect(tmp_path / "rows.sqlite") as connection:
            connection.execute("UPDATE rows SET used = used - 9")
        connection.close()
        assert len(store.facts("x", 1, [b"used"])) == 1  # used today
        store.prune(500_000)
        assert store.facts("x", 1, [b"old", b"used"]).keys() == {b"used"}
        assert int(store.info()["bytes"]) <= 500_000


def test_prune_to_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        write(store)
        store.put_facts("x", 1, {b"a": b"1"})
        store.prune(0)
        assert (store.info()["layers"], store.info()["facts"]) == (0, 0)


def test_prune_keeps_what_fits(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        write(store)
        store.prune(10**12)
        assert store.load_index(diff_id()) is not None
