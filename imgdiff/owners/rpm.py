"""RPM packages: the SQLite database of rpm 4.16 and newer; the older formats are not read, and that is said."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict

from imgdiff.model import FileEntry
from imgdiff.owners._ledger import Ledger, join, shown
from imgdiff.owners._missing import note_missing
from imgdiff.owners._rpm_header import RpmFile, RpmPackage, read_header

_DIRECTORIES = (b"var/lib/rpm", b"usr/lib/sysimage/rpm", b"usr/share/rpm")
_OLDER = {b"Packages": "Berkeley DB", b"Packages.db": "ndb"}
_MAX_STEPS = 200  # times 100,000 instructions of SQLite's machine; reading one table takes a few
_WAL_BYTES = slice(18, 20)  # SQLite file format, 1.3: 1 is a rollback journal, 2 a write-ahead log


def find(ledger: Ledger) -> None:
    """Claim the files of every installed package, and hold those that rpm would verify to their SHA-256."""
    seen: set[bytes] = set()
    for directory in _DIRECTORIES:
        found = ledger.tree.resolve(directory)
        if found is None or found in seen:
            continue
        seen.add(found)
        path = join(found, b"rpmdb.sqlite")
        if ledger.tree.lookup(path) is not None:
            _database(ledger, path)
            continue
        for name, kind in _OLDER.items():
            if ledger.tree.lookup(join(found, name)) is not None:
                reason = (
                    f"it is in the format {kind}, which is not read, so whose the files of packages are is not known"
                )
                ledger.blind("rpm database", reason, join(found, name))


def _database(ledger: Ledger, path: bytes) -> None:
    text = ledger.text(path)
    if text is None:
        ledger.blind("rpm database", "its content was not kept, so whose the files of packages are is not known", path)
        return
    log = ledger.tree.lookup(path + b"-wal")
    if log is not None and log.size:
        ledger.blind("rpm database", "what its write-ahead log adds is not read", path + b"-wal")
    packages = []
    try:
        blobs = _headers(text)
    except (sqlite3.Error, ValueError) as error:
        ledger.blind("rpm database", f"it could not be read: {error}", path)
        return
    for blob in blobs:
        try:
            packages.append(read_header(blob))
        except ValueError as error:
            ledger.blind("rpm database", f"one package could not be read: {error}", path)
    architectures: dict[str, set[str]] = defaultdict(set)
    for package in packages:
        architectures[package.name].add(package.architecture)
    packages.sort(key=lambda package: (package.name, package.architecture, package.version))
    for package in packages:
        if package.files:
            label = package.name
            if len(architectures[label]) > 1:
                label += "." + package.architecture
            _package(ledger, package, label)


def _headers(database: bytes) -> list[bytes]:
    """Return the header blobs. The file is hostile: nothing in its schema may run, and not for long."""
    if len(database) < 100:
        raise ValueError("it is cut short")
    image = bytearray(database)
    image[_WAL_BYTES] = b"\1\1"  # without its log beside it SQLite would refuse a database in that mode
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        steps = iter(range(_MAX_STEPS))
        connection.set_progress_handler(lambda: next(steps, None) is None, 100_000)
        connection.deserialize(bytes(image))
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        kinds = connection.execute("SELECT type FROM sqlite_master WHERE name = 'Packages'").fetchall()
        if kinds != [("table",)]:
            raise ValueError("it has no table of packages")
        rows = connection.execute("SELECT blob FROM Packages ORDER BY hnum").fetchall()
    return [blob for (blob,) in rows if isinstance(blob, bytes)]


def _package(ledger: Ledger, package: RpmPackage, label: str) -> None:
    owner = ledger.owner("rpm", label, package.version, b"")
    missing = []
    for file in package.files:
        path = ledger.canonical(file.path)
        ledger.claim(path, owner, "rpm-header", file.path)
        entry = ledger.tree.entries.get(path)
        if entry is None:
            if file.installed and file.digest is not None:
                missing.append(path)
        elif _edited(entry, file):
            ledger.note("rpm-mismatch", label, path, f"{shown(path)} differs from what package {label} installed.")
    note_missing(ledger, "rpm-missing", label, missing, f"Package {label}")


def _edited(entry: FileEntry, file: RpmFile) -> bool:
    if file.digest is None or not file.installed or entry.type != "file" or entry.digest is None:
        return False
    return entry.digest != file.digest
