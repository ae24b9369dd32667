"""Named consumers on DynamoDB, in the control table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from tidings.aws.dynamodb.items import consumer as consumers
from tidings.aws.dynamodb.items.attributes import Item, text
from tidings.aws.dynamodb.transport.table import Table, of_version
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.core import limits
from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.consumers.consumer import Change, Consumer, Note, Parked
    from tidings.core.effects import NewId

_CANCELLED, _CONFLICT = "TransactionCanceledException", "TransactionConflictException"
_LOST = frozenset({"ConditionalCheckFailed", "TransactionConflict"})


class DynamoDBConsumers:
    """
    Implements `ConsumerStore` and `ConsumerShelf`.

    A consumer alone is one conditional write; with a note or a parked message it is a
    transaction, which costs twice.
    """

    def __init__(self, client: DynamoDBClient, table: str, new_id: NewId) -> None:
        self._table, self._new_id = Table(client, table), new_id

    def consumer(self, feed: str, name: str) -> Consumer | None:
        item = self._table.get(consumers.key(feed, name))
        return consumers.decode(item) if item else None

    def consumers(self, feed: str) -> Sequence[Consumer]:
        return [consumers.decode(item) for item in self._table.of_kind(consumers.kind(feed))]

    def write(self, feed: str, name: str, version: int, change: Change) -> bool:
        first = self._consumer_write(feed, name, version, change.consumer)
        others: list[Any] = list(self._other_writes(feed, name, change))
        try:
            with translated():
                if others:
                    self._table.client.transact_write_items(TransactItems=[first, *others])
                else:
                    self._alone(first)
        except ConditionFailed as failed:
            return failed.retried and failed.item == first.get("Put", {}).get("Item")
        except ClientError as error:
            if _overtaken(error):
                return False
            raise
        return True

    def parked(self, feed: str, name: str) -> Sequence[Parked]:
        items = self._table.of_kind(consumers.parked_kind(feed, name))
        return [consumers.decode_parked(item) for item in items]

    def notes(self, feed: str, name: str) -> Sequence[Note]:
        answer = self._table.page(
            "#kind = :kind",
            {":kind": text(consumers.note_kind(feed, name))},
            consistent=False,
            ScanIndexForward=False,
            Limit=limits.NOTES_MAX,
        )
        return [consumers.decode_note(item) for item in answer["Items"]]

    def _alone(self, write: Any) -> None:
        client = self._table.client
        if "Put" in write:
            client.put_item(**write["Put"], ReturnValuesOnConditionCheckFailure="ALL_OLD")
        else:
            client.delete_item(**write["Delete"])

    def _consumer_write(self, feed: str, name: str, version: int, consumer: Consumer | None) -> Any:
        condition = {"TableName": self._table.name, **of_version(version)}
        if consumer is None:
            return {"Delete": {**condition, "Key": consumers.key(feed, name)}}
        stored = replace(consumer, feed=feed, name=name, version=version + 1)
        return {"Put": {**condition, "Item": consumers.encode(stored)}}

    def _other_writes(self, feed: str, name: str, change: Change) -> Iterator[Any]:
        if change.note is not None:
            yield self._put(consumers.encode_note(feed, name, change.note, self._new_id()))
        if change.park is not None:
            yield self._put(consumers.encode_parked(feed, name, change.park))
        for message in change.drop:
            key = consumers.parked_key(feed, name, message)
            yield {"Delete": {"TableName": self._table.name, "Key": key}}

    def _put(self, item: Item) -> dict[str, Any]:
        return {"Put": {"TableName": self._table.name, "Item": item}}


def _overtaken(error: ClientError) -> bool:
    """
    Whether somebody else wrote meanwhile.

    Raises:
        Unavailable: the transaction was given up for another reason.
    """
    code = error.response["Error"]["Code"]
    if code == _CANCELLED:
        reasons = {each.get("Code") for each in error.response.get("CancellationReasons", [])}
        if not reasons & _LOST:
            raise Unavailable(str(error)) from error
        return True
    return code == _CONFLICT
