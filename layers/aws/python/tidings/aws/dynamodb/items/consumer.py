"""
consumer, parked, note: a named consumer, what was put aside of it, and what operators did to it.

Keys: `consumer#<feed>`, name; `parked#<feed>#<name>`, id of the message; `note#<feed>#<name>`,
milliseconds in 14 digits and a random rest. What is not set is left out; without `position`
nothing was ever acknowledged.
"""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import (
    Item,
    expiry,
    number,
    number_of,
    text,
    text_of,
    texts,
    texts_of,
    without_empty,
)
from tidings.core import limits
from tidings.core.consumers import ack_ranges, position
from tidings.core.consumers.consumer import Consumer, Failure, Note, Parked
from tidings.core.model import filters

_PREFIX = "consumer#"


def kind(feed: str) -> str:
    return f"{_PREFIX}{feed}"


def key(feed: str, name: str) -> Item:
    return {"kind": text(kind(feed)), "name": text(name)}


def encode(consumer: Consumer) -> Item:
    numbers = {
        "fence": consumer.fence,
        "lease_until": consumer.until_ms,
        "parked": consumer.parked,
    }
    strings = {
        "position": position.spelled(consumer.position) or "",
        "acked": ack_ranges.spelled(consumer.acked),
        "sent": position.spelled(consumer.sent) or "",
        "single": position.spelled(consumer.single) or "",
        "owner": consumer.owner,
    }
    lists = consumer.filter.values()
    if consumer.retries:
        lists["retries"] = list(consumer.retries)
    return {
        **key(consumer.feed, consumer.name),
        **{name: texts(values) for name, values in lists.items()},
        **without_empty(strings),
        **{name: number(value) for name, value in numbers.items() if value},
        **({"paused": {"BOOL": True}} if consumer.paused else {}),
        **({"failure": _failure(consumer.failure)} if consumer.failure else {}),
        "version": number(consumer.version),
    }


def decode(item: Item) -> Consumer:
    return Consumer(
        feed=text_of(item, "kind").removeprefix(_PREFIX),
        name=text_of(item, "name"),
        filter=filters.of({name: texts_of(item, name) for name in filters.FIELDS}),
        position=position.read(text_of(item, "position")),
        acked=ack_ranges.read(text_of(item, "acked")),
        sent=position.read(text_of(item, "sent")),
        single=position.read(text_of(item, "single")),
        retries=texts_of(item, "retries") or (),
        parked=number_of(item, "parked"),
        failure=_failure_of(item.get("failure")),
        paused="paused" in item,
        owner=text_of(item, "owner"),
        fence=number_of(item, "fence"),
        until_ms=number_of(item, "lease_until"),
        version=number_of(item, "version"),
    )


def parked_kind(feed: str, name: str) -> str:
    return f"parked#{feed}#{name}"


def parked_key(feed: str, name: str, message: str) -> Item:
    return {"kind": text(parked_kind(feed, name)), "name": text(message)}


def encode_parked(feed: str, name: str, parked: Parked) -> Item:
    return {
        **parked_key(feed, name, parked.id),
        "line": text(parked.line),
        "error": text(parked.error),
        "at": number(parked.at_ms),
        "attempts": number(parked.attempts),
    }


def decode_parked(item: Item) -> Parked:
    return Parked(
        text_of(item, "name"),
        text_of(item, "line"),
        text_of(item, "error"),
        number_of(item, "at"),
        number_of(item, "attempts"),
    )


def note_kind(feed: str, name: str) -> str:
    return f"note#{feed}#{name}"


def encode_note(feed: str, name: str, note: Note, unique: str) -> Item:
    return {
        "kind": text(note_kind(feed, name)),
        "name": text(f"{note.at_ms:014d}-{unique}"),
        **without_empty({"who": note.who, "what": note.what, "why": note.why, "id": note.id}),
        "at": number(note.at_ms),
        **expiry(note.at_ms + limits.NOTE_MS),
    }


def decode_note(item: Item) -> Note:
    return Note(
        number_of(item, "at"),
        text_of(item, "who"),
        text_of(item, "what"),
        text_of(item, "why"),
        text_of(item, "id"),
    )


def _failure(failure: Failure) -> Item:
    return {
        "M": {
            **without_empty({"id": failure.id, "error": failure.error}),
            "at": number(failure.at_ms),
            "times": number(failure.times),
        }
    }


def _failure_of(value: Item | None) -> Failure | None:
    if value is None:
        return None
    fields = value["M"]
    at_ms, times = number_of(fields, "at"), number_of(fields, "times")
    return Failure(text_of(fields, "id"), text_of(fields, "error"), at_ms, times)
