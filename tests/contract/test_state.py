"""The contracts of the state, of its sums, of tags and of removed parents."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tests.contract.stores import Stores, unset
from tidings.core import limits
from tidings.core.changeagent.tag_index import Summary
from tidings.core.state.removed_parents import RemovedBySlot, RemovedParents, encode
from tidings.core.state.rows import (
    ABSENT,
    NOTHING,
    Difference,
    Kind,
    Lines,
    Overwritten,
    Row,
    bucket_of,
)
from tidings.core.state.sums import Sums, note_of
from tidings.core.state.tombstones import Remembered

AT = 1_763_000_000_123
EXPIRES = 4_102_444_800_000  # in 2100: an engine deletes what has expired while a test looks
REMEMBERED = Remembered(691_200_000, 608_400_000, AT)
RAISED = Remembered(1_000_000_000_000, 691_200_000, 0)


def row(key: str, page: int = 1, line: str = '{"event":"update"}', expires_ms: int = 0) -> Row:
    return Row(key, page, slot=3, at_ms=AT, line=line, expires_ms=expires_ms)


def of_one_bucket(count: int) -> list[str]:
    """Keys that share a bucket, sorted."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for number in range(10_000):
        key = f"video/{number}"
        found[bucket_of(key)].append(key)
        if len(found[bucket_of(key)]) == count:
            return sorted(found[bucket_of(key)])
    raise AssertionError("unreachable: ten thousand keys in 64 buckets")


class TestState:
    def test_rows_come_back_as_they_were(self, stores: Stores, feed: str) -> None:
        """Position, time, line and expiry of any key survive."""
        rows = [row("video/ä€𝄞 #%2F"), row("video/x", expires_ms=EXPIRES)]
        stores.state.write(feed, rows)
        for each in rows:
            assert stores.state.read(feed, each.bucket) == [each]

    def test_the_last_write_stands(self, stores: Stores, feed: str) -> None:
        """A row replaces the previous one completely, with all fields."""
        stores.state.write(feed, [row("video/x", 1, expires_ms=EXPIRES)])
        stores.state.write(feed, [row("video/x", 2)])
        assert stores.state.read(feed, bucket_of("video/x")) == [row("video/x", 2)]

    def test_what_is_older_changes_nothing(self, stores: Stores, feed: str) -> None:
        """By page, then by slot as a number; returns the row that each one replaced."""
        stands = [row("video/x", 10)._replace(slot=10), row("video/y", 10)._replace(slot=10)]
        assert stores.state.write(feed, stands) == [NOTHING, NOTHING]
        for page, slot in ((9, 11), (10, 9), (2, 1000)):
            late = [each._replace(page=page, slot=slot, line="{}") for each in stands]
            told = stores.state.write(feed, [*late, row(f"video/{page}-{slot}")])
            assert told == [None, None, NOTHING]
        assert stores.state.write(feed, stands) == [None, None]  # in place of unknown rows
        assert sorted(stores.state.find(feed, ["video/x", "video/y"]), key=str) == stands
        newer = [stands[0]._replace(slot=11), stands[1]._replace(page=11, slot=0)]
        assert stores.state.write(feed, newer) == [Overwritten(10, 10, lives=True)] * 2
        assert sorted(stores.state.find(feed, ["video/x", "video/y"]), key=str) == newer

    def test_a_row_that_has_come_again_changes_nothing(self, stores: Stores, feed: str) -> None:
        """Nor does a tombstone that was written with another retention: the first one stays."""
        stores.state.write(feed, [row("video/x", expires_ms=EXPIRES)])
        again = [row("video/x", expires_ms=EXPIRES + 1000)]
        assert stores.state.write(feed, again) == [None]
        assert stores.state.find(feed, ["video/x"]) == [row("video/x", expires_ms=EXPIRES)]

    def test_a_tombstone_that_is_replaced_is_told_as_one(self, stores: Stores, feed: str) -> None:
        """Its object did not live."""
        stores.state.write(feed, [row("video/x", 1, expires_ms=EXPIRES)])
        assert stores.state.write(feed, [row("video/x", 2)]) == [Overwritten(1, 3, lives=False)]

    def test_an_object_whose_row_went_has_none(self, stores: Stores, feed: str) -> None:
        """A further write finds no previous row."""
        for page in (1, 2):
            stores.state.write(feed, [row("video/x", page)])
        stores.state.repair(feed, [swap(row("video/x", 2), None)])
        assert stores.state.write(feed, [row("video/x", 3)]) == [NOTHING]

    def test_what_replaces_a_row_without_a_place_is_not_known(
        self, stores: Stores, feed: str
    ) -> None:
        """The row was tampered with: it is replaced, and the object before it is unknown."""
        broken = row("video/x")._replace(page=ABSENT)
        stores.state.repair(feed, [swap(None, broken)])
        assert stores.state.write(feed, [row("video/x", 2)]) == [None]
        assert stores.state.find(feed, ["video/x"]) == [row("video/x", 2)]

    def test_many_rows_are_all_written(self, stores: Stores, feed: str) -> None:
        """More than a batch, spread over the buckets: each is found in its own, once."""
        rows = [row(f"video/{number}") for number in range(333)]
        stores.state.write(feed, rows)
        found = [
            each for bucket in range(limits.BUCKETS) for each in stores.state.read(feed, bucket)
        ]
        assert sorted(each.key for each in found) == sorted(each.key for each in rows)

    def test_nothing_to_write_is_fine(self, stores: Stores, feed: str) -> None:
        """An empty write writes nothing."""
        stores.state.write(feed, [])
        assert stores.state.read(feed, 0) == []

    def test_read_goes_on_behind_a_key(self, stores: Stores, feed: str) -> None:
        """Rows come in the order of their keys; the key given is not repeated."""
        keys = of_one_bucket(4)
        stores.state.write(feed, [row(key) for key in reversed(keys)])
        bucket = bucket_of(keys[0])
        assert [each.key for each in stores.state.read(feed, bucket)] == keys
        assert [each.key for each in stores.state.read(feed, bucket, keys[1])] == keys[2:]
        assert stores.state.read(feed, bucket, keys[3]) == []

    def test_read_is_bounded_by_bytes(self, stores: Stores, feed: str) -> None:
        """Rows of 64 KB come in several reads; none is lost between them."""
        keys = of_one_bucket(20)
        line = "x" * (limits.OPERATION_BYTES_MAX - 100)
        stores.state.write(feed, [row(key, line=line) for key in keys])
        bucket, seen = bucket_of(keys[0]), list[str]()
        reads = 0
        while found := stores.state.read(feed, bucket, seen[-1] if seen else None):
            seen += [each.key for each in found]
            reads += 1
        assert seen == keys
        assert reads > 1

    def test_lines_are_those_of_the_rows(self, stores: Stores, feed: str) -> None:
        """In the same order and from the same place; the read that reaches the end says so."""
        keys = of_one_bucket(4)
        rows = [row(key, page, line=f"line of {key}") for page, key in enumerate(keys, 1)]
        stores.state.write(feed, rows)
        bucket, lines = bucket_of(keys[0]), [f"line of {key}" for key in keys]
        assert stores.state.lines(feed, bucket) == Lines(lines, [1, 2, 3, 4], None)
        assert stores.state.lines(feed, bucket, keys[2]).lines == [f"line of {keys[3]}"]
        assert stores.state.lines(feed, bucket, keys[3]) == Lines([], [], None)

    def test_lines_are_bounded_by_bytes(self, stores: Stores, feed: str) -> None:
        """A read that was cut names the place at which the next one continues."""
        keys = of_one_bucket(20)
        stores.state.write(feed, [row(key, line=key + "x" * 65_000) for key in keys])
        found = stores.state.lines(feed, bucket_of(keys[0]))
        seen, reads = list(found.lines), 1
        while found.after is not None:
            found = stores.state.lines(feed, bucket_of(keys[0]), found.after)
            seen, reads = seen + found.lines, reads + 1
        assert [line.rstrip("x") for line in seen] == keys
        assert reads > 1

    def test_rows_are_found_by_their_keys(self, stores: Stores, feed: str) -> None:
        """Unchanged, from any bucket and in several batches; objects without a row are omitted."""
        rows = [row(f"video/{number}", expires_ms=EXPIRES * (number % 2)) for number in range(123)]
        stores.state.write(feed, rows)
        keys = [each.key for each in rows]
        found = stores.state.find(feed, [*keys, "video/none"])
        assert sorted(found, key=lambda each: keys.index(each.key)) == rows
        assert stores.state.find(feed, []) == []
        assert stores.state.find(f"{feed}-other", keys[:1]) == []

    def test_feeds_do_not_mix(self, stores: Stores, feed: str) -> None:
        """The same object in another feed is another row."""
        stores.state.write(feed, [row("video/x", 1)])
        stores.state.write(f"{feed}-other", [row("video/x", 2)])
        assert stores.state.read(feed, bucket_of("video/x")) == [row("video/x", 1)]


def swap(found: Row | None, wanted: Row | None, bucket: int | None = None) -> Difference:
    """Return the replacement of a row; the kind of the difference means nothing to a store."""
    key = (found or wanted or row("video/x")).key
    place = bucket_of(key) if bucket is None else bucket
    return Difference(Kind.ALTERED, place, key, found, wanted)


class TestRepairs:
    def test_a_row_is_swapped_where_it_stands(self, stores: Stores, feed: str) -> None:
        """A new row is put, an old one replaced or removed; other feeds are left alone."""
        old, new = row("video/x", 1, expires_ms=EXPIRES), row("video/x", 2)
        for found, wanted in [(None, old), (old, new), (new, old), (old, None)]:
            assert stores.state.repair(feed, [swap(found, wanted)]) == [True]
            left = [] if wanted is None else [wanted]
            assert stores.state.read(feed, bucket_of("video/x")) == left
        stores.state.write(f"{feed}-other", [old])
        assert stores.state.repair(feed, [swap(old, None)]) == [True]
        assert stores.state.find(f"{feed}-other", ["video/x"]) == [old]

    def test_what_moved_is_left_alone(self, stores: Stores, feed: str) -> None:
        """Whatever about the row is not as it was found."""
        there = row("video/x", 5, expires_ms=EXPIRES)
        stores.state.write(feed, [there])
        others = [
            None,
            there._replace(page=4),
            there._replace(slot=4),
            there._replace(at_ms=AT + 1),
            there._replace(line='{"event":"delete"}'),
            there._replace(expires_ms=0),
            there._replace(expires_ms=EXPIRES + 1000),
        ]
        for found in others:
            assert stores.state.repair(feed, [swap(found, row("video/x", 9))]) == [False]
            if found is not None:
                assert stores.state.repair(feed, [swap(found, None)]) == [False]
        lives = row("video/y")
        stores.state.write(feed, [lives])
        dying = lives._replace(expires_ms=EXPIRES)
        assert stores.state.repair(feed, [swap(dying, None)]) == [False]
        assert stores.state.find(feed, ["video/x"]) == [there]
        assert stores.state.find(feed, ["video/y"]) == [lives]

    def test_what_is_as_wanted_counts_as_done(self, stores: Stores, feed: str) -> None:
        """By any writer: an answer may be lost, or another process be faster."""
        old, new = row("video/x", 1), row("video/x", 2, expires_ms=EXPIRES)
        stores.state.write(feed, [new])
        assert stores.state.repair(feed, [swap(old, new)]) == [True]
        assert stores.state.repair(feed, [swap(row("video/y"), None)]) == [True]
        assert stores.state.find(feed, ["video/x", "video/y"]) == [new]

    def test_a_row_is_removed_from_the_bucket_it_was_found_in(
        self, stores: Stores, feed: str
    ) -> None:
        """In its own bucket, the same row stays."""
        there = row("video/x")
        stores.state.write(feed, [there])
        wrong = (there.bucket + 1) % limits.BUCKETS
        assert stores.state.repair(feed, [swap(there, None, wrong)]) == [True]
        assert stores.state.find(feed, ["video/x"]) == [there]

    def test_many_are_answered_in_their_order(self, stores: Stores, feed: str) -> None:
        """More than threads; the existing ones are done though others are not."""
        rows = [row(f"video/{number}", number % 2 + 1) for number in range(40)]
        stores.state.write(feed, rows)
        found = [swap(row(each.key, 1), row(each.key, 9)) for each in rows]
        assert stores.state.repair(feed, found) == [each.page == 1 for each in rows]
        assert stores.state.repair(feed, []) == []


SUMS = Sums(
    page=7,
    types={"video": (2**64 - 1, *range(63)), "": (0,) * 64},
    unknown=frozenset({3, 63}),
    at=3,
    after="video/ä€𝄞",
    version=1,
)


class TestSums:
    def test_what_was_put_comes_back(self, stores: Stores, feed: str) -> None:
        """Sums of 64 bits, types, and how far the counting has come; other feeds have none."""
        assert stores.sums.read(feed) is None
        assert stores.sums.write(feed, SUMS)
        assert stores.sums.read(feed) == SUMS
        assert stores.sums.read(f"{feed}-other") is None
        assert not unset(SUMS)

    def test_the_first_of_a_version_stands(self, stores: Stores, feed: str) -> None:
        """Two holders of a lease may put sums; a holder that repeats its own has put them."""
        other = replace(SUMS, page=8)
        assert stores.sums.write(feed, SUMS)
        assert not stores.sums.write(feed, other)
        assert stores.sums.write(feed, SUMS)
        assert stores.sums.write(feed, replace(other, version=2))
        assert not stores.sums.write(feed, other)
        assert stores.sums.read(feed) == replace(other, version=2)

    def test_changes_are_as_good_as_what_they_change(self, stores: Stores, feed: str) -> None:
        """However many versions come one after the other, each is read as it is; none is lost."""
        stands = replace(SUMS, unknown=frozenset(), after=None)
        assert stores.sums.write(feed, stands)
        for version in range(2, 20):  # twice around the ring
            changes = {("video", version): 2**64 - version, ("", 63): version}
            note = note_of(stands, changes)
            stands = replace(stands.with_changes(10 * version, changes), version=version)
            assert stores.sums.write(feed, stands, note)
            assert stores.sums.read(feed) == stands
            assert stores.sums.write(feed, stands, note)
            assert not stores.sums.write(feed, replace(stands, page=1), note)
            assert not stores.sums.write(feed, replace(stands, version=version - 1), note)
        assert stores.sums.write(feed, replace(stands, version=20, types={}))
        assert stores.sums.read(feed) == replace(stands, version=20, types={})


class TestTombstones:
    def test_it_is_kept_whole(self, stores: Stores, feed: str) -> None:
        """Every field, under its feed alone; of a feed without one nothing is known."""
        assert stores.tombstones.remembered(feed) is None
        assert stores.tombstones.remember(feed, None, REMEMBERED)
        assert stores.tombstones.remembered(feed) == REMEMBERED
        assert stores.tombstones.remembered(f"{feed}-other") is None
        assert stores.tombstones.remember(feed, REMEMBERED, RAISED)
        assert stores.tombstones.remembered(feed) == RAISED

    def test_the_second_of_two_who_change_it_is_told(self, stores: Stores, feed: str) -> None:
        """Neither undoes the other unseen, not even with the first note of a feed."""
        assert stores.tombstones.remember(feed, None, REMEMBERED)
        assert not stores.tombstones.remember(feed, None, RAISED)
        assert not stores.tombstones.remember(feed, RAISED, RAISED.then(5, 6))
        assert stores.tombstones.remembered(feed) == REMEMBERED


LEFT: RemovedBySlot = {0: ("user/ann",), 17: ("channel/ä€𝄞", "user/bob")}


def removed_parents(page: int, left: RemovedBySlot = LEFT) -> RemovedParents:
    body = encode(left)
    assert body is not None
    return RemovedParents(page, body)


class TestRemovedParents:
    def test_removed_parents_come_back_as_they_were(self, stores: Stores, feed: str) -> None:
        """Small ones as text, large ones deflated; and none is not the same as unknown."""
        many: RemovedBySlot = {slot: (f"user/{slot}",) for slot in range(1000)}
        written = [removed_parents(1), removed_parents(2, {}), removed_parents(4, many)]
        stores.removed_parents.write(feed, written)
        assert stores.removed_parents.read(feed, 1, 4) == written
        found = stores.removed_parents.read(feed, 1, 4)
        assert [each.by_slot for each in found] == [LEFT, {}, many]

    def test_only_the_pages_asked_for_are_read(self, stores: Stores, feed: str) -> None:
        """Both ends included, in the order of the pages whatever the digits of their numbers."""
        stores.removed_parents.write(feed, [removed_parents(page) for page in (100, 9, 10, 99)])
        assert [each.page for each in stores.removed_parents.read(feed, 10, 99)] == [10, 99]
        assert [each.page for each in stores.removed_parents.read(feed, 0, 2**40 - 1)] == [
            9,
            10,
            99,
            100,
        ]
        assert stores.removed_parents.read(feed, 11, 98) == []

    def test_many_are_all_written(self, stores: Stores, feed: str) -> None:
        """More than a batch, and more than one answer holds."""
        large: RemovedBySlot = {slot: (f"{slot:0640}",) for slot in range(60)}
        written = [
            RemovedParents(page, str(removed_parents(page, large).by_slot)) for page in range(1, 61)
        ]
        stores.removed_parents.write(feed, written)
        assert stores.removed_parents.read(feed, 1, 60) == written

    def test_the_first_ones_of_a_page_stand(self, stores: Stores, feed: str) -> None:
        """A late write changes nothing, but its other pages are written."""
        stores.removed_parents.write(feed, [removed_parents(1)])
        stores.removed_parents.write(feed, [removed_parents(1, {}), removed_parents(2, {})])
        stores.removed_parents.write(feed, [RemovedParents(2, removed_parents(2).body, EXPIRES)])
        assert stores.removed_parents.read(feed, 1, 2) == [
            removed_parents(1),
            removed_parents(2, {}),
        ]

    def test_they_stay_apart_from_rows_and_other_feeds(self, stores: Stores, feed: str) -> None:
        """A copy of the state never meets them, nor does another feed."""
        stores.removed_parents.write(feed, [removed_parents(1)])
        stores.removed_parents.write(feed, [])
        stores.state.write(feed, [row("video/x")])
        assert stores.state.read(feed, row("video/x").bucket) == [row("video/x")]
        assert stores.removed_parents.read(f"{feed}-other", 1, 1) == []


def summary(first: int, last: int) -> Summary:
    return Summary(first, last, bytes([first % 256, 0, 255]))


class TestTags:
    def test_summaries_come_back_as_they_were(self, stores: Stores, feed: str) -> None:
        """In the order of the pages they end with, whatever the digits of their numbers."""
        written = [summary(1, 9), summary(10, 10), summary(11, 200), summary(201, 2**40 - 1)]
        stores.tags.write(feed, list(reversed(written)))

        assert stores.tags.read(feed, 0, 100) == written
        assert stores.tags.read(feed, 9, 100) == written[1:]
        assert stores.tags.read(feed, 10, 1) == written[2:3]
        assert stores.tags.read(feed, 2**40 - 1, 100) == []

    def test_the_last_page_is_known(self, stores: Stores, feed: str) -> None:
        """The last page with a summary; 0 before the first."""
        assert stores.tags.last(feed) == 0
        stores.tags.write(feed, [summary(1, 64), summary(65, 300)])
        assert stores.tags.last(feed) == 300

    def test_written_again_it_is_replaced(self, stores: Stores, feed: str) -> None:
        """Two concurrent runs do no harm; the expiry is not returned."""
        stores.tags.write(feed, [summary(1, 64)])
        stores.tags.write(feed, [Summary(1, 64, b"\0", EXPIRES)])
        assert stores.tags.read(feed, 0, 10) == [Summary(1, 64, b"\0")]

    def test_many_are_all_written(self, stores: Stores, feed: str) -> None:
        """More than a batch."""
        written = [summary(page, page) for page in range(1, 61)]
        stores.tags.write(feed, written)
        assert stores.tags.read(feed, 0, 100) == written

    def test_they_stay_apart_from_rows_and_other_feeds(self, stores: Stores, feed: str) -> None:
        """A copy of the state never meets them, nor does another feed."""
        stores.tags.write(feed, [summary(1, 64)])
        stores.tags.write(feed, [])
        stores.state.write(feed, [row("video/x")])
        assert stores.state.read(feed, row("video/x").bucket) == [row("video/x")]
        assert stores.removed_parents.read(feed, 0, 2**40 - 1) == []
        assert stores.tags.read(f"{feed}-other", 0, 10) == []
