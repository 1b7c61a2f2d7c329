"""Requests that reach a registry: TLS, proxies, redirects, and trying again (RFC 9110; distribution spec).

``Network`` is what all connections for one image share, ``Connection`` is one, for one thread.
"""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import ipaddress
import random
import ssl
import threading
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urljoin, urlsplit

import msgspec
import requests
import urllib3
from requests.adapters import HTTPAdapter

from imgdiff.about import VERSION
from imgdiff.errors import ServiceError
from imgdiff.sources._files import JSON_LIMIT
from imgdiff.sources._text import shown
from imgdiff.sources.registry import _trouble as trouble
from imgdiff.sources.registry._options import Options

CERTIFICATES: Final = (Path("/etc/docker/certs.d"), Path("/etc/containers/certs.d"))  # HOST/*.crt, *.cert with *.key
_AGAIN: Final = (408, 425, 429, *sorted({*range(500, 600)} - {501, 505}))  # proxies have 5xx of their own
_ELSEWHERE: Final = (301, 302, 303, 307, 308)
_REFUSED: Final = (401, 403)
_MOST_REDIRECTS: Final = 10
_READ: Final = 1 << 16
_DIGITS: Final = 9  # of seconds to wait: decades


class Answer(msgspec.Struct, frozen=True):  # holds a live connection: never serialised
    """What a server said. ``stream`` is the open response where a stream was asked for and the status is 200 or 206;
    ``body`` is whole otherwise."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    stream: urllib3.response.BaseHTTPResponse | None
    close: Any


class Network:
    """How a registry is reached: scheme, certificates, timeouts."""

    def __init__(self, host: str, options: Options) -> None:
        self.options = options
        self.scheme = "https"
        self.reached = False  # whether anything answered: then a refusal passes
        self._host = host
        self._context = _context(host, insecure=options.insecure)
        self._certificate = _client_certificate(host)
        if options.insecure:  # it was asked for, and urllib3 would say so for each request
            warnings.filterwarnings("ignore", category=urllib3.exceptions.InsecureRequestWarning)

    def url(self, path: str) -> str:
        """Return the URL of a path on the registry."""
        return f"{self.scheme}://{self._host}{path}"

    def connect(self) -> Connection:
        """Return a connection of one's own, for one thread."""
        return Connection(self, self._context, self._certificate)

    def backoff(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row: doubling, and never the same for two clients."""
        wait = min(self.options.pause * 2.0 ** (failures - 1), self.options.longest_pause)
        return wait * (0.75 + random.random() / 2)  # noqa: S311 -- no secret


def _context(host: str, *, insecure: bool) -> ssl.SSLContext:
    """Return what TLS trusts: the system's store (SSL_CERT_FILE, SSL_CERT_DIR) and docker's for this host."""
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    for directory in CERTIFICATES:
        for path in sorted((directory / host).glob("*.crt")):
            try:
                context.load_verify_locations(path)
            except OSError as error:  # ssl.SSLError among them
                raise ServiceError(f"the CA certificate {shown(str(path))} can't be used") from error
    return context


def _client_certificate(host: str) -> tuple[str, str] | None:
    for directory in CERTIFICATES:
        for path in sorted((directory / host).glob("*.cert")):
            key = path.with_suffix(".key")
            if key.is_file():
                return str(path), str(key)
    return None


class _Adapter(HTTPAdapter):
    """An adapter that trusts what a context trusts, also behind a proxy."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(pool_connections=4, pool_maxsize=1)

    def init_poolmanager(self, *args: Any, **keywords: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **keywords)

    def proxy_manager_for(self, proxy: str, **keywords: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._context, **keywords)


class _Session(requests.Session):
    """A session that leaves redirects alone: requests looks into them even where it is not to follow, and fails."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Tell that there is none."""


class Connection:
    """A session. A context manager; for one thread."""

    def __init__(self, network: Network, context: ssl.SSLContext, certificate: tuple[str, str] | None) -> None:
        self._network = network
        self._certificate = certificate
        self._stopped = threading.Event()
        self._at = ""  # the URL that was asked last, behind redirects
        self._session = _Session()
        self._session.headers.clear()
        self._session.mount("https://", _Adapter(context))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session and its connections."""
        self._session.close()

    def stop(self) -> None:
        """Make what waits or starts from now on fail. For any thread; a read that waits is the caller's to end."""
        self._stopped.set()

    def check(self) -> None:
        """Raise ServiceError if all was given up."""
        if self._stopped.is_set():
            raise ServiceError("reading from the registry was given up")

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until all is given up."""
        self._stopped.wait(seconds)
        self.check()

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        authorization: str | None = None,
        data: Mapping[str, str] | None = None,
        stream: bool = False,
    ) -> Answer:
        """Return the answer to a request, whatever its status, after redirects and after what may pass by waiting.

        ``authorization`` goes to the host of ``url`` and to no other. Raises ServiceError where there is no answer.
        """
        failures = 0
        while True:
            self.check()
            try:
                answer = self._follow(method, url, headers, authorization, data, stream=stream)
            except trouble.LOST as error:
                failures += 1
                passing = trouble.passing(error, reached=self._network.reached)
                if not passing or failures >= self._network.options.tries:
                    raise trouble.unreachable(error, self._at or url, self._network.options) from error
                wait = self._network.backoff(failures)
            else:
                self._network.reached = True
                if answer.status not in _AGAIN:
                    return answer
                failures += 1
                asked = retry_after(answer.headers)
                if failures >= self._network.options.tries or asked > self._network.options.longest_wait:
                    return answer
                wait = max(asked, self._network.backoff(failures))
            self.pause(wait)

    def _follow(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        authorization: str | None,
        data: Mapping[str, str] | None,
        *,
        stream: bool,
    ) -> Answer:
        first = urlsplit(url)
        asked = trouble.origin(url)
        for _ in range(_MOST_REDIRECTS):
            target = urlsplit(url)
            own = (target.scheme, target.netloc) == (first.scheme, first.netloc)
            more = {"Authorization": authorization} if authorization and own else {}
            answer = self._once(method, url, {**headers, **more}, data, own=own, stream=stream)
            if answer.status in _REFUSED and not own:  # whom it asks for a login is not for us to hear
                raise ServiceError(
                    f"{asked} sends us on to {trouble.origin(url)}, which answers with {answer.status}",
                    "try again; what it is for must be known there",
                )
            if answer.status not in _ELSEWHERE:
                return answer
            answer.close()
            location = answer.headers.get("Location")
            if data is not None or not location:  # what was posted is a secret
                return answer
            url = _joined(url, location)
            scheme = urlsplit(url).scheme
            if scheme not in ("https", "http") or not urlsplit(url).hostname:
                raise ServiceError(f"{asked} sends us on to what is no address")
            if scheme != "https" and not self._network.options.insecure:
                raise ServiceError(
                    f"{asked} sends us on to {trouble.origin(url)}, which is not HTTPS", "--insecure allows plain HTTP"
                )
        raise ServiceError(f"{asked} redirects without end")

    def _once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        data: Mapping[str, str] | None,
        *,
        own: bool,
        stream: bool,
    ) -> Answer:
        options = self._network.options
        self._at = url
        response = self._session.request(
            method,
            url,
            headers={"User-Agent": f"imgdiff/{VERSION}", "Accept-Encoding": "identity", **headers},
            data=data,
            auth=_as_it_is,
            stream=True,
            allow_redirects=False,
            timeout=(options.connect_timeout, options.read_timeout),
            verify=not options.insecure,
            cert=self._certificate if own else None,
            proxies={"http": "", "https": ""} if _is_local(url) else None,  # as Go does: never through a proxy
        )
        if stream and response.status_code in (200, 206):
            return Answer(response.status_code, response.headers, b"", response.raw, response.close)
        with response:
            body = _whole(response)
        return Answer(response.status_code, response.headers, body, None, response.close)


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Stand where a login would: without one, requests takes what ~/.netrc has for the host."""
    return request


def _whole(response: requests.Response) -> bytes:
    """Return a body; raise ServiceError where it is larger than any manifest."""
    parts: list[bytes] = []
    size = 0
    for part in response.iter_content(_READ):
        parts.append(part)
        size += len(part)
        if size > JSON_LIMIT:
            raise ServiceError(f"{trouble.origin(response.url)} answers with more than {JSON_LIMIT} bytes")
    return b"".join(parts)


def _joined(url: str, location: str) -> str:
    """Return where a Location header leads; nothing that can be read leads to an empty text."""
    with contextlib.suppress(UnicodeError):  # headers are read as Latin-1
        location = location.encode("latin-1").decode()
    try:
        return urlsplit(urljoin(url, location)).geturl()
    except ValueError:
        return ""


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a server asks to wait (RFC 9110, 10.2.3); 0 where it asks nothing."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdecimal():
        return float(value[:_DIGITS])
    try:
        date = email.utils.parsedate_to_datetime(value)
        if date.tzinfo is None:  # of the older forms; all are in UTC
            date = date.replace(tzinfo=datetime.UTC)
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
