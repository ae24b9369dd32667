"""Traces and metrics that a server exports by OTLP, as a receiver decodes them."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.compat.oplog.wire import until
from tidings.core.version import VERSION
from tidings.server.meters import BOUNDS_S
from tidings.server.running import Server

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OPERATION = {"event": "insert", "type": "video", "id": "x32"}


class Receiver:
    """An HTTP receiver of OTLP; it keeps the decoded requests."""

    def __init__(self) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        kinds: dict[str, tuple[Any, list[Any]]] = {
            "/v1/traces": (ExportTraceServiceRequest, self.traces),
            "/v1/metrics": (ExportMetricsServiceRequest, self.metrics),
        }
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                kind, kept = kinds[self.path]
                outer.headers.append(dict(self.headers.items()))
                kept.append(kind.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

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
    it = Receiver()
    thread = threading.Thread(target=it.server.serve_forever)
    thread.start()
    yield it
    it.server.shutdown()
    thread.join()
    it.server.server_close()


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
