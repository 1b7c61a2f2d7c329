"""Layers of which parts can be asked for, for tests of what is believed of their tables of contents."""

from __future__ import annotations

import dataclasses
import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

import msgspec

from imgdiff.errors import RangeRefusedError
from imgdiff.kinds import elf
from imgdiff.layer import Trust, index_layers
from imgdiff.model import Descriptor, Layer, LayerIndex
from imgdiff.store import Store
from tests.layer.make import sha256
from tests.support.elf import Elf, elf_bytes
from tests.support.images import Member
from tests.support.tocs import Built, Format

FORMATS: tuple[Format, ...] = ("eStargz", "zstd:chunked")
RANDOM = random.Random(3)
LIBRARY = elf_bytes(Elf(soname="libx.so.1", strings=("dlopen me",)))
BIG = RANDOM.randbytes(700_000)
TEXT = b"".join(b"line %d of a text that compresses\n" % number for number in range(40_000))  # more than one chunk
PYC = b"\xa7\r\r\n" + bytes(4) + (1_700_000_000).to_bytes(4, "little") + (10).to_bytes(4, "little") + b"N" * 40
MEMBERS = [
    Member("usr/", type="dir", mode=0o1755),
    Member("usr/lib/", type="dir"),
    Member("usr/lib/one.py", b"import os\n", mtime=1_700_000_000),
    Member("usr/lib/__pycache__/one.cpython-311.pyc", PYC, mtime=1_700_000_001),
    Member("usr/lib/libx.so.1.2", LIBRARY * 1, mode=0o755, uid=7, gid=9),
    Member("usr/lib/weights", BIG, mtime=1_600_000_000),
    Member("usr/bin/tool", LIBRARY + BIG, mode=0o4755),
    Member("usr/share/odd", LIBRARY + RANDOM.randbytes(300_000)),
    Member("usr/lib/long.py", TEXT),
    Member("usr/lib/empty", b""),
    Member("usr/lib/link", type="symlink", target="one.py"),
    Member("usr/lib/hard", type="hardlink", target="usr/lib/one.py"),
    Member("usr/lib/same.py", b"import os\n"),
    Member("usr/lib/cap", b"x", xattrs={"security.capability": b"\x01\x00\x00\x02\xff", "user.a": b"b"}),
    Member("etc/.wh.gone", b""),
    Member("opt/.wh..wh..opq", b""),
    Member("dev/null", type="char", device=(1, 3)),
    Member("dev/sda", type="block", device=(8, 0)),
    Member("run/pipe", type="fifo"),
    Member("usr/" + "l" * 150 + "/" + "n" * 120, b"long"),
    Member("usr/lib/ä.py", b"pass\n"),
    Member("../outside", b"out"),
]


class Source:
    """A blob of which parts can be asked for, and what was asked."""

    def __init__(self, built: Built, *, refuse: bool = False) -> None:
        self.built = built
        self.refuse = refuse
        self.asked: list[tuple[int, int]] = []
        self.whole = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def open(self, offset: int, length: int) -> BinaryIO:
        assert 0 <= offset < offset + length <= len(self.built.blob)
        self.asked.append((offset, length))
        if self.refuse:
            raise RangeRefusedError("no Range")
        return io.BytesIO(self.built.blob[offset : offset + length])

    def _whole(self) -> BinaryIO:
        self.whole += 1
        return cast("BinaryIO", io.BytesIO(self.built.blob))

    def layer(self, **changed: Any) -> Layer:
        built = self.built
        descriptor = Descriptor(built.media_type, sha256(built.blob), len(built.blob))
        layer = Layer(
            descriptor,
            sha256(built.plain),
            self._whole,
            remote=True,
            annotations=built.annotations,
            parts=lambda: self,
        )
        return msgspec.structs.replace(layer, **changed)

    @property
    def moved(self) -> int:
        return sum(length for _, length in self.asked)


@contextmanager
def store() -> Iterator[Store]:
    with Store.temporary() as opened:
        yield opened


def believe(source: Source, opened: Store, trust: Trust | None = None, **changed: Any) -> LayerIndex:
    return index_layers([source.layer(**changed)], opened, trust=trust or Trust())[0]


def plain(index: LayerIndex) -> LayerIndex:
    """Return an index without what tells how it was made."""
    return msgspec.structs.replace(index, believed=None, size=0)


def kept(index: LayerIndex, opened: Store) -> dict[bytes, bytes | None]:
    texts = opened.texts([index])
    return {entry.path: texts.get(entry.digest) for entry in index.entries if entry.digest is not None}


def elf_facts(index: LayerIndex, opened: Store) -> dict[bytes, bytes]:
    return opened.facts("elf", elf.VERSION, [entry.digest for entry in index.entries if entry.digest])


def refused(built: Built) -> str:
    """Return why a layer is read whole, which must give what it gives without being asked to believe."""
    source, trust = Source(built), Trust()
    with store() as opened, store() as other:
        index = believe(source, opened, trust)
        assert index == index_layers([Source(built).layer()], other)[0]
    assert index.believed is None
    assert source.whole == 1
    (reason,) = trust.refused.values()
    return reason


def altered(member: Member, name: str) -> Member:
    """Return a member whose content is another one of the same size, if it is the one that is named."""
    if member.path != name:
        return member
    return dataclasses.replace(
        member, content=member.content[:-2] + bytes([member.content[-2] ^ 1]) + member.content[-1:]
    )
