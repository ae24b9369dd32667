"""The follower `state`: the state equals the fold of the log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tidings.core.projecting import STATE

from tests.unit.scene import FEED, NOW, TOMBSTONE_MS, Scene, line, op, page

EVENTS = st.sampled_from(["insert", "update", "delete"])
BATCHES = st.lists(
    st.lists(st.builds(op, st.sampled_from("abc"), EVENTS), min_size=1, max_size=4), max_size=6
)


@given(BATCHES, st.integers(0, 6))
def test_the_state_is_the_fold_of_the_log(batches: list[list[dict[str, str]]], runs: int) -> None:
    """However the pages are spread over runs."""
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


def test_deleted_objects_leave_a_tombstone(scene: Scene) -> None:
    """With the time at which it may go."""
    scene.projector.handle(FEED, [page(1, line("a", "delete"))])

    (row,) = [row for bucket in range(64) for row in scene.state.read(FEED, bucket)]
    assert row.deleted and row.expires_ms == NOW + TOMBSTONE_MS


def test_fillers_write_nothing(scene: Scene) -> None:
    """Not even an empty batch."""
    scene.projector.prepare(FEED, 0)
    scene.projector.handle(FEED, [page(1), page(2)])

    assert scene.rows() == {}
    assert scene.projector.name == STATE


def test_feeds_have_states_of_their_own(scene: Scene) -> None:
    """The same object in two feeds is two objects."""
    scene.post(op("a"), feed="main")
    scene.post(op("a", "delete"), feed="other")
    scene.project("main")
    scene.project("other")

    assert scene.rows("main") == {"video/a": line("a")}
    assert scene.rows("other") == {"video/a": line("a", "delete")}


def test_keys_are_those_of_the_objects(scene: Scene) -> None:
    """A type with a slash in it, too."""
    scene.post(op("c", type="a/b"), op("b/c", type="a"))
    scene.project()

    assert set(scene.rows()) == {"a%2Fb/c", "a/b/c"}
