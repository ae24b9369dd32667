"""The feeds of the tests' twin: posting to them, and reading them with Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from tests.compat.oplog.wire import until
from tests.twin import Twin
from tidings.aws.archives import open_archive
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.client.address import status_url
from tidings.client.cli.status import fetch
from tidings.client.poster import Poster
from tidings.core.archive import segments
from tidings.core.followers.follower import STATE
from tidings.core.settings.profiles import ProfileStore
from tidings.spark.reader import TidingsSource
from tidings.sync.feed import DynamoDBFeed, on_endpoint

FEEDS = [f"f{number:02}" for number in range(80)]
UNUSED = iter(FEEDS)
OBJECTS = 7


def operation(number: int, **fields: Any) -> dict[str, Any]:
    """Return the *number*-th operation of a history with inserts, changes and deletes."""
    made = {
        "event": "delete" if number % 5 == 4 else "update",
        "type": "user" if number % 3 == 0 else "video",
        "id": f"o{number % OBJECTS}",
        "parents": [f"user/{number % 2}"],
        "timestamp": f"2026-01-01T00:00:{number % 60:02}.5Z",
        "data": {"n": number, "text": 'a ,"data": in "quotes"'},
    }
    return made | fields


def fill(twin: Twin, feed: str, pages: int, of: int = 5, begin: int = 0) -> list[str]:
    """Post *pages* pages of *of* operations each; return the ids of all operations."""
    ids = []
    with Poster(twin.url, feed) as poster:
        for page in range(pages):
            first = begin + page * of
            ids += poster.post([operation(first + each) for each in range(of)])
    return ids


def projected(twin: Twin, feed: str) -> None:
    """Wait until the state holds what was posted."""
    place = on_endpoint(feed, twin.dynamodb_url)
    head = place.stores.log.head(feed)
    until(lambda: place.stores.followers.checkpoints(feed).get(STATE, 0) == head)


def archived(twin: Twin, feed: str, folder: Path, *, pages: int) -> str:
    """Return the address of an archive of the log's pages, *pages* a part."""
    log = on_endpoint(feed, twin.dynamodb_url).stores.log
    kept = log.read(feed, 0)
    address = f"file://{folder}"
    store = open_archive(address, _no_s3)
    for first in range(0, len(kept), pages):
        store.put(feed, *segments.encode(kept[first : first + pages]))
    return address


def compacted(twin: Twin, feed: str, folder: Path, *, keeping: set[tuple[int, int]]) -> str:
    """Return the address of an archive with one part that was compacted to these operations."""
    log = on_endpoint(feed, twin.dynamodb_url).stores.log
    kept = segments.keep_entries(log.read(feed, 0), keeping)
    open_archive(f"file://{folder}", _no_s3).put(feed, *segments.encode(kept))
    return f"file://{folder}"


def set_object_url(place: DynamoDBFeed, template: str) -> None:
    """Set the URL as `tidings feed set --object-url` does, before the feed's settings are read."""
    profiles = ProfileStore(DynamoDBRecords(place.client(), place.settings.control_table))
    profile = profiles.profile(place.feed)
    assert profiles.save(place.feed, replace(profile, object_url=template))


def trim(twin: Twin, feed: str, through: int) -> None:
    """Trim pages up to *through*, as retention does in days."""
    place = on_endpoint(feed, twin.dynamodb_url)
    place.stores.log.raise_floor(feed, through + 1)
    client = place.client()
    for page in range(1, through + 1):
        key = {"feed": {"S": feed}, "page": {"N": str(page)}}
        client.delete_item(TableName=place.settings.log_table, Key=key)
    status = status_url(twin.url, feed)  # it is remembered for a moment
    until(lambda: fetch(status).fields["floor"] > through)


def _no_s3() -> Any:
    raise AssertionError("a folder needs no S3")


def http(twin: Twin, feed: str) -> dict[str, str]:
    return {"url": twin.url, "feed": feed, "partitions": "2"}


def tables(twin: Twin, feed: str) -> dict[str, str]:
    return {"endpoint": twin.dynamodb_url, "feed": feed, "partitions": "2"}


def rows_of(options: dict[str, str], **more: str) -> list[dict[str, Any]]:
    """Return every row of a read, planned and executed as Spark does, but in this process."""
    source = TidingsSource(options | more)
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for row in of_task(reader, part)]


def of_task(reader: DataSourceReader | DataSourceStreamReader, task: Any) -> list[dict[str, Any]]:
    batches: Any = reader.read(task)
    return [row for batch in batches for row in batch.to_pylist()]


def read(spark: SparkSession, options: dict[str, str], **more: str) -> DataFrame:
    return spark.read.format("tidings").options(**options, **more).load()
