"""Retention and named consumers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.core.consumers.consumer_scene import ConsumerScene
from tests.unit.core.maintenance.test_retention import HOUR, followed
from tests.unit.core.scene import FEED, NOW, Scene
from tidings.core.consumers.service import ConsumerRetention
from tidings.core.model.cursors import Place
from tidings.core.model.feeds import Retention
from tidings.core.model.filters import EVERYTHING

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
