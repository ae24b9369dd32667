"""A source of Spark in a pipeline."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.compat.transporter.conftest import host, pipe, spare
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines.test_running import Running
from tidings.client.feed_api import Objects
from tidings.pipelines import Call, Frame, Pipeline, Source
from tidings.pipelines.ingest_source import Digests
from tidings.pipelines.messages import WrongPipeline

__all__ = ["host", "pipe", "spare"]


def known(kind: str) -> Digests:
    raise AssertionError(kind)


def made(spark: SparkSession) -> DataFrame:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [("a", at, {"x": [1.5, None]}), ("b", None, None)]
    return spark.createDataFrame(rows, "id string, at timestamp, more map<string, array<double>>")


def test_T23_rows_become_objects_once(spark: SparkSession) -> None:
    """This holds for any format; a complete read is not repeated, another one is."""
    frame = Frame(made, "video", key="id")
    frame.open("p.r", {}, known)
    first, last = frame.read()
    assert first.operations[1] == {
        "event": "insert",
        "type": "video",
        "id": "b",
        "data": {"id": "b", "at": None, "more": None},
    }
    assert first.operations[0]["data"]["more"] == {"x": [1.5, None]}
    assert [first.state, last.state] == [{"video": {"mode": m}} for m in ("copy", "complete")]
    frame.open("p.r", last.state, known)
    assert list(frame.read()) == []
    frame.open("p.r", first.state, known)
    assert len(list(frame.read())) == 2


def test_a_row_needs_its_key(spark: SparkSession) -> None:
    """It is named, with the columns there are."""
    frame = Frame(made, "video", key="name")
    frame.open("p.r", {}, known)
    with pytest.raises(WrongPipeline, match=r"no 'name': \['at', 'id', 'more'\]"):
        list(frame.read())


@pytest.mark.parametrize("rule", ["stop", "skip", "report"])
def test_a_row_that_is_too_large(spark: SparkSession, pipe: Pipe, rule: str) -> None:
    """The rule is that of tables; the error has the type, the key and the largest column."""

    def large(session: SparkSession) -> DataFrame:
        return session.createDataFrame(
            [("a", 1, "z" * 70_000), ("b", 2, "z")], "id string, n int, v string"
        )

    pipe.post("x")
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed))
    pipeline.read("r", Frame(large, "video", key="id", too_large=rule))
    with Running(pipeline.save("s", Call(lambda batch: None)), attempts=1) as running:
        running.thread.join(60)
        error = running.runner.progress[0].error
    with Objects(pipe.url, pipe.feed) as objects:
        found = {each["id"]: each["data"] for each in objects.all("video")}
    reason = "one operation holds at most 65536 bytes"
    if rule == "stop":
        assert found == {} and f"video, row a: {reason}" in error and "largest field is v" in error
        return
    assert found.pop("b") == {"id": "b", "n": 2, "v": "z"}
    assert [(each["id"], reason in each["too_large"], len(each)) for each in found.values()] == (
        [("a", True, 2)] if rule == "report" else []
    )
