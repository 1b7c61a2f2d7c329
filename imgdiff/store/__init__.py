"""The content-addressed cache: layer indexes, the small texts of layers, facts and deltas.

Nothing in it is believed without its checksum: what is torn, altered, foreign or of another version counts as not
there and is made again. Several processes may share one directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import platformdirs

from imgdiff.errors import CacheError
from imgdiff.model import ImageSnapshot, LayerIndex
from imgdiff.store import _indexes
from imgdiff.store._files import TEMPORARY, fresh, trouble
from imgdiff.store._packs import Pack, PackTexts, PackWriter, TextWriter
from imgdiff.store._rows import Rows

__all__ = ["LayerWriter", "PackTexts", "Store", "TextWriter"]

_TAG: Final = "Signature: 8a477f597d28d172789f06886806bc55\n# This directory is a cache of imgdiff.\n"
_ABANDONED: Final = 86400.0  # seconds after which an unfinished file belongs to nobody
_DIGEST: Final = re.compile(r"sha(256|384|512):[0-9a-f]{64,128}")

_WHOLE = {"facts:trace": "traces", "facts:report": "reports"}  # kept as facts are, of images and of pairs


class Store:
    """One cache directory. A context manager; for several threads.

    Raises CacheError where the directory can't be made, read or written, or is full: imgdiff then stops with one
    sentence that names ``--no-cache``, since a cache that silently is none would cost minutes in every run.
    """

    def __init__(self, directory: Path, temporary: tempfile.TemporaryDirectory[str] | None = None) -> None:
        """Use ``open`` or ``temporary``."""
        self.directory = directory
        self._temporary = temporary
        self.layers = directory / "layers"
        self._lock = threading.Lock()
        self._loose: list[Path] = []  # packs of directories, which are never cached
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._texts: list[PackTexts] = []
        self._lent: dict[tuple[str, int], dict[bytes, bytes]] = {}
        try:
            self.layers.mkdir(parents=True, exist_ok=True)
            tag = directory / "CACHEDIR.TAG"
            if not tag.exists():
                tag.write_text(_TAG, encoding="ascii")
            self._sweep()
        except OSError as error:
            raise trouble(directory, error) from error
        self._rows = Rows(directory / "rows.sqlite")

    @classmethod
    def open(cls, directory: Path | None = None) -> Self:
        """Open the cache in ``directory``, by default the user's cache directory (XDG_CACHE_HOME)."""
        return cls(platformdirs.user_cache_path("imgdiff") if directory is None else directory)

    @classmethod
    def temporary(cls) -> Self:
        """Open a cache that is gone with ``close``, or with the end of the process."""
        try:
            temporary = tempfile.TemporaryDirectory(prefix="imgdiff-", ignore_cleanup_errors=True)
        except OSError as error:
            raise trouble(Path(tempfile.gettempdir()), error) from error
        try:
            return cls(Path(temporary.name), temporary)
        except BaseException:
            temporary.cleanup()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all files; a temporary cache is removed."""
        for texts in self._texts:
            texts.close()
        self._texts.clear()
        self._rows.close()
        for directory in (self._scratch, self._temporary):
            if directory is not None:
                directory.cleanup()

    # Layers ----------------------------------------------------------------------------------------------------------

    def path(self, name: str, suffix: str) -> Path:
        """Return the file of a layer's ``index`` or ``pack``: under its diffID, or the identity of a believed index."""
        if name.partition(" ")[0] != name:
            name = f"believed-{hashlib.sha256(name.encode()).hexdigest()}"
        elif not _DIGEST.fullmatch(name):
            raise ValueError(f"{name!r} is no diffID")
        return self.layers / f"{name.replace(':', '-')}.{_indexes.VERSION}.{suffix}"

    def load_index(self, diff_id: str, rules: str = "") -> LayerIndex | None:
        """Return the index of the layer with this diffID, or None where it, its pack of texts or its facts are not
        there, not whole, or not what was written, or a pass with other rules made it. What it says was held against
        the diffID: an index made of a table of contents is never returned."""
        return self._load(diff_id, rules) if _DIGEST.fullmatch(diff_id) else None

    def load_believed(self, diff_id: str, blob: str, contents: str, rules: str = "") -> LayerIndex | None:
        """Return the index that was made of a table of contents: by its digest, the blob's, and the diffID that the
        layer should have. None as for ``load_index``."""
        return self._load(_indexes.believed_identity(diff_id, blob, contents), rules)

    def _load(self, name: str, rules: str) -> LayerIndex | None:
        index_path, pack_path = self.path(name, "index"), self.path(name, "pack")
        try:
            indexed, checksum = _indexes.decode(index_path, name)
            pack = Pack(pack_path)
        except (OSError, ValueError):
            return None  # not there, or not to be believed: the layer is read again
        pack.close()
        if pack.checksum != checksum or indexed.rules != rules or not self._has_facts(indexed):
            return None
        for path in (index_path, pack_path):
            _touch(path)
        return indexed.index

    def _has_facts(self, indexed: _indexes.Indexed) -> bool:
        wanted: dict[tuple[str, int], set[bytes]] = {}
        for kind, version, digest in indexed.facts:
            wanted.setdefault((kind, version), set()).add(digest)
        return all(len(self.facts(*kind, digests)) == len(digests) for kind, digests in wanted.items())

    def adopt(self, pack: Path) -> None:
        """Take over the pack of a directory, for as long as the store is open."""
        with self._lock:
            if self._scratch is None:
                self._scratch = tempfile.TemporaryDirectory(
                    prefix=f"{TEMPORARY}loose-", dir=self.directory, ignore_cleanup_errors=True
                )
            target = Path(self._scratch.name) / f"{len(self._loose)}.pack"
            pack.replace(target)
            self._loose.append(target)

    def borrow(self, snapshot: ImageSnapshot) -> None:
        """Have the texts and facts of a snapshot at hand until ``close``. Nothing of them is cached: what a snapshot
        says of a file can't be held against the file. Raises ImageError where the snapshot is damaged."""
        with fresh(self.layers) as (file, temporary):
            pack = PackWriter(file)
            for digest, content in snapshot.texts():
                pack.add(digest, content)
            pack.finish()
            self.adopt(temporary)
        for row in snapshot.facts():
            self._lent.setdefault((row.kind, row.version), {})[row.digest] = row.encoded

    def lent(self, kind: str, version: int, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return what borrowed snapshots have of these facts: for files whose bytes are not at hand."""
        rows = self._lent.get((kind, version), {})
        return {digest: rows[digest] for digest in digests if digest in rows}

    def writer(self, rules: str = "") -> LayerWriter:
        """Return a writer for one layer's index, texts and facts. ``rules`` names what decides what is kept and made
        of a layer: an index is only loaded again under the same ones."""
        return LayerWriter(self, rules)

    def texts(self, layers: Iterable[LayerIndex | str]) -> PackTexts:
        """Return the texts that were kept of these layers (indexes or diffIDs), and of every directory that was
        indexed with this store. Valid until ``close``. Raises CacheError if a pack is gone."""
        names = [layer if isinstance(layer, str) else _indexes.identity(layer) for layer in layers]
        paths = [self.path(name, "pack") for name in dict.fromkeys(names) if name] + self._loose
        packs: list[Pack] = []
        try:
            for path in paths:
                packs.append(Pack(path, whole=False))  # noqa: PERF401 -- those that are open are closed on an error
        except (OSError, ValueError) as error:
            for pack in packs:
                pack.close()
            raise CacheError(
                f"A part of the cache in {self.directory} went away while it was used: {error}.",
                "Run the same command again; let no other process clear the cache meanwhile.",
            ) from error
        texts = PackTexts(packs)
        self._texts.append(texts)
        return texts

    # Facts and deltas ------------------------------------------------------------------------------------------------

    def facts(self, kind: str, version: int, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the encoded facts of one kind and version by content digest, as far as there are any."""
        return self._rows.get(f"facts:{kind}", version, digests)

    def put_facts(self, kind: str, version: int, facts: Mapping[bytes, bytes]) -> None:
        """Keep encoded facts of one kind and version by content digest."""
        self._rows.put(f"facts:{kind}", version, facts)

    def delta(self, kind: str, version: int, digest_a: bytes, digest_b: bytes) -> bytes | None:
        """Return the encoded delta of two contents, or None."""
        key = digest_a + digest_b
        return self._rows.get(f"delta:{kind}", version, (key,)).get(key)

    def put_delta(self, kind: str, version: int, digest_a: bytes, digest_b: bytes, delta: bytes) -> None:
        """Keep the encoded delta of two contents."""
        self._rows.put(f"delta:{kind}", version, {digest_a + digest_b: delta})

    def put_deltas(self, kind: str, version: int, deltas: Mapping[tuple[bytes, bytes], bytes]) -> None:
        """Keep the encoded deltas of several pairs of contents."""
        self._rows.put(f"delta:{kind}", version, {a + b: delta for (a, b), delta in deltas.items()})

    # Upkeep ----------------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Remove what writers that were killed left behind."""
        for path in self.layers.glob(f"{TEMPORARY}*"):
            try:
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()
            except FileNotFoundError:
                continue  # another process swept it

    def _entries(self) -> dict[str, tuple[float, int, list[Path]]]:
        """Return the cached layers as (last use, bytes, files) by name."""
        entries: dict[str, tuple[float, int, list[Path]]] = {}
        for path in sorted(self.layers.iterdir()):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another process removed it
            if not path.name.startswith(TEMPORARY):
                used, size, files = entries.get(path.stem, (0.0, 0, []))
                entries[path.stem] = (max(used, status.st_mtime), size + status.st_size, [*files, path])
        return entries

    def _database_size(self) -> int:
        return sum(path.stat().st_size for path in self.directory.glob("rows.sqlite*"))

    def info(self) -> dict[str, str | int]:
        """Return where the cache lies and how much is in it, by kind, with the bytes of all."""
        rows = self._rows.count()
        entries = self._entries()
        return {
            "directory": str(self.directory),
            "layers": len(entries),
            "facts": sum(count for kind, count in rows.items() if kind.startswith("facts:") and kind not in _WHOLE),
            "deltas": sum(count for kind, count in rows.items() if kind.startswith("delta:")),
            **{name: rows.get(kind, 0) for kind, name in _WHOLE.items()},
            "bytes": sum(size for _, size, _ in entries.values()) + self._database_size(),
        }

    def clear(self) -> None:
        """Remove everything that is cached."""
        for path in self.layers.iterdir():
            path.unlink(missing_ok=True)
        self._rows.drop(None)

    def prune(self, max_bytes: int) -> None:
        """Remove what was not used for longest until the cache has at most this many bytes."""
        size = self._database_size() + sum(size for _, size, _ in self._entries().values())
        days: list[tuple[float, int, list[Path] | None, int]] = [
            ((day + 1) * 86400.0, freed, None, day) for day, freed in self._rows.days()
        ]
        layers = [(used, freed, files, 0) for used, freed, files in self._entries().values()]
        dropped = -1
        for _, freed, files, day in sorted([*days, *layers], key=lambda item: item[:2]):
            if size <= max_bytes:
                break
            size -= freed
            for path in files or ():
                path.unlink(missing_ok=True)
            if files is None:
                dropped = day
        if dropped >= 0:
            self._rows.drop(dropped)


def _touch(path: Path) -> None:
    """Note the use of a file. Another process may have removed it, or own it."""
    with contextlib.suppress(OSError):
        os.utime(path)


class LayerWriter:
    """Writes what one indexing pass found. A context manager: without ``commit`` nothing of it remains."""

    def __init__(self, store: Store, rules: str) -> None:
        self._store = store
        self._rules = rules
        self._stack = contextlib.ExitStack()
        self._facts: dict[tuple[str, int], dict[bytes, bytes]] = {}

    def __enter__(self) -> Self:
        self._file, self._temporary = self._stack.enter_context(fresh(self._store.layers))
        self._pack = PackWriter(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def keep(self, digest: bytes, content: bytes | memoryview) -> None:
        """Keep a text under its SHA-256."""
        self._pack.add(digest, content)

    def start(self) -> TextWriter:
        """Begin a text that comes in pieces: feed it, then end it with its SHA-256, before anything else is kept."""
        return self._pack.start()

    def fact(self, kind: str, version: int, digest: bytes, encoded: bytes) -> None:
        """Keep the facts of a file under its SHA-256."""
        self._facts.setdefault((kind, version), {})[digest] = encoded

    def commit(self, index: LayerIndex) -> None:
        """Put texts, facts and index where readers find them, in this order. The index of a directory (without a
        diffID) is not kept, and its texts live as long as the store."""
        checksum = self._pack.finish()
        for (kind, version), rows in self._facts.items():
            self._store.put_facts(kind, version, rows)
        if not index.diff_id:
            self._store.adopt(self._temporary)
            return
        name = _indexes.identity(index)
        self._temporary.replace(self._store.path(name, "pack"))
        facts = tuple((kind, version, digest) for (kind, version), rows in self._facts.items() for digest in rows)
        with fresh(self._store.layers) as (file, temporary):
            file.write(_indexes.encode(_indexes.Indexed(index, self._rules, facts), checksum))
            file.flush()
            temporary.replace(self._store.path(name, "index"))
