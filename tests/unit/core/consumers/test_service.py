"""What operators and workers do to named consumers, and what retention does to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import MemoryConsumers
from tests.unit.core.consumers.consumer_scene import WHY, ConsumerScene, registered
from tests.unit.core.following import trimmed
from tests.unit.core.maintenance.test_retention import HOUR, followed
from tests.unit.core.scene import FEED, NOW, Scene
from tidings.core import limits
from tidings.core.consumers import position
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.consumers.position import COPY
from tidings.core.consumers.service import (
    ConsumerRepository,
    ConsumerRetention,
    check_name,
    reason_from,
)
from tidings.core.errors import (
    ConsumerExists,
    ConsumerFellOff,
    FenceLost,
    InvalidConsumer,
    NothingDone,
    TidingsError,
    Unavailable,
    UnknownParked,
)
from tidings.core.model import filters
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.feeds import Retention
from tidings.core.model.filters import EVERYTHING


def test_T12_another_filter_ends_the_lease() -> None:
    """Otherwise a worker that reads with the old filter would acknowledge messages it never got."""
    scene = registered("a", "b", "a")
    session = scene.lease()
    scene.register()
    scene.ack(session, through=0)
    scene.register(types=("a", "b"))
    with pytest.raises(FenceLost):
        scene.ack(session, through=2)
    assert scene.due() == [1, 2]


def test_a_consumer_that_exists_is_not_changed_by_a_request_for_a_new_one() -> None:
    """The request is refused; a free name is accepted."""
    scene = ConsumerScene()
    wanted = Consumer(FEED, "c", filters.of({"types": ["a"]}))
    made, is_new = scene.consumers.register(FEED, "c", wanted, "now", only_new=True)
    with pytest.raises(ConsumerExists):
        other = Consumer(FEED, "c", filters.EVERYTHING)
        scene.consumers.register(FEED, "c", other, "oldest", only_new=True)

    assert is_new
    assert scene.consumers.one(FEED, "c")[0] == replace(made, version=1)


def test_a_new_one_begins_with_a_copy_or_behind_an_event() -> None:
    """Any other place is refused, and no consumer is stored."""
    scene = ConsumerScene()
    scene.post("a", "a")
    assert scene.register("c", start="copy").position == COPY
    assert scene.register("d", start=scene.places[0].encode()).position == scene.places[0]
    for wrong in ("yesterday", Place(9, 0, 9).encode()):
        with pytest.raises(InvalidConsumer) as refused:
            scene.register("e", start=wrong)
        assert refused.value.field == "from"
    assert [each.name for each, _ in scene.consumers.all(FEED)] == ["c", "d"]


def test_a_feed_has_so_many_consumers() -> None:
    """Each is read once a minute."""
    scene = ConsumerScene()
    for number in range(limits.CONSUMERS_MAX):
        scene.register(f"c{number}")
    with pytest.raises(InvalidConsumer, match="at most 100"):
        scene.register("one-more")
    scene.register("c7", types=("a",))


def test_what_does_not_come_again_stays_parked() -> None:
    """Parked messages stay parked if the position is set to their place or after it."""
    scene = registered("a", "a", "a")
    scene.consumers.park(FEED, "c0", WHY)
    scene.consumers.mark(FEED, "c0", scene.places[2].encode(), WHY)
    scene.consumers.mark(FEED, "c0", scene.places[1].encode(), WHY)
    assert (scene.consumer().parked, len(scene.consumers.parked(FEED, "c0"))) == (1, 1)
    assert scene.due() == [2]


def test_a_rare_message_is_stepped_over_however_far_it_is() -> None:
    """Farther than a worker's request looks: an operator asks once, and waits."""
    far = limits.ADVANCE_PAGES * limits.ADVANCE_READS_MAX + 1
    scene = registered(*"a" * far, "rare", "rare", types=("rare",))
    assert scene.consumers.step(FEED, "c0", WHY).place == scene.places[far]
    assert scene.consumer().position == replace(scene.places[far], slot=PAGE_END)
    assert scene.due() == [far + 1]


def test_T9_T35_what_failed_is_parked_however_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rare type, more pages lie before the message than one request of an operator reads."""
    monkeypatch.setattr(limits, "UPCOMING_READS_MAX", limits.ADVANCE_READS_MAX)
    far = limits.ADVANCE_PAGES * limits.ADVANCE_READS_MAX + 1
    scene = registered(*"a" * far, "rare", "rare", types=("rare",))
    scene.fail(scene.lease(), far, "too long")
    assert scene.consumers.park(FEED, "c0", WHY).place == scene.places[far]
    assert [each.error for each in scene.consumers.parked(FEED, "c0")] == ["too long"]
    assert scene.consumer().failure is None
    scene.ack(scene.lease())
    assert scene.due() == [far + 1]


def test_dropped() -> None:
    """One or all; also one that was to be sent again."""
    scene = registered("a", "a", "a")
    for _ in range(3):
        scene.consumers.park(FEED, "c0", WHY)
    scene.consumers.retry(FEED, "c0", "all", WHY)
    first = scene.places[0].encode()
    left = scene.consumers.drop(FEED, "c0", first, WHY)
    assert (left.parked, len(left.retries)) == (2, 2)
    assert scene.consumers.drop(FEED, "c0", "all", WHY).parked == 0
    assert scene.consumers.parked(FEED, "c0") == []


def test_no_more_is_parked_than_may_be() -> None:
    """A consumer that parks everything has another fault."""
    scene = registered(*"a" * (limits.PARKED_MAX + 1))
    for _ in range(limits.PARKED_MAX):
        scene.consumers.park(FEED, "c0", WHY)
    with pytest.raises(InvalidConsumer, match="at most 90"):
        scene.consumers.park(FEED, "c0", WHY)
    assert scene.due() == [limits.PARKED_MAX]


def test_what_is_sent_again_already() -> None:
    """A second request to send it again is refused; an unknown message is an error."""
    scene = registered("a")
    scene.consumers.park(FEED, "c0", WHY)
    scene.consumers.retry(FEED, "c0", "all", WHY)
    with pytest.raises(NothingDone, match="already be sent again"):
        scene.consumers.retry(FEED, "c0", scene.places[0].encode(), WHY)
    for act in (scene.consumers.retry, scene.consumers.drop):
        with pytest.raises(UnknownParked):
            act(FEED, "c0", "f" * 24, WHY)


def test_a_copying_consumer_has_no_next_message() -> None:
    """Its rows are in no order; it can be put elsewhere."""
    scene = registered("a")
    scene.consumers.mark(FEED, "c0", "copy", WHY)
    for act in (scene.consumers.step, scene.consumers.park):
        with pytest.raises(NothingDone):
            act(FEED, "c0", WHY)
    scene.consumers.mark(FEED, "c0", "now", WHY)
    assert position.last_unneeded_page(scene.consumer().position) == 1


@pytest.mark.parametrize("why", [None, "", "  ", 7, "x" * 501])
def test_a_reason_is_given(why: object) -> None:
    """It is what remains."""
    with pytest.raises(TidingsError) as refused:
        reason_from("ann", why)
    assert "why" in str(refused.value)


def test_an_acknowledgement_renews_the_lease() -> None:
    """An empty acknowledgement does so too."""
    scene = registered()
    session = scene.lease()
    scene.scene.now_ms += limits.CONSUMER_LEASE_MS - 1
    until_ms = scene.ack(session).consumer.until_ms
    assert until_ms == scene.scene.now_ms + limits.CONSUMER_LEASE_MS


def test_T12_an_overtaken_worker_acknowledges_nothing() -> None:
    """Its requests are refused as a whole, and the messages it did not acknowledge remain due."""
    scene = registered("a", "a", "a")
    old = scene.lease(worker="one")
    scene.ack(old, through=0, sending=2)
    scene.scene.now_ms += limits.CONSUMER_LEASE_MS
    new = scene.lease(worker="two")
    with pytest.raises(FenceLost):
        scene.ack(old, 1, 2)
    with pytest.raises(FenceLost):
        scene.fail(old, 1)
    with pytest.raises(FenceLost):
        scene.consumers.release(FEED, "c0", old.consumer.fence)
    assert scene.due() == [1, 2]
    assert new.consumer.single == scene.places[2]


@pytest.mark.parametrize("worker", ["", "w" * (limits.WORKER_CHARS_MAX + 1)])
def test_a_worker_has_a_name_of_bounded_length(worker: str) -> None:
    """The name is stored with the consumer and shown to its operators."""
    scene = registered("a")
    with pytest.raises(InvalidConsumer, match="1 to 128"):
        scene.lease(worker=worker)
    assert scene.consumer().fence == 0


def test_a_gap_that_closes_moves_the_position() -> None:
    """By single acknowledgements, or by one that passes what was acknowledged before."""
    scene = registered(*"aaaaaa")
    session = scene.lease()
    scene.ack(session, 1, 2, 4)
    assert scene.due() == [0, 3, 5]
    scene.ack(session, 0)
    assert scene.due() == [3, 5]
    assert position.last_unneeded_page(scene.consumer().position) == 3
    scene.ack(session, through=3)
    assert position.last_unneeded_page(scene.consumer().position) == 5
    assert scene.consumer().acked == ()


def test_T11_a_worker_that_waits_moves_on() -> None:
    """New pages without messages for it must not retain the log until it falls off."""
    scene = registered("b", "b", types=("a",))
    session = scene.lease()
    scene.ack(session)
    assert position.last_unneeded_page(scene.consumer().position) == 2
    scene.post("b", "a")
    scene.ack(session, sending=3)
    scene.ack(session)
    assert position.last_unneeded_page(scene.consumer().position) == 2


def test_who_was_away_and_missed_nothing_is_sent_no_copy() -> None:
    """Its page is trimmed, but no later one: the log is enough, and the state is not read."""
    scene = registered("a", "a")
    scene.ack(scene.lease(), through=1)
    scene.scene.project()
    trimmed(scene.scene, 3)
    scene.post("a")
    scene.scene.project()
    connection = scene.scene.resume(scene.lease().cursor)
    assert [name for name in scene.scene.events(connection) if name != "live"] == ["2"]


def test_a_parked_message_is_sent_again() -> None:
    """If it fails again, it stays parked with the new error; once confirmed, it is removed."""
    scene = registered("a", "a")
    scene.fail(scene.lease(), 0, "too long")
    scene.consumers.park(FEED, "c0", WHY)
    name = scene.places[0].encode()
    with pytest.raises(UnknownParked):
        scene.ack(scene.lease(), retried=(name,))
    scene.consumers.retry(FEED, "c0", "all", WHY)

    session = scene.lease()
    assert session.consumer.retries == (name,)
    kept = scene.fail(session, 0, "still too long")
    assert (kept.consumer.owner, kept.consumer.retries) == ("w", ())
    (parked,) = scene.consumers.parked(FEED, "c0")
    assert (parked.error, parked.attempts) == ("still too long", 2)

    scene.consumers.retry(FEED, "c0", name, WHY)
    scene.ack(session, retried=(name,))
    assert scene.consumers.parked(FEED, "c0") == []
    assert (scene.consumer().parked, scene.consumer().retries) == (0, ())


def test_who_fell_off_gets_no_lease() -> None:
    """The error says so; nothing is skipped silently."""
    scene = registered("a", "a", "a")
    scene.ack(scene.lease(), through=0)
    scene.scene.log.raise_floor(FEED, 3)
    with pytest.raises(ConsumerFellOff):
        scene.lease()
    _, lag = scene.consumers.one(FEED, "c0")
    assert lag.fell_off


def test_T34_what_is_known_of_consumers() -> None:
    """All of them are listed, with their lag in pages and in milliseconds."""
    scene = ConsumerScene()
    scene.register("a")
    scene.register("b")
    scene.register("c", start="copy")
    scene.post("a", "a", "a")
    scene.ack(scene.lease("b"), through=1)
    scene.scene.now_ms += 5000
    lags = {each.name: (lag.pages, lag.ms) for each, lag in scene.consumers.all(FEED)}
    assert lags == {"a": (3, 5000), "b": (1, 5000), "c": (3, 0)}
    assert scene.consumers.one(FEED, "a")[1].pages == 3


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a" * 64, "a/b"])
def test_T38_a_consumer_has_a_name_of_its_own(name: str) -> None:
    """Without a name it would start from the beginning each time."""
    with pytest.raises(InvalidConsumer, match="must be 1 to 63"):
        check_name(name)


def test_a_change_is_made_on_top_of_others() -> None:
    """A change that loses the race is tried again; after too many losses it fails and writes
    nothing."""
    store = MemoryConsumers()
    store.write("main", "c", 0, Change(Consumer("main", "c")))
    book, others = ConsumerRepository(store), [3]

    def change(consumer: Consumer) -> Change:
        if others[0]:
            others[0] -= 1
            theirs = replace(consumer, parked=consumer.parked + 1)
            store.write("main", "c", consumer.version, Change(theirs))
        return Change(replace(consumer, paused=not consumer.paused))

    assert book.change("main", "c", change).parked == 3
    others[0] = 99
    with pytest.raises(Unavailable, match="kept changing"):
        book.change("main", "c", change)


def test_what_changes_nothing_is_not_written() -> None:
    """It costs a read."""
    store = MemoryConsumers()
    store.write("main", "c", 0, Change(Consumer("main", "c")))
    assert ConsumerRepository(store).change("main", "c", Change).version == 1
    assert ConsumerRepository(store).consumer("main", "c").version == 1


CAP = 24 * HOUR


def aged(pages: int, cap_ms: int = CAP) -> ConsumerScene:
    """Post a page an hour, kept for two hours, with one consumer from before them all."""
    scene = ConsumerScene(Scene(now_ms=NOW))
    scene.register()
    for _ in range(pages):
        scene.post("a")
        scene.scene.now_ms += HOUR
    followed(scene.scene, "state", "push")
    scene.scene.retention_service = replace(
        scene.scene.retention_service, holds=scene.holds(cap_ms)
    )
    return scene


def test_T18_retention_waits_for_a_consumer() -> None:
    """This includes a consumer that has acknowledged nothing yet."""
    scene = aged(10)
    assert scene.scene.retention_service.run(FEED).floor == 1
    scene.ack(scene.lease(), through=4)
    assert scene.scene.retention_service.run(FEED).floor == 5
    scene.ack(scene.lease(), 5)
    assert scene.scene.retention_service.run(FEED).floor == 6


def test_the_slowest_counts() -> None:
    """One that copies from the start needs nothing of the log yet."""
    scene = aged(10)
    scene.register("quick", start="now")
    scene.register("copying", start="copy")
    assert scene.holds(CAP).pages(FEED) == {0, 10}
    assert scene.scene.retention_service.run(FEED).floor == 1
    assert not ConsumerRetention(scene.store, Retention(CAP, 0)).pages("other")


def test_but_not_for_ever() -> None:
    """Pages older than the cap are trimmed regardless, and the consumer is reported as fallen
    off."""
    scene = aged(30)
    scene.ack(scene.lease(), through=1)
    assert scene.scene.retention_service.run(FEED).floor == 8
    assert scene.consumers.one(FEED, "c0")[1].fell_off


@pytest.mark.parametrize("idle_ms", [5 * HOUR, 2 * CAP])
def test_who_stood_while_nothing_came_goes_on_in_the_log(idle_ms: int) -> None:
    """It gets the next operation, and no copy of what it has, also when idle for longer than the
    cap."""
    scene = aged(3)
    scene.register("late", start="now")
    scene.ack(scene.lease(), through=2)
    scene.scene.now_ms += idle_ms
    scene.scene.retention_service.run(FEED)
    scene.post("b")
    scene.scene.project()
    scene.scene.now_ms += HOUR
    scene.scene.retention_service.run(FEED)
    for name in ("c0", "late"):
        consumer, lag = scene.consumers.one(FEED, name)
        assert (lag.pages, lag.fell_off) == (1, False)
        assert isinstance(consumer.position, Place)
        start = scene.scene.catch_up.start(FEED, consumer.position)
        step = scene.scene.catch_up.step(FEED, start, EVERYTHING)
        assert [event.name for event in step.events] == ["update"]


def test_alarms_know() -> None:
    """Metrics show the lag of the slowest consumer, and how many are late or fell off."""
    scene = aged(30)
    scene.register("quick", start="now")
    scene.ack(scene.lease(), through=1)
    scene.monitor(2 * HOUR).run(FEED)
    counted = scene.scene.counted
    assert (counted["ConsumerLag"], counted["ConsumersLate"]) == (28, 1)
    assert counted["ConsumersFellOff"] == 0
    scene.scene.retention_service.run(FEED)
    scene.monitor(2 * HOUR).run(FEED)
    assert counted["ConsumersFellOff"] == 1


def test_a_feed_without_consumers_counts_nothing() -> None:
    """Its log is trimmed as if there were no consumers."""
    scene = aged(10)
    scene.store = type(scene.store)()
    scene.scene.retention_service = replace(scene.scene.retention_service, holds=scene.holds(CAP))
    assert scene.scene.retention_service.run(FEED).floor == 10
    ConsumerScene(Scene(now_ms=NOW)).monitor(HOUR).run(FEED)
    assert "ConsumerLag" not in scene.scene.counted
