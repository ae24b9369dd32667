"""Admit readers that stay connected, and check whether they may still read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core.auth.guard import READ
from tidings.core.auth.quotas import Charges, ReadCharge, StreamQuota, StreamSlot

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed, Credential, Guard
    from tidings.core.settings.values import Admission


@dataclass(frozen=True, slots=True)
class ReaderGate:
    """The entry of readers. *charges* returns the counter of the data that a reader reads."""

    guard: Guard
    quota: StreamQuota
    charges: Charges

    def admit(self, feed: str, given: Credential | None) -> ReaderAccess:
        """Return the access of a reader of *feed* with the credential *given*.

        Raises:
            Rejected: *given* does not permit reading; see `Guard.check`.
        """
        # Read the version before the check, so that every later change is noticed.
        since_ms, version = self.quota.runtime.clock(), self.guard.version(feed)
        return ReaderAccess(
            self, feed, given, READ.admit(self.guard, feed, given), since_ms, version
        )


@dataclass(slots=True)
class ReaderAccess:
    """The access of a reader of *feed*, which *gate* admitted with *given* at *since_ms*.

    *version* is `Guard.version` at that time. `charge` counts the data that the reader reads. An
    event stream has a slot in the quota of its key from `take_slot` to `close`.
    """

    gate: ReaderGate
    feed: str
    given: Credential | None
    allowed: Allowed
    since_ms: int
    version: int
    charge: ReadCharge = field(init=False)
    _slot: StreamSlot | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.charge = self.gate.charges(self.feed, self.admission)

    @property
    def admission(self) -> Admission:
        return self.allowed.admission

    def check(self) -> None:
        """Check that the reader may still read; call it after each read.

        A key ends by itself. A password is checked again if the passwords have changed.

        Raises:
            FeedDeleted, Rejected: the reader must be disconnected.
        """
        guard = self.gate.guard
        guard.check_held(self.feed, self.admission, self.since_ms, self.gate.quota.runtime.clock())
        if not self.admission.may_end and (version := guard.version(self.feed)) != self.version:
            READ.admit(guard, self.feed, self.given)
            self.version = version

    def take_slot(self) -> None:
        """Count the reader as an open stream of its key.

        Raises:
            TooManyRequests: the maximum number of streams is open.
        """
        self._slot = self.gate.quota.acquire(self.feed, self.allowed)

    def renew(self) -> None:
        """Keep the slot from expiring."""
        if self._slot:
            self._slot.renew(self.gate.quota.runtime.clock())

    def close(self) -> None:
        """Release the slot; a second call does nothing."""
        if self._slot:
            self._slot.release()
