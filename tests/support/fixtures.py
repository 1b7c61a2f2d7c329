"""Fixture cases: pairs of images as readable trees under ``fixtures/<case>/``, built into OCI layouts.

A case is a folder with ``case.toml``, ``expected.toml`` and ``src/<tree>/``; ``fixtures/README.md`` says what stands
in them. Building is deterministic: the same folder always gives the same tars.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.support.images import Compression, Member, full_config, tar_bytes, write_layout
from tests.support.made import (
    Attributes,
    Dpkg,
    Made,
    Wheel,
    changed,
    dist_info,
    dpkg_database,
    special,
)

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
_MTIME = 1_767_225_600  # 2026-01-01T00:00:00Z


class Layer(msgspec.Struct, forbid_unknown_fields=True):
    """One layer: the trees whose members it holds; of two members of one name the later tree's is taken."""

    trees: list[str]
    mtime: int | None = None
    parents: bool = True  # list the parent directories of all members


class Image(msgspec.Struct, forbid_unknown_fields=True):
    """One side of a case. ``config`` is added to the case's own; ``compression`` is the case's where it is not set."""

    layers: list[Layer]
    config: dict[str, Any] = {}
    created: str = "2026-01-01T00:00:00Z"
    compression: Compression | None = None


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """What ``case.toml`` says. ``config`` is what stands in an OCI image config's ``config``, in its own spelling.

    ``uses`` names another case: its trees can stand in layers too, and the config of its image a holds where this one
    says nothing.
    """

    about: str
    a: Image
    b: Image
    uses: str | None = None
    config: dict[str, Any] = {}
    mtime: int = _MTIME
    compression: Compression = "gzip"
    made: list[Made] = []
    attributes: list[Attributes] = []
    wheel: list[Wheel] = []
    dpkg: list[Dpkg] = []


def cases() -> list[str]:
    """Return the names of all cases."""
    return sorted(path.parent.name for path in FIXTURES.glob("*/case.toml"))


def read_case(folder: Path) -> Case:
    """Return what a case's folder says, with what it uses of another case. Raises msgspec.ValidationError for unknown
    words."""
    case = msgspec.toml.decode((folder / "case.toml").read_bytes(), type=Case)
    if case.uses is not None:
        used = read_case(FIXTURES / case.uses)
        case.config = {**used.config, **used.a.config, **case.config}
        case.made = used.made + case.made
        case.attributes = used.attributes + case.attributes
        case.wheel = used.wheel + case.wheel
        case.dpkg = used.dpkg + case.dpkg
    return case


def build_case(folder: Path, target: Path) -> tuple[Path, Path]:
    """Build both images of a case as OCI layouts ``a`` and ``b`` below a directory, and return their paths.

    Raises MissingPython where the case holds bytecode of a Python that is not here.
    """
    case = read_case(folder)
    for name, image in (("a", case.a), ("b", case.b)):
        layers = [tar_bytes(layer) for layer in all_members(folder, case, image)]
        compression = image.compression or case.compression
        write_layout(target / name, layers, _config(case, image, layers), compression, name)
    return target / "a", target / "b"


def layer_tars(folder: Path) -> tuple[list[bytes], list[bytes]]:
    """Return the uncompressed layers of both images of a case."""
    case = read_case(folder)
    a, b = ([tar_bytes(layer) for layer in all_members(folder, case, image)] for image in (case.a, case.b))
    return a, b


def all_members(folder: Path, case: Case, image: Image) -> list[list[Member]]:
    """Return the members of every layer of an image, base first."""
    directories: dict[str, Member] = {}
    layers = []
    for layer in image.layers:
        layers.append(members(folder, case, layer, directories))
        directories.update((str(member.path), member) for member in layers[-1] if member.type == "dir")
    return layers


def _config(case: Case, image: Image, layers: Sequence[bytes]) -> dict[str, Any]:
    whole = {"architecture": "amd64", "os": "linux", "created": image.created}
    return full_config(layers, {**whole, "config": {**case.config, **image.config}})


def members(folder: Path, case: Case, layer: Layer, lower: Mapping[str, Member] | None = None) -> list[Member]:
    """Return the members of one layer: parents first, hard links last.

    A parent that no tree says anything of is listed with the attributes that it has in ``lower``, the directories of
    the layers below, as image builders do.
    """
    mtime = case.mtime if layer.mtime is None else layer.mtime
    found: dict[str, Member] = {}
    for tree in layer.trees:
        own = _tree(_source(folder, case, tree), mtime)
        own.update(_made(case, tree, {**found, **own}, mtime))
        for attributes in case.attributes:
            if attributes.tree == tree:
                own = {path: changed(member, attributes) for path, member in own.items()}
        if not own:
            raise ValueError(f"{folder.name}: there is nothing in tree {tree!r}")
        found.update(own)
    found.update(_databases(case, layer.trees, found, mtime))
    if layer.parents:
        for path in _parents(found):
            found.setdefault(path, (lower or {}).get(path) or Member(path, type="dir", mtime=mtime))
    ordered = sorted(found.values(), key=lambda member: str(member.path))
    return [m for m in ordered if m.type != "hardlink"] + [m for m in ordered if m.type == "hardlink"]


def _source(folder: Path, case: Case, tree: str) -> Path:
    own = folder / "src" / tree
    return own if case.uses is None or own.is_dir() else FIXTURES / case.uses / "src" / tree


def _tree(root: Path, mtime: int) -> dict[str, Member]:
    found: dict[str, Member] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = Member(name, type="symlink", target=os.fsencode(path.readlink()), mtime=mtime)
        elif path.is_file():
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            found[name] = Member(name, path.read_bytes(), mode=mode, mtime=mtime)
    return found


def _made(case: Case, tree: str, files: dict[str, Member], mtime: int) -> dict[str, Member]:
    """What ``[[made]]`` adds to a tree; bytecode last, since it needs its source with the attributes that hold."""
    made: dict[str, Member] = {}
    for rule in sorted(case.made, key=lambda rule: rule.pyc is not None):
        if rule.tree == tree:
            known = {**files, **made}
            for attributes in case.attributes:
                if attributes.tree == tree and rule.pyc is not None:
                    known = {path: changed(member, attributes) for path, member in known.items()}
            member = special(rule, known, mtime)
            made[str(member.path)] = member
    return made


def _databases(case: Case, trees: Iterable[str], files: dict[str, Member], mtime: int) -> dict[str, Member]:
    made: dict[str, Member] = {}
    for wheel in case.wheel:
        if wheel.tree in trees:
            made.update((str(member.path), member) for member in dist_info(wheel, files, mtime))
    for dpkg in case.dpkg:
        if dpkg.tree in trees:
            made.update((str(member.path), member) for member in dpkg_database(dpkg, {**files, **made}, mtime))
    return {path: member for path, member in made.items() if path not in files}  # what a tree holds itself wins


def _parents(paths: Iterable[str]) -> set[str]:
    return {parent.as_posix() for path in paths for parent in Path(path).parents} - {"."}
