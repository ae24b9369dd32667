"""The deployed handlers, called in this process on DynamoDB Local, and what each call used."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

from tidings.aws.config import deployment
from tidings.aws.runtime.clock import now_ms
from tidings.core.log.append import Appender
from tidings.core.model.operations import line_from
from tidings.http.streams.sse import LAST_MS
from tidings.twin.environment import Places
from tidings.twin.environment import program as deployed
from tidings.twin.gateway import http_events, socket_events
from tidings.twin.options import Options

from bench import engine, units

_EMBEDDED = '"CloudWatchMetrics"'  # in each line of metrics
_STREAM_MS = 100  # so that it reaches the end of the log, and does not look there again


@dataclass(slots=True)
class Used:
    """
    Of one call: units of DynamoDB, its requests, CPU time, bytes that went into the log, and those
    of *metrics* beside them: lines in CloudWatch's embedded format.
    """

    writes: float = 0
    reads: float = 0
    requests: float = 0
    cpu_ms: float = 0
    logged: float = 0
    metrics: float = 0
    metric_bytes: float = 0


@dataclass
class Sink:
    """Takes what is sent to Lambda and to connections, and counts the messages."""

    messages: int = 0
    message_bytes: int = 0

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if "@connections" in self.path:
                    sink.messages += 1
                    sink.message_bytes += len(body)
                self.send_response(202 if "invocations" in self.path else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Stay silent."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()


@dataclass
class Functions:
    """
    Calls any function of the blueprint as its deployment would have it, with *settings*.

    *appender* posts without a function: the one that is measured goes on in its own process.
    """

    places: Places
    archive: Path
    sink: Sink
    appender: Appender
    settings: dict[str, str]
    current: str = ""
    _written: list[Counter[str]] = field(default_factory=list)
    _read: list[Counter[str]] = field(default_factory=list)
    _asked: Counter[str] = field(default_factory=Counter)

    def call(self, name: str, event: dict[str, Any]) -> Used:
        """One call, in a process that has served others before."""
        handle: Any = self._module(name).handle
        return self._measured(lambda: handle(json.loads(json.dumps(event)), _Context(name)))

    def append(self, operations: list[dict[str, Any]]) -> None:
        """One page of *operations*."""
        lines = [line_from(each, now_ms=now_ms()) for each in operations]
        self.appender.append("main", lines)

    def stream(self) -> Used:
        """A stream that goes on at the end of a quiet feed, and ends before it reads again."""
        app = importlib.reload(self._module("stream")).app
        return self._measured(lambda: asyncio.run(_streamed(app)))

    def _measured(self, call: Callable[[], object]) -> Used:
        for each in (*self._written, *self._read, self._asked):
            each.clear()
        printed = io.StringIO()
        started = time.process_time()
        with contextlib.redirect_stdout(printed):
            call()
        took_ms = (time.process_time() - started) * 1000
        lines = printed.getvalue().splitlines(keepends=True)
        metrics = [each for each in lines if _EMBEDDED in each]
        return Used(
            sum(each.total() for each in self._written),
            sum(each.total() for each in self._read),
            self._asked.total(),
            took_ms,
            len(printed.getvalue()) - sum(map(len, metrics)),
            len({name for each in metrics for name in _names(each)}),
            sum(map(len, metrics)),
        )

    def _module(self, name: str) -> ModuleType:
        function = next(each for each in deployment.FUNCTIONS if each.name == name)
        if name != self.current:
            self._become(function)
        return importlib.import_module(f"functions.{function.folder}.handler")

    def _become(self, function: deployment.Function) -> None:
        """What was built for the function before is forgotten, as in a process of its own."""
        for name in [name for name in os.environ if name.startswith("TIDINGS_")]:
            del os.environ[name]
        options = Options(archive=self.archive, settings=self.settings)
        os.environ |= deployed(function, options, self.places).environment
        _forget()
        self._written, self._read, self.current = [], [], function.name
        from tidings.aws.runtime import clients

        for client in (clients.dynamodb(), clients.dynamodb_once()):
            self._watch(client)

    def _watch(self, client: Any) -> None:
        self._written.append(units.counting(client, units.WRITES))
        self._read.append(_billed(client))
        events = client.meta.events
        events.register("before-send.dynamodb", lambda **_: self._asked.update(("request",)))


def _billed(client: Any) -> Counter[str]:
    """
    Units read. AWS bills the least there is for a read that finds nothing, too: one, or half a one
    where it may be stale. This engine does not.
    """
    units.counting(client, units.READS)  # which asks for them
    billed: Counter[str] = Counter()
    least = {"units": 1.0}  # of the request that is under way: one at a time

    def ask(params: dict[str, Any], **_: object) -> None:
        least["units"] = 1.0 if params.get("ConsistentRead") else 0.5

    def note(parsed: dict[str, Any], **_: object) -> None:
        found = parsed.get("ConsumedCapacity", [])
        for used in found if isinstance(found, list) else [found]:
            billed[used["TableName"]] += max(least["units"], used["CapacityUnits"])

    for call in units.READS:
        client.meta.events.register(f"provide-client-params.dynamodb.{call}", ask)
        client.meta.events.register(f"after-call.dynamodb.{call}", note)
    return billed


def _names(line: str) -> list[str]:
    """The metrics in a *line* in CloudWatch's embedded format."""
    written = json.loads(line)["_aws"]["CloudWatchMetrics"]
    return [metric["Name"] for one in written for metric in one["Metrics"]]


class _Context:
    """What Lambda says of an invocation."""

    memory_limit_in_mb = 512
    aws_request_id = "00000000-0000-0000-0000-000000000000"

    def __init__(self, name: str) -> None:
        self.function_name = name
        self.invoked_function_arn = f"arn:aws:lambda:us-east-1:000000000000:function:{name}"

    def get_remaining_time_in_millis(self) -> int:
        return 10_000


async def _streamed(app: Any) -> None:
    """A GET from the end of the log on, in a function whose time is over soon."""
    sent: list[dict[str, Any]] = []
    deadline = int(time.time() * 1000) + LAST_MS + _STREAM_MS
    told = {"accept": "text/event-stream", "x-amzn-lambda-context": f'{{"deadline":{deadline}}}'}

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b""}
    headers = [(name.encode(), text.encode()) for name, text in told.items()]
    await app({**scope, "headers": headers}, receive, send)
    assert sent[0]["status"] == 200 and not sent[-1]["more_body"], sent


def _forget() -> None:
    """Whatever modules of ours have cached is built anew, from the environment as it is now."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tidings.aws"):
            for part in vars(module).values():
                clear = getattr(part, "cache_clear", None)
                if clear is not None:
                    clear()


@contextlib.contextmanager
def running(**settings: str) -> Iterator[Functions]:
    """Of a deployment with *settings*."""
    before = dict(os.environ)
    sink = Sink()
    with (
        engine.running() as store,
        sink.serving() as url,
        tempfile.TemporaryDirectory() as folder,
    ):
        try:
            places = Places(store.url, url, "")
            yield Functions(places, Path(folder), sink, store.appender, settings)
        finally:
            os.environ.clear()
            os.environ.update(before)
            _forget()


def posted(body: object) -> dict[str, Any]:
    """The event of a POST of operations."""
    request = http_events.HttpRequest(
        "POST",
        "/",
        "",
        (("content-type", "application/json"), ("host", "bench"), ("user-agent", "bench")),
        json.dumps(body).encode(),
        "127.0.0.1",
        "POST /",
    )
    return http_events.encode(request, now_ms=int(time.time() * 1000), request_id="bench")


def caller(name: str) -> socket_events.Caller:
    return socket_events.Caller(name, int(time.time() * 1000), "127.0.0.1", (), "")


def said(name: str, **message: object) -> dict[str, Any]:
    """The event of a message on the WebSocket *name*."""
    now = int(time.time() * 1000)
    return socket_events.message(caller(name), json.dumps(message), now_ms=now)
