"""Measure the lag of a feed's tables and its readers' progress without Spark; query the tables.

The HTTP client is imported on first use, because the job of a stage has no HTTP client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from tidings.core.archive.compaction import bound
from tidings.core.consumers import position
from tidings.core.model import cursors
from tidings.core.model.cursors import Place
from tidings.lake.warehouse import (
    CATALOG,
    HISTORY,
    KINDS,
    BadTable,
    TableMetadata,
    Warehouse,
    kind_of,
    read_metadata,
    table_names,
)
from tidings.spark.backends import Backend, within
from tidings.spark.options import Log

if TYPE_CHECKING:
    from tidings.sync import feed as sync_feed

COUNTED_MAX = 100_000  # counting stops at this number of operations, after a few seconds


@dataclass(frozen=True, slots=True)
class Lag:
    """The numbers of *pages* and *operations* of the log that are not in a table.

    *seconds* is the time since the first of these operations was committed. If *more*, the table
    lacks at least *operations* operations, because counting stopped there.
    """

    pages: int
    operations: int
    seconds: float
    more: bool = False


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of a table. *page* and *lag* are None if its place is unknown."""

    table: str
    type: str | None
    page: int | None
    lag: Lag | None
    rows: int
    files: int
    bytes: int


def status(
    warehouse: Warehouse, feed: str, backend: Backend, now_ms: int
) -> tuple[Place, list[TableStatus]]:
    """Return the current end of *feed*, and the status of each of its tables."""
    end, known = backend.ends().frontier, dict[Place, Lag]()
    made = []
    for name in table_names(warehouse):
        if kind_of(feed, name) is None or (found := read_metadata(warehouse, name)) is None:
            continue
        place = _place(found)
        if place is not None and place not in known:
            known[place] = lag(backend, place, end, now_ms)
        made.append(
            TableStatus(
                table=name,
                type=found.type,
                page=None if place is None else place.page,
                lag=None if place is None else known[place],
                rows=found.records,
                files=found.files,
                bytes=found.bytes,
            )
        )
    return end, made


def _place(found: TableMetadata) -> Place | None:
    place = cursors.parse(found.through) if found.through else None
    return place if isinstance(place, Place) else None


def lag(backend: Backend, place: Place, end: Place, now_ms: int) -> Lag:
    """Return the lag of a table at *place*; the log ends at *end*."""
    operations, first_ms = 0, now_ms
    stretch = Log(place, end)
    for piece in within(backend.log(place, end), stretch) if place < end else ():
        if not operations and piece.at_ms:
            first_ms = piece.at_ms[0]
        operations += len(piece.lines)
        if operations >= COUNTED_MAX:
            break
    pages, seconds = max(0, end.page - place.page), max(0, now_ms - first_ms) / 1000
    return Lag(pages, min(operations, COUNTED_MAX), seconds, more=operations >= COUNTED_MAX)


def bound_over_http(url: str, feed: str, password: str) -> int:
    """Return the last page that all readers have handled, read over the HTTP API.

    Raises:
        ClientError: the feed does not respond, or rejects the request.
    """
    from tidings.client.address import status_url
    from tidings.client.cli.status import fetch
    from tidings.client.errors import Refused
    from tidings.client.feed_api import NamedConsumers

    report = fetch(status_url(url, feed))
    if "followers" not in report.fields:
        raise Refused(report.problem or "the feed does not report its followers")
    with NamedConsumers(url, feed, password=password) as api:
        positions = [position.read(each["position"]) for each in api.all()]
    return bound(
        positions, {each["name"]: each["checkpoint"] for each in report.fields["followers"]}
    )


def bound_in_tables(dynamodb: sync_feed.DynamoDBFeed) -> int:
    """Return the last page that all readers have handled, read from the DynamoDB tables.

    Raises:
        Unavailable, BotoCoreError, ClientError: DynamoDB does not respond, or rejects the request.
    """
    stores = dynamodb.stores
    positions = [each.position for each in stores.consumers.consumers(dynamodb.feed)]
    return bound(positions, stores.followers.checkpoints(dynamodb.feed))


def size_of(warehouse: Warehouse) -> int:
    """Return the size of all tables in bytes."""
    found = (read_metadata(warehouse, name) for name in table_names(warehouse))
    return sum(each.bytes for each in found if each is not None)


def run_query(spark: SparkSession, warehouse: Warehouse, feed: str, sql: str) -> DataFrame:
    """Run *sql* on the views `history` and `latest`, and on a view for each type with a table.

    The view of a type has the name of the type. But if a type is named `history` or `latest`, its
    view is called `type_history` or `type_latest`.

    Raises:
        BadTable: the warehouse has no tables of the feed.
    """
    session = warehouse.session(spark)
    kinds = {name: kind_of(feed, name) for name in table_names(warehouse)}
    if HISTORY not in kinds.values():
        raise BadTable(f"{warehouse.url} has no tables of the feed {feed}")
    for name, kind in kinds.items():
        if kind is None:
            continue
        found = read_metadata(warehouse, name)
        of = found.type if found is not None else None
        view = kind if of is None or of in KINDS else of
        rows = session.table(f"{CATALOG}.{warehouse.database}.{name}")
        rows.createOrReplaceTempView(f"`{view.replace('`', '``')}`")
    return session.sql(sql)
