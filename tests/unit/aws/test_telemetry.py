"""The telemetry of a function, and the data that it must not contain."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tidings.aws import telemetry
from tidings.aws.config.settings import (
    METRICS_NAMESPACE,
    SERVICE_VARIABLE,
    TRACER_VARIABLE,
    metrics_service,
)


@pytest.fixture(autouse=True)
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulate a new function of the stage dev, without any telemetry yet."""
    monkeypatch.setenv(SERVICE_VARIABLE, metrics_service("dev"))
    for part in (telemetry.logger, telemetry._metrics):
        part.cache_clear()
    yield
    for part in (telemetry.logger, telemetry._metrics):
        part.cache_clear()


class Context:
    aws_request_id = "request-1"
    function_name = "tidings-dev-ingest"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:tidings-dev-ingest"


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
    """A count of zero is not written either."""

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
    """The log line has the request's id, and not the event."""

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
    assert (failure["level"], failure["function_request_id"]) == ("ERROR", "request-1")
    assert failure["function_name"] == "tidings-dev-ingest"
    assert failure["cold_start"] in (True, False)
    assert failure["exception_name"] == "ValueError"


_COLD = """
from tests.unit.aws.test_telemetry import Context
from tidings.aws import telemetry
call = telemetry.edge(lambda event, context: telemetry.logger().info("called"))
call("", Context()), call("", Context())
"""


@pytest.mark.parametrize(("metrics", "counted"), [("all", 1), ("alarms", 0)])
def test_a_cold_start_is_a_key_and_a_metric(metrics: str, counted: int) -> None:
    """It is written once for each environment, under Powertools' names; only some stages pay for
    the metric.
    """
    variables = {SERVICE_VARIABLE: metrics_service("dev"), "TIDINGS_METRICS": metrics, "PATH": ""}
    ran = subprocess.run(
        [sys.executable, "-c", _COLD], env=variables, capture_output=True, text=True, check=True
    )
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["cold_start"] for line in lines if "cold_start" in line] == [True, False]
    colds = [line for line in lines if "ColdStart" in line]
    assert len(colds) == counted
    assert all(each["function_name"] == Context.function_name for each in colds)


_TRACED = """
import sys
from tests.unit.aws.test_telemetry import Context
from tidings.aws import telemetry
assert telemetry.edge(lambda event, context: event)("secret", Context()) == "secret"
print("aws_xray_sdk" in sys.modules)
"""


@pytest.mark.parametrize(("disabled", "imported"), [("true", "False"), ("false", "True")])
def test_only_a_stage_with_xray_imports_its_sdk(disabled: str, imported: str) -> None:
    variables = {SERVICE_VARIABLE: metrics_service("dev"), TRACER_VARIABLE: disabled, "PATH": ""}
    ran = subprocess.run(
        [sys.executable, "-c", _TRACED], env=variables, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [imported]
