"""The state on DynamoDB, with removed parents, the lifetime of tombstones, and sums.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key.

A row, the latest operation of one object: `<feed>#<bucket in 2 hex digits>`, object key. A feed has
`limits.BUCKETS` partitions. `page` and `slot` are the place of the operation, and `at` is the
commit time of its page in ms. Only the row of a deleted object expires.

The removed parents of a page, also in the state table: `<feed>#left`, page number in 10 hex digits.
`body` is JSON (S) or deflated JSON (B). The item expires when its page expires, unless the expiry
of the page is changed later.

The lifetime of the tombstones, in the control table: `remembered#<feed>`, `-`. The attributes are
the fields of `tombstones.Remembered`.

The sums of the state, in the control table: `sums#<feed>`, version modulo `_VERSIONS`. So each of
the last `_VERSIONS` versions has an item. An update of the item succeeds only if its `version` is
lower than the new version. `page` is the page up to which the sums count. If `whole` is true,
`body` is the result of `Sums.encode`. Otherwise `body` has the changes since the previous version,
encoded by `note_of`. The sums of nine types (`limits.SUM_TYPES_MAX`, and one for all other types)
take five write units, but the changes take one. So a version is written whole only once in
`_VERSIONS` versions, or if its changes would be longer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.clients import ConditionFailed
from tidings.aws.dynamodb.attributes import (
    Item,
    body,
    body_of,
    bytes_of,
    expiry,
    expiry_ms,
    number,
    number_of,
    text,
    text_of,
)
from tidings.aws.dynamodb.puts import Condition, Put, Puts
from tidings.aws.dynamodb.table import Batches, Table, TableStore
from tidings.aws.effects import Threads, sleep_ms
from tidings.core import limits
from tidings.core.effects import Sleep
from tidings.core.state.rows import ABSENT, NOTHING, Lines, Overwritten, Row, bucket_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import QueryOutputTypeDef

    from tidings.core.state.removed_parents import RemovedParents
    from tidings.core.state.rows import Difference
    from tidings.core.state.sums import Sums


_NUMBERS = ("page", "slot", "at")
ROW_ATTRIBUTES = (*_NUMBERS, "line", "expires")  # all attributes except the key


def row_bucket(feed: str, number: int) -> str:
    return f"{feed}#{number:02x}"


def row_key(feed: str, object_key: str) -> Item:
    return row_key_in(feed, bucket_of(object_key), object_key)


def row_key_in(feed: str, bucket_number: int, object_key: str) -> Item:
    """Return the key of a row in the bucket *bucket_number*, which may be a wrong bucket."""
    return {"bucket": text(row_bucket(feed, bucket_number)), "key": text(object_key)}


def encode_row(feed: str, row: Row) -> Item:
    return {**row_key(feed, row.key), **row_values(row)}


def row_values(row: Row) -> Item:
    """Return the attributes of *row* except its key; a broken row lacks some of them."""
    attributes = {
        "page": number(row.page),
        "slot": number(row.slot),
        "at": number(row.at_ms),
        "line": text(row.line),
        **expiry(row.expires_ms),
    }
    if row.is_complete:
        return attributes
    return {
        name: each for name, each in attributes.items() if each not in (number(ABSENT), text(""))
    }


def decode_row(item: Item) -> Row:
    try:
        return Row(
            key=item["key"]["S"],
            page=int(item["page"]["N"]),
            slot=int(item["slot"]["N"]),
            at_ms=int(item["at"]["N"]),
            line=item["line"]["S"],
            expires_ms=expiry_ms(item),
        )
    except KeyError:
        return _incomplete_row(item)


def decode_overwritten(item: Item) -> Overwritten | None:
    """Decode the replaced *item*.

    Return `NOTHING` if the item is empty, and None if its page or slot is missing.
    """
    if not item:
        return NOTHING
    if "page" not in item or "slot" not in item:
        return None
    return Overwritten(int(item["page"]["N"]), int(item["slot"]["N"]), "expires" not in item)


def _incomplete_row(item: Item) -> Row:
    """Decode the item of a broken row, which lacks required attributes."""
    page, slot, at = (int(item[name]["N"]) if name in item else ABSENT for name in _NUMBERS)
    return Row(
        key=item["key"]["S"],
        page=page,
        slot=slot,
        at_ms=at,
        line=text_of(item, "line"),
        expires_ms=expiry_ms(item),
    )


# The attributes of a row that readers request.
_ROW = "#key, #page, #slot, #at, #line, #expires"
_REMOVERS = 8  # threads; each sends one conditional delete at a time
_OLDER = "attribute_not_exists(#page) OR #page < :page OR (#page = :page AND #slot < :slot)"


class DynamoDBState:
    """Implements `StateStore`."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep = sleep_ms) -> None:
        self._table = Table(client, table)
        self._batches = Batches(client, table, sleep)
        self._puts = Puts(client, table, sleep)
        self._threads = Threads(_REMOVERS)

    def write(self, feed: str, rows: Sequence[Row]) -> list[Overwritten | None]:
        replaced = self._puts.replace([_newer(encode_row(feed, each)) for each in rows])
        return [None if item is None else decode_overwritten(item) for item in replaced]

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        answer = self._query(feed, bucket, after, _ROW)
        return [decode_row(item) for item in answer["Items"]]

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        answer = self._query(feed, bucket, after, "#line, #page")
        last: Item = answer.get("LastEvaluatedKey", {})
        lines = [item["line"]["S"] for item in answer["Items"]]
        pages = [number_of(item, "page") for item in answer["Items"]]
        return Lines(lines, pages, text_of(last, "key") or None)

    def _query(self, feed: str, bucket: int, after: str | None, fields: str) -> QueryOutputTypeDef:
        values = {":bucket": text(row_bucket(feed, bucket))}
        condition = "#bucket = :bucket"
        if after is not None:
            values[":after"] = text(after)
            condition += " AND #key > :after"
        return self._table.page(condition, values, fields, Limit=limits.READ_ITEMS_MAX)

    def find(self, feed: str, keys: Sequence[str]) -> list[Row]:
        items = self._batches.get([row_key(feed, key) for key in keys])
        return [decode_row(item) for item in items]

    def repair(self, feed: str, differences: Sequence[Difference]) -> list[bool]:
        puts: dict[int, Put] = {}
        gone: list[int] = []
        for at, each in enumerate(differences):
            if each.wanted is None:
                gone.append(at)
            else:
                puts[at] = Put(encode_row(feed, each.wanted), _is_unchanged(each.stored))
        is_written = dict(zip(puts, self._puts(list(puts.values())), strict=True))

        def remove(at: int) -> None:
            is_written[at] = self._remove(feed, differences[at])

        self._threads(remove, gone)
        return [is_written[at] for at in range(len(differences))]

    def _remove(self, feed: str, difference: Difference) -> bool:
        key = row_key_in(feed, difference.bucket, difference.key)
        before = _is_unchanged(difference.stored)
        try:
            self._table.delete(key, before.expression, before.values)
        except ConditionFailed as failed:
            # True if the row is missing: another process or our first attempt has deleted it.
            return not failed.item
        return True


def _newer(item: Item) -> Put:
    """Return a put that replaces only an older item, so a late request restores no old value."""
    values = {":page": item["page"], ":slot": item["slot"]}
    return Put(item, Condition(_OLDER, values))


def _is_unchanged(before: Row | None) -> Condition:
    """Return the condition that the item equals *before*, or is missing if *before* is None."""
    if before is None:
        return Condition("attribute_not_exists(#key)")
    values = row_values(before)
    parts = [
        f"#{name} = :{name}" if name in values else f"attribute_not_exists(#{name})"
        for name in ROW_ATTRIBUTES
    ]
    return Condition(" AND ".join(parts), {f":{name}": value for name, value in values.items()})


def removed_key(feed: str, page: int) -> Item:
    return {"bucket": text(f"{feed}#left"), "key": text(f"{page:010x}")}


def encode_removed(feed: str, removed: RemovedParents) -> Item:
    key = removed_key(feed, removed.page)
    return {**key, "body": body(removed.body), **expiry(removed.expires_ms)}


def decode_removed(item: Item) -> RemovedParents:
    from tidings.core.state.removed_parents import RemovedParents  # few functions need it

    return RemovedParents(int(item["key"]["S"], 16), body_of(item["body"]))


_PAGE_IS_NEW = Condition("attribute_not_exists(#key)")


class DynamoDBRemovedParents:
    """Implements `RemovedParentsStore`. *table* is the state table."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)
        self._puts = Puts(client, table, sleep_ms)

    def write(self, feed: str, removed: Sequence[RemovedParents]) -> None:
        self._puts([Put(encode_removed(feed, each), _PAGE_IS_NEW) for each in removed])

    def read(self, feed: str, first: int, last: int) -> list[RemovedParents]:
        bounds = {
            ":first": removed_key(feed, first)["key"],
            ":last": removed_key(feed, last)["key"],
        }
        values = {":bucket": removed_key(feed, first)["bucket"], **bounds}
        between = "#bucket = :bucket AND #key BETWEEN :first AND :last"
        items = self._table.items(between, values, "#key, #body", Limit=limits.READ_ITEMS_MAX)
        return [decode_removed(item) for item in items]


_VERSIONS = 8  # number of items; one query reads them, at most some 10 KB, for two read units
_OLDER_SUMS = "attribute_not_exists(#version) OR #version < :version"
_SET_SUMS = "SET #version = :version, #page = :page, #whole = :whole, #body = :body"


def sums_key(feed: str, version: int) -> Item:
    return {"kind": text(f"sums#{feed}"), "name": text(str(version % _VERSIONS))}


class DynamoDBSums(TableStore):
    """Implements `SumStore`."""

    def read(self, feed: str) -> Sums | None:
        return _added_up(self._table.of_kind(f"sums#{feed}"))

    def write(self, feed: str, sums: Sums, note: bytes = b"") -> bool:
        body = sums.encode()
        complete = not note or sums.version % _VERSIONS == 0 or len(note) >= len(body)
        values: Item = {
            ":version": number(sums.version),
            ":page": number(sums.page),
            ":whole": {"BOOL": complete},
            ":body": {"B": body if complete else note},
        }
        try:
            self._table.update(sums_key(feed, sums.version), _SET_SUMS, values, _OLDER_SUMS)
        except ConditionFailed as failed:
            # All attributes are equal if our first attempt has written the item.
            there = failed.item or {}
            return all(there.get(name[1:]) == value for name, value in values.items())
        return True


def _added_up(items: Iterable[Item]) -> Sums | None:
    """Return the sums of the latest version that can be computed from *items*.

    This is an earlier version than the latest if items changed during the query.
    """
    from tidings.core.state.sums import Sums, changes_in  # few functions need it

    sums = None
    for item in sorted(items, key=lambda each: number_of(each, "version")):
        version, body = number_of(item, "version"), bytes_of(item["body"])
        if item["whole"]["BOOL"]:
            sums = Sums.decode(body, version)
        elif sums is not None and sums.version == version - 1:
            changed = sums.with_changes(number_of(item, "page"), changes_in(body, sums))
            sums = replace(changed, version=version)
    return sums
