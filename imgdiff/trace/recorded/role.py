"""A role's trace with what recordings show of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from imgdiff.model import Evidence, FileEntry, Hop, How, Level, Resolved, RoleTrace
from imgdiff.trace.recorded.places import is_module
from imgdiff.trace.recorded.run import Run
from imgdiff.trace.recorded.used import RANK


class RecordedRoleTrace:
    """One role in one image (a ``model.RoleTrace``): the static trace, raised where a recording shows more."""

    def __init__(self, static: RoleTrace, runs: Sequence[Run]) -> None:
        self.static, self._runs = static, runs
        self._modules: Mapping[str, tuple[Level, Resolved]] | None = None
        self._libraries: Mapping[str, tuple[Level, Resolved]] | None = None

    @property
    def role(self) -> str:
        """The role's name."""
        return self.static.role

    @property
    def roots(self) -> tuple[str, ...]:
        """The modules and files that the closure starts from."""
        return self.static.roots

    @property
    def modules(self) -> Mapping[str, tuple[Level, Resolved]]:
        """Every module name that is reached, and what it resolves to."""
        if self._modules is None:
            self._modules = self._raised(self.static.modules)
        return self._modules

    @property
    def libraries(self) -> Mapping[str, tuple[Level, Resolved]]:
        """Every library or program name that is reached, and what it resolves to."""
        if self._libraries is None:
            self._libraries = self._raised(self.static.libraries)
        return self._libraries

    def _raised(self, names: Mapping[str, tuple[Level, Resolved]]) -> Mapping[str, tuple[Level, Resolved]]:
        return {
            name: ("recorded", found) if self._how(found.path) in ("executed", "mapped") else (level, found)
            for name, (level, found) in names.items()
        }

    def _how(self, path: bytes) -> How | None:
        shown = [how for run in self._runs if (how := run.of(self.role).shows(run.places, path)) is not None]
        return max(shown, key=RANK.__getitem__, default=None)

    def evidence(self, path: bytes) -> Evidence:
        """Return the strongest level that holds for a path of this image."""
        return self._shown(path, self.static.evidence(path))

    def by_name(self, path: bytes) -> Evidence:
        """Return the same, whatever other names the file has. Maps name one of them, so a recording speaks for all."""
        return self._shown(path, self.static.by_name(path))

    def _shown(self, path: bytes, static: Evidence) -> Evidence:
        how = self._how(path)
        if how is None or (how == "opened" and is_module(path) and static.level == "eager"):
            return static  # by static means it runs; that it was read as text as well takes nothing away
        return Evidence("recorded", how, _proof(static, path), static.note)

    def absent(self, path: bytes, like: FileEntry) -> Evidence:
        """Return the level that a file would have here if it stood at this path."""
        static = self.static.absent(path, like)
        for run in self._runs:
            found = run.of(self.role)
            how = found.outside.get(path)
            if how is not None:
                return Evidence("recorded", how, _proof(static, path), "it was used here, and the image lacks it")
            if path in found.touched:
                return Evidence("recorded", "opened", _proof(static, path), "it was looked for here")
        return static

    def placed(self, path: bytes, other: bytes) -> Evidence | None:
        """Return the evidence that something reached names this absolute path, and not the other just as well."""
        return self.static.placed(path, other)

    def misses(self, name: str) -> Level | None:
        """Return the level at which reached code asks for a name that nothing gives here."""
        return self.static.misses(name)

    def asks_version(self, distribution: str) -> tuple[Hop, ...]:
        """Return the places in reached code that ask for a distribution's version."""
        return self.static.asks_version(distribution)

    def conditional(self, path: bytes) -> bool:
        """Tell whether a file that is eager is so over conditional imports alone."""
        return self.static.conditional(path)


def _proof(static: Evidence, path: bytes) -> tuple[Hop, ...]:
    return static.chain or (Hop(None, path, None, None, "recorded"),)
