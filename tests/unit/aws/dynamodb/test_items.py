"""Every kind of item comes back from its encoding as it went in, and never expires early."""

from __future__ import annotations

import json
from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from tidings.aws.dynamodb import (
    attributes,
    connections,
    counters,
    followers,
    log,
    served,
    state,
    tags,
)
from tidings.core import limits, tracing
from tidings.core.changeagent.tag_index import Summary
from tidings.core.counters import LogCounter, Totals
from tidings.core.followers.leases import Lease
from tidings.core.log.append import Claim
from tidings.core.model.events import GZIP, OPTIONS, EventOptions
from tidings.core.model.filters import Filter
from tidings.core.model.pages import Page
from tidings.core.settings.values import Admission
from tidings.core.state.removed_parents import RemovedParents
from tidings.core.state.rows import Row
from tidings.core.triton.registration import Kind, Listener
from tidings.core.websocket.connections import Change, Connection, Round, Subscription
from tidings.core.websocket.session import State

FEED = "main"
NUMBERS = st.integers(min_value=0, max_value=2**53)
SECONDS = st.integers(min_value=0, max_value=2**40).map(lambda seconds: seconds * 1000)
# The text of a key or a line: any UTF-8 text without NUL.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
PAIRS = st.tuples(st.text(max_size=5), st.text(max_size=5))
FILTERS = st.builds(
    Filter,
    types=st.none() | st.frozensets(st.text(max_size=5), max_size=3),
    parents=st.none() | st.frozensets(st.text(max_size=5), max_size=3),
    leave=st.booleans(),
    redacted=st.booleans(),
    kinds=st.none() | st.frozensets(PAIRS, max_size=3),
)
KINDS = st.builds(Kind, TEXTS, st.lists(TEXTS, max_size=3).map(tuple))
LISTENERS = st.builds(
    Listener, st.just(2), TEXTS, TEXTS, TEXTS, st.lists(KINDS, max_size=3).map(tuple)
)
ADMISSIONS = st.builds(Admission, st.just("3k2m9c0q8xw1"), NUMBERS, NUMBERS)
ADMISSIONS |= st.builds(Admission, until_ms=NUMBERS)
CONNECTIONS = {
    "id": TEXTS,
    "opened_ms": NUMBERS,
    "state": st.sampled_from(State),
    "feed": st.text(st.characters(codec="utf-8")),
    "filter": FILTERS,
    "progress": st.text(st.characters(codec="utf-8")),
    "since": NUMBERS,
    "runner": st.text(st.characters(codec="utf-8")),
    "listener": st.none() | LISTENERS,
    "runner_expires_ms": NUMBERS,
    "admission": ADMISSIONS,
    "version": NUMBERS,
    "lane": NUMBERS,
    "encoding": st.sampled_from(["", GZIP]),
    "options": st.builds(EventOptions, **dict.fromkeys(OPTIONS, st.booleans())),
}


def travelled(item: attributes.Item) -> attributes.Item:
    """Return the item as it comes from the wire, with binary values in base64."""
    found: attributes.Item = json.loads(json.dumps(item))
    return found


TRACES = st.just("") | st.binary(min_size=24, max_size=24).map(tracing.unpack_trace)
BODIES = st.text() | st.binary(min_size=1)


@given(st.builds(Page, NUMBERS, BODIES, TEXTS, NUMBERS, SECONDS, trace=TRACES))
def test_page(written: Page) -> None:
    """The body is text or bytes."""
    assert log.decode_page(log.encode_page(FEED, written)) == written


def test_a_trace_takes_no_unit_more() -> None:
    """A plain page of the largest size fits into one write unit with it, whatever its feed."""
    body = "x" * limits.PAGE_PLAIN_BYTES_MAX
    largest = Page(
        10**10, body, "a" * 32, 2 * 10**12, 2 * 10**12, trace=tracing.new_traceparent("a" * 32)
    )
    item = log.encode_page("f" * 12, largest)

    assert item["trace"] == {"B": bytes.fromhex("a" * 48)}
    assert size_of(item) <= 1024 < size_of({**item, "trace": {"S": largest.trace}})


def size_of(item: attributes.Item) -> int:
    """Return the size that DynamoDB counts: names and values in UTF-8; a byte for two digits of a
    number.
    """
    total = 0
    for name, value in item.items():
        ((kind, content),) = value.items()
        total += len(name)
        total += len(content) // 2 + 2 if kind == "N" else len(content)
    return total


@given(st.builds(Row, TEXTS, NUMBERS, NUMBERS, NUMBERS, TEXTS, SECONDS))
def test_row(written: Row) -> None:
    """A row is in the partition of its bucket."""
    item = state.encode_row(FEED, written)
    assert state.decode_row(travelled(item)) == written
    assert item["bucket"] == {"S": f"{FEED}#{written.bucket:02x}"}


@given(
    st.builds(RemovedParents, st.integers(0, 2**40 - 1), st.text() | st.binary(min_size=1)), SECONDS
)
def test_removed_parents(written: RemovedParents, expires_ms: int) -> None:
    """They are in a partition of their own; decoding leaves out the expiry."""
    item = state.encode_removed(FEED, replace(written, expires_ms=expires_ms))
    assert state.decode_removed(item) == written
    assert attributes.expiry_ms(item) == expires_ms


@given(st.builds(Lease, st.just(FEED), TEXTS, st.text(), NUMBERS, NUMBERS, NUMBERS, NUMBERS))
def test_follower(written: Lease) -> None:
    """The lease may be held or free."""
    assert followers.decode(travelled(followers.encode(written))) == written


@given(st.builds(Claim, TEXTS, TEXTS, TEXTS, NUMBERS, SECONDS))
def test_claim(written: Claim) -> None:
    """This holds for any key."""
    assert log.decode_claim(travelled(log.encode_claim(FEED, written))) == written


COUNTS = st.dictionaries(TEXTS, NUMBERS, max_size=3)


@given(st.none() | st.tuples(TEXTS, TEXTS), COUNTS, COUNTS)
def test_roster(at: tuple[str, str] | None, counted: dict[str, int], told: dict[str, int]) -> None:
    """The place is the key of the item at which a scan resumes; without an item it is the
    beginning."""
    last = {"kind": attributes.text(at[0]), "name": attributes.text(at[1])} if at else {}
    written = Round(connections.scan_end(last), counted, told)
    assert connections.decode_round(travelled(connections.encode_round(written))) == written
    assert connections.scan_start(written.resume_at) == (
        {"ExclusiveStartKey": last} if last else {}
    )
    assert connections.decode_round({}) == Round()


@given(st.builds(Connection, **CONNECTIONS))
def test_connection(written: Connection) -> None:
    """Empty texts are left out and come back empty."""
    assert (
        connections.decode_connection(travelled(connections.encode_connection(written))) == written
    )


def test_connection_of_before() -> None:
    """What 0.1 stored has no rate of its key: nothing is charged until it subscribes again."""
    item = connections.encode_connection(
        Connection("c", 1, admission=Admission("3k2m9c0q8xw1", 2, 3))
    )
    del item["rate"]
    assert connections.decode_connection(item).admission == Admission("3k2m9c0q8xw1", 2)


def test_connection_has_every_field() -> None:
    """A field added to the value must be added to the item."""
    assert set(CONNECTIONS) == {field.name for field in fields(Connection)}


@given(st.builds(Change, TEXTS, st.booleans(), FILTERS, NUMBERS, TEXTS, st.booleans()))
def test_change(written: Change) -> None:
    """Joining, leaving or moving, with any filter a client may send."""
    assert (
        connections.decode_change(
            travelled(connections.encode_change(FEED, written, expires_ms=1000))
        )
        == written
    )


@given(st.builds(Subscription, TEXTS, FILTERS, NUMBERS, ADMISSIONS), TEXTS)
def test_subscription(written: Subscription, key: str) -> None:
    """The connection is read from the name, whatever its key is."""
    assert (
        connections.decode_subscription(
            travelled(connections.encode_subscription(FEED, key, written, expires_ms=1000))
        )
        == written
    )


@given(TEXTS, TEXTS, TEXTS)
def test_a_subscription_is_found_under_its_own_key_only(
    key: str, other: str, connection_id: str
) -> None:
    """No key is the beginning of another one's name."""
    name = connections.subscription_key(FEED, key, connection_id)["name"]["S"]
    assert name.startswith(connections.subscription_prefix(other)) == (key == other)


@given(st.lists(st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,62}", fullmatch=True)))
def test_served(feeds: list[str]) -> None:
    """Names of feeds have no comma; without an item the set is empty."""
    assert served.served_feeds(travelled(served.encode_served(feeds))) == frozenset(feeds)
    assert served.served_feeds({}) == frozenset()
    assert served.served_sources({}) == served.served_sources(served.encode_served(feeds)) == ""
    assert served.served_sources(travelled(served.encode_served(feeds, '{"a":1}'))) == '{"a":1}'


def test_counters() -> None:
    """Without an item no number was allocated, and the log begins with page 1."""
    assert (attributes.decode_head({}), log.decode_floor({})) == (0, 1)
    found = {"page": attributes.number(7)}
    assert (attributes.decode_head(found), log.decode_floor(found)) == (7, 7)


@given(st.integers(min_value=1, max_value=2**53))
def test_nothing_expires_early(ms: int) -> None:
    """DynamoDB counts whole seconds; ours are rounded up."""
    assert 0 <= attributes.expiry_ms(attributes.expiry(ms)) - ms < 1000


def test_counters_of_a_feed_in_any_order() -> None:
    """Counters add up, clients count until they expire; missing items are zero."""
    served = {
        **counters.item_key(FEED, counters.SERVED),
        "connections": {"N": "2"},
        "sent": {"N": "30"},
    }
    refused = {**counters.item_key(FEED, counters.REFUSED), "refused": {"N": "4"}}
    there = [
        {**counters.presence(FEED, place), "clients": {"N": "5"}, "until": {"N": until}}
        for place, until in (("a", "1000"), ("served", "1001"), ("refused", "1002"))
    ]
    for items in ([served, refused, *there], [*there, refused, served]):
        assert counters.decode(map(travelled, items), now_ms=1000) == Totals(4, 2, 30, 10)
    assert counters.decode([], now_ms=0) == Totals()


def test_a_head_without_a_count() -> None:
    """One written before operations were counted: its pages are known, they begin at 0."""
    assert log.decode_log_counter({**attributes.head_key(FEED), "page": {"N": "7"}}) == LogCounter(
        7, 0
    )
    assert log.decode_log_counter({}) == LogCounter(0, 0)


@given(st.builds(Summary, NUMBERS, st.integers(1, 2**40 - 1), st.binary(min_size=1), SECONDS))
def test_summary(written: Summary) -> None:
    """Readers do not ask for the expiry."""
    item = tags.encode(FEED, written)
    assert tags.decode(item) == replace(written, expires_ms=0)
    assert item.get("expires", {"N": "0"}) == {"N": str(written.expires_ms // 1000)}
