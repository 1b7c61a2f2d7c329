"""Two builds of one Dockerfile a day apart, made for real: an interpreter, wheels that pip installed, dpkg's state.

A :class:`Build` is an image in the making; ``files`` is what its last layer holds. All builds of one :class:`Shop`
lie in one OCI layout under tags, over one base layer, so that the base is written and read once.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import io
import marshal
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.elf import Elf, elf_bytes
from tests.support.images import Member, digest_of, full_config, put_blob, put_json, tar_bytes, write_index

MINOR = f"python{sys.version_info[0]}.{sys.version_info[1]}"
TAG = str(sys.implementation.cache_tag)
SITE = f"usr/local/lib/{MINOR}/site-packages"
MONDAY, TUESDAY = 1_750_000_000, 1_750_086_400

# A part of the standard library is enough for the application; what is left out is missing from both images.
_LEFT_OUT = (
    *("site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "config-*", "tkinter", "lib2to3"),
    *("ensurepip", "distutils", "pydoc_data", "pydoc.py", "unittest", "xml", "xmlrpc", "wsgiref", "sqlite3", "dbm"),
    *("curses", "msilib", "asyncio", "multiprocessing", "concurrent", "email", "http", "urllib", "html", "venv"),
    *("lib-dynload", "__pycache__", "turtle.py", "doctest.py", "pdb.py", "zipapp.py", "tarfile.py", "ftplib.py"),
    *("smtplib.py", "imaplib.py", "nntplib.py", "poplib.py", "ssl.py", "socketserver.py", "mailbox.py", "cgi.py"),
)

APP: Mapping[str, str] = {
    "srv/app/__init__.py": "NAME = 'app'\n",
    "srv/app/__main__.py": (
        "import sys\n\nfrom app.engine import Engine\n\n\n"
        "def main():\n    engine = Engine()\n    for line in sys.stdin:\n        print(engine.answer(line))\n\n\n"
        "if __name__ == '__main__':\n    main()\n"
    ),
    "srv/app/engine.py": (
        '"""The engine: it scores words."""\n\nfrom kernels import ops\n\n\n'
        "class Engine:\n    def answer(self, line):\n        return ops.score(line)\n"
    ),
}

_NATIVE = Elf(needed=["libkernel.so.1"], exports=["PyInit__native"], imports=["kernel_score"])
_WHEELS: Mapping[tuple[str, str], Mapping[str, str | bytes]] = {
    ("kernels", "1.4.0"): {
        "kernels/__init__.py": "from kernels import _native\nfrom kernels.ops import score\n",
        "kernels/_native.abi3.so": elf_bytes(_NATIVE),
        "kernels/ops.py": (
            "from kernels.settings import load\n\nBIAS = 3\n\n\ndef score(text):\n    # words weigh by their length\n"
            "    scale = load()['scale']\n    return sum(len(word) * scale + BIAS for word in text.split())\n"
        ),
        "kernels/settings.py": (
            "import json\n\nSETTINGS = '/etc/engine/engine.conf'\n\n\n"
            "def load():\n    with open(SETTINGS, encoding='utf-8') as file:\n        return json.load(file)\n"
        ),
        "kernels/cli.py": "from kernels.ops import score\n\n\ndef main():\n    print(score('a b'))\n",
        "kernels-1.4.0.dist-info/entry_points.txt": "[console_scripts]\nkernels-bench = kernels.cli:main\n",
    },
    ("colours", "0.2.1"): {
        "colours/__init__.py": "RED = '\\x1b[31m'\n\n\ndef paint(text):\n    return RED + text\n",
    },
}

_VLLM = ("vllm", "0.11.0")
_VLLM_MODULES: Mapping[str, str | bytes] = {
    "vllm/__init__.py": "from vllm.version import __version__\n",
    "vllm/version.py": "__version__ = '0.11.0'\n",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/openai/__init__.py": "",
    "vllm/entrypoints/openai/api_server.py": (
        "from vllm.v1.executor.multiproc_executor import WorkerProc\n\n\n"
        "def serve():\n    return WorkerProc().run('hello')\n\n\nif __name__ == '__main__':\n    serve()\n"
    ),
    "vllm/v1/__init__.py": "",
    "vllm/v1/engine/__init__.py": "",
    "vllm/v1/engine/core.py": "from vllm.v1.executor.abstract import Executor\n\n\nclass EngineCore:\n    pass\n",
    "vllm/v1/executor/__init__.py": "",
    "vllm/v1/executor/abstract.py": "class Executor:\n    pass\n",
    "vllm/v1/executor/multiproc_executor.py": (
        "from vllm.v1.executor.abstract import Executor\nfrom vllm.v1.worker.gpu_worker import Worker\n\n\n"
        "class WorkerProc(Executor):\n    def run(self, text):\n        return Worker().run(text)\n"
    ),
    "vllm/v1/worker/__init__.py": "",
    "vllm/v1/worker/gpu_worker.py": (
        "from kernels import ops\n\n\nclass Worker:\n    def run(self, text):\n        return ops.score(text)\n"
    ),
}


def bytecode(source: bytes, path: str, mtime: int, size: int | None = None) -> bytes:
    """Return the ``.pyc`` that this Python writes for a source at an absolute path (PEP 552, by time)."""
    code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    stamp = struct.pack("<III", 0, mtime & 0xFFFFFFFF, len(source) if size is None else size)
    return importlib.util.MAGIC_NUMBER + stamp + marshal.dumps(code)


def cached(source: str) -> str:
    """Return where the ``.pyc`` of a source lies (PEP 3147)."""
    directory, _, name = source.rpartition("/")
    return f"{directory}/__pycache__/{name[: -len('.py')]}.{TAG}.pyc"


@dataclass
class Build:
    """One build: its last layer by path, its config."""

    files: dict[str, Member]
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ("python3", "-m", "app")
    user: str = ""

    def copy(self) -> Build:
        return replace(self, files=dict(self.files), env=dict(self.env), labels=dict(self.labels))

    def put(self, path: str, content: str | bytes, mtime: int = MONDAY, mode: int = 0o644) -> None:
        """Write a file."""
        data = content.encode() if isinstance(content, str) else content
        self.files[path] = Member(path, data, mtime=mtime, mode=mode)

    def text(self, path: str) -> str:
        return self.files[path].content.decode()

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace one piece of a text, which must be there."""
        text = self.text(path)
        assert text.count(old) == 1, (path, old)
        self.put(path, text.replace(old, new), int(self.files[path].mtime), self.files[path].mode or 0o644)

    def sources(self) -> list[str]:
        return sorted(path for path in self.files if path.endswith(".py"))

    def compile(self, *paths: str, mtime: int | None = None) -> None:
        """Write the ``.pyc`` of sources (all of them by default), which may be set to another time first."""
        for path in paths or self.sources():
            source = self.files[path]
            if mtime is not None:
                source = self.files[path] = replace(source, mtime=mtime)
            compiled = bytecode(source.content, f"/{path}", int(source.mtime))
            self.put(cached(path), compiled, int(source.mtime))

    def config(self) -> dict[str, Any]:
        return {
            "Env": [f"{name}={value}" for name, value in self.env.items()],
            "Entrypoint": list(self.entrypoint),
            "WorkingDir": "/srv",
            "User": self.user,
            "Labels": self.labels,
        }

    def layer(self) -> bytes:
        """Return the layer as a tar, directories included."""
        members: list[Member] = []
        seen: set[str] = set()
        for path in sorted(self.files):
            parts = path.split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                directory = "/".join(parts[:depth])
                if directory not in seen:
                    seen.add(directory)
                    members.append(Member(directory, type="dir", mtime=MONDAY))
            members.append(self.files[path])
        return tar_bytes(members)


class Shop:
    """Builds images over one base in one layout."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "images"
        self._base = tar_bytes(_base())
        self._base_blob = put_blob(self._directory, self._base, "application/vnd.oci.image.layer.v1.tar")
        self._base_digest = digest_of(self._base)
        self._manifests: list[dict[str, Any]] = []
        self.plain = _plain(directory)
        self.vllm = _with_vllm(self.plain, directory)

    def put(self, build: Build) -> str:
        """Write an image; returns a reference to it."""
        layer = build.layer()
        diff_ids = [self._base_digest, digest_of(layer)]
        whole = {
            "architecture": "amd64",
            "os": "linux",
            "config": build.config(),
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
        vendor = "application/vnd.oci.image."
        manifest = {
            "schemaVersion": 2,
            "mediaType": vendor + "manifest.v1+json",
            "config": put_json(self._directory, full_config([], whole), vendor + "config.v1+json"),
            "layers": [self._base_blob, put_blob(self._directory, layer, vendor + "layer.v1.tar")],
        }
        tag = f"n{len(self._manifests)}"
        descriptor = put_json(self._directory, manifest, vendor + "manifest.v1+json")
        self._manifests.append({**descriptor, "annotations": {"org.opencontainers.image.ref.name": tag}})
        write_index(self._directory, self._manifests)
        return f"oci:{self._directory}:{tag}"


# --------------------------------------------------------------------------------------------------------------------
# The base: the running interpreter
# --------------------------------------------------------------------------------------------------------------------


@functools.cache
def _base() -> list[Member]:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        _interpreter(root)
        return [*_members(root), Member("usr/local/bin/python3", type="symlink", target=MINOR, mtime=MONDAY)]


def _interpreter(root: Path) -> None:
    binary = Path(sys.executable).resolve()
    (root / "usr/local/bin").mkdir(parents=True)
    shutil.copy2(binary, root / "usr/local/bin" / MINOR)
    stdlib = Path(sysconfig.get_path("stdlib"))
    target = root / f"usr/local/lib/{MINOR}"
    shutil.copytree(stdlib, target, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    site = target / "site.py"  # Debian's own looks into dist-packages; the image is one whose Python was built
    site.write_text(site.read_text("utf-8").replace("dist-packages", "site-packages"), "utf-8")
    (target / "lib-dynload").mkdir()
    for name in ("math", "_json", "_struct", "_ctypes"):
        for extension in (stdlib / "lib-dynload").glob(f"{name}.*.so"):
            shutil.copy2(extension, target / "lib-dynload")
    libraries: set[str] = set()
    for path in (binary, *(target / "lib-dynload").glob("*.so")):
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        libraries.update(re.findall(r"(/\S+)", listed))
    for library in sorted(libraries):
        inside = library.startswith(sys.base_prefix + "/lib")
        copy = root / (f"usr/local/lib/{Path(library).name}" if inside else f"usr{library}")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copy2(library, copy)
    for name in ("lib", "lib64"):
        if (root / "usr" / name).is_dir():
            (root / name).symlink_to(f"usr/{name}")
    (root / "etc/ld.so.conf.d").mkdir(parents=True)
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    (root / "etc/ld.so.conf.d/libc.conf").write_text("/usr/local/lib\n")
    multiarch = [path.name for path in (root / "usr/lib").glob("*-linux-*")] if (root / "usr/lib").is_dir() else []
    (root / "etc/ld.so.conf.d/multiarch.conf").write_text("".join(f"/usr/lib/{name}\n" for name in multiarch))
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")


def _members(root: Path) -> Iterator[Member]:
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            yield Member(name, type="symlink", target=os.readlink(path), mtime=MONDAY)  # noqa: PTH115 - as text
        elif path.is_dir():
            yield Member(name, type="dir", mtime=MONDAY)
        else:
            yield Member(name, path.read_bytes(), mtime=MONDAY, mode=path.stat().st_mode & 0o777)


# --------------------------------------------------------------------------------------------------------------------
# Wheels, installed by pip
# --------------------------------------------------------------------------------------------------------------------


def _wheel(directory: Path, name: str, version: str, files: Mapping[str, str | bytes]) -> Path:
    """Write a wheel (binary distribution format 1.0) and return its path."""
    info = f"{name}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {name}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand (1)\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in contents.items():
        content = text if isinstance(text, bytes) else text.encode()
        rows.append(f"{path},{_row_digest(content)},{len(content)}")
    rows.append(f"{info}/RECORD,,")
    target = directory / f"{name}-{version}-py3-none-any.whl"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in {**contents, f"{info}/RECORD": "\n".join(rows) + "\n"}.items():
            archive.writestr(zipfile.ZipInfo(path, (2025, 1, 1, 0, 0, 0)), text)
    target.write_bytes(data.getvalue())
    return target


def _installed(directory: Path, wheels: Mapping[tuple[str, str], Mapping[str, str | bytes]]) -> dict[str, Member]:
    """Write wheels and install them."""
    return install([_wheel(directory, name, version, files) for (name, version), files in wheels.items()])


def install(paths: Sequence[Path], prefix: str = "/usr/local") -> dict[str, Member]:
    """Install wheels with pip below a root of their own; returns what it wrote, as it would in a Dockerfile."""
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--ignore-installed"]
        options = ["--no-warn-script-location", "--disable-pip-version-check", "--root", temporary]
        subprocess.run(
            [*command, *options, "--prefix", prefix, *paths],
            check=True,
            env={**os.environ, "PIP_CONFIG_FILE": os.devnull, "PYTHONWARNINGS": "ignore"},
        )
        members = {str(member.path): member for member in _members(Path(temporary)) if member.type == "file"}
    for path in [path for path in members if path.startswith(f"{prefix[1:]}/bin/")]:
        _move_interpreter(members, path, prefix)
    return members


def _move_interpreter(members: dict[str, Member], path: str, prefix: str) -> None:
    """Name the image's interpreter in a console script instead of the one that installed it, in RECORD too."""
    old = members[path].content
    line = f"#!{prefix}/bin/python3\n".encode()
    new = re.sub(rb"\A(?:#!/bin/sh\n'''exec' .*\n' '''|#!.*(?<!/sh))\n", line, old)
    members[path] = replace(members[path], content=new)
    for record in [record for record in members if record.endswith(".dist-info/RECORD")]:
        row = f"{_row_digest(old)},{len(old)}".encode()
        content = members[record].content.replace(row, f"{_row_digest(new)},{len(new)}".encode())
        members[record] = replace(members[record], content=content)


def _row_digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


# --------------------------------------------------------------------------------------------------------------------
# What a Dockerfile leaves behind
# --------------------------------------------------------------------------------------------------------------------

VIM = {
    "usr/bin/vim.basic": 0o755,
    "usr/share/vim/vim90/syntax/c.vim": 0o644,
    "usr/share/vim/vim90/doc/help.txt": 0o644,
    "usr/share/doc/vim/changelog.Debian.gz": 0o644,
    "etc/vim/vimrc": 0o644,
}
LIBRARY = "usr/local/lib/libkernel.so.1"
OTHER_LIBRARY = "usr/local/lab/libkernel.so.1"  # where no loader looks


def _status(vim: str) -> str:
    packages = (("vim", vim, "amd64"), ("libkernel1", "1.0-1", "amd64"), ("base-files", "12.4", "amd64"))
    return "\n".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: {arch}\nVersion: {version}\n"
        f"Description: {name}\n"
        for name, version, arch in packages
    )


def vim(build: Build, version: str) -> None:
    """Install a version of vim, as dpkg does."""
    made = Elf(
        needed=["libc.so.6"],
        interpreter="/lib64/ld-linux-x86-64.so.2",
        text=hashlib.sha256(version.encode()).digest(),
        strings=[f"VIM {version}"],
    )
    for path, mode in VIM.items():
        content = elf_bytes(made) if path == "usr/bin/vim.basic" else f'" {path} of {version}\n'.encode()
        build.put(path, content, mode=mode)
    listed = "".join(f"/{path}\n" for path in sorted(VIM))
    build.put("var/lib/dpkg/info/vim.list", listed)
    sums = [f"{hashlib.md5(build.files[path].content).hexdigest()}  {path}\n" for path in sorted(VIM)]
    build.put("var/lib/dpkg/info/vim.md5sums", "".join(sums))
    build.put("var/lib/dpkg/status", _status(version))


def kernel(text: bytes = b"\x31\xc0\xc3\x90\x90\x90\x90\x90") -> bytes:
    """Return the library that the application loads; ``text`` is its code."""
    return elf_bytes(Elf(soname="libkernel.so.1", exports=["kernel_score"], text=text, strings=["score kernel"]))


def system(build: Build) -> None:
    """Fill in the state that apt, dpkg and their like leave in an image."""
    build.put(LIBRARY, kernel(), mode=0o755)
    build.put(OTHER_LIBRARY, kernel(b"\x31\xc0\x40\xc3\x90\x90\x90\x90"), mode=0o755)
    build.put("var/lib/dpkg/info/libkernel1.list", f"/{LIBRARY}\n/etc/engine/engine.conf\n")
    build.put("etc/engine/engine.conf", '{"scale": 2}\n')
    vim(build, "2:9.0.1378-2")
    build.put("etc/group", "root:x:0:\ndaemon:x:1:\n")
    build.put("var/lib/dpkg/status-old", "Package: vim\n")
    build.put("var/lib/apt/extended_states", "Package: vim\nAuto-Installed: 1\n")
    build.put("var/lib/apt/lists/deb.debian.org_debian_dists_bookworm_InRelease", "Date: Mon, 16 Jun 2025\n")
    build.put("var/cache/apt/pkgcache.bin", b"\0\1monday")
    build.put("var/cache/debconf/config.dat-old", "Name: tz\n")
    build.put("var/log/dpkg.log", "2025-06-15 install vim\n")
    build.put("var/log/apt/history.log", "Start-Date: 2025-06-15\n")
    build.put("root/.cache/pip/http/1/2/3", b"cached monday")
    build.put("root/.cache/triton/ab12/kernel.json", '{"num_warps": 4}\n')
    build.put("var/cache/fontconfig/a1.cache-8", b"fonts monday")
    build.put("etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    build.put("var/lib/dbus/machine-id", "0123456789abcdef0123456789abcdef\n")
    build.put("etc/hostname", "buildkitsandbox1\n")
    loader_caches(build, "monday")


def loader_caches(build: Build, day: str, more: Mapping[str, bytes] | None = None) -> None:
    """Have ``ldconfig -r`` write the loader's cache and its own speed-up over the image's libraries; a speed-up holds
    inodes and times, so that no two builds have the same."""
    ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        (root / "var/cache/ldconfig").mkdir(parents=True)
        for path, content in {**_loaded(), LIBRARY: build.files[LIBRARY].content, **(more or {})}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        cache, speed_up = root / "etc/ld.so.cache", root / "var/cache/ldconfig/aux-cache"
        if ldconfig is not None and os.geteuid() == 0:  # it changes its root
            subprocess.run([ldconfig, "-X", "-r", temporary], capture_output=True, check=True)
            build.put("etc/ld.so.cache", cache.read_bytes())
        content = speed_up.read_bytes() if speed_up.exists() else b"glibc-ld.so.auxcache-1.0"
        build.put("var/cache/ldconfig/aux-cache", content + day.encode(), mode=0o600)


@functools.cache
def _loaded() -> dict[str, bytes]:
    """The base's libraries and the loader's configuration: what ldconfig reads."""
    files = {str(member.path): member.content for member in _base() if member.type == "file"}
    return {path: content for path, content in files.items() if ".so" in Path(path).name and "python" not in path} | {
        path: content for path, content in files.items() if path.startswith("etc/ld.so.conf") or "libpython" in path
    }


def _plain(directory: Path) -> Build:
    build = Build(_installed(directory, _WHEELS), {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"})
    for path, content in APP.items():
        build.put(path, content)
    build.compile(mtime=MONDAY)
    system(build)
    return build


def _with_vllm(plain: Build, directory: Path) -> Build:
    build = plain.copy()
    build.files.update(_installed(directory, {_VLLM: _VLLM_MODULES}))
    build.compile(mtime=MONDAY)
    build.entrypoint = ("python3", "-m", "vllm.entrypoints.openai.api_server")
    build.env |= {"VLLM_BUILD_COMMIT": "1a2b3c4d", "VLLM_BUILD_URL": "https://ci.example/1"}
    build.labels |= {"org.opencontainers.image.revision": "1a2b3c4d"}
    return build
