"""Relays on DynamoDB, in the control table, and the writes of relays to the log of chained feeds.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key.

A relay: `relay`, feed. `document` is JSON of the fields that differ from their defaults. So a
release with more fields can read documents of an older release. Every write is conditional on
`version`.

A relay writes its pages, its document and the head of its feed in one transaction. Each item then
costs twice as much, but a checkpoint is never saved without its pages.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from tidings.aws.clients import ConditionFailed, translate_errors
from tidings.aws.dynamodb.attributes import Item, head_key, number, number_of, text, text_of
from tidings.aws.dynamodb.log import encode_page
from tidings.aws.dynamodb.table import Table, expressions, of_version
from tidings.core.errors import BrokenRelay, Unavailable
from tidings.core.replication.relay import Copy, Counts, Relay, RelayStatus, Wanted
from tidings.core.replication.source import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.core.model.pages import Page


_KIND = "relay"
_ENUMS = {"wanted": Wanted, "condition": RelayStatus, "role": Role}
_NAMES = frozenset(each.name for each in fields(Relay)) - {"feed", "version"}


def relay_key(feed: str) -> Item:
    return {"kind": text(_KIND), "name": text(feed)}


def encode_relay(relay: Relay) -> Item:
    values, plain = asdict(relay), asdict(Relay(relay.feed))
    document = {name: values[name] for name in sorted(_NAMES) if values[name] != plain[name]}
    return {
        **relay_key(relay.feed),
        "document": text(json.dumps(document, default=_value, separators=(",", ":"))),
        "version": number(relay.version),
    }


def decode_relay(item: Item) -> Relay:
    """Decode a relay.

    Raises:
        BrokenRelay: *item* is not a result of `encode_relay`.
    """
    feed = text_of(item, "name")
    try:
        fields = {
            name: _read(name, value)
            for name, value in json.loads(item["document"]["S"]).items()
            if name in _NAMES
        }
        relay = Relay(feed, number_of(item, "version"), **fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BrokenRelay(feed, str(error)) from None
    _check(relay)
    return relay


def _check(relay: Relay) -> None:
    """Check that version and positions are integers; other values would compare wrongly."""
    counted = relay.version, relay.checkpoint, relay.seconds, relay.low_watermark
    if relay.version < 1 or not all(type(each) is int and each >= 0 for each in counted):
        raise BrokenRelay(relay.feed, "a position is not a whole number")


def _value(member: object) -> object:
    assert isinstance(member, Enum)
    return member.value


def _read(name: str, value: Any) -> Any:
    if name in _ENUMS:
        return _ENUMS[name](value)
    if name == "via":
        return tuple(value)
    if name == "lost":
        return tuple((first, last) for first, last in value)
    if name == "counts":
        return Counts(**value)
    return Copy(**value) if name == "copy" and value is not None else value


class DynamoDBRelays:
    """Implements `RelayStore`."""

    def __init__(self, client: DynamoDBClient, log_table: str, control_table: str) -> None:
        self._log, self._control = log_table, Table(client, control_table)

    def relay(self, feed: str) -> Relay:
        item = self._control.get(relay_key(feed))
        return decode_relay(item) if item else Relay(feed)

    def relays(self) -> Sequence[Relay]:
        return [decode_relay(item) for item in self._control.of_kind(_KIND)]

    def write(self, before: Relay, after: Relay) -> bool:
        put = self._document(before, after)
        try:
            with translate_errors():
                self._control.client.put_item(**put, ReturnValuesOnConditionCheckFailure="ALL_OLD")
        except ConditionFailed as failed:
            # True if our first attempt has written the item.
            return failed.retried and failed.item == put["Item"]
        return True

    def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
        """Append in one transaction.

        DynamoDB executes the transaction once, because botocore's retries have the same token. If
        the answer is lost, the stored document shows whether the transaction was executed.
        """
        put = self._document(before, after)
        writes: list[Any] = [{"Put": put}, {"Update": self._head(before, after)}]
        writes += [{"Put": self._page(after.feed, each)} for each in pages]
        try:
            with translate_errors():
                self._control.client.transact_write_items(TransactItems=writes)
        except Unavailable:
            if self._control.get(relay_key(after.feed)) == put["Item"]:
                return True
            raise
        except ConditionFailed:  # by another process, or by an earlier attempt of ours
            return bool(self._control.get(relay_key(after.feed)) == put["Item"])
        return True

    def _document(self, before: Relay, after: Relay) -> dict[str, Any]:
        """Return a put of *after* that succeeds only while *before* is stored, so at most once."""
        item = encode_relay(replace(after, version=before.version + 1))
        return {"TableName": self._control.name, "Item": item, **of_version(before.version)}

    def _head(self, before: Relay, after: Relay) -> dict[str, Any]:
        operations = after.counts.operations - before.counts.operations
        return {
            "TableName": self._control.name,
            "Key": head_key(after.feed),
            **expressions(
                {":page": number(after.checkpoint), ":operations": number(operations)},
                UpdateExpression="SET #page = :page ADD #operations :operations",
            ),
        }

    def _page(self, feed: str, page_: Page) -> dict[str, Any]:
        return {
            "TableName": self._log,
            "Item": encode_page(feed, page_),
            **expressions(ConditionExpression="attribute_not_exists(#page)"),
        }
