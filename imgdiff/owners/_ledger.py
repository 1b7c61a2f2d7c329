"""The book that the finders write into: owners, claims, and what did not fit."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from imgdiff.model import (
    Basis,
    Blindspot,
    Claim,
    Distribution,
    Environment,
    Integrity,
    IntegrityCode,
    Owner,
    OwnerKind,
    Side,
    Texts,
    Tree,
)
from imgdiff.owners._place import Place
from imgdiff.owners._record import Records, Rows, read_record
from imgdiff.owners._survey import Survey

# Who installed what is written here; these files belong to nobody, whatever a list says.
_DATABASES = (
    b"var/lib/dpkg/",
    b"var/lib/rpm/",
    b"usr/lib/sysimage/rpm/",
    b"usr/share/rpm/",
    b"lib/apk/db/",
    b"var/lib/pacman/",
    b"conda-meta/",
)


class Ledger:
    """What is known so far of one image. Finders read it and add to it, in their order.

    ``claims`` only ever names regular files and symlinks of the tree by their canonical paths. ``records`` has the
    RECORDs that were read already; it may be shared between images.
    """

    def __init__(self, tree: Tree, texts: Texts, side: Side, records: Records | None = None) -> None:
        self.tree = tree
        self.texts = texts
        self.side = side
        self.records = Records() if records is None else records
        self.survey = Survey(tree)
        self.owners: list[Owner] = []
        self.claims: dict[bytes, tuple[Claim, ...]] = {}
        self.environments: tuple[Environment, ...] = ()
        self.sites: frozenset[bytes] = frozenset()  # where interpreters look for distributions
        self.places: tuple[Place, ...] = ()
        self.distributions: list[Distribution] = []
        self.integrity: list[Integrity] = []
        self.blindspots: list[Blindspot] = []
        self._by_key: dict[tuple[OwnerKind, str, bytes], int] = {}
        self._directories: dict[bytes, bytes | None] = {}

    def owner(self, kind: OwnerKind, name: str, version: str | None, root: bytes) -> int:
        """Return the index of this owner, adding it if it is new. The first version that is told stays."""
        key = (kind, name, root)
        index = self._by_key.get(key)
        if index is None:
            index = self._by_key[key] = len(self.owners)
            self.owners.append(Owner(kind, name, version, root))
        return index

    def claim(self, path: bytes, owner: int, basis: Basis, relative: bytes) -> bool:
        """Note that an owner claims the file or symlink at a canonical path; its first claim stays.

        False where nothing that can be claimed stands there.
        """
        held = self.claims.get(path)
        if held is None:
            entry = self.tree.entries.get(path)
            if entry is None or (entry.type != "file" and entry.type != "symlink"):
                return False
            if path.startswith(_DATABASES) or b"/conda-meta/" in path:
                return False
            self.claims[path] = (Claim(owner, basis, relative),)
            return True
        for claim in held:
            if claim.owner == owner:
                return True
        self.claims[path] = (*held, Claim(owner, basis, relative))
        return True

    def canonical(self, path: bytes) -> bytes:
        """Return the path with links in its *directory* followed; the last name is not followed.

        Where the directory does not exist, the path as it reads with ``.`` and ``..`` taken away.
        """
        entry = self.tree.entries.get(path)
        if entry is not None:
            return entry.path if entry.path == path else path  # one copy of each, by the hundred thousand
        parent, _, name = path.rpartition(b"/")
        if name in (b"", b".", b".."):
            return self.lexical(path)
        if parent in self._directories:
            directory = self._directories[parent]
        else:
            directory = self._directories[parent] = self.tree.resolve(parent)
        if directory is None:
            return self.lexical(path)
        return directory + b"/" + name if directory else name

    @staticmethod
    def lexical(path: bytes) -> bytes:
        """Return the path without ``.``, ``..`` and doubled slashes, kept inside the root."""
        return posixpath.normpath(b"/" + path).lstrip(b"/")

    def text(self, path: bytes) -> bytes | None:
        """Return the content of the file that this path leads to, None if there is none or it was not kept."""
        entry = self.tree.lookup(path)
        if entry is None or entry.type != "file" or entry.digest is None:
            return None
        return self.texts.get(entry.digest)

    def rows(self, path: bytes) -> Rows | None:
        """Return the rows of the RECORD at this path, as :meth:`text` would its content; read once by its digest."""
        entry = self.tree.lookup(path)
        if entry is None or entry.type != "file" or entry.digest is None:
            return None
        rows = self.records.rows.get(entry.digest)
        if rows is None and (text := self.texts.get(entry.digest)) is not None:
            rows = self.records.rows[entry.digest] = read_record(text)
        return rows

    def note(self, code: IntegrityCode, owner: str | None, path: bytes | None, message: str) -> None:
        """Record something that does not fit inside the image; ``message`` is a plain sentence."""
        self.integrity.append(Integrity(self.side, code, owner, path, message))

    def blind(self, what: str, reason: str, path: bytes) -> None:
        """Record something that could not be read, so that ownership is unsure."""
        self.blindspots.append(Blindspot(what, reason, path, self.side))


def shown(path: bytes) -> str:
    """Return a path for a sentence: absolute, bytes that are no UTF-8 as ``\\xNN``."""
    return "/" + path.decode("utf-8", "backslashreplace")


def join(directory: bytes, name: bytes) -> bytes:
    """Return the path of a name in a directory, the root directory being ``b""``."""
    return directory + b"/" + name if directory else name


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 file``, ``2,000 files``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def below(tree: Tree, directory: bytes, apart: frozenset[bytes] = frozenset()) -> Iterator[bytes]:
    """Yield the files and links below a canonical directory, without what lies in the directories ``apart``."""
    stack = [directory]
    while stack:
        here = stack.pop()
        for name in reversed(tree.children(here)):
            path = here + b"/" + name
            if tree.entries[path].type != "dir":
                yield path
            elif path not in apart:
                stack.append(path)
