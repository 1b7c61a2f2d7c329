"""Kinds of files: what one refers to (its facts, for the trace) and what in a changed one differs (its delta).

To add a kind: one file in this folder, one line in the ordered tables of ``_routing`` and here, one fixture pair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import msgspec

from imgdiff.kinds import binary, bytecode, dist_info, elf, json_file, ld_cache, shell, text
from imgdiff.kinds._module import NOT_KEPT, ModuleDelta, ModuleSide, Runs, module_delta, runs
from imgdiff.kinds._routing import (
    HEAD_SIZE,
    KEPT_VERSION,
    KindName,
    data_by_name,
    interpreter,
    is_elf,
    kept,
    kind_of,
)
from imgdiff.kinds.python.delta import VERSION as _PYTHON_VERSION
from imgdiff.kinds.python.delta import delta as _python_delta
from imgdiff.model import Delta, Effect

__all__ = [
    "HEAD_SIZE",
    "KEPT_VERSION",
    "KINDS",
    "NOT_KEPT",
    "VERSIONS",
    "Kind",
    "KindName",
    "ModuleDelta",
    "ModuleSide",
    "Runs",
    "data_by_name",
    "explain",
    "interpreter",
    "is_elf",
    "kept",
    "kind_of",
    "module_delta",
    "runs",
]


class Kind(msgspec.Struct, frozen=True):
    """One kind: the version of its deltas, the effect that a file of it has where one image lacks it, whether its
    deltas come from the kept text or from a stream, and how two files are compared."""

    name: KindName
    version: int
    effect: Effect
    delta: Callable[[bytes, bytes], Delta] | None = None
    stream: Callable[[BinaryIO, BinaryIO], Delta] | None = None


def _elf_delta(a: BinaryIO, b: BinaryIO) -> Delta:
    return elf.delta(a, b)


KINDS: tuple[Kind, ...] = (
    Kind("elf", elf.VERSION, "code", stream=_elf_delta),
    Kind("bytecode", bytecode.VERSION, "code", bytecode.delta),
    Kind("pth", dist_info.VERSION, "code"),
    Kind("dist_info", dist_info.VERSION, "data"),
    Kind("ld_cache", ld_cache.VERSION, "code", ld_cache.delta),
    Kind("loader", text.VERSION, "code", lambda a, b: text.delta(a, b, "code")),
    Kind("python", _PYTHON_VERSION, "code", _python_delta),
    Kind("shell", shell.VERSION, "code", shell.delta),
    Kind("script", text.VERSION, "code", lambda a, b: text.delta(a, b, "code")),
    Kind("json", json_file.VERSION, "data", json_file.delta),
    Kind("text", text.VERSION, "data", text.delta),
    Kind("binary", binary.VERSION, "data", stream=binary.delta),
)
_BY_NAME = {kind.name: kind for kind in KINDS}

VERSIONS: dict[KindName, int] = {kind.name: kind.version for kind in KINDS}
"""Version of each kind's deltas: cached ones of another version are made anew."""


def explain(
    path_a: bytes | None, path_b: bytes | None, a: BinaryIO | None, b: BinaryIO | None, *, both_infos: bool = True
) -> Delta:
    """Say what differs between two regular files, or what a file does that one image lacks (its path is None).

    ``a`` and ``b`` are seekable streams at their beginning; None where the image lacks the file or the content is
    not at hand (the reason then says so). ``both_infos``: both images have the distribution whose dist-info this
    is. ``detail["kind"]`` names the kind. A module's source and ``.pyc`` are better compared together:
    :func:`module_delta`.
    """
    kinds = tuple(None if path is None else kind_of(path, _head(stream)) for path, stream in ((path_a, a), (path_b, b)))
    known = [_BY_NAME[kind] for kind in kinds if kind is not None]
    if not known:
        raise ValueError("no path on either side")
    kind = known[-1]
    delta = _explain(known, (path_a, path_b), a, b, both_infos=both_infos)
    return msgspec.structs.replace(delta, detail={"kind": kind.name, **delta.detail})


def _explain(
    known: list[Kind],
    paths: tuple[bytes | None, bytes | None],
    a: BinaryIO | None,
    b: BinaryIO | None,
    *,
    both_infos: bool,
) -> Delta:
    kind = known[-1]
    path = paths[1] if paths[1] is not None else paths[0]
    assert path is not None
    missing = [
        side for side, stream, at in (("a", a, paths[0]), ("b", b, paths[1])) if stream is None and at is not None
    ]
    if len(known) == 2 and known[0] is not known[1]:
        effect: Effect = "code" if "code" in {known[0].effect, known[1].effect} else "data"
        return Delta(effect, f"The file changed its kind from {known[0].name} to {known[1].name}.")
    if kind.name in {"pth", "dist_info"} and not missing:
        contents = [None if stream is None else stream.read() for stream in (a, b)]
        return dist_info.delta(path, contents[0], contents[1], both=both_infos)
    if len(known) == 1:
        return Delta(kind.effect, f"The file is in {'a' if paths[1] is None else 'b'} only.")
    if a is None or b is None:
        return Delta(kind.effect, f"The bytes differ; what differs can't be told: not read in {' and '.join(missing)}.")
    if kind.stream is not None:
        return kind.stream(a, b)
    assert kind.delta is not None
    return kind.delta(a.read(), b.read())


def _head(stream: BinaryIO | None) -> bytes:
    if stream is None:
        return b""
    head = stream.read(HEAD_SIZE)
    stream.seek(0)
    return head
