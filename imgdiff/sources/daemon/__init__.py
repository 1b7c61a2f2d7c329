"""Images and containers that an engine has: docker or podman, over docker's API.

Layers are named by an inspection and saved only when they are not in the cache; they are indexed while they stream.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from imgdiff.errors import ImageError, ImgdiffError, ServiceError, UnknownReferenceError
from imgdiff.model import Image
from imgdiff.sources._text import listed, shown
from imgdiff.sources.daemon._address import Address, Kind, addresses

if TYPE_CHECKING:
    from imgdiff.sources.daemon._engine import Engine

__all__ = ["CONTAINER", "ENGINES", "Kind", "Search", "find_image", "open_container", "open_engine"]

ENGINES: tuple[Kind, ...] = ("docker", "podman")  # the schemes, and the order in which a bare name is looked for
CONTAINER = "container"
_NEAR = 3  # names of what is nearly meant


class Search(msgspec.Struct):
    """What looking for a name came to: the image, or clauses that say where it was looked for and why it failed."""

    image: Image | None = None
    looked: list[str] = []
    nearest: list[str] = []


def open_engine(kind: Kind, name: str, given: str, platform: str | None) -> Image:
    """Return the image of a name, ID or digest that an engine of this kind has.

    Raises UnknownReferenceError where it has none, with the nearest names, ServiceError where no engine can be asked,
    ImageError where it is for another platform than the one that is wanted.
    """
    search = Search()
    trouble = _look(kind, name, given, platform, search)
    if search.image is not None:
        return search.image
    if trouble is not None:
        raise trouble
    raise UnknownReferenceError(
        f"'{shown(given)}' names no image: {'; '.join(search.looked)}", _near_hint(search.nearest, f"{kind}:")
    )


def find_image(name: str, given: str, platform: str | None) -> Search:
    """Look for a bare name in each engine that answers. One that doesn't, or has it for another platform, is no error
    here: the search says so."""
    search = Search()
    for kind in ENGINES:
        trouble = _look(kind, name, given, platform, search)
        if search.image is not None:
            break
        if trouble is not None:
            search.looked.append(str(trouble))
    return search


def _look(kind: Kind, name: str, given: str, platform: str | None, search: Search) -> ImgdiffError | None:
    """Ask the engines of one kind until one has the image. Returns what is wrong where none could be asked or used."""
    from imgdiff.sources.daemon._engine import NotHereError
    from imgdiff.sources.daemon._image import image_of

    trouble: ImgdiffError | None = None
    before = len(search.looked)
    try:
        places = addresses(kind)
    except ServiceError as error:
        return error
    for address in places:
        try:
            with _connected(address, kind) as engine:
                try:
                    search.image = image_of(engine, engine.image(name, platform), name, given, platform)
                except NotHereError:
                    search.looked.append(f"the {address} has none of this name")
                    search.nearest += _nearest(name, engine.tags())
                    continue
                return None
        except (ServiceError, ImageError) as error:
            trouble = trouble or error
    return trouble if isinstance(trouble, ImageError) or len(search.looked) == before else None


def _connected(address: Address, kind: Kind) -> Engine:
    """Connect to an engine. A docker engine where podman is meant is none; podman may well answer for docker."""
    from imgdiff.sources.daemon._engine import Engine

    engine = Engine(address)
    if engine.kind != kind and kind == "podman":
        engine.__exit__()
        raise ServiceError(f"no podman answers at {shown(address.url)}, but docker", "say docker:NAME")
    return engine


def open_container(name: str, given: str, platform: str | None) -> Image:
    """Return a container, running or not, by name or ID: docker's, else podman's.

    Raises UnknownReferenceError where no engine has it, with the nearest names, ServiceError where none can be asked,
    and ImageError where it is for another platform than the one that is wanted.
    """
    from imgdiff.sources.daemon._container import container_of
    from imgdiff.sources.daemon._engine import NotHereError

    looked: list[str] = []
    nearest: list[str] = []
    trouble: ServiceError | None = None
    for address in [address for kind in ENGINES for address in addresses(kind)]:
        try:
            with _connected(address, address.kind) as engine:
                try:
                    return container_of(engine, engine.container(name), given, platform)
                except NotHereError:
                    looked.append(f"the {address} has none of this name")
                    nearest += _nearest(name, engine.containers())
        except ServiceError as error:
            trouble = trouble or error
    if trouble is not None and not looked:
        raise trouble
    raise UnknownReferenceError(
        f"'{shown(given)}' names no container: {'; '.join(looked)}", _near_hint(nearest, f"{CONTAINER}:")
    )


def _nearest(name: str, known: Sequence[str]) -> list[str]:
    """Return the names that are most like one, by spelling; those of its repository go first."""
    repository = name.partition("@")[0].rpartition(":")[0] or name
    same = [each for each in known if each.rpartition(":")[0] == repository]
    return list(dict.fromkeys([*same[:_NEAR], *difflib.get_close_matches(name, known, _NEAR)]))[:_NEAR]


def _near_hint(nearest: Sequence[str], scheme: str) -> str:
    if not nearest:
        return "see what there is: docker images, podman images, docker ps -a"
    return f"did you mean {listed(f'{scheme}{name}' for name in nearest)}?".replace(" and ", " or ")
