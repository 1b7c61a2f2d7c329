"""Facts and deltas in SQLite: rows with checksums, shared by several processes."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from imgdiff.compression import StreamError, pack, unpack
from imgdiff.errors import CacheError
from imgdiff.store._files import HINT

T = TypeVar("T")

_BROKEN: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)  # the last: foreign tables
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS rows (
  kind TEXT NOT NULL, version INTEGER NOT NULL, key BLOB NOT NULL,
  data BLOB NOT NULL, size INTEGER, checksum BLOB NOT NULL, used INTEGER NOT NULL,
  PRIMARY KEY (kind, version, key)
)
"""
_SELECT: Final = "SELECT key, data, size, checksum, used FROM rows WHERE kind = ? AND version = ? AND key IN"
_BATCH: Final = 400  # keys a query: SQLite takes at least 999 parameters
_BUSY: Final = 60.0  # seconds to wait for another process that writes
_COMPRESS: Final = 256  # bytes from which a row is compressed


def _checksum(kind: str, version: int, key: bytes, size: int | None, data: bytes) -> bytes:
    head = f"{kind}\0{version}\0{size}\0{len(key)}\0".encode()
    return hashlib.sha256(head + key + data).digest()[:12]


def _today() -> int:
    return int(time.time() // 86400)


class Rows:
    """The rows of one database file. For several threads.

    A file that is no database, or a damaged one, is set aside and made anew; a damaged row is as good as none.
    Raises CacheError where the directory is full or not writable, or another process holds the file for a minute.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(self._path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=OFF")  # what a crash of the machine tears is seen by checksums
                connection.execute(_SCHEMA)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _set_aside(self) -> None:
        self.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.replace(self._path.with_name(self._path.name + ".broken"))
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                try:
                    return work(self._open())
                except sqlite3.DatabaseError as error:
                    if error.sqlite_errorcode & 0xFF not in _BROKEN:
                        raise
                    self._set_aside()
                    return work(self._open())
            except (sqlite3.Error, OSError) as error:
                raise CacheError(f"The cache database {self._path} can't be used: {error}.", HINT) from error

    def get(self, kind: str, version: int, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the data of those keys that have a sound row."""
        wanted = list(dict.fromkeys(keys))
        if not wanted:
            return {}
        return self._run(lambda connection: self._get(connection, kind, version, wanted))

    def _get(self, connection: sqlite3.Connection, kind: str, version: int, wanted: list[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        stale: list[bytes] = []
        today = _today()
        for at in range(0, len(wanted), _BATCH):
            keys = wanted[at : at + _BATCH]
            marks = ",".join("?" * len(keys))  # nothing else goes into the text of the query
            query = f"{_SELECT} ({marks})"
            for key, data, size, checksum, used in connection.execute(query, (kind, version, *keys)):
                sound = _sound(kind, version, key, data, size, checksum)
                if sound is not None:
                    found[key] = sound
                    if used != today:
                        stale.append(key)
        if stale:
            self._touch(connection, kind, version, stale, today)
        return found

    @staticmethod
    def _touch(connection: sqlite3.Connection, kind: str, version: int, keys: list[bytes], today: int) -> None:
        with _transaction(connection):
            connection.executemany(
                "UPDATE rows SET used = ? WHERE kind = ? AND version = ? AND key = ?",
                ((today, kind, version, key) for key in keys),
            )

    def put(self, kind: str, version: int, rows: Mapping[bytes, bytes]) -> None:
        """Write rows; those of the same key are replaced."""
        if not rows:
            return
        today = _today()
        prepared = []
        for key, data in rows.items():
            size = len(data) if len(data) >= _COMPRESS else None
            stored = data if size is None else pack(data, 1)
            prepared.append((kind, version, key, stored, size, _checksum(kind, version, key, size, stored), today))

        def work(connection: sqlite3.Connection) -> None:
            with _transaction(connection):
                connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", prepared)

        self._run(work)

    def count(self) -> dict[str, int]:
        """Return how many rows of each kind there are."""
        return self._run(
            lambda connection: dict(connection.execute("SELECT kind, count(*) FROM rows GROUP BY kind ORDER BY kind"))
        )

    def days(self) -> list[tuple[int, int]]:
        """Return the days (since the epoch) on which rows were last used, oldest first, with their bytes of data."""
        return self._run(
            lambda connection: list(
                connection.execute("SELECT used, sum(length(data) + 120) FROM rows GROUP BY used ORDER BY used")
            )
        )

    def drop(self, until: int | None) -> None:
        """Remove the rows that were last used on that day or before (None: all), and give the space back."""

        def work(connection: sqlite3.Connection) -> None:
            with _transaction(connection):
                if until is None:
                    connection.execute("DELETE FROM rows")
                else:
                    connection.execute("DELETE FROM rows WHERE used <= ?", (until,))
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        self._run(work)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _sound(kind: str, version: int, key: object, data: object, size: object, checksum: object) -> bytes | None:
    """Return a row's data if it is what was written; columns of a damaged row can be of any type."""
    if not isinstance(key, bytes) or not isinstance(data, bytes) or not (size is None or isinstance(size, int)):
        return None
    if _checksum(kind, version, key, size, data) != checksum:
        return None
    if size is None:
        return data
    try:
        return unpack(data, size)
    except StreamError:
        return None
