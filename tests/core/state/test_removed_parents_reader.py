"""What is asked of the follower `state`: how far departures are settled, and which they are."""

from __future__ import annotations

from tidings.core.state.removed_parents import RemovedParents

from tests.core.scene import FEED, Scene, op, page


def test_settled_is_what_the_state_has_handled(scene: Scene) -> None:
    """Whether or not there was anything to write down."""
    assert scene.departure_reader.until(FEED) == 0

    scene.post(op("a"))
    assert scene.departure_reader.until(FEED) == 0

    scene.project()
    assert scene.departure_reader.until(FEED) == 1


def test_unknown_pages_are_not_in_it(scene: Scene) -> None:
    """A page that is known to leave nothing is."""
    scene.departures.write(FEED, [RemovedParents(1, '{"0":["p"]}'), RemovedParents(3, "{}")])

    found = scene.departure_reader.left(FEED, [page(1), page(2), page(3)])

    assert found == {1: {0: ("p",)}, 3: {}}
    assert scene.departure_reader.left(FEED, []) == {}
