"""The largest record of each kind, by the limits of its parts, is an item of DynamoDB."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidings
from tests.contract import samples
from tests.contract.stores import DYNAMODB_LOCAL, Stores, on
from tests.unit.core.test_limits import ITEM_BYTES
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.aws.dynamodb.removal import _LOCATIONS
from tidings.core import limits
from tidings.core.auth import keys
from tidings.core.auth.keys import KeyStore
from tidings.core.changeagent.documents import USERS, OperatorDocument, OperatorDocuments
from tidings.core.consumers.consumer import Change, ConsumerStore, Failure, Note, Parked
from tidings.core.consumers.position import Span
from tidings.core.erasure.records import ErasureStore, Phase
from tidings.core.errors import InvalidSetting
from tidings.core.feeds.records import FeedRecord, FeedStore, Removal
from tidings.core.maintenance.retention import Round, rounds_in
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.filters import Filter, to_text
from tidings.core.records import RecordStore
from tidings.core.replication.election import Coordinator, LeaderLease, Member
from tidings.core.replication.relay import RelayPasswords, relay_write
from tidings.core.replication.source import Role
from tidings.core.settings import values
from tidings.core.settings.profiles import ProfileStore
from tidings.core.settings.values import Ended, Resource
from tidings.core.state.tombstones import Remembered, TombstoneStore

AT = 4_102_444_800_000  # in 2100: records have not expired
LAST = Place(2**40 - 1, PAGE_END, 2**32 - 1)
WIDE = "\U0001d11e"  # a character of four bytes, and of twelve in the JSON of a relay
URL = "https://".ljust(limits.WEBHOOK_URL_CHARS_MAX, "h")
# Only a server has these, in a file without such a limit.
ON_A_SERVER = {"durable-stream", "vacuum"}


def wide(chars: int) -> str:
    return WIDE * chars


def texts(count: int, size: int, fill: str = "x") -> frozenset[str]:
    """Return different texts of *size* characters."""
    return frozenset(f"{number:04d}".ljust(size, fill) for number in range(count))


VALUES = texts(limits.FILTER_VALUES_MAX, limits.PARENT_BYTES_MAX)
FILTER = Filter(types=VALUES, parents=VALUES, ids=VALUES)


def key() -> keys.Key:
    """Return a key of which the filter has as many characters that need six in JSON as it may."""
    spare = limits.KEY_BOUND_CHARS_MAX - 8 * 2 * limits.FILTER_VALUES_MAX - 60
    escaped = texts(limits.FILTER_VALUES_MAX, spare // (2 * limits.FILTER_VALUES_MAX) // 6, "\x01")
    bound = Filter(parents=escaped, ids=escaped)
    assert 0.95 < len(to_text(bound)) / limits.KEY_BOUND_CHARS_MAX <= 1
    label = wide(limits.KEY_LABEL_CHARS_MAX)
    feeds = tuple(sorted(texts(limits.KEY_PREFIXES_MAX, limits.FEED_NAME_CHARS_MAX)))
    return replace(samples.KEY, bound=bound, label=label, made_by=label, feeds=feeds)


def resources() -> tuple[Resource, ...]:
    """Return resources with as many sub-resources as fit."""
    subs = tuple(sorted(texts(limits.TAGS_MAX, limits.PARENT_BYTES_MAX)))
    names = sorted(texts(limits.RESOURCES_MAX, limits.TYPE_BYTES_MAX))
    route = "/".ljust(limits.OBJECT_URL_CHARS_MAX, "r")
    free = limits.RESOURCES_BYTES_MAX - sum(len(name) + len(route) for name in names)
    each = free // limits.RESOURCES_MAX // limits.PARENT_BYTES_MAX
    made = tuple(Resource(name, subs[:each], route) for name in names)
    values.check_all(made, limits.MAX_AGE_S_MIN)
    return made


def removals() -> tuple[Removal, ...]:
    counts = tuple((name, 10**12) for name in {*_LOCATIONS, *_LOCATIONS.values()})
    number = limits.REMOVALS_MAX + limits.REMOVALS_KEPT
    place = "9" * 2 * limits.STATE_KEY_BYTES_MAX
    return tuple(Removal(2**31 + at, AT, place, 2, counts, "pending") for at in range(number))


CONSUMER = replace(
    samples.consumer_of("main"),
    filter=FILTER,
    acked=tuple(
        Span(2**39 + number, PAGE_END - 1, PAGE_END) for number in range(limits.CONSUMER_SPANS_MAX)
    ),
    retries=(LAST.encode(),) * limits.PARKED_MAX,
    failure=Failure(LAST.encode(), wide(limits.ERROR_CHARS_MAX), AT, 2**31),
    owner=wide(limits.WORKER_CHARS_MAX),
    version=0,
)
ERASURE = replace(
    samples.ERASURE,
    type="t" * limits.TYPE_BYTES_MAX,
    object_id="i" * limits.ID_BYTES_MAX,
    by=wide(limits.FEED_BY_CHARS_MAX),
    reason=wide(limits.WHY_CHARS_MAX),
    version=0,
)
PROFILE = replace(
    samples.PROFILE,
    object_url="/" * limits.OBJECT_URL_CHARS_MAX,
    read_passwords=("h" * limits.PASSWORD_BYTES_MAX,) * limits.PASSWORDS_MAX,
    ingest_passwords=("h" * limits.PASSWORD_BYTES_MAX,) * limits.PASSWORDS_MAX,
    ended=(Ended("k" * keys.ID_LENGTH, AT, AT),) * limits.ENDED_MAX,
    lost=((2**39, 2**40),) * limits.LOST_RANGES_MAX,
    resources=resources(),
    version=0,
)
RELAY = replace(
    samples.relay_of("main"),
    via=tuple("0" * 32 for _ in range(limits.VIA_MAX)),
    upstream=URL,
    master=URL,
    error=wide(limits.ERROR_CHARS_MAX),
    why=wide(limits.WHY_CHARS_MAX),
    lost=((2**39, 2**40),) * limits.LOST_RANGES_MAX,
)


def change(records: RecordStore, feed: str, **parts: Any) -> object:
    """Write *parts* of a change, with a consumer of its own."""
    consumer = replace(CONSUMER, feed=feed)
    return ConsumerStore(records).write(feed, consumer.name, 0, Change(consumer, **parts))


def park(records: RecordStore, feed: str) -> object:
    line, error = "l" * limits.OPERATION_BYTES_MAX, wide(limits.ERROR_CHARS_MAX)
    return change(records, feed, park=Parked(LAST.encode(), line, error, AT, 2**31))


def note(records: RecordStore, feed: str) -> object:
    who, why = wide(limits.WORKER_CHARS_MAX), wide(limits.WHY_CHARS_MAX)
    return change(records, feed, note=Note(AT, who, "release", why, LAST.encode()))


def announce(records: RecordStore, cluster: str) -> object:
    feed = "f" * limits.FEED_NAME_CHARS_MAX
    Coordinator(records).announce(Member(cluster, URL, feed, Role.LEADER, 2**40, AT))
    return True


def record(records: RecordStore, feed: str) -> object:
    by = wide(limits.FEED_BY_CHARS_MAX)
    return FeedStore(records).save(FeedRecord(feed, 2**31, False, AT, AT, by, 2**40, removals()))


def finish(records: RecordStore, feed: str) -> object:
    """Store an erasure that is done as large as one that is not, although its object is gone."""
    assert ErasureStore(records).save(feed, ERASURE)
    return ErasureStore(records).save(feed, replace(ERASURE, version=1, phase=Phase.DONE))


# How the largest record of each kind is stored, by the name of the kind.
SAVED: Mapping[str, Callable[[RecordStore, str], object]] = {
    "consumer": change,
    "erasure": lambda records, feed: ErasureStore(records).save(feed, ERASURE),
    "erasure-done": finish,
    "feed": record,
    "feed-removal": record,
    "key": lambda records, feed: KeyStore(records).save(feed, keys.validate_key(key())),
    "leader-lease": lambda records, feed: Coordinator(records).take(
        LeaderLease(feed, 0), LeaderLease(feed, 0, URL, 2**31, AT)
    ),
    "member": announce,
    "note": note,
    "operator-document": lambda records, feed: OperatorDocuments(records).write(
        feed, USERS, OperatorDocument("u" * limits.DOCUMENT_BYTES_MAX)
    ),
    "parked": park,
    "profile": lambda records, feed: ProfileStore(records).save(feed, PROFILE),
    "relay": lambda records, feed: records.write(
        feed, [relay_write(replace(RELAY, version=0), RELAY)], mark=False
    ),
    "renewal": lambda records, feed: rounds_in(records).save(feed, Round(2**40, AT)),
    "tombstones": lambda records, feed: TombstoneStore(records).remember(
        feed, None, Remembered(AT, AT, AT)
    ),
    "upstream": lambda records, feed: RelayPasswords(records).keep(
        feed, wide(limits.PASSWORD_BYTES_MAX)
    ),
}


def kinds() -> Iterator[tuple[str, str]]:
    """Yield the name and the partition of each kind of records in the code of the product."""
    for path in Path(tidings.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if "tidings.core.records import" not in text and path.name != "records.py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Kind":
                given = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
                if given:
                    yield given[0], (*given, "")[1] or given[0]


def size_of(attribute: Mapping[str, Any]) -> int:
    """Return the size of an attribute's value by the rules of DynamoDB, rounded up."""
    ((type_, value),) = attribute.items()
    match type_:
        case "S":
            return len(value.encode())
        case "N":
            return len(value) // 2 + 3
        case "L":
            return 3 + sum(1 + size_of(each) for each in value)
        case "M":
            return 3 + sum(1 + len(name) + size_of(each) for name, each in value.items())
    return 1


def test_no_kind_is_missing() -> None:
    """A new kind needs its largest record here."""
    assert {name for name, _ in kinds()} == {*SAVED} | ON_A_SERVER


def test_larger_ones_are_refused() -> None:
    """Each value is short enough, but not all of them together."""
    bound = Filter(ids=texts(limits.FILTER_VALUES_MAX, limits.PARENT_BYTES_MAX, "\x01"))
    with pytest.raises(InvalidSetting, match="characters as JSON"):
        keys.validate_key(replace(key(), bound=bound))
    subs = tuple(texts(limits.TAGS_MAX, limits.PARENT_BYTES_MAX))
    whole = [replace(each, subs=subs) for each in resources()]
    with pytest.raises(InvalidSetting, match="bytes together"):
        values.check_all(whole, limits.MAX_AGE_S_MIN)


@on("moto", DYNAMODB_LOCAL)
@pytest.mark.parametrize("kind", sorted(SAVED))
def test_the_largest_record_fits(stores: Stores, feed: str, kind: str) -> None:
    """By the rules, and by the engine, which refuses larger items."""
    records = stores.records
    assert isinstance(records, DynamoDBRecords)
    assert SAVED[kind](records, feed) in (True, None)

    partition = dict(kinds())[kind]
    table = records.table
    pages = table.client.get_paginator("scan").paginate(TableName=table.name)
    found = [item for each in pages for item in each["Items"]]
    of_kind = [each for each in found if each["kind"]["S"].partition("#")[0] == partition]
    sizes = [sum(len(name) + size_of(each) for name, each in item.items()) for item in of_kind]
    assert sizes
    assert max(sizes) <= ITEM_BYTES
