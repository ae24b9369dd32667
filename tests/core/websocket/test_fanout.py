"""Fan-out: the plan that looks subscriptions up is what brute force would find."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidings.core import limits
from tidings.core.model import filters
from tidings.core.model.filters import ALL_KEY, EVERYTHING, Filter
from tidings.core.model.operations import parse_line
from tidings.core.model.pages import Page
from tidings.core.state.removed_parents import Left
from tidings.core.websocket import fanout
from tidings.core.websocket.connections import Subscription

from tests.core.scene import FEED, line, page
from tests.fakes import MemorySubscriptions

WORDS = st.sampled_from(["a", "b", "c"])
SETS = st.none() | st.frozensets(WORDS, max_size=2)
WATCHES = st.lists(
    st.builds(Subscription, WORDS, st.builds(Filter, SETS, SETS), st.integers(0, 4)),
    max_size=3,
    unique_by=lambda watch: watch.connection_id,
)
LINES = st.builds(line, WORDS, type=WORDS, parents=st.lists(WORDS, max_size=3))
PAGES = st.lists(st.lists(LINES, max_size=4), min_size=1, max_size=4).map(
    lambda batches: [page(number, *lines) for number, lines in enumerate(batches, 1)]
)


def filed(watches: Sequence[Subscription]) -> MemorySubscriptions:
    """The index with *watches* in it."""
    index = MemorySubscriptions()
    for watch in watches:
        index.add(FEED, watch)
    return index


def lookup(watches: MemorySubscriptions) -> fanout.Index:
    return fanout.Index.of(partial(watches.find, FEED), partial(watches.all, FEED))


def sent(plan: fanout.Plan) -> dict[str, list[str]]:
    """The event ids each connection gets, from its messages."""
    return {
        connection_id: [item["id"] for text in batch for item in json.loads(text)["events"]]
        for ids, batch in plan.messages()
        for connection_id in ids
    }


def told(plan: fanout.Plan) -> dict[str, list[str]]:
    """Name and object of each event a connection gets."""
    return {
        connection_id: [
            f"{item['event']} {item['data']['id']}"
            for text in batch
            for item in json.loads(text)["events"]
        ]
        for ids, batch in plan.messages()
        for connection_id in ids
    }


def brute_force(pages: Sequence[Page], watches: Sequence[Subscription]) -> dict[str, list[str]]:
    """Every operation against every subscription."""
    found: dict[str, list[str]] = {}
    for each in pages:
        for slot, kept in enumerate(each.lines):
            for watch in watches:
                if watch.since < each.number and watch.filter.matches(parse_line(kept)):
                    ids = found.setdefault(watch.connection_id, [])
                    ids.append(f"{each.id_prefix}{slot:06x}")
    return found


@given(PAGES, WATCHES)
def test_the_plan_is_what_brute_force_finds(pages: list[Page], watches: list[Subscription]) -> None:
    """Each subscription gets what it matches, once, in log order, and nothing it has already."""
    index = filed(watches)

    plan = fanout.plan(pages, lookup(index))

    assert sent(plan) == brute_force(pages, watches)
    assert {name: plan.watches[name] for name in plan.wanted} == {
        watch.connection_id: watch for watch in watches if watch.connection_id in plan.wanted
    }


@given(PAGES, WATCHES)
def test_few_are_found_without_a_look_up(pages: list[Page], watches: list[Subscription]) -> None:
    """Read at once they are filed here as the store files them; nothing else is found."""
    index = filed(watches)
    lefts = {each.number: {slot: ("a", "c") for slot in range(4)} for each in pages}

    found = fanout.plan(pages, fanout.Index.of_few(index.all(FEED)), lefts)

    assert told(found) == told(fanout.plan(pages, lookup(index), lefts))


@given(PAGES, WATCHES)
def test_each_key_is_looked_up_once(pages: list[Page], watches: list[Subscription]) -> None:
    """So a batch costs what is different in it."""
    index, asked = filed(watches), Counter[str]()

    def find(key: str) -> Sequence[Subscription]:
        asked[key] += 1
        return index.find(FEED, key)

    fanout.plan(pages, fanout.Index.of(find, tuple))

    assert set(asked.values()) <= {1}


@given(PAGES, WATCHES)
def test_many_keys_are_not_looked_up_one_by_one(
    pages: list[Page], watches: list[Subscription]
) -> None:
    """Beyond the bound everybody is read, once, and the plan stays the same."""
    index, asked, read = filed(watches), Counter[str](), Counter[str]()

    def find(key: str) -> Sequence[Subscription]:
        asked[key] += 1
        return index.find(FEED, key)

    def everybody() -> Sequence[Subscription]:
        read["all"] += 1
        return index.all(FEED)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LOOK_UPS_MAX", 2)
        found = fanout.plan(pages, fanout.Index.of(find, everybody))

    assert sent(found) == sent(fanout.plan(pages, lookup(index)))
    assert asked.total() <= 2 and read["all"] <= 1


@given(PAGES, WATCHES)
def test_only_what_somebody_wants_is_built(pages: list[Page], watches: list[Subscription]) -> None:
    """And connections that want the same get the same messages, built once."""
    index = filed(watches)

    plan = fanout.plan(pages, lookup(index))

    wanted = {at for indexes in plan.wanted.values() for at in indexes}
    assert wanted == set(range(len(plan.events)))
    assert len(list(plan.messages())) == len({tuple(each) for each in plan.wanted.values()})


def test_the_cursor_is_behind_all_pages() -> None:
    """Of those without a match, too: nothing of them is missing."""
    pages = [page(1, line("a")), page(2, line("b")), page(3)]
    index = filed([Subscription("c", EVERYTHING, 0)])

    plan = fanout.plan(pages, lookup(index))

    ((ids, messages),) = plan.messages()
    assert ids == ["c"]
    assert json.loads(messages[-1])["cursor"] == plan.cursor == pages[-1].end.encode()


def test_nobody_is_asked_for_a_filler() -> None:
    """It holds nothing."""
    index = fanout.Index.of(lambda key: 1 / 0, lambda: 1 / 0)  # type: ignore[arg-type,return-value]

    assert fanout.plan([page(1)], index, {}).wanted == {}


def test_what_is_filed_for_everything_is_asked_for_every_operation() -> None:
    """The key of those who want all."""
    asked: list[str] = []

    def find(key: str) -> Sequence[Subscription]:
        asked.append(key)
        return ()

    fanout.plan([page(1, line("x", type="t", parents=["p", "p"]))], fanout.Index.of(find, tuple))

    assert asked == [ALL_KEY, "t/t", "p/p"]


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
    unique_by=lambda watch: watch.connection_id,
)


@given(PAGES, LEAVERS, LEFTS)
def test_leaves_are_what_brute_force_finds(
    pages: list[Page], watches: list[Subscription], lefts: dict[int, Left]
) -> None:
    """Whoever wants leaves gets each operation as what it is, as a leave, or not at all."""
    expected: dict[str, list[str]] = {}
    for each in pages:
        left = lefts.get(each.number)
        for slot, text in enumerate(each.lines):
            operation = parse_line(text)
            gone = None if left is None else left.get(slot, ())
            for watch in watches:
                name = operation.event if watch.filter.matches(operation) else ""
                name = name or ("leave" if watch.filter.left_by(operation, gone) else "")
                if name and watch.since < each.number:
                    expected.setdefault(watch.connection_id, []).append(f"{name} {operation.id}")

    assert told(fanout.plan(pages, lookup(filed(watches)), lefts)) == expected


def test_everybody_is_looked_at_only_where_a_page_is_unknown() -> None:
    """Else a leave costs what an operation costs: a look-up of each parent it took away."""
    pages = [page(1, line("a"), line("b"))]
    asked: list[str] = []

    def find(key: str) -> Sequence[Subscription]:
        asked.append(key)
        return ()

    everybody: list[int] = []
    index = fanout.Index.of(find, lambda: everybody.append(1) or ())  # type: ignore[func-returns-value]

    fanout.plan(pages, index, {1: {1: ("q",)}})
    assert (asked, everybody) == ([ALL_KEY, "t/video", "p/q"], [])

    fanout.plan(pages, index, {})
    assert everybody == [1]
