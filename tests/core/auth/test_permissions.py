"""Needs: who is let in, and what a bounded key is answered."""

from __future__ import annotations

import pytest
from tidings.core.auth.guard import ALL, Credential, Role
from tidings.core.auth.permissions import (
    ANYBODY,
    COPIES,
    POSTS,
    READS,
    READS_ALL,
    STEERS,
    Bounded,
    Need,
)
from tidings.core.errors import OutsideKey
from tidings.core.model.filters import Filter

from tests.core.scene import FEED, Scene

TYPES, PARENTS = Filter(frozenset({"video"})), Filter(parents=frozenset({"user/42"}))


def shown(scene: Scene, need: Need, bound: Filter) -> bool:
    """Whether a key with every role of the need, bounded so, is let in."""
    given = scene.key(need.role or Role.READ, bound=bound)
    try:
        allowed = need.admit(scene.guard, FEED, Credential(given.spelled()))
    except OutsideKey as refused:
        assert refused.status == 403
        return False
    assert allowed.bound == bound or need is ANYBODY
    return True


@pytest.mark.parametrize(
    ("need", "by_type", "by_parent"),
    [
        (ANYBODY, True, True),
        (READS, True, True),
        (POSTS, True, True),
        (COPIES, True, False),
        (READS_ALL, False, False),
    ],
)
def test_what_a_bounded_key_may_ask(need: Need, by_type: bool, by_parent: bool) -> None:
    """What cannot be narrowed is refused."""
    assert shown(Scene(), need, TYPES) is by_type
    assert shown(Scene(), need, PARENTS) is by_parent


def test_who_has_all_of_the_feed_may_ask_everything() -> None:
    """By a key with the role."""
    for need in (READS, POSTS, COPIES, READS_ALL, STEERS):
        assert shown(Scene(), need, Filter())


def test_nothing_is_asked_of_anybody() -> None:
    """Not even whether what is shown is right."""
    assert ANYBODY.admit(Scene().guard, FEED, Credential("nonsense")) == ALL
    assert ANYBODY.bounded is Bounded.NARROWED
