"""Nine defects that other feeds had, looked for in every kind of consumer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import pytest

from tests.patterns.stores import Breaking, Deaf, Stuck
from tests.simulation.consumer import sse_blocks
from tests.unit.core.consumers.consumer_scene import WHY, ConsumerScene
from tests.unit.core.following import trimmed
from tests.unit.core.scene import FEED, Scene, op, page
from tests.unit.core.sync.test_apply import correct, corrector, part
from tidings.core import limits
from tidings.core.changeagent.changes import end_of, place_of
from tidings.core.changeagent.config import Configuration, replace_configuration
from tidings.core.changeagent.list import Query
from tidings.core.consumers import consumer as consumers
from tidings.core.consumers import position
from tidings.core.consumers.service import Consumers
from tidings.core.errors import (
    BelowFloor,
    ConsumerFellOff,
    FellOff,
    FenceLost,
    InvalidSetting,
    NothingDone,
    PlanTooOld,
    Unavailable,
)
from tidings.core.followers.follower import STATE
from tidings.core.maintenance.retention import RetentionService
from tidings.core.model import cursors
from tidings.core.model.cursors import START
from tidings.core.model.feeds import Retention
from tidings.core.model.operations import line_from, parse_line


class Reader(Protocol):
    def read(self, most: int = 1_000) -> list[int]:
        """Return the next messages, handled and acknowledged; a new connection each time."""
        ...


class Stream:
    """Server-Sent Events, resumed after the last one."""

    def __init__(self, feed: ConsumerScene) -> None:
        self.feed, self.cursor = feed, START.encode()

    def read(self, most: int = 1_000) -> list[int]:
        stream = self.feed.scene.streamer.open(FEED, self.cursor)
        text, there = "", False
        while not there:
            chunk = stream.next()
            text, there = text + chunk.text, chunk.at_frontier
        told = [block for block in sse_blocks(text) if block[1] not in ("live", "reset")][:most]
        self.cursor = told[-1][0] if told else self.cursor
        return [int(data["id"]) for _, _, data in told]


class Socket:
    """A WebSocket that resumes after the last event and is then live."""

    def __init__(self, feed: ConsumerScene) -> None:
        self.feed, self.cursor, self.count = feed, START.encode(), 0

    def read(self, most: int = 1_000) -> list[int]:
        scene = self.feed.scene
        self.count += 1
        connection = scene.connect(f"c{self.count}")
        scene.say(connection, action="resume", cursor=self.cursor)
        scene.replayer.run(connection)
        found = [each for heard in scene.heard(connection) for each in heard.get("events", ())]
        told = [event for event in found if "data" in event][:most]
        self.cursor = told[-1]["id"] if told else self.cursor
        return [int(event["data"]["id"]) for event in told]


class Changes:
    """Lists of `/changes`, each after the previous one."""

    def __init__(self, feed: ConsumerScene) -> None:
        self.feed, self.since, self.lister = feed, 0, feed.scene.lister()

    def read(self, most: int = 1_000) -> list[int]:
        found = self.lister.list(FEED, Query(since=self.since, limit=most))
        self.since = found.next
        places = [place_of(json.loads(entry)["_id"]) for entry in found.entries]
        numbers = {(each.page, each.slot): at for at, each in enumerate(self.feed.places)}
        return [numbers[place] for place in places]


class Named:
    """A named consumer, with another worker each time."""

    def __init__(self, feed: ConsumerScene) -> None:
        self.feed = feed
        feed.register()

    def read(self, most: int = 1_000) -> list[int]:
        session = self.feed.consumers.lease(FEED, "c0", "w")
        found: list[int] = []
        consumer = session.consumer
        while len(found) < most and (entry := self.feed.view.upcoming(consumer)):
            found.append(int(parse_line(entry.line).id))
            consumer = self.feed.view.advance(consumers.ack_entries(consumer, [entry.place]))
        self.feed.ack(session, through=found[-1] if found else None)
        return found


class State:
    """The follower `state`: its pages are in the state, in any order within its buckets."""

    def __init__(self, feed: ConsumerScene) -> None:
        self.feed, self.known = feed, set[str]()

    def read(self, most: int = 1_000) -> list[int]:
        self.feed.scene.project()
        fresh = self.feed.scene.rows().keys() - self.known
        self.known |= fresh
        return sorted(int(key.rsplit("/", 1)[1]) for key in fresh)


CLIENTS = (Stream, Socket, Changes, Named)
EVERYBODY = (*CLIENTS, State)


Kind = Callable[[ConsumerScene], Reader]
HOUR_MS = 3_600_000


# --- 1: an acknowledgement wider than the write -------------------------------------------------


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("handled", range(1, 6))
def test_pattern_1_T12_T14_D31_a_cursor_covers_what_was_handled_and_no_more(
    kind: Kind, handled: int
) -> None:
    """Cut after any message, within a page or at its end, all remaining messages arrive."""
    feed = ConsumerScene()
    reader = kind(feed)
    feed.post("a", "a", "a", together=True)
    feed.post("a", "a")
    feed.scene.project()
    assert reader.read(most=handled) == list(range(handled))
    assert reader.read() == list(range(handled, 5))
    assert reader.read() == []


def test_pattern_1_D30_a_follower_that_fails_has_handled_nothing() -> None:
    """Its checkpoint stays at its place, and the next run writes all of it."""
    state = Breaking()
    feed = ConsumerScene(Scene(state=state))
    feed.post("a", "a", "a", together=True)
    with pytest.raises(Unavailable):
        feed.scene.project()
    assert feed.scene.followers.checkpoints(FEED).get(STATE, 0) == 0
    state.broken = False
    feed.scene.now_ms += limits.LEASE_MS
    feed.scene.project()
    assert len(feed.scene.rows()) == 3


def test_pattern_1_T12_what_a_worker_began_is_not_acknowledged_by_the_next() -> None:
    """It fails in a batch, is overtaken, or ends: unacknowledged messages stay due."""
    feed = ConsumerScene()
    feed.register()
    feed.post("a", "a", "a")
    feed.ack(session := feed.lease(), through=0, sending=2)
    feed.fail(session, None)
    with pytest.raises(FenceLost):
        feed.ack(session, through=2)
    assert feed.due() == [1, 2]


def test_pattern_1_F_a_correction_counts_when_it_is_in_the_log() -> None:
    """A run without its page reports nothing done, and the next one does it once."""
    log = Deaf()
    scene = Scene(log=log)
    log.broken = True
    with pytest.raises(Unavailable):
        corrector(scene).apply(FEED, 0, part(correct("a")))
    log.broken = False
    assert corrector(scene).apply(FEED, 0, part(correct("a"))).applied == 1
    assert corrector(scene).apply(FEED, 0, part(correct("a"))).done == 1


# --- 2: nothing yet, taken for a number ---------------------------------------------------------


@pytest.mark.parametrize("kind", EVERYBODY)
def test_pattern_2_D3_A16_who_begins_is_told_everything(kind: Kind) -> None:
    """The first message of the first page too, and nothing from an empty feed."""
    feed = ConsumerScene()
    reader = kind(feed)
    assert reader.read() == []
    feed.post("a", "a", together=True)
    feed.scene.project()
    assert reader.read() == [0, 1]


@pytest.mark.parametrize(("handled", "floor"), [(None, 1), (0, 1), (1, 2)])
def test_pattern_2_T18_retention_waits_for_who_has_not_begun(
    handled: int | None, floor: int
) -> None:
    """A consumer without an acknowledgement holds the first page, not none of them."""
    feed = ConsumerScene()
    feed.register()
    feed.post("a", "a", "a")
    if handled is not None:
        feed.ack(feed.lease(), through=handled)
    feed.scene.project()
    feed.scene.push()
    feed.scene.now_ms += HOUR_MS
    scene = feed.scene
    retention_service = RetentionService(
        reader=scene.reader,
        retention=Retention(HOUR_MS // 2, 0),
        renewer=scene.retention_service.renewer,
        holds=feed.holds(24 * HOUR_MS),
        followers=scene.retention_service.followers,
    )
    assert retention_service.run(FEED).floor == floor


def test_pattern_2_D9_a_follower_that_never_ran_holds_the_log() -> None:
    """It is before the first page, and counts for the minimum."""
    feed = ConsumerScene()
    feed.post("a", "a")
    feed.scene.project()
    feed.scene.now_ms += 365 * 24 * HOUR_MS
    assert feed.scene.retention_service.run(FEED).floor == 1


# --- 3: a later message before an earlier one ---------------------------------------------------


@pytest.mark.parametrize("kind", CLIENTS)
def test_pattern_3_A8_nobody_reads_over_a_hole(kind: Kind) -> None:
    """A page with an assigned number that is not written yet holds up the later ones."""
    feed = ConsumerScene()
    reader = kind(feed)
    feed.post("a")
    late = feed.scene.log.take(FEED)
    made = page(late, line_from(op("1", type="a"), now_ms=0), at_ms=feed.scene.now_ms)
    feed.places.append(replace(feed.places[0], page=late))
    feed.post("a")
    assert reader.read() == [0]
    feed.scene.log.put(FEED, made)
    assert reader.read() == [1, 2]


def test_pattern_3_A8_who_closes_a_hole_shuts_out_its_writer() -> None:
    """A follower does not wait for ever; a page that it skipped can never be written later."""
    feed = ConsumerScene()
    feed.post("a")
    late = feed.scene.log.take(FEED)
    feed.post("a")
    feed.scene.project()
    made = replace(page(late, line_from(op("9"), now_ms=0)), append_id="late")
    assert feed.scene.log.put(FEED, made) != "late"
    assert Stream(feed).read() == [0, 1]


def test_pattern_3_A8_a_correction_looks_at_no_hole() -> None:
    """Below its number no page may be written any more, or it would overwrite unseen pages."""
    feed = ConsumerScene()
    late = feed.scene.log.take(FEED)
    assert corrector(feed.scene).apply(FEED, 0, part(correct("a"))).applied == 1
    made = replace(page(late, line_from(op("a"), now_ms=0)), append_id="late")
    assert feed.scene.log.put(FEED, made) != "late"


# --- 4: falling off unnoticed -------------------------------------------------------------------


def _fallen() -> ConsumerScene:
    """Return a scene with a consumer after message 0 and a log that begins after message 3."""
    feed = ConsumerScene()
    feed.register()
    feed.post(*"aaaaa")
    feed.ack(feed.lease(), through=0)
    feed.scene.project()
    trimmed(feed.scene, 5)
    return feed


def test_pattern_4_D15_D16_a_named_consumer_is_told() -> None:
    """It gets no lease and passes nothing, and operators see it."""
    feed = _fallen()
    with pytest.raises(ConsumerFellOff, match="the pages between"):
        feed.lease()
    assert feed.consumers.one(FEED, "c0")[1].fell_off
    assert position.last_unneeded_page(feed.consumer().position) == 1


def test_pattern_4_A28_a_list_says_where_the_log_begins() -> None:
    """It returns its floor each time, and a strict request is refused."""
    feed = _fallen()
    lister = feed.scene.lister()
    found = lister.list(FEED, Query(since=end_of(1)))
    assert (found.floor, found.at_start, len(found.entries)) == (end_of(4), True, 1)
    with pytest.raises(BelowFloor):
        lister.list(FEED, Query(since=end_of(1), strict=True))


def test_pattern_4_F40_a_stream_is_told_the_state_instead() -> None:
    """No cursor is dead: the latest of each object, then `live`, then the log."""
    feed = _fallen()
    stream = feed.scene.streamer.open(FEED, feed.places[0].encode())
    text = ""
    while "event: live" not in text:
        text += stream.next().text
    assert all(f'"id":"{number}"' in text for number in range(5))
    assert isinstance(cursors.parse(text.split("id: ", 1)[1][:24]), cursors.Replication)


def test_pattern_4_a_follower_stands_still_and_says_so() -> None:
    """It counts what alarms look at."""
    feed = ConsumerScene()
    feed.post("a", "a")
    trimmed(feed.scene, 2)
    with pytest.raises(FellOff):
        feed.scene.push()
    assert feed.scene.counted["FollowerFellOff"] == 1


def test_pattern_4_a_plan_that_is_too_old_is_refused() -> None:
    """What moved since cannot be known, so nothing is corrected."""
    feed = _fallen()
    with pytest.raises(PlanTooOld):
        corrector(feed.scene).apply(FEED, 1, part(correct("9")))


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
