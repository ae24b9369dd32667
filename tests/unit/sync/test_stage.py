"""The state machine of syncs with the job that EMR Serverless runs, on Spark and a twin here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.sql import SparkSession

from tests.compat.oplog.feed import Feed, op
from tests.functions.cloud import restart
from tests.sync_machine.emr import runs_jobs
from tests.sync_machine.machine import BUCKET, ENVIRONMENT, Machine, machine
from tests.sync_machine.test_machine import say
from tests.twin import Twin, store
from tests.unit.sync import feeds
from tests.unit.sync.local_job import LocalJob
from tidings.aws.config import deployment, stages
from tidings.core.errors import Unavailable
from tidings.sync import stage as emr

OLD, DUMPED, NEW = (f"2026-0{month}-01T00:00:00Z" for month in (1, 2, 3))
KEPT = [f"k{number}" for number in range(20)]


@pytest.fixture
def stage(
    twin: Twin, feed: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    """Yield a machine with the twin's DynamoDB, for the functions and for Spark; all else is
    moto's."""
    settings = stages.settings("local", {"TIDINGS_FEEDS": feed})
    names = ("log", "state", "control", "connections")
    named = {f"TIDINGS_{name.upper()}_TABLE": getattr(settings, f"{name}_table") for name in names}
    here = {
        "TIDINGS_FEEDS": feed,
        "AWS_ENDPOINT_URL_DYNAMODB": twin.dynamodb_url,
        "AWS_ACCESS_KEY_ID": "local",
    }
    for name, value in {**ENVIRONMENT, **named, **here}.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    shown = {"aws_access_key_id": "ak", "aws_secret_access_key": "sk"}
    shown |= {"region_name": "us-east-1", "endpoint_url": twin.dynamodb_url}
    client: Any = boto3.client("dynamodb", **shown)  # type: ignore[call-overload]
    (state,) = (each for each in deployment.TABLES if each.name == "state")
    store.create_table(client, settings.state_table, state)
    runs_jobs(monkeypatch, LocalJob(BUCKET, tmp_path, emr.main))
    restart()
    with machine(settings.state_table) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", made.api.url)
        yield made
    restart()


def uploaded(feed: str, *ids: str) -> dict[str, str]:
    """Upload a dump of these objects; return the request of its sync."""
    common = {"type": "video", "parents": [], "timestamp": DUMPED}
    body = "".join(f"{json.dumps({**common, 'id': each})}\n" for each in ids)
    key = f"dumps/{feed}/today.json"
    boto3.client("s3").put_object(Bucket=BUCKET, Key=key, Body=body.encode())
    return {"key": key}


def log_operations(twin: Twin, feed: str) -> list[str]:
    return [f"{event} {operation.id}" for event, operation in feeds.log_operations(twin, feed)]


def test_O66_an_uploaded_dump_makes_a_stages_feed_agree(
    twin: Twin, feed: str, stage: Machine
) -> None:
    """The sync runs from the upload to the log, past a batch with a lost answer. A dump that would
    delete too much waits, does nothing in the meantime, and is applied once that is approved.
    """
    producer = Feed(twin.port, feed)
    producer.post(op("b", timestamp=OLD), op("c", timestamp=NEW), op("d", timestamp=OLD))
    producer.post(*(op(name, timestamp=NEW) for name in KEPT))
    posted = len(log_operations(twin, feed))
    stage.api.script["correct"] = [Unavailable("try again")]

    first = stage.run(uploaded(feed, "a", "b", *KEPT), "first")
    after_first = log_operations(twin, feed)[posted:]
    producer.post(*(op(name, "update", timestamp=OLD) for name in KEPT))
    posted = len(log_operations(twin, feed))
    waiting = stage.start(uploaded(feed, "a", "z"), "one")
    message = stage.asked()
    meanwhile = log_operations(twin, feed)[posted:]
    say(True)
    second = stage.end_of(waiting)

    assert first.status == "SUCCEEDED", first.cause
    assert after_first == ["insert a", "update b", "delete d"]
    counts = ("creates", "updates", "deletes", "untouched", "applied")
    assert [first.output[name] for name in counts] == [1, 1, 1, 21, 3]
    assert "20 of 23 objects (87%) would be deleted" in message
    assert meanwhile == []
    assert (second.status, second.output["outcome"]) == ("SUCCEEDED", "done"), second.cause
    assert [second.output[name] for name in counts[:3]] == [1, 0, 20]
    assert sorted(log_operations(twin, feed)[posted:]) == sorted(
        ["insert z", *(f"delete {name}" for name in KEPT)]
    )
