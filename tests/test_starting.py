"""Who the processes of a container are, and whether they keep root's rights."""

from __future__ import annotations

import hashlib

import pytest

from imgdiff.model import FileEntry, ImageConfig, Tree
from imgdiff.starting import is_root, keeps_root
from tests.support.trees import Link, keep_all, made

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


PASSWD = "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/:/bin/false\n"
GROUP = "root:x:0:\ndaemon:x:1:\nvideo:x:44:app\n"


def proven(user: str, passwd: str | None = PASSWD, group: str | None = GROUP) -> bool:
    tree, texts = made(
        {path: text for path, text in (("etc/passwd", passwd), ("etc/group", group)) if text is not None}, keep_all
    )
    return is_root(ImageConfig(user=user), tree, texts)


@pytest.mark.parametrize("user", ["", "0", "root", "0:0", "root:root", "root:0", "0:root", "root:", ":0"])
def test_root_in_all_its_spellings(user: str) -> None:
    assert proven(user)


@pytest.mark.parametrize("user", ["1000", "app", "rooty", "root:video", "0:44", "00", "-0", "root:root:0", "ROOT"])
def test_whoever_else_is_not_proven_to_be_root(user: str) -> None:
    assert not proven(user)


@pytest.mark.parametrize(
    ("passwd", "group"),
    [
        (None, GROUP),  # a name can't be looked up: the container doesn't start
        (PASSWD, None),
        ("", GROUP),
        ("root:x:1000:0:root:/root:/bin/sh\n", GROUP),  # root is another user
        ("root:x:0:5:root:/root:/bin/sh\n", GROUP),  # in another group
        (
            "toor:x:0:0::/toor:/bin/sh\n" + PASSWD,
            GROUP,
        ),  # a number finds another line, with another home, than the name
        (PASSWD.replace("root:x:0:0", "root:x:7:0") + "root:x:0:0::/:/bin/sh\n", GROUP),
        ("+::::::\n" + PASSWD, GROUP),  # engines read an empty number as 0
        ("# users\n" + PASSWD, GROUP),
        (PASSWD + "broken\n", GROUP),
        (PASSWD, "root:x:5:\n"),
        (PASSWD, GROUP.replace("44:app", "44:app,root")),  # a member of a further group, but not as root:root
        (PASSWD, "daemon:x:1:\n"),
        (PASSWD, "+:::\n" + GROUP),
    ],
)
@pytest.mark.parametrize("user", ["", "root", "root:root"])
def test_what_passwd_and_group_must_say(user: str, passwd: str | None, group: str | None) -> None:
    assert not proven(user, passwd, group)


def test_users_are_read_where_a_link_leads() -> None:
    tree, texts = made({"etc": Link(b"usr/etc"), "usr/etc/passwd": PASSWD, "usr/etc/group": GROUP}, keep_all)
    assert is_root(ImageConfig(user="root"), tree, texts)
