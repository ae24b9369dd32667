"""The contract of the store of records: `RecordStore`."""

from __future__ import annotations

from tests.contract.stores import LATER_MS, Stores
from tidings.aws.effects import now_ms
from tidings.core.records import HOST_RECORDS, Kind, Write, expected_version

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
