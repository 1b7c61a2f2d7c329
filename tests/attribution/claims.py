"""Short ways to ask an attribution in tests."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

from imgdiff.attribution import attribute
from imgdiff.model import Attribution, Distribution
from tests.support.trees import Dir, Link, made

Files = dict[str | bytes, bytes | str | Link | Dir]

SITE = "usr/local/lib/python3.12/site-packages"
INTERPRETER: Files = {
    "usr/local/bin/python3.12": b"\x7fELF",
    "usr/local/bin/python3": Link(b"python3.12"),
    "usr/local/lib/python3.12/os.py": "",
    "usr/local/lib/python3.12/site.py": "",
}


def attributed(files: Files) -> Attribution:
    tree, texts = made(files)
    return attribute(tree, texts, "a")


def whose(attribution: Attribution, path: str | bytes) -> list[str]:
    """The owners of a path as ``kind:name``, sorted."""
    key = path if isinstance(path, bytes) else path.encode()
    return sorted(f"{owner.kind}:{owner.name}" for owner in attribution.owners_of(key))


def claim(attribution: Attribution, path: str | bytes, owner: str) -> tuple[str, bytes]:
    """(basis, relative path) of one owner's claim."""
    key = path if isinstance(path, bytes) else path.encode()
    found = [
        (each.basis, each.relative)
        for each in attribution.claims[key]
        if f"{attribution.owners[each.owner].kind}:{attribution.owners[each.owner].name}" == owner
    ]
    assert len(found) == 1, (path, owner, found)
    return found[0]


def notes(attribution: Attribution) -> list[tuple[str, str | None, bytes | None]]:
    return [(note.code, note.owner, note.path) for note in attribution.integrity]


def distribution(attribution: Attribution, name: str) -> Distribution:
    (found,) = [each for each in attribution.distributions if each.name == name]
    return found


def record_hash(content: bytes | str) -> str:
    data = content if isinstance(content, bytes) else content.encode()
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def wheel(
    name: str, version: str, files: Mapping[str, bytes | str], site: str = SITE, rows: str = "", points: str = ""
) -> Files:
    """An installed distribution: its files in a site, each with its row in RECORD; ``rows`` are further ones."""
    folder = f"{name}-{version}.dist-info"
    content: dict[str, bytes | str] = {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    }
    if points:
        content[f"{folder}/entry_points.txt"] = points
    content.update(files)
    lines = []
    for path, data in content.items():
        quoted = '"' + path.replace('"', '""') + '"' if set(path) & set(',"\n') else path
        lines.append(f"{quoted},{record_hash(data)},{len(data)}")
    record = "\n".join([*lines, f"{folder}/RECORD,,"]) + "\n" + rows
    return {**{f"{site}/{path}": data for path, data in content.items()}, f"{site}/{folder}/RECORD": record}
