"""A named consumer, its position, and the log as workers and operators see it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.consumers.consumer_scene import ConsumerScene, registered
from tests.unit.core.scene import FEED, NOW, Scene, op
from tidings.core import limits
from tidings.core.consumers import consumer
from tidings.core.consumers import position as positions
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.log_view import line_at
from tidings.core.consumers.position import (
    COPY,
    Span,
    decode_spans,
    encode_spans,
    in_spans,
    join_spans,
    last_unneeded_page,
    later,
    rank,
    spans_after,
)
from tidings.core.errors import (
    ConsumerFellOff,
    ConsumerHeld,
    FenceLost,
    InvalidConsumer,
    NothingDone,
)
from tidings.core.model.cursors import PAGE_END, START, Place, Replication
from tidings.core.model.pages import Pages, filler

PLAIN = Consumer("main", "c0")


def at(page: int, slot: int = 0) -> Place:
    return Place(page, slot, 9)


def test_one_worker_at_a_time() -> None:
    """The fence grows with each lease; the holder may renew it, and any worker may take an old
    one."""
    held = consumer.acquire(PLAIN, "one", NOW)
    assert (held.owner, held.fence, held.state(NOW)) == ("one", 1, "working")
    assert consumer.acquire(held, "one", NOW).fence == 2
    with pytest.raises(ConsumerHeld, match="held by one for 29000 ms"):
        consumer.acquire(held, "two", NOW + 1000)
    late = NOW + limits.CONSUMER_LEASE_MS
    assert held.state(late) == "idle"
    assert consumer.acquire(held, "two", late).fence == 2


def test_a_worker_that_was_overtaken_says_nothing_more() -> None:
    """Its fence is no longer valid; after a release no fence is valid."""
    held = consumer.acquire(PLAIN, "one", NOW)
    consumer.check_fence(held, 1)
    for gone, fence in ((held, 2), (consumer.release(held), 1), (consumer.revoke_lease(held), 1)):
        with pytest.raises(FenceLost, match="take the lease again"):
            consumer.check_fence(gone, fence)


def test_T15_an_acknowledgement_never_goes_back() -> None:
    """A lower or equal one changes nothing."""
    ahead = consumer.ack_through(PLAIN, at(5, 3))
    for lower in (at(5, 3), at(5, 2), at(4, 9), COPY):
        assert consumer.ack_through(ahead, lower) == ahead


def test_what_was_begun_comes_again_one_at_a_time() -> None:
    """This is so after a failure, and after a worker that crashed; not after one that finished."""
    working = consumer.sending(consumer.acquire(PLAIN, "one", NOW), at(9))
    later = NOW + limits.CONSUMER_LEASE_MS
    assert consumer.acquire(working, "two", later).single == at(9)
    failed = consumer.fail(working, at(7).encode(), "too long", NOW)
    assert (failed.single, failed.owner, failed.state(NOW)) == (at(9), "", "failed")
    assert consumer.acquire(consumer.release(working), "two", NOW).single is None
    done = consumer.ack_through(consumer.acquire(failed, "two", NOW), at(9))
    assert (done.single, done.sent, done.failure) == (None, None, None)


def test_what_was_begun_is_remembered_over_two_failures() -> None:
    """The second one may have begun less."""
    first = consumer.fail(consumer.sending(PLAIN, at(9)), "", "it broke", NOW)
    again = consumer.sending(consumer.acquire(first, "one", NOW), at(5))
    assert consumer.fail(again, "", "it broke", NOW).single == at(9)


def test_failures_of_one_message_are_counted() -> None:
    """The count is dropped when another message fails, or when the message is passed."""
    once = consumer.fail(PLAIN, at(7).encode(), "too long", NOW)
    twice = consumer.fail(once, at(7).encode(), "x" * 9000, NOW + 1)
    assert twice.failure is not None
    assert (twice.failure.times, len(twice.failure.error)) == (2, limits.ERROR_CHARS_MAX)
    other = consumer.fail(twice, at(8).encode(), "too long", NOW)
    assert other.failure is not None
    assert other.failure.times == 1
    assert consumer.ack_through(twice, at(6)).failure == twice.failure
    assert consumer.ack_through(twice, at(7)).failure is None
    nobody_knows = consumer.fail(PLAIN, "", "it broke", NOW)
    assert consumer.ack_through(nobody_knows, at(1)).failure is None


def test_too_much_beyond_a_gap_is_refused() -> None:
    """A consumer stays one small item."""
    many = [at(page) for page in range(2, limits.CONSUMER_SPANS_MAX + 2)]
    full = consumer.ack_entries(PLAIN, many)
    assert len(full.acked) == limits.CONSUMER_SPANS_MAX
    with pytest.raises(InvalidConsumer, match="at most 1000 ranges"):
        consumer.ack_entries(full, [at(5000)])


def test_T35_forward_is_acknowledged() -> None:
    """Later acknowledgements are kept; the worker has to take the lease again."""
    working = replace(consumer.acquire(PLAIN, "one", NOW), acked=(Span(3, 0, 0), Span(8, 1, 1)))
    marked = consumer.move(working, at(5))
    assert (marked.position, marked.acked) == (at(5), (Span(8, 1, 1),))
    assert (marked.owner, marked.fence) == ("", 2)
    with pytest.raises(NothingDone, match="is already the position"):
        consumer.move(marked, at(5))


def test_T36_back_forgets_nothing() -> None:
    """All messages after the mark are sent again, even if they were acknowledged one by one."""
    ahead = replace(PLAIN, position=at(9), acked=(Span(11, 0, 0),), sent=at(12), single=at(12))
    marked = consumer.move(ahead, at(4))
    assert (marked.position, marked.acked, marked.single) == (at(4), (), None)
    assert consumer.move(marked, None).position is None
    assert consumer.move(marked, COPY).position is COPY


Entries = set[tuple[int, int]]
ENTRIES = st.sets(st.tuples(st.integers(1, 4), st.integers(0, 6)))


def places(entries: Entries) -> list[Place]:
    return [Place(page, slot, 9) for page, slot in entries]


@given(ENTRIES, ENTRIES)
def test_spans_are_a_set_of_entries(
    first: set[tuple[int, int]], then: set[tuple[int, int]]
) -> None:
    """This holds for any order; neighbours share a span, and no entry is in two spans."""
    spans = join_spans(join_spans((), places(first)), places(then))
    everything = {(page, slot) for page in range(1, 5) for slot in range(8)}
    assert {each for each in everything if in_spans(spans, Place(*each, 9))} == first | then
    assert list(spans) == sorted(spans)
    for one, two in pairwise(spans):
        assert one.page < two.page or one.last + 1 < two.first
    assert decode_spans(encode_spans(spans)) == spans


@given(ENTRIES, st.integers(1, 4), st.integers(0, 6))
def test_what_is_passed_is_forgotten(entries: Entries, page: int, slot: int) -> None:
    """Only passed entries are dropped."""
    left = spans_after(join_spans((), places(entries)), Place(page, slot, 9))
    everything = {(page, slot) for page in range(1, 5) for slot in range(8)}
    kept = {each for each in everything if in_spans(left, Place(*each, 9))}
    assert kept == {each for each in entries if each > (page, slot)}


def test_the_end_of_a_page_passes_all_of_it() -> None:
    """This holds for any number of slots."""
    spans = (Span(3, 0, 900), Span(4, 1, 2))
    assert spans_after(spans, Place(3, PAGE_END, 9)) == (Span(4, 1, 2),)


def test_spelled() -> None:
    """Operators see the spans in this form."""
    assert encode_spans((Span(3, 0, 9), Span(4, 1, 1))) == "3.0-9 4.1-1"
    assert decode_spans("") == ()


WITHIN = Replication(0, 7, 3, tombstones=False)


def test_D_nothing_acknowledged_comes_before_everything() -> None:
    """It is not a number, so it is not compared with a page by accident."""
    ascending = [
        None,
        COPY,
        Place(6, PAGE_END, 1),
        WITHIN,
        Replication(0, 7, 4, tombstones=False),
        Place(7, 0, 1),
        Place(7, PAGE_END, 1),
    ]
    assert sorted(ascending, key=rank) == ascending
    assert later(None, None) is None
    assert later(None, COPY) is COPY
    assert later(WITHIN, COPY) is WITHIN


def test_what_is_not_needed_any_more() -> None:
    """A page with unhandled entries is still needed; before a copy begins no page of the log is."""
    assert last_unneeded_page(None) == 0
    assert last_unneeded_page(COPY) is None
    assert last_unneeded_page(WITHIN) == 7
    assert last_unneeded_page(Place(7, 2, 1)) == 6
    assert last_unneeded_page(Place(7, PAGE_END, 1)) == 7


@pytest.mark.parametrize("position", [None, COPY, WITHIN, Place(7, 2, 1)])
def test_as_it_is_told(position: positions.Position | None) -> None:
    """An encoded position can be read again."""
    assert positions.read(positions.encode_position(position)) == position


def test_the_oldest_page_of_a_trimmed_log(scene: Scene) -> None:
    """A consumer that begins there gets exactly the log from its floor."""
    for name in "abcd":
        scene.post(op(name))
    scene.project()
    for floor, wanted in ((1, "abcd"), (3, "cd")):
        scene.log.raise_floor("main", floor)
        connection = scene.resume(positions.oldest(floor), f"c{floor}")
        assert [name for name in scene.events(connection) if name != "live"] == list(wanted)
    assert positions.oldest(1) == START.encode()


@pytest.mark.parametrize("text", ["", "now", "0", "zz", None, 7, "123"])
def test_only_ids_of_events_are_places(text: object) -> None:
    """Other kinds of cursor do not say which events were handled."""
    with pytest.raises(InvalidConsumer) as refused:
        positions.parse_position(text, "through")
    assert refused.value.field == "through"


def test_an_entry_is_one_operation() -> None:
    """The end of a page and a place in a copy are not operations."""
    assert positions.entry(Place(7, 2, 1).encode(), "id") == Place(7, 2, 1)
    for other in (Place(7, PAGE_END, 1), WITHIN):
        with pytest.raises(InvalidConsumer):
            positions.entry(other.encode(), "id")


def entries(scene: ConsumerScene, first: int, last: int | None, limit: int = 1000) -> list[int]:
    end = None if last is None else scene.places[last]
    within = scene.view.entries(FEED, scene.places[first], end, limit)
    return [scene.places.index(each.place) for each in within]


def test_T33_the_ends_of_the_log() -> None:
    """An empty log has no ends; a filler is not a message; trimmed pages are not the oldest."""
    scene = ConsumerScene()
    assert scene.view.oldest(FEED) is None
    assert scene.view.current(FEED) is None
    scene.post("a", "b", together=True)
    scene.post("c")
    scene.scene.log.take(FEED)
    scene.scene.log.put(FEED, filler(3, at_ms=NOW, expires_ms=NOW))
    assert scene.view.current(FEED) == scene.places[2]
    scene.scene.log.raise_floor(FEED, 2)
    oldest = scene.view.oldest(FEED)
    assert oldest is not None
    assert oldest.place == scene.places[2]


def test_a_stretch_of_many_pages_is_read_in_parts() -> None:
    """More than one read brings."""
    scene = ConsumerScene()
    scene.post(*"a" * (limits.ACK_PAGES_MAX + 3))
    assert len(entries(scene, 0, None)) == limits.ACK_PAGES_MAX + 3


def test_an_id_must_be_of_this_log() -> None:
    """The commit second of another deployment's id differs; an id in the future is not in the
    log."""
    scene = ConsumerScene()
    scene.post("a")
    place = scene.places[0]
    scene.view.check_entries(FEED, [place])
    wrong = [replace(place, seconds=1), replace(place, slot=1), replace(place, page=2)]
    for other in wrong:
        with pytest.raises(InvalidConsumer, match="not in the log"):
            scene.view.check_entries(FEED, [other])
    with pytest.raises(InvalidConsumer, match="after the end"):
        scene.view.check_reached(FEED, Place(2, 0, 1), "through")
    many = [Place(page, 0, 1) for page in range(limits.ACK_PAGES_MAX + 1)]
    with pytest.raises(InvalidConsumer, match="at most 64 pages"):
        scene.view.check_entries(FEED, many)
    page = scene.scene.reader.at(FEED, place.page)
    assert line_at(page, place) is not None
    assert line_at(page, wrong[0]) is None


def test_T11_what_is_not_for_a_consumer_is_passed() -> None:
    """In the midst, as the last message, and while others are not acknowledged."""
    scene = registered("a", "b", "a", "b", "b", types=("a",))
    session = scene.lease()
    assert scene.ack(session, 0).consumer.position == Place(2, PAGE_END, NOW // 1000)
    assert scene.due() == [2]
    assert scene.ack(session, 2).consumer.position == Place(5, PAGE_END, NOW // 1000)
    assert scene.due() == []


def test_a_consumer_that_fell_off_is_told_so() -> None:
    """This is so for a position before the floor; not for a new consumer or one that is copying."""
    scene = ConsumerScene()
    scene.post("a", "a", "a", "a")
    behind = consumer.ack_through(scene.register(), scene.places[0])
    scene.scene.log.raise_floor(FEED, 3)
    with pytest.raises(ConsumerFellOff, match="is at page 0, and the log begins with page 3"):
        scene.view.check_within(behind)
    for other in (None, COPY, scene.places[2]):
        assert scene.view.check_within(replace(behind, position=other)) == 3
    assert scene.due() == [2, 3]
    assert scene.view.upcoming(replace(behind, position=COPY)) is None


def test_an_acknowledgement_reads_few_pages_if_the_next_message_is_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads the page of the position and the next one, and more only if all are filtered out."""
    scene = registered(*"a" * 40)
    log = scene.scene.log
    read, pages = log.read, list[int]()

    def noted(feed: str, after: int, limit: int | None = None, *, eventual: bool = False) -> Pages:
        found = read(feed, after, limit, eventual=eventual)
        pages.append(len(found))
        return found

    monkeypatch.setattr(log, "read", noted)
    scene.ack(scene.lease(), through=3)
    assert sum(pages) <= 2
    assert scene.due() == list(range(4, 40))
