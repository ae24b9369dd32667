"""The events that a pipeline emits, and their receivers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tests.contract.answering import HttpServer, ReceivedRequest, Reply
from tidings.pipelines.events import emitter

BOOT = {"ts": 1, "kind": "boot", "name": "p", "stores": ["a"]}
METRICS = {"ts": 2, "kind": "metrics", "name": "p", "path": "a", "records": 3, "batches": 1}
METRICS |= {"failures": 0, "state": "running"}


@contextmanager
def listening(status: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield an address that accepts events, and the list of them."""
    heard: list[Any] = []

    def respond(request: ReceivedRequest) -> Reply:
        heard.append(request.json)
        return Reply(status=status)

    with HttpServer(respond) as server:
        yield f"{server.url}/events", heard


def test_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One an event."""
    with emitter(as_json=True, url=None, bus=None, emf=False) as tell:
        tell(BOOT)
        tell(METRICS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [BOOT, METRICS]


def test_metrics_that_cloudwatch_reads(capsys: pytest.CaptureFixture[str]) -> None:
    """The format is the embedded one; every named dimension and metric is there."""
    with emitter(as_json=False, url=None, bus=None, emf=True) as tell:
        tell(BOOT)
        tell(METRICS)
    boot, metrics = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert boot == BOOT
    (made,) = metrics["_aws"]["CloudWatchMetrics"]
    assert made["Namespace"] == "Tidings/Pipelines"
    assert all(name in metrics for names in made["Dimensions"] for name in names)
    assert [metrics[each["Name"]] for each in made["Metrics"]] == [3, 1, 0]
    assert {**METRICS, "_aws": metrics["_aws"]} == metrics


@pytest.mark.parametrize(("status", "warnings"), [(200, 0), (201, 0), (204, 1), (500, 1)])
def test_events_are_posted(caplog: pytest.LogCaptureFixture, status: int, warnings: int) -> None:
    """An answer other than 200 and 201 is logged, and nothing else happens."""
    with (
        caplog.at_level(logging.WARNING),
        listening(status) as (url, heard),
        emitter(as_json=True, url=url, bus=None, emf=False) as tell,
    ):
        tell(BOOT)
    assert heard == [BOOT]
    assert len(caplog.records) == warnings


def test_nobody_there_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A pipeline does not wait for its monitoring."""
    with emitter(as_json=True, url="http://127.0.0.1:1/", bus=None, emf=False) as tell:
        tell(BOOT)
    assert "was not accepted" in caplog.text


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield


@pytest.mark.usefixtures("account")
def test_events_on_a_bus() -> None:
    """With their kind, so that a rule can pick the errors."""
    events, queues = boto3.client("events"), boto3.client("sqs")
    events.create_event_bus(Name="pipelines")
    url = queues.create_queue(QueueName="errors")["QueueUrl"]
    arn = queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    pattern = {"source": ["tidings.pipeline"], "detail-type": ["error"]}
    events.put_rule(Name="r", EventBusName="pipelines", EventPattern=json.dumps(pattern))
    target = {"Id": "q", "Arn": arn["QueueArn"]}
    events.put_targets(Rule="r", EventBusName="pipelines", Targets=[target])
    failed = {"ts": 3, "kind": "error", "name": "p", "path": "a", "error": "too long"}
    with emitter(as_json=True, url=None, bus="pipelines", emf=False) as tell:
        tell(BOOT)
        tell(failed)
    (message,) = queues.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert json.loads(message["Body"])["detail"] == failed


@pytest.mark.usefixtures("account")
def test_a_bus_that_is_not_there_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    with emitter(as_json=True, url=None, bus="none" * 80, emf=False) as tell:
        tell(BOOT)
    assert "was not accepted" in caplog.text
