"""The *Named* rule: which strings of reached code hold the name of a file."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

from imgdiff.engines import common
from imgdiff.model import HOLE, Tree

_PIECES = re.compile(r"[^\s\"'`<>|;]+")
_FINER = re.compile(r"[^\s\"'`<>|;=,:()\[\]{}&]+")
_FORMAT = re.compile(r"%[-+ #0-9.*lhz]*[a-zA-Z]|\{[^{}/]*\}|\*+|\$\{?\w+\}?")
_GLUED = re.compile(r"-[A-Za-z]{1,9}(/.+)", re.DOTALL)  # -I/usr/include
_LETTER = re.compile(r"[A-Za-z0-9]")
_MIN_STEM = 3  # letters and digits that a file-name pattern must fix to name anything
_MAX_TOKEN = 4096


@functools.lru_cache(maxsize=500_000)  # roles and images have most of their strings in common
def tokens_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (names, patterns) that a string could hold as paths: the whole, its words and the parts of words."""
    found: dict[str, None] = {}
    pieces = (text, *_PIECES.findall(text), *_FINER.findall(text))
    for piece in (*pieces, *(match[1] for each in pieces if (match := _GLUED.fullmatch(each)) is not None)):
        if len(piece) <= _MAX_TOKEN and ("/" in piece or "." in piece):
            found[piece] = None
    names: list[str] = []
    patterns: list[str] = []
    for piece in found:
        if HOLE in piece or _FORMAT.search(piece):
            patterns.append(_FORMAT.sub(HOLE, piece))
        if HOLE not in piece:
            names.append(_normal(piece))
            if piece.startswith("~/") and "/" not in piece[2:]:  # a file in the home directory itself, whosever it is
                patterns.append(HOLE + piece[1:])
    return tuple(names), tuple(patterns)


def _normal(piece: str) -> str:
    """Without ``./``, ``..`` and ``//``; a path below the home directory loses its ``~``."""
    if piece.startswith(("~/", "file://")):
        piece = piece[2:] if piece.startswith("~/") else piece[7:]
    if "/" not in piece:
        return piece
    absolute = piece.startswith("/")
    parts: list[str] = []
    for part in piece.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", ".", ".."):
            parts.append(part)
    return ("/" if absolute else "") + "/".join(parts)


class Names:
    """All strings of one role, made ready to be asked for a path."""

    def __init__(self, tree: Tree, roots: Iterable[bytes], listed: Iterable[bytes], base: Names | None = None) -> None:
        """``roots`` are the directories on sys.path: modules in them are found by name, so that a directory above
        names none of them. ``listed`` are those on PATH or a library path, which name nothing below them. ``base``
        are strings that count as well, behind these: what several roles have in common is made ready once."""
        self._tree = tree
        self._base = base
        self._roots = frozenset(roots)
        self._common = {each.encode() for each in common().common_directories} | {b"/" + each for each in listed}
        self._common_names = {each.encode() for each in common().common_names}
        self._tokens: dict[bytes, object] = {}
        self._patterns: dict[tuple[str, bytes], object] = {}
        self._telling: list[tuple[str, object]] | None = None
        self._matchers: _Matchers | None = None
        self._ways: dict[bytes, object] | None = None
        self.seen: set[str] = set()

    def add(self, text: str, source: object) -> None:
        """Add one string; ``source`` says where it stands. The first source of a name is kept."""
        if text in self.seen or (self._base is not None and text in self._base.seen):
            return
        names, patterns = tokens_of(text)
        own = b"/" + (getattr(source, "path", None) or b"")
        whole = not patterns  # a pattern counts by who builds it
        for name in names:
            token = name.encode("utf-8", "surrogateescape")
            # Its own place says where a module is, not what it reads; said by another it names that place.
            if token.startswith(b"/") and own.startswith(token.rstrip(b"/") + b"/"):
                whole = False
            else:
                self._token(token, source)
        if whole:
            self.seen.add(text)
        for pattern in patterns:
            self._patterns.setdefault((pattern, own), source)
            self._telling = self._matchers = None

    def _token(self, token: bytes, source: object) -> None:
        if token in self._tokens:
            return
        self._tokens[token] = source
        self._ways = None
        if token.startswith(b"/") and token not in self._common:
            canonical = self._tree.resolve(token)
            if canonical:
                self._tokens.setdefault(b"/" + canonical, source)

    @property
    def base(self) -> Names | None:
        """What counts behind these."""
        return self._base

    @property
    def tokens(self) -> Mapping[bytes, object]:
        """Every path and name, and where it stands; what a directory's first name is depends on their order."""
        return self._tokens

    @property
    def telling(self) -> Sequence[tuple[str, object]]:
        """The patterns that fix enough of a path, sorted, with the first who builds each."""
        if self._telling is None:
            found: dict[str, object] = {}
            for (pattern, own), source in sorted(self._patterns.items(), key=lambda item: item[0]):
                if pattern not in found and fixes_enough(pattern, own):
                    found[pattern] = source
            self._telling = list(found.items())
        return self._telling

    def restore(self, tokens: dict[bytes, object], telling: list[tuple[str, object]]) -> None:
        """Take what ``tokens`` and ``telling`` were elsewhere, for good: nothing can be added then."""
        self._tokens, self._telling = tokens, telling

    def source(self, token: bytes) -> object | None:
        """Return where a path or name stands, or None."""
        found = self._tokens.get(token)
        return found if found is not None or self._base is None else self._base.source(token)

    def knows(self, name: str) -> bool:
        """Tell whether a string is, or ends in, this name of a file."""
        return self.source(name.encode("utf-8", "surrogateescape")) is not None

    def find(self, path: bytes, modules: Iterable[str] = (), *, is_module: bool = False) -> tuple[str, object] | None:
        """Return (what names this path, the source of the string), or None. ``modules`` are its dotted names."""
        absolute = b"/" + path
        if absolute not in self._common and (source := self.source(absolute)) is not None:
            return "its path", source
        above = self._above(path, is_module)
        if above is not None:
            return above
        parts = path.split(b"/")
        for start in range(1, len(parts) - 1):
            suffix = b"/".join(parts[start:])
            if (source := self.source(suffix)) is not None:
                return "the end of its path", source
        for name in modules:
            token = name.encode("utf-8", "surrogateescape")
            if b"." in token and (source := self.source(token)) is not None:
                return "its module name", source
        last = parts[-1]
        if b"." in last.strip(b".") and last not in self._common_names:
            source = self.source(last)
            if source is not None:
                return "its file name", source
        return self.by_pattern(path)

    def place(self, path: bytes, other: bytes, *, is_module: bool = False) -> tuple[str, object] | None:
        """Return what names this absolute path, or a directory above it, and the source of the string: what would
        still be looked for here if the file moved to ``other``. What names both places tells them not apart."""
        absolute = b"/" + path
        if absolute not in self._common and (source := self.source(absolute)) is not None:
            return "its path", source
        above = self._above(path, is_module, other)
        if above is not None:
            return above
        found = self.by_pattern(path, absolute_only=True)
        return found if found is not None and self.by_pattern(other, absolute_only=True) != found else None

    def leading(self, directory: bytes) -> tuple[str, object] | None:
        """Return what names a path in or below this directory, absolutely, and the source of the string."""
        if self._ways is None:
            self._ways = {}
            for token, source in self._tokens.items():
                here = token if token.startswith(b"/") else b""
                while here and here not in self._ways:
                    self._ways[here] = source
                    here = here.rpartition(b"/")[0]
        source = self._ways.get(b"/" + directory)
        if source is None:
            return None if self._base is None else self._base.leading(directory)
        return "a path that leads through it", source

    def _above(self, path: bytes, is_module: bool, other: bytes = b"") -> tuple[str, object] | None:
        """``other``: a directory that is above this path too does not count."""
        here = path
        while here:
            here = here.rpartition(b"/")[0]
            if other.startswith(here + b"/"):
                return None
            if is_module and (here in self._roots or self._tree.resolve(here) in self._roots):
                return None
            absolute = b"/" + here
            if here and absolute not in self._common and (source := self.source(absolute)) is not None:
                return f"the directory {absolute.decode('utf-8', 'backslashreplace')} above it", source
        return None

    def by_pattern(self, path: bytes, *, absolute_only: bool = False) -> tuple[str, object] | None:
        """Return ("a pattern", who builds the first one that can name a path), or None."""
        if self._matchers is None:
            self._matchers = _Matchers(self.telling)
        source = self._matchers.find(path, absolute_only=absolute_only)
        if source is None:
            return None if self._base is None else self._base.by_pattern(path, absolute_only=absolute_only)
        return "a pattern", source


class _Matchers:
    """Patterns by the last part of the path that they ask for: most paths fail there."""

    def __init__(self, telling: Sequence[tuple[str, object]]) -> None:
        self._literal: dict[bytes, list[tuple[str, object]]] = {}
        self._holed: dict[bytes, list[tuple[str, object]]] = {}
        holed: dict[bytes, tuple[bytes, ...]] = {}
        for pattern, source in telling:
            tail = pattern.rstrip("/").rpartition("/")[2].encode("utf-8", "surrogateescape")
            if HOLE.encode() in tail:
                holed[tail] = tuple(tail.split(HOLE.encode()))
                self._holed.setdefault(tail, []).append((pattern, source))
            else:
                self._literal.setdefault(tail, []).append((pattern, source))
        self._by_trigram: dict[bytes, list[tuple[tuple[bytes, ...], bytes]]] = {}
        self._short: list[tuple[tuple[bytes, ...], bytes]] = []  # tails that fix no three characters in a row
        for ending, pieces in sorted(holed.items()):
            longest = max(pieces, key=len)
            bucket = self._short if len(longest) < 3 else self._by_trigram.setdefault(longest[:3], [])
            bucket.append((pieces, ending))
        self._by_name: dict[bytes, list[tuple[str, object]]] = {}

    def find(self, path: bytes, *, absolute_only: bool = False) -> object | None:
        """Return the source of the first pattern that can name a path."""
        name = path.rpartition(b"/")[2]
        candidates = self._by_name.get(name)
        if candidates is None:
            candidates = self._by_name[name] = self._candidates(name)
        absolute = b"/" + path
        for pattern, source in candidates:
            if absolute_only and not pattern.startswith("/"):
                continue
            if pattern_regex(pattern).fullmatch(absolute):
                return source
        return None

    def _candidates(self, name: bytes) -> list[tuple[str, object]]:
        found = list(self._literal.get(name, ()))
        tails = {tail for pieces, tail in self._short if _fits(pieces, name)}
        for trigram in {name[start : start + 3] for start in range(len(name) - 2)}:
            tails.update(tail for pieces, tail in self._by_trigram.get(trigram, ()) if _fits(pieces, name))
        for tail in sorted(tails):
            found += self._holed[tail]
        return found


def _fits(pieces: tuple[bytes, ...], name: bytes) -> bool:
    """Tell whether a name is these pieces in order with anything between them."""
    if len(name) < sum(map(len, pieces)) or not name.startswith(pieces[0]) or not name.endswith(pieces[-1]):
        return False
    at, end = len(pieces[0]), len(name) - len(pieces[-1])
    for piece in pieces[1:-1]:
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return at <= end


def fixes_enough(pattern: str, own: bytes = b"") -> bool:
    """Tell whether a pattern fixes enough of a path to name any.

    ``own`` is the path of the module that builds it: the directories above that fix nothing.
    """
    tail = pattern.rpartition("/")[2]
    stem, dot, extension = tail.rpartition(".")
    if not dot or not stem or HOLE in extension:
        stem = tail
    if ".so" in tail:
        stem = tail.partition(".so")[0].removeprefix("lib")
    fixed = len(_LETTER.findall(stem.replace(HOLE, "")))
    directories = [part for part in pattern.split("/")[:-1] if part and HOLE not in part and part.strip(".~")]
    absolute = pattern.startswith("/")
    if absolute:
        above = own.decode("utf-8", "surrogateescape").split("/")[1:-1]
        shared = 0
        while shared < min(len(above), len(directories)) and above[shared] == directories[shared]:
            shared += 1
        directories = directories[shared:]
    if fixed < _MIN_STEM and len(directories) < 2:
        return False
    bare = tail.replace(HOLE, "")
    parent = pattern.split("/")[-2:-1]
    return bool(directories and parent == directories[-1:]) or not any(
        bare in (name, name.rpartition(".")[0]) for name in common().common_names
    )


@functools.cache
def pattern_regex(pattern: str) -> re.Pattern[bytes]:
    """Return what matches the absolute paths that a pattern can name."""
    absolute = pattern.startswith("/")
    parts = [part for part in pattern.split("/") if part not in ("", ".", "..", "~")]
    body = b"/".join(_component(part) for part in parts)
    return re.compile((b"/" if absolute else b"(?:.*/)?/?") + body, re.DOTALL)


def _component(part: str) -> bytes:
    """What one part of a path can be: a hole alone can be several directories."""
    if part == HOLE:
        return b".*"
    return b"[^/]*".join(re.escape(piece.encode("utf-8", "surrogateescape")) for piece in part.split(HOLE))


def env_texts(env: Mapping[str, str]) -> Iterable[str]:
    """Yield the ENV values as strings that can name files."""
    for name in sorted(env):
        yield env[name]
