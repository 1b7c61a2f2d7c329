"""All nouns, frozen, in the order of the flow: image, layer, tree, owner, facts, change, evidence, verdict, report.

Paths are bytes without a leading slash (``usr/bin/python3``); the root directory is ``b""``. File digests
are the 32 raw bytes of a SHA-256; OCI digests are ``algorithm:hex`` strings, as the OCI image spec writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Literal, Protocol, Self

import msgspec

Side = Literal["a", "b"]

# --------------------------------------------------------------------------------------------------------------------
# Images and layers
# --------------------------------------------------------------------------------------------------------------------


class Descriptor(msgspec.Struct, frozen=True):
    """What a manifest says of a blob (OCI image spec, "Content Descriptors"); ``size`` in bytes, -1 if not stated."""

    media_type: str
    digest: str
    size: int


class Layer(msgspec.Struct, frozen=True):
    """One layer of an image.

    ``open`` gives the blob as stored, from its first byte; each call opens it anew. ``diff_id`` is the digest of
    the uncompressed tar, from the config; None where nothing states it. ``directory`` is set instead for a plain
    root file system, which is walked and has no blob (``open`` then raises). ``remote`` is set where opening it moves
    bytes over a network: where two layers have one content, the other one is read. ``stream`` is set where the layer
    comes cheaply only with others, in an order that is not ours to choose; ``open`` then costs the whole stream.
    ``kept`` is set where there is no blob but the index that was made of it, in a snapshot (``open`` then raises).
    ``annotations`` are those of the manifest's descriptor. ``parts`` is set where a part of the blob can be asked for.
    """

    descriptor: Descriptor | None
    diff_id: str | None
    open: Callable[[], BinaryIO]
    directory: Path | None = None
    remote: bool = False
    stream: LayerStream | None = None
    kept: Callable[[], LayerIndex] | None = None
    annotations: Mapping[str, str] = {}
    parts: Callable[[], BlobParts] | None = None


class BlobParts(Protocol):
    """Parts of one blob as stored, over one connection. A context manager; for one thread."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the connection."""

    def open(self, offset: int, length: int) -> BinaryIO:
        """Return the ``length`` bytes (at least one) at ``offset`` as a stream, to be closed before the next is opened.

        Opening and reading raise RangeRefusedError where the place gives whole blobs only, BlobError where the blob is
        not there or has another size, ServiceError where it can't be reached.
        """


class LayerStream(Protocol):
    """Layers that come in one stream, as an engine saves its images: each is read as it passes, or not at all."""

    @property
    def key(self) -> Hashable:
        """What is equal for streams that can come as one."""

    @property
    def diff_ids(self) -> Collection[str]:
        """The diffIDs of the image's layers."""

    def read(self, wanted: Collection[str], others: Sequence[LayerStream]) -> Generator[Layer, None, None]:
        """Yield layers as they pass, of this stream and of ``others`` of its key, those known not to be wanted left
        out. ``wanted`` are diffIDs; the caller takes away what it has, and nothing is read once none is left.

        A layer without diffID may be one that is wanted: whoever reads it finds out. Each is to be read before the
        next is asked for; opening it once more costs another stream. Raises ServiceError where the engine fails.
        """

    def stop(self) -> None:
        """Give up: whoever waits for the stream gets an ImgdiffError at once. May be called by any thread."""


class Mount(msgspec.Struct, frozen=True):
    """A place in a container that holds something else than the container's own files; ``what`` in a few words."""

    path: bytes
    what: str


class Transfer(Protocol):
    """What was moved over a network for one image. Its methods may be called by any thread."""

    def fetched(self) -> int:
        """Return how many bytes came so far: manifests, config and layers, each as often as it was read."""

    def saved(self) -> int:
        """Return how many bytes the layers have that were not read at all so far."""

    def stop(self) -> None:
        """Give up: whoever waits for the network gets an ImgdiffError at once, as does each later read."""


class FactRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Encoded facts of one file: their kind and version, and the file's SHA-256."""

    kind: str
    version: int
    digest: bytes
    encoded: bytes


class ImageSnapshot(Protocol):
    """What was kept of an image in place of its layers. Its methods raise ImageError where it is damaged."""

    key: bytes
    """Equal for equal snapshots."""
    rules: str
    """The versions of all that was kept and made."""
    made_by: str
    """The version of imgdiff that made it."""

    def texts(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the contents that were kept, each behind its SHA-256."""

    def facts(self) -> Iterator[FactRow]:
        """Yield the facts that were kept."""


class ImageConfig(msgspec.Struct, frozen=True):
    """The parts of an OCI image config that say what runs (OCI image spec, "config"), and the whole as parsed."""

    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    user: str = ""
    working_dir: str = ""
    labels: dict[str, str] = {}
    raw: dict[str, Any] = {}


WHEEL_SOURCE = "wheel"
"""The ``source`` of a wheel."""

WHEEL_TOPS: Mapping[str, str] = {
    "purelib": "site-packages",
    "platlib": "site-packages",
    "scripts": "bin",
    "headers": "include",
    "data": "data",
}
"""Where a wheel's layer has the files of each scheme of its ``.data`` directory."""


class Wheel(msgspec.Struct, frozen=True):
    """A wheel (PyPA "Binary distribution format") that stands for one side, as its METADATA names it.

    ``name`` is normalised (PEP 503), ``info`` the name of its dist-info directory. ``digest`` (``sha256:HEX``) and
    ``size`` in bytes are those of the file. The image's one layer has its files below the directories of
    :data:`WHEEL_TOPS`, what is in no ``.data`` directory below ``site-packages``: none is a path of the image.
    """

    name: str
    version: str
    info: bytes
    digest: str
    size: int


class Image(msgspec.Struct, frozen=True):
    """One image as its source describes it. ``config`` is None where the source has none (a root file system),
    ``transfer`` where no byte comes over a network.

    ``contents`` reads files of the merged tree again, by path with their SHA-256, without reading layers: it yields
    those that it has with this content, as seekable temporary files, each open until the next is asked for. ``whole``
    gives the same image as one merged layer, for when its layers turn out not to be there. ``contained`` is set where
    the tree is a container's, with what its engine makes in each (``imgdiff.runtime``), and ``mounts`` is what lies
    over it. ``caveats`` are sentences for the report; "{side}" in them is replaced by a or b. ``snapshot`` is set where
    the image is read from one, ``wheel`` where it is no image but a wheel.
    """

    reference: str
    source: str
    manifest_digest: str | None
    config_digest: str | None
    platform: str
    config: ImageConfig | None
    layers: tuple[Layer, ...]
    transfer: Transfer | None = None
    contents: Callable[[Mapping[bytes, bytes]], Iterator[tuple[bytes, BinaryIO]]] | None = None
    whole: Callable[[], Image] | None = None
    contained: bool = False
    mounts: tuple[Mount, ...] = ()
    caveats: tuple[str, ...] = ()
    snapshot: ImageSnapshot | None = None
    wheel: Wheel | None = None


FileType = Literal["file", "dir", "symlink", "hardlink", "char", "block", "fifo"]


class FileEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One member of a layer, or one name of the merged file system.

    ``mtime`` is in nanoseconds since the epoch. ``digest`` is the SHA-256 of a regular file's content (of the
    expanded content for sparse members) and None for all else. ``link_target`` is a symlink's text or, in a layer,
    a hard link's target path. In a :class:`Tree` no entry has type ``hardlink``: each name carries its inode's
    content. ``mode`` holds the permission bits only (``0o7777``). ``size`` is in bytes and 0 for all but files.
    ``device`` is the (major, minor) of a char or block device, else None.
    """

    path: bytes
    type: FileType
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int
    digest: bytes | None = None
    link_target: bytes | None = None
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    device: tuple[int, int] | None = None


class PycStamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Header of a ``.pyc`` (PEP 552, 16 bytes) and the SHA-256 of the marshalled body behind it."""

    header: bytes
    body: bytes


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a file's content lies in a blob, compressed: ``length`` bytes at ``offset`` hold its ``size`` bytes, behind
    ``inner`` bytes of something else."""

    offset: int
    length: int
    inner: int
    size: int


class BelievedContents(msgspec.Struct, frozen=True):
    """A layer's table of contents that was believed: its ``digest``, as the manifest states it, and the ``blob``'s.

    ``places`` has where each content lies in that blob, by its SHA-256. ``hashed`` counts the regular files whose
    content was read and held against the table (of several copies one), ``unhashed`` those of which just the table
    tells.
    """

    digest: str
    blob: str
    places: dict[bytes, Place]
    hashed: int
    unhashed: int


class LayerIndex(msgspec.Struct, frozen=True):
    """What one layer holds, in archive order, duplicates included (the last wins, but a hard link in between keeps
    the earlier inode).

    ``whiteouts`` are the paths that the layer hides in lower layers, ``opaques`` the directories whose lower
    content it hides. ``stamps`` has the :class:`PycStamp` of each ``.pyc`` by its digest. ``blindspots`` is what
    could not be read (names leading out of the root among them). ``size`` is the bytes of the uncompressed tar (0
    where it was not read). ``believed`` is set where the layer was not read to its end: then nothing of it was held
    against its diffID.
    """

    diff_id: str
    entries: tuple[FileEntry, ...]
    whiteouts: tuple[bytes, ...] = ()
    opaques: tuple[bytes, ...] = ()
    stamps: dict[bytes, PycStamp] = {}
    blindspots: tuple[Blindspot, ...] = ()
    size: int = 0
    believed: BelievedContents | None = None


ENTRY: Final = "entry"  # what the blindspot is called of an entry that leads to nothing that could be traced


class Blindspot(msgspec.Struct, frozen=True):
    """Something that could not be read, parsed or resolved, and the roles that it blocks.

    ``what`` names the thing in a few words, ``reason`` says why in a sentence. ``roles`` is empty until the trace
    has said who reaches it; ``image`` is None where it concerns both.
    """

    what: str
    reason: str
    path: bytes | None = None
    image: Side | None = None
    roles: tuple[str, ...] = ()


class Texts(Protocol):
    """Content of small files by digest: what the indexing pass kept."""

    def get(self, digest: bytes) -> bytes | None:
        """Return the content with this SHA-256, or None if it was not kept."""


# --------------------------------------------------------------------------------------------------------------------
# The merged file system
# --------------------------------------------------------------------------------------------------------------------

MAX_LINKS = 40  # as Linux: path_resolution(7)


class Tree:
    """The merged file system of an image: ``entries`` by path, and for each path the layer (0 = base) it came from.

    ``hardlinks`` maps each name of a file with several names to the group's first name (by bytes). ``origins`` has
    (layer, member name) where a file's content is not in its path's own layer under its own name; see :meth:`origin`.
    """

    __slots__ = ("_children", "_resolved", "blindspots", "entries", "hardlinks", "layers", "origins", "stamps")

    def __init__(
        self,
        entries: dict[bytes, FileEntry],
        layers: Mapping[bytes, int] | None = None,
        hardlinks: Mapping[bytes, bytes] | None = None,
        stamps: Mapping[bytes, PycStamp] | None = None,
        blindspots: tuple[Blindspot, ...] = (),
        origins: Mapping[bytes, tuple[int, bytes]] | None = None,
    ) -> None:
        self.entries = entries
        self.layers: Mapping[bytes, int] = layers or {}
        self.hardlinks: Mapping[bytes, bytes] = hardlinks or {}
        self.stamps: Mapping[bytes, PycStamp] = stamps or {}
        self.blindspots = blindspots
        self.origins: Mapping[bytes, tuple[int, bytes]] = origins or {}
        self._children: dict[bytes, list[bytes]] | None = None
        self._resolved: dict[bytes, bytes | None] = {b"": b""}

    def __contains__(self, path: bytes) -> bool:
        return path == b"" or path in self.entries

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, path: bytes) -> FileEntry | None:
        """Return the entry that stands at exactly this path (links are not followed)."""
        return self.entries.get(path)

    def origin(self, path: bytes) -> tuple[int, bytes]:
        """Return the layer that holds the content of the file at this path, and the name of the member there: another
        name than the path for a hard link, or where a parent was a link when the layer was applied. Where that layer
        holds several members of the name, the one with the entry's digest is meant."""
        return self.origins.get(path) or (self.layers.get(path, 0), path)

    def children(self, path: bytes) -> list[bytes]:
        """Return the names (not paths) in the directory at this path, sorted by bytes; empty if it is none."""
        if self._children is None:
            children: dict[bytes, list[bytes]] = {}
            for entry_path in self.entries:
                parent, _, name = entry_path.rpartition(b"/")
                children.setdefault(parent, []).append(name)
            for names in children.values():
                names.sort()
            self._children = children
        return self._children.get(path, [])

    def resolve(self, path: bytes, base: bytes = b"") -> bytes | None:
        """Return the canonical path that a process would reach under this name, or None if it dangles or loops.

        ``path`` may start with a slash; a relative one starts at the directory ``base``. Symlinks are followed
        everywhere, the last component too, inside the root (path_resolution(7)).
        """
        if path.startswith(b"/"):
            base = b""
        full = b"/".join(part for part in (base, path) if part)
        return self._walk(full, [MAX_LINKS])

    def _walk(self, path: bytes, budget: list[int]) -> bytes | None:
        known = self._resolved.get(path, b"?")
        if known != b"?":
            return known
        start = b""
        for name in path.split(b"/"):
            if name in (b"", b"."):
                continue
            if name == b"..":
                start = start.rpartition(b"/")[0]
                continue
            here = start + b"/" + name if start else name
            entry = self.entries.get(here)
            if entry is None:
                return None
            if entry.type == "symlink":
                budget[0] -= 1
                if budget[0] < 0 or not entry.link_target:
                    return None
                target = entry.link_target
                joined = target if target.startswith(b"/") else start + b"/" + target
                followed = self._walk(joined, budget)
                if followed is None:
                    return None
                start = followed
            else:
                start = here
        self._resolved[path] = start
        return start

    def lookup(self, path: bytes, base: bytes = b"") -> FileEntry | None:
        """Return the entry that a process would reach under this name, links followed; None for the root or nothing."""
        found = self.resolve(path, base)
        return None if found is None else self.entries.get(found)

    def is_dir(self, path: bytes, base: bytes = b"") -> bool:
        """Tell whether a process would find a directory under this name."""
        found = self.resolve(path, base)
        if found is None:
            return False
        return found == b"" or self.entries[found].type == "dir"

    def walk(self, path: bytes) -> Iterator[FileEntry]:
        """Yield every entry below the directory at this canonical path, depth first in the order of bytes."""
        stack = [path + b"/" + name if path else name for name in reversed(self.children(path))]
        while stack:
            here = stack.pop()
            entry = self.entries[here]
            yield entry
            if entry.type == "dir":
                stack.extend(here + b"/" + name for name in reversed(self.children(here)))


# --------------------------------------------------------------------------------------------------------------------
# Owners
# --------------------------------------------------------------------------------------------------------------------

OwnerKind = Literal["wheel", "egg", "editable", "dpkg", "rpm", "conda", "prefix", "stdlib", "unowned"]
Basis = Literal[
    "record",  # a row of RECORD or installed-files.txt
    "editable",  # below the project directory of an editable install
    "conda-meta",
    "dpkg-list",
    "rpm-header",
    "prefix",  # a known prefix (/opt/intel/oneapi/<component>/<version>, /usr/local/cuda*, /opt/rocm*)
    "stdlib",  # the standard library of an interpreter
    "enclosing",  # in the import package or namespace of a distribution, but not in its RECORD
    "bytecode",  # the .pyc of an owned source
    "top",  # nobody's: grouped by top directory
]


class Owner(msgspec.Struct, frozen=True):
    """Whose a file can be. ``(kind, name, root)`` is unique in an image.

    ``name`` is normalised (PEP 503) for Python distributions and as the database has it for all else; for
    ``unowned`` it is ``unowned:/<top directory>``. ``root`` is the directory that relative paths start from (for a
    wheel its site-packages; ``b""`` for dpkg and rpm).
    """

    kind: OwnerKind
    name: str
    version: str | None
    root: bytes


class Claim(msgspec.Struct, frozen=True):
    """One owner's claim to one path: ``owner`` is an index into ``Attribution.owners``, ``relative`` is the path as
    the owner itself spells it, with the versioned ``X-1.dist-info`` folder written ``X.dist-info`` (so that two
    versions pair)."""

    owner: int
    basis: Basis
    relative: bytes


class Distribution(msgspec.Struct, frozen=True):
    """A Python distribution of one environment (PyPA "Recording installed projects").

    ``site`` is its site-packages or dist-packages, ``info`` its dist-info or egg-info path. ``packages`` are the
    top-level import names it provides. ``entry_points`` are (group, name, value). ``editable`` is the project
    directory of an editable install. ``recorded`` are the rows of RECORD as (canonical path, path as RECORD spells
    it, sha256 or None).
    """

    name: str
    version: str | None
    site: bytes
    info: bytes
    owner: int
    packages: tuple[str, ...] = ()
    entry_points: tuple[tuple[str, str, str], ...] = ()
    editable: bytes | None = None
    recorded: tuple[tuple[bytes, bytes, bytes | None], ...] = ()


IntegrityCode = Literal[
    "record-mismatch",  # bytes differ from the image's own RECORD
    "record-missing",  # RECORD lists a file that the image lacks
    "record-unreadable",
    "dpkg-mismatch",  # bytes differ from dpkg's md5sums
    "dpkg-missing",
    "rpm-mismatch",  # bytes differ from the SHA-256 in the package's header
    "rpm-missing",
    "two-distributions",  # two distributions claim one import package's files
    "duplicate-distribution",  # two dist-infos of one name in one site-packages
    "orphan-dist-info",  # a dist-info whose files are gone
    "empty-directory",  # an artifact directory that is empty
    "stored-ld-cache",  # the stored ld.so.cache resolves a needed SONAME otherwise than a rebuilt one
]


class Integrity(msgspec.Struct, frozen=True):
    """Something that does not fit inside one image."""

    image: Side
    code: IntegrityCode
    owner: str | None
    path: bytes | None
    message: str


class Environment(msgspec.Struct, frozen=True):
    """One Python environment of an image: an interpreter and where it looks.

    ``prefix`` is sys.prefix, ``base`` sys.base_prefix (they differ in a venv, PEP 405), ``executable`` the canonical
    path of the binary, ``version`` the minor ("3.12"), ``stdlib`` the canonical directory of the standard library,
    ``sites`` the site-packages and dist-packages in the order of sys.path, ``system_site`` whether a venv sees its
    base's sites too (they are in ``sites`` then). ``user_sites`` are the ``~/.local`` site-packages of this minor in
    any home directory: which of them is on sys.path, before ``sites``, depends on who runs it.
    """

    prefix: bytes
    base: bytes
    executable: bytes | None
    version: str
    stdlib: bytes | None
    sites: tuple[bytes, ...]
    system_site: bool = True
    user_sites: tuple[bytes, ...] = ()


class Attribution(msgspec.Struct, frozen=True):
    """Whose everything is in one image. Total: every regular file and symlink of the tree has a claim."""

    owners: tuple[Owner, ...]
    claims: dict[bytes, tuple[Claim, ...]]
    distributions: tuple[Distribution, ...]
    environments: tuple[Environment, ...]
    integrity: tuple[Integrity, ...] = ()
    blindspots: tuple[Blindspot, ...] = ()

    def owners_of(self, path: bytes) -> tuple[Owner, ...]:
        """Return the owners of a path, sorted by name then kind then root."""
        owners = {self.owners[claim.owner] for claim in self.claims.get(path, ())}
        return tuple(sorted(owners, key=lambda owner: (owner.name, owner.kind, owner.root)))


# --------------------------------------------------------------------------------------------------------------------
# Facts: what one file refers to, from its bytes alone
# --------------------------------------------------------------------------------------------------------------------

# A folded string is a Pattern: literal text in which these characters stand for what is known only at run time.
HOLE = "\x00"  # any text
HOLE_NAME = "\x01"  # the module's own __name__
HOLE_PACKAGE = "\x02"  # the module's own __package__ (or __spec__.parent)
HOLE_FILE = "\x03"  # the module's own __file__, absolute
HOLE_DIR = "\x04"  # the directory of the module's own __file__, absolute
Pattern = str


class Import(msgspec.Struct, frozen=True, array_like=True):
    """One import statement's target. ``import a.b as c`` -> module "a.b", no names. ``from ..a import x, y`` ->
    module "a", names ("x", "y"), level 2. ``from . import *`` -> module "", names ("*",), level 1.

    ``conditional``: inside a try, with, loop or a branch whose test does not fold to a constant, or behind a return,
    raise or assert outside of an except block; such an edge may not run. The else of a try is none, nor is that of a
    loop without break. Imports in code that a string holds (``exec``, ``-c``) are conditional.
    """

    module: str
    names: tuple[str, ...]
    level: int
    line: int
    conditional: bool


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call that can load code or a library, run a program, or ask for metadata, by the last part or two of the
    callee's dotted name (``import_module``, ``importlib.import_module`` -> callee "import_module"), import renames and
    single aliases resolved. ``imgdiff/kinds/_callees.py`` is the table; two parts are "path.append", "path.insert",
    "path.extend" (of sys.path) and "cpp_extension.load". Assigning to sys.path, to a part of it, or adding in place is
    a call "path.assign" of what is assigned.

    ``arguments`` are the folded positional arguments, HOLE where one does not fold to text; a starred one that does
    not fold is the last, as HOLE. A method of a folded path has the path first. Keyword arguments are in ``keywords``
    as (name, pattern). The elements of a first argument (or ``args=``) that is a list or tuple are in ``sequence``
    (``subprocess.run([sys.executable, "-m", "x"])`` -> (HOLE, "-m", "x")). What reads a path is recorded only where it
    has literal text, ``getattr`` and its kin only where the name is a pattern with literal text. ``line`` is that of
    the callee's last part, or of the call's start in bytecode before 3.11.

    What folds: constants, f-strings, ``+``, ``%``, ``.format``, ``.join`` of a list, ``os.path`` and ``pathlib``
    chains, ``__name__``, ``__package__``, ``__file__``, and names that the module or function binds exactly once.
    """

    callee: str
    arguments: tuple[Pattern, ...]
    line: int
    conditional: bool = False
    keywords: tuple[tuple[str, Pattern], ...] = ()
    sequence: tuple[Pattern, ...] = ()


class Scope(msgspec.Struct, frozen=True, array_like=True):
    """What one code object does when it runs. Class bodies, lambdas and comprehensions belong to the scope that
    holds them (a class body runs with its module); functions are scopes of their own.

    ``qualname`` is "" for the module, else as Python's ``__qualname__`` ("C.method", "f.<locals>.g"); "<main>" is
    the scope of what stands in a module's ``if __name__ == "__main__":`` blocks. ``line`` is the first decorator's
    where there is one. Code that no path reaches is in no scope.

    ``names`` are the identifiers that the body loads (global, builtin and attribute names, the names of from-imports,
    constant names given to ``getattr``; not names that are local to a function), private ones as the compiler writes
    them (``_C__x``), and all names in annotations, evaluated or text. AssertionError is never one: asserts load it.

    ``strings`` are the string constants that the body loads, elements of constant tuples and dict keys included;
    docstrings, annotations that are text, format specs, names of imports and keywords, and strings without any letter
    or digit excluded. A template of ``%`` gives its literal pieces. A string longer than 1,000 characters gives its
    tokens: runs of two to 4,096 letters, digits and ``_./+:@%~-``.

    ``patterns`` are what folding makes with a hole and some telling text (f-strings, ``%``, ``.format``, ``+``,
    joins and paths), the largest only. Bytecode from 3.10 on may know one better than its source (the compiler copies
    a short end of a function for each branch). ``decorators`` are dotted names, "?" for calls and all else.

    ``numbers`` are what the body compares with, as tuples of integers from 0 to 999,999,999: an int (``x.major > 1``
    gives (1,)), a float with digits on both sides of its point (1.6 gives (1, 6)), a tuple or list of up to six ints
    (``x >= (2, 1)``), and each such element of a tuple, list or constant set behind ``in``. They are constants as the
    compiler folds them, or names that the module or function binds once to one; a number in a ``case`` counts, the
    lengths that patterns ask for and what ``is`` compares do not.

    ``reflects`` are the dotted names (as calls have them: relative imports begin with dots, HOLE_NAME is the module
    itself) of what the body looks through by names that do not fold: ``vars(x)``, ``x.__dict__``, ``dir(x)``,
    ``inspect.getmembers(x)``, ``getattr(x, name)``, ``globals()``. "?self" and "?cls" are a method's own object and
    class, "?" is anything else that does not fold. ``handed`` are the dotted names of what the module imports and its
    code hands on as it is, alone or in a list, tuple or dict: it may be a module. It is given to a function (but for
    those that look through nothing, ``_callees.LOOK_THROUGH_NOTHING``), returned, gone through, or kept in an
    attribute, an item or a table of the module. Both are sorted.
    """

    qualname: str
    line: int
    imports: tuple[Import, ...] = ()
    names: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    patterns: frozenset[Pattern] = frozenset()
    calls: tuple[Call, ...] = ()
    decorators: tuple[str, ...] = ()
    numbers: frozenset[tuple[int, ...]] = frozenset()
    reflects: tuple[str, ...] = ()
    handed: tuple[str, ...] = ()


class ModuleFacts(msgspec.Struct, frozen=True, array_like=True):
    """What one Python module refers to, per function, the same from its source and from its bytecode.

    ``scopes[0]`` is the module body (with class bodies), "<main>" follows where there is one, then the functions by
    line. What stands under ``if TYPE_CHECKING:`` is in none of them (its else is), unless the module binds that name
    to anything but False. ``binds`` are the names that the module body binds, ``exports`` the strings of ``__all__``
    where it is a literal. ``aliases`` are module-level ``name = other`` bindings and from-import renames as
    (name, dotted origin). ``lazy`` are the names that a module-level ``__getattr__`` or a literal table can give
    (``_import_structure``, a dict of name -> module), as (name, module as written). ``versions`` are version
    literals: (name, text, line) of assignments to __version__ and its kin. ``binds_only``: the body does nothing
    but bind names (imports, defs, constants), so that running it again changes nothing.
    """

    scopes: tuple[Scope, ...]
    binds: frozenset[str] = frozenset()
    exports: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    lazy: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str, int], ...] = ()
    binds_only: bool = False
    bases: tuple[tuple[str, str], ...] = ()


class ElfFacts(msgspec.Struct, frozen=True, array_like=True):
    """What one ELF file refers to (gABI, "Dynamic Section").

    ``strings`` are the printable runs of its read-only data that hold a "/", a "." or a "%" (paths, file names,
    SONAMEs to dlopen), ``identifiers`` those that are Python identifiers, kept only where ``python`` (it uses the
    Python C API). ``symbols`` are undefined dynamic symbols that matter to the trace ("dlopen", "execve",
    "system", "fopen", ...). ``machine`` is e_machine, ``bits`` 32 or 64.
    """

    machine: int
    bits: int
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    interpreter: str | None = None
    build_id: str | None = None
    strings: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    python: bool = False
    nodeflib: bool = False


class ShellFacts(msgspec.Struct, frozen=True, array_like=True):
    """What one shell script refers to: files it sources, programs it runs with their arguments (each command as the
    words that fold, HOLE for the rest), variables it sets (name, pattern), and all its literal words.

    ``assigned`` has, for each of ``assigns``, the line where it first stands and whether its command runs in any case
    (no branch, loop, function, nothing behind ``&&`` or ``||``); where the command can set several values, each of them
    is an assign of that line. ``sourced`` has for each of ``sources`` whether it is sourced in any case.
    """

    interpreter: tuple[str, ...] = ()
    sources: tuple[tuple[Pattern, int], ...] = ()
    commands: tuple[tuple[tuple[Pattern, ...], int], ...] = ()
    assigns: tuple[tuple[str, Pattern], ...] = ()
    strings: frozenset[str] = frozenset()
    assigned: tuple[tuple[int, bool], ...] = ()
    sourced: tuple[bool, ...] = ()


class Unreadable(msgspec.Struct, frozen=True):
    """Facts that could not be had, and why (one sentence)."""

    reason: str


class FactSource(Protocol):
    """Facts of files of one image, from the cache or made now. All are pure functions of a file's bytes."""

    def prefetch(self, paths: Iterable[bytes]) -> None:
        """Make the facts of these files in parallel; asking for them afterwards is cheap."""

    def module(self, path: bytes) -> ModuleFacts | Unreadable:
        """Return the facts of a Python source (taken from its fitting ``.pyc`` where that is cheaper or the source
        can't be parsed), a sourceless ``.pyc``, or an extensionless script."""

    def elf(self, path: bytes) -> ElfFacts | Unreadable | None:
        """Return the facts of an ELF file; None if it is no ELF file."""

    def shell(self, path: bytes) -> ShellFacts | Unreadable:
        """Return the facts of a shell script."""

    def text(self, path: bytes) -> bytes | None:
        """Return the content of a small file that the indexing pass kept, links followed; None if not kept."""

    def runs(self, path: bytes) -> Literal["source", "bytecode"]:
        """Tell which of the two Python executes for this source: its ``.pyc`` where that one fits (PEP 552)."""


# --------------------------------------------------------------------------------------------------------------------
# Changes
# --------------------------------------------------------------------------------------------------------------------

Status = Literal["modified", "added", "removed", "retyped", "moved", "attributes"]
Effect = Literal["code", "data", "metadata", "noise"]


class Delta(msgspec.Struct, frozen=True):
    """What in a changed file differs: its effect, the sentence that proves it, and details for the report (JSON
    values only; keys are stable words). ``settle`` says what would settle an open question, if there is one."""

    effect: Effect
    reason: str
    detail: dict[str, Any] = {}
    settle: str | None = None


class Change(msgspec.Struct, frozen=True):
    """One differing file or symlink (or a directory that matters). A side that lacks it is None."""

    path_a: bytes | None
    path_b: bytes | None
    status: Status
    a: FileEntry | None
    b: FileEntry | None
    owners_a: tuple[Owner, ...] = ()
    owners_b: tuple[Owner, ...] = ()
    delta: Delta | None = None

    @property
    def path(self) -> bytes:
        """The path that sorts and names it: b's, else a's."""
        path = self.path_b if self.path_b is not None else self.path_a
        assert path is not None
        return path


class OwnerTally(msgspec.Struct, frozen=True):
    """Counts of one owner over both images. ``a`` and ``b`` are the owner in each (None where it is absent)."""

    a: Owner | None
    b: Owner | None
    files_a: int
    files_b: int
    identical: int
    modified: int
    added: int
    removed: int
    retyped: int
    moved: int
    attributes: int
    root_a: str
    root_b: str


class Comparison(msgspec.Struct, frozen=True):
    """Two trees held against each other. ``mtime_only`` counts files that differ in nothing but mtime; ``touched`` are
    the (a, b) paths of the Python sources among them."""

    changes: tuple[Change, ...]
    tallies: tuple[OwnerTally, ...]
    mtime_only: int
    blindspots: tuple[Blindspot, ...] = ()
    touched: tuple[tuple[bytes, bytes], ...] = ()


# --------------------------------------------------------------------------------------------------------------------
# Evidence
# --------------------------------------------------------------------------------------------------------------------

Level = Literal["recorded", "eager", "deferred", "unknown", "dormant", "unreached", "outside"]
LEVELS: tuple[Level, ...] = ("recorded", "eager", "deferred", "unknown", "dormant", "unreached", "outside")
How = Literal["executed", "mapped", "opened"]
Edge = Literal[
    "root",  # a root of the role (profile, entry or implicit); `why` text in Hop.function
    "import",  # an import statement at module level
    "parent",  # the __init__ of a parent package
    "deferred",  # an import inside a function that reached code refers to
    "lazy",  # a lazy attribute or a string table
    "dynamic",  # importlib, runpy, exec, spec_from_file_location
    "string",  # named in a string constant
    "entry-point",
    "pth",  # a line of a .pth, sitecustomize
    "main",  # the entry's main module, imported again as __mp_main__
    "needed",  # DT_NEEDED
    "interpreter",  # PT_INTERP, a shebang
    "preload",  # LD_PRELOAD, /etc/ld.so.preload
    "dlopen",
    "program",  # started by name
    "source",  # sourced by a shell script
    "data",  # data of a reached owner, or in a directory that the profile says is read
    "named",  # named by a string, a link, ENV or argv
    "beside",  # in or below the directory of a reached library
    "dormant",  # inside a function that nothing reached refers to
    "recorded",
]


class Hop(msgspec.Struct, frozen=True):
    """One step of a chain: where we are (module or path), the line and function that lead on, and how we got here."""

    module: str | None
    path: bytes
    line: int | None
    function: str | None
    edge: Edge


class Evidence(msgspec.Struct, frozen=True):
    """How strongly one role is known to load one file. ``chain`` is the shortest proof, root first.

    ``settled`` is set where a recording shows that the role did not load it although its static level leaves that
    open, and says why; it then bears on nothing. Where ``functions_only``, that holds for what the bodies of its
    functions say alone: the file was in memory by fork, and none of its functions ran. ``disputed`` is set where a
    recording does not show what must run by static means: one of the two is wrong.
    """

    level: Level
    how: How | None = None
    chain: tuple[Hop, ...] = ()
    note: str | None = None
    settled: str | None = None
    disputed: str | None = None
    functions_only: bool = False


class Resolved(msgspec.Struct, frozen=True):
    """What a module or library name resolves to: the canonical path, its digest, and the path relative to its first
    owner with that owner's identity, so that a pure move compares as the same."""

    path: bytes
    digest: bytes | None
    owner: tuple[str, str] | None = None  # (kind, name)
    relative: bytes | None = None


class RoleTrace(Protocol):
    """What the static trace (or a recording) says of one role in one image."""

    @property
    def role(self) -> str:
        """The role's name."""

    @property
    def roots(self) -> tuple[str, ...]:
        """The modules and files that the closure starts from, for the report."""

    @property
    def modules(self) -> Mapping[str, tuple[Level, Resolved]]:
        """Every module name that is reached at ``eager`` or ``deferred``, and what it resolves to."""

    @property
    def libraries(self) -> Mapping[str, tuple[Level, Resolved]]:
        """Every library or program name that is reached at ``eager`` or ``deferred``, and what it resolves to."""

    def evidence(self, path: bytes) -> Evidence:
        """Return the strongest level that holds for a path of this image (of any type, present in the tree)."""

    def absent(self, path: bytes, like: FileEntry) -> Evidence:
        """Return the level that a file *would* have here if it stood at this path: used for the side that lacks it."""

    def placed(self, path: bytes, other: bytes) -> Evidence | None:
        """Return the evidence that something reached names this absolute path or a directory above it, and not
        ``other`` just as well: a file that moved from one to the other is not found as before. None if nothing
        does."""

    def asks_version(self, distribution: str) -> tuple[Hop, ...]:
        """Return the places in reached code (path, line) that ask for a distribution's version (importlib.metadata,
        ``__version__`` of its packages)."""

    def conditional(self, path: bytes) -> bool:
        """Tell whether a file that is ``eager`` is so over conditional imports alone (try, if, with): a run can do
        without it. False where that is not known."""


class UnresolvedImport(msgspec.Struct, frozen=True):
    """A place in reached code that imports a module by a name, or runs a file by a path, that is known at run time
    only. ``name`` is what is known of it, with a star for what is not. ``images`` are the sides that have it."""

    path: bytes
    line: int
    function: str | None
    what: Literal["module", "file"]
    name: str
    roles: tuple[str, ...]
    images: tuple[Side, ...] = ()


class Trace(msgspec.Struct, frozen=True):  # holds live RoleTrace objects: never serialised
    """The trace of one image: per role, with what it could not tell."""

    profile: Profile
    roles: Mapping[str, RoleTrace]
    blindspots: tuple[Blindspot, ...] = ()
    caveats: tuple[str, ...] = ()
    integrity: tuple[Integrity, ...] = ()
    unresolved: tuple[UnresolvedImport, ...] = ()


class ResolutionChange(msgspec.Struct, frozen=True):
    """A name that resolves differently in a and b although that is not just a move."""

    kind: Literal["module", "library", "distribution"]
    name: str
    role: str
    level: Level
    a: Resolved | None
    b: Resolved | None
    settled: str | None = None  # a recording shows that the role did not look it up


# --------------------------------------------------------------------------------------------------------------------
# Recordings: what processes really loaded
# --------------------------------------------------------------------------------------------------------------------

RecordingFormat = Literal["imgdiff", "ld-debug", "maps", "importtime", "python-v", "strace", "traced-files"]
# What a recording would have seen of a process. python: code that was executed and files that Python opened; origins:
# modules by the file that they came from, sourceless ones too; functions: the first start of a function in each file
# after a fork; libraries: each library that was mapped, when it was; syscalls: all files that were opened or looked
# for, by any means.
Covers = Literal["python", "origins", "functions", "libraries", "syscalls"]
RecordedHow = Literal[
    "executed",
    "mapped",
    "opened",
    "started",  # a function in it started, after a fork
    "before",  # in sys.modules when the recorder began: in a forked process, inherited
    "sought",  # looked for, or looked at, and not opened
    "listed",  # a directory whose names were read
    "named",  # mapped by this file name, from a directory that the log does not tell
]


class RecordedFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file in one process. ``path`` is as recorded: absolute, or relative to ``cwd`` (the process's own where
    that is None). It is empty where only the module's ``name`` is known. ``digest`` is of what lay there then."""

    path: bytes
    how: RecordedHow
    digest: bytes | None = None
    name: str | None = None
    cwd: bytes | None = None


class Started(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A process that another one started: a copy of itself (``fork``), a program (``exec``), a program that goes on in
    its own place (``replace``), or a ``thread``, where a log tells threads apart. ``pid`` is the child's, where it is
    known. ``whole`` is False where the child's environment does not lead it to the recorder."""

    how: Literal["fork", "exec", "replace", "thread"]
    program: str | None = None
    argv: tuple[str, ...] = ()
    pid: int | None = None
    whole: bool = True


class RecordedProcess(msgspec.Struct, frozen=True):
    """One process of a recording. ``start`` is how it came: ``unknown`` where its beginning was not recorded.

    ``titles`` are its titles and names, in order. ``started`` and ``last`` are seconds since the epoch: its start and
    its last event, where they are known; ``ended`` says how it ended, None where it was killed, still ran, or that is
    not known. ``gaps`` are sentences on what of it could not be seen. ``source`` is the file that it stands in,
    ``place`` what keeps it apart from processes of the same pid (a host, a container). ``role`` is what the user said
    that it is. ``recorder`` is the directory of what recorded it. ``calls`` are the kinds of system calls that a log
    has (None: it is of none), out of which ``coverage`` follows once all files of the log are read. ``programs`` are
    those that the loader began in it, one in the place of the other, as it calls them: by their first words.
    """

    pid: int | None
    parent: int | None
    start: Literal["exec", "fork", "unknown"]
    source: str
    place: str = ""
    argv: tuple[str, ...] = ()
    cwd: bytes = b"/"
    titles: tuple[str, ...] = ()
    executable: str | None = None
    python: str | None = None
    machine: str | None = None
    image: str | None = None
    env: dict[str, str] = {}
    started: float | None = None
    last: float | None = None
    ended: str | None = None
    coverage: frozenset[Covers] = frozenset()
    files: tuple[RecordedFile, ...] = ()
    children: tuple[Started, ...] = ()
    gaps: tuple[str, ...] = ()
    recorder: bytes | None = None
    role: str | None = None
    calls: frozenset[str] | None = None
    programs: tuple[str, ...] = ()


class Recording(msgspec.Struct, frozen=True):
    """What one ``--trace`` gave: the processes of a run. ``digest`` is the SHA-256 of all its bytes. ``notes`` are
    sentences on what was left out of it."""

    source: str
    formats: tuple[RecordingFormat, ...]
    processes: tuple[RecordedProcess, ...]
    digest: bytes
    notes: tuple[str, ...] = ()


class RecordedRole(msgspec.Struct, frozen=True):
    """What a recording says of one role, for the report: its processes' pids, what is covered in full (absence from it
    settles what that covers), and why the rest is not."""

    processes: tuple[int, ...]
    complete: tuple[Covers, ...]
    incomplete: tuple[str, ...] = ()


class RecordedRun(msgspec.Struct, frozen=True):
    """One recording as the report names it, with the conditions that it holds under.

    ``images`` are the sides that it speaks for (both where its files are the same in both). ``argv`` is of its first
    process, redacted; ``started`` and ``last`` are seconds since the epoch.
    """

    source: str
    formats: tuple[RecordingFormat, ...]
    images: tuple[Side, ...]
    processes: int
    argv: tuple[str, ...]
    python: str | None
    machine: str | None
    image: str | None
    started: float | None
    last: float | None
    roles: dict[str, RecordedRole] = {}
    unassigned: tuple[str, ...] = ()
    said: tuple[str, ...] = ()  # the caveats on it


# --------------------------------------------------------------------------------------------------------------------
# Engine profiles (TOML data under imgdiff/engines/)
# --------------------------------------------------------------------------------------------------------------------

Bears = Literal["stands", "undecided", "none"]


class PathRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern over absolute paths (``/var/log/**``; ``*`` stops at a slash, ``**`` does not), and why it is here."""

    pattern: str
    reason: str


class EnvRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern over ENV names (``VLLM_*``), what a change of such a name bears, and why."""

    name: str
    bears: Literal["stands", "undecided", "none", "path"]  # path: bears through what it resolves
    reason: str


class ArgvRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command-line option that says something when it has one of ``values`` or a number above ``above``."""

    option: str
    reason: str
    values: tuple[str, ...] = ()
    above: int | None = None


class RootGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Modules of which any one makes a root (each member that exists is one); none of them is a blindspot."""

    any_of: tuple[str, ...]
    reason: str
    optional: bool = False


class ProfileRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of process. ``engine``: the claim is about it. ``does``: what it does, in a few words. ``plugins``:
    entry-point groups loaded in it. ``includes``: roles that can live inside it, unless the argv has one of
    ``includes_unless``. ``spawned``: it is a child that imports the entry's main module again as ``__mp_main__``.
    ``parent``: the role whose process it is forked from (None: it is the one that the entry starts). ``titles``:
    patterns of its processes' titles and multiprocessing names, by which a recording is read."""

    name: str
    engine: bool
    does: str
    roots: tuple[RootGroup, ...] = ()
    plugins: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    spawned: bool = True
    parent: str | None = None
    includes_unless: tuple[ArgvRule, ...] = ()
    titles: tuple[str, ...] = ()


class AssumeRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``--assume NAME=VALUE`` leaves out: the modules in ``leaves_out``, where those in ``by`` lead to them over a
    name, or a bare word does, or they are one of several roots."""

    name: str
    value: str
    by: tuple[str, ...]
    leaves_out: tuple[str, ...]
    reason: str


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call without arguments that an assumption decides: ``object`` (a name of a module, dotted), its ``method``, and
    the values of ``assume`` under which it is ``true``; under every other one it is false."""

    object: str
    method: str
    assume: str
    true: tuple[str, ...]
    reason: str


class ModelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of model architectures: dict literals ``{"Architecture": ("module", "Class")}`` of ``module`` whose names
    match ``tables``, with modules below ``package``; those in ``always`` serve every architecture. A model whose code
    uses a name in ``reopens`` loads further models through the table; an option that matches a pattern in ``unless``
    (with dashes for underscores) on the command line names another model. Code of the packages in ``renames`` can put
    another architecture in the place of the config's: those that it names are kept."""

    module: str
    tables: tuple[str, ...]
    package: str
    reason: str
    always: tuple[str, ...] = ()
    reopens: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()


class Assumed(msgspec.Struct, frozen=True):
    """What the user says of the run: values by name (``platform``), and the model's architectures. ``whole``: they come
    from its config.json, which names those of the models inside it too; ``unnamed``: where in it a model inside lies
    without."""

    values: tuple[tuple[str, str], ...] = ()
    architectures: tuple[str, ...] = ()
    whole: bool = False
    unnamed: tuple[str, ...] = ()


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What we know of one engine. ``package``: the import package that it is recognised by (None: the generic one).

    ``entries``: command lines that start it, as console script names or ``-m module``. ``start_methods``: the
    multiprocessing start methods that are possible. ``start_method_env``: the ENV name that fixes one.
    ``build_labels``: ENV names that only say what was built. ``evaluates_version``: substrings that the engine looks
    for in its own distribution's version. ``read_at_run_time``: directories whose files are ``unknown``.
    ``outside``: trees that the engine never reads. ``assumes``, ``conditions`` and ``model_tables``: what assumptions
    can leave out; ``assumed``: those of this run.
    """

    name: str
    package: str | None
    roles: tuple[ProfileRole, ...]
    entries: tuple[str, ...] = ()
    start_methods: tuple[Literal["fork", "spawn", "forkserver"], ...] = ("fork", "spawn")
    start_method_env: str | None = None
    build_labels: tuple[str, ...] = ()
    env: tuple[EnvRule, ...] = ()
    evaluates_version: tuple[str, ...] = ()
    read_at_run_time: tuple[PathRule, ...] = ()
    outside: tuple[PathRule, ...] = ()
    assumes: tuple[AssumeRule, ...] = ()
    conditions: tuple[Condition, ...] = ()
    model_tables: tuple[ModelTable, ...] = ()
    assumed: Assumed = Assumed()


# --------------------------------------------------------------------------------------------------------------------
# Config and verdict
# --------------------------------------------------------------------------------------------------------------------

ConfigField = Literal[
    "env",
    "entrypoint",
    "cmd",
    "user",
    "working_dir",
    "labels",
    "ports",
    "volumes",
    "healthcheck",
    "stop_signal",
    "shell",
    "other",
]


class ConfigChange(msgspec.Struct, frozen=True):
    """One difference of the image configs. ``name`` is the ENV name or label key. Values are redacted already."""

    field: ConfigField
    name: str | None
    a: str | None
    b: str | None
    bears: Bears
    reason: str
    redacted: bool = False


Outcome = Literal["identical", "killed", "stands", "undecided"]
Confidence = Literal["recorded", "static"]


class RoleVerdict(msgspec.Struct, frozen=True):
    """The outcome for one role, with sentences."""

    outcome: Outcome
    confidence: Confidence
    reasons: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """Worst of the claim's roles, with sentences. ``claim`` are the roles the claim is about."""

    outcome: Outcome
    confidence: Confidence
    headline: str
    reasons: tuple[str, ...]
    caveats: tuple[str, ...]
    claim: tuple[str, ...]
    roles: dict[str, RoleVerdict]
    settle: tuple[str, ...] = ()


# --------------------------------------------------------------------------------------------------------------------
# Report
# --------------------------------------------------------------------------------------------------------------------


class JudgedChange(msgspec.Struct, frozen=True):
    """A change with its evidence per role, and the outcome that it bears for each role (none: it does not bear)."""

    change: Change
    load: dict[str, Evidence]
    bears: dict[str, Bears]
    owner_names_a: tuple[str, ...] = ()
    owner_names_b: tuple[str, ...] = ()


class OwnerRow(msgspec.Struct, frozen=True):
    """One line of the table by owner. ``loaded`` counts its differing files that a claim's role loads (recorded, eager
    or deferred)."""

    name: str
    kind: OwnerKind
    tally: OwnerTally
    loaded: int


class ImageSummary(msgspec.Struct, frozen=True):
    """One image as the report names it: ``files`` counts regular files and symlinks, ``bytes`` each inode once.
    ``layers`` are (diff_id, blob digest, stored size in bytes, media type), ``transfer`` the bytes (fetched, saved) of
    an image that came over a network. ``believed`` has, for each layer, (digest, hashed, unhashed) of the table of
    contents that was believed, or None; it is empty where none was."""

    reference: str
    source: str
    manifest_digest: str | None
    config_digest: str | None
    platform: str
    layers: tuple[tuple[str, str | None, int, str], ...]
    files: int
    bytes: int
    transfer: tuple[int, int] | None = None
    believed: tuple[tuple[str, int, int] | None, ...] = ()


class RoleInfo(msgspec.Struct, frozen=True):
    """One role as the report names it."""

    roots: tuple[str, ...]
    evidence: Confidence


class Report(msgspec.Struct, frozen=True):
    """Everything that a formatter may know."""

    version: str
    argv: tuple[str, ...]
    pythons: tuple[str, ...]
    image_a: ImageSummary
    image_b: ImageSummary
    profile: str | None
    roles: dict[str, RoleInfo]
    verdict: Verdict
    owners: tuple[OwnerRow, ...]
    changes: tuple[JudgedChange, ...]
    resolution: tuple[ResolutionChange, ...]
    config: tuple[ConfigChange, ...]
    integrity: tuple[Integrity, ...]
    blindspots: tuple[Blindspot, ...]
    mtime_only: int
    recordings: tuple[RecordedRun, ...] = ()
    unresolved_imports: tuple[UnresolvedImport, ...] = ()
    assumed: tuple[str, ...] = ()


# --------------------------------------------------------------------------------------------------------------------
# Which copy a name leads to, in one image (imgdiff resolve)
# --------------------------------------------------------------------------------------------------------------------

LookupKind = Literal["module", "library", "program"]
# How a place comes to be searched.
LookupSource = Literal[
    "script directory",
    "working directory",
    "PYTHONPATH",
    "standard library",
    "site-packages",
    ".pth line",
    "editable finder",
    "package path",  # a directory that a package has in its __path__
    "run time",  # code adds it
    "PATH",
    "path",  # the name itself is one
    "loaded already",  # what is mapped answers for its SONAME before any search
    "RPATH",
    "LD_LIBRARY_PATH",
    "RUNPATH",
    "ld.so.cache",
    "ldconfig",  # as ldconfig would make the cache anew
    "default path",
    "musl's path",
    "musl's own",
]


class LookupCandidate(msgspec.Struct, frozen=True):
    """A file that a place has for a name. ``path`` is as it is opened there, ``file`` the canonical path (None: a
    directory without a file, a namespace package). ``wins``: the trace takes it for what is loaded. ``note`` says what
    is special about it: which CPU it is for, why it is passed over."""

    path: bytes
    file: bytes | None
    digest: bytes | None
    owners: tuple[str, ...] = ()
    wins: bool = False
    note: str | None = None


class LookupPlace(msgspec.Struct, frozen=True):
    """One place that is searched, in order. ``directory`` is as the search spells it (None: a cache, a finder);
    ``present`` is False where nothing is there. ``by`` and ``line`` are the file that says so, ``said`` whatever else
    does ("ENV of the image")."""

    source: LookupSource
    directory: bytes | None
    present: bool = True
    by: bytes | None = None
    line: int | None = None
    said: str | None = None
    candidates: tuple[LookupCandidate, ...] = ()


class LookupAnswer(msgspec.Struct, frozen=True):
    """What one name is to the processes in ``asked_by`` (in words). More than one winner: which of them is loaded
    depends on the CPU, or on whether ldconfig runs when the container starts. ``elsewhere`` are files of this name
    that no place has."""

    kind: LookupKind
    name: str
    asked_by: tuple[str, ...]
    winners: tuple[LookupCandidate, ...] = ()
    places: tuple[LookupPlace, ...] = ()
    notes: tuple[str, ...] = ()
    elsewhere: tuple[LookupCandidate, ...] = ()


class LookupLoad(msgspec.Struct, frozen=True):
    """What a role's trace takes the name for: ``label`` is the name, with a word on which of several copies it is."""

    role: str
    kind: LookupKind
    label: str
    level: Level
    file: bytes
    chain: tuple[Hop, ...] = ()


class Lookup(msgspec.Struct, frozen=True):
    """Everything that a formatter may know of one question: which copy a name leads to in one image."""

    version: str
    reference: str
    name: str
    profile: str | None
    answers: tuple[LookupAnswer, ...]
    loads: tuple[LookupLoad, ...] = ()
    roles: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
