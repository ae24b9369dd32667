"""
page: one page of the log, immutable but for its expiry.

Key: feed, page number. `body` is NDJSON (S) or deflated NDJSON (B), `append` tells whose write
it is, `at` is the commit time in ms. `slots` are those of its entries, where some were left out.
`skipped` is how many numbers before it belong to no page.
`trace` is that of its request in 24 bytes (`tracing.packed`), where that is traced: with a text in
its place a plain page of `limits.PAGE_PLAIN_BYTES_MAX` would take a second write unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items.attributes import (
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
from tidings.core import tracing
from tidings.core.model.pages import Page

if TYPE_CHECKING:
    from collections.abc import Sequence


def key(feed: str, page: int) -> Item:
    return {"feed": text(feed), "page": number(page)}


def encode(feed: str, page: Page) -> Item:
    return {
        **key(feed, page.number),
        "body": body(page.body),
        "append": text(page.append_id),
        "at": number(page.at_ms),
        **expiry(page.expires_ms),
        **({} if page.slots is None else {"slots": _slots(page.slots)}),
        **({"trace": {"B": tracing.packed(page.trace)}} if page.trace else {}),
        **({"skipped": number(page.skipped)} if page.skipped else {}),
    }


def decode(item: Item) -> Page:
    """A page from a whole item or from the attributes that readers ask for."""
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
    """As text: as a list of numbers they would take three times the room."""
    return text(",".join(map(str, slots)))


def _slots_of(value: Value) -> tuple[int, ...]:
    return tuple(map(int, value["S"].split(","))) if value["S"] else ()
