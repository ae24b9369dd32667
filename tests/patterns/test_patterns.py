"""The first four of nine defects that other feeds had, looked for in every consumer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.patterns.readers import CLIENTS, EVERYBODY, Reader, Stream
from tests.patterns.stores import Breaking, Deaf
from tests.unit.core.consumers.consumer_scene import ConsumerScene
from tests.unit.core.following import trimmed
from tests.unit.core.scene import FEED, Scene, op, page
from tests.unit.core.sync.test_apply import correct, corrector, part
from tidings.core import limits
from tidings.core.changeagent.changes import end_of
from tidings.core.changeagent.list import Query
from tidings.core.consumers import position
from tidings.core.errors import (
    BelowFloor,
    ConsumerFellOff,
    FellOff,
    FenceLost,
    PlanTooOld,
    Unavailable,
)
from tidings.core.followers.follower import STATE
from tidings.core.maintenance.retention import RetentionService
from tidings.core.model import cursors
from tidings.core.model.feeds import Retention
from tidings.core.model.operations import line_from

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
