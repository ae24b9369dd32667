"""
Relays on DynamoDB, in the control table; and the log of chained feeds, which they alone write.

What a relay appends is one transaction: its pages, its document and the head of its feed. Each is
billed twice, which is what it costs that no checkpoint is ever saved without its pages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from tidings.aws.dynamodb.items import head, page, relay
from tidings.aws.dynamodb.items.attributes import Item, number
from tidings.aws.dynamodb.transport.table import Table, expressions, of_version
from tidings.aws.runtime.aws_errors import ConditionFailed, translated
from tidings.core.errors import Unavailable
from tidings.core.replication.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.core.model.pages import Page

_CANCELLED, _CONFLICT = "TransactionCanceledException", "TransactionConflictException"


class DynamoDBRelays:
    """Implements `RelayStore`."""

    def __init__(self, client: DynamoDBClient, log_table: str, control_table: str) -> None:
        self._log, self._control = log_table, Table(client, control_table)

    def relay(self, feed: str) -> Relay:
        item = self._control.get(relay.key(feed))
        return relay.decode(item) if item else Relay(feed)

    def relays(self) -> Sequence[Relay]:
        return [relay.decode(item) for item in self._control.of_kind(relay.KIND)]

    def write(self, before: Relay, after: Relay) -> bool:
        put = self._document(before, after)
        try:
            with translated():
                self._control.client.put_item(**put, ReturnValuesOnConditionCheckFailure="ALL_OLD")
        except ConditionFailed as failed:
            return failed.retried and failed.item == put["Item"]  # the answer to ours was lost
        return True

    def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
        """
        A transaction that is sent twice by botocore is done once: its token is the same.

        Where its answer was lost for good, the document says whether it was done.
        """
        put = self._document(before, after)
        writes: list[Any] = [{"Put": put}, {"Update": self._head(before, after)}]
        writes += [{"Put": self._page(after.feed, each)} for each in pages]
        try:
            with translated():
                self._control.client.transact_write_items(TransactItems=writes)
        except Unavailable:
            if self._control.get(relay.key(after.feed)) == put["Item"]:
                return True
            raise
        except ClientError as error:
            return self._refused(error, put["Item"])
        return True

    def _refused(self, error: ClientError, wanted: Item) -> bool:
        """
        Whether it was ours that stood in our way.

        Raises:
            Unavailable: another transaction did, which may come to nothing.
        """
        code = error.response["Error"]["Code"]
        reasons: Any = error.response.get("CancellationReasons", [])
        if code not in (_CANCELLED, _CONFLICT):
            raise error
        if self._control.get(relay.key(wanted["name"]["S"])) == wanted:
            return True
        if code == _CANCELLED and any(
            each.get("Code") == "ConditionalCheckFailed" for each in reasons
        ):
            return False
        raise Unavailable(str(error)) from error

    def _document(self, before: Relay, after: Relay) -> dict[str, Any]:
        """Nobody but who read *before* may write it, and only once."""
        item = relay.encode(replace(after, version=before.version + 1))
        return {"TableName": self._control.name, "Item": item, **of_version(before.version)}

    def _head(self, before: Relay, after: Relay) -> dict[str, Any]:
        operations = after.counts.operations - before.counts.operations
        return {
            "TableName": self._control.name,
            "Key": head.key(after.feed),
            **expressions(
                {":page": number(after.checkpoint), ":operations": number(operations)},
                UpdateExpression="SET #page = :page ADD #operations :operations",
            ),
        }

    def _page(self, feed: str, page_: Page) -> dict[str, Any]:
        return {
            "TableName": self._log,
            "Item": page.encode(feed, page_),
            **expressions(ConditionExpression="attribute_not_exists(#page)"),
        }
