"""The roster: a sweep checks some of the connections, a round of sweeps all of them.

Lanes of push: which lane serves a connection, and how a connection moves between lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.fakes import MemoryConnections
from tests.unit.core.scene import FEED, NOW, Scene, op
from tidings.core import limits
from tidings.core.effects import Spread
from tidings.core.errors import InvalidSetting
from tidings.core.followers.follower import effective_checkpoints
from tidings.core.maintenance.sweep import Sweeper
from tidings.core.model.feeds import lane_of, pushers
from tidings.core.settings.profiles import Profile, validate
from tidings.core.settings.values import Admission, Ended, with_ending
from tidings.core.websocket.connections import (
    Change,
    Connection,
    ConnectionPage,
    Round,
    lane_for,
    storage_key,
)
from tidings.core.websocket.session import State

PAGE_SIZE, PAGES = 10, 5
EVERYBODY = 230  # five sweeps
SWEEPS = -(-EVERYBODY // (PAGE_SIZE * PAGES))


class Counted(MemoryConnections):
    """Counts what is read of it and how often a round is stored."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.inbox, scene.subscriptions, scene.registry)
        self.read = self.kept = 0

    def page(self, place: str, limit: int) -> ConnectionPage:
        self.read += limit
        return super().page(place, limit)

    def keep(self, round_: Round) -> None:
        self.kept += 1
        super().keep(round_)


@pytest.fixture
def crowd(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Create more live connections than one sweep checks."""
    monkeypatch.setattr(limits, "SWEEP_PAGE", PAGE_SIZE)
    monkeypatch.setattr(limits, "SWEEP_PAGES_MAX", PAGES)
    counted = Counted(scene)
    delivery = replace(scene.delivery, connections=counted)
    connections = replace(scene.sweeper.connections, delivery=delivery)
    scene.sweeper = replace(scene.sweeper, connections=connections)
    for connection in everybody():
        counted.open(connection)
        scene.connections.open(connection)
    return counted


def spreading(scene: Scene, spread: Spread) -> Sweeper:
    """Return the sweeper with *spread* for connections."""
    runtime = replace(scene.runtime, spread=spread)
    connections = replace(scene.sweeper.connections, runtime=runtime)
    return replace(scene.sweeper, connections=connections)


def everybody() -> list[Connection]:
    return [Connection(f"c{number:03}", NOW, State.LIVE, FEED) for number in range(EVERYBODY)]


def is_replayed(scene: Scene, connection_id: str) -> bool:
    return connection_id in scene.waker.replays


def is_joined(scene: Scene, connection_id: str) -> bool:
    return (connection_id, True) in changes(scene)


def is_released(scene: Scene, connection_id: str) -> bool:
    return (connection_id, False) in changes(scene)


def changes(scene: Scene) -> list[tuple[str, bool]]:
    """Return the connections that the push follower is asked to add or to remove."""
    return [(change.connection_id, change.joins) for change in scene.inbox.list(FEED)]


def is_cut(scene: Scene, connection_id: str) -> bool:
    return connection_id in scene.sockets.closed


DUE: dict[str, tuple[dict[str, object], Callable[[Scene, str], bool]]] = {
    "a replay that died": ({"state": State.CATCHING_UP, "progress": "{}"}, is_replayed),
    "a leave of a replay": ({"state": State.LEAVING, "progress": "{}"}, is_replayed),
    "a join": ({"state": State.JOINING}, is_joined),
    "a leave": ({"state": State.LEAVING}, is_released),
    "a revoked key": ({"admission": Admission("revoked")}, is_cut),
    "a key that ran out": ({"admission": Admission("k", NOW)}, is_cut),
    "an old one": ({"opened_ms": NOW - limits.CONNECTION_MS_MAX - 1}, is_cut),
}


@pytest.mark.parametrize("due", DUE)
@pytest.mark.parametrize("number", [0, EVERYBODY // 2, EVERYBODY - 1])
def test_what_is_due_is_found_within_a_round(
    scene: Scene, crowd: Counted, due: str, number: int
) -> None:
    """This holds for any place among many connections; no sweep reads more than its bound."""
    scene.profiles.save(FEED, Profile(ended=(Ended("revoked", NOW),)))
    fields, is_found = DUE[due]
    connection = replace(everybody()[number], **fields)  # type: ignore[arg-type]
    for each in (crowd, scene.connections):
        each.open(connection)
    for _ in range(SWEEPS):
        assert not is_found(scene, connection.id)
        crowd.read = 0
        scene.sweeper.run()
        assert crowd.read <= PAGE_SIZE * PAGES
        if is_found(scene, connection.id):
            return
    pytest.fail(f"{due} was not found by {SWEEPS} sweeps")


def test_a_round_begins_anew(scene: Scene, crowd: Counted) -> None:
    """Each round checks all connections; new ones are checked by the next round."""
    for _ in range(SWEEPS):
        scene.sweeper.run()
    assert crowd.round().resume_at == ""
    crowd.open(Connection("a", NOW, State.CATCHING_UP, FEED, progress="{}"))
    scene.sweeper.run()
    assert scene.waker.replays == ["a"]


def test_a_sweep_that_ends_in_one_stores_nothing(scene: Scene, crowd: Counted) -> None:
    """Few are connected: nothing is written each minute."""
    for connection in everybody()[PAGE_SIZE * PAGES :]:
        crowd.remove(connection.id)
    for _ in range(3):
        scene.sweeper.run()
    assert crowd.kept == 0


def test_a_slow_sweep_stops_early(scene: Scene, crowd: Counted) -> None:
    """It begins no page after its time is up, but always one, so that it makes progress."""

    def slow(task: Callable[[str], None], items: Sequence[str]) -> None:
        scene.now_ms += limits.SWEEP_LOOK_MS

    scene.sweeper = spreading(scene, slow)
    for connection in everybody():
        crowd.open(replace(connection, state=State.LEAVING))
    for number in range(1, 4):
        scene.sweeper.run()
        assert crowd.read == number * PAGE_SIZE
        assert crowd.round().resume_at == f"c{number * PAGE_SIZE - 1:03}"


def test_a_killed_sweep_is_repeated(scene: Scene, crowd: Counted) -> None:
    """The place is stored after the work is done, so that no connection is skipped."""

    def killed(task: Callable[[str], None], items: Sequence[str]) -> None:
        raise KeyboardInterrupt

    crowd.open(replace(everybody()[PAGE_SIZE], state=State.LEAVING))
    with pytest.raises(KeyboardInterrupt):
        spreading(scene, killed).run()
    assert crowd.round() == Round()
    scene.sweeper.run()
    assert is_released(scene, everybody()[PAGE_SIZE].id)


def test_who_is_on_a_socket_is_told_by_the_round(scene: Scene, crowd: Counted) -> None:
    """The first round counts up; later ones never report fewer in the middle of a round."""

    def clients() -> int:
        scene.sweeper.run()
        counted = scene.counters.totals(FEED, now_ms=scene.now_ms).clients
        scene.now_ms += limits.SWEEP_EVERY_MS
        return counted

    assert [clients() for _ in range(SWEEPS)] == [50, 100, 150, 200, EVERYBODY]
    for connection in everybody()[-30:]:
        crowd.remove(connection.id)
    assert [clients() for _ in range(4)] == [EVERYBODY] * 3 + [200]
    for connection in everybody()[20:]:
        crowd.remove(connection.id)
    assert [clients() for _ in range(2)] == [20, 20]
    assert crowd.round() == Round()


def test_an_ending_that_was_forgotten_before_it_came_by(scene: Scene) -> None:
    """A thousand keys may end within a round: connections whose key may have been forgotten are
    closed.
    """
    scene.now_ms += 2 * limits.KEY_AGE_MS + 3 * limits.CLOCK_SKEW_MS_MAX
    keys = (f"k{number}" for number in range(limits.ENDED_MAX + 1))
    ended: tuple[Ended, ...] = ()
    for key in keys:
        ended = with_ending(ended, Ended(key, NOW + 1))
    scene.profiles.save(FEED, Profile(ended=ended))
    live = Connection("", NOW, State.LIVE, FEED)
    for name, admission in (("k0", Admission("k0")), ("password", Admission())):
        scene.connections.open(replace(live, id=name, admission=admission))
    scene.connections.open(
        replace(live, id="new", opened_ms=scene.now_ms, admission=Admission("k"))
    )
    scene.sweeper.run()

    assert scene.sockets.closed == ["k0"]


def named(lane: int, lanes: int) -> str:
    """Return a connection id that belongs to *lane* out of *lanes*."""
    return next(name for name in map(str, range(1000)) if lane_for(name, lanes) == lane)


def subscribed(scene: Scene, name: str) -> str:
    """Open a connection that follows the feed from now on, as soon as its lane runs."""
    scene.connect(name)
    scene.say(name, action="subscribe", types=["video"], cursor="now")
    return name


def run(scene: Scene, *lanes: int) -> None:
    """Run these lanes, each in a process that began for it."""
    for number in lanes:
        scene.follow(scene.lane(number))


def test_the_followers_of_lanes_are_named_after_push() -> None:
    """The first one keeps the name that a feed without lanes has."""
    assert pushers(3) == ("push", "push-1", "push-2")
    assert [lane_of(name) for name in (*pushers(3), "state", "archive")] == [0, 1, 2, None, None]
    assert storage_key("main", 0) == "main"
    assert storage_key("main", 2) != "main"


def test_connections_are_spread_evenly() -> None:
    """Each of 8 lanes has an eighth, within a tenth."""
    counts = Counter(lane_for(f"connection-{number}=", 8) for number in range(16_000))
    assert sorted(counts) == list(range(8))
    assert max(counts.values()) < 2_200
    assert min(counts.values()) > 1_800


@pytest.mark.parametrize(("fewer", "more"), [(1, 2), (1, 4), (2, 4), (3, 8)])
def test_no_connection_moves_between_lanes_that_stay(fewer: int, more: int) -> None:
    """A connection moves only to a new lane, or back from one."""
    for name in map(str, range(2_000)):
        before, after = lane_for(name, fewer), lane_for(name, more)
        assert after == before or after >= fewer


@pytest.mark.parametrize("lanes", [0, -1, limits.PUSH_LANES_MAX + 1])
def test_a_feed_has_some_lanes_and_not_too_many(lanes: int) -> None:
    """The error names the field, the value and the rule."""
    with pytest.raises(InvalidSetting, match="32") as raised:
        validate(Profile(push_lanes=lanes))
    assert (raised.value.field, raised.value.value) == ("push_lanes", lanes)


def test_a_connection_joins_the_lane_of_its_id(scene: Scene) -> None:
    """Only that lane sends to it; the first lane wakes the others."""
    scene.configure(push_lanes=2)
    first, second = subscribed(scene, named(0, 2)), subscribed(scene, named(1, 2))
    run(scene, 0, 1)
    scene.waker.woken.clear()
    scene.post(op("a"))

    run(scene, 0)
    assert (scene.events(first), scene.events(second)) == (["a"], [])
    assert (FEED, "push-1") in scene.waker.woken
    run(scene, 1)
    assert (scene.events(first), scene.events(second)) == (["a"], ["a"])


def test_a_lane_at_work_is_left_a_mark(scene: Scene) -> None:
    """It needs no run of the function to see that the feed moved."""
    scene.configure(push_lanes=2)
    lease = scene.followers.take(FEED, "push-1", owner="it", now_ms=scene.now_ms)
    scene.waker.woken.clear()
    scene.post(op("a"))
    run(scene, 0)

    assert (FEED, "push-1") not in scene.waker.woken
    assert not scene.followers.release(lease)


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2), (4, 1), (2, 3)])
def test_nobody_misses_a_page_when_the_lanes_change(scene: Scene, before: int, after: int) -> None:
    """Each page arrives once and in order, whether the new lane runs before or after the others."""
    scene.configure(push_lanes=before)
    names = [subscribed(scene, f"c{number}") for number in range(12)]
    run(scene, *range(before))
    scene.post(op("a"))
    run(scene, *range(before))
    scene.configure(push_lanes=after)
    scene.post(op("b"))
    run(scene, *reversed(range(max(before, after))))
    scene.post(op("c"))
    for _ in range(3):
        run(scene, *range(max(before, after)))

    assert [scene.events(name) for name in names] == [["a", "b", "c"]] * 12
    for name in names:
        connection = scene.connection(name)
        assert (connection.state, connection.lane) == (State.LIVE, lane_for(name, after))
    assert [lane for lane in range(4) if scene.subscriptions.all(storage_key(FEED, lane))] == list(
        range(after)
    )


def test_a_lane_moves_so_many_a_turn(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others move in the next batches of the same run."""
    monkeypatch.setattr(limits, "CHANGES_MAX", 2)
    names = [subscribed(scene, f"c{number}") for number in range(12)]
    for _ in range(6):
        run(scene, 0)
    scene.configure(push_lanes=4)
    scene.now_ms += limits.PROFILE_AGE_MS
    lane, turns = scene.lane(0), 0
    while lane.prepare(FEED, 0):
        turns += 1

    assert turns > 2
    assert {lane_for(each.connection_id, 4) for each in scene.subscriptions.all(FEED)} == {0}
    assert all(scene.connection(name).feed == FEED for name in names)


def test_a_lane_that_dies_while_it_lets_go_sends_nothing_more(scene: Scene) -> None:
    """The note in its inbox is handled before anything is sent, so the subscription is removed
    first."""
    name = subscribed(scene, named(1, 2))
    run(scene, 0)
    scene.configure(push_lanes=2)
    old = scene.connection(name)
    note = Change(name, False, old.filter, 0, "t", moves=True)
    scene.inbox.post(FEED, note)
    assert scene.connections.update(old, old.with_fields(state=State.JOINING, lane=1, since=0))

    scene.configure(push_lanes=1)  # and it belongs to the first lane again
    scene.post(op("a"))
    run(scene, 0)
    assert scene.events(name) == []
    assert scene.inbox.list(FEED) == []
    run(scene, 1)
    assert scene.events(name) == ["a"]
    run(scene, 1, 0)
    assert scene.connection(name).lane == 0
    scene.pushed(op("b"))
    assert scene.events(name) == ["a", "b"]


def test_a_lane_that_dies_amid_a_move_goes_on_with_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It completes the move before it sends: the connection now belongs to the other lane."""
    name = subscribed(scene, named(1, 2))
    lane = scene.lane(0)
    scene.follow(lane)
    scene.configure(push_lanes=2)
    scene.now_ms += limits.PROFILE_AGE_MS
    update = scene.connections.update

    def dies(old: Connection, new: Connection) -> bool:
        update(old, new)
        raise RuntimeError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(scene.connections, "update", dies)
        with pytest.raises(RuntimeError):
            lane.prepare(FEED, 0)
    assert scene.connection(name).lane == 1
    page = scene.post(op("a"))
    lane.prepare(FEED, 0)
    lane.handle(FEED, [page])
    assert scene.events(name) == []
    assert scene.subscriptions.all(FEED) == []
    run(scene, 1)
    assert scene.events(name) == ["a"]


def test_a_begun_move_comes_before_all_who_join(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any number of them: otherwise its old subscription would get later events."""
    monkeypatch.setattr(limits, "CHANGES_MAX", 1)
    name = subscribed(scene, named(1, 2))
    run(scene, 0)
    old = scene.connection(name)
    scene.inbox.post(FEED, Change(name, False, old.filter, 0, "t", moves=True))
    assert scene.connections.update(old, old.with_fields(state=State.JOINING, lane=1, since=0))
    for number in (0, 1):  # before it in the inbox
        subscribed(scene, f"!{number}")
    page = scene.post(op("a"))

    lane = scene.lane(0)
    assert lane.prepare(FEED, 0)
    lane.handle(FEED, [page])
    assert scene.events(name) == []


@pytest.mark.parametrize("at", [0, 1])
def test_who_unsubscribes_while_it_moves_is_let_go(scene: Scene, at: int) -> None:
    """The lane that the connection names closes it, before or after the move."""
    name = subscribed(scene, named(1, 2))
    run(scene, 0)
    scene.configure(push_lanes=2)
    if at:
        run(scene, 0)
    scene.say(name, action="unsubscribe")
    scene.post(op("a"))
    run(scene, 0, 1)

    assert scene.events(name) == []
    assert scene.connection(name).state is State.OPEN
    assert scene.subscriptions.all(FEED) == scene.subscriptions.all(storage_key(FEED, 1)) == []


def test_a_new_lane_begins_where_the_first_one_stands(scene: Scene) -> None:
    """Before that it reads only the page at its start, as it has no connections."""
    scene.fill(50, "x")
    run(scene, 0)
    scene.configure(push_lanes=2)
    scene.post(op("a"))
    reads = scene.reads()
    run(scene, 1)

    assert min(reads) == 49
    assert scene.followers.checkpoints(FEED)["push-1"] == 51


def test_a_lane_with_somebody_begins_where_it_stopped(scene: Scene) -> None:
    """Its connection needs the pages that it has not sent."""
    scene.configure(push_lanes=2)
    name = subscribed(scene, named(1, 2))
    run(scene, 0, 1)
    scene.post(op("a"))
    run(scene, 0)
    scene.post(op("b"))
    run(scene, 0, 1)

    assert scene.events(name) == ["a", "b"]


def test_lanes_given_up_are_woken_until_they_are_empty(scene: Scene) -> None:
    """The first lane wakes them as long as it has them cached, and so does the sweep."""
    scene.configure(push_lanes=3)
    name = subscribed(scene, named(2, 3))
    run(scene, 0, 1, 2)
    first = scene.pusher
    scene.pushed(op("a"))
    scene.configure(push_lanes=1)
    scene.now_ms += limits.PROFILE_AGE_MS
    scene.waker.woken.clear()
    scene.post(op("b"))
    scene.follow(first)
    assert (FEED, "push-2") in scene.waker.woken

    scene.waker.woken.clear()
    scene.sweeper.run()
    assert (FEED, "push-2") in scene.waker.woken
    run(scene, 2, 0)
    assert scene.events(name) == ["a", "b"]
    scene.waker.woken.clear()
    scene.sweeper.run()
    assert (FEED, "push-2") not in scene.waker.woken


def test_lanes_given_up_are_not_woken_for_hours(scene: Scene) -> None:
    """After the clock was set back, only the sweep wakes a lane that still has a connection."""
    scene.configure(push_lanes=3)
    subscribed(scene, named(2, 3))
    run(scene, 0, 1, 2)
    first = scene.pusher
    scene.pushed(op("a"))
    scene.configure(push_lanes=1)
    scene.now_ms += limits.PROFILE_AGE_MS
    scene.post(op("b"))
    scene.follow(first)
    scene.now_ms -= 2 * 3_600_000
    scene.waker.woken.clear()
    scene.post(op("c"))
    scene.follow(first)
    assert (FEED, "push-2") not in scene.waker.woken
    scene.sweeper.run()
    assert (FEED, "push-2") in scene.waker.woken


def test_retention_and_status_wait_for_lanes_that_a_feed_has() -> None:
    """A lane that never ran counts as being at the first lane's checkpoint; a removed lane is
    ignored."""
    stored = {"state": 9, "push": 7, "push-1": 3, "push-2": 1}
    assert effective_checkpoints(stored, archives=False) == {"state": 9, "push": 7}
    assert effective_checkpoints(stored, archives=False, lanes=2) == {
        "state": 9,
        "push": 7,
        "push-1": 3,
    }
    assert effective_checkpoints({"push": 7}, archives=True, lanes=2) == {
        "archive": 0,
        "state": 0,
        "push": 7,
        "push-1": 7,
    }


def test_two_processes_that_believe_in_other_numbers_agree(scene: Scene) -> None:
    """A lane reads the setting again before it removes a connection."""
    scene.configure(push_lanes=2)
    late = scene.lane(1)
    late.lane.lanes.count(FEED)  # remembered
    name = subscribed(scene, named(1, 4))
    scene.configure(push_lanes=4)
    run(scene, 0)
    scene.follow(late)
    for lane in (0, 1, 2, 3):
        run(scene, lane)

    assert scene.connection(name).lane == lane_for(name, 4)


def test_processes_that_take_turns_look_for_nobody_where_there_is_one_lane(scene: Scene) -> None:
    """A feed of many subscriptions would be read whole at each turn."""
    looks: list[str] = []

    def counted(feed: str) -> int:
        looks.append(feed)
        return 1

    lanes = [scene.lane(0), scene.lane(0)]
    for lane in lanes:
        lane.lane.lanes = replace(lane.lane.lanes, recount=counted)
    subscribed(scene, "c")
    for lane in lanes * 3:
        scene.post(op("a"))
        scene.follow(lane)

    assert looks == []


def test_whom_another_process_let_in_is_moved(scene: Scene) -> None:
    """This includes a number of lanes that is again the one in a process's cache."""
    scene.configure(push_lanes=3)
    warm = scene.lane(3)
    scene.follow(warm)
    scene.configure(push_lanes=4)
    scene.now_ms += limits.PROFILE_AGE_MS
    name = subscribed(scene, named(3, 4))
    run(scene, 3)
    scene.configure(push_lanes=3)
    scene.now_ms += limits.PROFILE_AGE_MS
    scene.follow(warm)

    assert scene.connection(name).lane == lane_for(name, 3)
    assert scene.subscriptions.all(storage_key(FEED, 3)) == []
