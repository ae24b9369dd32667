"""What a function tells its operators, and what it never tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tidings.aws import telemetry
from tidings.aws.config.settings import METRICS_NAMESPACE, SERVICE_VARIABLE, metrics_service


@pytest.fixture(autouse=True)
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A function of the stage dev, whose telemetry nothing has been built of yet."""
    monkeypatch.setenv(SERVICE_VARIABLE, metrics_service("dev"))
    for part in (telemetry.logger, telemetry._metrics):
        part.cache_clear()
    yield
    for part in (telemetry.logger, telemetry._metrics):
        part.cache_clear()


class Context:
    aws_request_id = "request-1"


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_counts_are_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    """In CloudWatch's embedded format, with the dimensions the alarms look for."""

    @telemetry.edge
    def handler(event: str, context: object) -> str:
        telemetry.count("FramesSent", 2)
        telemetry.count("FramesSent", 3)
        return event

    assert handler("answer", Context()) == "answer"
    (written,) = told(capsys)
    assert written["FramesSent"] == [2, 3]
    assert written["service"] == "tidings-dev"
    assert written["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["service"]]
    metrics = written["_aws"]["CloudWatchMetrics"][0]
    assert metrics["Namespace"] == METRICS_NAMESPACE
    assert metrics["Metrics"] == [{"Name": "FramesSent", "Unit": "Count"}]
    handler("again", Context())
    assert told(capsys)[0]["FramesSent"] == [2, 3]


def test_nothing_counted_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor does a count of zero."""

    @telemetry.edge
    def handler(event: str, context: object) -> None:
        telemetry.count("FramesSent", 0)

    handler("", Context())
    assert told(capsys) == []


def test_a_metric_nobody_knows_is_refused() -> None:
    """The table in `metrics` is what alarms and documentation are made of."""
    with pytest.raises(telemetry.UnknownMetric, match="Frames"):
        telemetry.count("Frames", 1)


def test_a_failure_is_logged_and_counts_are_kept(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """With the request's id, without the event."""

    @telemetry.edge
    def handler(event: str, context: object) -> None:
        telemetry.count("FramesSent", 1)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        handler("secret payload", Context())
    (counts,) = (written for written in told(capsys) if "FramesSent" in written)
    assert counts["FramesSent"] == [1]
    (record,) = caplog.records
    line = telemetry.logger().registered_formatter.format(record)
    assert "secret payload" not in line
    failure = json.loads(line)
    assert (failure["level"], failure["request"]) == ("ERROR", "request-1")
    assert failure["exception_name"] == "ValueError"
