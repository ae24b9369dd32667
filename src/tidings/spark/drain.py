"""
Read a stream to the end of its feed in one call, and measure the lag of a stream.

For Python sources, Spark 4.0 does not determine the end of a run with `availableNow`, so it reads
only one batch, and supports no metrics. Both are derived here from the offsets of a query's
batches.
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
    Read everything that the feed of *options* has now, in batches; return the number of batches.

    *write* returns a writer of the stream, with its `checkpointLocation` and without a trigger.
    Operations appended during the call are included up to the batch with the original end.

    Raises:
        StreamingQueryException: a batch failed; the checkpoint has the progress.
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
    Return the number of pages that *query*, which reads the feed of *options*, is late.

    It is None before the first batch. During a copy it counts from the page where the copy began.
    """
    _, at = _last_batch(query)
    return None if at is None else max(0, _frontier(options).page - offsets.in_log(at).page)


def _frontier(options: Mapping[str, str]) -> Place:
    parsed = parse({name.lower(): value for name, value in options.items()})
    return opened(parsed.where, parsed.wanted).ends().frontier


def _last_batch(query: StreamingQuery) -> tuple[At | None, At | None]:
    """Return the start and the end of the last batch of *query*; None before the first."""
    progress = query.lastProgress
    batch = json.loads(progress.json) if progress is not None else {"sources": []}
    for source in batch["sources"]:
        start, end = _offset(source["startOffset"]), _offset(source["endOffset"])
        if end is not None:
            return start, end
    return None, None


def _offset(offset: Any) -> At | None:
    """Return the offset if it belongs to a feed; None for another source, or if it is missing."""
    is_ours = isinstance(offset, dict) and offsets.CURSOR in offset
    return offsets.offset_from(offset).at if is_ours else None
