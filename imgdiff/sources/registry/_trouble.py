"""What went wrong on the way to a registry, in one sentence with what to do. No URL and no secret gets into one."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import requests
import urllib3

from imgdiff.errors import ServiceError
from imgdiff.sources._text import shown
from imgdiff.sources.registry._options import Options

_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
LOST = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)  # what a broken connection raises
_FINAL = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidHeader,
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidProxyURL,
    urllib3.exceptions.LocationParseError,
)


def origin(url: str) -> str:
    """Return the ``host[:port]`` of a URL."""
    try:
        return shown(urlsplit(url).netloc.rpartition("@")[2])
    except ValueError:
        return "an address that can't be read"


def plain_may_help(error: BaseException) -> bool:
    """Tell whether HTTP may answer where HTTPS did not: TLS failed or was cut off, nobody listens, or only HTTP has a
    proxy."""
    kinds = (ssl.SSLError, ConnectionError, socket.gaierror, urllib3.exceptions.ProxyError)
    return any(isinstance(cause, kinds) for cause in _causes(error))


def passing(error: BaseException, *, reached: bool) -> bool:
    """Tell whether trying again can help: not with a wrong certificate, nor a wrong name unless it worked before."""
    if isinstance(error, _FINAL) or _no_bundle(error):
        return False
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return False
    return reached or not any(
        isinstance(cause, (socket.gaierror, ConnectionRefusedError, ssl.SSLError)) for cause in causes
    )


def _timed_out(error: BaseException) -> bool:
    """Tell a timeout; urllib3 calls a connection that could not be made one, whatever the reason."""
    timeouts = (TimeoutError, urllib3.exceptions.TimeoutError)
    return isinstance(error, timeouts) and not isinstance(error, urllib3.exceptions.NewConnectionError)


def _no_bundle(error: BaseException) -> bool:
    """Tell whether requests could not find the CA bundle that the environment names: an OSError without a number."""
    return type(error) is OSError and error.errno is None


def unreachable(error: BaseException, url: str, options: Options) -> ServiceError:
    """Return the error for a request that had no answer."""
    host = origin(url)
    causes = list(_causes(error))
    if isinstance(error, _FINAL):
        return _malformed(error, url, host)
    if any(isinstance(cause, urllib3.exceptions.ProxyError) for cause in causes):
        return ServiceError(
            f"the proxy on the way to {host} can't be used: {_reason(causes)}",
            "HTTPS_PROXY, HTTP_PROXY and NO_PROXY say which one is taken",
        )
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return _tls(cause, host)
        if isinstance(cause, socket.gaierror):
            return ServiceError(f"the host {host} is not known", "check the name, and the network")
        if isinstance(cause, ConnectionRefusedError):
            return ServiceError(f"{host} refuses connections", "check that the registry runs, and its port")
        if _timed_out(cause):
            early = isinstance(error, requests.exceptions.ConnectTimeout)
            timeout = options.connect_timeout if early else options.read_timeout
            return ServiceError(
                f"{host} did not answer in {timeout:g} s", "check the network; a proxy is named by HTTPS_PROXY"
            )
    if _no_bundle(error):
        return ServiceError(
            "REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE names a file that is not there", "unset it, or mend it"
        )
    return ServiceError(f"the connection to {host} broke off: {_reason(causes)}", "try again; check the network")


def _malformed(error: BaseException, url: str, host: str) -> ServiceError:
    """Return the error for an address that is none: the server's, or a proxy's."""
    if isinstance(error, requests.exceptions.InvalidSchema):  # "Missing dependencies for SOCKS support."
        return ServiceError(
            f"a SOCKS proxy on the way to {host} needs the package PySocks",
            "install it, or name an HTTP proxy in HTTPS_PROXY",
        )
    if not _has_address(url):
        return ServiceError(f"{host} is no address of a server", "check the host and the port")
    return ServiceError(
        f"the environment names a proxy on the way to {host}, and what it names is no address of one",
        "HTTPS_PROXY, HTTP_PROXY and ALL_PROXY are http://HOST:PORT",
    )


def _has_address(url: str) -> bool:
    try:
        (urllib3.util.parse_url(url).host or "").encode("idna")
    except (urllib3.exceptions.LocationParseError, UnicodeError):
        return False
    return requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url)) is not None  # it must be that


def _tls(error: ssl.SSLError, host: str) -> ServiceError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServiceError(
            f"the TLS certificate of {host} is not trusted: {shown(error.verify_message or 'no reason given')}",
            f"put its CA into /etc/docker/certs.d/{host}/ca.crt, or name it in SSL_CERT_FILE; --insecure goes without",
        )
    if error.reason in _PLAIN:
        return ServiceError(f"{host} speaks no TLS", "--insecure allows plain HTTP")
    words = (error.reason or error.strerror or "no reason given").lower().replace("_", " ")
    return ServiceError(f"TLS with {host} failed: {shown(words)}", "--insecure allows plain HTTP")


def reason(error: BaseException) -> str:
    """Return in a few words why a connection broke."""
    return _reason(list(_causes(error)))


def _reason(causes: list[BaseException]) -> str:
    for cause in causes:
        if _timed_out(cause):
            return "nothing came any more"
        if isinstance(cause, socket.gaierror):
            return "its host is not known"
        if isinstance(cause, ssl.SSLError):
            return shown((cause.reason or "TLS failed").lower().replace("_", " "))
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, requests.RequestException):
            return shown(cause.strerror.lower())
    return "it ended too early"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all that it wraps: libraries keep them in ``args``, ``reason`` and the chain."""
    pending, seen = [error], set()
    while pending:
        cause = pending.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        inner = [*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__]
        pending += [each for each in inner if isinstance(each, BaseException)]


def said(body: bytes) -> tuple[str, str]:
    """Return (code, message) of the first error in a registry's answer (distribution spec, "Error Codes")."""
    try:
        first = json.loads(body)["errors"][0]
        code, message = first.get("code"), first.get("message")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return "", ""
    return (code if isinstance(code, str) else ""), (message if isinstance(message, str) else "")
