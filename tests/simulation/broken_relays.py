"""Relays with one rule taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.fakes import MemoryLog, MemoryRelays
from tests.simulation.parts import instead
from tidings.core.replication import bootstrap, election
from tidings.core.replication.bootstrap import Bootstrapper
from tidings.core.replication.relay import relay_write

if TYPE_CHECKING:
    from tidings.core.model.pages import Page
    from tidings.core.replication.election import LeaderLease
    from tidings.core.replication.relay import Copy, Relay
    from tidings.core.replication.wire import UpstreamStatus


def _latest_page(relay: Relay, copy: Copy, standing: UpstreamStatus | None) -> Copy:
    """The log begins after the last rows that were read, not after the first ones."""
    return copy if standing is None else replace(copy, page=standing.head)


def _without_floor(self: Bootstrapper, relay: Relay, copy: Copy) -> Relay:
    """The consumers are not notified of missing pages."""
    self.lease.save(relay.feed, copy.page)
    return replace(relay, checkpoint=copy.page, seconds=copy.seconds, copy=None)


def _any_version(self: MemoryRelays, before: Relay, after: Relay) -> bool:
    """The last writer always succeeds."""
    return self.records.write(after.feed, [relay_write(self.relay(after.feed), after)])


def _in_two_writes(
    self: MemoryLog, feed: str, pages: Sequence[Page], *, head: int, operations: int
) -> bool:
    """The checkpoint is saved although the last page is not."""
    kept = list(pages)[:-1] if len(pages) > 2 else pages
    return _enter(self, feed, kept, head=head, operations=operations)


def _any_lease(leases: Sequence[LeaderLease], now_ms: int) -> LeaderLease | None:
    """Takes a leader's lease before it has expired."""
    return next(iter(leases), None)


_enter = MemoryLog.enter
latest_page = instead(bootstrap, "_at_end_of", _latest_page)
without_floor = instead(Bootstrapper, "finish", _without_floor)
any_version = instead(MemoryRelays, "write", _any_version)
in_two_writes = instead(MemoryLog, "enter", _in_two_writes)
any_lease = instead(election, "free_lease", _any_lease)
