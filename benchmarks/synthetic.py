"""Images of many small files, for measuring: distributions with RECORD, sources, bytecode and data, in many layers."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import io
import marshal
import struct
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

SITE = "usr/local/lib/python3.11/site-packages"
MTIME = 1_750_000_000
MODULES = 60  # of a distribution, each with its bytecode and a data file beside it
_TAG = importlib.util.cache_from_source("x.py").removeprefix("__pycache__/x.")

Member = tuple[str, bytes]


def distribution(name: str, version: str, uses: Iterable[str], modules: int = MODULES) -> Iterator[Member]:
    """Yield the members of one installed wheel. Its package imports its first modules and what it ``uses``."""
    files: list[Member] = []
    head = "".join(f"import {used}\n" for used in uses)
    head += "".join(f"from {name} import part_{at}\n" for at in range(modules // 4))
    sources = {f"{name}/__init__.py": f"__version__ = {version!r}\n{head}"}
    for at in range(modules):
        body = "".join(f"def step_{number}(x):\n    return x + {at} * {number}\n\n\n" for number in range(6))
        sources[f"{name}/part_{at}.py"] = f"import os\nimport json\n\nLIMIT = {at}\n\n\n{body}"
        files.append((f"{name}/data/table_{at}.json", f'{{"of": "{name}", "at": {at}}}\n'.encode()))
    for path, text in sources.items():
        content = text.encode()
        package, _, file = path.rpartition("/")
        files.append((path, content))
        files.append((f"{package}/__pycache__/{file.removesuffix('.py')}.{_TAG}", compiled(path, content)))
    info = f"{name}-{version}.dist-info"
    files.append((f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()))
    files.append((f"{info}/WHEEL", b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"))
    record = "".join(f"{path},sha256={digest64(content)},{len(content)}\n" for path, content in files)
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode()))
    for path, content in files:
        yield f"{SITE}/{path}", content


def compiled(path: str, content: bytes) -> bytes:
    code = marshal.dumps(compile(content, f"/{SITE}/{path}", "exec"))
    return importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, MTIME, len(content)) + code


def digest64(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def layer(members: Iterable[Member], blobs: Path) -> tuple[tuple[str, str, int], int]:
    """Write a gzip layer with these members and their directories; returns it and the number of files."""
    blobs.mkdir(parents=True, exist_ok=True)
    plain = io.BytesIO()
    made: set[str] = set()
    count = 0
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in members:
            parts = path.split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                directory = "/".join(parts[:depth])
                if directory not in made:
                    made.add(directory)
                    info = tarfile.TarInfo(directory)
                    info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, MTIME
                    archive.addfile(info)
            info = tarfile.TarInfo(path)
            info.size, info.mode, info.mtime = len(content), 0o644, MTIME
            archive.addfile(info, io.BytesIO(content))
            count += 1
    blob = gzip.compress(plain.getvalue(), 1, mtime=0)
    digest = hashlib.sha256(blob).hexdigest()
    (blobs / digest).write_bytes(blob)
    diff_id = "sha256:" + hashlib.sha256(plain.getvalue()).hexdigest()
    return (diff_id, "sha256:" + digest, len(blob)), count
