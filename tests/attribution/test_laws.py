from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.attribution import attribute, owner_roots
from imgdiff.model import Tree
from tests.attribution.claims import INTERPRETER, SITE, Files, wheel
from tests.support.trees import Dir, Link, keep_all, made

NAMES = [
    *("usr", "lib", "opt", "python3.12", "site-packages", "dist-packages", "bin", "os.py", "x", "x-1.dist-info"),
    *("RECORD", "METADATA", "top_level.txt", "direct_url.json", "x.pth", "x.egg-link", "x.egg-info", "EGG-INFO"),
    *("pyvenv.cfg", "conda-meta", "x.json", "var", "dpkg", "status", "info", "x.list", "x.md5sums", "rpm", "Packages"),
    *("rpmdb.sqlite", "intel", "oneapi", "2025.1", "local", "cuda-12", "rocm", "__pycache__", "x.cpython-312.pyc"),
    *("x.py", "x.so", "__init__.py", "__editable__.x.pth", "__editable___x_finder.py", ".cache", "CACHEDIR.TAG"),
    *("caf\udce9", "python3"),
]
TEXTS = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"x/__init__.py,,\n../../x,,\n/opt/x,,\nx.py,sha256=abc,\n",
            b"Name: x\nVersion: 1\n\n",
            b"home = /usr/bin\nversion = 3.12\n",
            b'{"url": "file:///opt", "dir_info": {"editable": true}}',
            b'{"name": "x", "version": "1", "files": ["lib/x.py"]}',
            b"/opt/x\n..\nimport x\n",
            b"Package: x\nVersion: 1\n\n",
            b"/usr/lib/x\n/opt\n",
            b"MAPPING = {'x': '/opt/x'}\n",
        ]
    ),
)
# Whole places too, so that finders meet what they look for and not only its name.
PLACES = [
    *(SITE, "usr/lib/python3/dist-packages", "opt/v/lib/python3.12/site-packages", "var/lib/dpkg/info", "opt/conda"),
    *("opt/intel/oneapi/compiler/2025.1", "usr/local/cuda-12", "opt/x", f"{SITE}/x", f"{SITE}/x-1.dist-info", "opt/v"),
]
PATHS = st.builds(
    lambda place, names: "/".join((place, *names)).strip("/"),
    st.sampled_from(["", *PLACES]),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),
)
LINKS = st.builds(
    lambda path, up: Link((up + path).encode("utf-8", "surrogateescape")), PATHS, st.sampled_from(["/", ""])
)
RANDOM = st.dictionaries(PATHS, st.one_of(TEXTS, LINKS, st.just(Dir())), max_size=25)
SOME: Files = {**INTERPRETER, **wheel("x", "1", {"x/__init__.py": "", "x/y.py": ""}), "opt/x/x.py": ""}


def consistent(files: Files) -> Files:
    """Leave out names below files and links."""
    blocked = {str(name) for name, content in files.items() if not isinstance(content, Dir)}
    return {
        name: content
        for name, content in files.items()
        if not any(str(name).startswith(other + "/") for other in blocked) and not _is_parent(str(name), content, files)
    }


def _is_parent(name: str, content: object, files: Files) -> bool:
    return not isinstance(content, Dir) and any(str(other).startswith(name + "/") for other in files)


@settings(max_examples=150, deadline=None)
@given(RANDOM, st.booleans())
def test_every_file_and_symlink_has_an_owner_and_nothing_else_has(files: Files, real: bool) -> None:
    tree, texts = made(consistent(files | SOME if real else files), keep_all)
    found = attribute(tree, texts, "a")
    wanted = {path for path, entry in tree.entries.items() if entry.type in ("file", "symlink")}
    assert found.claims.keys() == wanted
    for claims in found.claims.values():
        assert claims
        assert len({claim.owner for claim in claims}) == len(claims)
        assert all(0 <= claim.owner < len(found.owners) for claim in claims)
        assert all(claim.basis != "top" or len(claims) == 1 for claim in claims)
    keys = [(owner.kind, owner.name, owner.root) for owner in found.owners]
    assert len(set(keys)) == len(keys)
    assert all(0 <= each.owner < len(found.owners) for each in found.distributions)
    assert owner_roots(found, tree).keys() == set(range(len(found.owners)))


@settings(max_examples=60, deadline=None)
@given(RANDOM, st.randoms(use_true_random=False))
def test_the_order_of_names_in_a_tree_changes_nothing(files: Files, rng: random.Random) -> None:
    tree, texts = made(consistent(files | SOME), keep_all)
    shuffled = list(tree.entries.items())
    rng.shuffle(shuffled)
    first, second = attribute(tree, texts, "a"), attribute(Tree(dict(shuffled)), texts, "a")
    assert first.owners == second.owners
    assert first.claims == second.claims
    assert first.distributions == second.distributions
    assert first.environments == second.environments
    assert first.integrity == second.integrity
    assert first.blindspots == second.blindspots


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
def test_whatever_stands_in_a_record_the_rest_is_read(rubbish: bytes) -> None:
    files = dict(SOME)
    files[f"{SITE}/x-1.dist-info/RECORD"] = b"x/__init__.py,,\n" + rubbish.replace(b'"', b"'") + b"\nx/y.py,,\n"
    tree, texts = made(files)
    found = attribute(tree, texts, "a")
    for name in ("__init__.py", "y.py"):
        assert [claim.basis for claim in found.claims[f"{SITE}/x/{name}".encode()]] == ["record"]
