"""The stores of `log`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tidings.core.counters import Taken
    from tidings.core.model.pages import Page, Pages


class LogStore(Protocol):
    """The pages of each feed and the counter that numbers them."""

    def together(self) -> AbstractContextManager[object]:
        """
        Write everything inside at once or not at all, if this store has transactions.

        A crash then never leaves a number without its page, and nothing inside waits for another
        writer: none is at work. Without transactions readers close such holes.
        """

    def take(self, feed: str, operations: int = 0) -> int:
        """
        The next page number; each caller gets a number of its own, starting with 1.

        *operations* of the request that asks are counted in the same write: see `Intake`.

        Raises:
            Yielded: another feed goes on with the log.
        """

    def put(self, feed: str, page: Page) -> str:
        """
        Write *page* unless its number is taken; the append id found there afterwards.

        Our own append id means that the page is written, by this call or an earlier one.
        """

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        """
        Pages numbered above *after* in ascending order, at most *limit* or some 1 MB.

        `more` of the answer says that one of the two cut it short: there may be pages behind.

        Strongly consistent: a page whose `put` returned before the call is seen. Numbers may
        be missing. An empty list means that no page above *after* exists. Append id and expiry
        are left out ("" and 0), because every byte and attribute read costs each reader.

        *eventual*: for half the price, eventually consistent. What is there is right, because
        pages never change; what is missing, in between or at the end, may have been written.
        """

    def head(self, feed: str) -> int:
        """The last number taken; 0 before the first."""


class Intake(Protocol):
    """What the counter of a feed knows of producers."""

    def taken(self, feed: str) -> Taken:
        """The last number taken, the operations that numbers were taken for, the successor."""

    def yield_to(self, feed: str, successor: str) -> None:
        """
        From now on `take` gives no number, because the feed at *successor* goes on with the log.

        Whoever took one before may still write its page. "" takes it back.
        """


class TrimStore(Protocol):
    """How far the log of a feed has been given up."""

    def floor(self, feed: str) -> int:
        """First page still in the log; 1 for a new feed. Only ever grows."""

    def raise_floor(self, feed: str, page: int) -> None:
        """Set the floor to *page* unless it is there or above already."""


class Checkpoints(Protocol):
    """Where the followers of a feed stand, for everybody else."""

    def checkpoints(self, feed: str) -> dict[str, int]:
        """The last page each follower of *feed* has handled, by name; {} for a new feed."""
