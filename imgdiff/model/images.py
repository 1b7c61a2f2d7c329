"""Images, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Protocol

import msgspec

from imgdiff.model.layers import Layer


class Mount(msgspec.Struct, frozen=True):
    """A place in a container that holds something else than the container's own files; ``what`` in a few words."""

    path: bytes
    what: str


class Transfer(Protocol):
    """What was moved over a network for one image. Its methods may be called by any thread."""

    def fetched(self) -> int:
        """Return how many bytes came so far: manifests, config and layers, each as often as it was read."""

    def saved(self) -> int:
        """Return how many bytes the layers have that were not read at all so far."""

    def stop(self) -> None:
        """Give up: whoever waits for the network gets an ImgdiffError at once, as does each later read."""


class FactRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Encoded facts of one file: their kind and version, and the file's SHA-256."""

    kind: str
    version: int
    digest: bytes
    encoded: bytes


class ImageSnapshot(Protocol):
    """What was kept of an image in place of its layers. Its methods raise ImageError where it is damaged."""

    key: bytes
    """Equal for equal snapshots."""
    rules: str
    """The versions of all that was kept and made."""
    made_by: str
    """The version of imgdiff that made it."""

    def texts(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the contents that were kept, each behind its SHA-256."""

    def facts(self) -> Iterator[FactRow]:
        """Yield the facts that were kept."""


class ImageConfig(msgspec.Struct, frozen=True):
    """The parts of an OCI image config that say what runs (OCI image spec, "config"), and the whole as parsed."""

    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    user: str = ""
    working_dir: str = ""
    labels: dict[str, str] = {}
    raw: dict[str, Any] = {}


WHEEL_SOURCE = "wheel"
"""The ``source`` of a wheel."""

WHEEL_TOPS: Mapping[str, str] = {
    "purelib": "site-packages",
    "platlib": "site-packages",
    "scripts": "bin",
    "headers": "include",
    "data": "data",
}
"""Where a wheel's layer has the files of each scheme of its ``.data`` directory."""


class Wheel(msgspec.Struct, frozen=True):
    """A wheel (PyPA "Binary distribution format") that stands for one side, as its METADATA names it.

    ``name`` is normalised (PEP 503), ``info`` the name of its dist-info directory. ``digest`` (``sha256:HEX``) and
    ``size`` in bytes are those of the file. The image's one layer has its files below the directories of
    :data:`WHEEL_TOPS`, what is in no ``.data`` directory below ``site-packages``: none is a path of the image.
    """

    name: str
    version: str
    info: bytes
    digest: str
    size: int


class Image(msgspec.Struct, frozen=True):
    """One image as its source describes it. ``config`` is None where the source has none (a root file system),
    ``transfer`` where no byte comes over a network.

    ``contents`` reads files of the merged tree again, by path with their SHA-256, without reading layers: it yields
    those that it has with this content, as seekable temporary files, each open until the next is asked for. ``whole``
    gives the same image as one merged layer, for when its layers turn out not to be there. ``contained`` is set where
    the tree is a container's, with what its engine makes in each (``imgdiff.runtime``), and ``mounts`` is what lies
    over it. ``caveats`` are sentences for the report; "{side}" in them is replaced by a or b. ``snapshot`` is set where
    the image is read from one, ``wheel`` where it is no image but a wheel.
    """

    reference: str
    source: str
    manifest_digest: str | None
    config_digest: str | None
    platform: str
    config: ImageConfig | None
    layers: tuple[Layer, ...]
    transfer: Transfer | None = None
    contents: Callable[[Mapping[bytes, bytes]], Iterator[tuple[bytes, BinaryIO]]] | None = None
    whole: Callable[[], Image] | None = None
    contained: bool = False
    mounts: tuple[Mount, ...] = ()
    caveats: tuple[str, ...] = ()
    snapshot: ImageSnapshot | None = None
    wheel: Wheel | None = None
