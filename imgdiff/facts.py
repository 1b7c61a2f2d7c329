"""Facts of the files of one image, from the cache or made now, on all cores.

Facts depend on bytes alone, so they are kept by digest and shared by both images. What Python executes is the
``.pyc`` wherever its header fits the source beside it; then its facts are the module's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from imgdiff.errors import ImageError
from imgdiff.kinds import bytecode, elf, python, shell
from imgdiff.kinds.bytecode.facts import VERSION as BYTECODE_VERSION
from imgdiff.model import ElfFacts, FileEntry, ModuleFacts, Scope, ShellFacts, Texts, Tree, Unreadable
from imgdiff.store import Store
from imgdiff.surrogates import encodable

FactKind = Literal["python", "bytecode", "shell"]

VERSIONS: Mapping[FactKind, int] = {
    "python": 1000 * python.VERSION + sys.version_info.minor,  # what the host's grammar can't read is cached too
    "bytecode": BYTECODE_VERSION,
    "shell": shell.VERSION,
}
RULES = " ".join(f"{kind} {version}" for kind, version in VERSIONS.items())
"""The versions of the facts that are made here."""

_PYC_FLAGS_END = 8  # bytes of a .pyc's header before its time stamp or hash (PEP 552)
_BATCH_BYTES = 1_000_000  # of content handed to a worker at once
_WORTH_A_POOL = 4_000_000  # bytes of content below which starting processes costs more than it saves

_NOTHING: frozenset[str] = frozenset()

_encoder = msgspec.msgpack.Encoder()
_module_decoder = msgspec.msgpack.Decoder(ModuleFacts)
_shell_decoder = msgspec.msgpack.Decoder(ShellFacts)
_elf_decoder = msgspec.msgpack.Decoder(ElfFacts)


class Facts:
    """What both images share: the cache of facts, the facts decoded so far, and the worker processes."""

    def __init__(self, store: Store, jobs: int | None = None) -> None:
        self._store = store
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._pool: ProcessPoolExecutor | None = None
        self.encoded: dict[tuple[FactKind, bytes], bytes] = {}
        self.decoded: dict[tuple[FactKind, bytes], ModuleFacts | ShellFacts | Unreadable] = {}
        self.elves: dict[bytes, ElfFacts | Unreadable | None] = {}
        self._holders: dict[bytes, bytes] = {}  # key of facts -> digest of a file that has this code

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def held_by(self, key: bytes, digest: bytes) -> None:
        """Know that the facts of this key are those of the file of this digest."""
        self._holders[key] = digest

    def make(self, wanted: Iterable[tuple[FactKind, bytes]], texts: Texts) -> None:
        """Have the facts of these (kind, key) ready: from the cache, else made now and cached. A key is the digest of
        the file, unless ``held_by`` named another."""
        missing: dict[FactKind, list[bytes]] = {}
        for kind, digest in dict.fromkeys(wanted):
            if (kind, digest) not in self.encoded and (kind, digest) not in self.decoded:
                missing.setdefault(kind, []).append(digest)
        work: list[tuple[FactKind, bytes, bytes]] = []
        for kind, digests in missing.items():
            cached = self._store.facts(kind, VERSIONS[kind], digests)
            for digest in digests:
                if digest in cached:
                    self.encoded[kind, digest] = cached[digest]
                else:
                    content = texts.get(self._holders.get(digest, digest))
                    if content is None:
                        self._borrow(kind, digest)
                    else:
                        work.append((kind, digest, content))
        made: dict[FactKind, dict[bytes, bytes]] = {}
        for kind, digest, encoded in self._extract(work):
            self.encoded[kind, digest] = encoded
            made.setdefault(kind, {})[digest] = encoded
        for kind, rows in made.items():
            self._store.put_facts(kind, VERSIONS[kind], rows)

    def _borrow(self, kind: FactKind, digest: bytes) -> None:
        """Take the facts of a file whose content is not at hand from a snapshot."""
        lent = self._store.lent(kind, VERSIONS[kind], (digest,))
        if lent:
            with _lender():
                self.decoded[kind, digest] = decode(kind, lent[digest])
        else:
            self.decoded[kind, digest] = Unreadable("its content was not kept by the indexing pass")

    def _extract(self, work: Sequence[tuple[FactKind, bytes, bytes]]) -> Iterator[tuple[FactKind, bytes, bytes]]:
        total = sum(len(content) for _, _, content in work)
        if self._jobs == 1 or (self._pool is None and total < _WORTH_A_POOL):
            yield from extract_batch(work)
            return
        if self._pool is None:
            # Not fork: the layers' reading threads and sqlite may be alive in this process.
            self._pool = ProcessPoolExecutor(self._jobs, mp_context=get_context("forkserver"), initializer=_begin)
        for batch in self._pool.map(extract_batch, list(_batches(work))):
            yield from batch

    def get(self, kind: FactKind, digest: bytes, texts: Texts) -> ModuleFacts | ShellFacts | Unreadable:
        """Return the facts of one file."""
        found = self.decoded.get((kind, digest))
        if found is not None:
            return found
        if (kind, digest) not in self.encoded:
            self.make([(kind, digest)], texts)
        if (kind, digest) not in self.decoded:
            self.decoded[kind, digest] = decode(kind, self.encoded.pop((kind, digest)))
        return self.decoded[kind, digest]

    def elf(self, digests: Iterable[bytes]) -> None:
        """Have the facts of these files ready, which the indexing pass made where a file is an ELF file."""
        missing = [digest for digest in dict.fromkeys(digests) if digest not in self.elves]
        for digest, encoded in self._store.facts("elf", elf.VERSION, missing).items():
            self.elves[digest] = decode_elf(encoded)
        with _lender():
            left = [digest for digest in missing if digest not in self.elves]
            for digest, encoded in self._store.lent("elf", elf.VERSION, left).items():
                self.elves[digest] = decode_elf(encoded)


@contextlib.contextmanager
def _lender() -> Iterator[None]:
    """Facts of a snapshot come from outside: they can be anything."""
    try:
        yield
    except (msgspec.MsgspecError, RecursionError, IndexError) as error:
        raise ImageError("a snapshot holds facts that are none", "make the snapshot again") from error


def _begin() -> None:
    """Set a worker up: what the terminal sends to every process (Ctrl-C, and its own end) is left to the one that
    started it, and where that one is gone, however it ended, so is the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent_process(),), name="imgdiff-parent", daemon=True).start()


def _end_with(parent: BaseProcess | None) -> None:
    # The pool's own queue tells no end: each worker holds both ends of it, and would wait there for ever.
    assert parent is not None
    parent.join()
    os._exit(1)


def _batches(
    work: Sequence[tuple[FactKind, bytes, bytes]],
) -> Iterator[list[tuple[FactKind, bytes, bytes]]]:
    batch: list[tuple[FactKind, bytes, bytes]] = []
    size = 0
    for item in work:
        batch.append(item)
        size += len(item[2])
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def extract_batch(work: Sequence[tuple[FactKind, bytes, bytes]]) -> list[tuple[FactKind, bytes, bytes]]:
    """Return the encoded facts of some files; runs in a worker process. A file without facts encodes its reason."""
    return [(kind, digest, _encode(_extract(kind, content))) for kind, digest, content in work]


def _extract(kind: FactKind, content: bytes) -> ModuleFacts | ShellFacts | Unreadable:
    if kind == "bytecode":
        return bytecode.facts(content)
    if kind == "shell":
        return shell.facts(content)
    return python.facts(content)


def _encode(facts: ModuleFacts | ShellFacts | Unreadable) -> bytes:
    # The first byte tells facts (F) from a reason (U): the structs themselves are untagged arrays.
    first = b"U" if isinstance(facts, Unreadable) else b"F"
    try:
        return first + _encoder.encode(facts)
    except UnicodeEncodeError:  # in a version or an exported name; strings and patterns have none
        return first + _encoder.encode(encodable(facts))


def decode(kind: FactKind, encoded: bytes) -> ModuleFacts | ShellFacts | Unreadable:
    """Return facts from their encoded form."""
    if encoded[:1] == b"U":
        return msgspec.msgpack.decode(encoded[1:], type=Unreadable)
    if kind == "shell":
        return _shell_decoder.decode(encoded[1:])
    found = _module_decoder.decode(encoded[1:])
    _share_empty(found.scopes)
    return found


def _share_empty(scopes: Iterable[Scope]) -> None:
    """Let all scopes have one empty set: the decoder makes each anew, in 216 bytes, and most sets are empty."""
    for scope in scopes:
        if not scope.names:
            force_setattr(scope, "names", _NOTHING)
        if not scope.strings:
            force_setattr(scope, "strings", _NOTHING)
        if not scope.patterns:
            force_setattr(scope, "patterns", _NOTHING)
        if not scope.numbers:
            force_setattr(scope, "numbers", _NOTHING)


def decode_elf(encoded: bytes) -> ElfFacts | Unreadable:
    """Return an ELF file's facts from the form that the indexing pass stores."""
    if encoded[0] & 0xF0 == 0x80:  # a map: a reason; facts are an array (msgpack's formats fixmap, fixarray)
        return msgspec.msgpack.decode(encoded, type=Unreadable)
    return _elf_decoder.decode(encoded)


class ImageFacts:
    """The facts of one image's files by path: a ``model.FactSource``."""

    def __init__(self, tree: Tree, texts: Texts, facts: Facts) -> None:
        self._tree, self._texts, self._facts = tree, texts, facts
        self._runs: dict[bytes, tuple[FileEntry | None, FileEntry | None]] = {}
        self._code_keys: dict[bytes, bytes] = {}

    def prefetch(self, paths: Iterable[bytes]) -> None:
        """Make the facts of these Python files in parallel: of what runs of each. A source whose ``.pyc`` runs is only
        read where that ``.pyc`` can't be."""
        self._facts.make((chosen for path in paths for chosen in self.chosen(path)[:1]), self._texts)

    def module(self, path: bytes) -> ModuleFacts | Unreadable:
        """Return the facts of a Python source, a sourceless ``.pyc`` or a script.

        Taken from the fitting ``.pyc``; where that can't be read, from the source, and the other way round.
        """
        problem: Unreadable | None = None
        for kind, digest in self.chosen(path):
            found = self._facts.get(kind, digest, self._texts)
            if isinstance(found, ModuleFacts):
                return found
            if isinstance(found, Unreadable) and problem is None:
                problem = found
        return problem or Unreadable("it is no readable file")

    def chosen(self, path: bytes) -> list[tuple[FactKind, bytes]]:
        """What to take facts from, best first."""
        source, compiled = self.sides(path)
        chosen: list[tuple[FactKind, bytes]] = []
        if compiled is not None and compiled.digest is not None:
            chosen.append(("bytecode", self._code_key(compiled.digest)))
        if source is not None and source.digest is not None:
            chosen.append(("python", source.digest))
        return chosen

    def _code_key(self, digest: bytes) -> bytes:
        """What the facts of a ``.pyc`` depend on: its code, the Python that compiled it and its flags, but not the time
        stamp, which differs in every build."""
        stamp = self._tree.stamps.get(digest)
        if stamp is None:
            return digest
        key = self._code_keys.get(digest)
        if key is None:
            key = hashlib.sha256(stamp.header[:_PYC_FLAGS_END] + stamp.body).digest()
            self._code_keys[digest] = key
            self._facts.held_by(key, digest)
        return key

    def sides(self, path: bytes) -> tuple[FileEntry | None, FileEntry | None]:
        """Return the source and the ``.pyc`` that Python would run instead of it (None where it does not fit)."""
        known = self._runs.get(path)
        if known is None:
            known = self._runs[path] = self._sides(path)
        return known

    def _sides(self, path: bytes) -> tuple[FileEntry | None, FileEntry | None]:
        source = self._tree.lookup(path)
        if source is None or source.type != "file":
            return None, None
        if path.endswith(b".pyc"):
            return None, source
        if not path.endswith(b".py"):
            return source, None
        directory, _, name = path.rpartition(b"/")
        prefix = name[: -len(b".py")] + b"."
        cache = directory + b"/__pycache__" if directory else b"__pycache__"
        for candidate in self._tree.children(cache):
            if candidate.startswith(prefix) and candidate.endswith(b".pyc") and b".opt-" not in candidate:
                compiled = self._tree.lookup(cache + b"/" + candidate)
                if compiled is not None and self._fits(compiled, source):
                    return source, compiled
        return source, None

    def _fits(self, compiled: FileEntry, source: FileEntry) -> bool:
        stamp = None if compiled.digest is None else self._tree.stamps.get(compiled.digest)
        if stamp is None:
            return False
        fits = bytecode.fits(stamp.header, source.mtime, source.size, None)
        if fits is None and source.digest is not None:  # a checked hash wants the source's content
            fits = bytecode.fits(stamp.header, source.mtime, source.size, self._texts.get(source.digest))
        return fits is True

    def runs(self, path: bytes) -> Literal["source", "bytecode"]:
        """Tell which of the two Python executes for this source (PEP 552)."""
        return "source" if self.sides(path)[1] is None else "bytecode"

    def elf(self, path: bytes) -> ElfFacts | Unreadable | None:
        """Return the facts of an ELF file, links followed; None if it is none."""
        entry = self._tree.lookup(path)
        if entry is None or entry.digest is None:
            return None
        if entry.digest not in self._facts.elves:
            self._facts.elf([entry.digest])
        return self._facts.elves.get(entry.digest)

    def shell(self, path: bytes) -> ShellFacts | Unreadable:
        """Return the facts of a shell script."""
        entry = self._tree.lookup(path)
        if entry is None or entry.digest is None:
            return Unreadable("it is no readable file")
        found = self._facts.get("shell", entry.digest, self._texts)
        assert not isinstance(found, ModuleFacts)
        return found

    def text(self, path: bytes) -> bytes | None:
        """Return the content of a kept file, links followed; None if there is none."""
        entry = self._tree.lookup(path)
        return None if entry is None or entry.digest is None else self._texts.get(entry.digest)
