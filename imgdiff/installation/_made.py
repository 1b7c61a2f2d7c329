"""What an installer makes beside a wheel's own files, and how it is told from what somebody changed.

Each is taken for an installer's only with a proof: a launcher that does nothing but call its entry point, by the
interpreter of the environment that it lies in; a script whose first line alone was written anew; bytecode that a source
of the wheel compiles to. Anything else stays a difference.
"""

from __future__ import annotations

import ast
import re
import struct
import warnings
from collections.abc import Iterable

from imgdiff import kinds
from imgdiff.kinds import bytecode
from imgdiff.model import Attribution, FileEntry, Texts, Tree

INSTALLERS_FILES = (b"INSTALLER", b"REQUESTED", b"direct_url.json", b"uv_cache.json")
_GROUPS = frozenset({"console_scripts", "gui_scripts"})
_LONGEST_SCRIPT = 64 * 1024
_INTERPRETER = re.compile(rb"#!(?P<path>/[^\s]+/(?:python|pypy)[\d.]*[a-z]?)\n")
# Where the interpreter's path is too long for a #! line or has spaces: distlib's and uv's shell line.
_SHELL = re.compile(
    rb"#!/bin/sh\n'''exec' (?P<quote>[\"']?)(?P<path>/[^\n\"']+/(?:python|pypy)[\d.]*[a-z]?)(?P=quote) "
    rb"\"\$0\" \"\$@\"\n' '''\n"
)
_CACHED = re.compile(rb"(?P<directory>(?:.*/)?)__pycache__/(?P<stem>[^/]+?)\.[^/.]+(?:\.opt-[12])?\.pyc\Z", re.DOTALL)
_OPTIMIZED = re.compile(rb"\.opt-([12])\.pyc\Z")
_POINT = re.compile(r"(?P<module>[\w.]+)\s*:\s*(?P<object>[\w.]+)\s*(?:\[[^\]]*\])?\Z")

# What distlib, pip, uv and pypa/installer write (as they did from 2015 to 2026) to take Windows' endings away.
_ARGV = frozenset(
    ast.dump(ast.parse(text).body[0])
    for text in (
        r"sys.argv[0] = re.sub(r'(-script\.pyw|\.exe)?$', '', sys.argv[0])",
        r"sys.argv[0] = re.sub(r'(-script\.pyw?|\.exe)?$', '', sys.argv[0])",
        "sys.argv[0] = sys.argv[0].removesuffix('.exe')",
        "if sys.argv[0].endswith('.exe'):\n    sys.argv[0] = sys.argv[0][:-4]",
        (
            "if sys.argv[0].endswith('-script.pyw'):\n    sys.argv[0] = sys.argv[0][:-11]\n"
            "elif sys.argv[0].endswith('.exe'):\n    sys.argv[0] = sys.argv[0][:-4]"
        ),
    )
)
_MAIN = ast.dump(ast.parse("__name__ == '__main__'", mode="eval").body)


def scripts(points: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Return the entry points that become programs, by name."""
    return {name: value for group, name, value in points if group in _GROUPS}


def is_launcher(
    text: bytes | None, name: bytes, points: dict[str, str], interpreters: frozenset[bytes], tree: Tree
) -> bool:
    """Tell whether a file called ``name`` is what an installer writes for one of these entry points."""
    told = _told(text, interpreters, tree)
    value = _point_of(name, points)
    if told is None or value is None:
        return False
    point = _POINT.fullmatch(value.strip())
    if point is None:
        return False
    first = point["object"].partition(".")[0]
    imported = ast.dump(ast.parse(f"from {point['module']} import {first}").body[0])
    call = ast.dump(ast.parse(f"sys.exit({point['object']}())").body[0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(told).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return _launches(body, imported, call)


def is_called(name: bytes, points: dict[str, str]) -> bool:
    """Tell whether a program has the name of an entry point."""
    return _point_of(name, points) is not None


def _point_of(name: bytes, points: dict[str, str]) -> str | None:
    """Return the entry point of a program; pip writes its own once more with a version behind the name: pip3.12."""
    text = name.decode("utf-8", "surrogateescape")
    if text in points:
        return points[text]
    return points.get(re.sub(r"-?\d+(?:\.\d+)*\Z", "", text))


def _launches(body: list[ast.stmt], imported: str, call: str) -> bool:
    if not body or not isinstance(body[-1], ast.If):
        return False
    guard = body[-1]
    if ast.dump(guard.test) != _MAIN or guard.orelse or not guard.body or ast.dump(guard.body[-1]) != call:
        return False
    steps = [*body[:-1], *guard.body[:-1]]
    modules = [alias for step in steps if isinstance(step, ast.Import) for alias in step.names]
    if any(alias.name not in ("re", "sys") or alias.asname for alias in modules):
        return False
    if "sys" not in {alias.name for alias in modules}:
        return False
    rest = [ast.dump(step) for step in steps if not isinstance(step, ast.Import)]
    return rest.count(imported) == 1 and all(step == imported or step in _ARGV for step in rest)


def _told(text: bytes | None, interpreters: frozenset[bytes], tree: Tree) -> bytes | None:
    """Return what stands behind the line that an installer writes for one of these bin directories, else None."""
    if text is None or len(text) > _LONGEST_SCRIPT:
        return None
    match = _INTERPRETER.match(text) or _SHELL.match(text)
    if match is None or tree.resolve(match["path"].rpartition(b"/")[0]) not in interpreters:
        return None
    return text[match.end() :]


def is_rewritten(text: bytes | None, packed: bytes | None, interpreters: frozenset[bytes], tree: Tree) -> bool:
    """Tell whether a script is the wheel's with ``#!python`` replaced by an interpreter of its environment."""
    if packed is None or text is None or not packed.startswith(b"#!python"):
        return False
    told = _told(text, interpreters, tree)
    return told is not None and told == packed.partition(b"\n")[2]


def interpreters(attribution: Attribution, site: bytes, tree: Tree) -> frozenset[bytes]:
    """Return the canonical directories of the interpreters that install distributions into this site."""
    found = set()
    for environment in attribution.environments:
        own = site in environment.sites and site.startswith(environment.prefix + b"/")  # a venv may see its base's
        if environment.prefix and (own or site in environment.user_sites):
            directory = tree.resolve(environment.prefix + b"/bin")
            if directory:
                found.add(directory)
    return frozenset(found)


def source_of(path: bytes) -> bytes | None:
    """Return where the source of a ``.pyc`` in ``__pycache__`` stands (PEP 3147); None for any other path."""
    match = _CACHED.match(path)
    return None if match is None else match["directory"] + match["stem"] + b".py"


class Bytecode:
    """Holds bytecode against what the wheel's source compiles to."""

    def __init__(self, tree: Tree, texts: Texts) -> None:
        self._tree, self._texts = tree, texts
        self._compilers = bytecode.Compilers()

    def is_made_of(self, pyc: FileEntry, source: FileEntry, packed: FileEntry) -> bool:
        """Tell whether a ``.pyc`` runs in the image in place of ``source``, which is as ``packed`` in the wheel, and
        is proven to be what that compiles to (by a Python of its minor: without one there is no proof)."""
        if pyc.type != "file" or pyc.digest is None or source.digest is None or source.digest != packed.digest:
            return False
        stamp = self._tree.stamps.get(pyc.digest)
        image = kinds.ModuleSide(source, pyc, stamp, self._texts)
        delta = kinds.module_delta(kinds.ModuleSide(packed, None, None, self._texts), image, self._compilers)
        return delta.runs_b == "bytecode" and delta.bytecode is not None and delta.bytecode.effect == "noise"

    def compiled(self, pyc: FileEntry, source: FileEntry) -> bytes | None:
        """Return the ``.pyc`` that the image's Python would make of a source (PEP 552, by time) in place of the one
        there; None where no Python of its minor is at hand, or it makes none."""
        stamp = None if pyc.digest is None else self._tree.stamps.get(pyc.digest)
        text = None if source.digest is None else self._texts.get(source.digest)
        if stamp is None or text is None or pyc.type != "file":
            return None
        optimized = _OPTIMIZED.search(pyc.path)
        try:
            magic = bytecode.read_header(stamp.header).magic
            body = self._compilers.compile(text, magic, int(optimized[1]) if optimized else 0)
        except (bytecode.HeaderError, bytecode.CompileError):
            return None
        if body is None:
            return None
        seconds = source.mtime // 1_000_000_000 & 0xFFFFFFFF
        return stamp.header[:4] + struct.pack("<III", 0, seconds, source.size & 0xFFFFFFFF) + body

    def close(self) -> None:
        """End the compilers' processes."""
        self._compilers.close()
