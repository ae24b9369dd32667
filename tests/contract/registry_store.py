"""What every store of registrations keeps to: `Registry`."""

from __future__ import annotations

from tests.contract.stores import NOT_ON_SQLITE, Stores
from tidings.core.triton.registration import Kind, Listener, Registered
from tidings.core.websocket.connections import Connection
from tidings.core.websocket.session import State

VM, NET = Kind("vm", ("nic", "alias")), Kind("ä/net", ())
NOW = 4_102_444_700_123


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
        opened = Connection(f"{feed}=", NOW, State.JOINING, feed, mine.filter, listener=mine)
        stores.connections.open(opened)
        assert stores.connections.get(opened.id) == opened
        stores.registry.enter(feed, opened.id, mine)
        stores.connections.remove(opened.id)
        assert stores.registry.registered(feed) == []

    def test_a_listener_that_has_not_registered_is_kept(self, stores: Stores, feed: str) -> None:
        """Its connection says the version and the feed of its handshake."""
        opened = Connection(f"{feed}=", NOW, listener=Listener(1, feed))
        stores.connections.open(opened)
        assert stores.connections.get(opened.id) == opened
        stores.connections.remove(opened.id)
        assert stores.connections.get(opened.id) is None
