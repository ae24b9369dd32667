"""The follower `state`: the state equals the fold of the log."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import FEED, PAGE_MS, TOMBSTONE_MS, Scene, line, op
from tidings.core import limits
from tidings.core.state.removed_parents import removed_by
from tidings.core.state.rows import project
from tidings.core.state.tombstones import Remembered

KEYS = [f"video/{name}" for name in "abcd"]

EVENTS = st.sampled_from(["insert", "update", "delete"])
BATCHES = st.lists(
    st.lists(st.builds(op, st.sampled_from("abc"), EVENTS), min_size=1, max_size=4), max_size=6
)


@given(BATCHES, st.integers(0, 6))
def test_the_state_is_the_fold_of_the_log(batches: list[list[dict[str, str]]], runs: int) -> None:
    """This holds for any distribution of the pages over runs."""
    scene = Scene()
    expected = {}
    for at, batch in enumerate(batches):
        scene.post(*batch)
        expected.update({f"video/{each['id']}": line(each["id"], each["event"]) for each in batch})
        if at == runs:
            scene.project()
    scene.project()

    assert scene.rows() == expected


@given(BATCHES, st.integers(0, 5))
def test_pages_seen_again_change_nothing(batches: list[list[dict[str, str]]], back: int) -> None:
    """A run that died before its checkpoint is repeated from there to the same end."""
    scene = Scene()
    for batch in batches:
        scene.post(*batch)
    scene.project()
    before = scene.rows()

    scene.projector.handle(FEED, scene.log.read(FEED, min(back, len(batches))))

    assert scene.rows() == before


class Dying:
    """Wraps a store; the process crashes within the call number *at*, before or after its
    effect."""

    def __init__(self, store: object, calls: list[str], at: int, *, before: bool) -> None:
        self._store, self._calls, self._at, self._before = store, calls, at, before

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self._calls.append(name)
            dies = len(self._calls) == self._at
            if dies and self._before:
                raise Died
            answer = getattr(self._store, name)(*arguments)
            if dies:
                raise Died
            return answer

        return call


class Died(Exception): ...


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("at", range(1, 5))
def test_removed_parents_survive_a_crash_at_any_moment(at: int, before: bool) -> None:
    """The next run stores all removed parents, at whichever step a run crashes: reading the old
    rows, writing removed parents, writing rows, moving the checkpoint.
    """
    scene = Scene()
    scene.keep_removed_parents()
    scene.projected(op("a", parents=["p", "q"]), op("b", parents=["p"]))
    scene.post(op("a", parents=["q"]), op("b", parents=[]))
    scene.post(op("a", parents=["p"]))

    calls: list[str] = []
    states, removed_parents_reader = (
        Dying(store, calls, at, before=before) for store in (scene.state, scene.removed_parents)
    )
    parents = replace(scene.projector.parents, store=removed_parents_reader)
    dying = replace(scene.projector, states=states, parents=parents)
    with suppress(Died):
        dying.handle(FEED, scene.log.read(FEED, 1))
    scene.project()

    assert calls == ["find", "write", "write"][:at]
    pages = scene.removed_parents.read(FEED, 1, 9)
    assert {each.page: each.by_slot for each in pages} == {
        1: {},
        2: {0: ("p",), 1: ("p",)},
        3: {0: ("q",)},
    }


def test_rows_half_written_hide_nothing() -> None:
    """If only some rows were written, the parents that they replaced are still known for all."""
    scene = Scene()
    scene.keep_removed_parents()
    scene.projected(*(op(name, parents=["p"]) for name in "abcd"))
    scene.post(*(op(name, parents=[]) for name in "abcd"))
    (last,) = pages = scene.log.read(FEED, 1)
    scene.removed_parents.write(
        FEED, removed_by(pages, scene.state.find(FEED, KEYS), page_ms=PAGE_MS, forgotten_ms=0)
    )
    scene.state.write(FEED, project(pages, tombstone_ms=TOMBSTONE_MS)[:2])

    scene.project()

    (found,) = scene.removed_parents.read(FEED, last.number, last.number)
    assert found.by_slot == dict.fromkeys(range(4), ("p",))


def test_a_tombstone_may_be_gone_a_minute_early(scene: Scene) -> None:
    """DynamoDB's clock deletes it, ours judges: so near to the end nothing is known."""
    scene.keep_removed_parents()
    scene.post(op("x", parents=["p"]))
    committed_ms = scene.log.read(FEED, 0)[0].at_ms
    scene.tombstones.remember(FEED, None, Remembered(TOMBSTONE_MS, TOMBSTONE_MS, 0))
    scene.now_ms = committed_ms + TOMBSTONE_MS - limits.CLOCK_SKEW_MS_MAX
    scene.project()
    assert scene.removed_parents.read(FEED, 1, 1) == []

    scene.post(op("y", parents=["p"]))
    scene.now_ms += TOMBSTONE_MS - limits.CLOCK_SKEW_MS_MAX - 1_000
    scene.project()
    assert [each.page for each in scene.removed_parents.read(FEED, 1, 2)] == [2]


def test_removed_parents_are_unknown_if_they_were_not_kept(scene: Scene) -> None:
    """From the page on that is handled first with the setting on, they are known."""
    scene.projected(op("a", parents=["p"]))
    scene.keep_removed_parents()
    scene.projected(op("a", parents=["q"]))
    scene.keep_removed_parents(leave=False)
    scene.projected(op("a", parents=["p"]))

    assert [(each.page, each.by_slot) for each in scene.removed_parents.read(FEED, 1, 9)] == [
        (2, {0: ("p",)})
    ]


def test_a_page_that_was_half_handled_without_removed_parents_stays_unknown(scene: Scene) -> None:
    """A run without the setting wrote the page's rows and crashed; the parents that they replaced
    are lost.
    """
    scene.projected(op("a", parents=["p"]))
    scene.post(op("a", parents=["q"]), op("b"))
    scene.projector.handle(FEED, scene.log.read(FEED, 1))
    scene.keep_removed_parents()
    scene.project()

    assert scene.removed_parents.read(FEED, 1, 9) == []


def test_a_feed_that_keeps_none_reads_and_writes_nothing_more(scene: Scene) -> None:
    """It writes only rows, and wakes no other follower."""
    calls: list[str] = []
    scene.projector = replace(
        scene.projector,
        states=Dying(scene.state, calls, 99, before=True),
        parents=replace(
            scene.projector.parents, store=Dying(scene.removed_parents, calls, 99, before=True)
        ),
    )
    scene.projected(op("a", parents=["p"]))

    assert calls == ["write"]
    assert scene.waker.woken == []


def test_a_process_that_waits_for_removed_parents_is_woken(scene: Scene) -> None:
    """It is woken after the checkpoint, once a batch; a run without pages wakes none."""
    scene.keep_removed_parents()
    scene.projected(op("a"))
    scene.project()

    assert scene.waker.woken == [(FEED, "push")]


def test_feeds_have_states_of_their_own(scene: Scene) -> None:
    """The same object in two feeds is two objects."""
    scene.post(op("a"), feed="main")
    scene.post(op("a", "delete"), feed="other")
    scene.project("main")
    scene.project("other")

    assert scene.rows("main") == {"video/a": line("a")}
    assert scene.rows("other") == {"video/a": line("a", "delete")}


def test_a_late_tombstone_stands_before_what_is_under_way(scene: Scene) -> None:
    """Written when its time is over already, it still keeps an earlier write from its object."""
    written = project([scene.post(op("a"))], tombstone_ms=TOMBSTONE_MS)
    scene.post(op("a", "delete"))
    scene.now_ms += TOMBSTONE_MS + limits.RETENTION_MS_MIN
    scene.project()
    scene.state.expire(scene.now_ms)
    scene.state.write(FEED, written)
    (row,) = scene.state.find(FEED, ["video/a"])
    assert row.deleted
