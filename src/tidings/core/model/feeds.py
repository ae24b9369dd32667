"""Feeds: their names and their retention."""

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
    """How long the log of a feed is kept: by age, but never fewer than *records_min* operations."""

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
    if check_name(name) not in known:
        raise UnknownFeed("no such feed here", field="feed", value=name)
    return name
