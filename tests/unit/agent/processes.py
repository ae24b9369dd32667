"""An agent as a process, and a feed on loopback with answers to order; they share no code."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from tests.unit.client.command import TIDINGS

WITHIN_S = 180.0


@dataclass(frozen=True)
class Request:
    path: str
    key: str
    authorization: str | None
    operations: list[dict[str, Any]]

    @property
    def ids(self) -> list[str]:
        return [operation["id"] for operation in self.operations]


@dataclass
class Answer:
    """*code* is in the body as in PROTOCOL 4.6; *lost*: appended, but the answer is lost."""

    status: int = 204
    code: str = ""
    lost: bool = False


class Target:
    """*judge* decides the answer to each request; a request that is answered with 204 is appended
    once.
    """

    def __init__(self) -> None:
        self.judge: Callable[[Request], Answer] = lambda request: Answer()
        self.requests: list[Request] = []
        self.appended: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.port = 0
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ids(self) -> list[str]:
        return [operation["id"] for operation in self.appended]

    def forget(self) -> None:
        """Begin again, as if nothing had been posted."""
        self.judge = lambda request: Answer()
        self.requests, self.appended, self.keys = [], [], set()

    def answer(self, request: Request) -> Answer:
        answer = self.judge(request)
        with self._changed:
            self.requests.append(request)
            if answer.status == 204 and request.key not in self.keys:
                self.keys.add(request.key)
                self.appended += request.operations
            self._changed.notify_all()
        return answer

    def until(self, true: Callable[[], object]) -> None:
        """Wait for requests until it is *true*."""
        with self._changed:
            assert self._changed.wait_for(true, WITHIN_S), (self.ids[-5:], self.requests[-5:])


@dataclass
class Running:
    """The target on a port that can be closed and opened again."""

    target: Target = field(default_factory=Target)
    _server: ThreadingHTTPServer | None = None

    def open(self) -> None:
        target = self.target

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = target.answer(
                    Request(
                        self.path,
                        self.headers["idempotency-key"],
                        self.headers["authorization"],
                        [json.loads(line) for line in body.split(b"\n")],
                    )
                )
                if answer.lost:
                    self.close_connection = True
                    return
                error = {"error": {"code": answer.code, "message": "for a reason"}}
                content = json.dumps(error).encode() if answer.code else b""
                self.send_response(answer.status)
                if answer.status != 204:
                    self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *values: Any) -> None:
                """Keep the test's output free of requests."""

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", target.port), Handler)
        self._server.daemon_threads = True
        target.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@contextmanager
def running() -> Iterator[Running]:
    found = Running()
    found.open()
    try:
        yield found
    finally:
        found.close()


class Agent:
    """`with Agent(url, folder) as agent`; it can be killed and started again."""

    def __init__(self, url: str, folder: Path, *options: str, env: Any = None) -> None:
        self._command = [*TIDINGS, "agent", "--url", url, "--queue-dir", str(folder / "queue")]
        self._command += ["--listen", "127.0.0.1:0", *options]
        self._env = env
        self.folder = folder
        self._errors = (folder / "stderr").open("w+")
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.http = httpx.Client(timeout=WITHIN_S)

    def __enter__(self) -> Agent:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._datagrams.close()
        self._errors.close()
        self.http.close()

    def start(self) -> str:
        """Return the line with which it says that it serves."""
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=self._env
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("tidings agent ready "), self.errors
        host, _, port = line.split()[3].rstrip(",").rpartition(":")
        self._datagrams.connect((host, int(port)))
        self.url = f"http://{host}:{port}"
        return line

    @property
    def errors(self) -> str:
        self._errors.flush()
        return Path(self._errors.name).read_text()

    def kill(self) -> None:
        """Kill the agent as a crash would; its receiver notices by itself."""
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Stop the agent; return its exit code, and its last line."""
        self.process.send_signal(number)
        said, _ = self.process.communicate(timeout=WITHIN_S)
        return self.process.returncode, said

    def send(self, *datagrams: bytes) -> None:
        for datagram in datagrams:
            self._datagrams.send(datagram)

    def post(self, content: bytes, kind: str = "application/json") -> httpx.Response:
        return self.http.post(f"{self.url}/", content=content, headers={"Content-Type": kind})

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"{self.url}/status").json()
        return found

    def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the status, once *true* holds for it."""
        deadline = time.monotonic() + WITHIN_S
        while not true(status := self.status()):
            assert time.monotonic() < deadline, (status, self.errors)
            time.sleep(0.02)
        return status


def operation(object_id: str | int, **others: Any) -> bytes:
    return json.dumps({"event": "update", "type": "video", "id": str(object_id), **others}).encode()
