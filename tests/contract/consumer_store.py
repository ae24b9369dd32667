"""What every store of named consumers keeps to: `ConsumerStore`."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.stores import Stores, unset
from tidings.core import limits
from tidings.core.consumers.consumer import Change, Consumer, Failure, Note, Parked
from tidings.core.consumers.position import COPY, Span
from tidings.core.model.cursors import Place, Replication
from tidings.core.model.filters import FIELDS, of

AT = 4_102_444_800_000  # in 2100: notes expire
PLACE = Place(7, 2, AT // 1000)
PARKED = Parked(PLACE.encode(), '{"event":"update","type":"\u00e4"}', "too long", AT, 3)


def full(feed: str) -> Consumer:
    return Consumer(
        feed,
        "index",
        of(dict.fromkeys(FIELDS, ("video",)) | {"parents": ()}),
        position=PLACE,
        acked=(Span(8, 0, 3), Span(9, 1, 1)),
        sent=Place(9, 4, 5),
        single=Place(9, 3, 5),
        retries=(PLACE.encode(),),
        parked=1,
        failure=Failure("", "it broke", AT, 2),
        paused=True,
        owner="host",
        fence=4,
        until_ms=AT,
        written=6,
    )


class TestConsumers:
    def test_a_consumer_comes_back(self, stores: Stores, feed: str) -> None:
        """Every field, with the next version; and one with nothing set."""
        assert unset(full(feed)) == ["version"]
        assert stores.consumers.consumer(feed, "index") is None
        assert stores.consumers.write(feed, "index", 0, Change(full(feed)))
        assert stores.consumers.write(feed, "a", 0, Change(Consumer(feed, "a")))

        index, plain = replace(full(feed), version=1), Consumer(feed, "a", version=1)
        assert stores.consumers.consumer(feed, "index") == index
        assert list(stores.consumers.consumers(feed)) == [plain, index]
        assert list(stores.consumers.consumers(f"{feed}-other")) == []

    def test_D_nothing_acknowledged_is_a_state_of_its_own(self, stores: Stores, feed: str) -> None:
        """Neither a number nor the beginning of a copy, nor a place in one."""
        within = Replication(0, 5, 3, tombstones=False)
        for name, position in (("none", None), ("copy", COPY), ("within", within)):
            wanted = Consumer(feed, name, position=position)
            assert stores.consumers.write(feed, name, 0, Change(wanted))
            found = stores.consumers.consumer(feed, name)
            assert found is not None
            assert found.position == position

    def test_two_who_write_at_once_cannot_undo_each_other(self, stores: Stores, feed: str) -> None:
        """The second one finds another version, and nothing of its change is written."""
        fresh = Consumer(feed, "index")
        note = Note(AT, "ann", "mark", "a test")
        assert stores.consumers.write(feed, "index", 0, Change(fresh))
        assert not stores.consumers.write(feed, "index", 0, Change(fresh))
        assert not stores.consumers.write(feed, "index", 7, Change(full(feed), note, PARKED))
        assert not stores.consumers.write(feed, "other", 1, Change(fresh))
        assert stores.consumers.consumer(feed, "index") == replace(fresh, version=1)
        assert list(stores.consumers.parked(feed, "index")) == []
        assert list(stores.consumers.notes(feed, "index")) == []

    def test_what_is_parked_is_written_with_its_consumer(self, stores: Stores, feed: str) -> None:
        """And dropped with it; the note stays when the consumer is removed."""
        note = Note(AT, "ann", "park", "a test", PARKED.id)
        later = Note(AT + 1, "ann", "delete", "done with")
        assert stores.consumers.write(feed, "index", 0, Change(full(feed), note, PARKED))
        assert list(stores.consumers.parked(feed, "index")) == [PARKED]
        assert list(stores.consumers.parked(feed, "inde")) == []
        assert stores.consumers.write(feed, "index", 1, Change(None, later, drop=(PARKED.id,)))
        assert stores.consumers.consumer(feed, "index") is None
        assert list(stores.consumers.parked(feed, "index")) == []
        assert list(stores.consumers.notes(feed, "index")) == [later, note]

    def test_a_consumer_is_removed_without_a_word(self, stores: Stores, feed: str) -> None:
        """Only where its version is still there."""
        assert stores.consumers.write(feed, "index", 0, Change(full(feed)))
        assert not stores.consumers.write(feed, "index", 2, Change(None))
        assert stores.consumers.write(feed, "index", 1, Change(None))
        assert stores.consumers.consumer(feed, "index") is None

    def test_as_much_as_may_be_parked_goes_at_once(self, stores: Stores, feed: str) -> None:
        """A consumer is removed with everything of it, in one write."""
        parked = [replace(PARKED, id=f"{number:024x}") for number in range(limits.PARKED_MAX)]
        for version, each in enumerate(parked):
            assert stores.consumers.write(feed, "index", version, Change(full(feed), park=each))
        assert list(stores.consumers.parked(feed, "index")) == parked
        note = Note(AT, "ann", "delete", "a test")
        names = tuple(each.id for each in parked)
        assert stores.consumers.write(feed, "index", len(parked), Change(None, note, drop=names))
        assert list(stores.consumers.parked(feed, "index")) == []
