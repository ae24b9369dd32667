"""The logs and metrics of a function, written by Powertools.

Logs are lines of JSON, and metrics have CloudWatch's embedded metric format. In both, the service
is the name of the stage, which Powertools reads from `settings.SERVICE_VARIABLE`.

Logs contain feeds, pages, counts, errors and trace ids. They never contain headers or the content
of operations. Powertools is imported on first use, because the streaming function seldom needs it.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import TYPE_CHECKING, TypeVar

from tidings.aws.config import settings
from tidings.aws.config.settings import METRICS_NAMESPACE
from tidings.core.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools import Logger, Metrics, Tracer

    from tidings.http.asgi import App, Message, Receive, Send


Event = TypeVar("Event")
Answer = TypeVar("Answer")

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


def asgi_edge(app: App) -> App:
    """Return *app*, extended to write its metrics before the last part of an answer is sent.

    After the last part, Lambda may freeze the process until the next request, or for good.
    """

    async def count_request(scope: Message, receive: Receive, send: Send) -> None:
        async def send_and_flush(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                flush()
            await send(message)

        try:
            await app(scope, receive, send_and_flush)
        finally:
            flush()  # in case no last part was sent, because the client has disconnected

    return count_request
