"""Making a snapshot: one image's indexes, texts and facts in one file, for comparisons when the image is gone."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from imgdiff import about, pipeline, tree
from imgdiff import config as configs
from imgdiff.errors import IncompleteError, UsageError
from imgdiff.facts import VERSIONS, FactKind, Facts, ImageFacts
from imgdiff.kinds import elf
from imgdiff.layer import Progress, index_layers
from imgdiff.model import FactRow, FileEntry, Image, LayerIndex, Texts, Tree
from imgdiff.store import Store, snapshots

# Modules here are found by import alone, so that their facts stand for them; elsewhere one may be run as a script.
_MODULES = re.compile(rb"(?:.*/)?(?:(?:site|dist)-packages|python\d+(?:\.\d+)?)/.*\.py[cw]?\Z", re.DOTALL)
# ... but for those whose text is read as well, and those whose change is explained by a version literal.
_READ = re.compile(
    rb"(?:.*/)?(?:[^/]*editable[^/]*|(?:site|user)customize|_*(?:version|about)_*)\.py\Z", re.IGNORECASE | re.DOTALL
)
_CACHED = re.compile(rb"(?P<directory>(?:.*/)?)__pycache__/(?P<stem>[^/]+?)\.[^/]+\.pyc\Z", re.DOTALL)


class Taken(msgspec.Struct, frozen=True):
    """The bytes of a snapshot, of the image's layers as they are stored (None where a source does not say), and of
    their uncompressed tars (of all files, for a root file system)."""

    size: int
    stored: int | None
    plain: int


def take(
    reference: str, output: Path, options: pipeline.Options, *, texts: bool = False, progress: Progress | None = None
) -> Taken:
    """Write a snapshot of an image to a file, whole or not at all.

    ``texts`` keeps the text of every Python module too, so that a changed one is explained as from the image itself;
    else their facts stand for them. Raises ImgdiffError where the image can't be used or the file can't be written.
    """
    _check_output(output)
    with pipeline.open_store(options) as store:
        image = pipeline.opened(reference, options)
        if image.snapshot is not None:
            raise UsageError(f"{reference} is a snapshot already", "copy the file, or name the image that it is of")
        if image.wheel is not None:
            raise UsageError(
                f"{reference} is a wheel, and a snapshot is of an image", "keep the wheel itself, it is small enough"
            )
        facts = Facts(store, options.jobs)
        try:
            image, indexes = _index(image, store, progress, options.jobs)
            size = _write(output, _Kept(image, indexes, store, facts, texts=texts))
        finally:
            facts.close()
    sizes = [-1 if layer.descriptor is None else layer.descriptor.size for layer in image.layers]
    return Taken(size, sum(sizes) if min(sizes, default=-1) >= 0 else None, sum(index.size for index in indexes))


def _check_output(output: Path) -> None:
    """Say before the long work what would fail after it. Nothing but an older snapshot is replaced."""
    target = output.resolve()
    if target.exists() and not _is_snapshot(target):
        raise UsageError(f"{str(output)!r} is there and is no snapshot, so it is not replaced", "choose another file")
    if not target.parent.is_dir():
        raise UsageError(f"{str(output)!r} can't be written: its directory is not there", "make it, or choose another")
    if not os.access(target.parent, os.W_OK):
        raise UsageError(f"{str(output)!r} can't be written: permission denied", "choose another file with -o")


def _is_snapshot(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return snapshots.is_snapshot(file.read(32))
    except OSError:
        return False


def _index(image: Image, store: Store, progress: Progress | None, jobs: int | None) -> tuple[Image, list[LayerIndex]]:
    def stop() -> None:
        if image.transfer is not None:
            image.transfer.stop()

    try:
        return image, index_layers(image.layers, store, progress, jobs, stop)
    except IncompleteError:
        if image.whole is None:
            raise
        whole = msgspec.structs.replace(image.whole(), reference=image.reference)
        return whole, index_layers(whole.layers, store, progress, jobs)


class _Kept:
    """What of an image goes into its snapshot."""

    def __init__(self, image: Image, indexes: list[LayerIndex], store: Store, facts: Facts, *, texts: bool) -> None:
        self.image, self.indexes = image, indexes
        self._store, self._facts, self._all = store, facts, texts
        self._texts: Texts = store.texts(indexes)
        self._tree: Tree = tree.flatten(indexes)
        self._source = ImageFacts(self._tree, self._texts, facts)
        self._rows = self._modules()

    def manifest(self) -> snapshots.Manifest:
        image = self.image
        return snapshots.Manifest(
            made_by=about.VERSION,
            rules=pipeline.SNAPSHOT_RULES,
            reference=image.reference,
            manifest_digest=image.manifest_digest,
            config_digest=image.config_digest,
            platform=image.platform,
            config=None if image.config is None else configs.redact_config(image.config),
            layers=tuple(
                snapshots.KeptLayer(layer.descriptor, index.diff_id or None)
                for layer, index in zip(image.layers, self.indexes, strict=True)
            ),
            texts=self._all,
            contained=image.contained,
            mounts=image.mounts,
            caveats=image.caveats,
        )

    def _files(self) -> list[FileEntry]:
        """Files by suffix, then name: alike ones side by side."""
        files = [entry for entry in self._tree.entries.values() if entry.type == "file" and entry.digest is not None]
        return sorted(files, key=lambda entry: (entry.path.rpartition(b".")[2], entry.path))

    def _modules(self) -> dict[tuple[FactKind, bytes], bytes]:
        """Return the facts of all modules, in the order of their names."""
        paths = [
            entry.path
            for entry in self._files()
            if entry.path.endswith((b".py", b".pyw", b".pyc")) and not _CACHED.match(entry.path)
        ]
        choices = [self._source.chosen(path) for path in paths]
        self._facts.make((choice[0] for choice in choices if choice), self._texts)
        rows: dict[tuple[FactKind, bytes], bytes] = {}
        second: list[tuple[FactKind, bytes]] = []
        for choice in choices:
            for number, each in enumerate(choice):
                encoded = self._facts.encoded.get(each)
                if number == 0 and encoded is not None:
                    rows[each] = encoded
                    if not encoded.startswith(b"U"):
                        break
                elif number:
                    second.append(each)
        self._facts.make(second, self._texts)
        return rows | {each: self._facts.encoded[each] for each in second if each in self._facts.encoded}

    def texts(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the texts to keep. A module's is left out where its facts are there and nothing but them is read."""
        files = self._files()
        checked = self._checked()
        kept = {
            entry.digest: entry
            for entry in reversed(files)
            if self._all or entry.path in checked or not _MODULES.match(entry.path) or _READ.match(entry.path)
        }
        for entry in files:
            digest = entry.digest
            if digest is None or kept.get(digest, entry) is not entry:
                continue
            text = self._texts.get(digest)
            if text is not None and (digest in kept or text.startswith(b"#!") or self._without_facts(entry)):
                yield digest, text

    def _without_facts(self, entry: FileEntry) -> bool:
        if _CACHED.match(entry.path):
            return False  # what runs of them has facts, and what does not run is noise
        kinds = [self._rows.get(each, b"U") for each in self._source.chosen(entry.path)]
        return all(encoded.startswith(b"U") for encoded in kinds)

    def _checked(self) -> set[bytes]:
        """Return the sources that a ``.pyc`` is held against by their content (PEP 552, "checked hash")."""
        checked: set[bytes] = set()
        for path, entry in self._tree.entries.items():
            stamp = None if entry.digest is None else self._tree.stamps.get(entry.digest)
            match = _CACHED.match(path)
            if stamp is not None and match is not None and stamp.header[4] & 1:
                checked.add(match["directory"] + match["stem"] + b".py")
        return checked

    def facts(self) -> Iterator[FactRow]:
        """Yield the facts of all ELF files and modules."""
        digests = dict.fromkeys(entry.digest for entry in self._files() if entry.digest is not None)
        for digest, encoded in sorted(self._store.facts("elf", elf.VERSION, digests).items()):
            yield FactRow("elf", elf.VERSION, digest, encoded)
        if not self._all:
            for (kind, digest), encoded in self._rows.items():
                yield FactRow(kind, VERSIONS[kind], digest, encoded)


def _write(output: Path, kept: _Kept) -> int:
    """Write the file under another name and rename it when it is whole."""
    target = output.resolve()
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb", buffering=1 << 20) as file:
            size = snapshots.write(file, kept.manifest(), kept.indexes, kept.texts(), kept.facts())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{str(output)!r} can't be written: {reason}", "choose another file with -o") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return size


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
