"""The other five of nine defects that other feeds had, looked for in every consumer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.patterns.readers import EVERYBODY, Named, Reader, Stream
from tests.patterns.stores import Deaf, Stuck
from tests.unit.core.consumers.consumer_scene import WHY, ConsumerScene
from tests.unit.core.scene import FEED, Scene
from tidings.core.changeagent.changes import end_of
from tidings.core.changeagent.config import Configuration, replace_configuration
from tidings.core.changeagent.list import Query
from tidings.core.consumers import position
from tidings.core.consumers.service import Consumers
from tidings.core.errors import InvalidSetting, NothingDone, Unavailable
from tidings.core.followers.follower import STATE
from tidings.core.model import cursors
from tidings.core.model.cursors import START

Kind = Callable[[ConsumerScene], Reader]


# --- 5: skipped entries that hold up a position ------------------------------------------------


def test_pattern_5_T11_a_named_consumer_passes_what_it_does_not_want() -> None:
    """As the last message, and while its worker waits, so that the log is not held for nothing."""
    feed = ConsumerScene()
    feed.register(types=("a",))
    feed.post("a", "b")
    session = feed.lease()
    feed.ack(session, through=0)
    assert position.last_unneeded_page(feed.consumer().position) == 2
    feed.post("b", "b")
    feed.ack(session)
    assert position.last_unneeded_page(feed.consumer().position) == 4


def test_pattern_5_A_a_list_passes_tags_that_do_not_match() -> None:
    """The next list continues after the entries already examined."""
    feed = ConsumerScene()
    feed.post("a", "a")
    lister = feed.scene.lister()
    found = lister.list(FEED, Query(tags=frozenset({"none"})))
    assert (found.entries, found.next) == ([], end_of(2))


def test_pattern_5_D_a_socket_is_told_how_far_its_filter_was_looked_at() -> None:
    """It resumes from there, and not from its last event."""
    feed = ConsumerScene()
    feed.post("a", "b", "b")
    connection = feed.scene.connect("c")
    feed.scene.say(connection, action="resume", cursor=START.encode(), types=["a"])
    feed.scene.replayer.run(connection)
    told = [each["cursor"] for each in feed.scene.heard(connection) if "cursor" in each]
    found = cursors.parse(told[-1])
    assert isinstance(found, cursors.Place)
    assert found.page == 3


def test_pattern_5_a_follower_passes_pages_without_operations() -> None:
    """A page that only closes a hole moves its checkpoint like any other."""
    feed = ConsumerScene()
    feed.scene.log.take(FEED)
    feed.post("a")
    feed.scene.project()
    assert feed.scene.followers.checkpoints(FEED)[STATE] == 2


# --- 6: settings that are never read ------------------------------------------------------------


def test_pattern_6_T39_F32_F36_a_setting_that_is_not_known_is_refused() -> None:
    """By its name; and a value that breaks its rule by its value."""
    with pytest.raises(InvalidSetting, match="Unknown key: maxagee"):
        replace_configuration(Configuration(), {"maxagee": "1h"})
    with pytest.raises(InvalidSetting):
        replace_configuration(Configuration(), {"minPurgeDuration": "soon"})


# --- 7: operators who get a wrong OK ------------------------------------------------------------

DEEDS: dict[str, Callable[[Consumers], object]] = {
    "step": lambda consumers: consumers.step(FEED, "c0", WHY),
    "park": lambda consumers: consumers.park(FEED, "c0", WHY),
    "mark": lambda consumers: consumers.mark(FEED, "c0", "oldest", WHY),
    "resume": lambda consumers: consumers.pause(FEED, "c0", WHY, paused=False),
    "retry": lambda consumers: consumers.retry(FEED, "c0", "all", WHY),
    "drop": lambda consumers: consumers.drop(FEED, "c0", "all", WHY),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_pattern_7_T35_what_did_nothing_says_so(deed: str) -> None:
    """And leaves no note that it was done."""
    feed = ConsumerScene()
    before = feed.register()
    with pytest.raises(NothingDone):
        DEEDS[deed](feed.consumers)
    assert feed.consumer() == replace(before, version=1)
    assert feed.store.notes(FEED, "c0") == []


def test_pattern_7_T36_T37_and_nothing_does_too_much() -> None:
    """One message is stepped over, a mark back forgets no type, a deletion touches no other."""
    feed = ConsumerScene()
    feed.register()
    feed.register("c1")
    feed.post("a", "b", "a", "b")
    feed.consumers.step(FEED, "c0", WHY)
    assert feed.due() == [1, 2, 3]
    feed.ack(feed.lease(), through=3)
    feed.consumers.mark(FEED, "c0", feed.places[0].encode(), WHY)
    assert feed.due() == [1, 2, 3]
    feed.consumers.remove(FEED, "c0", WHY)
    assert feed.due("c1") == [0, 1, 2, 3]


# --- 8: two writes that should be one -----------------------------------------------------------


@pytest.mark.parametrize("kind", EVERYBODY)
def test_pattern_8_T1_F43_a_request_is_in_the_log_or_nowhere(kind: Kind) -> None:
    """A writer that crashes after it got its number leaves nothing that could be sent."""
    log = Deaf()
    feed = ConsumerScene(Scene(log=log))
    reader = kind(feed)
    log.broken = True
    with pytest.raises(Unavailable):
        feed.post("a", "a", together=True)
    log.broken = False
    assert reader.read() == []
    feed.scene.project()
    feed.post("a")
    feed.scene.project()
    assert reader.read() == [0]


def test_pattern_8_D31_what_an_operator_does_is_one_write() -> None:
    """Parked, noted and passed together, or none of it."""
    store = Stuck()
    feed = ConsumerScene(store=store)
    feed.register()
    feed.post("a", "a")
    store.stuck = True
    with pytest.raises(Unavailable):
        feed.consumers.park(FEED, "c0", WHY)
    assert (store.parked(FEED, "c0"), store.notes(FEED, "c0")) == ([], [])
    assert feed.due() == [0, 1]
    store.stuck = False
    feed.consumers.park(FEED, "c0", WHY)
    assert (len(store.parked(FEED, "c0")), len(store.notes(FEED, "c0"))) == (1, 1)
    assert feed.due() == [1]


# --- 9: one message that stops everything -------------------------------------------------------


def test_pattern_9_T7_T35_D15_there_is_a_way_past_what_cannot_be_written() -> None:
    """It stops its own consumer, is named, and is put aside; others never noticed."""
    feed = ConsumerScene()
    other = Stream(feed)
    feed.register()
    feed.post("a", "a", "a")
    for _ in range(2):
        feed.fail(feed.lease(), 0, "too long")
    assert other.read() == [0, 1, 2]
    assert feed.consumer().state(feed.scene.now_ms) == "failed"
    feed.consumers.park(FEED, "c0", WHY)
    assert Named(feed).read() == [1, 2]
    (parked,) = feed.consumers.parked(FEED, "c0")
    assert (parked.error, parked.attempts) == ("too long", 2)


def test_pattern_9_a_socket_that_is_gone_stops_nobody() -> None:
    """It is removed, and the others receive the same page."""
    feed = ConsumerScene()
    scene = feed.scene
    for name in ("c1", "c2"):
        scene.connect(name)
        scene.say(name, action="subscribe")
        scene.push()
    scene.sockets.gone.add("c1")
    feed.post("a")
    scene.push()
    assert scene.events("c2")[-1:] == ["0"]
    assert scene.followers.checkpoints(FEED)["push"] == 1
