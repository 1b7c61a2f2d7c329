"""Whether the processes of a container keep root's rights."""

from __future__ import annotations

import hashlib

import pytest

from imgdiff.model import FileEntry, ImageConfig, Tree
from imgdiff.starting import keeps_root

FILES = {
    "entry.sh": b'#!/bin/sh\nexec su-exec app "$@"\n',
    "bin/serve": b"#!/bin/sh\nresume summary; sudoku\n",
    "bin/elf": b"\x7fELF gosu",
}
DIGESTS = {path: hashlib.sha256(data).digest() for path, data in FILES.items()}
IMAGE = Tree(
    {
        path.encode(): FileEntry(path.encode(), "file", 0o755, 0, 0, 0, len(data), DIGESTS[path])
        for path, data in FILES.items()
    }
)
TEXTS = {DIGESTS[path]: data for path, data in FILES.items()}


@pytest.mark.parametrize(
    ("user", "keeps"),
    [
        ("", True),
        ("0", True),
        ("00", True),
        ("root", True),
        ("root:video", True),
        ("0:5", True),
        (":5", True),
        ("1000", False),
        ("1000:0", False),
        ("app", False),
        ("rooty", False),
    ],
)
def test_the_user_of_the_config(user: str, keeps: bool) -> None:
    assert keeps_root(ImageConfig(user=user, entrypoint=("serve",), env=("PATH=/bin",)), IMAGE, TEXTS) is keeps


def test_without_a_config_engines_start_root() -> None:
    assert keeps_root(None, IMAGE, TEXTS)


@pytest.mark.parametrize(
    "config",
    [
        ImageConfig(entrypoint=("gosu", "app", "serve")),
        ImageConfig(entrypoint=("/usr/sbin/gosu", "app", "serve")),
        ImageConfig(entrypoint=("bash", "-c", "exec setpriv --reuid 5 serve")),
        ImageConfig(entrypoint=("/entry.sh", "serve")),
        ImageConfig(entrypoint=("./entry.sh",), working_dir="/"),
        ImageConfig(entrypoint=("tini", "--"), cmd=("entry.sh",), env=("PATH=/bin", "PATH=/")),
    ],
)
def test_an_entry_that_gives_up_rights(config: ImageConfig) -> None:
    assert not keeps_root(config, IMAGE, TEXTS)


def test_what_is_no_script_says_nothing() -> None:
    assert keeps_root(ImageConfig(entrypoint=("/bin/elf",)), IMAGE, TEXTS)
