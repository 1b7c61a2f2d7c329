"""Debian packages: dpkg's database, and the ``status.d`` of distroless images (dpkg(1), dpkg-divert(1))."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import defaultdict

import msgspec

from imgdiff.owners._ledger import Ledger, join, shown
from imgdiff.owners._metadata import text_of
from imgdiff.owners._missing import note_missing

_DATABASE = b"var/lib/dpkg"
_FIELD = re.compile(rb"^(Package|Status|Version|Architecture):[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
_MD5 = re.compile(rb"([0-9a-f]{32})  ?(.+)\Z", re.DOTALL)
# Images of every kind drop these; nothing loads them.
_OFTEN_DROPPED = re.compile(rb"usr/share/(?:doc|man|info|locale|lintian|bug|doc-base|linda|groff|gnome/help)/")


class _Package(msgspec.Struct, frozen=True):
    name: str
    version: str | None
    architecture: str


def find(ledger: Ledger) -> None:
    """Claim what the lists of the installed packages name, diversions and merged /usr followed.

    Where md5sums stand and a file's content was kept, its bytes are checked too.
    """
    status = _status(ledger)
    native = next((package.architecture for package in status if package.name == "dpkg"), "")
    diversions = _diversions(ledger)
    excluded = _Excludes(ledger)
    by_key = {(package.name, package.architecture): package for package in status}
    by_name: dict[str, list[_Package]] = defaultdict(list)
    for package in status:
        by_name[package.name].append(package)
    directory = _DATABASE + b"/info"
    for file in ledger.tree.children(directory):
        if not file.endswith(b".list"):
            continue
        name, _, architecture = text_of(file[: -len(b".list")]).partition(":")
        known = by_key.get((name, architecture)) or next(iter(by_name.get(name, ())), None)
        foreign = len(by_name[name]) > 1 and known is not None and known.architecture != native
        label = f"{name}:{known.architecture}" if foreign and known is not None else name
        owner = ledger.owner("dpkg", label, known.version if known else None, b"")
        stem = directory + b"/" + file[: -len(b".list")]
        _claim_list(ledger, owner, name, stem + b".list", diversions)
        _check_sums(ledger, owner, name, stem + b".md5sums", diversions, excluded)
    _distroless(ledger)


def _stanzas(text: bytes) -> list[_Package]:
    found = []
    for stanza in re.split(rb"\n[ \t]*\n", text):
        fields = {key: text_of(value) for key, value in _FIELD.findall(stanza)}
        if name := fields.get(b"Package"):
            found.append(_Package(name, fields.get(b"Version"), fields.get(b"Architecture", "")))
    return found


def _status(ledger: Ledger) -> list[_Package]:
    path = _DATABASE + b"/status"
    text = ledger.text(path)
    if text is None:
        if ledger.tree.lookup(path) is not None:
            ledger.blind("dpkg status", "its content was not kept, so versions of packages are not known", path)
        return []
    return _stanzas(text)


def _diversions(ledger: Ledger) -> dict[bytes, tuple[bytes, str]]:
    """From canonical path to (where the others' file went, the package that diverts); ``:`` is a local diversion."""
    lines = (ledger.text(_DATABASE + b"/diversions") or b"").splitlines()
    found = {}
    for position in range(0, len(lines) - 2, 3):
        source, target, package = lines[position : position + 3]
        found[ledger.canonical(source.lstrip(b"/"))] = (target.lstrip(b"/"), text_of(package))
    return found


def _located(ledger: Ledger, listed: bytes, name: str, diversions: dict[bytes, tuple[bytes, str]]) -> bytes:
    path = ledger.canonical(listed)
    if path in diversions:
        target, by = diversions[path]
        if by != name:
            return ledger.canonical(target)
    return path


def _claim_list(ledger: Ledger, owner: int, name: str, path: bytes, diversions: dict[bytes, tuple[bytes, str]]) -> None:
    text = ledger.text(path)
    if text is None:
        ledger.blind("dpkg list", "its content was not kept, so whose the files are is unsure", path)
        return
    for line in text.split(b"\n"):
        listed = line.lstrip(b"/")
        if listed and listed != b".":
            ledger.claim(_located(ledger, listed, name, diversions), owner, "dpkg-list", listed)


def _sums(ledger: Ledger, path: bytes) -> list[tuple[bytes, bytes]]:
    """The (md5 in hex, path without leading slash) lines of a md5sums file."""
    matches = (_MD5.match(line) for line in (ledger.text(path) or b"").split(b"\n"))
    return [(match[1], match[2].removeprefix(b"./").lstrip(b"/")) for match in matches if match]


def _check_sums(
    ledger: Ledger,
    owner: int,
    name: str,
    path: bytes,
    diversions: dict[bytes, tuple[bytes, str]],
    excluded: _Excludes,
) -> None:
    missing = []
    for md5, listed in _sums(ledger, path):
        located = _located(ledger, listed, name, diversions)
        entry = ledger.tree.entries.get(located)
        if entry is None:
            if not _OFTEN_DROPPED.match(located) and not excluded.match(listed):
                missing.append(located)
        elif entry.type == "file" and entry.digest is not None:
            # The tree has SHA-256 only: what was not kept can't be checked, and nothing is said of it.
            content = ledger.texts.get(entry.digest)
            if content is not None and hashlib.md5(content, usedforsecurity=False).hexdigest().encode() != md5:
                label = ledger.owners[owner].name
                ledger.note(
                    "dpkg-mismatch", label, located, f"{shown(located)} differs from the md5sums of package {label}."
                )
    note_missing(ledger, "dpkg-missing", ledger.owners[owner].name, missing, f"The md5sums of package {name}")


def _distroless(ledger: Ledger) -> None:
    directory = _DATABASE + b"/status.d"
    for file in ledger.tree.children(directory):
        if file.endswith(b".md5sums"):
            continue
        path = join(directory, file)
        text = ledger.text(path)
        if text is None:
            if (entry := ledger.tree.lookup(path)) is not None and entry.type == "file":
                ledger.blind("dpkg status.d", "its content was not kept, so whose the files are is unsure", path)
            continue
        for package in _stanzas(text)[:1]:
            owner = ledger.owner("dpkg", package.name, package.version, b"")
            for _, listed in _sums(ledger, path + b".md5sums"):
                ledger.claim(ledger.canonical(listed), owner, "dpkg-list", listed)
            _check_sums(ledger, owner, package.name, path + b".md5sums", {}, _Excludes(ledger))


class _Excludes:
    """path-exclude and path-include of dpkg.cfg: what dpkg was told not to unpack (dpkg(1)); the last match counts."""

    def __init__(self, ledger: Ledger) -> None:
        self._rules: list[tuple[bool, re.Pattern[str]]] = []
        directory = b"etc/dpkg/dpkg.cfg.d"
        files = [b"etc/dpkg/dpkg.cfg", *(join(directory, name) for name in ledger.tree.children(directory))]
        for file in files:
            for line in (ledger.text(file) or b"").splitlines():
                match = re.match(rb"\s*path-(exclude|include)[\s=]+(\S+)", line)
                if match:
                    pattern = re.compile(fnmatch.translate(match[2].decode("latin-1")))
                    self._rules.append((match[1] == b"exclude", pattern))

    def match(self, path: bytes) -> bool:
        text = "/" + path.decode("latin-1")
        excluded = False
        for exclude, pattern in self._rules:
            if pattern.match(text):
                excluded = exclude
        return excluded
