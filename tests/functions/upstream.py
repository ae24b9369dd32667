"""An upstream that answers as a test says."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Reply:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pause_s: float = 0.0  # after each of its bytes


class Upstream(ThreadingHTTPServer):
    """Answers with *reply*, or with the one of *replies* that has its name in the path.

    *asked* are the paths, *headers* those of the last request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply, self.replies = Reply(), dict[str, Reply]()
        self.asked, self.headers = list[str](), dict[str, str]()
        self.connections: set[object] = set()
        self.url = f"http://127.0.0.1:{self.server_port}/feeds/main"


class _Handler(BaseHTTPRequestHandler):
    server: Upstream
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.connections.add(self.client_address)
        named = self.server.replies.items()
        reply = next((each for name, each in named if name in self.path), self.server.reply)
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if not reply.pause_s:
            self.wfile.write(reply.body)
        with contextlib.suppress(OSError):  # the client has left
            for at in range(len(reply.body) if reply.pause_s else 0):
                self.wfile.write(reply.body[at : at + 1])
                time.sleep(reply.pause_s)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: pytest shows what matters."""


@contextmanager
def serving() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
