"""Lambda's API for the interpreter: an invocation runs the real handler in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

Handler = Callable[[dict[str, Any], object], Any]


class LambdaApi(ThreadingHTTPServer):
    """Runs `handlers` by the last word of a function's name, one at a time: moto is not made for
    threads. `script` holds errors, by the same word, that come before the handler is run.
    """

    daemon_threads = True

    def __init__(self, **handlers: Handler) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.handlers = handlers
        self.script: dict[str, list[Exception]] = {}
        self.invoked: list[tuple[str, dict[str, Any]]] = []
        self._one = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def invoke(self, name: str, event: dict[str, Any]) -> Any:
        with self._one:
            self.invoked.append((name, event))
            if self.script.get(name):
                raise self.script[name].pop(0)
            return self.handlers[name](event, None)


class _Request(BaseHTTPRequestHandler):
    server: LambdaApi
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = unquote(self.path).split("/")[-2].rpartition("-")[2]
        try:
            body = json.dumps(self.server.invoke(name, event)).encode()
            headers = {}
        except Exception as error:  # noqa: BLE001 Lambda reports any error
            told = {"errorType": type(error).__name__, "errorMessage": str(error)}
            body, headers = json.dumps(told).encode(), {"X-Amz-Function-Error": "Unhandled"}
        self.send_response(200)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None: ...


@contextmanager
def lambda_api(**handlers: Handler) -> Iterator[LambdaApi]:
    server = LambdaApi(**handlers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
