"""The log on DynamoDB. Pages have a table of their own; all other items are in the control table.

Each paragraph about an item begins with the kind of the item. After the colon are the item's
partition key and its sort key.

A page: feed, page number. Only its expiry changes, and its body if an erasure removes content
(`erasures.DynamoDBRewrites`). `body` is NDJSON (S) or deflated NDJSON (B), `append` identifies the
write, and `at` is the commit time in ms. `slots` are the slots of the page's entries, if entries
were left out. `skipped` is how many numbers directly before this page have no page. `trace` is the
trace of the request, if the request is traced. It is packed into 24 bytes (`tracing.pack_trace`),
because a trace as text would make a plain page of `limits.PAGE_PLAIN_BYTES_MAX` take a second write
unit.

The head: `head#<feed>`, `-`. `page` is the last page number taken, which only grows. If the item is
missing, the feed is new. `operations` counts the operations of all numbers taken; the same write
changes `page` and `operations`. If the head has a `successor`, no more numbers can be taken. If it
has `idle`, the sweep does not visit the feed (`due`).

The floor: `floor#<feed>`, `-`. `page` is the first page that is still in the log, which only grows.
If the item is missing, the log begins at page 1.

A claim, the result of a request with an Idempotency-Key: `claim#<feed>`, the Idempotency-Key.
Readers check the expiry, because DynamoDB's TTL deletes items late.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.clients import ConditionFailed
from tidings.aws.dynamodb import due
from tidings.aws.dynamodb.attributes import (
    Item,
    Value,
    body,
    body_of,
    bytes_of,
    decode_head,
    expiry,
    expiry_ms,
    head_key,
    number,
    number_of,
    seconds,
    text,
    text_of,
)
from tidings.aws.dynamodb.table import Batches, Table, TableStore
from tidings.core import limits, tracing
from tidings.core.counters import LogCounter, refusal
from tidings.core.model.pages import Page, Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.core.effects import Sleep
    from tidings.core.log.append import Claim
    from tidings.core.log.stores import Result


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
        **({"trace": {"B": tracing.pack_trace(page.trace)}} if page.trace else {}),
        **({"skipped": number(page.skipped)} if page.skipped else {}),
    }


def decode_page(item: Item) -> Page:
    """Decode a page from a complete item, or from an item with the attributes of `_READ`."""
    return Page(
        number=int(item["page"]["N"]),
        body=body_of(item["body"]),
        append_id=text_of(item, "append"),
        at_ms=number_of(item, "at"),
        expires_ms=expiry_ms(item),
        slots=_slots_of(item["slots"]) if "slots" in item else None,
        trace=_trace_of(item["trace"]) if "trace" in item else "",
        skipped=number_of(item, "skipped"),
    )


def _trace_of(value: Value) -> str:
    return tracing.unpack_trace(bytes_of(value))


def _slots(slots: Sequence[int]) -> Value:
    """Encode *slots* as text, because a list of numbers would take three times the space."""
    return text(",".join(map(str, slots)))


def _slots_of(value: Value) -> tuple[int, ...]:
    return tuple(map(int, value["S"].split(","))) if value["S"] else ()


def decode_log_counter(item: Item) -> LogCounter:
    """Return the head, the number of operations, and the successor in *item*."""
    return LogCounter(decode_head(item), number_of(item, "operations"), text_of(item, "successor"))


def floor_key(feed: str) -> Item:
    return {"kind": text(f"floor#{feed}"), "name": text("-")}


def decode_floor(item: Item) -> int:
    """Return the floor in *item*; 1 if *item* is empty."""
    return number_of(item, "page") or 1


# The attributes of a page that readers request.
_READ = "#page, #body, #at, #slots, #trace, #skipped"


class DynamoDBLog:
    """Implements `LogStore`."""

    def __init__(self, client: DynamoDBClient, log_table: str, control_table: str) -> None:
        self._log, self._control = Table(client, log_table), Table(client, control_table)

    def together(self, run: Callable[[], Result]) -> Result:
        """Call *run* without a transaction, which would make writers wait for each other."""
        return run()

    def take(self, feed: str, operations: int = 0) -> int:
        """Take the next number. If botocore repeats the request, a number may stay unused."""
        values = {":one": number(1), ":operations": number(operations)}
        add, free = "ADD #page :one, #operations :operations", "attribute_not_exists(#successor)"
        try:
            head = self._control.update(head_key(feed), add, values, free, returns="ALL_NEW")
        except ConditionFailed as failed:
            raise refusal(feed, decode_log_counter(failed.item).successor) from None
        due.wake(self._control, head, head_key(feed), feed)
        return decode_head(head)

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

    def log_counter(self, feed: str) -> LogCounter:
        return decode_log_counter(self._control.get(head_key(feed)) or {})

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

    def expiries(self, feed: str, after: int, last: int) -> list[tuple[int, int]]:
        """Read with eventual consistency, at half the price.

        The result may lack a page that was written recently. This is harmless, because such a page
        does not expire soon.
        """
        if after >= last:
            return []
        answer = self._log.page(
            "#feed = :feed AND #page BETWEEN :first AND :last",
            {":feed": text(feed), ":first": number(after + 1), ":last": number(last)},
            "#page, #expires",
            consistent=False,
            Limit=limits.READ_ITEMS_MAX,
        )
        return [(int(item["page"]["N"]), expiry_ms(item)) for item in answer["Items"]]

    def renew(self, feed: str, page_: int, expires_ms: int) -> None:
        try:
            self._log.update(
                page_key(feed, page_),
                "SET #expires = :expires",
                {":expires": number(seconds(expires_ms))},
                "#expires < :expires",  # does not hold if the page is missing
            )
        except ConditionFailed:
            return


class DynamoDBNumbers:
    """Implements `Numbers`. *client* may retry, because putting a page again changes nothing."""

    def __init__(
        self, client: DynamoDBClient, log_table: str, control_table: str, sleep: Sleep
    ) -> None:
        self._control = Table(client, control_table)
        self._pages = Batches(client, log_table, sleep)

    def raise_head(self, feed: str, page: int) -> None:
        due.mark(self._control, feed)
        self._control.raise_page(head_key(feed), page)

    def fill(self, feed: str, pages: Sequence[Page]) -> None:
        self._pages.put([encode_page(feed, each) for each in pages])


def claim_key(feed: str, name: str) -> Item:
    return {"kind": text(f"claim#{feed}"), "name": text(name)}


def encode_claim(feed: str, claim: Claim) -> Item:
    return {
        **claim_key(feed, claim.key),
        "fingerprint": text(claim.fingerprint),
        "append": text(claim.append_id),
        "page": number(claim.page),
        **expiry(claim.expires_ms),
    }


def decode_claim(item: Item) -> Claim:
    from tidings.core.log.append import Claim  # only functions that append need it

    return Claim(
        key=text_of(item, "name"),
        fingerprint=text_of(item, "fingerprint"),
        append_id=text_of(item, "append"),
        page=number_of(item, "page"),
        expires_ms=expiry_ms(item),
    )


class DynamoDBClaims(TableStore):
    """Implements `ClaimStore`."""

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        item = self._table.get(claim_key(feed, key))
        claim = decode_claim(item) if item else None
        return claim if claim and claim.expires_ms > now_ms else None

    def claim(self, feed: str, claim: Claim, *, now_ms: int) -> Claim:
        free = "attribute_not_exists(#expires) OR #expires <= :now"
        return self._put(feed, claim, free, {":now": number(now_ms // 1000)})

    def move(self, feed: str, claim: Claim, page: int) -> Claim:
        ours = "attribute_not_exists(#append) OR (#append = :append AND #page = :page)"
        values = {":append": text(claim.append_id), ":page": number(claim.page)}
        return self._put(feed, replace(claim, page=page), ours, values)

    def _put(self, feed: str, claim: Claim, condition: str, values: Item) -> Claim:
        try:
            self._table.put(encode_claim(feed, claim), condition, values)
        except ConditionFailed as failed:
            return decode_claim(failed.item)
        return claim
