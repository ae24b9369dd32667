"""The stores of the log. The tests in `tests/contract` define the behaviour of each adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.counters import LogCounter
    from tidings.core.model.pages import Page, Pages

Result = TypeVar("Result")


class LogStore(Protocol):
    """The pages of each feed, the counter that numbers them, and the floor.

    The floor is the first page that was not trimmed. The counter also has the number of ingested
    operations, and the address of the successor, which is the feed that continues the log.
    """

    def together(self, run: Callable[[], Result]) -> Result:
        """Return the result of *run*. Its writes succeed or fail together.

        With transactions, a crash never leaves a number without its page. *run* must not wait for
        another writer, because transactions run one after the other. It is repeated if another
        request of the same transaction has failed, and may run in another thread. A store without
        transactions just calls *run*, and readers close the holes.
        """

    def take(self, feed: str, operations: int = 0) -> int:
        """Return the next page number. The first number is 1, and no number is returned twice.

        *operations* is the number of operations of the request. The write that takes the number
        also adds *operations* to the counter, see `log_counter`.

        Raises:
            Yielded: another feed continues the log.
            Unavailable: restored tables continue the log (`counters.RESTORED`).
        """

    def put(self, feed: str, page: Page) -> str:
        """Write *page* unless a page with its number exists.

        Return the append id of the page that has this number afterwards. If it is the append id of
        *page*, then *page* was written, by this call or an earlier one.
        """

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        """Return pages numbered above *after* in ascending order, at most *limit* and about 1 MB.

        `more` of the result is True if one of these two limits cut the result short, so that more
        pages may follow.

        The read is strongly consistent: it returns a page if its `put` returned before the call.
        Numbers may be missing. An empty list means that no page above *after* exists. The append id
        and the expiry time are left out ("" and 0), because every byte and attribute costs each
        reader.

        *eventual* makes the read eventually consistent, for half the price. The returned pages are
        correct, because pages never change, except that an erasure removes content from entries
        (`erasure`): the read may still return that content for a few seconds. A page that is
        missing from the result may exist.
        """

    def head(self, feed: str) -> int:
        """Return the last page number that was taken, or 0 for a new feed."""

    def log_counter(self, feed: str) -> LogCounter:
        """Return the last number taken, the sum of *operations* of `take`, and a successor."""

    def yield_to(self, feed: str, successor: str) -> None:
        """Make `take` raise `Yielded`, because the feed at *successor* continues the log.

        A writer that took a number earlier may still write its page. An empty *successor* lets
        `take` return numbers again.
        """

    def floor(self, feed: str) -> int:
        """Return the first page that was not trimmed, 1 for a new feed. It never decreases."""

    def raise_floor(self, feed: str, page: int) -> None:
        """Set the floor to *page* if the floor is lower."""

    def expiries(self, feed: str, after: int, last: int) -> list[tuple[int, int]]:
        """Return the pages above *after* up to *last*, each with its expiry time in ms.

        The pages are in ascending order, and come from one read of about 1 MB at most. The expiry
        time is 0 for a page that never expires. The result may be some seconds old. An empty list
        means that no page above *after* up to *last* exists.
        """

    def renew(self, feed: str, page: int, expires_ms: int) -> None:
        """Extend the life of an existing page to at least *expires_ms*; create none."""


class Checkpoints(Protocol):
    """The checkpoints of the followers of a feed, as other readers of the log see them."""

    def checkpoints(self, feed: str) -> dict[str, int]:
        """Return, by name, the last page that each follower of *feed* handled; {} if it is new."""
