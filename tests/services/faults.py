"""A small proxy in front of a registry that counts what passes and breaks what it is told to break."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_HOP_BY_HOP = ("connection", "transfer-encoding", "content-length", "date", "server")


@dataclass
class Fault:
    """What happens to requests whose ``METHOD path`` matches; the first fault that matches and is not used up counts.

    ``status``: answer so instead of asking the registry, with ``headers`` and ``body``. ``cut``: end the connection
    after so many bytes of the body. ``reset``: end it before any answer. ``piece`` and ``delay``: send so many bytes
    at a time and wait so many seconds between them. ``stall``: send so many bytes and then nothing until the proxy
    ends. ``corrupt``: change the byte at this place. ``no_range``: give the whole blob whatever is asked.
    ``length``: state another Content-Length. ``chunked``: state none. ``anonymous``: hide the login from the registry.
    ``set``: change headers of the answer.
    """

    matches: str
    times: int = 1_000_000
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None
    reset: bool = False
    piece: int = 1 << 16
    delay: float = 0
    stall: int | None = None
    corrupt: int | None = None
    no_range: bool = False
    length: int | None = None
    chunked: bool = False
    anonymous: bool = False
    set: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Passed:
    """One request that came, and how many bytes of a body went back."""

    method: str
    path: str
    headers: Mapping[str, str]
    status: int
    sent: int


class Proxy:
    """The proxy's orders and its log."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.address = ""
        self.faults: list[Fault] = []
        self.log: list[Passed] = []
        self.lock = threading.Condition()
        self.over = threading.Event()
        self.most_at_once = 0  # blobs
        self.open = 0
        self.open_blobs = 0

    def clear(self) -> None:
        self.rest()
        self.faults.clear()
        self.log.clear()
        self.most_at_once = 0

    def rest(self) -> None:
        """Wait until what was asked is answered and in the log: a client has its answer a little earlier."""
        with self.lock:
            self.lock.wait_for(lambda: self.open == 0, timeout=5)

    def sent(self, pattern: str = "") -> int:
        """Return how many bytes of bodies went back for paths that match."""
        self.rest()
        return sum(each.sent for each in self.log if each.status < 300 and re.search(pattern, each.path))

    def requests(self, pattern: str) -> list[Passed]:
        self.rest()
        return [each for each in self.log if re.search(pattern, f"{each.method} {each.path}")]

    def fault(self, request: str) -> Fault:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.matches, request):
                    fault.times -= 1
                    return fault
        return Fault("")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def do_GET(self) -> None:
        whole = urllib.parse.urlsplit(self.path)  # absolute where it stands in for a proxy
        path = whole._replace(scheme="", netloc="").geturl()
        fault = self.proxy.fault(f"{self.command} {path}")
        status, sent = 0, 0
        blob = "/blobs/" in path
        with self.proxy.lock:
            self.proxy.open += 1
            self.proxy.open_blobs += blob
            self.proxy.most_at_once = max(self.proxy.most_at_once, self.proxy.open_blobs)
        try:
            if not fault.reset:
                status, headers, body = self._ask(path, fault)
                sent = self._send(status, headers, body, fault)
            if fault.reset or fault.cut is not None or fault.stall is not None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other side had enough
            self.close_connection = True
        finally:
            with self.proxy.lock:
                self.proxy.open -= 1
                self.proxy.open_blobs -= blob
                self.proxy.lock.notify_all()
                self.proxy.log.append(Passed(self.command, self.path, dict(self.headers.items()), status, sent))

    def do_CONNECT(self) -> None:
        """Make a tunnel to the registry, whatever host is asked for."""
        with self.proxy.lock:
            self.proxy.log.append(Passed("CONNECT", self.path, dict(self.headers.items()), 200, 0))
        host, _, port = self.proxy.upstream.partition(":")
        with socket.create_connection((host, int(port))) as upstream:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pass_on, args=(upstream, self.connection), daemon=True)
            back.start()
            _pass_on(self.connection, upstream)
            back.join()
        self.close_connection = True

    def _ask(self, path: str, fault: Fault) -> tuple[int, dict[str, str], bytes]:
        if fault.status:
            return fault.status, dict(fault.headers), fault.body
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        headers["Host"] = self.proxy.upstream
        if fault.no_range:
            headers.pop("Range", None)
        if fault.anonymous:
            headers.pop("Authorization", None)
        host, _, port = self.proxy.upstream.partition(":")
        upstream = http.client.HTTPConnection(host, int(port))
        try:
            upstream.request(self.command, path, headers=headers)
            answer = upstream.getresponse()
            body = answer.read()
        finally:
            upstream.close()
        return answer.status, dict(answer.getheaders()), body

    def _send(self, status: int, headers: dict[str, str], body: bytes, fault: Fault) -> int:
        self.send_response(status)
        for name, value in {**headers, **fault.set}.items():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if fault.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) if fault.length is None else fault.length))
        self.end_headers()
        if fault.corrupt is not None and fault.corrupt < len(body):
            body = body[: fault.corrupt] + bytes([body[fault.corrupt] ^ 1]) + body[fault.corrupt + 1 :]
        end = next((limit for limit in (fault.cut, fault.stall) if limit is not None), len(body))
        sent = 0
        while sent < min(end, len(body)):
            piece = body[sent : min(sent + fault.piece, end)]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if fault.chunked else piece)
            sent += len(piece)
            time.sleep(fault.delay)
        if fault.chunked and end >= len(body):
            self.wfile.write(b"0\r\n\r\n")
        if fault.stall is not None:
            self.proxy.over.wait()
        return sent

    def log_message(self, *arguments: object) -> None:
        """Keep quiet."""


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one side had enough
        return


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 50

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet: clients break off in these tests."""


@contextmanager
def fault_proxy(upstream: str) -> Iterator[Proxy]:
    """Run a proxy before the registry at ``host:port``."""
    proxy = Proxy(upstream)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": proxy}))
    proxy.address = f"localhost:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.over.set()
        server.shutdown()
        server.server_close()
