"""Build a real pair of images from PyPI wheels: a shared base, shared wheels, and one layer that differs.

    python benchmarks/pair.py OUT --a vllm==0.27.0 --b vllm==0.27.1 [--common torch==2.13.0 ...] [--entry ...]

pip itself installs (RECORD, scripts and .pyc are real), always without dependencies: name what is to be there. The
base is the running interpreter's own standard library, binary and shared libraries, laid out as in the python
images (/usr/local). OUT/a and OUT/b are OCI layouts whose base and common layers are the same blobs.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MINOR = f"python{sys.version_info[0]}.{sys.version_info[1]}"
EPOCH = 1_750_000_000  # directories and links; files keep what pip gave them


def base(root: Path) -> None:
    """Copy the running interpreter to ROOT/usr/local, and what it links to where the loader finds it."""
    prefix = root / "usr/local"
    (prefix / "bin").mkdir(parents=True)
    binary = Path(sys.executable).resolve()
    shutil.copy2(binary, prefix / "bin" / MINOR)
    (prefix / "bin" / "python3").symlink_to(MINOR)
    stdlib = Path(sysconfig.get_path("stdlib"))
    skipped = shutil.ignore_patterns("site-packages", "dist-packages", "test", "idlelib", "turtledemo", "config-*")
    shutil.copytree(stdlib, prefix / "lib" / MINOR, ignore=skipped, symlinks=True)
    (prefix / "lib" / MINOR / "site-packages").mkdir(exist_ok=True)
    found = {binary, *(prefix / "lib" / MINOR / "lib-dynload").glob("*.so")}
    libraries: set[str] = set()
    for path in found:
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        libraries.update(re.findall(r"(/\S+)", listed))
    for library in sorted(libraries):
        target = root / ("usr" + library if library.startswith(("/lib/", "/lib64/")) else library.lstrip("/"))
        if library.startswith(str(Path(sys.base_prefix) / "lib")):
            target = prefix / "lib" / Path(library).name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy2(library, target)
    for name in ("lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "etc/ld.so.conf.d").mkdir(parents=True)
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    (root / "etc/ld.so.conf.d/libc.conf").write_text("/usr/local/lib\n")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")


def install(root: Path, requirements: Iterable[str], *arguments: str) -> None:
    """Install wheels below ROOT/usr/local as pip does in a Dockerfile."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--ignore-installed",
        "--no-warn-script-location",
    ]
    subprocess.run([*command, "--root", root, "--prefix", "/usr/local", *arguments, *requirements], check=True)
    for script in (root / "usr/local/bin").glob("*"):
        if not script.is_symlink() and script.is_file():
            content = script.read_bytes()
            if content.startswith(b"#!" + sys.executable.encode()):
                script.write_bytes(content.replace(sys.executable.encode(), b"/usr/local/bin/python3", 1))


def pack(root: Path, blobs: Path) -> tuple[str, str, int]:
    """Write ROOT as a gzip layer; returns diffID, digest and size of the blob."""
    blobs.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=blobs, delete=False) as out:
        plain = hashlib.sha256()

        class Tee:
            def __init__(self, stream: gzip.GzipFile) -> None:
                self.stream = stream

            def write(self, data: bytes) -> int:
                plain.update(data)
                return self.stream.write(data)

        with (
            gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6, mtime=0) as compressed,
            tarfile.open(fileobj=Tee(compressed), mode="w|", format=tarfile.PAX_FORMAT) as tar,  # type: ignore[call-overload]  # any object with write
        ):
            for path in sorted(root.rglob("*")):
                info = tar.gettarinfo(path, str(path.relative_to(root)))
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                info.mtime = int(info.mtime) if info.isreg() else EPOCH
                if info.isreg():
                    with path.open("rb") as content:
                        tar.addfile(info, content)
                else:
                    tar.addfile(info)
    blob = Path(out.name)
    with blob.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    size = blob.stat().st_size
    blob.rename(blobs / digest)
    return "sha256:" + plain.hexdigest(), "sha256:" + digest, size


def layout(target: Path, blobs: Path, layers: list[tuple[str, str, int]], config: dict[str, Any]) -> None:
    """Write an OCI layout whose layer blobs are hard links into BLOBS."""
    store = target / "blobs/sha256"
    store.mkdir(parents=True)

    def put(document: dict[str, Any], media_type: str) -> dict[str, Any]:
        content = json.dumps(document, sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        (store / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(content)}

    for _, digest, _ in layers:
        name = digest.removeprefix("sha256:")
        (store / name).hardlink_to(blobs / name)
    vendor = "application/vnd.oci.image."
    described = put(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [diff_id for diff_id, _, _ in layers]},
        },
        vendor + "config.v1+json",
    )
    manifest = put(
        {
            "schemaVersion": 2,
            "mediaType": vendor + "manifest.v1+json",
            "config": described,
            "layers": [
                {"mediaType": vendor + "layer.v1.tar+gzip", "digest": digest, "size": size}
                for _, digest, size in layers
            ],
        },
        vendor + "manifest.v1+json",
    )
    (target / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (target / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--a", nargs="+", required=True)
    parser.add_argument("--b", nargs="+", required=True)
    parser.add_argument("--common", nargs="*", default=[])
    parser.add_argument("--entry", default="vllm serve", help="the image's ENTRYPOINT, words split at spaces")
    parser.add_argument("--no-compile", action="store_true", help="leave the .pyc away, as uv does")
    arguments = parser.parse_args()
    pip_arguments = ["--no-compile"] if arguments.no_compile else []
    blobs = arguments.out / "blobs"
    shared = []
    for fill in (base, lambda root: install(root, arguments.common, *pip_arguments) if arguments.common else None):
        with tempfile.TemporaryDirectory() as directory:
            fill(Path(directory))
            if any(Path(directory).iterdir()):
                shared.append(pack(Path(directory), blobs))
    config = {
        "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"],
        "Entrypoint": arguments.entry.split(),
        "WorkingDir": "/workspace",
    }
    for side, requirements in (("a", arguments.a), ("b", arguments.b)):
        with tempfile.TemporaryDirectory() as directory:
            install(Path(directory), requirements, *pip_arguments)
            layout(arguments.out / side, blobs, [*shared, pack(Path(directory), blobs)], config)


if __name__ == "__main__":
    main()
