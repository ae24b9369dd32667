"""Feeds: their names."""

from __future__ import annotations

import pytest

from tidings.core.errors import InvalidFeed, UnknownFeed
from tidings.core.model import feeds

KNOWN = frozenset({"main", "other"})


@pytest.mark.parametrize("name", [feeds.DEFAULT_FEED, "main", "a", "0", "a.b-c_d", "9" * 63])
def test_what_names_a_feed(name: str) -> None:
    """It comes back as it is."""
    assert feeds.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Main",
        "-a",
        ".a",
        "_a",
        "a b",
        "a/b",
        "a#b",
        "a" * 64,
        "main\n",
        "\u0661",
        "\u00e4",
        "\0",
    ],
)
def test_what_does_not(name: str) -> None:
    """It becomes part of keys and paths, so little is allowed."""
    with pytest.raises(InvalidFeed, match="feed: must be 1 to 63 of a-z, 0-9"):
        feeds.check_known(name, KNOWN)


def test_unknown_feeds() -> None:
    """A good name is not yet a feed."""
    assert feeds.check_known("other", KNOWN) == "other"
    with pytest.raises(UnknownFeed, match="feed: no such feed here"):
        feeds.check_known("third", KNOWN)
