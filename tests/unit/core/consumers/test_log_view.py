"""The log as workers and operators see it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.core.consumers.consumer_scene import ConsumerScene, registered
from tests.unit.core.scene import FEED, NOW
from tidings.core import limits
from tidings.core.consumers import consumer
from tidings.core.consumers.log_view import line_at
from tidings.core.consumers.position import COPY
from tidings.core.errors import ConsumerFellOff, InvalidConsumer
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.pages import Pages, filler


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
