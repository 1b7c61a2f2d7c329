"""Which kind a file is, and which files the indexing pass keeps whole. Both look at the path and the first bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from imgdiff.interpreters import is_python

KindName = Literal[
    "python", "bytecode", "elf", "dist_info", "pth", "shell", "script", "json", "ld_cache", "loader", "text", "binary"
]

HEAD_SIZE = 4096
"""Bytes of a file's beginning that routing wants; fewer only where the file is shorter."""

KB, MB = 1024, 1024 * 1024

_INTERPRETER = re.compile(rb"#![ \t]*(\S*)(?:[ \t]+([^\n]*))?")
_SHELLS = frozenset({b"sh", b"bash", b"dash", b"ash", b"ksh", b"ksh93", b"mksh", b"zsh", b"rbash", b"busybox"})
_SHELL_SUFFIXES = (b".sh", b".bash", b".ksh", b".zsh", b".ash")
_SHELL_NAMES = frozenset(
    {
        b".bashrc",
        b".bash_profile",
        b".bash_login",
        b".bash_logout",
        b".bash_aliases",
        b".profile",
        b".zshrc",
        b".zprofile",
        b".zshenv",
        b".kshrc",
        b".shrc",
        b"bash.bashrc",
        b"bashrc",
    }
)
# Devices' programs in ELF clothes (gABI e_machine): AMDGPU, INTELGT, CUDA. No loader of this machine maps them.
_DEVICE_MACHINES = frozenset({224, 205, 190})
_LOADER_FILES = re.compile(
    rb"(?:etc/ld\.so\.conf|etc/ld\.so\.conf\.d/[^/]+|etc/ld\.so\.preload|etc/ld-musl-[^/]+\.path|(?:.*/)?pyvenv\.cfg"
    rb"|(?:.*/)?[^/]+\._pth)\Z"
)
_LIBRARY = re.compile(rb"\.so(?:\.[\d.]+)?\Z")  # asked only where the content is not at hand
_DIST_INFO = re.compile(rb"(?:.*/)?[^/]+\.(?:dist-info|egg-info)(?:/.*)?\Z", re.DOTALL)


def interpreter(head: bytes) -> tuple[bytes, ...]:
    """Return the words of a ``#!`` line, with ``env`` and its options taken away: the program first. Empty without."""
    match = _INTERPRETER.match(head.split(b"\n", 1)[0])
    if not match or not match[1]:
        return ()
    words = [match[1], *(match[2] or b"").split()]
    if words[0].rpartition(b"/")[2] == b"env":
        words = words[1:]
        while words and (words[0].startswith(b"-") or b"=" in words[0]):
            words = words[1:]
    return tuple(words)


def is_elf(head: bytes) -> bool:
    """Tell whether a file is an ELF file that the machine's own loader could map."""
    return head[:4] == b"\x7fELF" and not _device(head)


def _device(head: bytes) -> bool:
    order: Literal["big", "little"] = "big" if head[5:6] == b"\x02" else "little"
    return int.from_bytes(head[18:20], order) in _DEVICE_MACHINES


def kind_of(path: bytes, head: bytes) -> KindName:
    """Return the kind of a regular file by its path (no leading slash) and its first :data:`HEAD_SIZE` bytes."""
    for kind, matches in _ORDER:
        if matches(path, head):
            return kind
    return "binary"


def _is_python(path: bytes, head: bytes) -> bool:
    if path.endswith((b".py", b".pyw")):
        return True
    words = interpreter(head)
    if not words:
        return False
    # What pip and uv write where the interpreter's path is too long for a #! line: a shell that runs Python on it.
    return is_python(words[0]) or head.startswith((b"#!/bin/sh\n'''exec'", b'#!/bin/sh\n"exec"'))


def _is_shell(path: bytes, head: bytes) -> bool:
    words = interpreter(head)
    if words:
        return words[0].rpartition(b"/")[2] in _SHELLS
    name = path.rpartition(b"/")[2]
    if path.endswith(_SHELL_SUFFIXES) or name in _SHELL_NAMES or path in {b"etc/profile", b"etc/environment"}:
        return _is_text(path, head)
    return name in {b"activate", b"deactivate"} and b"/bin/" in b"/" + path and _is_text(path, head)


def _is_text(_: bytes, head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"  # the head ends inside a character
    return True


_ORDER: tuple[tuple[KindName, Callable[[bytes, bytes], bool]], ...] = (
    ("elf", lambda path, head: is_elf(head) or (not head and _LIBRARY.search(path) is not None)),
    ("binary", lambda _, head: head[:4] == b"\x7fELF"),
    ("bytecode", lambda path, _: path.endswith((b".pyc", b".pyo"))),
    ("pth", lambda path, _: path.endswith(b".pth")),
    ("dist_info", lambda path, _: _DIST_INFO.match(path) is not None and not path.endswith(b".py")),
    ("ld_cache", lambda path, _: path == b"etc/ld.so.cache"),
    ("loader", lambda path, _: _LOADER_FILES.match(path) is not None),
    ("python", _is_python),
    ("shell", _is_shell),
    ("script", lambda _, head: bool(interpreter(head))),
    ("json", lambda path, _: path.endswith(b".json")),
    ("text", _is_text),
)

# What later stages read: how owners, the loader and the trace find things. A pattern over the whole path, and the
# size up to which a file is kept. The owners' own list (package databases) stands here too: kinds know no owners.
_KEPT: tuple[tuple[re.Pattern[bytes], int], ...] = tuple(
    (re.compile(pattern + rb"\Z", re.DOTALL), size)
    for pattern, size in (
        # Python: metadata of distributions, editable installs, environments
        (rb"(?:.*/)?[^/]+\.(?:dist-info|egg-info)(?:/[^/]+)?", 8 * MB),
        (rb"(?:.*/)?(?:[^/]+\.(?:pth|egg-link|_pth)|pyvenv\.cfg|EXTERNALLY-MANAGED|EGG-INFO/[^/]+)", MB),
        # Package databases
        (rb"var/lib/dpkg/(?:status|diversions|statoverride|available)", 64 * MB),
        (rb"var/lib/dpkg/(?:status\.d/[^/]+|info/[^/]+\.(?:list|md5sums|conffiles)|alternatives/[^/]+)", 16 * MB),
        (rb"etc/dpkg/dpkg\.cfg(?:\.d/[^/]+)?", MB),
        (rb"(?:var/lib|usr/lib/sysimage|usr/share)/rpm/[^/]+", 256 * MB),
        (rb"lib/apk/db/installed", 64 * MB),
        (rb"(?:.*/)?conda-meta/(?:[^/]+\.json|history)", 32 * MB),
        # The loader
        (rb"etc/(?:ld\.so\.(?:cache|conf|preload)|ld\.so\.conf\.d/[^/]+|ld-musl-[^/]+\.path)", 16 * MB),
        # Users, names, environment
        (rb"etc/(?:passwd|group|nsswitch\.conf|environment|os-release|lsb-release|shells)", MB),
        (rb"usr/lib/os-release", MB),
        # What drivers and toolkits say of themselves, and which libraries they name
        (
            rb"(?:.*/)?(?:version\.(?:txt|json)|VERSION|[^/]+\.icd|gconv-modules(?:\.d/[^/]+)?)|opt/rocm[^/]*/\.info/version[^/]*",
            256 * KB,
        ),
    )
)
_ANY_KEPT = re.compile(b"|".join(b"(?:" + pattern.pattern + b")" for pattern, _ in _KEPT), re.DOTALL)
KEPT_VERSION = 6
"""Raised with every change of what :func:`kept` answers: an index that was made under another rule is made again."""

_SUFFIX_SIZES: dict[bytes, int] = {
    b"py": 8 * MB,
    b"pyw": 8 * MB,
    b"pyc": 16 * MB,
    # Data that can name modules: the trace looks for them.
    b"json": 4 * MB,
    b"jsonl": MB,
    b"toml": 256 * KB,
    b"yaml": MB,
    b"yml": MB,
    b"cfg": 256 * KB,
    b"ini": 256 * KB,
    b"conf": 256 * KB,
    b"cnf": 256 * KB,
    b"properties": 256 * KB,
    b"env": 256 * KB,
    b"xml": 256 * KB,
    b"txt": 256 * KB,
    b"csv": 256 * KB,
    b"tsv": 256 * KB,
    b"pkl": MB,
    b"pickle": MB,
    b"dill": MB,
    b"joblib": MB,
    b"pt": MB,
    b"npy": 64 * KB,
    b"db": MB,
    b"sqlite": MB,
    b"sqlite3": MB,
}
_SMALL_TEXT = 16 * KB  # of a text that could be data by its name, but for those that systems have by the thousand
_SMALL_GZIP = 64 * KB
_THOUSANDS = re.compile(
    rb"(?:usr/(?:share|include|src|lib(?:32|64|exec)?/(?!python))|lib/|lib64/|var/|boot/|proc/|sys/)"
)
# What is no data by its name: code, what a compiler reads, what is packed, and what is looked at.
_NO_DATA = frozenset(
    b"py pyc pyo pyw pyi pyx pxd pxi pyf so a o sh bash zsh fish csh bat ps1 h hh hpp hxx cuh c cc cpp cxx cu inl inc "
    b"f f90 f95 ptx cubin hsaco spv cl metal go rs java class jar js mjs cjs ts map css scss svg cmake "
    b"mk in am ac png jpg jpeg gif ico webp ttf otf woff woff2 eot wav mp3 mp4 pem crt key bz2 xz zst zip tar tgz "
    b"whl egg mo po pot pm pl ph tcl rb lua el elc pth typed npz safetensors gguf parquet arrow".split()
)
_NO_DATA_NAMES = re.compile(rb"(?:Makefile|Dockerfile|LICEN[CS]E|COPYING|NOTICE|AUTHORS|CHANGE(?:S|LOG))\b")
_SCRIPT_SIZE = 8 * MB


def data_by_name(path: bytes) -> bool:
    """Tell by its path whether a file could be data that names modules: no code, no picture, no archive."""
    directory, _, name = path.rpartition(b"/")
    stem, dot, suffix = name.rpartition(b".")
    if (dot and stem and suffix.lower() in _NO_DATA) or _LIBRARY.search(name) or _NO_DATA_NAMES.match(name):
        return False
    return b".dist-info" not in directory and b".egg-info" not in directory


def _is_small_data(path: bytes, head: bytes, size: int) -> bool:
    if not data_by_name(path) or _THOUSANDS.match(path):
        return False
    return head[:2] == b"\x1f\x8b" or (size <= _SMALL_TEXT and _is_text(path, head))


def kept(path: bytes, head: bytes, size: int) -> bool:
    """Tell whether the indexing pass keeps this file whole: later stages read its text, or explain its change by it.

    ``path`` has no leading slash, ``head`` is up to :data:`HEAD_SIZE` bytes, ``size`` is in bytes.
    """
    if head[:4] == b"\x7fELF":
        return False
    name = path.rpartition(b"/")[2]
    limit = _SUFFIX_SIZES.get(name.rpartition(b".")[2], 0) if b"." in name else 0
    if limit and size <= limit:
        return True
    if size <= _SCRIPT_SIZE and (head[:2] == b"#!" or _is_shell(path, head)):
        return True
    if 0 < size <= _SMALL_GZIP and _is_small_data(path, head, size):
        return True
    if _ANY_KEPT.match(path) is None:  # nearly all files: one look instead of a dozen
        return False
    return any(size <= most and pattern.match(path) for pattern, most in _KEPT)
