"""HTTP servers that answer as a test says and write down what they were asked."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_NO_CONTENT = 204


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


@dataclass(frozen=True)
class Reply:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pause_s: float = 0.0  # after each of its bytes


class HttpServer(ThreadingHTTPServer):
    """`with HttpServer(respond) as server`: sends the reply of *respond* to each request."""

    daemon_threads = True

    def __init__(self, respond: Callable[[ReceivedRequest], Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond = respond
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the sender was killed between two packets
            self.close_connection = True
            return
        headers, port = dict(self.headers.items()), self.client_address[1]
        reply = self.server.respond(ReceivedRequest(self.command, self.path, body, headers, port))
        sized = {} if reply.status == _NO_CONTENT else {"Content-Length": str(len(reply.body))}
        self.send_response(reply.status)
        for name, value in {**sized, **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if not reply.pause_s:
            self.wfile.write(reply.body)
            return
        with contextlib.suppress(OSError):  # the client has left
            for at in range(len(reply.body)):
                self.wfile.write(reply.body[at : at + 1])
                time.sleep(reply.pause_s)

    do_GET = do_PUT = do_DELETE = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: pytest shows what matters."""


@dataclass(frozen=True)
class Answer:
    """*error* is the name of an AWS error; *body* holds the rest."""

    status: int = 200
    body: dict[str, Any] = field(default_factory=dict)
    error: str = ""


class Answering(HttpServer):
    """Gives *script* in order, the last answer for ever."""

    def __init__(self, *script: Answer) -> None:
        super().__init__(self._reply)
        self.script = list(script)
        self.asked: list[ReceivedRequest] = []
        self.lock = threading.Lock()

    def next_answer(self, asked: ReceivedRequest) -> Answer:
        with self.lock:
            self.asked.append(asked)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def _reply(self, asked: ReceivedRequest) -> Reply:
        answer = self.next_answer(asked)
        error = {"__type": answer.error} if answer.error else {}
        body = b"" if answer.status == _NO_CONTENT else json.dumps(answer.body | error).encode()
        headers = {"x-amzn-ErrorType": answer.error} if answer.error else {}
        return Reply(body, answer.status, headers)


answering = Answering  # `with answering(Answer(503)) as server`
