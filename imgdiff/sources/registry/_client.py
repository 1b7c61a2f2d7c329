"""One repository of a registry, read over HTTP (OCI distribution spec, "Pull")."""

from __future__ import annotations

import difflib
import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import BinaryIO, Final, Self, cast

from imgdiff.errors import BlobError, ImageError, ServiceError, UnknownReferenceError
from imgdiff.model import Descriptor
from imgdiff.sources._files import Opener
from imgdiff.sources._manifest import INDEX_TYPES, SCHEMA_1_TYPES, check_blob, check_digest, parse_object
from imgdiff.sources._names import ImageName
from imgdiff.sources._reference import DIGEST
from imgdiff.sources._text import listed, shown
from imgdiff.sources.registry import _trouble as trouble
from imgdiff.sources.registry._auth import Authorizer
from imgdiff.sources.registry._http import Answer, Connection, Network, retry_after
from imgdiff.sources.registry._options import Options
from imgdiff.sources.registry._stream import BlobStream

# Without these a registry answers with schema 1 or 404. Schema 1 is asked for last, so as to say what it is.
ACCEPT: Final = ", ".join(
    (
        *INDEX_TYPES,
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        *(f"{kind};q=0.1" for kind in SCHEMA_1_TYPES),
    )
)
_MOST_TAG_PAGES: Final = 20
_NEXT: Final = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')
_FOREIGN: Final = ("foreign", "nondistributable")


class Registry:
    """A repository, and what was moved from it: the ``Transfer`` of an image. For all threads."""

    def __init__(self, name: ImageName, options: Options) -> None:
        self.name = name
        self.options = options
        self.network = Network(name.host, options)
        self._auth = Authorizer(name, self.network)
        self._lock = threading.Lock()
        self._fetched = 0
        self._layers: dict[str, int] = {}
        self._read: set[str] = set()
        self._parts: dict[str, int] = {}
        self._streams: set[BlobStream] = set()
        self._stopped = False

    # What the model asks of a Transfer -----------------------------------------------------------------------------

    def fetched(self) -> int:
        """Return how many bytes of manifests, configs and layers came so far."""
        return self._fetched

    def saved(self) -> int:
        """Return how many bytes the layers have that were not read at all so far."""
        return sum(
            max(0, size - self._parts.get(digest, 0))
            for digest, size in self._layers.items()
            if digest not in self._read and size > 0
        )

    def stop(self) -> None:
        """Make every read that waits fail at once."""
        with self._lock:
            self._stopped = True
            streams = list(self._streams)
        for stream in streams:
            stream.abort()

    # Requests ------------------------------------------------------------------------------------------------------

    def get(self, connection: Connection, path: str, headers: Mapping[str, str], *, stream: bool = False) -> Answer:
        """Return the answer to ``GET /v2/NAME/path``, logged in where that is asked for; its status may be any but
        401. Raises ServiceError where there is no answer or no leave."""
        self._find(connection)
        url = self.network.url(f"/v2/{self.name.path}/{path}")
        while True:
            used = self._auth.header
            answer = connection.send("GET", url, headers, authorization=used, stream=stream)
            if answer.status != 401:
                self._auth.worked(used)
                return answer
            if not self._auth.answer(answer, used, connection):
                raise self._auth.refused()

    def _find(self, connection: Connection) -> None:
        """Choose between HTTPS and HTTP once, where both are allowed: HTTPS if it answers."""
        if self.network.reached or not self.options.insecure:
            return
        try:
            connection.send("GET", self.network.url("/v2/"), {})
        except ServiceError as error:
            cause = error.__cause__
            if cause is None or not trouble.plain_may_help(cause):
                raise
        else:
            return
        self.network.scheme = "http"  # not within the handler: what TLS said is no cause of what comes now
        connection.send("GET", self.network.url("/v2/"), {})

    def trouble(self, answer: Answer, what: str) -> ServiceError:
        """Return the error for a status that is none of those that an answer has a use for."""
        domain = self.name.domain
        code, message = trouble.said(answer.body)
        words = f": {shown(message)}" if message else ""
        if answer.status == 429:
            wait = retry_after(answer.headers)
            return ServiceError(
                f"{domain} allows no more requests for now{words}",
                (f"wait {wait:.0f} s" if wait else "wait a while")
                + ("" if self._auth.logged_in() else f", or log in: docker login {domain}"),
            )
        if answer.status == 403 or code == "DENIED":
            return self._auth.refused()
        if answer.status >= 500:
            return ServiceError(f"{domain} has trouble of its own, it answers with {answer.status}", "try again later")
        return ServiceError(f"{domain} answers with {answer.status} for {what}{words}")

    # What a repository holds -----------------------------------------------------------------------------------------

    def resolved(self, connection: Connection) -> tuple[bytes, str]:
        """Return the manifest or index that the name means now, and its digest.

        Raises UnknownReferenceError where there is none, naming the nearest tags.
        """
        version = self.name.version
        answer = self.get(connection, f"manifests/{version}", {"Accept": ACCEPT})
        if answer.status == 404:
            raise self._unknown(connection)
        if answer.status != 200:
            raise self.trouble(answer, str(self.name))
        self.count(len(answer.body))
        said = answer.headers.get("Docker-Content-Digest", "")
        what = f"the manifest of {self.name}"
        if self.name.digest:
            check_digest(answer.body, version, what)
            return answer.body, version
        if said and not DIGEST.fullmatch(said):
            raise ImageError(f"{self.name.domain} gives a digest for {self.name} that can't be checked: {shown(said)}")
        digest = said or f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
        check_digest(answer.body, digest, what)
        return answer.body, digest

    def manifest(self, connection: Connection, digest: str, what: str) -> bytes:
        """Return a manifest by its digest, not checked yet; raise BlobError where it is not there."""
        answer = self.get(connection, f"manifests/{digest}", {"Accept": ACCEPT})
        return self._small(answer, f"{what} ({digest})")

    def small_blob(self, connection: Connection, digest: str, what: str) -> bytes:
        """Return a small blob, not checked yet; raise BlobError where it is not there."""
        answer = self.get(connection, f"blobs/{digest}", {})
        return self._small(answer, f"{what} ({digest})")

    def _small(self, answer: Answer, what: str) -> bytes:
        if answer.status == 404:
            raise BlobError(
                f"{self.name.repository} lacks {what}",
                "it is listed and not held: push the image again, or ask for another",
            )
        if answer.status != 200:
            raise self.trouble(answer, what)
        self.count(len(answer.body))
        return answer.body

    def _unknown(self, connection: Connection) -> UnknownReferenceError:
        """Return the error for a name that the registry does not have."""
        name = self.name
        if name.digest:
            return UnknownReferenceError(
                f"{name.repository} has no image @{name.digest}", "it may have been deleted; check name and digest"
            )
        tags = self._tags(connection)
        if tags is None:
            return UnknownReferenceError(f"{name.domain} has no image {name.path}", "check the name")
        near = difflib.get_close_matches(name.tag, tags, n=3, cutoff=0.5)
        if near:
            return UnknownReferenceError(f"{name.repository} has no tag '{name.tag}'", f"near to it: {listed(near)}")
        hint = f"it has {listed(sorted(tags))}" if tags else "it has no tags at all"
        return UnknownReferenceError(f"{name.repository} has no tag '{name.tag}'", hint)

    def _tags(self, connection: Connection) -> list[str] | None:
        """Return the tags, as many as a few pages hold; None where there is no such repository."""
        found: list[str] = []
        path = "tags/list?n=1000"
        for _ in range(_MOST_TAG_PAGES):
            answer = self.get(connection, path, {})
            if answer.status == 404:
                return None
            if answer.status != 200:
                break  # the tag is unknown all the same; what is near to it stays unsaid
            tags = parse_object(answer.body, f"the list of tags of {self.name.repository}").get("tags")
            found += [tag for tag in tags or () if isinstance(tag, str)]
            following = _NEXT.search(answer.headers.get("Link", ""))
            query = following[1].partition("?")[2] if following else ""
            if not query:
                break
            path = f"tags/list?{query}"
        return found

    # Layers ----------------------------------------------------------------------------------------------------------

    def layer(self, descriptor: Descriptor, what: str) -> Opener:
        """Return what opens a layer's blob as a stream."""
        self._layers[descriptor.digest] = descriptor.size
        return partial(self._open, descriptor, what)

    def _open(self, descriptor: Descriptor, what: str) -> BinaryIO:
        stream = BlobStream(
            self,
            descriptor,
            f"{what} of {self.name.repository}",
            _lacking(descriptor),
            partial(self._request, digest=descriptor.digest),
        )
        with self._lock:
            self._read.add(descriptor.digest)
        return cast("BinaryIO", stream)

    def parts(self, descriptor: Descriptor | None, number: int, count: int) -> Callable[[], Parts] | None:
        """Return what gives parts of a layer's blob; None where its size is not stated."""
        if descriptor is None or descriptor.size < 0:
            return None
        return partial(Parts, self, descriptor, f"layer {number} of {count} of {self.name.repository}")

    def part(self, connection: Connection, descriptor: Descriptor, what: str, place: tuple[int, int]) -> BinaryIO:
        """Open a part of a layer's blob over a connection: (offset, length)."""
        request = partial(self._request, digest=descriptor.digest)
        stream = BlobStream(self, descriptor, what, _lacking(descriptor), request, place, connection)
        return cast("BinaryIO", stream)

    def _request(self, connection: Connection, headers: Mapping[str, str], *, digest: str) -> Answer:
        return self.get(connection, f"blobs/{digest}", headers, stream=True)

    def count(self, number: int, part_of: str | None = None) -> None:
        """Count bytes that came, and of which blob they are a part."""
        with self._lock:
            self._fetched += number
            if part_of is not None:
                self._parts[part_of] = self._parts.get(part_of, 0) + number

    def enter(self, stream: BlobStream) -> None:
        """Note a stream that may wait for the network."""
        with self._lock:
            self._streams.add(stream)
            stopped = self._stopped
        if stopped:
            stream.abort()

    def leave(self, stream: BlobStream) -> None:
        """Note that a stream was closed."""
        with self._lock:
            self._streams.discard(stream)


def _lacking(descriptor: Descriptor) -> str:
    """Return the hint for a layer that is not there."""
    foreign = any(word in descriptor.media_type for word in _FOREIGN)
    return "it is foreign, and not kept by registries" if foreign else "push the image again, or ask for another"


class Parts:
    """Parts of a layer's blob, over one connection (``model.BlobParts``)."""

    def __init__(self, registry: Registry, descriptor: Descriptor, what: str) -> None:
        self._registry = registry
        self._descriptor = descriptor
        self._what = what
        self._connection = registry.network.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def open(self, offset: int, length: int) -> BinaryIO:
        """Return the bytes at an offset as a stream."""
        return self._registry.part(self._connection, self._descriptor, self._what, (offset, length))


class RegistryBlobs:
    """The blobs of a repository while its manifests are read, over one connection."""

    def __init__(self, registry: Registry, connection: Connection) -> None:
        self._registry = registry
        self._connection = connection
        self._manifests: dict[str, bytes] = {}

    @property
    def where(self) -> str:
        """The name of the repository."""
        return self._registry.name.repository

    def has(self, digest: str) -> bool:  # noqa: ARG002 -- a registry is asked by reading
        """Tell that every blob is there: what is listed is held, until reading it proves the contrary."""
        return True

    def manifest(self, descriptor: Descriptor, what: str) -> bytes:
        """Return a manifest, checked; it is fetched once."""
        if descriptor.digest not in self._manifests:
            data = self._registry.manifest(self._connection, descriptor.digest, what)
            check_blob(data, descriptor, f"{what} in {self.where}")
            self._manifests[descriptor.digest] = data
        return self._manifests[descriptor.digest]

    def read(self, descriptor: Descriptor, what: str) -> bytes:
        """Return a small blob, checked."""
        data = self._registry.small_blob(self._connection, descriptor.digest, what)
        check_blob(data, descriptor, f"{what} in {self.where}")
        return data

    def opener(self, descriptor: Descriptor, what: str) -> Opener:
        """Return what opens a layer."""
        return self._registry.layer(descriptor, what)
