"""The contracts of connections, of the registry of listeners, and of the outbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

import pytest

from tests.contract.stores import NOT_ON_SQLITE, Stores, unset
from tidings.core.ingest.outbox import OutboxMessage
from tidings.core.model.events import OPTIONS, EventOptions
from tidings.core.model.filters import EVERYTHING, FIELDS, Filter, of, parent_key, type_key
from tidings.core.triton.registration import Kind, Listener, Registered
from tidings.core.websocket.connections import (
    Change,
    Connection,
    ConnectionPage,
    ConnectionStore,
    Round,
    Subscription,
    storage_key,
)
from tidings.core.websocket.session import State

NOW = 4_102_444_700_123  # in 2100: an engine deletes what has expired while a test looks
EVERY_OPTION = EventOptions(**dict.fromkeys(OPTIONS, True))
FILTERS = [
    EVERYTHING,
    Filter(types=frozenset({"video", "ä€𝄞"})),
    Filter(types=frozenset({"video"}), parents=frozenset({"user/x1", "user/x2"})),
    Filter(parents=frozenset()),
    Filter(kinds=frozenset({("vm", "nic"), ("vm", "ä"), ("network", "name")})),
    Filter(kinds=frozenset()),
    replace(of(dict.fromkeys(FIELDS, ("x*",))), leave=True, redacted=True, erasures=True),
]


def connection(feed: str, name: str = "c", wanted: Filter = EVERYTHING) -> Connection:
    return Connection(f"{feed}-{name}=", NOW, feed=feed, filter=wanted)


def pages(roster: ConnectionStore, *, limit: int, place: str = "") -> Iterator[ConnectionPage]:
    """Yield the pages after *place*, up to the end."""
    while True:
        page = roster.page(place, limit)
        yield page
        if not (place := page.resume_at):
            return


def everybody(roster: ConnectionStore) -> list[Connection]:
    """Return all connections of all feeds."""
    return [each for page in pages(roster, limit=100) for each in page.connections]


@NOT_ON_SQLITE
class TestConnections:
    @pytest.mark.parametrize("wanted", FILTERS)
    def test_a_connection_comes_back_as_it_was(
        self, stores: Stores, feed: str, wanted: Filter
    ) -> None:
        """With its filter, progress, runner and encoding."""
        assert unset(*FILTERS) == []
        opened = Connection(
            f"{feed}=",
            NOW,
            State.CATCHING_UP,
            feed,
            wanted,
            progress='{"page":1}',
            since=9,
            runner="runner",
            runner_expires_ms=NOW,
            encoding="gzip",
            version=4,
            lane=2,
            options=EVERY_OPTION,
        )
        assert stores.connections.get(opened.id) is None
        stores.connections.open(opened)
        assert stores.connections.get(opened.id) == opened

    def test_update_needs_the_version(self, stores: Stores, feed: str) -> None:
        """The second of two updates of one version is refused and writes nothing."""
        old = connection(feed)
        stores.connections.open(old)
        assert stores.connections.update(old, replace(old, state=State.CATCHING_UP))
        assert not stores.connections.update(old, replace(old, state=State.LIVE))
        stored = stores.connections.get(old.id)
        assert stored == replace(old, state=State.CATCHING_UP, version=1)

    def test_an_unknown_connection_cannot_be_updated(self, stores: Stores, feed: str) -> None:
        """It was removed: nothing is created."""
        old = connection(feed)
        assert not stores.connections.update(old, replace(old, state=State.LIVE))
        assert stores.connections.get(old.id) is None

    @pytest.mark.parametrize("wanted", FILTERS)
    def test_remove_forgets_everything(self, stores: Stores, feed: str, wanted: Filter) -> None:
        """The connection, its change and its subscription; those of others stay."""
        mine, other = connection(feed, "a", wanted), connection(feed, "b", wanted)
        for each in (mine, other):
            stores.connections.open(each)
            stores.inbox.post(feed, Change(each.id, True, wanted, 1, "t"))
            stores.subscriptions.add(feed, Subscription(each.id, wanted, 1))
        stores.connections.remove(mine.id)
        stores.connections.remove(mine.id)  # again: nothing happens
        assert stores.connections.get(mine.id) is None
        assert stores.connections.get(other.id) == other
        assert [change.connection_id for change in stores.inbox.list(feed)] == [other.id]
        left = [each.connection_id for each in stores.subscriptions.all(feed)]
        assert left == ([other.id] if wanted.keys() else [])

    def test_remove_ends_the_subscription_of_a_change(self, stores: Stores, feed: str) -> None:
        """A change may name another filter than the connection has by now."""
        leaving = Filter(types=frozenset({"video"}))
        mine = connection(feed)
        stores.connections.open(mine)
        stores.subscriptions.add(feed, Subscription(mine.id, leaving, 1))
        stores.inbox.post(feed, Change(mine.id, False, leaving, 1, "t"))
        stores.connections.remove(mine.id)
        assert stores.subscriptions.all(feed) == []

    def test_remove_clears_the_lane_of_the_connection(self, stores: Stores, feed: str) -> None:
        """Its change and its subscription are filed under the lane; others' are not touched."""
        mine, lane = replace(connection(feed, "a"), lane=3), storage_key(feed, 3)
        stores.connections.open(mine)
        for where in (lane, feed):
            stores.inbox.post(where, Change(mine.id, True, EVERYTHING, 1, "t"))
            stores.subscriptions.add(where, Subscription(mine.id, EVERYTHING, 1))
        stores.connections.remove(mine.id)
        assert (stores.inbox.list(lane), stores.subscriptions.all(lane)) == ([], [])
        assert len(stores.inbox.list(feed)) == len(stores.subscriptions.all(feed)) == 1

    def test_the_roster_names_connections_only(self, stores: Stores, feed: str) -> None:
        """All that are open, without their changes and subscriptions."""
        mine = [connection(feed, "a"), connection(feed, "b")]
        for each in mine:
            stores.connections.open(each)
            stores.inbox.post(feed, Change(each.id, True, EVERYTHING, 1, "t"))
            stores.subscriptions.add(feed, Subscription(each.id, EVERYTHING, 1))
        found = [each for each in everybody(stores.connections) if each.feed == feed]
        assert sorted(found, key=attrgetter("id")) == mine

    def test_the_roster_goes_on_behind_a_place(self, stores: Stores, feed: str) -> None:
        """No page reads more than allowed, all of them name each once; one may be empty."""
        mine = [connection(feed, name) for name in "abcde"]
        for each in mine:
            stores.connections.open(each)
            stores.subscriptions.add(feed, Subscription(each.id, EVERYTHING, 1))
        found = list(pages(stores.connections, limit=2))
        named = [each for page in found for each in page.connections if each.feed == feed]
        assert sorted(named, key=attrgetter("id")) == mine
        assert max(len(page.connections) for page in found) <= 2
        assert len(found) >= 3

    def test_the_roster_goes_on_though_the_last_one_went(self, stores: Stores, feed: str) -> None:
        """After a place of a removed connection, with every connection not yet named."""
        for name in "abcde":
            stores.connections.open(connection(feed, name))
        first = stores.connections.page("", 2)
        for each in first.connections:
            stores.connections.remove(each.id)
        others = {each.id for each in everybody(stores.connections)}
        rest = {
            each.id
            for page in pages(stores.connections, limit=100, place=first.resume_at)
            for each in page.connections
        }
        assert rest == others

    def test_a_round_is_kept(self, stores: Stores, feed: str) -> None:
        """With its place and its counts; missing at first."""
        stores.connections.keep(Round())
        assert stores.connections.round() == Round()
        place = ""
        for name in "ab":
            stores.connections.open(connection(feed, name))
            place = place or stores.connections.page("", 1).resume_at
        for round_ in (Round(place, {feed: 7}, {"other": 1}), Round(previous={feed: 7}), Round()):
            stores.connections.keep(round_)
            assert stores.connections.round() == round_


@NOT_ON_SQLITE
class TestInbox:
    @pytest.mark.parametrize("wanted", FILTERS)
    def test_a_change_comes_back_as_it_was(self, stores: Stores, feed: str, wanted: Filter) -> None:
        """In its feed's list only."""
        change = Change("c1=", True, wanted, 7, "token")
        stores.inbox.post(feed, change)
        assert stores.inbox.list(feed) == [change]
        assert stores.inbox.list(f"{feed}-other") == []

    def test_a_later_change_replaces_the_earlier(self, stores: Stores, feed: str) -> None:
        """One change for each connection; done with the earlier one does not touch it."""
        first = Change("c1", True, EVERYTHING, 7, "first")
        second = Change("c1", False, EVERYTHING, 8, "second")
        stores.inbox.post(feed, first)
        stores.inbox.post(feed, second)
        stores.inbox.done(feed, first)
        assert stores.inbox.list(feed) == [second]
        stores.inbox.done(feed, second)
        stores.inbox.done(feed, second)
        assert stores.inbox.list(feed) == []

    def test_a_move_stands_beside_other_changes(self, stores: Stores, feed: str) -> None:
        """It replaces none, none replaces it, and nothing but `done` takes it away."""
        mine = connection(feed)
        moves = Change(mine.id, False, EVERYTHING, 0, "moves", moves=True)
        joins = Change(mine.id, True, EVERYTHING, 7, "joins")
        stores.connections.open(mine)
        for change in (joins, moves):
            stores.inbox.post(feed, change)
        assert sorted(stores.inbox.list(feed), key=attrgetter("token")) == [joins, moves]
        stores.inbox.done(feed, joins)
        stores.connections.remove(mine.id)
        assert stores.inbox.list(feed) == [moves]
        stores.inbox.done(feed, moves)
        assert stores.inbox.list(feed) == []

    def test_changes_of_several_connections(self, stores: Stores, feed: str) -> None:
        """All are listed; done removes one."""
        changes = [Change(f"c{number}", True, EVERYTHING, 1, "t") for number in range(3)]
        for change in changes:
            stores.inbox.post(feed, change)
        stores.inbox.done(feed, changes[1])
        assert stores.inbox.list(feed) == [changes[0], changes[2]]


@NOT_ON_SQLITE
class TestSubscriptions:
    def test_a_subscription_is_found_under_each_of_its_keys(
        self, stores: Stores, feed: str
    ) -> None:
        """Filed under its parents if it has any, and not under its types."""
        wanted = Filter(types=frozenset({"video"}), parents=frozenset({"user/x1", "user/x2"}))
        subscription = Subscription("c1=", wanted, 7, encoding="gzip", options=EVERY_OPTION)
        stores.subscriptions.add(feed, subscription)
        for parent in ("user/x1", "user/x2"):
            assert stores.subscriptions.find(feed, parent_key(parent)) == [subscription]
        assert stores.subscriptions.find(feed, type_key("video")) == []
        assert stores.subscriptions.find(f"{feed}-other", parent_key("user/x1")) == []
        assert stores.subscriptions.all(feed) == [subscription]

    def test_a_key_is_not_its_beginning(self, stores: Stores, feed: str) -> None:
        """`a`, `ab`, `a/`, `a/b` are four keys, and so is one that ends like an id."""
        for number, parent in enumerate(("a", "ab", "a/", "a/b", "a#", "a c0")):
            subscription = Subscription(f"c{number}", Filter(parents=frozenset({parent})), 1)
            stores.subscriptions.add(feed, subscription)
        for number, parent in enumerate(("a", "ab", "a/", "a/b", "a#", "a c0")):
            found = stores.subscriptions.find(feed, parent_key(parent))
            assert [each.connection_id for each in found] == [f"c{number}"]
        assert stores.subscriptions.find(feed, parent_key("")) == []

    def test_adding_again_replaces(self, stores: Stores, feed: str) -> None:
        """A connection has one subscription under a key."""
        for since in (1, 9):
            stores.subscriptions.add(feed, Subscription("c1", EVERYTHING, since))
        assert stores.subscriptions.find(feed, "*") == [Subscription("c1", EVERYTHING, 9)]

    def test_remove_takes_out_all_keys(self, stores: Stores, feed: str) -> None:
        """Remove keys of this connection only; twice is fine."""
        wanted = Filter(parents=frozenset(f"user/{number}" for number in range(10)))
        mine, other = Subscription("c1", wanted, 1), Subscription("c2", wanted, 1)
        stores.subscriptions.add(feed, mine)
        stores.subscriptions.add(feed, other)
        stores.subscriptions.remove(feed, mine)
        stores.subscriptions.remove(feed, mine)
        assert stores.subscriptions.find(feed, parent_key("user/3")) == [other]
        assert stores.subscriptions.all(feed) == [other]

    def test_few_are_read_at_once(self, stores: Stores, feed: str) -> None:
        """All of them or none: one with two keys is filed twice."""
        twice = Subscription("c1", Filter(parents=frozenset({"user/1", "user/2"})), 1)
        stores.subscriptions.add(feed, twice)
        stores.subscriptions.add(feed, Subscription("c2", EVERYTHING, 3))
        assert stores.subscriptions.all_if_at_most(feed, 2) is None
        for at_most in (3, 100):
            assert stores.subscriptions.all_if_at_most(feed, at_most) == stores.subscriptions.all(
                feed
            )
        assert stores.subscriptions.all_if_at_most(f"{feed}-other", 0) == []
        assert stores.subscriptions.some(feed, 3) == stores.subscriptions.all(feed)
        assert len(stores.subscriptions.some(feed, 1)) == 1
        assert stores.subscriptions.some(f"{feed}-other", 1) == []

    def test_strings_no_store_takes_are_survived(self, stores: Stores, feed: str) -> None:
        """A client may filter on a lone surrogate, which no operation ever holds."""
        odd = Subscription("c1", Filter(types=frozenset({"\ud800"})), 1)
        stores.subscriptions.add(feed, odd)
        assert stores.subscriptions.all(feed) == [odd]
        stores.subscriptions.remove(feed, odd)
        assert stores.subscriptions.all(feed) == []


VM, NET = Kind("vm", ("nic", "alias")), Kind("ä/net", ())
ENTERED_MS = 4_102_444_700_123


def listener(feed: str, *kinds: Kind, instance: str = "i€") -> Listener:
    return Listener(2, feed, instance, '"tcns"', kinds)


@NOT_ON_SQLITE
class TestRegistry:
    def test_an_entry_for_each_resource(self, stores: Stores, feed: str) -> None:
        """In its feed alone, by instance and resource, whole; without resources, none."""
        mine = listener(feed, VM, NET)
        assert stores.registry.enter(feed, "c1=", mine) == []
        assert stores.registry.enter(feed, "c2=", listener(feed, VM, instance="")) == []
        assert stores.registry.enter(feed, "c3=", listener(feed)) == []
        assert stores.registry.registered(feed) == [
            Registered("c2=", "", '"tcns"', VM),
            Registered("c1=", "i€", '"tcns"', VM),
            Registered("c1=", "i€", '"tcns"', NET),
        ]
        assert stores.registry.registered(f"{feed}-other") == []

    def test_the_last_of_an_instance_stands(self, stores: Stores, feed: str) -> None:
        """It gets the replaced one; a late removal of that one changes nothing."""
        first, second = listener(feed, VM, NET), listener(feed, VM)
        stores.registry.enter(feed, "c1", first)
        assert stores.registry.enter(feed, "c1", first) == []
        assert stores.registry.enter(feed, "c2", second) == ["c1"]
        stores.registry.leave(feed, "c1", first)
        assert stores.registry.registered(feed) == [Registered("c2", "i€", '"tcns"', VM)]
        stores.registry.leave(feed, "c2", second)
        stores.registry.leave(feed, "c2", second)
        assert stores.registry.registered(feed) == []

    def test_a_connection_takes_its_entries_along(self, stores: Stores, feed: str) -> None:
        """When it is removed; it is read from the store with its registrations."""
        mine = listener(feed, VM, NET)
        opened = Connection(f"{feed}=", ENTERED_MS, State.JOINING, feed, mine.filter, listener=mine)
        stores.connections.open(opened)
        assert stores.connections.get(opened.id) == opened
        stores.registry.enter(feed, opened.id, mine)
        stores.connections.remove(opened.id)
        assert stores.registry.registered(feed) == []

    def test_a_listener_that_has_not_registered_is_kept(self, stores: Stores, feed: str) -> None:
        """Its connection says the version and the feed of its handshake."""
        opened = Connection(f"{feed}=", ENTERED_MS, listener=Listener(1, feed))
        stores.connections.open(opened)
        assert stores.connections.get(opened.id) == opened
        stores.connections.remove(opened.id)
        assert stores.connections.get(opened.id) is None


@NOT_ON_SQLITE
class TestOutbox:
    def test_messages_come_in_the_order_of_their_ids(self, stores: Stores, feed: str) -> None:
        """Whole, of their feed alone, until they are done; done twice is fine."""
        first, second = (
            OutboxMessage("1-a", "items", '{"ä":1}\n{}'),
            OutboxMessage("2-a", "operations", "{}"),
        )
        for message in (second, first):
            stores.outbox.leave(feed, message)
        stores.outbox.leave(f"{feed}-other", first)
        assert stores.outbox.pending(feed) == [first, second]
        stores.outbox.done(feed, first)
        stores.outbox.done(feed, first)
        assert stores.outbox.pending(feed) == [second]
        assert stores.outbox.pending(f"{feed}-other") == [first]

    def test_a_message_that_is_put_aside_waits_no_longer(self, stores: Stores, feed: str) -> None:
        """Again, after a crash, changes nothing."""
        message = OutboxMessage("1-a", "items", "{}")
        stores.outbox.leave(feed, message)
        for _ in range(2):
            stores.outbox.put_aside(feed, message, "unknown resource: disk")
        assert stores.outbox.pending(feed) == []
