"""A container that is made of an image, given files, run to its end, asked for files, and removed."""

from __future__ import annotations

import contextlib
import datetime
import io
import secrets
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from imgdiff.errors import ImageError, ImgdiffError, ServiceError, UnknownReferenceError, UsageError
from imgdiff.model import Image
from imgdiff.sources._text import shown
from imgdiff.sources.daemon._address import Address, Kind, addresses
from imgdiff.sources.daemon._engine import Engine, NotHereError
from imgdiff.sources.daemon._image import image_of
from imgdiff.sources.daemon._options import ContainerOptions, create_arguments
from imgdiff.sources.daemon._outer import Outer, Passing

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Container", "ContainerOptions", "Runnable", "Running", "runnable", "running"]

_SCHEMES: Final[Mapping[str, tuple[Kind, ...]]] = {
    "docker": ("docker",),
    "docker-daemon": ("docker",),
    "podman": ("podman",),
}
_CHUNK: Final = 1 << 20  # bytes
_REST: Final = 5.0  # seconds for what it has printed, when it has ended
_LOOK: Final = 0.2  # seconds between two looks at whether it still runs


class Runnable(msgspec.Struct, frozen=True):
    """An image in an engine that can run it; ``digest`` is what imgdiff calls it by, the config's where it is known."""

    address: Address
    identity: str
    image: Image
    digest: str
    env: dict[str, str]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]


def runnable(reference: str, platform: str | None = None) -> Runnable:
    """Return the image that a reference names in docker, else in podman (``docker:NAME`` and ``podman:NAME`` say it).

    Raises UnknownReferenceError where no engine has it, ServiceError where none can be asked, ImageError where it is
    for another platform.
    """
    scheme, colon, rest = reference.partition(":")
    kinds = _SCHEMES.get(scheme) if colon and rest else None
    name = rest.removeprefix("//") if kinds else reference
    looked: list[str] = []
    trouble: ImgdiffError | None = None
    for kind in kinds or ("docker", "podman"):
        try:
            for address in addresses(kind):
                with Engine(address) as engine:
                    try:
                        return _described(engine, engine.image(name, platform), name, reference, platform)
                    except NotHereError:
                        looked.append(f"the {address} has none of this name")
        except (ServiceError, ImageError) as error:
            trouble = trouble or error
    if isinstance(trouble, ImageError) or (trouble is not None and not looked):
        raise trouble
    raise UnknownReferenceError(
        f"'{shown(reference)}' is no image of an engine here: {'; '.join(looked)}",
        f"an image is run where it lies: docker pull {shown(name)}",
    )


def _described(engine: Engine, inspected: dict[str, Any], name: str, given: str, platform: str | None) -> Runnable:
    image = image_of(engine, inspected, name, given, platform)
    run = inspected.get("Config") or {}
    lines = [str(line).partition("=") for line in run.get("Env") or ()]
    identity = str(inspected.get("Id") or "")
    if ":" not in identity:
        identity = f"sha256:{identity}"  # podman's
    return Runnable(
        address=engine.address,
        identity=identity,
        image=image,
        digest=image.config_digest or image.manifest_digest or identity,
        env={key: value for key, _, value in lines},
        entrypoint=tuple(_words(run.get("Entrypoint"))),
        command=tuple(_words(run.get("Cmd"))),
    )


class Running(msgspec.Struct, frozen=True):
    """A container that runs: its first process as this machine has it, when that was started (seconds since the epoch,
    None where the engine does not say), the container's host name and the digest of its image's config."""

    pid: int
    started: float | None
    host: str
    image: str | None


def running(name: str) -> Running:
    """Return the container that runs under a name or ID, docker's, else podman's.

    Raises UnknownReferenceError where no engine has it, ServiceError where none can be asked, UsageError where it does
    not run, or runs elsewhere.
    """
    looked: list[str] = []
    trouble: ServiceError | None = None
    for address in [address for kind in ("docker", "podman") for address in addresses(kind)]:
        try:
            with Engine(address) as engine:
                try:
                    return _running(engine.container(name), address, name)
                except NotHereError:
                    looked.append(f"the {address} has none of this name")
        except ServiceError as error:
            trouble = trouble or error
    if trouble is not None and not looked:
        raise trouble
    raise UnknownReferenceError(f"'container:{shown(name)}' names no container: {'; '.join(looked)}", "see docker ps")


def _running(inspected: dict[str, Any], address: Address, name: str) -> Running:
    state = inspected.get("State") or {}
    pid = int(state.get("Pid") or 0)
    if not state.get("Running") or pid <= 0:
        raise UsageError(f"the container '{shown(name)}' does not run", "start it, or record a run of its image")
    if not address.url.startswith("unix://"):
        raise UsageError(f"the {address} is not this machine's", "look at its processes on the machine where it runs")
    image = str(inspected.get("Image") or "")
    try:
        started = datetime.datetime.fromisoformat(str(state.get("StartedAt"))).timestamp()
    except ValueError:
        started = None
    host = str((inspected.get("Config") or {}).get("Hostname") or "") or str(inspected.get("Id") or "")[:12]
    return Running(pid, started, host, image if ":" in image or not image else f"sha256:{image}")


def _words(value: object) -> Iterator[str]:
    if isinstance(value, str):  # old podman's
        yield value
    elif isinstance(value, list):
        yield from (str(word) for word in value)


class Container:
    """One container, not yet started. A context manager that removes it, whatever happened.

    Its methods raise ServiceError where the engine fails.
    """

    def __init__(
        self, image: Runnable, options: ContainerOptions, argv: Sequence[str] | None, env: Mapping[str, str], place: str
    ) -> None:
        """Make it. ``argv`` is the whole command, None for the image's own; ``env`` is set in it; at ``place`` it has
        a volume of its own, which goes with it."""
        self._engine = Engine(image.address)
        self._place = place
        self._thread: threading.Thread | None = None
        try:
            with self._engine.said():
                arguments = create_arguments(self._engine.sdk, options, argv, env, place)
                name = options.name or f"imgdiff-{secrets.token_hex(6)}"
                made = self._engine.sdk.create_container(image.identity, name=name, **arguments)
        except NotHereError as error:
            self._engine.__exit__()
            raise ServiceError(f"the container could not be made: {shown(str(error))}") from error
        except ServiceError as error:
            self._engine.__exit__()
            if "Conflict" in str(error) and options.name:
                hint = f"docker rm {shown(options.name)}, or choose another --name"
                raise UsageError(f"there is a container named '{shown(options.name)}' already", hint) from error
            raise
        except BaseException:
            self._engine.__exit__()
            raise
        self.identity = str(made["Id"])
        self.name = name

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with self._engine.said(), contextlib.suppress(NotHereError):
                self._sdk.remove_container(self.identity, v=True, force=True)
        except NotHereError:
            return
        finally:
            self._engine.__exit__()

    @property
    def _sdk(self) -> APIClient:
        return self._engine.sdk

    def put(self, files: Sequence[tuple[str, bytes | None, int]]) -> None:
        """Put files (path below its volume, content or None for a directory, mode) into it, owned by root."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, data, mode in files:
                member = tarfile.TarInfo(name)
                member.mode = mode
                member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
                member.size = len(data or b"")
                archive.addfile(member, io.BytesIO(data or b""))
        with self._engine.said():
            if not self._sdk.put_archive(self.identity, self._place, packed.getvalue()):
                raise ServiceError(f"the {self._engine.address} took no files into the container")

    def start(self, write: Callable[[bytes], object]) -> None:
        """Start it; ``write`` is given what it prints, on either stream, in a thread."""
        with self._said_start():
            pieces = self._sdk.attach(self.identity, stdout=True, stderr=True, stream=True, logs=False)
            self._thread = threading.Thread(target=_pass_on, args=(pieces, write), name="imgdiff-output", daemon=True)
            self._thread.start()
            self._sdk.start(self.identity)

    @contextlib.contextmanager
    def _said_start(self) -> Iterator[None]:
        try:
            with self._engine.said():
                yield
        except NotHereError as error:  # docker's status for a command that is not there
            raise ServiceError(f"the container could not be started: {shown(str(error))}") from error

    def wait(self) -> int:
        """Return its exit code when it has ended, and all that it printed was passed on."""
        with self._engine.said():
            code = int(self._sdk.wait(self.identity)["StatusCode"])
        if self._thread is not None:
            self._thread.join(_REST)
        return code

    def over(self, seconds: float) -> int | None:
        """Wait this long at most for its end, and return its exit code then; None where it goes on."""
        until = time.monotonic() + seconds
        while (state := self._state()).get("Running"):
            if time.monotonic() > until:
                return None
            time.sleep(_LOOK)
        if self._thread is not None:
            self._thread.join(_REST)
        return int(state.get("ExitCode") or 0)

    def _state(self) -> dict[str, Any]:
        try:
            state = self._engine.container(self.identity).get("State")
        except NotHereError:
            return {}
        return state if isinstance(state, dict) else {}

    def signal(self, name: str) -> None:
        """Send a signal to its first process; one that has ended gets none."""
        from docker.errors import APIError

        with self._engine.said(), contextlib.suppress(APIError):
            self._sdk.kill(self.identity, name)

    def files(self, path: str) -> Iterator[tuple[str, BinaryIO]]:
        """Yield (name, content) of each regular file right below a directory of it, running or not. Whatever else
        lies there is passed over."""
        try:
            with self._engine.archive(self.identity, path.lstrip("/").encode()) as stream:
                outer = Outer(stream, self._engine)
                for member in outer:
                    directory, _, name = member.name.removeprefix("./").rpartition("/")
                    if "/" not in directory and name not in ("", ".", ".."):
                        yield name, _Member(outer, member)
        except NotHereError:
            return


def _pass_on(pieces: Iterator[bytes], write: Callable[[bytes], object]) -> None:
    heard = True
    try:
        for piece in pieces:
            if heard:
                heard = _written(write, piece)  # a program that nobody reads from any more would wait for ever
    except (OSError, ValueError):  # the engine ended the connection
        return


def _written(write: Callable[[bytes], object], piece: bytes) -> bool:
    try:
        write(piece)
    except (OSError, ValueError):  # nobody reads what is written
        return False
    return True


class _Member(io.RawIOBase, BinaryIO):
    """The bytes of one file while it passes."""

    def __init__(self, outer: Outer, member: Passing) -> None:
        self._outer = outer
        self._member = member

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        return self._outer.take(self._member, memoryview(buffer).cast("B"))


def copy(source: BinaryIO, target: Path) -> int:
    """Write a stream to a new file and return its size in bytes. Raises OSError."""
    size = 0
    with target.open("xb") as file:
        while chunk := source.read(_CHUNK):
            size += file.write(chunk)
    return size
