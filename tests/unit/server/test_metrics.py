"""`/metrics` of a running server, and the traces and metrics that it exports by OTLP."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from websockets.sync.client import connect

from tests.compat.oplog.wire import until
from tests.contract.answering import Answer, HttpServer, ReceivedRequest, Reply, answering
from tests.unit.server.test_webhooks import create, post
from tidings.core.changeagent.webhooks import Verdict
from tidings.core.version import VERSION
from tidings.http.routes import HTTP_ROUTES
from tidings.server.meters import BOUNDS_S, OTHER, Histogram, Meters
from tidings.server.metrics import COUNTERS, FAMILIES, OPEN_METRICS, TEXT, form_for
from tidings.server.running import Server

PRIVATE = ("--setting", "TIDINGS_HOOKS_PRIVATE=true")
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
# What Prometheus 2.42 sends.
SCRAPER = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("--feeds", "main,other", *PRIVATE) as running:
        yield running


def scrape(server: Server) -> Mapping[str, float]:
    """Return the value of each sample."""
    lines = httpx.get(f"{server.url}metrics").text.splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def answers(server: Server) -> dict[tuple[str, str, str], float]:
    """Return the number of answers by route, method and status."""
    pattern = re.compile(r'\w+\{route="(.*)",method="(.*)",status="(.*)"\}')
    return {
        (found[1], found[2], found[3]): value
        for name, value in scrape(server).items()
        if name.startswith("tidings_http_requests_total") and (found := pattern.fullmatch(name))
    }


def test_requests_are_counted_by_route_and_status_and_never_by_path(server: Server) -> None:
    """So that no client can create a label."""
    for each in ("a", "b"):
        assert httpx.get(f"{server.url}feeds/{each}/consumers/{each}").status_code == 404
        httpx.get(f"{server.url}unknown/{each}")
    httpx.request("PURGE", f"{server.url}unknown")
    httpx.post(f"{server.url}feeds/other/ops", json={"event": "no"})
    httpx.post(f"{server.url}feeds/other/ops", json=[], headers={"host": "evil.example"})
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"not a request\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400")
    counted = answers(server)

    assert counted["/feeds/{feed}/consumers/{name}", "GET", "404"] == 2
    assert counted[OTHER, "GET", "404"] == 2
    assert counted["/feeds/{feed}/ops", "POST", "400"] == 1
    assert counted[OTHER, "POST", "421"] == 1
    assert counted["refused", OTHER, "400"] == 1
    assert {method for _, method, _ in counted} == {"GET", "POST", OTHER}
    routes = {each.path for each in HTTP_ROUTES} | {OTHER, "refused", "/metrics"}
    assert {route for route, *_ in counted} <= routes
    assert answers(server)["/metrics", "GET", "200"] == 1
    durations = scrape(server)
    of = '{route="/feeds/{feed}/consumers/{name}",method="GET"}'
    assert durations[f"tidings_http_request_duration_seconds_count{of}"] == 2
    assert 0 < durations[f"tidings_http_request_duration_seconds_sum{of}"] < 600


def test_an_answer_below_a_prefix_and_behind_a_proxy_has_its_route() -> None:
    """Both pass a copy of the request's scope to the app."""
    prefix = ("--setting", "TIDINGS_URL_PREFIX=/below")
    with Server(*prefix) as running:
        httpx.get(f"{running.url}below/status", headers={"forwarded": "proto=https"})
        text = httpx.get(f"{running.url}below/metrics").text
    assert 'tidings_http_requests_total{route="/status",method="GET",status="200"} 1\n' in text


def test_push_is_measured_by_transport_and_clients(server: Server) -> None:
    """For each client, from the commit until its message is written."""
    url = f"{server.url}ops?cursor=now"
    socket_url = server.ws_url
    event_stream = 'tidings_push_duration_seconds_count{transport="event-stream"}'
    websocket = 'tidings_push_duration_seconds_count{transport="websocket"}'
    accept = {"accept": "text/event-stream"}
    with (
        httpx.stream("GET", url, headers=accept, timeout=None),
        httpx.stream("GET", url, headers=accept, timeout=None),
        connect(socket_url) as client,
    ):
        client.send(json.dumps({"action": "subscribe", "cursor": "now"}))
        assert "subscribed" in str(client.recv(60))
        until(lambda: scrape(server)['tidings_clients{transport="event-stream"}'] == 2)
        assert scrape(server)['tidings_clients{transport="websocket"}'] == 1
        # The first posts may find a stream that is not at the end of the log yet.
        until(lambda: post(server, "a") and scrape(server)[event_stream] >= 2)
        before = scrape(server)
        post(server, "a")
        until(lambda: scrape(server)[event_stream] - before[event_stream] >= 2)
        until(lambda: scrape(server)[websocket] - before[websocket] >= 1)
        after = scrape(server)
    assert 0 < after['tidings_push_duration_seconds_sum{transport="websocket"}'] < 60
    assert 0 < after['tidings_push_duration_seconds_sum{transport="event-stream"}'] < 120
    until(lambda: scrape(server)['tidings_clients{transport="event-stream"}'] == 0)


def test_webhooks_are_counted_by_result(server: Server) -> None:
    """The endpoint accepts one message, and refuses the next; parked messages are a gauge."""
    with answering(Answer(204), Answer(400)) as it:
        create(server, it.url, "picky", "--attempts", "1")
        post(server, "a")
        of = "tidings_webhook_duration_seconds_count"
        until(lambda: scrape(server)[f'{of}{{result="accepted"}}'] == 1)
        post(server, "b")
        until(lambda: scrape(server)['tidings_consumer_parked{feed="main",consumer="picky"}'] == 1)
        after = scrape(server)
    assert after[f'{of}{{result="refused"}}'] == 1
    assert after[f'{of}{{result="failed"}}'] == 0


def test_the_process_and_its_files_are_measured(server: Server) -> None:
    """Under the names that all exporters of Prometheus use; the unit is in the name."""
    before = scrape(server)
    for _ in range(20):
        post(server, "a")
    after = scrape(server)

    assert abs(after["process_start_time_seconds"] - time.time()) < 600
    assert after["process_cpu_seconds_total"] > before["process_cpu_seconds_total"] > 0
    assert 10_000_000 < after["process_resident_memory_bytes"] < 1_000_000_000
    assert after["process_virtual_memory_bytes"] >= after["process_resident_memory_bytes"]
    assert 3 < after["process_open_fds"] < after["process_max_fds"]
    database = (server.data / "feed.db").stat().st_size
    assert 0 < after["tidings_database_size_bytes"] <= database
    assert after["tidings_database_wal_bytes"] > 0
    assert after["tidings_disk_size_bytes"] > after["tidings_disk_free_bytes"] > 0
    assert any(f'version="{VERSION}"' in name for name in after)
    commits = "tidings_commit_duration_seconds_count"
    assert after[commits] - before[commits] >= 20
    assert after["tidings_received_bytes_total"] - before["tidings_received_bytes_total"] > 2_000
    assert after["tidings_sent_bytes_total"] - before["tidings_sent_bytes_total"] > 2_000


def test_counters_begin_at_zero(server: Server) -> None:
    """Otherwise Prometheus would miss the first increase."""
    samples = scrape(server)
    assert [each.sample for each in COUNTERS if samples.get(each.sample) != 0] == []
    assert not any("letters" in name or "captured" in name for name in samples)


def test_a_scraper_gets_openmetrics_if_it_asks_for_that(server: Server) -> None:
    """The samples are the same, except for those that change; the types and units are its own."""
    scrape(server)
    plain = httpx.get(f"{server.url}metrics")
    answer = httpx.get(f"{server.url}metrics", headers={"accept": SCRAPER})

    assert plain.headers["content-type"] == TEXT
    assert answer.headers["content-type"] == OPEN_METRICS
    assert "accept" in answer.headers["vary"].lower()
    lines = answer.text.splitlines()
    assert lines[-1] == "# EOF" and "# EOF" not in plain.text
    assert "# TYPE tidings_operations_ingested counter" in lines
    assert "# TYPE tidings_operations_ingested_total counter" in plain.text.splitlines()
    assert "# UNIT tidings_commit_duration_seconds seconds" in lines
    assert "# UNIT" not in plain.text

    def names(text: str) -> set[str]:
        found = (_SAMPLE.fullmatch(line) for line in text.splitlines() if line[:1] != "#")
        return {each[1] for each in found if each}

    assert names(plain.text) == names(answer.text)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        (SCRAPER, OPEN_METRICS),
        ("text/plain;version=0.0.4", TEXT),
        ("application/openmetrics-text;q=0.3, text/plain", TEXT),
    ],
)
def test_the_format_is_the_one_preferred_by_name(accept: str, form: str) -> None:
    assert form_for(accept) == form


def test_every_family_has_a_help_text_and_base_units() -> None:
    """Other units would need a conversion in every query."""
    names = [each.name for each in (*COUNTERS, *FAMILIES)]
    assert len(names) == len(set(names))
    for family in (*COUNTERS, *FAMILIES):
        assert family.meaning and not family.meaning.endswith(".")
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert not re.search(r"_(ms|s|kb|mb|milliseconds|minutes)$", family.name)
        assert family.kind != "histogram" or family.unit == "seconds"


def test_a_histogram_counts_each_event_once() -> None:
    """A value at a bound belongs to that bound, as `le` says."""
    histogram = Histogram()
    for seconds in (0.0, BOUNDS_S[0], BOUNDS_S[1], BOUNDS_S[-1] + 1):
        histogram.observe(seconds)
    histogram.observe(0.2, times=3)
    assert histogram.counts[:2] == [2, 1] and histogram.counts[-1] == 1
    assert histogram.count == 7
    assert (histogram + histogram).count == 14
    assert histogram.sum_s == pytest.approx(sum((*BOUNDS_S[:2], BOUNDS_S[-1], 1, 0.6)))


def test_an_unknown_method_has_no_label_of_its_own() -> None:
    meters = Meters()
    for method in ("PURGE", "LINK", "GET"):
        meters.count_answer("/ops", method, 404, 0.1)
    assert {key: each.count for key, each in meters.answers.items()} == {
        ("/ops", OTHER, 404): 2,
        ("/ops", "GET", 404): 1,
    }


def test_a_call_that_ends_after_the_server_is_not_counted() -> None:
    """Its thread continues for a moment; it must not fail."""
    loop = asyncio.new_event_loop()
    meters = Meters(loop)
    meters.count_call(Verdict(204), 0.1)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    meters.count_call(Verdict(204), 0.1)
    assert meters.calls["accepted"].count == 1


ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OPERATION = {"event": "insert", "type": "video", "id": "x32"}


class Receiver(HttpServer):
    """An HTTP receiver of OTLP; it keeps the decoded requests."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []

    def _reply(self, request: ReceivedRequest) -> Reply:
        headers = {name.lower(): value for name, value in request.headers.items()}
        packed = headers.get("content-encoding") == "gzip"
        body = gzip.decompress(request.body) if packed else request.body
        self.headers.append(request.headers)
        if request.path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        elif request.path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        return Reply()

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def families(self) -> dict[str, Any]:
        """Return the metrics of the latest export by name."""
        (resource,) = self.metrics[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as it:
        yield it


@pytest.fixture
def exporting(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> Receiver:
    """Set the variables that the next server reads."""
    for name, value in {
        ENDPOINT: receiver.url,
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=k1",
    }.items():
        monkeypatch.setenv(name, value)
    return receiver


def plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def test_a_request_is_a_span_below_the_span_of_its_caller(exporting: Receiver) -> None:
    """Its name is the route, and never the path; a caller without a trace begins one."""
    with Server() as server:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        url = f"{server.url}feeds/main/ops"
        httpx.post(url, json=OPERATION, headers=headers).raise_for_status()
        httpx.get(f"{server.url}unknown")
        unsampled = {"traceparent": f"00-{'a' * 32}-{PARENT}-00"}
        httpx.post(url, json=OPERATION, headers=unsampled).raise_for_status()
        until(lambda: len(exporting.spans) >= 2)
    post, unknown = sorted(exporting.spans, key=lambda span: -len(span.name))

    assert post.name == "POST /feeds/{feed}/ops"
    assert (post.trace_id.hex(), post.parent_span_id.hex()) == (TRACE, PARENT)
    assert post.kind == Span.SPAN_KIND_SERVER
    assert plain(post.attributes) == {
        "http.request.method": "POST",
        "http.response.status_code": 204,
        "http.route": "/feeds/{feed}/ops",
        "url.path": "/feeds/main/ops",
        "url.scheme": "http",
    }
    assert 0 < post.end_time_unix_nano - post.start_time_unix_nano < 600 * 10**9
    assert unknown.name == "GET" and not unknown.parent_span_id
    assert unknown.status.code == Status.STATUS_CODE_UNSET
    (resource, *_) = exporting.traces[0].resource_spans
    attributes = plain(resource.resource.attributes)
    assert attributes["service.name"] == "tidings"
    assert attributes["service.version"] == VERSION
    assert attributes["deployment.environment.name"] == "test"
    named = [{name.lower(): value for name, value in each.items()} for each in exporting.headers]
    assert all(each["api-key"] == "k1" for each in named)


def test_the_metrics_are_those_of_prometheus(
    exporting: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same names, units and values; the last export is at the end of the server."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "feeds")
    with Server() as server:
        for _ in range(3):
            httpx.post(server.url, json=OPERATION).raise_for_status()
        until(lambda: exporting.metrics)
        httpx.post(server.url, json=OPERATION).raise_for_status()
        text = httpx.get(f"{server.url}metrics").text
    families = exporting.families

    names = {line.split()[2].removesuffix("_total") for line in text.splitlines() if "TYPE" in line}
    assert names <= families.keys()
    ingested = families["tidings_operations_ingested"]
    (point,) = ingested.sum.data_points
    assert point.as_int == 4 and ingested.sum.is_monotonic and ingested.unit == "1"
    assert point.start_time_unix_nano < point.time_unix_nano
    durations = families["tidings_http_request_duration_seconds"]
    assert durations.unit == "s"
    posts = next(
        each
        for each in durations.histogram.data_points
        if plain(each.attributes) == {"route": "/", "method": "POST"}
    )
    assert posts.count == 4 and sum(posts.bucket_counts) == 4
    assert tuple(posts.explicit_bounds) == BOUNDS_S
    assert not posts.HasField("min")
    (lag,) = [
        each
        for each in families["tidings_follower_lag"].gauge.data_points
        if plain(each.attributes) == {"feed": "main", "follower": "state"}
    ]
    assert lag.as_int == 0
    assert families["tidings_database_size_bytes"].unit == "By"
    (resource,) = exporting.metrics[-1].resource_metrics
    assert plain(resource.resource.attributes)["service.name"] == "feeds"


@pytest.mark.parametrize(
    ("variable", "value", "traces", "metrics"),
    [
        ("OTEL_TRACES_EXPORTER", "none", False, True),
        ("OTEL_METRICS_EXPORTER", "none", True, False),
        ("OTEL_TRACES_SAMPLER", "always_off", False, True),
    ],
)
def test_a_signal_can_be_turned_off(
    exporting: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    traces: bool,
    metrics: bool,
) -> None:
    monkeypatch.setenv(variable, value)
    with Server() as server:
        httpx.post(server.url, json=OPERATION).raise_for_status()
    assert (bool(exporting.traces), bool(exporting.metrics)) == (traces, metrics)


def test_a_server_works_and_stops_without_a_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program listens at the endpoint; requests are answered, and the end is not delayed."""
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    with Server() as server:
        for _ in range(20):
            httpx.post(server.url, json=OPERATION).raise_for_status()
        assert server.stop() == 0


_LOADED = """
import sys
import tidings.server.serving, tidings.server.app, tidings.server.metrics
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_nothing_is_imported_without_an_endpoint() -> None:
    command = [sys.executable, "-c", _LOADED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_server_without_the_extra_says_which_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It serves, because a variable of the environment may be meant for other programs."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "opentelemetry").mkdir()
    (folder / "opentelemetry" / "__init__.py").write_text("raise ImportError('not installed')\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    with Server() as server:
        httpx.post(server.url, json=OPERATION).raise_for_status()
        until(lambda: "pip install '.[otel]'" in server.errors())
