"""A blob as it comes, without a file on disk; what breaks off goes on where it stopped (RFC 9110, 14, "Range")."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from imgdiff.errors import BlobError, RangeRefusedError, ServiceError
from imgdiff.model import Descriptor
from imgdiff.sources.registry import _trouble as trouble
from imgdiff.sources.registry._http import Answer, Connection, Network

Request = Callable[[Connection, Mapping[str, str]], Answer]

_WORTH: Final = 1 << 20  # bytes after which failures count anew: a server that gives one byte at a time must end
_PIECE: Final = 1 << 17  # bytes asked for at a time: a TLS record alone has 16 KB
_WHOLE_ONLY: Final = (200, 400, 405, 416, 501)  # how servers answer that know no Range, or not this one
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Repository(Protocol):
    """The repository that a blob is in, as far as its stream asks."""

    network: Network

    def trouble(self, answer: Answer, what: str) -> ServiceError:
        """Return what an answer that is none says, as an error."""

    def count(self, number: int, part_of: str | None = None) -> None:
        """Count bytes that came, and of which blob they are a part."""

    def enter(self, stream: BlobStream) -> None:
        """Note a stream that may wait for the network."""

    def leave(self, stream: BlobStream) -> None:
        """Note that a stream was closed."""


class BlobStream(io.RawIOBase):
    """The stored bytes of one blob, in order. Their digest is the reader's to check, and so is their end.

    With ``part``, an offset and a length, just these; then the connection can be another's, who closes it.

    Opening and reading raise BlobError where the registry lacks the blob or states another size than the manifest,
    RangeRefusedError where a part was asked for and the whole came, and ServiceError where it can't be reached,
    refuses, or breaks off too often.
    """

    def __init__(
        self,
        registry: Repository,
        descriptor: Descriptor,
        what: str,
        lacking: str,
        request: Request,
        part: tuple[int, int] | None = None,
        connection: Connection | None = None,
    ) -> None:
        super().__init__()
        self._registry = registry
        self._size = descriptor.size
        self._what = f"{what} ({descriptor.digest})"
        self._lacking = lacking
        self._request = request
        self._part_of = None if part is None else descriptor.digest
        start, self._end = (0, self._size) if part is None else (part[0], part[0] + part[1])
        self._offset = start  # bytes that were given out, or lie before the part
        self._at = start  # where the connection stands
        self._failures = 0
        self._mark = start  # where it broke off last
        self._answer: Answer | None = None
        self._own = connection is None
        self._connection = connection or registry.network.connect()
        registry.enter(self)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def readable(self) -> bool:
        """Tell that it is there to be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a part of the buffer and return how many bytes that was; 0 at the end."""
        view = memoryview(buffer).cast("B")
        if self._part_of is not None:
            view = view[: self._end - self._offset]
            if not view:
                return 0
        while True:
            self._connection.check()
            if self._answer is None:
                self._open()
            behind = self._offset - self._at
            data = self._receive(min(len(view), behind) if behind else len(view))
            if data is None:
                continue
            self._at += len(data)
            if not behind:
                view[: len(data)] = data
                self._offset = self._at
                return len(data)

    def abort(self) -> None:
        """End a read that waits in another thread, and refuse all later ones."""
        self._connection.stop()
        answer = self._answer
        if answer is not None and answer.stream is not None:
            try:
                answer.stream.shutdown()
            except (OSError, ValueError, RuntimeError, AttributeError):
                return  # it is closed already, or ends just now

    def close(self) -> None:
        """Let go of the connection."""
        if not self.closed:
            self._registry.leave(self)
            self._drop()
            if self._own:
                self._connection.close()
        super().close()

    # ---------------------------------------------------------------------------------------------------------------

    def _receive(self, most: int) -> bytes | None:
        """Return the next bytes, none at the end; None where the connection broke and was let go."""
        answer = self._answer
        assert answer is not None
        assert answer.stream is not None
        try:
            data = answer.stream.read(min(most, _PIECE))
        except trouble.LOST as error:
            if self._at == self._end:
                return b""
            self._broken(trouble.reason(error), error)
            return None
        if not data and (self._at < self._offset or 0 <= self._at < self._end):
            self._broken("it ended too early", None)
            return None
        self._registry.count(len(data), self._part_of)
        return data

    def _broken(self, why: str, cause: BaseException | None) -> None:
        """Let go of a connection, and wait a little; raise ServiceError where that was too often."""
        self._drop()
        network = self._registry.network
        self._connection.check()
        if self._offset - self._mark >= _WORTH:
            self._failures = 0
        self._mark = self._offset
        self._failures += 1
        if self._failures >= network.options.tries:
            of = f" of {self._size}" if self._size >= 0 else ""
            raise ServiceError(
                f"{self._what} broke off {self._failures} times in a row, last at byte {self._offset}{of}: {why}",
                "check the network and try again; layers that were read are in the cache",
            ) from cause
        self._connection.pause(network.backoff(self._failures))

    def _drop(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()

    def _open(self) -> None:
        """Ask for the rest of the blob."""
        last = "" if self._part_of is None else self._end - 1
        ranged = bool(self._offset or self._part_of)
        headers = {"Range": f"bytes={self._offset}-{last}"} if ranged else {}
        answer = self._request(self._connection, headers)
        if answer.status == 206 and ranged:
            self._check_range(answer)
            self._answer = answer
            self._at = self._offset
        elif self._part_of is not None and answer.status in _WHOLE_ONLY:
            answer.close()
            raise RangeRefusedError(f"{self._what} comes whole or not at all: its registry takes no Range")
        elif answer.status == 200:
            self._check_length(answer)
            self._answer = answer
            self._at = 0  # the server takes no Range: what was read already passes once more
        elif answer.status == 404:
            raise BlobError(f"{self._what} is not there", self._lacking)
        elif answer.status == 416 and self._offset:
            raise BlobError(
                f"{self._what} ends before byte {self._offset}, and the manifest says {self._size}", self._lacking
            )
        else:
            answer.close()
            raise self._registry.trouble(answer, self._what)

    def _check_range(self, answer: Answer) -> None:
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
        if match is None or int(match[1]) != self._offset:
            answer.close()
            raise ServiceError(f"{self._what} was asked for from byte {self._offset} on, and came from elsewhere")
        if match[3] != "*" and self._size >= 0 and int(match[3]) != self._size:
            answer.close()
            raise self._other_size(int(match[3]))

    def _check_length(self, answer: Answer) -> None:
        length = answer.headers.get("Content-Length", "")
        if length.isdecimal() and self._size >= 0 and int(length) != self._size:
            answer.close()
            raise self._other_size(int(length))

    def _other_size(self, size: int) -> BlobError:
        return BlobError(
            f"{self._what} is {size} bytes long in the registry, and the manifest says {self._size}", self._lacking
        )
