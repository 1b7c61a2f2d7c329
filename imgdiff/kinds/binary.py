"""Files whose format we don't read: how many bytes differ, in how many runs."""

from __future__ import annotations

import re
from typing import BinaryIO

from imgdiff.model import Delta

VERSION = 1

_CHUNK = 1024 * 1024
_RUN = re.compile(rb"[^\0]+")


def delta(a: BinaryIO, b: BinaryIO) -> Delta:
    """Compare two streams byte by byte, in memory of a few chunks: data, with sizes, differing bytes and runs.

    Where the sizes differ, the bytes of both at the same offsets are compared and the rest is counted by size alone.
    """
    offset = differing = runs = 0
    first: int | None = None
    last = -2  # the offset of the last differing byte
    size_a = size_b = 0
    while True:
        chunk_a, chunk_b = _read(a), _read(b)
        size_a += len(chunk_a)
        size_b += len(chunk_b)
        common = min(len(chunk_a), len(chunk_b))
        if chunk_a[:common] != chunk_b[:common]:
            for start, end in _runs(chunk_a[:common], chunk_b[:common]):
                differing += end - start
                runs += offset + start != last + 1
                last = offset + end - 1
                first = offset + start if first is None else first
        offset += common
        if len(chunk_a) != len(chunk_b) or not chunk_a:
            size_a += _drain(a)
            size_b += _drain(b)
            break
    detail = {"size": {"a": size_a, "b": size_b}, "bytes": differing, "runs": runs, "first": first}
    if size_a != size_b:
        reason = (
            f"The size differs ({size_a} and {size_b} bytes), and {differing} bytes at equal offsets in {runs} runs."
        )
    else:
        reason = f"{differing} of {size_a} bytes differ, in {runs} runs."
    return Delta("data", reason, detail)


def _read(stream: BinaryIO) -> bytes:
    """Read one full chunk; shorter only at the end."""
    parts = []
    missing = _CHUNK
    while missing and (part := stream.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _drain(stream: BinaryIO) -> int:
    size = 0
    while chunk := stream.read(_CHUNK):
        size += len(chunk)
    return size


def _runs(a: bytes, b: bytes) -> list[tuple[int, int]]:
    """Return the ranges in which two chunks of one length differ."""
    mixed = int.from_bytes(a, "little") ^ int.from_bytes(b, "little")
    return [match.span() for match in _RUN.finditer(mixed.to_bytes(len(a), "little"))]
