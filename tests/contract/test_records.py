"""The contract of the store of records, and the typed views on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tests.contract.samples import (
    AT,
    BEGINS,
    ERASURE,
    ERASURE_2,
    KEY,
    KEY_2,
    PARKED,
    PROFILE,
    REMOVAL,
    STREAM,
    STREAM_2,
    consumer_of,
    feed_record,
)
from tests.contract.stores import LATER_MS, NOT_ON_A_STAGE, Stores, unset
from tidings.aws.effects import now_ms
from tidings.core import limits
from tidings.core.changeagent.documents import USERS, OperatorDocument
from tidings.core.consumers.consumer import Change, Consumer, Note
from tidings.core.consumers.position import COPY
from tidings.core.durable_streams.stream import Extent
from tidings.core.erasure.records import Phase
from tidings.core.feeds.records import TABLES_DROPPED, FeedRecord
from tidings.core.model.cursors import Place, Replication
from tidings.core.records import HOST_RECORDS, Kind, Write, expected_version
from tidings.core.settings.profiles import Profile

THING, PART = Kind("thing"), Kind("part")


DUE = Kind("due-thing", is_due=True)


FIELDS = {
    "version": 1,
    "text": "\u00e4\n",
    "number": 2**53,
    "flag": True,
    "list": ["a", 1, {"b": False}],
    "map": {"c": ["d"]},
    "none": "",
}


def put(name: str, version: int, **fields: object) -> Write:
    """Return the write of *fields* over *version*, as the next version."""
    return Write(THING, name, {**fields, "version": version + 1}, expected_version(version))


class TestRecords:
    def test_a_record_comes_back(self, stores: Stores, feed: str) -> None:
        """Every type of field, by feed, kind, name and owner."""
        assert stores.records.write(feed, [Write(THING, "a", FIELDS)])
        for eventual in (False, True):
            found = stores.records.get(feed, THING, "a", eventual=eventual)
            assert found is not None
            assert (found.name, found.fields) == ("a", FIELDS)
            assert stores.records.get(feed, THING, "b", eventual=eventual) is None
        assert stores.records.get(f"{feed}-other", THING, "a") is None
        assert stores.records.get(feed, PART, "a") is None
        assert stores.records.get(feed, THING, "a", "owner") is None
        assert stores.records.write(feed, [Write(THING, "", {"x": 1})])
        unnamed = stores.records.get(feed, THING)
        assert unnamed is not None
        assert (unnamed.name, unnamed.fields) == ("", {"x": 1})

    def test_what_a_write_does_not_name_stays(self, stores: Stores, feed: str) -> None:
        """A field of a newer release survives; a field that is None is removed."""
        stores.records.write(feed, [put("a", 0, known=1, gone="x", later=["y"])])
        assert stores.records.write(feed, [put("a", 1, known=2, gone=None)])
        found = stores.records.get(feed, THING, "a")
        assert found is not None
        assert found.fields == {"version": 2, "known": 2, "later": ["y"]}

    def test_the_second_of_two_writers_is_refused(self, stores: Stores, feed: str) -> None:
        """The first write of a record, a later one, and a deletion."""
        assert stores.records.write(feed, [put("a", 0, by="first")])
        for version in (0, 7):
            assert not stores.records.write(feed, [put("a", version, by="second")])
        gone = Write(THING, "a", None, expected_version(2))
        assert not stores.records.write(feed, [gone])
        assert stores.records.write(feed, [put("a", 1, by="first")])
        assert stores.records.write(feed, [gone])
        assert stores.records.get(feed, THING, "a") is None
        assert stores.records.write(feed, [Write(THING, "a", None)])

    def test_a_refused_condition_undoes_the_whole_write(self, stores: Stores, feed: str) -> None:
        """Wherever it is in the write; also a check without a write."""
        stores.records.write(feed, [put("a", 0, by="first")])
        part = Write(PART, "1", {"x": 1}, of="a")
        for refused in (put("a", 0), Write(THING, "a", {}, {"by": "second"})):
            for writes in ([part, refused], [refused, part]):
                assert not stores.records.write(feed, writes)
        assert stores.records.get(feed, PART, "1", "a") is None
        check = Write(THING, "a", {}, {"by": "first", "other": None})
        assert stores.records.write(feed, [check, part, put("b", 0)])
        assert stores.records.get(feed, PART, "1", "a") is not None
        assert stores.records.get(feed, THING, "b") is not None

    def test_records_are_listed_by_name(self, stores: Stores, feed: str) -> None:
        """The records of one owner are listed from any name, in both directions."""
        for name in ("b", "a", "c"):
            stores.records.write(feed, [Write(PART, name, {"x": name}, of="one")])
        stores.records.write(feed, [Write(PART, "d", {"x": "d"}, of="two")])
        stores.records.write(f"{feed}-other", [Write(PART, "e", {"x": "e"}, of="one")])

        def names(*, after: str = "", limit: int = 0, newest: bool = False) -> list[str]:
            found = stores.records.query(feed, PART, "one", after=after, limit=limit, newest=newest)
            return [each.name for each in found if each.fields == {"x": each.name}]

        assert names() == ["a", "b", "c"]
        assert names(after="a") == ["b", "c"]
        assert names(limit=2) == ["a", "b"]
        assert names(after="a", limit=1) == ["b"]
        assert names(limit=2, newest=True) == ["c", "b"]
        assert [*stores.records.query(feed, PART)] == []

    def test_an_expired_record_is_never_returned(self, stores: Stores, feed: str) -> None:
        """A new record takes its place, although it may still be stored."""
        past = now_ms() - 2_000
        for expires_ms, name in ((past, "old"), (LATER_MS, "new"), (0, "kept")):
            assert stores.records.write(feed, [Write(THING, name, {"x": 1}, {}, "", expires_ms)])
        assert stores.records.get(feed, THING, "old") is None
        assert stores.records.get(feed, THING, "old", eventual=True) is None
        assert [each.name for each in stores.records.query(feed, THING)] == ["kept", "new"]
        assert [each.name for each in stores.records.query(feed, THING, limit=1)] == ["kept"]
        old = Write(THING, "old", {"x": 2}, {"x": None}, "", LATER_MS)
        assert stores.records.write(feed, [old])
        found = stores.records.get(feed, THING, "old")
        assert found is not None
        assert found.fields == {"x": 2}
        assert stores.records.write(feed, [Write(THING, "new", {"x": 2})])  # without an expiry

    def test_records_of_the_host_have_no_feed(self, stores: Stores, feed: str) -> None:
        """They are in a partition of their own."""
        kind = Kind(f"{feed}-records")
        assert stores.records.write(HOST_RECORDS, [Write(kind, feed, {"x": 1})])
        assert [each.name for each in stores.records.query(HOST_RECORDS, kind)] == [feed]
        assert [*stores.records.query(feed, kind)] == []

    def test_a_change_of_some_kinds_makes_the_feed_due(self, stores: Stores, feed: str) -> None:
        """A writer can leave this out."""
        stores.records.write(feed, [Write(THING, "a", {"x": 1})])
        stores.records.write(feed, [Write(DUE, "a", {"x": 1})], mark=False)
        stores.records.write(f"{feed}-due", [Write(DUE, "a", {"x": 1})])
        due = {each.feed for each in stores.due.due(now_ms())}
        assert f"{feed}-due" in due

    def test_a_removed_feed_leaves_no_record(self, stores: Stores, feed: str) -> None:
        """Records of any kind and owner are removed; other feeds and the host keep theirs."""
        kept = f"{feed}-other", f"{feed}~2"
        for each in (feed, *kept):
            stores.records.write(each, [Write(THING, "a", FIELDS), Write(Kind(feed), "", FIELDS)])
            stores.records.write(each, [Write(PART, feed, FIELDS, of=feed)])
        stores.records.write(HOST_RECORDS, [Write(THING, feed, FIELDS)])
        stores.remove(feed)

        def left(feed: str, owner: str) -> list[str]:
            kinds = [*stores.records.query(feed, THING), *stores.records.query(feed, PART, owner)]
            return [each.name for each in kinds]

        assert left(feed, feed) == []
        assert stores.records.get(feed, Kind(feed)) is None
        for each in kept:
            assert left(each, feed) == ["a", feed]
        assert stores.records.get(HOST_RECORDS, THING, feed) is not None


class View(NamedTuple):
    """A record of one kind with every field, another one, and how they are stored and read."""

    full: Callable[[str], Any]
    plain: Callable[[str], Any]
    save: Callable[[Stores, str, Any], bool]
    read: Callable[[Stores, str], Any]
    missing: Any = None


VIEWS = {
    "profile": View(
        lambda feed: PROFILE,
        lambda feed: Profile(),
        lambda stores, feed, profile: stores.profiles.save(feed, profile),
        lambda stores, feed: stores.profiles.profile(feed),
        Profile(),
    ),
    "document": View(
        lambda feed: OperatorDocument("a:b\n\u00e4"),
        lambda feed: OperatorDocument(),
        lambda stores, feed, text: stores.documents.write(feed, USERS, text),
        lambda stores, feed: stores.documents.operator_document(feed, USERS),
        OperatorDocument(),
    ),
    "key": View(
        lambda feed: KEY,
        lambda feed: replace(KEY_2, id=KEY.id),
        lambda stores, feed, key: stores.keys.save(feed, key),
        lambda stores, feed: stores.keys.key(feed, KEY.id),
    ),
    "consumer": View(
        consumer_of,
        lambda feed: Consumer(feed, "index"),
        lambda stores, feed, consumer: stores.consumers.write(
            feed, "index", consumer.version, Change(consumer)
        ),
        lambda stores, feed: stores.consumers.consumer(feed, "index"),
    ),
    "erasure": View(
        lambda feed: ERASURE,
        lambda feed: replace(ERASURE_2, id=ERASURE.id, phase=Phase.DONE, object_id=""),
        lambda stores, feed, erasure: stores.erasures.save(feed, erasure),
        lambda stores, feed: stores.erasures.erasure(feed, ERASURE.id),
    ),
    "feed": View(
        feed_record,
        FeedRecord,
        lambda stores, feed, record: stores.feed_store.save(record),
        lambda stores, feed: stores.feed_store.record(feed),
    ),
}


@pytest.mark.parametrize("kind", VIEWS)
class TestViews:
    def test_a_record_comes_back_whole(self, stores: Stores, feed: str, kind: str) -> None:
        """Every field, under its feed alone, as the next version; a save replaces the record."""
        view = VIEWS[kind]
        full, plain = view.full(feed), view.plain(feed)
        assert unset(full) == ["version"]
        assert view.read(stores, feed) == view.missing
        assert view.save(stores, feed, full)
        assert view.read(stores, feed) == replace(full, version=1)
        assert view.read(stores, f"{feed}-other") == view.missing
        assert view.save(stores, feed, replace(plain, version=1))
        assert view.read(stores, feed) == replace(plain, version=2)

    def test_the_second_of_two_writers_is_refused(
        self, stores: Stores, feed: str, kind: str
    ) -> None:
        """The first write of a record, and each later one."""
        view = VIEWS[kind]
        full, plain = view.full(feed), view.plain(feed)
        assert not view.save(stores, feed, replace(full, version=1))
        assert view.save(stores, feed, full)
        for version in (0, 7):
            assert not view.save(stores, feed, replace(plain, version=version))
        assert view.read(stores, feed) == replace(full, version=1)


class TestConsumers:
    def test_D_nothing_acknowledged_is_a_state_of_its_own(self, stores: Stores, feed: str) -> None:
        """Neither a number nor the beginning of a copy, nor a place in one."""
        within = Replication(0, 5, 3, tombstones=False)
        for name, position in (("none", None), ("copy", COPY), ("within", within)):
            wanted = Consumer(feed, name, position=position)
            assert stores.consumers.write(feed, name, 0, Change(wanted))
            found = stores.consumers.consumer(feed, name)
            assert found is not None
            assert found.position == position

    def test_what_is_parked_is_written_with_its_consumer(self, stores: Stores, feed: str) -> None:
        """And dropped with it; the note stays when the consumer is removed."""
        note = Note(AT, "ann", "park", "a test", PARKED.id)
        later = Note(AT + 1, "ann", "delete", "done with")
        assert stores.consumers.write(feed, "index", 0, Change(consumer_of(feed), note, PARKED))
        assert list(stores.consumers.parked(feed, "index")) == [PARKED]
        assert list(stores.consumers.parked(feed, "inde")) == []
        assert stores.consumers.write(feed, "index", 1, Change(None, later, drop=(PARKED.id,)))
        assert stores.consumers.consumer(feed, "index") is None
        assert list(stores.consumers.parked(feed, "index")) == []
        assert list(stores.consumers.notes(feed, "index")) == [later, note]

    def test_a_consumer_is_removed_without_a_word(self, stores: Stores, feed: str) -> None:
        """Only where its version is still there."""
        assert stores.consumers.write(feed, "index", 0, Change(consumer_of(feed)))
        assert not stores.consumers.write(feed, "index", 2, Change(None))
        assert stores.consumers.write(feed, "index", 1, Change(None))
        assert stores.consumers.consumer(feed, "index") is None

    def test_as_much_as_may_be_parked_goes_at_once(self, stores: Stores, feed: str) -> None:
        """A consumer is removed with everything of it, in one write."""
        parked = [replace(PARKED, id=f"{number:024x}") for number in range(limits.PARKED_MAX)]
        for version, each in enumerate(parked):
            assert stores.consumers.write(
                feed, "index", version, Change(consumer_of(feed), park=each)
            )
        assert list(stores.consumers.parked(feed, "index")) == parked
        note = Note(AT, "ann", "delete", "a test")
        names = tuple(each.id for each in parked)
        assert stores.consumers.write(feed, "index", len(parked), Change(None, note, drop=names))
        assert list(stores.consumers.parked(feed, "index")) == []


class TestKeys:
    def test_keys_are_listed_by_their_ids(self, stores: Stores, feed: str) -> None:
        """The keys of this feed alone."""
        for key in (KEY, KEY_2):
            assert stores.keys.save(feed, key)
        assert stores.keys.save(f"{feed}-other", KEY)
        assert [key.id for key in stores.keys.keys(feed)] == [KEY_2.id, KEY.id]


class TestErasures:
    def test_records_are_listed_by_their_pages(self, stores: Stores, feed: str) -> None:
        """Not by the times in their ids; the records of this feed alone."""
        assert list(stores.erasures.erasures(feed)) == []
        for erasure in (ERASURE, ERASURE_2):
            assert stores.erasures.save(feed, erasure)
        assert stores.erasures.save(f"{feed}-other", ERASURE)
        assert [each.id for each in stores.erasures.erasures(feed)] == [ERASURE_2.id, ERASURE.id]
        assert [each.id for each in stores.erasures.erasures(feed, ERASURE_2.id)] == [ERASURE.id]
        assert [each.id for each in stores.erasures.erasures(feed, limit=1)] == [ERASURE_2.id]

    def test_records_that_are_done_are_only_in_the_list(self, stores: Stores, feed: str) -> None:
        """A job does not read them again and again."""
        for erasure in (ERASURE, ERASURE_2):
            assert stores.erasures.save(feed, erasure)
        done = replace(ERASURE_2, phase=Phase.DONE, version=1)
        assert stores.erasures.save(feed, done)
        assert [each.id for each in stores.erasures.unfinished(feed)] == [ERASURE.id]
        assert list(stores.erasures.unfinished(f"{feed}-other")) == []
        assert list(stores.erasures.erasures(feed)) == [
            replace(done, version=2),
            replace(ERASURE, version=1),
        ]
        assert stores.erasures.erasure(feed, ERASURE_2.id) == replace(done, version=2)
        assert not stores.erasures.save(feed, ERASURE_2)


class TestFeeds:
    def test_records_are_listed_by_name_in_parts(self, stores: Stores, feed: str) -> None:
        names = [f"{feed}-{each:03}" for each in range(25)]
        for name in reversed(names):
            assert stores.feed_store.save(feed_record(name))
        found: list[str] = []
        after = f"{feed}-"
        while part := stores.feed_store.records(after, 10):
            assert len(part) <= 10
            found += [each.name for each in part]
            after = found[-1]
        assert [name for name in found if name in names] == names
        rest = stores.feed_store.records(names[-1], 1)  # of other tests, which share DynamoDB Local
        assert not {each.name for each in rest} & {*names}

    def test_unfinished_removals_are_found(self, stores: Stores, feed: str) -> None:
        """A record is found until its last removal is done, and with all of its fields."""
        live = FeedRecord(f"{feed}-live")
        assert stores.feed_store.save(live)
        assert stores.feed_store.save(feed_record(feed))
        stored = replace(feed_record(feed), version=1)
        assert stored in stores.feed_store.unfinished()
        assert live.name not in [each.name for each in stores.feed_store.unfinished()]
        dropped = stored.with_removal(replace(REMOVAL, tables=TABLES_DROPPED))
        assert stores.feed_store.save(dropped)
        assert feed not in [each.name for each in stores.feed_store.unfinished()]


PAGES = [Place(page, slot, 1_700_000_000 + page) for page, slot in ((4, 2), (9, 0), (10, 5))]


EXTENTS = [Extent(before, last) for before, last in zip([BEGINS, *PAGES], PAGES, strict=False)]


@NOT_ON_A_STAGE
class TestStreams:
    def test_a_stream_comes_back_as_it_was(self, stores: Stores, feed: str) -> None:
        """All of its fields; missing before, and under that name in another feed."""
        assert unset(STREAM) == []
        assert stores.streams.stream(feed, STREAM.name) is None
        for stream in (STREAM_2, STREAM):
            stores.streams.write(feed, stream)

        assert stores.streams.stream(feed, STREAM_2.name) == STREAM_2
        assert stores.streams.stream(feed, STREAM.name) == STREAM
        assert stores.streams.stream(f"{feed}-other", STREAM.name) is None

    def test_written_again_it_is_replaced(self, stores: Stores, feed: str) -> None:
        """Whatever was there, and its pages stay."""
        stores.streams.write(feed, STREAM_2, EXTENTS[0])
        changed = replace(STREAM_2, tail=EXTENTS[0].last, closed=True)
        stores.streams.write(feed, changed)

        assert stores.streams.stream(feed, STREAM_2.name) == changed
        assert stores.streams.extents(feed, STREAM_2.name, BEGINS, 9) == EXTENTS[:1]

    def test_pages_with_messages_behind_a_place_are_told(self, stores: Stores, feed: str) -> None:
        """In order, including the one around the place, as many as requested."""
        for extent in EXTENTS:
            stores.streams.write(feed, replace(STREAM_2, tail=extent.last), extent)

        def told(page: int, slot: int, limit: int = 9) -> list[Extent]:
            return list(stores.streams.extents(feed, STREAM_2.name, Place(page, slot, 0), limit))

        assert told(3, 0x7FFFFF) == told(0, 0) == told(4, 1) == EXTENTS
        assert told(4, 2) == told(8, 5) == EXTENTS[1:]
        assert told(0, 0, limit=2) == EXTENTS[:2]
        assert told(10, 5) == told(11, 0) == []

    def test_a_stream_that_is_removed_leaves_nothing(self, stores: Stores, feed: str) -> None:
        """Only that stream is removed; a repetition is fine."""
        other = replace(STREAM_2, name="other")
        for stream in (STREAM_2, other):
            stores.streams.write(feed, stream, EXTENTS[0])
        for _ in range(2):
            stores.streams.remove(feed, STREAM_2.name)

        assert stores.streams.stream(feed, STREAM_2.name) is None
        assert stores.streams.extents(feed, STREAM_2.name, BEGINS, 9) == []
        assert stores.streams.extents(feed, other.name, BEGINS, 9) == EXTENTS[:1]
