"""The records of feeds that are created and deleted while a stage runs.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key. Both are in the control table.

A record: `feeds`, the name of the feed. The deployed feeds have no record until one is deleted.

A mark of an unfinished removal: `removing`, the name of the feed. It is written in a transaction
with the record, so that one query finds the removals that are left.

Fields with their default values are left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import (
    FLAG,
    NUMBER,
    TEXT,
    Codec,
    Item,
    Layout,
    number,
    text,
    text_of,
    tuple_codec,
)
from tidings.aws.dynamodb.table import TableStore, of_version
from tidings.core import limits
from tidings.core.feeds.records import FeedRecord, Removal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

_FEEDS, _REMOVING = "feeds", "removing"
_COUNTS = Codec(
    lambda counts: {"M": {name: number(count) for name, count in counts}},
    lambda value: tuple(sorted((name, int(each["N"])) for name, each in value["M"].items())),
    (),
    is_sparse=True,
)
_REMOVAL = Layout(
    Removal,
    number=NUMBER,
    deleted=NUMBER.of("deleted_ms"),
    place=TEXT.sparse,
    passes=NUMBER.sparse,
    counts=_COUNTS,
    tables=TEXT,
    done=NUMBER.sparse.of("done_ms"),
)
_RECORD = Layout(
    FeedRecord,
    number=NUMBER,
    live=FLAG.of("is_live"),
    created=NUMBER.sparse.of("created_ms"),
    deleted=NUMBER.sparse.of("deleted_ms"),
    by=TEXT.sparse,
    last=NUMBER.sparse.of("last_page"),
    removals=tuple_codec(_REMOVAL.in_map()).sparse,
    version=NUMBER,
)


def record_key(name: str) -> Item:
    return {"kind": text(_FEEDS), "name": text(name)}


def encode_record(record: FeedRecord) -> Item:
    return {**record_key(record.name), **_RECORD.encode(record)}


def decode_record(item: Item) -> FeedRecord:
    return _RECORD.decode(item, name=text_of(item, "name"))


def find_key(
    client: DynamoDBClient, control_table: str, name: str, deployed: Collection[str]
) -> str:
    """Return the key of the feed *name*, for a command that works on the tables of a stage.

    *deployed* are the feeds of the deployment, which exist without a record.

    Raises:
        InvalidFeed, UnknownFeed, FeedDeleted: see `FeedNames`.
    """
    from tidings.aws.effects import now_ms
    from tidings.core.feeds.directory import Directory

    return Directory(DynamoDBFeeds(client, control_table), deployed, now_ms).key(name)


class DynamoDBFeeds(TableStore):
    """Implements `FeedStore`.

    All records are in one partition, which has room for thousands of reads a second. A process
    reads a record once in `limits.FEED_AGE_MS`.
    """

    def record(self, name: str) -> FeedRecord | None:
        item = self._table.get(record_key(name))
        return decode_record(item) if item else None

    def records(self, after: str = "", limit: int = limits.FEEDS_LISTED) -> Sequence[FeedRecord]:
        found: list[FeedRecord] = []
        condition, values = "#kind = :kind", {":kind": text(_FEEDS)}
        if after:
            condition, values = f"{condition} AND #name > :after", {**values, ":after": text(after)}
        for item in self._table.items(condition, values, Limit=limit):
            found.append(decode_record(item))
            if len(found) == limit:
                break
        return found

    def unfinished(self) -> Sequence[FeedRecord]:
        marks = self._table.of_kind(_REMOVING)
        records = (self.record(text_of(mark, "name")) for mark in marks)
        return [record for record in records if record is not None and record.unfinished]

    def save(self, record: FeedRecord) -> bool:
        item = encode_record(replace(record, version=record.version + 1))
        if not record.removals:
            return self._table.put_over(item, record.version, may_be_new=not record.version)
        mark = {"kind": text(_REMOVING), "name": text(record.name)}
        key = "Item" if record.unfinished else "Key"
        kind = "Put" if record.unfinished else "Delete"
        return self._table.write_together(
            {"Put": {"TableName": self._table.name, "Item": item, **of_version(record.version)}},
            {kind: {"TableName": self._table.name, key: mark}},
        )
