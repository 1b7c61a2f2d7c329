"""Wheels made by hand (PyPA "Binary distribution format"), right ones and wrong ones."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

WHEEL = b"Wheel-Version: 1.0\nGenerator: hand (1)\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def row_digest(content: bytes) -> str:
    """Return a hash as RECORD has it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def record(contents: Mapping[str, bytes], info: str) -> bytes:
    """Return the RECORD of these files."""
    rows = [
        f'"{path}"' * ("," in path) + path * ("," not in path) + f",{row_digest(data)},{len(data)}"
        for path, data in contents.items()
    ]
    return "\n".join([*rows, f"{info}/RECORD,,"]).encode() + b"\n"


def wheel_files(name: str, version: str, files: Mapping[str, bytes], points: str = "") -> dict[str, bytes]:
    """Return the members of a right wheel by name, RECORD last. A file below ``.data/`` goes to the wheel's own."""
    info = f"{name}-{version}.dist-info"
    contents = {
        (f"{name}-{version}{path}" if path.startswith(".data/") else path): data for path, data in files.items()
    }
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    contents[f"{info}/WHEEL"] = WHEEL
    if points:
        contents[f"{info}/entry_points.txt"] = points.encode()
    return {**contents, f"{info}/RECORD": record(contents, info)}


def write_zip(
    path: Path,
    members: Mapping[str, bytes] | Sequence[tuple[str, bytes]],
    executable: Sequence[str] = (),
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """Write members as they come, names unchecked."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items() if isinstance(members, Mapping) else members:
            item = zipfile.ZipInfo(name, (2025, 1, 1, 0, 0, 0))
            item.external_attr = (0o100755 if name in executable else 0o100644) << 16
            item.compress_type = compression
            archive.writestr(item, data)
    return path


def write_wheel(
    directory: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes],
    points: str = "",
    executable: Sequence[str] = (),
) -> Path:
    """Write a right wheel and return its path."""
    members = wheel_files(name, version, files, points)
    data = [f"{name}-{version}{path}" if path.startswith(".data/") else path for path in executable]
    return write_zip(directory / f"{name}-{version}-py3-none-any.whl", members, data)
