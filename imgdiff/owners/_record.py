"""Rows of RECORD, read as far as they can be (PyPA "Recording installed projects", "The RECORD file")."""

from __future__ import annotations

import binascii
import csv
import io
from collections.abc import Iterator

import msgspec

from imgdiff.model import Claim

_MAX_PATH = 4096 * 4  # bytes; PATH_MAX with room for what a ../../ prefix adds
_LONGEST_LINE = 1_000_000
_URLSAFE = bytes.maketrans(b"-_", b"+/")


class Row(msgspec.Struct, frozen=True):
    """One row: the path as written, and its SHA-256 (None if it has no hash or one of another algorithm)."""

    path: bytes
    digest: bytes | None


class Rows(msgspec.Struct, frozen=True):
    """All rows that make sense, once each, and what did not: (number of the row from 1, why) in order."""

    rows: tuple[Row, ...]
    rubbish: tuple[tuple[int, str], ...]


class Listed(msgspec.Struct, frozen=True):
    """What one image's files made of the rows of a RECORD, so that the next image need not work out what is the same.

    ``recorded`` is as in :class:`~imgdiff.model.Distribution`. ``claims`` has for each row the claim to its path where
    the row spells the path as it stands below its site, and None for all others; ``owner`` made them. ``packages`` are
    the import names that the rows provide.
    """

    rows: Rows
    owner: int
    recorded: tuple[tuple[bytes, bytes, bytes | None], ...]
    claims: tuple[tuple[Claim, ...] | None, ...]
    packages: tuple[str, ...]


class Records:
    """RECORDs that were read, for the images of one pair: ``rows`` by the digest of the RECORD, ``listed`` by the path
    of the dist-info that has it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Rows] = {}
        self.listed: dict[bytes, Listed] = {}


def read_record(text: bytes) -> Rows:
    """Read a RECORD. Never raises: a row that can't be read is rubbish, and the others count."""
    rows: dict[bytes, Row] = {}
    rubbish: list[tuple[int, str]] = []
    for number, fields in _fields(text):
        if fields is None:
            rubbish.append((number, "it is no line of a CSV file"))
            continue
        path, hash_text, columns = fields
        fault = _path_fault(path)
        if fault is not None:
            rubbish.append((number, fault))
            continue
        digest: bytes | None = None
        if columns < 3:
            rubbish.append((number, "it has fewer than three columns"))
        elif hash_text:
            digest, fault = _digest(hash_text)
            if fault is not None:
                rubbish.append((number, fault))
        if path not in rows or rows[path].digest is None:
            rows[path] = Row(path, digest)
    return Rows(tuple(rows.values()), tuple(rubbish))


def _path_fault(path: bytes) -> str | None:
    if not path:
        return "its path is empty"
    if b"\0" in path:
        return "its path holds a NUL"
    if len(path) > _MAX_PATH:
        return "its path is longer than any path can be"
    return None


def _digest(text: bytes) -> tuple[bytes | None, str | None]:
    algorithm, _, value = text.partition(b"=")
    if algorithm != b"sha256":
        return None, None if value else "its hash is not readable"
    if len(value) == 64:
        return _hexadecimal(value)
    try:
        # What base64.urlsafe_b64decode does, without its checks of the argument: some 100,000 rows an image.
        digest = binascii.a2b_base64(value.translate(_URLSAFE) + b"=" * (-len(value) % 4))
    except (binascii.Error, ValueError):
        return None, "its hash is no base64"
    return (digest, None) if len(digest) == 32 else (None, "its hash has the wrong length")


def _hexadecimal(value: bytes) -> tuple[bytes | None, str | None]:
    """Debian's flit wrote the digits themselves; base64 of 32 bytes is never that long."""
    try:
        return bytes.fromhex(value.decode("ascii")), None
    except ValueError:
        return None, "its hash is no base64"


Fields = tuple[bytes, bytes, int] | None


def _fields(text: bytes) -> Iterator[tuple[int, Fields]]:
    """Yield (row number, (path, hash, number of columns) or None) of each row that is not empty."""
    lines = text.splitlines()
    if b'"' in text:
        whole = _as_csv(text)
        if whole is not None:
            yield from enumerate(whole, 1)
            return
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if len(line) > _LONGEST_LINE:
            yield number, None
        elif line.startswith(b'"'):
            parsed = _as_csv(line)
            yield number, parsed[0] if parsed else None
        else:
            # From the right: a path with commas that was not quoted is still one path.
            parts = line.rsplit(b",", 2)
            yield number, (parts[0], parts[1] if len(parts) == 3 else b"", len(parts))


def _as_csv(text: bytes) -> list[tuple[bytes, bytes, int]] | None:
    """Read as CSV proper (a quoted path may hold line breaks); None where that fails."""
    decoded = text.decode("utf-8", "surrogateescape")
    try:
        rows = [row for row in csv.reader(io.StringIO(decoded, newline=""), strict=True) if row]
    except csv.Error:
        return None
    return [
        (
            _encode(row[0] if len(row) <= 3 else ",".join(row[:-2])),
            _encode(row[-2]) if len(row) >= 3 else b"",
            len(row),
        )
        for row in rows
    ]


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
