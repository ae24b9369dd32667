"""What operators do to named consumers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.core.consumers.consumer_scene import WHY, ConsumerScene, registered
from tests.unit.core.scene import FEED
from tidings.core import limits
from tidings.core.consumers import position
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.position import COPY
from tidings.core.consumers.service import reason_from
from tidings.core.errors import (
    ConsumerExists,
    FenceLost,
    InvalidConsumer,
    NothingDone,
    TidingsError,
    UnknownParked,
)
from tidings.core.model import filters
from tidings.core.model.cursors import PAGE_END, Place


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
