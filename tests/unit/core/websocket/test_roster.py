"""The roster: a sweep looks at some of the connections, a round of sweeps at all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.fakes import MemoryConnections
from tests.unit.core.scene import FEED, FEEDS, NOW, Scene
from tidings.core import limits
from tidings.core.settings.profiles import Profile
from tidings.core.settings.values import Admission, Ended, with_ending
from tidings.core.websocket.connections import Connection, Portion, Round
from tidings.core.websocket.session import State

PORTION, PORTIONS = 10, 5
EVERYBODY = 230  # five sweeps
SWEEPS = -(-EVERYBODY // (PORTION * PORTIONS))


class Counted(MemoryConnections):
    """Counts what is read of it and how often a round is stored."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.inbox, scene.watches, scene.registry)
        self.read = self.kept = 0

    def portion(self, place: str, limit: int) -> Portion:
        self.read += limit
        return super().portion(place, limit)

    def keep(self, round_: Round) -> None:
        self.kept += 1
        super().keep(round_)


@pytest.fixture
def crowd(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """So many live connections that a sweep comes to some of them only."""
    monkeypatch.setattr(limits, "SWEEP_PORTION", PORTION)
    monkeypatch.setattr(limits, "SWEEP_PORTIONS_MAX", PORTIONS)
    counted = Counted(scene)
    scene.sweeper = replace(scene.sweeper, roster=counted)
    for connection in everybody():
        counted.open(connection)
        scene.connections.open(connection)
    return counted


def everybody() -> list[Connection]:
    return [Connection(f"c{number:03}", NOW, State.LIVE, FEED) for number in range(EVERYBODY)]


def is_replayed(scene: Scene, connection_id: str) -> bool:
    return connection_id in scene.waker.replays


def is_joined(scene: Scene, connection_id: str) -> bool:
    return (connection_id, True) in changes(scene)


def is_let_go(scene: Scene, connection_id: str) -> bool:
    return (connection_id, False) in changes(scene)


def changes(scene: Scene) -> list[tuple[str, bool]]:
    """Whom the push follower is asked to make live, or to let go."""
    return [(change.connection_id, change.joins) for change in scene.inbox.list(FEED)]


def is_cut(scene: Scene, connection_id: str) -> bool:
    return connection_id in scene.sockets.closed


DUE: dict[str, tuple[dict[str, object], Callable[[Scene, str], bool]]] = {
    "a replay that died": ({"state": State.CATCHING_UP, "progress": "{}"}, is_replayed),
    "a leave of a replay": ({"state": State.LEAVING, "progress": "{}"}, is_replayed),
    "a join": ({"state": State.JOINING}, is_joined),
    "a leave": ({"state": State.LEAVING}, is_let_go),
    "a revoked key": ({"admission": Admission("revoked")}, is_cut),
    "a key that ran out": ({"admission": Admission("k", NOW)}, is_cut),
    "an old one": ({"opened_ms": NOW - limits.CONNECTION_MS_MAX - 1}, is_cut),
}


@pytest.mark.parametrize("due", DUE)
@pytest.mark.parametrize("number", [0, EVERYBODY // 2, EVERYBODY - 1])
def test_what_is_due_is_found_within_a_round(
    scene: Scene, crowd: Counted, due: str, number: int
) -> None:
    """Wherever it stands among many; no sweep reads more than its bound."""
    scene.profiles.save(FEED, Profile(ended=(Ended("revoked", NOW),)))
    fields, is_found = DUE[due]
    connection = replace(everybody()[number], **fields)  # type: ignore[arg-type]
    for each in (crowd, scene.connections):
        each.open(connection)
    for _ in range(SWEEPS):
        assert not is_found(scene, connection.id)
        crowd.read = 0
        scene.sweeper.run(FEEDS)
        assert crowd.read <= PORTION * PORTIONS
        if is_found(scene, connection.id):
            return
    pytest.fail(f"{due} was not found by {SWEEPS} sweeps")


def test_a_round_begins_anew(scene: Scene, crowd: Counted) -> None:
    """Each of them comes to everybody; who connects meanwhile is found by the next one."""
    for _ in range(SWEEPS):
        scene.sweeper.run(FEEDS)
    assert crowd.round().place == ""
    crowd.open(Connection("a", NOW, State.CATCHING_UP, FEED, progress="{}"))
    scene.sweeper.run(FEEDS)
    assert scene.waker.replays == ["a"]


def test_a_sweep_that_ends_in_one_stores_nothing(scene: Scene, crowd: Counted) -> None:
    """Few are connected: nothing is written each minute."""
    for connection in everybody()[PORTION * PORTIONS :]:
        crowd.remove(connection.id)
    for _ in range(3):
        scene.sweeper.run(FEEDS)
    assert crowd.kept == 0


def test_a_slow_sweep_stops_early(scene: Scene, crowd: Counted) -> None:
    """It begins no portion behind its time, but one in any case: else it never got on."""

    def slow(task: Callable[[str], None], items: Sequence[str]) -> None:
        scene.now_ms += limits.SWEEP_LOOK_MS

    scene.sweeper = replace(scene.sweeper, spread=slow)
    for connection in everybody():
        crowd.open(replace(connection, state=State.LEAVING))
    for number in range(1, 4):
        scene.sweeper.run(FEEDS)
        assert crowd.read == number * PORTION
        assert crowd.round().place == f"c{number * PORTION - 1:03}"


def test_a_killed_sweep_is_repeated(scene: Scene, crowd: Counted) -> None:
    """The place is stored behind what was done, so nobody is left out."""

    def killed(task: Callable[[str], None], items: Sequence[str]) -> None:
        raise KeyboardInterrupt

    crowd.open(replace(everybody()[PORTION], state=State.LEAVING))
    with pytest.raises(KeyboardInterrupt):
        replace(scene.sweeper, spread=killed).run(FEEDS)
    assert crowd.round() == Round()
    scene.sweeper.run(FEEDS)
    assert is_let_go(scene, everybody()[PORTION].id)


def test_who_is_on_a_socket_is_told_by_the_round(scene: Scene, crowd: Counted) -> None:
    """In its middle no fewer than before; in the first one as many as were counted."""

    def clients() -> int:
        scene.sweeper.run(FEEDS)
        counted = scene.tallies.totals(FEED, now_ms=scene.now_ms).clients
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
    """A thousand keys may end within a round: who may have had one of the others is let go."""
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
    scene.sweeper.run(FEEDS)

    assert scene.sockets.closed == ["k0"]
