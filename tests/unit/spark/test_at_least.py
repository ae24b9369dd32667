"""How much of the log a read of the state is sure to hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tidings.core.model.cursors import PAGE_END, Place
from tidings.spark import options
from tidings.spark.backends import Ends
from tidings.spark.options import Lagging, Rows, WrongOption
from tidings.spark.reader import Reader
from tidings.sync import feed as sync_feed

END = Place(9, PAGE_END, 5)


@dataclass
class Following:
    """A backend whose state is at the next one of *pages* at each request, and then at the last
    one."""

    pages: Sequence[int]
    asked: int = field(default=0)

    def ends(self) -> Ends:
        at = min(self.asked, len(self.pages) - 1)
        self.asked += 1
        return Ends(1, END, self.pages[at])


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Time passes at once."""
    found: list[int] = []
    monkeypatch.setattr(sync_feed, "sleep_ms", found.append)
    return found


def planned(way: Following, **given: str) -> list[Rows]:
    chosen: Mapping[str, str] = {"url": "http://x", "what": "state", "partitions": "1", **given}
    reader = Reader(options.parse(chosen), cast(Any, way), cast(Any, None))
    return cast(list[Rows], reader.partitions())


def test_the_state_is_waited_for(waits: list[int]) -> None:
    """The read waits until the state has the log from the time of planning, then reads the log
    after it.
    """
    (task,) = planned(Following([3, 3, 6, 8, 9]))

    assert task.copy.page == 9 and len(waits) == 3


@pytest.mark.parametrize(("at_least", "page"), [(Place(5, 3, 1).encode(), 6), ("oldest", 3)])
def test_less_may_be_asked_for(at_least: str, page: int) -> None:
    """A cursor, as that of one's own last POST; or nothing at all."""
    (task,) = planned(Following([3, 3, 6, 8, 9]), atLeast=at_least)

    assert task.copy.page == page


def test_a_state_that_stands_still_is_an_error(waits: list[int]) -> None:
    """After five minutes, with both pages and what to do; while it moves it is waited for."""
    moving = [page for page in range(8) for _ in range(200)]
    with pytest.raises(Lagging, match=r"at page 7 and the log at page 9;.*300 s.*atLeast=oldest"):
        planned(Following(moving))

    assert sum(waits) > 2 * sync_feed.STALL_MS


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (
            {"atLeast": Place(10, 0, 5).encode()},
            "option atLeast: must not be after the end of the feed",
        ),
        ({"atLeast": "tomorrow"}, "option atLeast: must be the id of an event"),
        ({"atLeast": "now", "what": "log"}, "option atLeast: is valid only with what=state"),
    ],
)
def test_what_nobody_can_wait_for_is_refused(given: dict[str, str], rule: str) -> None:
    """The error comes at once and names the option."""
    with pytest.raises(WrongOption, match=rule):
        planned(Following([3]), **given)
