"""What ``python -v`` says on stderr of each module: the file that its code came from, or its name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imgdiff.model import RecordedProcess, RecordingFormat
from imgdiff.recordings._lines import Files, Lines

FORMAT: RecordingFormat = "python-v"
_MATCHES = re.compile(rb"# (/.+\.pyc) matches (/.+)")
_CODE = re.compile(rb"# code object from (['\"]?)(/.+)\1")
_EXTENSION = re.compile(rb"# extension module (\S+) (?:loaded|executed) from (['\"]?)(/.+)\2")
_IMPORT = re.compile(rb"import (\S+) # (.*)")
_QUOTED = re.compile(rb"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|['\"\\nrt])")
_LIMIT = "python -v tells what the import system loads and no other file, and does not tell processes apart"


def matches(lines: Sequence[bytes]) -> bool:
    """Tell whether these first lines hold such a log."""
    found = [line for line in lines if _CODE.fullmatch(line) or _MATCHES.fullmatch(line) or _import(line)]
    return len(found) >= 2


def _import(line: bytes) -> bytes | None:
    found = _IMPORT.fullmatch(line)
    if found is None or not (b"mportlib" in found[2] or b"Importer" in found[2] or b"builtin" in found[2]):
        return None
    return found[1].strip(b"'\"")


def read(lines: Lines, name: str) -> list[RecordedProcess]:
    """Read the modules of one log. Other lines are the program's own."""
    files = Files()
    for line in lines:
        matching, code, extension = _MATCHES.fullmatch(line), _CODE.fullmatch(line), _EXTENSION.fullmatch(line)
        if matching is not None:
            files.add(matching[2], "opened")  # whether its bytecode fits; it runs if its code is said to come from it
        elif code is not None:
            files.add(_path(code[2]), "executed")
        elif extension is not None:
            files.add(_path(extension[3]), "mapped")
        else:
            module = _import(line)
            if module is not None:
                files.add(b"", "executed", name=module.decode("utf-8", "surrogateescape"))
    gaps = (_LIMIT, *lines.gaps(), *files.gaps())
    return [RecordedProcess(None, None, "unknown", name, files=files.all(), gaps=gaps)]


def _path(text: bytes) -> bytes:
    """Return a path as Python's repr writes it."""
    if b"\\" not in text:
        return text

    def one(found: re.Match[bytes]) -> bytes:
        word = found[1]
        if word[:1] in (b"u", b"U"):
            point = int(word[1:], 16)
            if 0xDC80 <= point <= 0xDCFF:  # a byte that is no UTF-8
                return bytes([point - 0xDC00])
            return chr(min(point, 0x10FFFF)).encode("utf-8", "surrogatepass")
        if word[:1] == b"x":
            return chr(int(word[1:], 16)).encode()
        return {b"n": b"\n", b"r": b"\r", b"t": b"\t"}.get(word, word)

    return _QUOTED.sub(one, text)
