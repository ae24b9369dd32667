"""What a feed's tables say, by the same code that an operator's commands read them with."""

from __future__ import annotations

from tidings.core.model.operations import event_of, parse_line
from tidings.sync.target import Place


def told(place: Place) -> list[str]:
    """The operations of the log in its order: `insert x`."""
    pages = place.log().read(place.feed, 0)
    return [f"{event_of(line)} {parse_line(line).id}" for page in pages for line in page.lines]


def followed(place: Place) -> bool:
    """Whether every follower that a change rings stands at the end of the log."""
    found = place.followers().checkpoints(place.feed)
    head = place.log().head(place.feed)
    return {"state", "push"} <= set(found) and min(found["state"], found["push"]) == head


def living(place: Place, *keys: str) -> set[str]:
    """Those of the objects *keys* (`video/x`) that the state holds and that are not deleted."""
    rows = place.state().find(place.feed, keys)
    return {row.key for row in rows if not row.deleted}
