"""Editable installs: which directory an installed distribution points at (PEP 610, PEP 660, setuptools' develop)."""

from __future__ import annotations

import ast
import posixpath
import re
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from imgdiff.owners._ledger import Ledger, join
from imgdiff.owners._place import Project
from imgdiff.owners._record import Rows

_MAPPING = re.compile(r"^(?:MAPPING|NAMESPACES)\b[^=\n]*=\s*(\{.*\})\s*$", re.MULTILINE)
_FINDER = re.compile(rb"__editable___.*_finder\.py\Z", re.DOTALL)
_PTH = re.compile(rb"__editable__\..*\.pth\Z", re.DOTALL)
_LONGEST_FINDER = 1_000_000


class _DirInfo(msgspec.Struct):
    editable: bool = False


class _DirectUrl(msgspec.Struct):
    url: str = ""
    dir_info: _DirInfo | None = None


def project_of(ledger: Ledger, site: bytes, info: bytes, rows: Rows | None) -> Project | None:
    """Return the project of an editable install, None if it is an ordinary one."""
    search, mapping = _hooks(ledger, site, rows)
    directory = _direct_url(ledger, info)
    if directory is None and (search or mapping):
        targets = [*search, *(path for _, path in mapping)]
        directory = _common(ledger, targets)
    return None if directory is None else Project(directory, search, mapping)


def _direct_url(ledger: Ledger, info: bytes) -> bytes | None:
    path = info + b"/direct_url.json"
    if ledger.tree.lookup(path) is None:
        return None
    try:
        told = msgspec.json.decode(ledger.text(path) or b"", type=_DirectUrl)
        parts = urlsplit(told.url)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        reason = "it could not be read, so whether this is an editable install is unsure"
        ledger.blind("direct_url.json", reason, path)
        return None
    if told.dir_info is None or not told.dir_info.editable or parts.scheme != "file":
        return None
    named = unquote_to_bytes(parts.path)
    directory = ledger.tree.resolve(named)
    return ledger.lexical(named) if directory is None else directory


def egg_link_target(ledger: Ledger, link: bytes) -> bytes | None:
    """Return the directory that an ``.egg-link`` names on its first line, canonical; None if it is not there."""
    text = ledger.text(link) or b""
    target = text.splitlines()[0].strip() if text.strip() else b""
    return ledger.tree.resolve(target, link.rpartition(b"/")[0]) or None if target else None


def _hooks(ledger: Ledger, site: bytes, rows: Rows | None) -> tuple[tuple[bytes, ...], tuple[tuple[str, bytes], ...]]:
    """What the install's own ``__editable__`` files (they are in its RECORD) put on sys.path or map."""
    search: list[bytes] = []
    mapping: list[tuple[str, bytes]] = []
    for row in rows.rows if rows is not None else ():
        if not row.path.startswith(b"__editable__"):
            continue
        text = ledger.text(join(site, row.path))
        if text is None or len(text) > _LONGEST_FINDER:
            continue
        if _PTH.match(row.path):
            search += path_lines(ledger, text, site)
        elif _FINDER.match(row.path):
            mapping += _mapping(ledger, text)
    return tuple(dict.fromkeys(search)), tuple(dict.fromkeys(mapping))


def path_lines(ledger: Ledger, text: bytes, site: bytes) -> list[bytes]:
    """Return the existing directories that the lines of a ``.pth`` name, canonical, in order."""
    found = []
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith(b"#") or line.startswith((b"import ", b"import\t")):
            continue
        directory = ledger.tree.resolve(stripped, site)
        if directory is not None and ledger.tree.is_dir(directory):
            found.append(directory)
    return found


def _mapping(ledger: Ledger, text: bytes) -> list[tuple[str, bytes]]:
    """The MAPPING and NAMESPACES of setuptools' finder: dict literals, each on one line."""
    found: list[tuple[str, bytes]] = []
    for match in _MAPPING.finditer(text.decode("utf-8", "surrogateescape")):
        try:
            table = ast.literal_eval(match[1])
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            continue  # not what setuptools writes; direct_url.json and the project still tell
        for name, target in table.items() if isinstance(table, dict) else ():
            for each in target if isinstance(target, list) else [target]:
                if isinstance(name, str) and isinstance(each, str):
                    path = each.encode("utf-8", "surrogateescape")
                    resolved = ledger.tree.resolve(path) or ledger.tree.resolve(path + b".py")
                    if resolved:
                        found.append((name, resolved))
    return sorted(set(found))


def _common(ledger: Ledger, paths: list[bytes]) -> bytes | None:
    """The directory of a project that only its hooks tell: the one that holds all of these, never the root."""
    directories = [path if ledger.tree.is_dir(path) else path.rpartition(b"/")[0] for path in paths]
    if not directories:
        return None
    return posixpath.commonpath([b"/" + directory for directory in directories]).lstrip(b"/") or None
