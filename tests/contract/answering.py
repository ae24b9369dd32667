"""An HTTP server that answers as the script says and writes down what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_NO_CONTENT = 204


@dataclass(frozen=True)
class Answer:
    """*error* is the name of an AWS error; *body* holds the rest."""

    status: int = 200
    body: dict[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    path: str
    body: bytes
    headers: dict[str, str]
    port: int = 0  # of the caller: one a connection

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Answering(ThreadingHTTPServer):
    """Gives *script* in order, the last answer for ever."""

    daemon_threads = True

    def __init__(self, *script: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = list(script)
        self.asked: list[ReceivedRequest] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def next_answer(self, asked: ReceivedRequest) -> Answer:
        with self.lock:
            self.asked.append(asked)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]


class _Handler(BaseHTTPRequestHandler):
    server: Answering
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the sender was killed between two packets
            self.close_connection = True
            return
        asked = ReceivedRequest(
            self.command, self.path, body, dict(self.headers.items()), self.client_address[1]
        )
        answer = self.server.next_answer(asked)
        text = json.dumps(
            {**answer.body, **({"__type": answer.error} if answer.error else {})}
        ).encode()
        if answer.status == _NO_CONTENT:
            text = b""
        self.send_response(answer.status)
        if answer.error:
            self.send_header("x-amzn-ErrorType", answer.error)
        if answer.status != _NO_CONTENT:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_DELETE = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: pytest shows what matters."""


@contextmanager
def answering(*script: Answer) -> Iterator[Answering]:
    with Answering(*script) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
