"""The Lambda Runtime API (2018-06-01) of one worker: it asks for events and says what became."""

from __future__ import annotations

import json
import queue
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_PREFIX = "/2018-06-01/runtime/"


@dataclass(frozen=True)
class Event:
    """What one invocation is asked with; *deadline_ms* is a moment."""

    id: str
    payload: bytes
    deadline_ms: int
    trace: str


@dataclass(frozen=True)
class Answer:
    """What the worker said; *of* is an event's id, or `INIT` before the first one."""

    of: str
    payload: bytes
    failed: bool


INIT = "init"


def failure(of: str, kind: str, message: str) -> Answer:
    """Of an invocation that the handler itself did not answer."""
    told = {"errorType": kind, "errorMessage": message}
    return Answer(of, json.dumps(told).encode(), failed=True)


class RuntimeApi(ThreadingHTTPServer):
    """`events` go to the worker, `answers` come from it: the first one says that it is ready."""

    daemon_threads = True

    def __init__(self, function_arn: str) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.function_arn = function_arn
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._ready = False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def ready(self) -> None:
        """It asks for an event, which it does only once its handler is imported."""
        if not self._ready:
            self._ready = True
            self.answers.put(Answer(INIT, b"", failed=False))

    def hand(self, id: str, payload: bytes, limit_s: float, trace: str) -> None:
        deadline_ms = int((time.time() + limit_s) * 1000)
        self.events.put(Event(id, payload, deadline_ms, trace))

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    server: RuntimeApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path != f"{_PREFIX}invocation/next":
            self.send_error(404)
            return
        self.server.ready()
        event = self.server.events.get()
        headers = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": event.id,
            "Lambda-Runtime-Deadline-Ms": str(event.deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": self.server.function_arn,
            "Lambda-Runtime-Trace-Id": event.trace,
        }
        self._send(200, event.payload, headers)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match self.path.removeprefix(_PREFIX).split("/"):
            case ["init", "error"]:
                answer = Answer(INIT, body, failed=True)
            case ["invocation", id, "response" | "error" as kind]:
                answer = Answer(id, body, failed=kind == "error")
            case _:
                self.send_error(404)
                return
        self._send(202, b'{"status":"OK"}', {"Content-Type": "application/json"})
        self.server.answers.put(answer)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None: ...
