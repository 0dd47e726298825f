"""The web server of `hushgrid watch`: GET only, pages and figures and server-sent events, with the standard library.

A page may load nothing but what stands here, and runs no script of its own: names that anybody may have written are
text. Who asks by another host's name is refused, so no foreign page reads a fleet through its visitor's browser.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOL_SOCKET, socket
from threading import BoundedSemaphore, Event, Thread
from typing import TYPE_CHECKING, cast

from hushgrid.broker.watch import metrics, pages
from hushgrid.broker.watch.graph import placed
from hushgrid.broker.watch.model import Model
from hushgrid.kernels.errors import InputError, printable
from hushgrid.kernels.types import Document

if TYPE_CHECKING:
    from hushgrid.broker.watch.device import DeviceFile  # what a fleet's page does not need stays out of memory

EVENT_S = 0.25  #: between two events of a stream
BEAT_S = 2.0  #: an event comes as often at the least: without one for longer, the page says that it is old
READ_S = 10.0  #: for a request to come, or for a client to take what it is sent
CONNECTIONS = 64  #: at once
REFUSED_S = 0.5  #: before a wrong password is answered
TYPES = {
    "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}  # fmt: skip
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass
class Site:
    """What the server shows, and to whom."""

    model: Model | None = None  #: the fleet
    device: DeviceFile | None = None  #: the device of this machine
    hosts: frozenset[str] = frozenset()  #: names by which a browser may ask, in lower case, without a port
    login: str | None = None  #: user:password
    stopping: Event = field(default_factory=Event)

    def admits(self, header: str | None) -> bool:
        """Whether an Authorization header has the login."""
        if self.login is None:
            return True
        scheme, _, word = (header or "").partition(" ")
        try:
            sent = base64.b64decode(word, validate=True) if scheme.lower() == "basic" else b""
        except (binascii.Error, ValueError):
            return False
        return hmac.compare_digest(sent, self.login.encode())


class Server(ThreadingHTTPServer):
    """Listens from the beginning; `start` answers. Raises InputError if the address cannot be had."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, site: Site, tls: ssl.SSLContext | None = None) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.site = site
        self._places = BoundedSemaphore(CONNECTIONS)
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise InputError(f"--http: found {host}:{port}: {why}, expected an address that is free") from None
        if tls is not None:  # the handshake is made by the thread of the connection
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        name = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{name}:{self.server_port}/"
        self._thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, name="server", daemon=True)

    def server_bind(self) -> None:
        """As the standard library's, without looking up the name of the host."""
        self.socket.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)  # a restart finds connections of before that are ending
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.site.stopping.set()
        if self.site.model is not None:
            with self.site.model.changed:
                self.site.model.changed.notify_all()
        self.shutdown()
        self.server_close()

    def process_request(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone, or speaks no TLS, is nothing to report; a defect is one line."""
        error = sys.exception()
        if not isinstance(error, OSError):
            print(f"watch: defect: {printable(f'{type(error).__name__}: {error}', 200)}", file=sys.stderr, flush=True)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = READ_S

    @property
    def site(self) -> Site:
        return cast(Server, self.server).site

    def do_GET(self) -> None:
        if not self._foreign() and self._known():
            self._answer(self.path.partition("?")[0])

    def do_HEAD(self) -> None:
        self.do_GET()

    def _foreign(self) -> bool:
        host = (self.headers.get("Host") or "").lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name in self.site.hosts:
            return False
        self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        return True

    def _known(self) -> bool:
        if self.site.admits(self.headers.get("Authorization")):
            return True
        time.sleep(REFUSED_S)
        self.send_error(HTTPStatus.UNAUTHORIZED)
        return False

    def _answer(self, path: str) -> None:
        model, device = self.site.model, self.site.device
        shown = pages.Shown(fleet=model is not None, device=device is not None)
        if path.startswith("/static/") and (asset := static().get(path.removeprefix("/static/"))):
            self._send(*asset)
        elif path in ("/", "/run", "/metrics") and model is not None:
            with model.changed:
                view = model.facts() if path == "/metrics" else PAGES[path][0](model)
            if path == "/metrics":
                self._send(metrics.text(view).encode(), "text/plain; version=0.0.4; charset=utf-8")
            else:
                self._send(PAGES[path][1](view, shown).encode(), "text/html; charset=utf-8")
        elif path == "/device" and device is not None:
            self._send(pages.device(device.facts(), shown).encode(), "text/html; charset=utf-8")
        elif path == "/" and device is not None:
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", "/device")
            self.end_headers()
        elif path == "/events/device" and device is not None:
            self._stream(device.changes(self.site.stopping, BEAT_S))
        elif path in STREAMS and model is not None:
            viewed, more = STREAMS[path]
            self._stream(more(document) for document in events(model, viewed, self.site.stopping))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _stream(self, documents: Iterator[Document]) -> None:
        """Server-sent events, until the client has gone or we end."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        if self.command == "HEAD":
            return
        for document in documents:
            self.wfile.write(b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n")

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """One line of text, in which nothing of the request stands."""
        status = HTTPStatus(code)
        body = f"{status.value} {status.phrase}\n".encode()
        self.close_connection = True
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="hushgrid", charset="UTF-8"')
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "hushgrid"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what a client writes is not for a terminal."""


def events(model: Model, view: Callable[[Model, int], Document], stopping: Event) -> Iterator[Document]:
    """What has changed, at most every EVENT_S and at least every BEAT_S; first all of it."""
    since = 0
    while not stopping.is_set():
        with model.changed:
            if model.version == since:
                model.changed.wait(BEAT_S)
            document = view(model, since)
            since = document["version"]
        yield document
        stopping.wait(EVENT_S)


def with_graph(view: Document) -> Document:
    """A view of a run with what its page shows: pairs of words, and the places of the graph's nodes."""
    if "answer" in view:
        view["answer_facts"] = pages.answer_facts(view["answer"])
    if "run" in view:
        view["facts"] = pages.run_facts(view["run"])
    if "edges" in view:
        view["graph"] = placed(tuple(view.pop("edges")))
    return view


PAGES: dict[str, tuple[Callable[[Model], Document], Callable[[Document, pages.Shown], str]]] = {
    "/": (Model.fleet_view, pages.fleet),
    "/run": (Model.run_view, pages.run),
}
#: Of a page's events: the view of the model, and what is added to it without holding the model.
STREAMS: dict[str, tuple[Callable[[Model, int], Document], Callable[[Document], Document]]] = {
    "/events/fleet": (Model.fleet_view, lambda view: view),
    "/events/run": (Model.run_view, with_graph),
}


@cache
def static() -> dict[str, tuple[bytes, str]]:
    """The files that a page may load, by name: content and type."""
    folder = resources.files("hushgrid.broker.watch") / "static"
    return {
        file.name: (file.read_bytes(), TYPES[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in TYPES
    }
