"""Write the tar that README.md's tools were given: python tests/layer/recorded/make.py DIRECTORY."""

from __future__ import annotations

import gzip
import random
import sys
from pathlib import Path

from tests.support.elf import Elf, elf_bytes
from tests.support.images import Member, digest_of, full_config, put_blob, put_json, tar_bytes, write_index


def members() -> list[Member]:
    chance = random.Random(7)
    return [
        Member("usr/", type="dir"),
        Member("usr/lib/", type="dir", mode=0o1777),
        Member("usr/lib/one.py", b"import os\n" * 20, mtime=1_700_000_000, uid=1000, gid=1000),
        Member("usr/lib/empty", b""),
        Member("usr/lib/libx.so", elf_bytes(Elf(soname="libx.so.1", strings=("name",))), mode=0o755),
        Member("usr/lib/zeros", bytes(30_000) + chance.randbytes(40_000), mode=0o4755),
        Member("usr/lib/link", type="symlink", target="one.py"),
        Member("usr/lib/hard", type="hardlink", target="usr/lib/one.py"),
        Member("usr/lib/cap", b"x", xattrs={"security.capability": b"\x01\x00\x00\x02\xff", "user.a": b"b"}),
        Member("etc/.wh.gone", b""),
        Member("opt/.wh..wh..opq", b""),
        Member("dev/null", type="char", device=(1, 3)),
        Member("dev/sda", type="block", device=(8, 1)),
        Member("run/pipe", type="fifo"),
        Member("usr/" + "l" * 150 + "/" + "n" * 120, b"long"),
        Member("usr/lib/ä.py", b"pass\n", mtime=1_700_000_002),
    ]


def main(directory: Path) -> None:
    data = tar_bytes(members())
    data = data.rstrip(b"\0")
    data += bytes(-len(data) % 512 + 1024)  # skopeo 1.9 loses zeros behind the end of the archive
    blob = put_blob(directory, gzip.compress(data, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
    config = put_json(directory, full_config([data], {}), "application/vnd.oci.image.config.v1+json")
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = put_json(directory, {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [blob]}, kind)
    write_index(directory, [{**manifest, "annotations": {"org.opencontainers.image.ref.name": "t"}}])
    sys.stdout.write(f"{digest_of(data)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
