"""RECORD: as an installer writes it, and a wheel held against its own (PyPA "Binary distribution format")."""

from __future__ import annotations

import base64
import csv
import io
import os
from collections.abc import Mapping

from imgdiff.model import WHEEL_TOPS, FileEntry, Integrity, Side, Texts, Tree, Wheel
from imgdiff.owners import read_record

_SHOWN = 3


def write_record(site: bytes, record: bytes, entries: Mapping[bytes, FileEntry]) -> bytes:
    """Write a RECORD (PyPA "Recording installed projects"), its rows sorted by path."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    for path in sorted({*entries, record}):
        spelled = os.path.relpath(b"/" + path, b"/" + site).decode("utf-8", "surrogateescape")
        entry = entries.get(path)
        if entry is None or entry.digest is None:
            writer.writerow((spelled, "", ""))
        else:
            digest = base64.urlsafe_b64encode(entry.digest).rstrip(b"=").decode()
            writer.writerow((spelled, f"sha256={digest}", entry.size))
    return out.getvalue().encode("utf-8", "surrogateescape")


def check_record(wheel: Wheel, files: Tree, texts: Texts, side: Side) -> tuple[tuple[Integrity, ...], tuple[str, ...]]:
    """Hold the wheel against its own RECORD; what that does not list is a caveat, since installers take it."""
    own = b"site-packages/" + wheel.info + b"/"
    entry = files.get(own + b"RECORD")
    text = None if entry is None or entry.digest is None else texts.get(entry.digest)
    if text is None:
        message = "RECORD in the wheel is too large to be read, so the wheel was not held against it."
        return (Integrity(side, "record-unreadable", wheel.name, None, message),), ()
    rows = read_record(text)
    notes = []
    if rows.rubbish:
        number, why = rows.rubbish[0]
        message = f"RECORD in the wheel has rows that can't be read in full; the first is row {number}: {why}."
        notes.append(Integrity(side, "record-unreadable", wheel.name, None, message))
    listed = set()
    for row in rows.rows:
        path = _in_layer(row.path)
        listed.add(path)
        there = files.get(path)
        shown = row.path.decode("utf-8", "backslashreplace")
        if there is None or there.type != "file":
            message = f"RECORD in the wheel lists a file that the wheel lacks: {shown}."
            notes.append(Integrity(side, "record-missing", wheel.name, None, message))
        elif row.digest is not None and row.digest != there.digest:
            message = f"{shown} in the wheel differs from the wheel's own RECORD: it was changed after the build."
            notes.append(Integrity(side, "record-mismatch", wheel.name, None, message))
    signatures = {own + b"RECORD.jws", own + b"RECORD.p7s"}  # these can't be listed
    unlisted = [path for path, each in files.entries.items() if each.type == "file" and path not in listed | signatures]
    if not unlisted:
        return tuple(notes), ()
    names = ", ".join(path.partition(b"/")[2].decode("utf-8", "backslashreplace") for path in unlisted[:_SHOWN])
    more = f" and {len(unlisted) - _SHOWN:,} more" if len(unlisted) > _SHOWN else ""
    return tuple(notes), (f"The wheel's own RECORD does not list {names}{more}; installers install it all the same.",)


def _in_layer(name: bytes) -> bytes:
    """Return where the wheel's layer has a member."""
    first, _, rest = name.partition(b"/")
    if first.endswith(b".data") and rest:
        scheme, _, below = rest.partition(b"/")
        top = WHEEL_TOPS.get(scheme.decode("utf-8", "replace"))
        if top is not None:
            return top.encode() + b"/" + below
    return b"site-packages/" + name
