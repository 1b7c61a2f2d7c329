"""What a search for a library gives: where it looks, what it finds, and which file of the process asks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from imgdiff.model import ElfFacts


class Step(msgspec.Struct, frozen=True):
    """One directory that is searched: how it comes to that in words, the file that says so, and whether it is searched
    in any case. ``doubt`` says why it may not be: a shell script can set LD_LIBRARY_PATH in a branch, and the CPU says
    what ``$PLATFORM`` is."""

    directory: bytes
    how: str
    by: bytes | None = None
    sure: bool = True
    doubt: str | None = None


class Candidate(msgspec.Struct, frozen=True):
    """One file that a name can load: ``path`` is canonical, ``opened`` as the loader opens it (no leading slash),
    ``how`` says in a few words where it was found. ``certain`` is False where it is loaded only in another order of
    loading than the one assumed. ``stops``: the loader ends there with an error, since it is no library; ``beyond``: it
    would be found only if one before it that stops were not there."""

    path: bytes
    opened: bytes
    how: str
    certain: bool = True
    stops: bool = False
    beyond: bool = False


class Walk:
    """What one search has found so far, and whether the loader would have ended before that with an error, at what is
    no library: at a file of its own, or at one of ``directories`` (as they are opened)."""

    def __init__(self, before: Walk | None = None) -> None:
        self.found: list[Candidate] = []
        self.directories: list[bytes] = []
        self.stopped: bool = before is not None and before.stopped

    def add(self, candidate: Candidate) -> None:
        """Take what is found next."""
        self.found.append(msgspec.structs.replace(candidate, beyond=self.stopped))


class Resolution(msgspec.Struct, frozen=True):
    """What one name resolves to. No candidate: nothing is found. ``searched`` are the directories that were looked
    into, in order, the caches apart. ``differs``: the stored ld.so.cache and a rebuilt one lead to different files,
    ``stored`` and ``rebuilt`` (canonical; None: to nothing). ``directories`` have the name, as they are opened, and the
    loader ends there with an error."""

    name: str
    candidates: tuple[Candidate, ...] = ()
    searched: tuple[bytes, ...] = ()
    differs: bool = False
    stored: bytes | None = None
    rebuilt: bytes | None = None
    directories: tuple[bytes, ...] = ()


class Mapped:
    """A file in the process: its facts, the name it was opened under, and the one that loaded it first. ``started``: it
    is the program itself."""

    __slots__ = ("certain", "facts", "loader", "names", "opened", "path", "started")

    def __init__(
        self, path: bytes, opened: bytes, facts: ElfFacts, loader: Mapped | None = None, certain: bool = True
    ) -> None:
        self.path, self.opened, self.facts, self.loader, self.certain = path, opened, facts, loader, certain
        self.names: set[str] = set()
        self.started = False

    @property
    def origin(self) -> bytes:
        """The directory that ``$ORIGIN`` stands for: of the name that was opened, links in it not followed; for the
        program of the file itself, since the kernel tells of that one (/proc/self/exe)."""
        return (self.path if self.started else self.opened).rpartition(b"/")[0]


def unique(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return candidates once each, as the first that is not beyond an error."""
    kept: dict[bytes, Candidate] = {}
    for candidate in found:
        known = kept.setdefault(candidate.path, candidate)
        if known.beyond and not candidate.beyond:
            kept[candidate.path] = candidate
    return tuple(kept.values())
