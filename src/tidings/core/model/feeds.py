"""The names and keys of feeds, the names of their followers, and the retention of feeds.

Users write the *name* of a feed. Stores and the core use its *key* as `feed`. The first feed of a
name has the name as its key. A feed that is created after a deletion has another key, for example
`orders~2`, so that a process that still writes to the deleted feed cannot write to its successor.

The follower of the first lane of a feed is called `push`. The followers of further lanes are called
`push-1`, `push-2` and so on. Each has its own checkpoint and lease, and the same Lambda function
runs all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.errors import InvalidFeed, UnknownFeed

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_FEED = "main"
NAME = re.compile(rf"[a-z0-9][a-z0-9_.-]{{0,{limits.FEED_NAME_CHARS_MAX - 1}}}", re.ASCII)
NAME_RULE = "must be 1 to 63 of a-z, 0-9, '-', '_', '.', and start with a letter or digit"
HOST = "*"  # the whole host, in place of the feed of a credential or of settings
_NUMBER_MARK = "~"  # between the name and the number in a key; not allowed in names


@dataclass(frozen=True, slots=True)
class Retention:
    """A rule that trims pages older than *age_ms*, except for the newest *records_min* pages."""

    age_ms: int
    records_min: int


def check_name(name: str) -> str:
    """Return *name* if it is a valid feed name.

    Raises:
        InvalidFeed: the name is not valid.
    """
    if not NAME.fullmatch(name):
        raise InvalidFeed(NAME_RULE, field="feed", value=name)
    return name


def check_known(name: str, known: frozenset[str]) -> str:
    """Return *name* if it is one of the feeds *known* to this deployment.

    Raises:
        InvalidFeed: the name is not valid.
        UnknownFeed: this deployment has no such feed.
    """
    if name in known:
        return name
    raise UnknownFeed("no such feed here", field="feed", value=check_name(name))


def key_of(name: str, number: int) -> str:
    """Return the key of the feed *number* of *name*; the first feed has the number 1."""
    return name if number == 1 else f"{name}{_NUMBER_MARK}{number}"


def public_name(key: str) -> str:
    """Return the name of the feed with *key*, which users see."""
    return key.partition(_NUMBER_MARK)[0]


def number_of(key: str) -> int:
    """Return the number of the feed with *key* among the feeds of its name."""
    return int(key.partition(_NUMBER_MARK)[2] or 1)


class FeedNames(Protocol):
    """The feeds of a host by name; `feeds.directory` implements it for feeds that may change."""

    @property
    def configured(self) -> frozenset[str]:
        """The names of the feeds that the settings name."""

    def key(self, name: str) -> str:
        """Return the key of the feed *name*.

        Raises:
            InvalidFeed: the name is not valid.
            UnknownFeed: the host has no such feed.
            FeedDeleted: the feed was deleted.
        """

    def find(self, name: str) -> str | None:
        """Return the key of the feed *name*; None if `key` would refuse the name."""

    def check(self, key: str) -> None:
        """Check that the feed with *key* still exists.

        Raises:
            InvalidFeed, UnknownFeed: the host never had such a feed.
            FeedDeleted: the feed was deleted; a feed with another key may have its name.
        """

    def exists(self, key: str) -> bool:
        """Return True if `check` accepts *key*."""

    def all_keys(self) -> Iterable[str]:
        """Return the keys of all feeds, ordered by name."""


@dataclass(frozen=True, slots=True)
class FixedFeeds:
    """Implements `FeedNames` for *configured* feeds that never change; their keys are names."""

    configured: frozenset[str]

    def key(self, name: str) -> str:
        return check_known(name, self.configured)

    def find(self, name: str) -> str | None:
        return name if name in self.configured else None

    def check(self, key: str) -> None:
        check_known(key, self.configured)

    def exists(self, key: str) -> bool:
        return key in self.configured

    def all_keys(self) -> list[str]:
        return sorted(self.configured)


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
