"""Export of traces and metrics by OTLP (OpenTelemetry), as the extra `otel`.

This module is only imported if an environment variable of OpenTelemetry names an endpoint. The SDK
takes locks, so the event loop only puts a record of each answer into a queue; a thread makes spans
of them, and exports the metrics of `/metrics` at an interval.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidings.core import limits
from tidings.core.errors import TidingsError
from tidings.core.version import VERSION
from tidings.server.host import BEGAN_MS
from tidings.server.meters import BOUNDS_S, OTHER, Histogram
from tidings.server.metrics import COUNTER, collect

if TYPE_CHECKING:
    from tidings.http.asgi import Message
    from tidings.server.host import Host
    from tidings.server.metrics import Family, Labels

log = logging.getLogger(__name__)
_SCOPE = "tidings.server"
_UNITS = {"seconds": "s", "bytes": "By", "": "1"}
_CONTEXT_HEADERS = frozenset({b"traceparent", b"tracestate"})
_CUMULATIVE = AggregationTemporality.CUMULATIVE
STOP_S = 2.0  # time for the last export when the server stops


class _Answer(NamedTuple):
    """An answered request: its trace context, its attributes, and the times in ns since 1970."""

    context: Mapping[str, str]
    method: str
    route: str
    status: int
    path: str
    scheme: str
    began_ns: int
    ended_ns: int


class Telemetry:
    """The exporters of *host*, in a thread of their own, configured by the variables of the SDK.

    *interval_s* is the time between two exports of metrics. The thread drops the records of answers
    beyond `limits.SPANS_QUEUED_MAX`, and the SDK drops spans that it cannot export.
    """

    def __init__(self, host: Host, *, traces: bool, metrics: bool, interval_s: float) -> None:
        self._host, self._interval_s = host, interval_s
        self._answers: SimpleQueue[_Answer | None] = SimpleQueue()
        self._dropped = 0
        defaults = Resource.create({"service.name": "tidings", "service.version": VERSION})
        # `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` take precedence.
        self._resource = defaults.merge(OTELResourceDetector().detect())
        self._metrics = OTLPMetricExporter() if metrics else None
        self._provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        if traces:
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            host.meters.observe_answer = self._put
        self._tracer = self._provider.get_tracer(_SCOPE, VERSION)
        self._propagator = TraceContextTextMapPropagator()
        self._thread = Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Export the rest for at most `STOP_S`."""
        self._host.meters.observe_answer = None
        self._answers.put(None)
        self._thread.join(STOP_S)

    def _put(self, scope: Message, route: str, status: int, seconds: float) -> None:
        """Queue the answer; the event loop calls this, so it must not wait."""
        if self._answers.qsize() >= limits.SPANS_QUEUED_MAX:
            self._dropped += 1
            return
        context = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in _CONTEXT_HEADERS
        }
        ended_ns = time.time_ns()
        began_ns = ended_ns - round(seconds * 1e9)
        place = scope["path"], scope["scheme"], began_ns, ended_ns
        self._answers.put(_Answer(context, scope["method"], route, status, *place))

    def _run(self) -> None:
        """Make spans, and export metrics at the interval and at the end."""
        due_s = time.monotonic() + self._interval_s
        is_running = True
        while is_running:
            with suppress(Empty):
                answer = self._answers.get(timeout=max(0.0, due_s - time.monotonic()))
                is_running = answer is not None
                if answer is not None:
                    self._span(answer)
            if time.monotonic() >= due_s or not is_running:
                due_s = time.monotonic() + self._interval_s
                self._export_metrics()
        self._provider.shutdown()

    def _span(self, answer: _Answer) -> None:
        name = answer.method if answer.route == OTHER else f"{answer.method} {answer.route}"
        attributes: dict[str, str | int] = {
            "http.request.method": answer.method,
            "http.response.status_code": answer.status,
            "url.path": answer.path,
            "url.scheme": answer.scheme,
        }
        if answer.route != OTHER:
            attributes["http.route"] = answer.route
        span = self._tracer.start_span(
            name,
            context=self._propagator.extract(answer.context),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=answer.began_ns,
        )
        if answer.status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end(answer.ended_ns)

    def _export_metrics(self) -> None:
        if self._dropped:
            log.warning("%(spans)d spans were dropped: too many requests", {"spans": self._dropped})
            self._dropped = 0
        if self._metrics is None:
            return
        try:
            families = list(collect(self._host))
        except TidingsError as error:  # the database does not answer
            log.warning("the metrics could not be read for OTLP: %(error)s", {"error": error})
            return
        data = metrics_data(families, self._resource, time.time_ns())
        self._metrics.export(data)  # the exporter logs errors and does not raise


def metrics_data(
    families: Sequence[tuple[Family, Sequence[tuple[float | Histogram, Labels]]]],
    resource: Resource,
    now_ns: int,
) -> MetricsData:
    """Return the result of `metrics.collect` as values of OpenTelemetry."""
    metrics = [
        Metric(
            name=family.name,
            description=family.meaning,
            unit=_UNITS[family.unit],
            data=_points(family, samples, now_ns),
        )
        for family, samples in families
    ]
    scope = ScopeMetrics(InstrumentationScope(_SCOPE, VERSION), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _points(
    family: Family, samples: Sequence[tuple[float | Histogram, Labels]], now_ns: int
) -> Sum | Gauge | HistogramData:
    began_ns = BEGAN_MS * 1_000_000
    histograms: list[HistogramDataPoint] = []
    numbers: list[NumberDataPoint] = []
    for value, labels in samples:
        if isinstance(value, Histogram):
            unknown: Any = None  # the smallest and the largest value are optional in OTLP
            histograms.append(
                HistogramDataPoint(
                    labels,
                    began_ns,
                    now_ns,
                    value.count,
                    value.sum_s,
                    list(value.counts),
                    BOUNDS_S,
                    unknown,
                    unknown,
                )
            )
        else:
            numbers.append(NumberDataPoint(labels, began_ns, now_ns, value))
    if histograms:
        return HistogramData(histograms, _CUMULATIVE)
    if family.kind == COUNTER:
        return Sum(numbers, _CUMULATIVE, is_monotonic=True)
    return Gauge(numbers)
