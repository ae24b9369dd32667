"""A proxy that answers some requests as a restarting server does, and forwards the others."""

from __future__ import annotations

import re
import socket
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Self

CUT_BYTES = 700  # of an answer that is cut: its head, and some of its events
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.I)
_PAGE = b"<!doctype html><title>nginx</title>"


def _answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


_HTML, _JSON = "Content-Type: text/html", "Content-Type: application/json"
_STREAM, _CHUNKED = "Content-Type: text/event-stream", "Transfer-Encoding: chunked"
_ERROR = b'{"error":{"code":"%s","message":"later"}}'
# The answers; None is no answer. `cut` forwards a request, and then only a part of its answer.
FAULTS: dict[str, bytes | None] = {
    "429": _answer("429 Too Many", _ERROR % b"too_many_requests", _JSON, "Retry-After: 1"),
    "500": _answer("500 Internal Server Error", b'{"message":"Internal Server Error"}', _JSON),
    "502": _answer("502 Bad Gateway", _PAGE, _HTML),
    "503": _answer("503 Unavailable", _ERROR % b"unavailable", _JSON, "Retry-After: 1"),
    "503-date": _answer("503 Unavailable", _PAGE, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"),
    "504": _answer("504 Gateway Timeout"),
    "empty": _answer("200 OK"),
    "html": _answer("200 OK", _PAGE, _HTML),
    "other": _answer("200 OK", b'{"hello":"world"}', _JSON),  # of another program
    "short": _answer("200 OK", b"retry: 2000\n\n", _STREAM),
    "truncated": b"HTTP/1.1 200 OK\r\n%b\r\n%b\r\n\r\n40\r\nid: 1"
    % (_STREAM.encode(), _CHUNKED.encode()),
    "truncated-json": b"HTTP/1.1 200 OK\r\n%b\r\n%b\r\n\r\n40\r\n{"
    % (_JSON.encode(), _CHUNKED.encode()),
    "closed": None,
    "cut": None,
}
LATER = _answer("503 Unavailable", b"", "Retry-After: 30")  # too late for a test that waits


class FaultyProxy:
    """A proxy in front of *port*.

    It answers the next requests with *where* in their address with *faults*, in order.
    """

    def __init__(self, port: int, faults: Iterable[str], where: str = "") -> None:
        self.port, self.faults, self._where = port, deque(faults), where.encode()
        proxy = self

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    proxy._handle(self)

        self._server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, handler: StreamRequestHandler) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = handler.rfile.readline()
            if not line:
                return
            head += line
        length = _LENGTH.search(head)
        body = handler.rfile.read(int(length[1])) if length else b""
        is_spoiled = self.faults and self._where in head.partition(b"\r\n")[0]
        fault = self.faults.popleft() if is_spoiled else ""
        found = FAULTS.get(fault, LATER if fault == "later" else None)
        if found is not None:
            handler.wfile.write(found)
        elif fault != "closed":
            self._forward(handler.connection, head + body, is_cut=fault == "cut")

    def _forward(self, client: socket.socket, request: bytes, *, is_cut: bool) -> None:
        """Forward *request*. The end of the answer ends the connection."""
        if b"\r\nupgrade: websocket" not in request.lower():
            request = request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            server.sendall(request)
            threading.Thread(target=_pipe, args=(client, server), daemon=True).start()
            if is_cut:
                client.sendall(_first_part(server))
            else:
                _pipe(server, client)
            client.shutdown(socket.SHUT_RDWR)


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


def _first_part(server: socket.socket) -> bytes:
    """Return the beginning of an answer, even of a short one only a part."""
    found = b""
    while len(found) < CUT_BYTES:
        data = server.recv(1 << 16)
        if not data:
            return found[:-5]
        found += data
    return found[:CUT_BYTES]
