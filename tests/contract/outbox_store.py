"""What every outbox keeps to: `Outbox`."""

from __future__ import annotations

from tests.contract.stores import NOT_ON_SQLITE, Stores
from tidings.core.ingest.outbox import OutboxMessage


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
