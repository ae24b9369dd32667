"""The logs and metrics of a function, written by Powertools.

Logs are lines of JSON, and metrics have CloudWatch's embedded metric format. In both, the service
is the name of the stage, which Powertools reads from `settings.SERVICE_VARIABLE`.

Logs contain feeds, pages, counts, errors and trace ids. They never contain headers or the content
of operations. Powertools is imported on first use, because the streaming function seldom needs it.
"""

from __future__ import annotations

import json
from functools import cache, wraps
from typing import TYPE_CHECKING, TypeVar

from tidings.aws.config import settings
from tidings.aws.config.settings import METRICS_NAMESPACE
from tidings.core.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aws_lambda_powertools import Logger, Metrics, Tracer

    from tidings.aws.config.settings import Networks
    from tidings.http.asgi import App, Message, Receive, Send


Event = TypeVar("Event")
Answer = TypeVar("Answer")

_EVENTS = ("text/event-stream", "application/x-ndjson")
_UNITS = {metric.name: metric.unit for metric in METRICS}


class UnknownMetric(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is not in tidings.core.metrics.METRICS")


@cache
def logger() -> Logger:
    from aws_lambda_powertools import Logger

    return Logger()


@cache
def _metrics() -> Metrics:
    from aws_lambda_powertools import Metrics

    return Metrics(namespace=METRICS_NAMESPACE)


def count(metric: str, value: int) -> None:
    """Implement `Count`. Metrics are collected, and written at the end of the invocation.

    Raises:
        UnknownMetric: the metric is not in the catalogue.
    """
    if metric not in _UNITS:
        raise UnknownMetric(metric)
    if value:
        _metrics().add_metric(name=metric, unit=_UNITS[metric], value=value)


def flush() -> None:
    """Write the metrics counted since the last flush."""
    if _metrics.cache_info().currsize and _metrics().provider.metric_set:
        _metrics().flush_metrics()


@cache
def _count_cold_start(function: str) -> None:
    """Write Powertools' metric `ColdStart` of *function*, once in this process."""
    from aws_lambda_powertools import single_metric
    from aws_lambda_powertools.metrics import MetricUnit

    unit = MetricUnit.Count
    with single_metric("ColdStart", unit=unit, value=1, namespace=METRICS_NAMESPACE) as metric:
        metric.add_dimension("function_name", function)
        metric.add_dimension("service", logger().service)


@cache
def _tracer() -> Tracer:
    from aws_lambda_powertools import Tracer

    return Tracer(patch_modules=("botocore",))


def edge(handler: Callable[[Event, object], Answer]) -> Callable[[Event, object], Answer]:
    """Return a function that calls *handler*, logs its error, and writes the metrics.

    Each line of the log has the standard keys of Powertools' Logger, such as `cold_start` and
    `function_request_id`. If TIDINGS_METRICS is `all`, the metric `ColdStart` is written too. In a
    stage with `xray`, the calls to AWS are traced, but not the answer of *handler*, because an
    answer may contain operations.
    """
    from aws_lambda_powertools import Logger, Metrics  # noqa: F401 before the first request

    @wraps(handler)
    def call(event: Event, context: object) -> Answer:
        try:
            return handler(event, context)
        except Exception:
            logger().exception("the function failed")
            raise
        finally:
            flush()

    @wraps(handler)
    def handle(event: Event, context: object) -> Answer:
        if not hasattr(context, "invoked_function_arn"):  # the caller is not Lambda's runtime
            return call(event, context)
        wrapped: Callable[..., Answer] = logger().inject_lambda_context(call)
        if settings.counts_cold_starts():
            _count_cold_start(getattr(context, "function_name", ""))
        if settings.is_traced():
            wrapped = _tracer().capture_lambda_handler(wrapped, capture_response=False)
        return wrapped(event, context)

    return handle


def request_id(context: object) -> str:
    """Return Lambda's id of the invocation; "" if the caller is not Lambda's runtime."""
    return getattr(context, "aws_request_id", "")


def asgi_edge(app: App, proxies: Networks | None = None) -> App:
    """Return *app*, extended to log its answers, and to write its metrics.

    An answer is logged when it begins, and an event stream also when it ends. Both the line and the
    metrics are written before the last part of an answer is sent: after it, Lambda may freeze the
    process until the next request, or for good. *proxies* are those of TIDINGS_LOG_ADDRESSES.
    """
    from tidings.aws.request_log import key_in, write
    from tidings.http.asgi import headers_of

    async def observe(scope: Message, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        invocation, peer = _invocation_of(headers)
        fields = {"headers": headers, "key": key_in(headers), "path": scope["path"]}
        stream = {"is_open": 0, "bytes": 0}

        def end() -> None:
            if stream["is_open"]:
                stream["is_open"] = 0
                write("end", invocation, proxies, peer, **fields, bytes=stream["bytes"])
            flush()

        async def send_and_flush(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = headers_of(message)
                cursor, status = sent.get("last-event-id"), message["status"]
                write("begin", invocation, proxies, peer, **fields, status=status, cursor=cursor)
                stream["is_open"] = int(sent.get("content-type", "").startswith(_EVENTS))
            stream["bytes"] += len(message.get("body", b""))
            if message["type"] == "http.response.body" and not message.get("more_body"):
                end()
            await send(message)

        try:
            await app(scope, receive, send_and_flush)
        finally:
            end()  # in case no last part was sent, because the client has disconnected

    return observe


def _invocation_of(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the id and the peer of an invocation from the headers of the Lambda Web Adapter."""
    try:
        call = json.loads(headers.get("x-amzn-lambda-context", "{}"))
        event = json.loads(headers.get("x-amzn-request-context", "{}"))
        return str(call.get("request_id", "")), str(event["http"]["sourceIp"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return "", ""
