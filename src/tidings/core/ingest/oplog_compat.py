"""The error responses of a feed: those of Tidings, or those of oplog (compatibility mode)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.errors import InvalidOperation, TidingsError, Unavailable
from tidings.core.settings.profiles import OPLOG

if TYPE_CHECKING:
    from tidings.core.settings.profiles import ProfileStore

_OPLOG_INVALID = 503  # known to oplog's producers; most of them retry then


@dataclass(frozen=True, slots=True)
class CompatibilityMode:
    profiles: ProfileStore
    feeds: frozenset[str]

    def are_oplogs(self, feed: str) -> bool:
        """
        Return True if *feed* answers as oplog did, False also if it is unknown or its store fails.
        """
        if feed not in self.feeds:
            return False
        try:
            return self.profiles.profile(feed).compat == OPLOG
        except Unavailable:
            return False


def oplog_status(error: TidingsError, status: int) -> int:
    """Return oplog's status for *error*, for which Tidings uses *status*."""
    return _OPLOG_INVALID if isinstance(error, InvalidOperation) else status
