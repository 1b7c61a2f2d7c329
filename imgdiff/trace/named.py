"""The *Named* rule: which strings of reached code hold the name of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from imgdiff.engines import common
from imgdiff.model import HOLE, Tree

_PIECES = re.compile(r"[^\s\"'`<>|;]+")
_FINER = re.compile(r"[^\s\"'`<>|;=,:()\[\]{}&]+")
_FORMAT = re.compile(r"%[-+ #0-9.*lhz]*[a-zA-Z]|\{[^{}/]*\}|\*+|\$\{?\w+\}?")
_LETTER = re.compile(r"[A-Za-z0-9]")
_MIN_STEM = 3  # letters and digits that a file-name pattern must fix to name anything
_MAX_TOKEN = 4096


def tokens_of(text: str) -> tuple[list[str], list[str]]:
    """Return (names, patterns) that a string could hold as paths: the whole, its words and the parts of words."""
    found: dict[str, None] = {}
    for piece in (text, *_PIECES.findall(text), *_FINER.findall(text)):
        if len(piece) <= _MAX_TOKEN and ("/" in piece or "." in piece):
            found[piece] = None
    names: list[str] = []
    patterns: list[str] = []
    for piece in found:
        if HOLE in piece or _FORMAT.search(piece):
            patterns.append(_FORMAT.sub(HOLE, piece))
        if HOLE not in piece:
            names.append(_normal(piece))
    return names, patterns


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

    def __init__(self, tree: Tree, roots: Iterable[bytes], listed: Iterable[bytes]) -> None:
        """``roots`` are the directories on sys.path: modules in them are found by name, so that a directory above
        names none of them. ``listed`` are those on PATH or a library path, which name nothing below them."""
        self._tree = tree
        self._roots = frozenset(roots)
        self._common = {each.encode() for each in common().common_directories} | {b"/" + each for each in listed}
        self._common_names = {each.encode() for each in common().common_names}
        self._tokens: dict[bytes, object] = {}
        self._patterns: dict[str, object] = {}
        self._matchers: dict[bytes, list[tuple[re.Pattern[bytes], object]]] | None = None
        self._seen: set[str] = set()

    def add(self, text: str, source: object) -> None:
        """Add one string; ``source`` says where it stands. The first source of a name is kept."""
        if text in self._seen:
            return
        self._seen.add(text)
        names, patterns = tokens_of(text)
        for name in names:
            self._token(name.encode("utf-8", "surrogateescape"), source)
        for pattern in patterns:
            self._patterns.setdefault(pattern, source)
            self._matchers = None

    def _token(self, token: bytes, source: object) -> None:
        if token in self._tokens:
            return
        self._tokens[token] = source
        if token.startswith(b"/") and token not in self._common:
            canonical = self._tree.resolve(token)
            if canonical:
                self._tokens.setdefault(b"/" + canonical, source)

    def find(self, path: bytes, modules: Iterable[str] = (), *, is_module: bool = False) -> tuple[str, object] | None:
        """Return (what names this path, the source of the string), or None. ``modules`` are its dotted names."""
        absolute = b"/" + path
        if absolute in self._tokens and absolute not in self._common:
            return "its path", self._tokens[absolute]
        above = self._above(path, is_module)
        if above is not None:
            return above
        parts = path.split(b"/")
        for start in range(1, len(parts) - 1):
            suffix = b"/".join(parts[start:])
            if suffix in self._tokens:
                return "the end of its path", self._tokens[suffix]
        for name in modules:
            token = name.encode("utf-8", "surrogateescape")
            if b"." in token and token in self._tokens:
                return "its module name", self._tokens[token]
        name = parts[-1]
        if b"." in name.strip(b".") and name in self._tokens and name not in self._common_names:
            return "its file name", self._tokens[name]
        return self._by_pattern(path)

    def _above(self, path: bytes, is_module: bool) -> tuple[str, object] | None:
        here = path
        while here:
            here = here.rpartition(b"/")[0]
            if is_module and here in self._roots:
                return None
            absolute = b"/" + here
            if here and absolute in self._tokens and absolute not in self._common:
                return f"the directory {absolute.decode('utf-8', 'backslashreplace')} above it", self._tokens[absolute]
        return None

    def _by_pattern(self, path: bytes) -> tuple[str, object] | None:
        if self._matchers is None:
            self._matchers = self._compile()
        name = path.rpartition(b"/")[2]
        extension = name.rpartition(b".")[2] if b"." in name else b""
        absolute = b"/" + path
        for key in (extension, b"\x00"):
            for regex, source in self._matchers.get(key, ()):
                if regex.fullmatch(absolute):
                    return "a pattern", source
        return None

    def _compile(self) -> dict[bytes, list[tuple[re.Pattern[bytes], object]]]:
        matchers: dict[bytes, list[tuple[re.Pattern[bytes], object]]] = {}
        for pattern, source in sorted(self._patterns.items(), key=lambda item: item[0]):
            regex = pattern_regex(pattern)
            if regex is not None:
                extension = pattern.rpartition(".")[2] if "." in pattern.rpartition("/")[2] else HOLE
                key = b"\x00" if HOLE in extension else extension.encode("utf-8", "surrogateescape")
                matchers.setdefault(key, []).append((regex, source))
        return matchers


def pattern_regex(pattern: str) -> re.Pattern[bytes] | None:
    """Return what matches the absolute paths that a pattern can name; None where it fixes too little to name any."""
    tail = pattern.rpartition("/")[2]
    stem, dot, extension = tail.rpartition(".")
    if not dot or HOLE in extension:
        stem = tail
    if ".so" in tail:
        stem = tail.partition(".so")[0].removeprefix("lib")
    fixed = len(_LETTER.findall(stem.replace(HOLE, "")))
    directories = [part for part in pattern.split("/")[:-1] if part and HOLE not in part and part.strip(".~")]
    absolute = pattern.startswith("/")
    if fixed < _MIN_STEM and len(directories) < (3 if absolute else 2):
        return None
    body = b".*".join(re.escape(part.encode("utf-8", "surrogateescape")) for part in pattern.lstrip("./~").split(HOLE))
    try:
        return re.compile((b"/" if absolute else b".*/") + body.removeprefix(b"/"), re.DOTALL)
    except re.error:
        return None


def env_texts(env: Mapping[str, str]) -> Iterable[str]:
    """Yield the ENV values as strings that can name files."""
    for name in sorted(env):
        yield env[name]
