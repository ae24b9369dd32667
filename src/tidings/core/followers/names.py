"""
The names of the followers of each feed, and of the lanes of `push`.

A feed with one lane has the follower `push`. Further lanes are called `push-1`, `push-2` and so on;
each has its own checkpoint and lease, and the same function runs all of them. This module is
separate from `follower`, so that a reader of checkpoints does not load what runs a follower.
"""

from __future__ import annotations

PUSH = "push"


def follower_of(lane: int) -> str:
    """The name of the follower that is lane number *lane* of a feed, from 0."""
    return f"{PUSH}-{lane}" if lane else PUSH


def lane_of(follower: str) -> int | None:
    """Which lane *follower* is; None for one that is no lane."""
    name, _, number = follower.partition("-")
    return int(number or 0) if name == PUSH else None


def pushers(lanes: int) -> tuple[str, ...]:
    """The followers of a feed with so many *lanes*."""
    return tuple(map(follower_of, range(lanes)))


def one(feed: str) -> int:
    """The number of lanes on a host that pushes by one follower a feed."""
    return 1


STATE, ARCHIVE = "state", "archive"
FOLLOWERS = (STATE, PUSH)  # of every feed; `archive` is there where a deployment has one
