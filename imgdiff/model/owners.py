"""Whose a file is."""

from __future__ import annotations

from typing import Literal

import msgspec

from imgdiff.model.blindspots import Blindspot, Side

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
