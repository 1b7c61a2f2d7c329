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

from imgdiff.trace.blocks import DOTTED

_WORDS = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_WITH_ATTRIBUTE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_HYPHENED = re.compile(r"[^\W\d][\w.]*(?:-[\w.]+)+")
_RUNS = re.compile(rb"[A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?", re.ASCII)
_FILES = re.compile(r"(?:/[\w.@+-]+){2,}|[\w.@+-][\w./@+-]*\.(?:pyc?|so(?:\.\d+)*|sh)(?!\w)")
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
    words = {*_WORDS.findall(text), *_WITH_ATTRIBUTE.findall(text)}
    words.update(word.replace("-", "_") for word in _HYPHENED.findall(text))  # as distributions spell it
    return words


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
    return tuple(sorted(set(_FILES.findall(text))))
