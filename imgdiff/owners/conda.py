"""Conda packages: ``<prefix>/conda-meta/*.json`` lists the files of each."""

from __future__ import annotations

import msgspec

from imgdiff.owners._ledger import Ledger, join


class _Meta(msgspec.Struct):
    name: str
    version: str | None = None
    files: tuple[str, ...] = ()


def find(ledger: Ledger) -> None:
    """Claim the files of every conda package; relative paths start at the prefix, as conda-meta spells them."""
    for prefix in ledger.survey.conda:
        directory = join(prefix, b"conda-meta")
        for name in ledger.tree.children(directory):
            if name.endswith(b".json"):
                _package(ledger, prefix, directory + b"/" + name)


def _package(ledger: Ledger, prefix: bytes, path: bytes) -> None:
    text = ledger.text(path)
    if text is None:
        ledger.blind("conda-meta", "its content was not kept, so whose the files are is unsure", path)
        return
    try:
        meta = msgspec.json.decode(text, type=_Meta)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        ledger.blind("conda-meta", "it could not be read, so whose the files are is unsure", path)
        return
    owner = ledger.owner("conda", meta.name, meta.version, prefix)
    for file in meta.files:
        relative = file.encode("utf-8", "surrogatepass")
        ledger.claim(ledger.canonical(join(prefix, relative)), owner, "conda-meta", relative)
