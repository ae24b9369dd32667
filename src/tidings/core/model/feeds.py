"""
The names of feeds and of their followers, and the retention of feeds.

The follower of the first lane of a feed is called `push`. The followers of further lanes are called
`push-1`, `push-2` and so on. Each has its own checkpoint and lease, and the same Lambda function
runs all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidings.core import limits
from tidings.core.errors import InvalidFeed, UnknownFeed

DEFAULT_FEED = "main"
NAME = re.compile(rf"[a-z0-9][a-z0-9_.-]{{0,{limits.FEED_NAME_CHARS_MAX - 1}}}", re.ASCII)
NAME_RULE = "must be 1 to 63 of a-z, 0-9, '-', '_', '.', and start with a letter or digit"


@dataclass(frozen=True, slots=True)
class Retention:
    """A rule that trims pages older than *age_ms*, except for the newest *records_min* pages."""

    age_ms: int
    records_min: int


def check_name(name: str) -> str:
    """
    Return *name* if it is a valid feed name.

    Raises:
        InvalidFeed: the name is not valid.
    """
    if not NAME.fullmatch(name):
        raise InvalidFeed(NAME_RULE, field="feed", value=name)
    return name


def check_known(name: str, known: frozenset[str]) -> str:
    """
    Return *name* if it is one of the feeds *known* to this deployment.

    Raises:
        InvalidFeed: the name is not valid.
        UnknownFeed: this deployment has no such feed.
    """
    if name in known:
        return name
    raise UnknownFeed("no such feed here", field="feed", value=check_name(name))


PUSH = "push"


def follower_of(lane: int) -> str:
    """Return the name of the follower for lane number *lane* of a feed, counted from 0."""
    return f"{PUSH}-{lane}" if lane else PUSH


def lane_of(follower: str) -> int | None:
    """Return the lane number of *follower*, or None if *follower* is not a lane."""
    name, _, number = follower.partition("-")
    return int(number or 0) if name == PUSH else None


def pushers(lanes: int) -> tuple[str, ...]:
    """Return the names of the push followers of a feed with *lanes* lanes."""
    return tuple(map(follower_of, range(lanes)))


def one_lane(feed: str) -> int:
    """Return 1, the number of lanes on a host that has one push follower per feed."""
    return 1


STATE, ARCHIVE = "state", "archive"
ERASE = "erase"  # not a follower, but woken like one: the job of erasures
FOLLOWERS = (STATE, PUSH)  # the followers of every feed; `archive` runs only if there is an archive
