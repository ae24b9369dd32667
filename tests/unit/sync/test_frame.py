"""A source of Spark in a pipeline."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidings.pipelines import Frame
from tidings.pipelines.ingest_source import Digests
from tidings.pipelines.messages import WrongPipeline


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
