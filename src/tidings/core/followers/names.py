"""
The names of the followers of each feed, and of the lanes of `push`.

A feed with one lane has the follower `push`. Further lanes are called `push-1`, `push-2` and so on;
each has its own checkpoint and lease, and the same function runs all of them. This module is
separate from `follower`, so that a reader of checkpoints does not load the code of followers.
"""

from __future__ import annotations

PUSH = "push"


def follower_of(lane: int) -> str:
    """Return the name of the follower for lane number *lane* of a feed, counted from 0."""
    return f"{PUSH}-{lane}" if lane else PUSH


def lane_of(follower: str) -> int | None:
    """Return the lane number of *follower*, or None if it is not a lane."""
    name, _, number = follower.partition("-")
    return int(number or 0) if name == PUSH else None


def pushers(lanes: int) -> tuple[str, ...]:
    """Return the followers of a feed with this number of *lanes*."""
    return tuple(map(follower_of, range(lanes)))


def one(feed: str) -> int:
    """Return 1, the number of lanes on a host that has one push follower per feed."""
    return 1


STATE, ARCHIVE = "state", "archive"
FOLLOWERS = (STATE, PUSH)  # of every feed; `archive` only in deployments with an archive
