"""
The log: pages in a separate table, head and floor in the control table.

A page, immutable except for its expiry: feed, page number. `body` is NDJSON (S) or deflated NDJSON
(B), `append` identifies the write, `at` is the commit time in ms. `slots` are the slots of its
entries, if some were left out. `skipped` is the number of page numbers before it without a page.
`trace` is the trace of its request in 24 bytes (`tracing.packed`), if it is traced: as text, a
plain page of `limits.PAGE_PLAIN_BYTES_MAX` would take a second write unit.

The head, a counter of the last page number taken: `head#<feed>`, `-`. It only grows; if it is
missing, the feed is new. `operations` counts the operations of all numbers, in the same write. If
it has a `successor`, no more numbers can be taken.

The floor, the first page that is still in the log: `floor#<feed>`, `-`. It only grows; if it is
missing, the log begins at page 1.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import (
    Item,
    Value,
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
from tidings.aws.dynamodb.transport.batches import Batches
from tidings.aws.dynamodb.transport.table import Table
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.core import limits, tracing
from tidings.core.counters import Taken
from tidings.core.errors import Yielded
from tidings.core.model.pages import Page, Pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.core.effects import Sleep
    from tidings.core.model.pages import Page


def page_key(feed: str, page: int) -> Item:
    return {"feed": text(feed), "page": number(page)}


def encode_page(feed: str, page: Page) -> Item:
    return {
        **page_key(feed, page.number),
        "body": body(page.body),
        "append": text(page.append_id),
        "at": number(page.at_ms),
        **expiry(page.expires_ms),
        **({} if page.slots is None else {"slots": _slots(page.slots)}),
        **({"trace": {"B": tracing.packed(page.trace)}} if page.trace else {}),
        **({"skipped": number(page.skipped)} if page.skipped else {}),
    }


def decode_page(item: Item) -> Page:
    """Decode a page from a whole item or from the attributes that readers request."""
    return Page(
        int(item["page"]["N"]),
        body_of(item["body"]),
        text_of(item, "append"),
        number_of(item, "at"),
        expiry_ms(item),
        _slots_of(item["slots"]) if "slots" in item else None,
        trace=_trace_of(item["trace"]) if "trace" in item else "",
        skipped=number_of(item, "skipped"),
    )


def _trace_of(value: Value) -> str:
    return tracing.unpacked(bytes_of(value))


def _slots(slots: Sequence[int]) -> Value:
    """Encode as text: a list of numbers would take three times the space."""
    return text(",".join(map(str, slots)))


def _slots_of(value: Value) -> tuple[int, ...]:
    return tuple(map(int, value["S"].split(","))) if value["S"] else ()


def head_key(feed: str) -> Item:
    return {"kind": text(f"head#{feed}"), "name": text("-")}


def decode_head(item: Item) -> int:
    """Return the head, 0 if *item* is empty."""
    return number_of(item, "page")


def decode_taken(item: Item) -> Taken:
    """Return the whole counter, for reports."""
    return Taken(decode_head(item), number_of(item, "operations"), text_of(item, "successor"))


def floor_key(feed: str) -> Item:
    return {"kind": text(f"floor#{feed}"), "name": text("-")}


def decode_floor(item: Item) -> int:
    """Return the floor, 1 if *item* is empty."""
    return number_of(item, "page") or 1


# The attributes that readers request: each costs every reader of every page.
_READ = "#page, #body, #at, #slots, #trace, #skipped"


class DynamoDBLog:
    """Implements `LogStore`, `Intake` and `TrimStore`."""

    def __init__(self, client: DynamoDBClient, log_table: str, control_table: str) -> None:
        self._log, self._control = Table(client, log_table), Table(client, control_table)

    def together(self) -> AbstractContextManager[object]:
        """Write each part separately: a transaction would make writers wait for each other."""
        return nullcontext()

    def take(self, feed: str, operations: int = 0) -> int:
        """
        Take the next number. If botocore sends the request twice, a number becomes a harmless hole.
        """
        values = {":one": number(1), ":operations": number(operations)}
        add, free = "ADD #page :one, #operations :operations", "attribute_not_exists(#successor)"
        try:
            taken = self._control.update(head_key(feed), add, values, free, returns="UPDATED_NEW")
        except ConditionFailed as failed:
            raise Yielded(feed, decode_taken(failed.item).successor) from None
        return decode_head(taken)

    def put(self, feed: str, page_: Page) -> str:
        try:
            self._log.put(encode_page(feed, page_), "attribute_not_exists(#page)")
        except ConditionFailed as failed:
            return text_of(failed.item, "append")
        return page_.append_id

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        answer = self._log.page(
            "#feed = :feed AND #page > :after",
            {":feed": text(feed), ":after": number(after)},
            _READ,
            consistent=not eventual,
            Limit=min(limit or limits.READ_ITEMS_MAX, limits.READ_ITEMS_MAX),
        )
        more = "LastEvaluatedKey" in answer
        return Pages((decode_page(item) for item in answer["Items"]), more=more)

    def head(self, feed: str) -> int:
        return decode_head(self._control.get(head_key(feed)) or {})

    def taken(self, feed: str) -> Taken:
        return decode_taken(self._control.get(head_key(feed)) or {})

    def yield_to(self, feed: str, successor: str) -> None:
        if successor:
            values = {":to": text(successor)}
            self._control.update(head_key(feed), "SET #successor = :to", values)
        else:
            self._control.update(head_key(feed), "REMOVE #successor", {})

    def floor(self, feed: str) -> int:
        return decode_floor(self._control.get(floor_key(feed)) or {})

    def raise_floor(self, feed: str, page_: int) -> None:
        self._control.raise_page(floor_key(feed), page_)


class DynamoDBNumbers:
    """
    Implements `Numbers`. Putting a page twice has no effect, so *client* may retry its requests.
    """

    def __init__(
        self, client: DynamoDBClient, log_table: str, control_table: str, sleep: Sleep
    ) -> None:
        self._control = Table(client, control_table)
        self._pages = Batches(client, log_table, sleep)

    def raise_head(self, feed: str, page: int) -> None:
        self._control.raise_page(head_key(feed), page)

    def fill(self, feed: str, pages: Sequence[Page]) -> None:
        self._pages.put([encode_page(feed, each) for each in pages])
