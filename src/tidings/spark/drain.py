"""
A stream read to the end of its feed by one call, and how far behind a stream is.

Of a source in Python Spark 4.0 asks neither where a run with `availableNow` is to end, so that it
reads one batch, nor for metrics. Both follow from the offsets that a query tells of its batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tidings.core.model.cursors import Place
from tidings.spark import offsets
from tidings.spark.backends import opened
from tidings.spark.offsets import At
from tidings.spark.options import parse

Write = Callable[[DataFrame], DataStreamWriter]


def drain(spark: SparkSession, options: Mapping[str, str], write: Write) -> int:
    """
    Read all that the feed of *options* holds now, batch by batch; how many batches it took.

    *write* makes a writer of the stream, with its `checkpointLocation` and without a trigger. What
    is appended meanwhile is read up to the batch that holds the end as it was at the call.

    Raises:
        StreamingQueryException: a batch failed; what was written is known by the checkpoint.
    """
    end, batches = _frontier(options), 0
    while True:
        frame = spark.readStream.format("tidings").options(**options).load()
        query = write(frame).trigger(availableNow=True).start()
        query.awaitTermination()
        started, at = _last_batch(query)
        if at == started:
            return batches
        batches += 1
        if isinstance(at, Place) and at.page >= end.page:
            return batches


def lag(query: StreamingQuery, options: Mapping[str, str]) -> int | None:
    """
    How many pages *query*, which reads the feed of *options*, is behind its end.

    None before the first batch; while it copies, those behind the page where the copy began.
    """
    _, at = _last_batch(query)
    return None if at is None else max(0, _frontier(options).page - offsets.in_log(at).page)


def _frontier(options: Mapping[str, str]) -> Place:
    parsed = parse({name.lower(): value for name, value in options.items()})
    return opened(parsed.where, parsed.wanted).ends().frontier


def _last_batch(query: StreamingQuery) -> tuple[At | None, At | None]:
    """Where the last batch of *query* began and ended; None where it tells of none."""
    progress = query.lastProgress
    batch = json.loads(progress.json) if progress is not None else {"sources": []}
    for source in batch["sources"]:
        start, end = _offset(source["startOffset"]), _offset(source["endOffset"])
        if end is not None:
            return start, end
    return None, None


def _offset(offset: Any) -> At | None:
    """That of a feed; None of another source, or where there is none yet."""
    is_ours = isinstance(offset, dict) and offsets.CURSOR in offset
    return offsets.offset_from(offset).at if is_ours else None
