"""Which bytes the facts of a module are taken from, and what they are kept by."""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
from collections.abc import Iterator
from pathlib import Path

import pytest

from imgdiff.facts import Facts, ImageFacts
from imgdiff.model import FileEntry, ModuleFacts, PycStamp, Tree, Unreadable
from imgdiff.store import Store

SOURCE = b"import json\ndef f():\n    import csv\n"
MODULE, COMPILED = b"site/m.py", b"site/__pycache__/m.cpython-311.pyc"


class Contents:
    """Texts by digest that remember which were asked for."""

    def __init__(self, *contents: bytes) -> None:
        self.known = {hashlib.sha256(each).digest(): each for each in contents}
        self.read: list[bytes] = []

    def get(self, digest: bytes) -> bytes | None:
        self.read.append(digest)
        return self.known.get(digest)


def code(source: bytes = SOURCE) -> bytes:
    return marshal.dumps(compile(source, "/site/m.py", "exec"))


def pyc(body: bytes, mtime: int, flags: int = 0) -> bytes:
    stamp = flags.to_bytes(4, "little") + mtime.to_bytes(4, "little") + len(SOURCE).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + stamp + body


def image(facts: Facts, compiled: bytes, mtime: int) -> tuple[ImageFacts, Contents]:
    texts = Contents(SOURCE, compiled)
    digest = hashlib.sha256(compiled).digest()
    files = {MODULE: SOURCE, COMPILED: compiled}
    entries = {
        path: FileEntry(path, "file", 0o644, 0, 0, mtime * 10**9, len(data), hashlib.sha256(data).digest())
        for path, data in files.items()
    }
    for path in (b"site", b"site/__pycache__"):
        entries[path] = FileEntry(path, "dir", 0o755, 0, 0, 0, 0, None)
    stamps = {digest: PycStamp(compiled[:16], hashlib.sha256(compiled[16:]).digest())}
    return ImageFacts(Tree(entries, {}, {}, stamps), texts, facts), texts


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[Facts]:
    with Store.open(tmp_path / "cache") as store:
        made = Facts(store, 1)
        yield made
        made.close()


def imported(found: ModuleFacts | Unreadable) -> set[str]:
    assert isinstance(found, ModuleFacts), found
    return {each.module for scope in found.scopes for each in scope.imports}


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_a_source_is_not_read_where_its_pyc_runs(facts: Facts) -> None:
    source, texts = image(facts, pyc(code(), 5), 5)
    source.prefetch([MODULE])
    assert imported(source.module(MODULE)) == {"json", "csv"}
    assert sha(SOURCE) not in texts.read


def test_a_source_is_read_where_its_pyc_does_not_fit(facts: Facts) -> None:
    source, texts = image(facts, pyc(code(b"import os\n"), 4), 5)
    assert imported(source.module(MODULE)) == {"json", "csv"}
    assert sha(SOURCE) in texts.read


def test_a_source_is_read_where_its_pyc_can_not_be(facts: Facts) -> None:
    source, _ = image(facts, pyc(b"\xff rubbish", 5), 5)
    source.prefetch([MODULE])
    assert imported(source.module(MODULE)) == {"json", "csv"}


def test_a_pyc_of_another_build_has_the_same_facts(facts: Facts) -> None:
    first, _ = image(facts, pyc(code(), 5), 5)
    second, texts = image(facts, pyc(code(), 6), 6)
    assert first.module(MODULE) == second.module(MODULE)
    assert texts.read == []


def test_a_pyc_of_other_code_has_its_own_facts(facts: Facts) -> None:
    first, _ = image(facts, pyc(code(), 5), 5)
    second, _ = image(facts, pyc(code(SOURCE.replace(b"csv", b"ast")), 5), 5)
    assert imported(first.module(MODULE)) == {"json", "csv"}
    assert imported(second.module(MODULE)) == {"json", "ast"}


def test_the_same_code_of_an_unknown_python_has_no_facts_of_a_known_one(facts: Facts) -> None:
    known = pyc(code(b"import os\n"), 5)
    first, _ = image(facts, known, 5)
    assert imported(first.module(MODULE)) == {"os"}
    second, _ = image(facts, b"\x01\x00\r\n" + known[4:], 5)
    assert imported(second.module(MODULE)) == {"json", "csv"}
