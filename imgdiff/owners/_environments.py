"""The Python environments of an image: interpreters, virtual environments, and where each looks for packages.

Sites as ``site.getsitepackages`` gives them (CPython's ``Lib/site.py``, Debian's and Fedora's patches of it, PEP 405).
"""

from __future__ import annotations

import re

from imgdiff.model import Environment
from imgdiff.owners._ledger import Ledger, join

_USER_SITE = re.compile(rb"(?:.*/)?\.local/lib/(?:python|pypy)(\d+\.\d+)/site-packages\Z", re.DOTALL)
_VERSION = re.compile(rb"\d+\.\d+")
_MINOR = re.compile(rb"(?:python|pypy)(\d+\.\d+)t?\Z")


def find_environments(ledger: Ledger) -> tuple[Environment, ...]:
    """Return every interpreter and virtual environment of the image, sorted by prefix and version."""
    bases = _bases(ledger)
    venvs = [found for prefix in ledger.survey.venvs if (found := _venv(ledger, prefix, bases)) is not None]
    return tuple(sorted((*venvs, *bases), key=lambda found: (found.prefix, found.version, found.stdlib or b"")))


def _bases(ledger: Ledger) -> list[Environment]:
    venvs = set(ledger.survey.venvs)
    bases: list[Environment] = []
    known: set[tuple[bytes, str]] = set()
    named: set[tuple[bytes, bytes]] = set()  # python3.13 and python3.13t stand side by side
    for stdlib, version in ledger.survey.stdlibs:
        libdir = stdlib.rpartition(b"/")[0]
        prefix = libdir.rpartition(b"/")[0]
        name = stdlib.rpartition(b"/")[2]
        if prefix in venvs or (prefix, name) in named:
            continue
        named.add((prefix, name))
        known.add((prefix, version))
        executable = _executable(ledger, prefix, version, name)
        sites = _base_sites(ledger, prefix, libdir.rpartition(b"/")[2], name, stdlib)
        bases.append(
            Environment(prefix, prefix, executable, version, stdlib, sites, True, _user_sites(ledger, version))
        )
    executables = {environment.executable for environment in bases}
    for path, version in ledger.survey.pythons:
        prefix = path.rpartition(b"/")[0].rpartition(b"/")[0]
        if path in executables or (prefix, version) in known or prefix in venvs:
            continue
        known.add((prefix, version))
        sites = _base_sites(ledger, prefix, b"lib", b"python" + version.encode(), None)
        bases.append(Environment(prefix, prefix, path, version, None, sites, True, _user_sites(ledger, version)))
    return bases


def _executable(ledger: Ledger, prefix: bytes, version: str, first: bytes = b"python") -> bytes | None:
    minor = version.encode()
    for name in (first, b"python" + minor, b"python" + minor + b"t", b"pypy" + minor, b"python3", b"pypy3", b"python"):
        found = ledger.tree.resolve(join(prefix, b"bin/" + name))
        if found is not None and ledger.tree.entries[found].type == "file":
            return found
    return None


def _executable_in(ledger: Ledger, directory: bytes) -> bool:
    return any(_MINOR.match(name) or name in (b"python", b"python3") for name in ledger.tree.children(directory))


def _existing(ledger: Ledger, *candidates: bytes) -> tuple[bytes, ...]:
    found = [ledger.tree.resolve(path) for path in candidates]
    return tuple(dict.fromkeys(path for path in found if path is not None and ledger.tree.is_dir(path)))


def _base_sites(ledger: Ledger, prefix: bytes, libdir: bytes, name: bytes, stdlib: bytes | None) -> tuple[bytes, ...]:
    """The sites of an interpreter itself; ``libdir`` is ``lib`` or ``lib64`` (sys.platlibdir), ``name`` python3.X."""
    source = None if stdlib is None else ledger.text(stdlib + b"/site.py")
    local = join(prefix, b"local/lib/" + name + b"/dist-packages")
    shared = join(prefix, b"lib/python3/dist-packages")
    if source is None:
        debian = prefix == b"usr" and (ledger.tree.is_dir(local) or ledger.tree.is_dir(shared))
    else:
        debian = b"dist-packages" in source
    if debian:
        return _existing(ledger, local, shared, join(prefix, libdir + b"/" + name + b"/dist-packages"))
    prefixes = [prefix]
    # Fedora and its kin put /usr/local before /usr for the interpreter in /usr.
    if prefix == b"usr" and (b"/usr/local" in source if source is not None else libdir == b"lib64"):
        prefixes.insert(0, b"usr/local")
    libdirs = dict.fromkeys((libdir, b"lib"))
    return _existing(ledger, *(join(p, d + b"/" + name + b"/site-packages") for p in prefixes for d in libdirs))


def _user_sites(ledger: Ledger, version: str) -> tuple[bytes, ...]:
    matches = ((site, _USER_SITE.match(site)) for site in ledger.survey.sites)
    return tuple(site for site, match in matches if match and match[1].decode() == version)


def _venv(ledger: Ledger, prefix: bytes, bases: list[Environment]) -> Environment | None:
    path = join(prefix, b"pyvenv.cfg")
    above, _, last = prefix.rpartition(b"/")
    if last == b"bin" and above not in ledger.survey.venvs and _executable_in(ledger, prefix):
        prefix = above  # it may lie beside the interpreter, too (PEP 405)
    text = ledger.text(path)
    if text is None:
        ledger.blind("pyvenv.cfg", "it says which interpreter the environment belongs to, and was not kept", path)
        text = b""
    config = _config(text)
    version = _venv_version(ledger, prefix, config)
    if version is None:
        return None
    home = config.get(b"home")
    base = _home(ledger, home, version, bases) if home else None
    executable = _executable(ledger, prefix, version)
    if base is None and executable is not None:
        base = next((each for each in bases if each.executable == executable and each.version == version), None)
    system_site = config.get(b"include-system-site-packages", b"true").lower() == b"true"  # as site.py
    name = b"python" + version.encode()
    # A free-threaded build has a "t" behind the version; Debian looks into lib/python3/dist-packages of a venv too.
    sites = _existing(
        ledger,
        *(join(prefix, d + b"/" + n + b"/site-packages") for d in (b"lib64", b"lib") for n in (name, name + b"t")),
        *(join(prefix, b"lib/pypy" + version.encode() + b"/site-packages"),),
        *((join(prefix, b"local/lib/" + name + b"/dist-packages"), join(prefix, b"lib/python3/dist-packages"))),
    )
    if system_site and base is not None:
        sites = tuple(dict.fromkeys((*sites, *base.sites)))
    if base is not None:
        base_prefix, stdlib = base.prefix, base.stdlib
    else:
        base_prefix, stdlib = ledger.lexical(home or b"").rpartition(b"/")[0], None
    users = _user_sites(ledger, version) if system_site else ()
    return Environment(prefix, base_prefix, executable, version, stdlib, sites, system_site, users)


def _config(text: bytes) -> dict[bytes, bytes]:
    """The ``key = value`` lines of a pyvenv.cfg, keys in lower case (PEP 405)."""
    pairs = (line.partition(b"=") for line in text.splitlines() if b"=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _venv_version(ledger: Ledger, prefix: bytes, config: dict[bytes, bytes]) -> str | None:
    for key in (b"version", b"version_info"):
        if match := _VERSION.match(config.get(key, b"")):
            return match[0].decode()
    for name in ledger.tree.children(join(prefix, b"lib")):
        if match := _MINOR.match(name):
            return match[1].decode()
    return None


def _home(ledger: Ledger, home: bytes, version: str, bases: list[Environment]) -> Environment | None:
    """The interpreter that a venv's ``home`` names: the directory of the binary that made it."""
    directory = ledger.tree.resolve(home)
    if directory is None:
        return None
    prefix = directory.rpartition(b"/")[0]
    for base in bases:
        if base.prefix == prefix and base.version == version:
            return base
    for name in (b"python" + version.encode(), b"python3", b"python"):
        executable = ledger.tree.resolve(name, directory)
        for base in bases:
            if executable is not None and base.executable == executable and base.version == version:
                return base
    return None
