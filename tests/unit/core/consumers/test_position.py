"""The position of a named consumer."""

from __future__ import annotations

import pytest

from tests.unit.core.scene import Scene, op
from tidings.core.consumers import position as positions
from tidings.core.consumers.position import COPY, last_unneeded_page, later, rank
from tidings.core.errors import InvalidConsumer
from tidings.core.model.cursors import PAGE_END, START, Place, Replication

WITHIN = Replication(0, 7, 3, tombstones=False)


def test_D_nothing_acknowledged_comes_before_everything() -> None:
    """It is not a number, so it is not compared with a page by accident."""
    ascending = [
        None,
        COPY,
        Place(6, PAGE_END, 1),
        WITHIN,
        Replication(0, 7, 4, tombstones=False),
        Place(7, 0, 1),
        Place(7, PAGE_END, 1),
    ]
    assert sorted(ascending, key=rank) == ascending
    assert later(None, None) is None
    assert later(None, COPY) is COPY
    assert later(WITHIN, COPY) is WITHIN


def test_what_is_not_needed_any_more() -> None:
    """A page with unhandled entries is still needed; before a copy begins no page of the log is."""
    assert last_unneeded_page(None) == 0
    assert last_unneeded_page(COPY) is None
    assert last_unneeded_page(WITHIN) == 7
    assert last_unneeded_page(Place(7, 2, 1)) == 6
    assert last_unneeded_page(Place(7, PAGE_END, 1)) == 7


@pytest.mark.parametrize("position", [None, COPY, WITHIN, Place(7, 2, 1)])
def test_as_it_is_told(position: positions.Position | None) -> None:
    """An encoded position can be read again."""
    assert positions.read(positions.encode_position(position)) == position


def test_the_oldest_page_of_a_trimmed_log(scene: Scene) -> None:
    """A consumer that begins there gets exactly the log from its floor."""
    for name in "abcd":
        scene.post(op(name))
    scene.project()
    for floor, wanted in ((1, "abcd"), (3, "cd")):
        scene.log.raise_floor("main", floor)
        connection = scene.resume(positions.oldest(floor), f"c{floor}")
        assert [name for name in scene.events(connection) if name != "live"] == list(wanted)
    assert positions.oldest(1) == START.encode()


@pytest.mark.parametrize("text", ["", "now", "0", "zz", None, 7, "123"])
def test_only_ids_of_events_are_places(text: object) -> None:
    """Other kinds of cursor do not say which events were handled."""
    with pytest.raises(InvalidConsumer) as refused:
        positions.parse_position(text, "through")
    assert refused.value.field == "through"


def test_an_entry_is_one_operation() -> None:
    """The end of a page and a place in a copy are not operations."""
    assert positions.entry(Place(7, 2, 1).encode(), "id") == Place(7, 2, 1)
    for other in (Place(7, PAGE_END, 1), WITHIN):
        with pytest.raises(InvalidConsumer):
            positions.entry(other.encode(), "id")
