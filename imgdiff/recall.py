"""Reports of pairs that were compared before, and traces of images: the same images, the same question, the same
program.

What decides a report is in the key: the layers by diffID, both configs, the options that are asked, the Pythons at
hand (they compile sources), and the bytes of this package. What only names the images is made anew each time. The key
of a trace has the same of one image.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import sys
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

from imgdiff.model import Image, ImageConfig, ImageSummary, Profile, Report
from imgdiff.store import Store

_KIND = "report"
_TRACE = "trace"
_VERSION = 1
_MINORS = range(8, 20)  # interpreters python3.N that may be on PATH


def key(images: tuple[Image, Image], question: object) -> bytes | None:
    """Return the key of a pair and a question (what was asked, as plain values), or None where a layer's diffID is
    not known beforehand (a root file system)."""
    described: list[tuple[object, ...]] = []
    for image in images:
        if image.wheel is not None:
            described.append(((), "wheel", image.wheel.digest, image.caveats))
            continue
        if any(layer.diff_id is None or layer.directory is not None for layer in image.layers):
            return None
        if any(layer.descriptor is None or layer.descriptor.size < 0 for layer in image.layers):
            return None
        raw = None if image.config is None else image.config.raw
        kept = None if image.snapshot is None else image.snapshot.key
        described.append(([layer.diff_id for layer in image.layers], image.platform, raw, kept))
    return _digest((described, question))


def trace_key(diff_ids: Sequence[str], config: ImageConfig | None, profile: Profile, entry: str | None) -> bytes | None:
    """Return the key of one image's trace: its layers, what of its config a trace reads, and what was asked. None where
    a layer has no diffID (a root file system)."""
    if not all(diff_ids):
        return None
    runs = None if config is None else (config.env, config.entrypoint, config.cmd, config.user, config.working_dir)
    return _digest((list(diff_ids), runs, profile, entry))


def _digest(question: object) -> bytes:
    """Return a digest of a question to this program."""
    pythons = [_interpreter(f"python3.{minor}") for minor in _MINORS]
    value = (question, sys.version, sys.executable, pythons, _program())
    return hashlib.sha256(msgspec.msgpack.encode(value, order="sorted")).digest()


def _interpreter(name: str) -> tuple[str, int, int] | None:
    found = shutil.which(name)
    if found is None:
        return None
    status = Path(found).stat()
    return found, status.st_mtime_ns, status.st_size


@functools.cache
def _program() -> bytes:
    """Return a digest of this package's own files."""
    hasher = hashlib.sha256()
    pending: list[tuple[str, Traversable]] = [("", resources.files("imgdiff"))]
    while pending:
        name, item = pending.pop()
        if item.is_dir():
            inside = sorted(item.iterdir(), key=lambda each: each.name)
            pending += [(f"{name}/{each.name}", each) for each in inside if each.name != "__pycache__"]
        elif name.endswith((".py", ".toml")):
            content = item.read_bytes()
            hasher.update(f"{name}\0{len(content)}\0".encode() + content)
    return hasher.digest()


def load(store: Store, pair: bytes, images: tuple[Image, Image], argv: tuple[str, ...]) -> Report | None:
    """Return the report of a pair as if it had been made for these references and this command line."""
    encoded = store.facts(_KIND, _VERSION, [pair]).get(pair)
    if encoded is None:
        return None
    report = msgspec.msgpack.decode(encoded, type=Report)
    return msgspec.structs.replace(
        report,
        argv=argv,
        image_a=_named(report.image_a, images[0]),
        image_b=_named(report.image_b, images[1]),
    )


def save(store: Store, pair: bytes, report: Report) -> None:
    """Keep a report."""
    store.put_facts(_KIND, _VERSION, {pair: msgspec.msgpack.encode(report)})


def load_trace(store: Store, key: bytes) -> bytes | None:
    """Return the trace that was kept under a key."""
    return store.facts(_TRACE, _VERSION, [key]).get(key)


def save_trace(store: Store, key: bytes, kept: bytes) -> None:
    """Keep a trace."""
    store.put_facts(_TRACE, _VERSION, {key: kept})


def _named(summary: ImageSummary, image: Image) -> ImageSummary:
    layers = tuple(
        (
            diff_id,
            layer.descriptor.digest or None if layer.descriptor is not None else None,
            size if layer.descriptor is None else layer.descriptor.size,
            media_type if layer.descriptor is None else layer.descriptor.media_type,
        )
        for layer, (diff_id, _, size, media_type) in zip(image.layers, summary.layers, strict=True)
    )
    if image.wheel is not None:
        layers = summary.layers
    return msgspec.structs.replace(  # what was believed stays: it is in the key whether that was asked for
        summary,
        reference=image.reference,
        source=image.source,
        manifest_digest=image.manifest_digest,
        config_digest=image.config_digest,
        layers=layers,
        transfer=None if image.transfer is None else (image.transfer.fetched(), image.transfer.saved()),
    )
