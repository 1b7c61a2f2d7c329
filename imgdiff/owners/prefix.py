"""Toolkits by where they lie: oneAPI components, CUDA, ROCm, each version a root of its own."""

from __future__ import annotations

import re

import msgspec

from imgdiff.owners._ledger import Ledger, below, join
from imgdiff.owners._metadata import text_of

_ONEAPI = b"opt/intel/oneapi"
_VERSION = re.compile(rb"v?(\d+(?:\.\d+)*\S*)\Z")
_TOOLKITS = (  # (parent directory, name of the directory, owner)
    (b"usr/local", re.compile(rb"cuda(?:-(\d[\w.]*))?\Z"), "cuda"),
    (b"opt", re.compile(rb"rocm(?:-(\d[\w.-]*))?\Z"), "rocm"),
)


def find(ledger: Ledger) -> None:
    """Claim what lies below the known prefixes; relative paths start at a component's version directory."""
    _oneapi(ledger)
    for parent, pattern, name in _TOOLKITS:
        for child in ledger.tree.children(parent):
            root = join(parent, child)
            match = pattern.match(child)
            if match and ledger.tree.entries[root].type == "dir":
                told = _cuda_version(ledger, root) if name == "cuda" else _rocm_version(ledger, root)
                version = told or (text_of(match[1]) if match[1] else None)
                _claim_below(ledger, root, ledger.owner("prefix", name, version, root))


def _oneapi(ledger: Ledger) -> None:
    if not ledger.tree.is_dir(_ONEAPI) or ledger.tree.resolve(_ONEAPI) != _ONEAPI:
        return
    roots: dict[bytes, tuple[str, str]] = {}
    for child in ledger.tree.children(_ONEAPI):
        component = join(_ONEAPI, child)
        if ledger.tree.entries[component].type != "dir":
            continue
        if match := _VERSION.match(child):  # the unified layout: <version>/{bin,lib,include}
            roots[component] = ("oneapi", text_of(match[1]))
            continue
        for numbered in ledger.tree.children(component):
            directory = join(component, numbered)
            if (match := _VERSION.match(numbered)) and ledger.tree.entries[directory].type == "dir":
                roots[directory] = ("oneapi-" + text_of(child), text_of(match[1]))
    for root, (name, version) in sorted(roots.items()):
        _claim_below(ledger, root, ledger.owner("prefix", name, version, root))
    rest = list(below(ledger.tree, _ONEAPI, frozenset(roots)))
    if rest:  # setvars.sh, the `latest` links: which versions are in force
        owner = ledger.owner("prefix", "oneapi", None, _ONEAPI)
        for path in rest:
            ledger.claim(path, owner, "prefix", path[len(_ONEAPI) + 1 :])


def _claim_below(ledger: Ledger, root: bytes, owner: int) -> None:
    cut = len(root) + 1
    for path in below(ledger.tree, root):
        ledger.claim(path, owner, "prefix", path[cut:])


class _Component(msgspec.Struct):
    version: str | None = None


def _cuda_version(ledger: Ledger, root: bytes) -> str | None:
    """From version.json (CUDA 11.1 and newer) or version.txt ("CUDA Version 10.2.89")."""
    text = ledger.text(root + b"/version.json")
    if text is not None:
        try:
            components = msgspec.json.decode(text, type=dict[str, _Component])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            components = {}  # the directory's name still tells
        if "cuda" in components:
            return components["cuda"].version
    match = re.search(rb"CUDA Version (\d[\d.]*)", ledger.text(root + b"/version.txt") or b"")
    return text_of(match[1]) if match else None


def _rocm_version(ledger: Ledger, root: bytes) -> str | None:
    match = re.match(rb"\s*(\d[\w.-]*)", ledger.text(root + b"/.info/version") or b"")
    return text_of(match[1]) if match else None
