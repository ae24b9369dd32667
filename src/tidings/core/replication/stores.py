"""The stores of `replication`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.model.cursors import Place
    from tidings.core.model.pages import Page
    from tidings.core.replication.clusters import LeaderLease, Member
    from tidings.core.replication.replica import Relay
    from tidings.core.replication.selection import Selection
    from tidings.core.replication.wire import Portion, Rows
    from tidings.core.state.sum_reader import ToldSums


class RelayStore(Protocol):
    """The relays of a deployment, and the only way into the log of a chained feed."""

    def relay(self, feed: str) -> Relay:
        """Strongly consistent; one with version 0 where there is none."""

    def relays(self) -> Sequence[Relay]:
        """All, by feed. Strongly consistent."""

    def write(self, before: Relay, after: Relay) -> bool:
        """
        Put *after* in the place of *before*, if that version is still there; False when not.

        What is stored has `before.version + 1`, whatever *after* says.
        """

    def append(self, before: Relay, after: Relay, pages: Sequence[Page]) -> bool:
        """
        As `write`, with *pages* in the log and its head at `after.checkpoint`: all or nothing.

        The operations that *after* counts more than *before* are counted at the head.

        A page whose number is taken is there already; then nothing is written and the answer
        is False.
        """


class Upstream(Protocol):
    """
    Another feed, at its address.

    Each raises:
        BrokenPortion: what it answered cannot be read.
        Unavailable: it did not answer, or with something else.
        UpstreamRefused: it does not let us read, or has no such feed.
    """

    def pages(
        self, url: str, after: Place, selection: Selection, *, size: int, block_s: int
    ) -> Portion:
        """
        Whole pages behind *after*; none after waiting *block_s* for one.

        Raises:
            LogFellOff: its log does not reach back to *after*.
            OtherLog: *after* is not the end of a page there.
        """

    def rows(self, url: str, bucket: int, after: str | None, selection: Selection) -> Rows:
        """Rows of a bucket above the key *after*, deleted objects too as long as it knows them."""

    def sums(self, url: str) -> ToldSums:
        """What adds up its state; an older release has none, and refuses."""


class Coordinator(Protocol):
    """
    Where the members of a cluster agree who leads.

    Each raises:
        Unavailable: it did not answer.
    """

    def seats(self, cluster: str) -> Sequence[LeaderLease]:
        """Those that were ever taken, by number. Strongly consistent."""

    def take(self, before: LeaderLease, after: LeaderLease) -> bool:
        """Put *after* in the place of *before* if that term and time are still there."""

    def announce(self, member: Member) -> None:
        """Say that *member* is there."""

    def members(self, cluster: str) -> Sequence[Member]:
        """Those that were heard of, by address."""
