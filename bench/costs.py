"""Measure the deployed handlers for the bill: units, requests, CPU time, log lines and bytes.

The handlers run in this process on DynamoDB Local. The figures are kept in `bench/costs.json`;
`bench.costs_page` writes docs/operations/COSTS.md from them.
"""

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
from binascii import a2b_base64
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

from bench import bill, costs_page, dynamodb
from bench.bill import INDEX, STREAM
from bench.results import Section
from bench.workload import operations
from infra import names, settings, synth
from tests.infra.templates import of_assembly
from tests.twin import http_gateway, socket_gateway
from tests.twin.environment import Endpoints, Options
from tests.twin.environment import program as deployed
from tidings.aws.config import deployment
from tidings.aws.effects import now_ms
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.erasure.records import Phase
from tidings.core.log.append import Appender
from tidings.core.log.reader import Reader
from tidings.core.model.events import GZIP, of_line, pack, to_json
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.http.streams.sse import LAST_MS

Body = list[dict[str, Any]]  # operations of one request

_ROUNDS = 8
_APART_S = max(limits.PROFILE_AGE_MS, limits.DOCUMENT_AGE_MS) / 1000 + 0.1
_SUBSCRIBERS = 25
_WAKE = {"ring": "main"}
_OBJECTS = 100_000  # more than are posted
_REPLAYED = 100_000  # operations; the figure is scaled to a million
_EMBEDDED = '"CloudWatchMetrics"'  # in each line of metrics
_STREAM_MS = 100  # so that it reaches to the end of the log once


def measure() -> Section:
    """Measure, store the figures, and write docs/operations/COSTS.md from them."""
    with running() as functions:
        used = {name: _mean(found) for name, found in _paths(functions)}
        sizes = _sizes(functions)
    found = {"used": used, "bytes": sizes, "replayed": _replayed(), "erased": _erased()}
    found |= {"feeds": _feeds()}
    found |= {"standing": _idle_resources()}
    costs_page.MEASURED.write_text(
        json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )
    costs_page.write(found)
    rows = [(name, _format(each)) for name, each in used.items()]
    return Section(
        "What a bill is made of",
        "recorded",
        rows,
        notes=[
            f"Means of {_ROUNDS} calls of the deployed handlers in one process, on DynamoDB Local. "
            "COSTS.md is computed from these figures, which are kept in bench/costs.json."
        ],
    )


def _paths(functions: Functions) -> Iterator[tuple[str, list[Used]]]:
    yield from _quiet(functions)
    yield from _clients(functions)
    yield STREAM, _repeated(functions.stream)
    yield from _idle(functions)


def _quiet(functions: Functions) -> Iterator[tuple[str, list[Used]]]:
    """Measure producers, and followers without connected clients."""
    for count in (1, 100):
        bodies = _bodies(count)
        yield f"post of {count}", _posting(functions, bodies)
        functions.call("follow-state", _WAKE)
        functions.call("follow-push", _WAKE)
        functions.call("follow-archive", _WAKE)
        for follower in ("follow-state", "follow-push", "follow-archive"):
            yield f"{follower}, a page of {count}", _following(functions, follower, bodies)


def _posting(functions: Functions, bodies: Iterator[Body]) -> list[Used]:
    return _repeated(lambda: functions.call("ingest", posted(_said(next(bodies)))))


def _following(functions: Functions, follower: str, bodies: Iterator[Body]) -> list[Used]:
    """Measure runs that each find one page, in a process that had earlier runs."""

    def run() -> Used:
        functions.append(next(bodies))
        return functions.call(follower, _WAKE)

    return _repeated(run)


def _clients(functions: Functions) -> Iterator[tuple[str, list[Used]]]:
    names = [f"client-{number}" for number in range(_SUBSCRIBERS)]
    opened = [functions.call("connect", _opened(name)) for name in names]
    yield "connect", opened
    subscribe = [said(name, action="subscribe") for name in names]
    yield "subscribe", [functions.call("receive", each) for each in subscribe]
    replay = [functions.call("replay", {"replay": name}) for name in names]
    yield "replay of nothing", replay
    functions.call("follow-push", _WAKE)
    bodies = _bodies(1)
    functions.sink.messages = functions.sink.message_bytes = 0
    pushed = _following(functions, "follow-push", bodies)
    assert functions.sink.messages >= _SUBSCRIBERS * _ROUNDS, functions.sink.messages
    yield f"push of a page of 1 to {_SUBSCRIBERS}", pushed
    closed = [functions.call("disconnect", _opened(name)) for name in names]
    yield "disconnect", closed


def _opened(name: str) -> dict[str, Any]:
    return socket_gateway.connect_event(caller(name), now_ms=int(time.time() * 1000))


def _idle(functions: Functions) -> Iterator[tuple[str, list[Used]]]:
    """Measure the sweep of a quiet feed, and the index after some pages."""
    for name in ("follow-state", "follow-push", "follow-archive", "index"):
        functions.call(name, _WAKE)
    yield "sweep, idle", _repeated(partial(functions.call, "sweep", {}))
    bodies = _bodies(1)
    yield INDEX, _repeated(partial(_indexed, functions, bodies))


def _indexed(functions: Functions, bodies: Iterator[Body]) -> Used:
    for _ in range(limits.SUMMARY_PAGES):
        functions.append(next(bodies))
    return functions.call("index", _WAKE)


def _bodies(count: int) -> Iterator[Body]:
    """Yield requests of *count* operations, each on another object."""
    made = operations(_OBJECTS)
    while True:
        yield [next(made) for _ in range(count)]


def _said(body: Body) -> object:
    """Return *body* as producers post it."""
    return body[0] if len(body) == 1 else body


def _repeated(call: Callable[[], Used]) -> list[Used]:
    """Call after two warm-up calls. Wait before each call until cached settings have expired, as in
    a feed with occasional requests.
    """

    def later() -> Used:
        time.sleep(_APART_S)
        return call()

    return [later() for _ in range(_ROUNDS + 2)][2:]


def _mean(found: list[Used]) -> dict[str, float]:
    names = asdict(found[0])
    return {name: round(fmean(getattr(each, name) for each in found), 3) for name in names}


def _sizes(functions: Functions) -> dict[str, float]:
    """Return the bytes that DynamoDB stores for an operation, and those of a message."""
    client = dynamodb.client(functions.places.dynamodb_url)
    pages = client.scan(TableName="tidings-local-log")["Items"]
    single = [_weight(item) for item in pages if "S" in item["body"]]
    packed = [_weight(item) / 100 for item in pages if "B" in item["body"]]
    rows = client.scan(TableName="tidings-local-state")["Items"]
    weights = [_weight(item) for item in rows if "line" in item]
    sink = functions.sink
    return {
        "page of 1": round(fmean(single)),
        "operation in a page of 100": round(fmean(packed)),
        "row": round(fmean(weights)),
        "message of 1": round(sink.message_bytes / sink.messages),
        "message of 100 in gzip": _message_bytes(),
    }


def _message_bytes() -> int:
    """Return the size of the WebSocket message of a page of 100, in gzip."""
    page = Page(1, encode([line_from(raw, now_ms=0) for raw in operations(100)]), "a", 0)
    events = (to_json(of_line(page.id_prefix, slot, line)) for slot, line in page.entries())
    (made,) = pack(events, page.end.encode(), GZIP)
    return len(made)


def _replayed() -> dict[str, dict[str, int]]:
    """Return the read units of a million operations by batch size, also strongly consistent."""
    found = {}
    with dynamodb.running() as running:
        spent = dynamodb.counting(running.client, dynamodb.READS)
        for batch in (1, 100):
            feed = f"replayed-{batch}"
            dynamodb.fill(running, feed, _REPLAYED, batch)
            each = {}
            for how in ("reads", "strongly"):
                spent.clear()
                _read_all(running.reader, feed, strongly=how == "strongly")
                each[how] = round(spent.total() * 1e6 / _REPLAYED)
            found[str(batch)] = each
    return found


def _erased() -> dict[str, dict[str, float]]:
    """Return the usage of an erasure by the operations of its object, each on a page of its own.

    The log has as many pages of other objects. The archive is in a folder, so requests to S3 are
    not counted.
    """
    found = {}
    for count in (1, 1_000):
        with running() as functions:
            others = _bodies(1)
            for _ in range(count):
                functions.append(next(others))
                functions.append([{"event": "update", "type": "video", "id": "erased-object"}])
            for name in ("follow-state", "follow-push", "follow-archive"):
                functions.call(name, _WAKE)
            entry = Entry("video", "erased-object", "bench", "a measurement")
            functions.appender.append("main", [encode_entry(entry, now_ms=now_ms())])
            used = [functions.call("follow-state", _WAKE)]
            for name in ("follow-push", "follow-archive"):
                functions.call(name, _WAKE)
            kept = False
            while not kept:  # a run ends after `limits.ERASE_RUN_MS`
                used.append(functions.call("erase", _WAKE))
                (erasure,) = stage().stores.erasures.unfinished("main")
                kept = erasure.phase is Phase.KEPT
            assert erasure.entries == count, erasure
        found[str(count)] = {
            name: round(sum(getattr(each, name) for each in used), 3)
            for name in ("writes", "reads", "requests", "cpu_ms")
        }
    return found


_ACTIVE = 10  # feeds that have a page each minute
_SETTLED = 3  # sweeps of one process, after which it visits no feed without new pages


def _feeds() -> dict[str, dict[str, float]]:
    """Return the usage of a creation, of deletions by the operations in the feed, and of sweeps.

    The archive is in a folder, so requests to S3 are not counted.
    """
    found = {}
    for count in (1, 1_000):
        with running(TIDINGS_ERASURE_SECONDS="0") as functions:
            made = functions.run("amend", partial(_create, "made"))
            found["create"] = _units([made])
            _use(functions, "made", count)
            used = [functions.run("amend", _delete)]
            for _ in range(2):
                used.append(functions.call("remove", {}))
                time.sleep(limits.REMOVE_SETTLE_MS / 1000 + 1)
            assert stage().stores.feed_store.unfinished() == []
            found[f"delete {count}"] = _units(used)
            again = functions.run("amend", partial(_create, "made"))
            found["create again"] = _units([again])
    for count in (_ACTIVE, 100, 1_000):
        found[f"sweep {count}"] = _units([_swept(count)])
    return found


def _create(name: str) -> None:
    stage().feed_service.create(name)


def _delete() -> None:
    stage().feed_service.delete("made", confirm="made")


def _units(used: list[Used]) -> dict[str, float]:
    return {
        name: round(sum(getattr(each, name) for each in used), 3)
        for name in ("writes", "reads", "requests", "cpu_ms")
    }


def _use(functions: Functions, feed: str, pages: int) -> None:
    """Append *pages* of one operation to *feed*, and let the followers handle them."""
    made = operations(_OBJECTS)
    for _ in range(pages):
        functions.appender.append(feed, [line_from(next(made), now_ms=now_ms())])
    for name in ("follow-state", "follow-push", "follow-archive"):
        functions.call(name, {"ring": feed})


def _swept(count: int) -> Used:
    """Return the usage of a sweep of *count* feeds, of which `_ACTIVE` have a new page."""
    with running() as functions:
        for number in range(count):
            functions.run("amend", partial(_create, f"feed-{number}"))
        for _ in range(_SETTLED):
            functions.call("sweep", {})
        for _ in range(2):  # the first sweep after a page begins the daily round of renewals
            for number in range(_ACTIVE):
                _use(functions, f"feed-{number}", 1)
            used = functions.call("sweep", {})
    return used


def _read_all(reader: Reader, feed: str, *, strongly: bool) -> None:
    after, more = 0, True
    while more:
        if strongly:
            reader.ends[feed] = after
        run = reader.read(feed, after)
        after, more = max([after, *(page.number for page in run.pages)]), run.more


def _weight(item: Any) -> int:
    """Return the bytes of an item as DynamoDB counts them, and the 100 that it adds."""
    return 100 + sum(len(name) + _value(value) for name, value in item.items())


def _value(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "B":
        return len(a2b_base64(content))  # as `tidings.aws.clients.read_items_raw` leaves it
    return len(content) if kind == "S" else 8


def _idle_resources() -> dict[str, dict[str, Any]]:
    """Return the resources of each stage that are billed when nothing happens."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        synth.synth(Path(folder) / "cdk.out")
        for stage in settings.STAGES:
            resources = of_assembly(Path(folder) / "cdk.out", stage.name)["Resources"]
            found[stage.name] = asdict(bill.of_template(resources, names.prefix(stage)))
    return found


def _format(used: dict[str, float]) -> str:
    return (
        f"{used['writes']:g} WRU, {used['reads']:g} RRU, {used['requests']:g} requests,"
        f" {used['cpu_ms']:.1f} ms of CPU, {used['logged']:.0f} B logged,"
        f" {used['metric_bytes']:.0f} B of metrics"
    )


@dataclass(slots=True)
class Used:
    """The usage of one call; *metrics* are counted in CloudWatch's embedded format."""

    writes: float = 0
    reads: float = 0
    requests: float = 0
    cpu_ms: float = 0
    logged: float = 0
    metrics: float = 0
    metric_bytes: float = 0


@dataclass
class Sink:
    """Accepts requests to Lambda and to connections, and counts the messages."""

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
    """Calls the functions of the blueprint as they are deployed, with *settings*.

    *appender* posts without a function, so that the measured function keeps its caches.
    """

    places: Endpoints
    archive: Path
    sink: Sink
    appender: Appender
    settings: dict[str, str]
    current: str = ""
    _written: list[Counter[str]] = field(default_factory=list)
    _read: list[Counter[str]] = field(default_factory=list)
    _requests: Counter[str] = field(default_factory=Counter)

    def call(self, name: str, event: dict[str, Any]) -> Used:
        """Call a function in a process that has served other calls before."""
        handle: Any = self._module(name).handle
        return self._measured(lambda: handle(json.loads(json.dumps(event)), _Context(name)))

    def run(self, name: str, call: Callable[[], object]) -> Used:
        """Do *call* in the process of a function."""
        self._module(name)
        return self._measured(call)

    def append(self, operations: list[dict[str, Any]]) -> None:
        """Append *operations* as one page."""
        lines = [line_from(each, now_ms=now_ms()) for each in operations]
        self.appender.append("main", lines)

    def stream(self) -> Used:
        """Resume a stream at the end of a quiet feed, and end it before it reads again."""
        app = importlib.reload(self._module("stream")).app
        return self._measured(lambda: asyncio.run(_streamed(app)))

    def _measured(self, call: Callable[[], object]) -> Used:
        for each in (*self._written, *self._read, self._requests):
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
            self._requests.total(),
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
        """Drop the caches of the previous function, as if it had its own process."""
        for name in [name for name in os.environ if name.startswith("TIDINGS_")]:
            del os.environ[name]
        options = Options(data=self.archive, settings=self.settings)
        os.environ |= deployed(function, options, self.places).environment
        _forget()
        self._written, self._read, self.current = [], [], function.name
        from tidings.aws import clients

        for client in (clients.dynamodb(), clients.dynamodb_once()):
            self._count_requests(client)

    def _count_requests(self, client: Any) -> None:
        self._written.append(dynamodb.counting(client, dynamodb.WRITES))
        self._read.append(_billed(client))
        events = client.meta.events
        events.register("before-send.dynamodb", lambda **_: self._requests.update(("request",)))


def _billed(client: Any) -> Counter[str]:
    """Count read units. AWS bills at least one unit for each read (half if eventually consistent),
    even if it finds nothing; DynamoDB Local does not.
    """
    dynamodb.counting(client, dynamodb.READS)  # requests them
    billed: Counter[str] = Counter()
    least = {"units": 1.0}  # of the current request: one at a time

    def ask(params: dict[str, Any], **_: object) -> None:
        least["units"] = 1.0 if params.get("ConsistentRead") else 0.5

    def note(parsed: dict[str, Any], **_: object) -> None:
        found = parsed.get("ConsumedCapacity", [])
        for used in found if isinstance(found, list) else [found]:
            billed[used["TableName"]] += max(least["units"], used["CapacityUnits"])

    for call in dynamodb.READS:
        client.meta.events.register(f"provide-client-params.dynamodb.{call}", ask)
        client.meta.events.register(f"after-call.dynamodb.{call}", note)
    return billed


def _names(line: str) -> list[str]:
    """Return the names of the metrics in a *line* in CloudWatch's embedded format."""
    written = json.loads(line)["_aws"]["CloudWatchMetrics"]
    return [metric["Name"] for one in written for metric in one["Metrics"]]


class _Context:
    """The context object of an invocation."""

    memory_limit_in_mb = 512
    aws_request_id = "00000000-0000-0000-0000-000000000000"

    def __init__(self, name: str) -> None:
        self.function_name = name
        self.invoked_function_arn = f"arn:aws:lambda:us-east-1:000000000000:function:{name}"

    def get_remaining_time_in_millis(self) -> int:
        return 10_000


async def _streamed(app: Any) -> None:
    """Send a GET from the end of the log to a function that has almost no time left."""
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
    """Clear the caches of the modules, so that they read the environment again."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tidings.aws"):
            for part in vars(module).values():
                clear = getattr(part, "cache_clear", None)
                if clear is not None:
                    clear()


@contextlib.contextmanager
def running(**settings: str) -> Iterator[Functions]:
    """Start the store and the sink of a deployment with *settings*."""
    before = dict(os.environ)
    sink = Sink()
    with (
        dynamodb.running() as store,
        sink.serving() as url,
        tempfile.TemporaryDirectory() as folder,
    ):
        try:
            places = Endpoints(store.url, url)
            yield Functions(places, Path(folder), sink, store.appender, settings)
        finally:
            os.environ.clear()
            os.environ.update(before)
            _forget()


def posted(body: object) -> dict[str, Any]:
    """Return the event of a POST of operations."""
    request = http_gateway.HttpRequest(
        "POST",
        "/",
        "",
        (("content-type", "application/json"), ("host", "bench"), ("user-agent", "bench")),
        json.dumps(body).encode(),
        "127.0.0.1",
        "POST /",
    )
    return http_gateway.encode_event(request, now_ms=int(time.time() * 1000), request_id="bench")


def caller(name: str) -> socket_gateway.Caller:
    return socket_gateway.Caller(name, int(time.time() * 1000), "127.0.0.1", (), "")


def said(name: str, **message: object) -> dict[str, Any]:
    """Return the event of a message on the WebSocket *name*."""
    now = int(time.time() * 1000)
    return socket_gateway.message_event(caller(name), json.dumps(message), now_ms=now)
