"""Files that a fixture's tree can't hold, made by rule: links, devices, ELF files, bytecode, wheels' dist-infos, dpkg's
database. Each rule is a table in ``case.toml``; unknown keys are refused."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from tests.support.elf import Elf, elf_bytes
from tests.support.images import Member


class MissingPython(Exception):  # noqa: N818  it is no error: a test that needs this minor is skipped
    """A case holds bytecode of a Python minor that is not on this machine."""


class ElfRule(msgspec.Struct, forbid_unknown_fields=True):
    """An ELF file, see :class:`tests.support.elf.Elf`. ``text`` and ``build_id`` are hexadecimal; ``sections`` maps
    names to text."""

    soname: str | None = None
    needed: list[str] = []
    runpath: str | None = None
    rpath: str | None = None
    interpreter: str | None = None
    exports: list[str] = []
    imports: list[str] = []
    strings: list[str] = []
    text: str = ""
    files: list[str] = []
    comment: str = "GCC: (Ubuntu 13.3.0-6ubuntu2) 13.3.0"
    build_id: str | None = None
    sections: dict[str, str] = {}

    def make(self) -> bytes:
        """Return the file's bytes."""
        return elf_bytes(
            Elf(
                soname=self.soname,
                needed=self.needed,
                runpath=self.runpath,
                rpath=self.rpath,
                interpreter=self.interpreter,
                exports=self.exports,
                imports=self.imports,
                strings=self.strings,
                text=bytes.fromhex(self.text),
                files=self.files,
                comment=self.comment,
                build_id=bytes.fromhex(self.build_id) if self.build_id else None,
                sections=[(name, text.encode()) for name, text in self.sections.items()],
            )
        )


class PycRule(msgspec.Struct, forbid_unknown_fields=True):
    """Bytecode of a source of the same layer, compiled by a Python of this minor (PEP 552). ``shift`` is added to the
    source's mtime in the header, so that it does not fit."""

    source: str
    python: str
    invalidation: Literal["timestamp", "checked-hash", "unchecked-hash"] = "timestamp"
    shift: int = 0
    optimise: int = 0


class Made(msgspec.Struct, forbid_unknown_fields=True):
    """One member of a tree that is made: exactly one of the keys from ``symlink`` to ``opaque`` says what."""

    tree: str
    path: str
    symlink: str | None = None
    hardlink: str | None = None
    dir: bool = False
    text: str | None = None
    hex: str | None = None
    elf: ElfRule | None = None
    pyc: PycRule | None = None
    fifo: bool = False
    char: list[int] | None = None
    block: list[int] | None = None
    whiteout: bool = False
    opaque: bool = False
    mode: int | None = None
    uid: int = 0
    gid: int = 0
    mtime: int | None = None
    xattrs: dict[str, str] = {}


class Attributes(msgspec.Struct, forbid_unknown_fields=True):
    """Attributes of the members of a tree whose path matches a pattern (``*`` matches slashes too)."""

    tree: str
    pattern: str
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    mtime: int | None = None


class Wheel(msgspec.Struct, forbid_unknown_fields=True):
    """A dist-info as ``uv pip install`` (or pip) writes it, over files of the same layer.

    ``files`` are patterns of paths relative to ``site``, with ``../`` for what lies outside. ``console_scripts`` makes
    the scripts of that group in ``<prefix>/bin``.
    """

    tree: str
    site: str
    name: str
    version: str
    files: list[str]
    installer: Literal["uv", "pip"] = "uv"
    summary: str = ""
    requires: list[str] = []
    top_level: list[str] = []
    entry_points: dict[str, dict[str, str]] = {}
    console_scripts: bool = True
    record: bool = True
    tag: str = "py3-none-any"


class Package(msgspec.Struct, forbid_unknown_fields=True):
    """One package of dpkg's database; ``files`` are patterns of absolute paths of the same layer."""

    name: str
    version: str
    files: list[str]
    architecture: str = "amd64"


class Dpkg(msgspec.Struct, forbid_unknown_fields=True):
    """dpkg's status file and its lists and md5sums, over files of the same layer."""

    tree: str
    packages: list[Package]


def special(made: Made, files: Mapping[str, Member], mtime: int) -> Member:
    """Return the member that one ``made`` table stands for. ``files`` are those of the layer so far."""
    when = made.mtime if made.mtime is not None else mtime
    kinds: dict[str, Member] = {}
    path = made.path.strip("/")
    if made.symlink is not None:
        kinds["symlink"] = Member(path, type="symlink", target=made.symlink)
    if made.hardlink is not None:
        kinds["hardlink"] = Member(path, type="hardlink", target=made.hardlink.strip("/"))
    for name, flag in (("dir", made.dir), ("fifo", made.fifo)):
        if flag:
            kinds[name] = Member(path, type="dir" if name == "dir" else "fifo")
    if made.char is not None:
        kinds["char"] = Member(path, type="char", device=(made.char[0], made.char[1]))
    if made.block is not None:
        kinds["block"] = Member(path, type="block", device=(made.block[0], made.block[1]))
    if made.text is not None:
        kinds["text"] = Member(path, made.text.encode("utf-8", "surrogateescape"))
    if made.hex is not None:
        kinds["hex"] = Member(path, bytes.fromhex(made.hex))
    if made.elf is not None:
        kinds["elf"] = Member(path, made.elf.make(), mode=0o755 if made.elf.interpreter else None)
    if made.pyc is not None:
        kinds["pyc"] = Member(path, _bytecode(made.pyc, files))
    parent, slash, name = path.rpartition("/")
    if made.whiteout:
        kinds["whiteout"] = Member(f"{parent}{slash}.wh.{name}")
    if made.opaque:
        kinds["opaque"] = Member(f"{path}/.wh..wh..opq" if path else ".wh..wh..opq")
    if len(kinds) != 1:
        raise ValueError(f"{made.tree}: {made.path}: one of its keys must say what it is, not {sorted(kinds)}")
    (member,) = kinds.values()
    return Member(
        member.path,
        member.content,
        member.type,
        member.target,
        made.mode if made.mode is not None else member.mode,
        made.uid,
        made.gid,
        when,
        {name: value.encode("utf-8", "surrogateescape") for name, value in made.xattrs.items()},
        member.device,
    )


def changed(member: Member, attributes: Attributes) -> Member:
    """Return the member with these attributes, where its path matches."""
    if not fnmatch.fnmatchcase(str(member.path), attributes.pattern.strip("/")):
        return member
    return Member(
        member.path,
        member.content,
        member.type,
        member.target,
        member.mode if attributes.mode is None else attributes.mode,
        member.uid if attributes.uid is None else attributes.uid,
        member.gid if attributes.gid is None else attributes.gid,
        member.mtime if attributes.mtime is None else attributes.mtime,
        member.xattrs,
        member.device,
    )


# --------------------------------------------------------------------------------------------------------------------
# Wheels
# --------------------------------------------------------------------------------------------------------------------


def dist_info(wheel: Wheel, files: Mapping[str, Member], mtime: int) -> Iterator[Member]:
    """Yield a wheel's dist-info and console scripts (PyPA, "Recording installed projects")."""
    site = wheel.site.strip("/")
    folder = f"{wheel.name.replace('-', '_')}-{wheel.version}.dist-info"
    owned = [path for path, member in files.items() if member.type == "file" and _listed(wheel, site, path)]
    written: dict[str, bytes] = {}
    for name, value in wheel.entry_points.get("console_scripts", {}).items() if wheel.console_scripts else ():
        prefix = site.rpartition("/lib/")[0]
        written[f"{prefix}/bin/{name}"] = _script(prefix, value, wheel.installer)
    base = f"{site}/{folder}"
    written[f"{base}/INSTALLER"] = wheel.installer.encode() + (b"\n" if wheel.installer == "pip" else b"")
    written[f"{base}/METADATA"] = _metadata(wheel)
    written[f"{base}/REQUESTED"] = b""
    written[f"{base}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: setuptools (80.9.0)\nRoot-Is-Purelib: true\nTag: {wheel.tag}\n\n"
    ).encode()
    if wheel.entry_points:
        groups = (
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in sorted(points.items()))
            for group, points in sorted(wheel.entry_points.items())
        )
        written[f"{base}/entry_points.txt"] = "\n".join(groups).encode()
    if wheel.top_level:
        written[f"{base}/top_level.txt"] = "".join(f"{name}\n" for name in wheel.top_level).encode()
    if wheel.record:
        rows = [_row(site, path, files[path].content) for path in owned]
        rows += [_row(site, path, content) for path, content in written.items()]
        record = "".join(sorted(rows)) + f"{folder}/RECORD,,\n"
        written[f"{base}/RECORD"] = record.encode()
    for path, content in written.items():
        yield Member(path, content, mode=0o755 if "/bin/" in path else None, mtime=mtime)


def _listed(wheel: Wheel, site: str, path: str) -> bool:
    relative = os.path.relpath(path, site)
    if path.rpartition("/")[2].startswith(".wh."):
        return False
    return any(fnmatch.fnmatchcase(relative, pattern) for pattern in wheel.files)


def _row(site: str, path: str, content: bytes) -> str:
    relative = os.path.relpath(path, site)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    quoted = f'"{relative}"' if "," in relative else relative
    return f"{quoted},sha256={digest},{len(content)}\n"


def _metadata(wheel: Wheel) -> bytes:
    lines = ["Metadata-Version: 2.4", f"Name: {wheel.name}", f"Version: {wheel.version}"]
    lines += [f"Summary: {wheel.summary}"] if wheel.summary else []
    lines += [f"Requires-Dist: {requirement}" for requirement in wheel.requires]
    return ("\n".join(lines) + "\n").encode()


def _script(prefix: str, value: str, installer: str) -> bytes:
    module, _, function = value.partition(":")
    head = f"#!/{prefix}/bin/python{'3' if installer == 'uv' else ''}\n# -*- coding: utf-8 -*-\n"
    if installer == "uv":
        return (
            f"{head}import sys\nfrom {module} import {function}\n"
            'if __name__ == "__main__":\n'
            '    if sys.argv[0].endswith("-script.pyw"):\n        sys.argv[0] = sys.argv[0][:-11]\n'
            '    elif sys.argv[0].endswith(".exe"):\n        sys.argv[0] = sys.argv[0][:-4]\n'
            f"    sys.exit({function}())\n"
        ).encode()
    return (
        f"{head}import re\nimport sys\nfrom {module} import {function}\n"
        "if __name__ == '__main__':\n"
        "    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])\n"
        f"    sys.exit({function}())\n"
    ).encode()


# --------------------------------------------------------------------------------------------------------------------
# dpkg
# --------------------------------------------------------------------------------------------------------------------


def dpkg_database(dpkg: Dpkg, files: Mapping[str, Member], mtime: int) -> Iterator[Member]:
    """Yield /var/lib/dpkg/status and each package's list and md5sums (deb-md5sums(5))."""
    stanzas = []
    for package in sorted(dpkg.packages, key=lambda package: package.name):
        owned = sorted(
            path
            for path, member in files.items()
            if member.type in ("file", "symlink")
            and any(fnmatch.fnmatchcase(f"/{path}", pattern) for pattern in package.files)
        )
        stanzas.append(
            f"Package: {package.name}\nStatus: install ok installed\nArchitecture: {package.architecture}\n"
            f"Version: {package.version}\nDescription: {package.name}\n"
        )
        parents = sorted({str(parent) for path in owned for parent in Path(f"/{path}").parents} - {"/"})
        listed = "".join(f"{line}\n" for line in ("/.", *sorted([*parents, *(f"/{path}" for path in owned)])))
        sums = "".join(
            f"{hashlib.md5(files[path].content, usedforsecurity=False).hexdigest()}  {path}\n"
            for path in owned
            if files[path].type == "file"
        )
        for name, text in (("list", listed), ("md5sums", sums)):
            yield Member(f"var/lib/dpkg/info/{package.name}.{name}", text.encode(), mtime=mtime)
    yield Member("var/lib/dpkg/status", "\n".join(stanzas).encode(), mtime=mtime)


# --------------------------------------------------------------------------------------------------------------------
# Bytecode
# --------------------------------------------------------------------------------------------------------------------

_COMPILE = """
import importlib.util, marshal, struct, sys
source, path, mode, mtime = sys.stdin.buffer.read(), sys.argv[1], sys.argv[2], int(sys.argv[3])
code = compile(source, path, "exec", dont_inherit=True, optimize=int(sys.argv[4]))
if mode == "timestamp":
    rest = struct.pack("<III", 0, mtime & 0xFFFFFFFF, len(source) & 0xFFFFFFFF)
else:
    rest = struct.pack("<I", 3 if mode == "checked-hash" else 1) + importlib.util.source_hash(source)
sys.stdout.buffer.write(importlib.util.MAGIC_NUMBER + rest + marshal.dumps(code))
"""


def _bytecode(rule: PycRule, files: Mapping[str, Member]) -> bytes:
    source = files[rule.source.strip("/")]
    return _compiled(
        rule.python,
        source.content,
        "/" + rule.source.strip("/"),
        rule.invalidation,
        int(source.mtime) + rule.shift,
        rule.optimise,
    )


@cache
def _compiled(python: str, source: bytes, path: str, mode: str, mtime: int, optimise: int) -> bytes:
    command = [interpreter(python), "-I", "-S", "-c", _COMPILE, path, mode, str(mtime), str(optimise)]
    with tempfile.TemporaryDirectory() as directory:  # nothing of this machine's working directory gets into it
        return subprocess.run(command, input=source, capture_output=True, check=True, cwd=directory).stdout


@cache
def interpreter(minor: str) -> str:
    """Return a Python of this minor: this one, one of IMGDIFF_TEST_PYTHONS, or on PATH. Raises MissingPython."""
    if minor == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    named: Sequence[str] = [path for path in os.environ.get("IMGDIFF_TEST_PYTHONS", "").split(os.pathsep) if path]
    for candidate in [*named, shutil.which(f"python{minor}")]:
        if candidate is None:
            continue
        asked = [candidate, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, check=False, text=True)
        if done.returncode == 0 and done.stdout.strip() == minor:
            return candidate
    raise MissingPython(f"needs a Python {minor} (name it in IMGDIFF_TEST_PYTHONS)")
