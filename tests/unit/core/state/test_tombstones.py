"""Since when deletions are remembered, whatever the settings were and are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryTombstones
from tests.unit.core.following import held_after
from tests.unit.core.scene import FEED, NOW, TOMBSTONE_MS, Scene, op
from tests.unit.core.sync.test_apply import correct, corrector, part
from tidings.core import limits
from tidings.core.errors import PlanTooOld, Unavailable
from tidings.core.model.cursors import Place
from tidings.core.state import tombstones
from tidings.core.state.tombstones import Remembered

FOREIGN = 2**39  # the page of a foreign id: no log can have given that many

DAY = 24 * 3600 * 1000
SKEW = limits.CLOCK_SKEW_MS_MAX


def redeployed(scene: Scene, life_ms: int) -> None:
    """Change the retention as in `OPERATIONS.md`; the next run of the state notes it."""
    scene.projector = replace(scene.projector, runtime=replace(scene.runtime, tombstone_ms=life_ms))


@pytest.mark.parametrize("lives", [(21 * DAY,), (TOMBSTONE_MS + DAY, TOMBSTONE_MS, 21 * DAY)])
def test_a_deletion_is_told_after_the_retention_grew(scene: Scene, lives: tuple[int, ...]) -> None:
    """Its tombstone has expired under the earlier retention, so the client gets a reset and
    everything again.
    """
    cursor = scene.projected(op("x")).end.encode()
    scene.now_ms += 600_000
    scene.projected(op("x", "delete"))
    for life_ms in lives:
        redeployed(scene, life_ms)
        scene.projected(op("y"), op("z", "delete"))
        scene.now_ms += 8 * DAY // len(lives)
    scene.push()
    scene.retention_service.run(FEED)
    scene.log.expire(scene.now_ms)
    scene.state.expire(scene.now_ms)

    assert held_after(scene, cursor, {"x"}) == {"y"}


def test_a_plan_grows_too_old_by_the_tombstones_there_are(scene: Scene) -> None:
    """Half of the life that they were written with, not of the one they would have now."""
    scene.projected(op("z", "delete"))
    redeployed(scene, 40 * DAY)
    scene.projected(op("y", "delete"))
    scene.now_ms += 8 * DAY

    with pytest.raises(PlanTooOld):
        corrector(scene).apply(FEED, 1, part(correct("z")))


@pytest.mark.parametrize(
    ("at_ms", "since_ms"),
    [
        (NOW, NOW - 7 * DAY),
        (NOW + SKEW + 7 * DAY, NOW + SKEW),
        (NOW + 10 * DAY, NOW + SKEW),
        (NOW + SKEW + 21 * DAY, NOW + SKEW),
        (NOW + 30 * DAY, NOW + 9 * DAY),
    ],
)
def test_known_since(at_ms: int, since_ms: int) -> None:
    """The retention grows from 7 to 21 days at NOW: first the earlier one counts, then the change,
    then the new one.
    """
    remembered = Remembered(7 * DAY, 7 * DAY, 0).then(21 * DAY, NOW)

    assert remembered.known_since(at_ms) == since_ms


_CHANGES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 12)), min_size=1, max_size=8)


@given(_CHANGES, st.integers(0, 20))
def test_no_deletion_that_is_gone_counts_as_known(
    changes: list[tuple[int, int]], after: int
) -> None:
    """This holds for any sequence of retentions, and for writers' clocks that are ahead."""
    noted, now, gone = Remembered(5 * DAY, 5 * DAY, 0), NOW, []
    for days, later in changes:
        noted = noted if noted.life_ms == days * DAY else noted.then(days * DAY, now)
        for late in (0, SKEW - 1):  # its page may be stamped ahead
            gone.append((now + late, now + late + days * DAY))
        gone.append((now - DAY, now - DAY + days * DAY))
        now += later * DAY // 2
        gone.append((now, now + days * DAY))
    now += after * DAY // 2
    since_ms = noted.known_since(now)

    assert all(deleted < since_ms for deleted, expires in gone if expires < now)


def test_a_note_is_written_once(scene: Scene) -> None:
    """It is written before the first tombstone under a setting, and before the first page of a
    feed."""
    scene.projected(op("a"))
    assert scene.tombstones.remembered(FEED) == Remembered(TOMBSTONE_MS, TOMBSTONE_MS, 0)
    scene.projected(op("a", "delete"))
    redeployed(scene, DAY)
    scene.projected(op("b"))
    assert scene.tombstones.remembered(FEED) == Remembered(TOMBSTONE_MS, TOMBSTONE_MS, 0)


def test_a_feed_of_an_earlier_release(scene: Scene) -> None:
    """It has no note, so its tombstones are assumed to have lived as long as the minimal
    retention."""
    assert tombstones.known_since(scene.tombstones, FEED, NOW) == NOW - limits.TOMBSTONE_MS_MIN
    note = tombstones.note(scene.tombstones, FEED, 21 * DAY, NOW, first=False)
    assert note == Remembered(21 * DAY, limits.TOMBSTONE_MS_MIN, NOW + SKEW)


def test_tombstones_of_another_deployment_may_live_shorter(scene: Scene) -> None:
    """A copy has its upstream's tombstones; objects deleted later are kept for the own
    retention."""
    tombstones.note(scene.tombstones, FEED, 21 * DAY, NOW, first=True)
    tombstones.note_copied(scene.tombstones, FEED, 21 * DAY, NOW)

    later = NOW + 10 * DAY
    assert tombstones.known_since(scene.tombstones, FEED, later) == NOW + SKEW


def test_nothing_is_written_where_the_note_is_not() -> None:
    """Of two functions with different settings, one that cannot save its note writes no
    tombstones."""

    class Contended(MemoryTombstones):
        def remember(self, feed: str, old: Remembered | None, new: Remembered) -> bool:
            return False

    scene = Scene(tombstones=Contended())
    scene.post(op("a", "delete"))
    with pytest.raises(Unavailable):
        scene.project()
    assert scene.rows() == {}


def test_two_functions_with_other_settings(scene: Scene) -> None:
    """The next writer notes its own setting; for earlier tombstones the smaller one counts."""
    for life_ms in (21 * DAY, TOMBSTONE_MS, 21 * DAY, TOMBSTONE_MS):
        redeployed(scene, life_ms)
        scene.projected(op("x", "delete"))
    remembered = scene.tombstones.remembered(FEED)

    assert remembered == Remembered(TOMBSTONE_MS, TOMBSTONE_MS, NOW + SKEW)


def test_half_a_minute_is_not_known(scene: Scene) -> None:
    """A cursor from before what is known gets `reset`."""
    scene.tombstones.remember(FEED, None, Remembered(21 * DAY, DAY, NOW))
    scene.projected(op("x"))
    scene.now_ms = NOW + DAY + 3 * 3600_000
    seconds = (NOW + 2 * 3600_000) // 1000

    assert scene.catch_up.start(FEED, Place(FOREIGN, 0, seconds)).resets
    assert not scene.catch_up.start(FEED, Place(FOREIGN, 0, seconds + 3600)).resets
