"""Fan-out: the plan that looks subscriptions up is what brute force would find."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemorySubscriptions
from tests.unit.core.scene import FEED, line, page, unpacked
from tidings.core import limits
from tidings.core.model import filters
from tidings.core.model.events import GZIP
from tidings.core.model.filters import ALL_KEY, EVERYTHING, Filter
from tidings.core.model.operations import parse_line
from tidings.core.model.pages import Page
from tidings.core.state.removed_parents import RemovedBySlot
from tidings.core.websocket import fanout
from tidings.core.websocket.connections import Subscription

WORDS = st.sampled_from(["a", "b", "c"])
SETS = st.none() | st.frozensets(WORDS, max_size=2)
SUBSCRIPTIONS = st.lists(
    st.builds(
        Subscription,
        WORDS,
        st.builds(Filter, SETS, SETS),
        st.integers(0, 4),
        encoding=st.sampled_from(["", GZIP]),
    ),
    max_size=3,
    unique_by=lambda subscription: subscription.connection_id,
)
LINES = st.builds(line, WORDS, type=WORDS, parents=st.lists(WORDS, max_size=3))
PAGES = st.lists(st.lists(LINES, max_size=4), min_size=1, max_size=4).map(
    lambda batches: [page(number, *lines) for number, lines in enumerate(batches, 1)]
)


class Filed(MemorySubscriptions):
    """An index with *subscriptions* that records its reads."""

    def __init__(self, subscriptions: Sequence[Subscription] = ()) -> None:
        super().__init__()
        self.keys: list[str] = []
        self.reads_of_all = 0
        for subscription in subscriptions:
            self.add(FEED, subscription)

    def plan(
        self, pages: Sequence[Page], lefts: Mapping[int, RemovedBySlot] | None = None
    ) -> fanout.Plan:
        return fanout.plan(pages, fanout.Index.of(self._find, self._all), lefts)

    def _find(self, key: str) -> Sequence[Subscription]:
        self.keys.append(key)
        return self.find(FEED, key)

    def _all(self) -> Sequence[Subscription]:
        self.reads_of_all += 1
        return self.all(FEED)


def sent(plan: fanout.Plan) -> dict[str, list[dict[str, Any]]]:
    """Return the events of each connection, from its messages."""
    return {
        connection_id: [event for text in batch for event in json.loads(unpacked(text))["events"]]
        for ids, batch in plan.messages()
        for connection_id in ids
    }


def ids(plan: fanout.Plan) -> dict[str, list[str]]:
    return {name: [event["id"] for event in events] for name, events in sent(plan).items()}


def named(plan: fanout.Plan) -> dict[str, list[str]]:
    """Name and object of each event a connection gets."""
    return {
        name: [f"{event['event']} {event['data']['id']}" for event in events]
        for name, events in sent(plan).items()
    }


def brute_force(
    pages: Sequence[Page], subscriptions: Sequence[Subscription]
) -> dict[str, list[str]]:
    """Match every operation with every subscription."""
    expected: dict[str, list[str]] = {}
    for each in pages:
        for slot, kept in enumerate(each.lines):
            for subscription in subscriptions:
                if subscription.since < each.number and subscription.filter.matches(
                    parse_line(kept)
                ):
                    event_id = f"{each.id_prefix}{slot:06x}"
                    expected.setdefault(subscription.connection_id, []).append(event_id)
    return expected


@given(PAGES, SUBSCRIPTIONS)
def test_the_plan_is_what_brute_force_finds(
    pages: list[Page], subscriptions: list[Subscription]
) -> None:
    """Each subscription gets what it matches, once, in log order, and nothing it has already."""
    plan = Filed(subscriptions).plan(pages)

    assert ids(plan) == brute_force(pages, subscriptions)
    assert plan.subscriptions == {
        subscription.connection_id: subscription
        for subscription in subscriptions
        if subscription.connection_id in brute_force(pages, subscriptions)
    }


@given(PAGES, SUBSCRIPTIONS)
def test_few_are_found_without_a_look_up(
    pages: list[Page], subscriptions: list[Subscription]
) -> None:
    """The index of subscriptions that were read at once gives the same result as the store's."""
    lefts = {each.number: {slot: ("a", "c") for slot in range(4)} for each in pages}

    plan = fanout.plan(pages, fanout.Index.of_few(subscriptions), lefts)

    assert named(plan) == named(Filed(subscriptions).plan(pages, lefts))


@given(PAGES, SUBSCRIPTIONS)
def test_an_index_for_later_pages_differs_only_in_its_audiences(
    pages: list[Page], subscriptions: list[Subscription]
) -> None:
    """It no longer separates subscriptions that began before those pages."""
    later = pages[1:]

    plan = fanout.plan(later, fanout.Index.of_few(subscriptions, after=1))

    assert ids(plan) == brute_force(later, subscriptions)
    forms = {(each.filter, max(each.since, 1), each.encoding) for each in subscriptions}
    assert len(plan.wanted) <= len(forms)


@given(PAGES, SUBSCRIPTIONS)
def test_each_key_is_looked_up_once(pages: list[Page], subscriptions: list[Subscription]) -> None:
    """The cost of a batch is its number of distinct keys."""
    index = Filed(subscriptions)
    index.plan(pages)

    assert len(index.keys) == len(set(index.keys))


@given(PAGES, SUBSCRIPTIONS)
def test_many_keys_are_not_looked_up_one_by_one(
    pages: list[Page], subscriptions: list[Subscription]
) -> None:
    """Above the limit all subscriptions are read once, and the plan stays the same."""
    index = Filed(subscriptions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LOOK_UPS_MAX", 2)
        plan = index.plan(pages)

    assert ids(plan) == brute_force(pages, subscriptions)
    assert len(index.keys) <= 2 and index.reads_of_all <= 1


@given(PAGES, SUBSCRIPTIONS)
def test_only_what_somebody_wants_is_built(
    pages: list[Page], subscriptions: list[Subscription]
) -> None:
    """Connections with the same events and encoding share messages, which are built once."""
    plan = Filed(subscriptions).plan(pages)

    wanted = {at for indexes in plan.wanted.values() for at in indexes}
    assert wanted == set(range(len(plan.events)))
    alike = {(audience.encoding, *indexes) for audience, indexes in plan.wanted.items()}
    assert len(list(plan.messages())) == len(alike)


def test_the_cursor_is_behind_all_pages() -> None:
    """This includes pages without a match, as they have nothing for the connection."""
    pages = [page(1, line("a")), page(2, line("b")), page(3)]
    plan = Filed([Subscription("c", EVERYTHING, 0)]).plan(pages)

    ((names, messages),) = plan.messages()
    assert names == ["c"]
    assert json.loads(messages[-1])["cursor"] == plan.cursor == pages[-1].end.encode()


def test_nobody_is_asked_for_a_filler() -> None:
    """It holds nothing."""
    index = Filed()

    assert index.plan([page(1)], {}).wanted == {}
    assert (index.keys, index.reads_of_all) == ([], 0)


def test_what_is_filed_for_everything_is_asked_for_every_operation() -> None:
    """`ALL_KEY` is the key of subscriptions without a filter."""
    index = Filed()
    index.plan([page(1, line("x", type="t", parents=["p", "p"]))])

    assert index.keys == [ALL_KEY, "t/t", "p/p"]


LEFTS = st.dictionaries(
    st.integers(1, 4),
    st.dictionaries(st.integers(0, 3), st.lists(WORDS, min_size=1, max_size=2).map(tuple)),
)
LEAVERS = st.lists(
    st.builds(
        Subscription,
        WORDS,
        st.builds(filters.wanting, SETS, SETS, leave=st.booleans()),
        st.integers(0, 4),
    ),
    max_size=3,
    unique_by=lambda subscription: subscription.connection_id,
)


@given(PAGES, LEAVERS, LEFTS)
def test_leaves_are_what_brute_force_finds(
    pages: list[Page], subscriptions: list[Subscription], lefts: dict[int, RemovedBySlot]
) -> None:
    """A subscription with leaves gets each operation as such, as a leave, or not at all."""
    expected: dict[str, list[str]] = {}
    for each in pages:
        left = lefts.get(each.number)
        for slot, text in enumerate(each.lines):
            operation = parse_line(text)
            gone = None if left is None else left.get(slot, ())
            for subscription in subscriptions:
                name = operation.event if subscription.filter.matches(operation) else ""
                name = name or ("leave" if subscription.filter.left_by(operation, gone) else "")
                if name and subscription.since < each.number:
                    expected.setdefault(subscription.connection_id, []).append(
                        f"{name} {operation.id}"
                    )

    assert named(Filed(subscriptions).plan(pages, lefts)) == expected


def test_everybody_is_looked_at_only_where_a_page_is_unknown() -> None:
    """Otherwise a leave costs as much as an operation: a look-up of each removed parent."""
    pages = [page(1, line("a"), line("b"))]
    index = Filed()

    index.plan(pages, {1: {1: ("q",)}})
    assert (index.keys, index.reads_of_all) == ([ALL_KEY, "t/video", "p/q"], 0)

    index.plan(pages, {})
    assert index.reads_of_all == 1
