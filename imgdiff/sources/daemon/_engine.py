"""One engine over its API: what is asked of it, in whose words it fails. The one door to the docker SDK."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import secrets
import socket as sockets
import stat
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import msgspec

from imgdiff.errors import BlobError, ImageError, ServiceError
from imgdiff.interrupts import held_back
from imgdiff.sources._text import shown
from imgdiff.sources.daemon._address import Address, Kind, without_login

if TYPE_CHECKING:
    from docker import APIClient

T = TypeVar("T")

CONNECT: Final = 10.0  # seconds to reach an engine
ANSWER: Final = 60.0  # seconds for an answer; DOCKER_CLIENT_TIMEOUT sets another, as for docker's own tools
_FIRST_API: Final = "1.24"  # the oldest that the SDK takes; which one is spoken, the engine says
STAGING: Final = 1800.0  # seconds for the first byte of an archive: docker writes all of it to its disk first
_WAITING: Final = 32  # pieces of a stream that may wait
_PIECE: Final = 1 << 18  # bytes
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+")
_NO_SPACE: Final = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_AMBIGUOUS: Final = re.compile(r"ambiguous|multiple IDs found|more than one", re.IGNORECASE)


class Response(Protocol):
    """What the SDK's client gives back: an answer of requests, which this room needs not know."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def content(self) -> bytes | Any:
        """The whole body."""

    def json(self) -> Any:
        """The body as JSON."""

    def iter_content(self, chunk_size: int | None = 1) -> Iterator[Any]:
        """The body in pieces."""

    def __enter__(self) -> Response:
        """Return itself."""

    def __exit__(self, *_: object) -> None:
        """Close the connection."""


class NotHereError(Exception):
    """The engine has nothing of this name. ``str(error)`` is what it said."""


class Engine:
    """A connection to one engine. A context manager; for one thread at a time, but for ``stop`` of its streams.

    All methods raise ServiceError where the engine fails, and NotHereError where it has nothing of the name.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._answer = _timeout()
        socket = address.socket
        if socket is not None and not socket.exists():
            raise ServiceError(f"no {address} is running: there is no such socket", _start_hint(address.kind))
        try:
            with self._said():
                if socket is not None:
                    _knock(str(socket))
                with contextlib.closing(_client(address, self._answer, _FIRST_API)) as client:
                    version = client.version(api_version=False)
                if not _VERSION.fullmatch(version["ApiVersion"]):
                    raise _no_engine(address, "it states no version of docker's API")
                self._client = _client(address, self._answer, version["ApiVersion"])
                names = [str(each["Name"]) for each in version.get("Components") or ()]
        except NotHereError as error:  # whatever it is, it has no /version
            raise _no_engine(address, str(error)) from error
        self.kind: Kind = "podman" if any("podman" in name.lower() for name in names) else "docker"

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def api(self, *wanted: int) -> bool:
        """Tell whether the engine speaks this version of the API (1, 48) or a newer one."""
        return tuple(int(part) for part in self._client.api_version.split(".")[:2]) >= wanted

    @property
    def sdk(self) -> APIClient:
        """The SDK's client, for what only this room does; use it inside of ``said``."""
        return self._client

    def said(self) -> contextlib.AbstractContextManager[None]:
        """Turn what the SDK raises into errors of ours."""
        return self._said()

    # Questions -------------------------------------------------------------------------------------------------------

    def image(self, name: str, platform: str | None = None) -> dict[str, Any]:
        """Return what the engine says of an image; ``platform`` is asked for where the API can (1.49)."""
        parameters = []
        if platform is not None and self.kind == "docker" and self.api(1, 49):
            parameters = [("platform", platform)]
        return self._json("/images/" + urllib.parse.quote(name, safe="/:@") + "/json", dict, parameters)

    def container(self, name: str) -> dict[str, Any]:
        """Return what the engine says of a container."""
        return self._json("/containers/" + urllib.parse.quote(name, safe="") + "/json", dict)

    def tags(self) -> list[str]:
        """Return the names of all images."""
        images = self._json("/images/json", list)
        return sorted({tag for each in images for tag in each.get("RepoTags") or () if tag != "<none>:<none>"})

    def containers(self) -> list[str]:
        """Return the names of all containers, those that are stopped too."""
        found = self._json("/containers/json", list, [("all", "1")])
        return sorted({name.lstrip("/") for each in found for name in each.get("Names") or ()})

    def _json(self, path: str, kind: type[T], parameters: Sequence[tuple[str, str]] = ()) -> T:
        with self._said(), self._get(path, parameters, self._answer) as response:
            found = response.json()
            if not isinstance(found, kind):
                raise _no_engine(self.address, f"it answers with no {kind.__name__} for {path}")
            return found

    def _get(self, path: str, parameters: Sequence[tuple[str, str | bytes]], timeout: float) -> Response:
        query = urllib.parse.urlencode(parameters)
        url = f"{self._client.base_url}/v{self._client.api_version}{path}" + (f"?{query}" if query else "")
        response: Response = self._client.get(url, stream=True, timeout=(CONNECT, timeout))
        if response.status_code >= 400:
            with response:
                raise self._refusal(response.status_code, _message(response))
        return response

    # Streams ---------------------------------------------------------------------------------------------------------

    def save(self, identities: Sequence[str], platform: str | None = None) -> Stream:
        """Return the archive of these images, shared layers once (GET /images/get). One that is gone is a BlobError."""
        parameters = [("names", identity) for identity in identities]
        if platform is not None and self.kind == "docker" and self.api(1, 48):
            parameters.append(("platform", platform))
        return self._stream("/images/get", parameters, self._translated_save)

    def export(self, identity: str) -> Stream:
        """Return the whole file system of a container as a tar (GET /containers/ID/export)."""
        return self._stream(f"/containers/{identity}/export", ())

    def archive(self, identity: str, path: bytes) -> Stream:
        """Return a tar of one path of a container (GET /containers/ID/archive)."""
        return self._stream(f"/containers/{identity}/archive", [("path", b"/" + path)])

    def _stream(
        self,
        path: str,
        parameters: Sequence[tuple[str, str | bytes]],
        translated: Callable[[Exception], Exception] | None = None,
    ) -> Stream:
        silent = _silent(self.address, self._answer)
        return Stream(
            lambda: self._get(path, parameters, STAGING), translated or self._translated, self._answer, silent
        )

    # A container that is never started -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def created(self, image: str) -> Iterator[str]:
        """Make a container of an image, never started, and remove it at the end; gives its ID."""
        name = f"imgdiff-{secrets.token_hex(6)}"
        identity = ""
        try:
            with held_back(), self._patient():
                made = self._client.create_container(  # the command is asked for, and never run
                    image,
                    command=["imgdiff-never-started"],
                    name=name,
                    network_disabled=True,
                    labels={"org.imgdiff": "temporary"},
                )
                identity = str(made["Id"])
            yield identity
        finally:
            if identity:
                with held_back(), self._patient():  # v: the volumes that the image declares were made with it
                    self._client.remove_container(identity, v=True, force=True)

    @contextlib.contextmanager
    def _patient(self) -> Iterator[None]:
        """Wait longer for an answer: podman on vfs copies an image to make a container of it, and one for which nobody
        waited would be left."""
        self._client.timeout = cast("int", max(STAGING, self._answer))
        try:
            with self._said():
                yield
        finally:
            self._client.timeout = cast("int", self._answer)

    # Failures --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        """Turn what the SDK raises into errors of ours."""
        from docker.errors import DockerException

        try:
            yield
        except (DockerException, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._translated(error) from error

    def _translated_save(self, error: Exception) -> Exception:
        found = self._translated(error)
        return removed(self) if isinstance(found, NotHereError) else found

    def _translated(self, error: Exception) -> Exception:
        from docker.errors import APIError

        if isinstance(error, (ServiceError, NotHereError, ImageError)):
            return error
        if isinstance(error, APIError):
            return self._refusal(error.status_code or 0, str(cast("Any", error).explanation or error))
        if isinstance(error, (LookupError, TypeError, AttributeError, json.JSONDecodeError)):
            return _no_engine(self.address, "it does not speak docker's API")
        return _unreachable(self.address, error, self._answer)

    def _refusal(self, status: int, message: str) -> Exception:
        if _AMBIGUOUS.search(message):
            return ImageError(
                f"the {self.address} has several things that begin so ({shown(message)})", "give more digits of the ID"
            )
        if status == 404:
            return NotHereError(message)
        return self.failed(message)

    def failed(self, message: str) -> ServiceError:
        """Return the error for what an engine says went wrong."""
        if _NO_SPACE.search(message):
            return ServiceError(
                f"the disk of the {self.address} is full: {shown(message)}",
                "docker writes an archive to its own disk before it sends it: free some space there "
                "(docker system df), or name the image in its registry (registry:NAME)",
            )
        return ServiceError(f"the {self.address} failed: {shown(message)}", "its log may say more")


def removed(engine: Engine) -> BlobError:
    """Return the error for an image that went away meanwhile."""
    return BlobError(
        f"an image was removed from the {engine.address} while it was read", "pull or build it again, and compare again"
    )


class Stream:
    """Bytes that an engine sends, read ahead by a thread of its own, so that a reader can be stopped at any time.

    A context manager. Use by one thread, but for ``stop``. ``silence`` is how many seconds may pass without a byte once
    there was one, ``silent`` what is raised then.
    """

    def __init__(
        self,
        ask: Callable[[], Response],
        translated: Callable[[Exception], Exception],
        silence: float,
        silent: ServiceError,
    ) -> None:
        self._ask = ask
        self._translated = translated
        self._silence: float = silence
        self._silent = silent
        self._begun = False
        self._pieces: deque[bytes | Exception] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._rest = memoryview(b"")
        self._thread = threading.Thread(target=self._pump, name="imgdiff-engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Want no more. The thread ends with the next piece that comes; nobody waits for it."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def readinto(self, buffer: memoryview) -> int:
        """Fill a part of the buffer and return how many bytes that was; 0 at the end. Raises what the engine did."""
        while not self._rest:
            piece = self._next()
            if not piece:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer at the end."""
        data = bytearray(size)
        view = memoryview(data)
        have = 0
        while have < size and (count := self.readinto(view[have:])):
            have += count
        return bytes(view[:have])

    def skip(self, size: int) -> int:
        """Pass over bytes; returns how many there were not."""
        while size:
            if not self._rest:
                piece = self._next()
                if not piece:
                    return size
                self._rest = memoryview(piece)
            step = min(size, len(self._rest))
            self._rest = self._rest[step:]
            size -= step
        return 0

    def _next(self) -> bytes:
        with self._changed:
            while not self._pieces and not self._stopped:
                if not self._changed.wait(self._silence if self._begun else None):
                    raise self._silent
            self._begun = True
            if self._stopped:
                raise ServiceError("reading from the engine was given up")
            piece = self._pieces[0] if isinstance(self._pieces[0], Exception) else self._pieces.popleft()
            self._changed.notify_all()
        if isinstance(piece, Exception):
            raise piece
        if not piece:
            self._pieces.append(b"")  # the end stays the end
        return piece

    def _put(self, piece: bytes | Exception) -> bool:
        with self._changed:
            while len(self._pieces) >= _WAITING and not self._stopped:
                self._changed.wait()
            self._pieces.append(piece)
            self._changed.notify_all()
            return not self._stopped

    def _pump(self) -> None:
        try:
            with self._ask() as response:
                for piece in response.iter_content(_PIECE):
                    if piece and not self._put(piece):
                        return
            self._put(b"")
        except Exception as error:  # noqa: BLE001 -- raised again by who reads
            self._put(self._translated(error))


# --------------------------------------------------------------------------------------------------------------------
# Connecting
# --------------------------------------------------------------------------------------------------------------------


def _timeout() -> float:
    text = os.environ.get("DOCKER_CLIENT_TIMEOUT", "")
    try:
        value = float(text) if text else ANSWER
    except ValueError as error:
        raise ServiceError(f"DOCKER_CLIENT_TIMEOUT is no number of seconds: '{shown(text)}'") from error
    return value if value > 0 else ANSWER


def _knock(path: str) -> None:
    """Connect to a Unix socket once: the SDK leaves its own open where that fails. Raises OSError."""
    with sockets.socket(sockets.AF_UNIX) as knocking:
        knocking.settimeout(CONNECT)
        knocking.connect(path)


def _client(address: Address, timeout: float, version: str) -> APIClient:
    from docker import APIClient
    from docker.tls import TLSConfig

    if address.url.startswith("ssh://") and importlib.util.find_spec("paramiko") is None:
        raise ServiceError(  # the SDK needs it, though ssh itself makes the connection
            f"the {address} is reached over ssh, which needs the package paramiko",
            "install it, or forward the socket: ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST, and "
            "DOCKER_HOST=unix:///tmp/docker.sock",
        )
    tls: TLSConfig | bool = False
    if address.tls:
        pair = (address.certificate, address.key) if address.certificate and address.key else None
        tls = TLSConfig(client_cert=pair, ca_cert=address.ca, verify=address.verify)
    client = APIClient(
        base_url=address.url, version=version, timeout=cast("int", timeout), tls=tls, use_ssh_client=True
    )
    client.trust_env = False  # no proxy lies before an engine
    return client


def _message(response: Response) -> str:
    data = response.content[: 1 << 16]
    try:
        value = msgspec.json.decode(data)
    except msgspec.MsgspecError:
        return data.decode("utf-8", "replace")
    return str(value.get("message") or value.get("cause") or "") if isinstance(value, dict) else str(value)


def _no_engine(address: Address, why: str) -> ServiceError:
    return ServiceError(f"what answers as the {address} is no engine: {shown(why)}", _start_hint(address.kind))


def _silent(address: Address, timeout: float) -> ServiceError:
    return ServiceError(
        f"the {address} did not answer in time ({timeout:g} s)",
        "see whether it hangs (docker version); DOCKER_CLIENT_TIMEOUT=SECONDS lets it take longer",
    )


def _unreachable(address: Address, error: BaseException, timeout: float) -> ServiceError:
    """Return the one sentence for an engine that can't be reached, by the system's error at the bottom of it all."""
    causes = list(_causes(error))
    if any(isinstance(each, TimeoutError) or "timed out" in str(each) for each in causes):
        return _silent(address, timeout)
    system = next((each for each in causes if type(each) is not OSError and isinstance(each, _SYSTEM)), None)
    if isinstance(system, PermissionError):
        return ServiceError(f"you have no permission on the socket of the {address}", _permission_hint(address))
    if isinstance(system, (FileNotFoundError, ConnectionRefusedError)):
        return ServiceError(f"no {address} is running", _start_hint(address.kind))
    if isinstance(system, ConnectionError):
        return ServiceError(f"the {address} broke off the connection", "see whether it was restarted; run it again")
    text = without_login(str(causes[-1] if causes else error))
    return ServiceError(f"the {address} can't be reached: {shown(text)}", _start_hint(address.kind))


_SYSTEM: Final = (PermissionError, FileNotFoundError, ConnectionError)


def _causes(error: BaseException, seen: set[int] | None = None) -> Iterator[BaseException]:
    """Yield an error and all that led to it: libraries keep it as cause, as context, or as an argument."""
    seen = set() if seen is None else seen
    if id(error) in seen:
        return
    seen.add(id(error))
    yield error
    for inner in (error.__cause__, error.__context__, *error.args):
        if isinstance(inner, BaseException):
            yield from _causes(inner, seen)


def _start_hint(kind: Kind) -> str:
    if kind == "podman":
        return "start its service: systemctl --user start podman.socket; or name the socket in CONTAINER_HOST"
    return "start it: systemctl start docker; or name where it answers in DOCKER_HOST"


def _permission_hint(address: Address) -> str:
    group = ""
    socket = address.socket
    if socket is not None:
        try:
            status = socket.stat()
            if stat.S_IMODE(status.st_mode) & stat.S_IWGRP:
                group = (
                    "join the group that owns it (for docker's: sudo usermod -aG docker $USER, and log in again), or "
                )
        except OSError:
            group = ""
    return f"{group}run imgdiff as a user who may use the engine"
