"""What a dist-info or egg-info says of its distribution: name, version, import packages, entry points."""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

from imgdiff.owners._ledger import Ledger, join

_EGG_PYTHON = re.compile(r"-py\d+(?:\.\d+)?(?:-.+)?\Z")
_MODULE_ENDS = re.compile(rb"\.(?:py|pyc|so|[\w.-]+\.so)\Z")
_VERSIONED = re.compile(rb"-v?\d[^/]*(\.(?:dist-info|egg-info|egg))\Z", re.DOTALL)
EntryPoint = tuple[str, str, str]


def normalised(name: str) -> str:
    """Return a distribution's name as names are compared (PEP 503)."""
    return str(canonicalize_name(name))


def text_of(data: bytes) -> str:
    """Return text for names and versions; bytes that are no UTF-8 as ``\\xNN``, so that it can be printed."""
    return data.decode("utf-8", "backslashreplace")


def name_and_version(ledger: Ledger, info: bytes) -> tuple[str, str | None]:
    """Return the normalised name and the version of the distribution that this dist-info or egg-info describes.

    From METADATA or PKG-INFO (or the egg-info file itself), else from the folder's name.
    """
    folder = info.rpartition(b"/")[2]
    if folder == b"EGG-INFO":
        folder = info.rpartition(b"/")[0].rpartition(b"/")[2]
    stem = text_of(folder).rpartition(".")[0]
    if not folder.endswith(b".dist-info"):
        stem = _EGG_PYTHON.sub("", stem)
    name, _, version = stem.partition("-")
    entry = ledger.tree.lookup(info)
    candidates = (info,) if entry is not None and entry.type == "file" else (info + b"/METADATA", info + b"/PKG-INFO")
    for candidate in candidates:
        text = ledger.text(candidate)
        if text is not None:
            told = _headers(text)
            name, version = told.get("name") or name, told.get("version") or version
            break
    return normalised(name) or "unnamed", version or None


def _headers(text: bytes) -> dict[str, str]:
    """The one-line headers of a core metadata file, the first of each name, up to the first empty line."""
    headers: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            break
        key, colon, value = line.partition(b":")
        if colon and not line[:1].isspace():
            headers.setdefault(text_of(key).strip().lower(), text_of(value).strip())
    return headers


def versionless(folder: bytes) -> bytes:
    """Return ``vllm-0.9.1.dist-info`` as ``vllm.dist-info``, so that two versions of it pair."""
    return _VERSIONED.sub(rb"\1", folder, count=1)


def entry_points(ledger: Ledger, info: bytes) -> tuple[EntryPoint, ...]:
    """Return the (group, name, value) lines of entry_points.txt in their order (PyPA "Entry points")."""
    return read_entry_points(ledger.text(info + b"/entry_points.txt") or b"")


def read_entry_points(text: bytes) -> tuple[EntryPoint, ...]:
    """Return the (group, name, value) lines of an entry_points.txt in their order."""
    found: list[EntryPoint] = []
    group = ""
    for raw in text.splitlines():
        line = text_of(raw).strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[" and line[-1] == "]":
            group = line[1:-1].strip()
        elif "=" in line and group:
            name, _, value = line.partition("=")
            found.append((group, name.strip(), value.strip()))
    return tuple(dict.fromkeys(found))


def top_level(ledger: Ledger, info: bytes) -> tuple[str, ...]:
    """Return the names in top_level.txt, empty if there is none."""
    text = ledger.text(info + b"/top_level.txt")
    names = (text_of(line).strip() for line in (text or b"").splitlines())
    return tuple(sorted({name.replace("/", ".") for name in names if name}))


def import_name(first: bytes, rest: bool) -> str | None:
    """Return the import name that a path's first component stands for: a package where there is more behind it, else
    a module; None if it can't be imported."""
    if not rest:
        match = _MODULE_ENDS.search(first)
        if not match:
            return None
        first = first.partition(b".")[0]
    try:
        name = first.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return name if name.isidentifier() and name != "__pycache__" else None


def is_module(path: bytes) -> bool:
    """Tell whether Python could import this file by name."""
    return path.endswith((b".py", b".so", b".pyc"))


def guessed_packages(ledger: Ledger, site: bytes, name: str) -> tuple[str, ...]:
    """Return the import name that equals the distribution's name, where it stands in the site; for a dist-info that
    says nothing at all (Debian drops RECORD and top_level.txt)."""
    wanted = name.replace("-", "_")
    for child in ledger.tree.children(site):
        stem = child[:-3] if child.endswith(b".py") else child
        if stem.lower() == wanted.encode("utf-8", "replace") and (
            child.endswith(b".py") or ledger.tree.is_dir(join(site, child))
        ):
            return (text_of(stem),)
    return ()
