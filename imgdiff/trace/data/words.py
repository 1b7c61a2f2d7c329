"""The words of a data file that could name modules or files, whatever its format."""

from __future__ import annotations

import functools
import html
import io
import pickletools
import re
import struct
import sys
import warnings
import zlib
from collections.abc import Iterator

from imgdiff.trace.graph.blocks import DOTTED

_WORDS = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_TOKENS = re.compile(r"[\w.:-]+")
_LETTER = re.compile(r"[^\W\d]")
_RUNS = re.compile(rb"[A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?", re.ASCII)
_PATHS = re.compile(r"[\w./@+-]+")
_ABSOLUTE = re.compile(r"(?:/[\w.@+-]+){2,}")
# A match of the second kind begins where the path does, or each letter of a long one would be tried.
_FILES = re.compile(rf"{_ABSOLUTE.pattern}|(?<![\w.@+-])[\w.@+-][\w./@+-]{{0,4096}}\.(?:pyc?|so(?:\.\d+)*|sh)(?!\w)")
# A command line, in one text or as the strings of a list.
_STARTED = re.compile(
    r"""(?:python|pypy)(?:[^\n]|\n\s*-\s){0,200}?(?<=[\s"',])-\w*m["']?[\s,]+(?:-\s+)?["']?([^\W\d]\w*(?:\.[^\W\d]\w*)*)""",
    re.IGNORECASE,
)
_MAX_UNPACKED = 4 << 20  # bytes
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|U([0-9A-Fa-f]{8}))")


@functools.lru_cache(maxsize=8192)  # both images have most of their data in common
def words_of(data: bytes) -> tuple[frozenset[str], bool]:
    """Return the words of a file that could be module names, dotted ones with what follows a colon too, and whether it
    is or holds a pickle. In binary data a length or an operation can look like a letter: both readings count."""
    pickle = _pickle(data)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = "\0"
    if "\0" in text:
        holds_pickles = pickle is not None or data.startswith((b"PK", b"\x93NUMPY"))
        return frozenset(_binary(data) | (pickle or set())), holds_pickles
    words = _words(text) | (pickle or set())
    if "\\" in text:
        words |= _words(_ESCAPED.sub(_character, text))
    if "&" in text:
        words |= _words(html.unescape(text))
    return frozenset(words), pickle is not None


def unpacked(data: bytes) -> bytes:
    """Return the beginning of what a gzip file holds; all else as it is."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return zlib.decompressobj(wbits=31).decompress(data, _MAX_UNPACKED)
    except zlib.error:
        return data


def _pickle(data: bytes) -> set[str] | None:
    """Return the words of the strings and globals of pickles, one behind the other; None where it is none. Nothing is
    unpickled: the operations are read."""
    words: set[str] = set()
    stream = io.BytesIO(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in strings
            while stream.tell() < len(data):
                for _, argument, _ in pickletools.genops(stream):
                    if isinstance(argument, str):
                        words |= _words(argument)
    except (ValueError, OverflowError, struct.error):
        return words or None if data.startswith(b"\x80") else None
    return words


def _words(text: str) -> set[str]:
    tokens = frozenset(_TOKENS.findall(text))  # most stand there many times
    words = set(_WORDS.findall(" ".join(tokens)))
    for token in tokens:
        if ":" in token:
            for part in token.split("-"):
                words.update(_with_attribute(part.split(":")))
        if "-" in token:
            for part in token.split(":"):
                words.update(_hyphened(part))
    return words


def _with_attribute(parts: list[str]) -> Iterator[str]:
    """Yield ``module:attribute``, from the first letter on."""
    at = 0
    while at + 1 < len(parts):
        start, following = _LETTER.search(parts[at]), parts[at + 1]
        if start is not None and _LETTER.match(following):
            yield f"{parts[at][start.start() :]}:{following}"
            at += 1
        at += 1


def _hyphened(text: str) -> Iterator[str]:
    """Yield names as distributions spell them (``some-name``), from the first letter on, with underscores."""
    for chain in text.split("--"):
        parts = [part for part in chain.split("-") if part]
        while parts and _LETTER.search(parts[0]) is None:
            del parts[0]
        if len(parts) > 1:
            start = _LETTER.search(parts[0])
            assert start is not None
            yield "_".join(parts)[start.start() :]


def _character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2] or match[3], 16)
    return chr(code) if code <= sys.maxunicode else match[0]


def _binary(data: bytes) -> set[str]:
    words: set[str] = set()
    for run in _RUNS.findall(data):
        word = run.decode("ascii").rstrip(".:")
        words.update((word, word[1:], word[:-1], word[1:-1]))
    return {word for word in words if DOTTED.fullmatch(word)}


def code_paths(data: bytes) -> tuple[str, ...]:
    """Return what could be the path of a module, library, script or directory, sorted."""
    text = data.decode("utf-8", "surrogateescape").replace("\\/", "/")
    found: set[str] = set()
    for path in frozenset(_PATHS.findall(text)):
        if any(ending in path for ending in (".py", ".so", ".sh")):
            found.update(_FILES.findall(path))
        elif path.count("/") > 1:
            found.update(_ABSOLUTE.findall(path))
    return tuple(sorted(found))


def modules_started(data: bytes) -> frozenset[str]:
    """Return the modules that command lines in a file run (``python -m MODULE``)."""
    if b"-" not in data or b"\0" in data:
        return frozenset()
    return frozenset(_STARTED.findall(data.decode("utf-8", "surrogateescape")))
