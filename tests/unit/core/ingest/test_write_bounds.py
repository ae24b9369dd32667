"""Bounds on posting: objects outside are not changed, whether or not their latest operation is
projected.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.core.scene import FEED, Scene, op, shown
from tidings.core import limits
from tidings.core.auth.guard import Credential, Role
from tidings.core.errors import KeyReused, OutsideKey, Unavailable
from tidings.core.ingest.ingest import PostRequest
from tidings.core.model.filters import Filter
from tidings.core.model.json_body import JSON_TYPE

MINE, THEIRS = ["user/me"], ["user/them"]


class Poster:
    """Posts with a key that is bounded to *MINE*, or with an unbounded one."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._shown = shown(scene.key(Role.INGEST, bound=Filter(parents=frozenset(MINE))))
        self._unbounded = shown(scene.key(Role.INGEST))

    def bounded(self, *operations: dict[str, Any], key: str | None = None) -> list[str]:
        return self._post(operations, key, self._shown)

    def whole(self, *operations: dict[str, Any], key: str | None = None) -> list[str]:
        return self._post(operations, key, self._unbounded)

    def _post(self, operations: object, key: str | None, given: Credential | None) -> list[str]:
        body = json.dumps(operations).encode()
        return self.scene.ingester.accept(PostRequest(FEED, body, JSON_TYPE, key, given))


@pytest.mark.parametrize("projected", [True, False], ids=["in the state", "in the log alone"])
@pytest.mark.parametrize("event", ["delete", "update", "insert"])
def test_what_lies_outside_is_not_touched(scene: Scene, event: str, projected: bool) -> None:
    """A parent within the bound in the operation gives no right to the object; nothing is
    written."""
    poster = Poster(scene)
    poster.whole(op("theirs", parents=THEIRS))
    if projected:
        scene.project()

    with pytest.raises(OutsideKey, match="matches the parents of the key") as refused:
        poster.bounded(op("mine", parents=MINE), op("theirs", event, parents=MINE))
    assert (refused.value.status, refused.value.field) == (403, "operations[1]")
    assert scene.log.head(FEED) == 1


def test_what_lies_within_is(scene: Scene) -> None:
    """New objects, those within the bound, those that came into it, and deleted ones may be
    posted."""
    poster = Poster(scene)
    poster.whole(op("shared", parents=MINE + THEIRS), op("gone", parents=THEIRS))
    poster.whole(op("gone", "delete", parents=THEIRS), op("came", parents=THEIRS))
    scene.project()
    poster.whole(op("came", parents=MINE))

    for name in ("new", "shared", "gone", "came"):
        poster.bounded(op(name, parents=MINE))
        poster.bounded(op(name, "delete", parents=MINE))


def test_what_is_appended_meanwhile_counts(scene: Scene) -> None:
    """If a page came after the check, the taken page number is filled and the post is refused."""
    poster = Poster(scene)
    take = scene.log.take

    def overtaken(feed: str, operations: int = 0) -> int:
        scene.log.take = take  # type: ignore[method-assign]
        poster.whole(op("x", parents=THEIRS))
        return take(feed, operations)

    scene.log.take = overtaken  # type: ignore[method-assign]
    with pytest.raises(OutsideKey):
        poster.bounded(op("x", "delete", parents=MINE))
    assert [page.lines for page in scene.log.read(FEED, 1)] == [[]]
    poster.whole(op("y"))


def test_a_writer_in_flight_is_waited_for_and_not_for_ever(scene: Scene) -> None:
    """Pages before the own page must be known; if they are not, the client has to retry."""
    poster = Poster(scene)
    scene.log.take(FEED)
    with pytest.raises(Unavailable):
        poster.bounded(op("x", parents=MINE))
    assert scene.waits == [limits.BOUND_POLL_MS] * limits.BOUND_POLLS_MAX
    assert sum(scene.waits) < limits.HOLE_GRACE_MS


def test_a_retry_is_the_same_whatever_became_of_the_object(scene: Scene) -> None:
    """It was appended within the bound, and gets the same answer again."""
    poster = Poster(scene)
    first = poster.bounded(op("x", parents=MINE), key="k")
    poster.whole(op("x", parents=THEIRS))
    assert poster.bounded(op("x", parents=MINE), key="k") == first
    with pytest.raises(OutsideKey):
        poster.bounded(op("x", parents=MINE), key="another")


def test_an_idempotency_key_belongs_to_who_gave_it(scene: Scene) -> None:
    """A client that uses another client's key first does not affect that client's posts."""
    poster, other = Poster(scene), Poster(scene)
    poster.bounded(op("squatted", parents=MINE), key="order-1")

    others = [other.bounded(op("x", parents=MINE), key="order-1")]
    others.append(poster.whole(op("y"), key="order-1"))
    assert len(scene.log.read(FEED, 0)) == 3
    assert others == [
        other.bounded(op("x", parents=MINE), key="order-1"),
        poster.whole(op("y"), key="order-1"),
    ]
    with pytest.raises(KeyReused) as refused:
        poster.bounded(op("else", parents=MINE), key="order-1")
    assert refused.value.value == "order-1"
