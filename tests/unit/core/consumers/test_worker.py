"""Requests of the workers of named consumers."""

from __future__ import annotations

import pytest

from tests.unit.core.consumers.consumer_scene import WHY, ConsumerScene, registered
from tests.unit.core.following import trimmed
from tests.unit.core.scene import FEED
from tidings.core import limits
from tidings.core.consumers import position
from tidings.core.errors import ConsumerFellOff, FenceLost, InvalidConsumer, UnknownParked


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
